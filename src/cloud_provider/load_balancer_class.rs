//! Assignment of Services to managers by `spec.loadBalancerClass`, and their finalizers. Pure.
//!
//! In: the settings and a Service. Out: whether this manager creates the load balancer of the Service, and which managers
//! have resources of it. A user who changes the type `LoadBalancer` must also remove the class from the spec. Then only the
//! finalizer names the manager that must clean up. So each class has its own finalizer, and Services without a class have
//! upstream's.

use k8s_openapi::api::core::v1::Service;

use super::helpers::FINALIZER;

/// First part of the prefix of a class's finalizer.
const CLASS_FINALIZER: &str = "load-balancer-cleanup";
/// Maximum length of the name in a qualified name, such as a label key.
const MAX_NAME_LENGTH: usize = 63;
/// Maximum length of the prefix in a qualified name.
const MAX_PREFIX_LENGTH: usize = 253;

/// Classes that this manager serves. By default, it serves Services without a class, as upstream does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerClasses {
    own: Option<OwnClass>,
    without_class: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnClass {
    name: String,
    finalizer: String,
}

impl Default for LoadBalancerClasses {
    fn default() -> Self {
        Self { own: None, without_class: true }
    }
}

impl LoadBalancerClasses {
    /// Creates settings for the class `class` and, if `without_class` is set, for Services without a class.
    ///
    /// # Errors
    ///
    /// `class` is not a valid class name.
    pub fn new(class: Option<&str>, without_class: bool) -> Result<Self, String> {
        let own = class.map(|name| Ok::<_, String>(OwnClass { name: name.to_owned(), finalizer: class_finalizer(name)? }));
        Ok(Self { own: own.transpose()?, without_class })
    }

    /// Returns `true` if the Service is of type `LoadBalancer` and this manager creates its load balancer.
    pub fn wants(&self, service: &Service) -> bool {
        is_load_balancer(service) && self.serves(service)
    }

    /// Returns `true` if the Service is of type `LoadBalancer` and another component creates its load balancer.
    pub fn is_elsewhere(&self, service: &Service) -> bool {
        is_load_balancer(service) && !self.serves(service)
    }

    fn serves(&self, service: &Service) -> bool {
        match class_of(service) {
            None => self.without_class,
            Some(class) => self.own.as_ref().is_some_and(|own| own.name == class),
        }
    }

    /// Returns the finalizer that this manager adds to a Service that it serves.
    pub fn finalizer_of(&self, service: &Service) -> &str {
        let own = self.own.as_ref().filter(|own| class_of(service) == Some(&own.name));
        own.map_or(FINALIZER, |own| &own.finalizer)
    }

    /// Returns `true` if this manager, and no other, removes the finalizer.
    pub fn is_own_finalizer(&self, finalizer: &str) -> bool {
        (self.without_class && finalizer == FINALIZER) || self.own.as_ref().is_some_and(|own| own.finalizer == finalizer)
    }

    /// Returns `true` if the Service has a finalizer of this manager.
    pub fn has_finalizer(&self, service: &Service) -> bool {
        finalizers(service).any(|finalizer| self.is_own_finalizer(finalizer))
    }

    /// Returns `true` if the Service has the finalizer of this manager's class, which no other component adds.
    pub fn has_class_finalizer(&self, service: &Service) -> bool {
        self.own.as_ref().is_some_and(|own| finalizers(service).any(|finalizer| own.finalizer == finalizer))
    }

    /// Returns the finalizer of another manager that has, or may have, a load balancer of the Service; `None` if there is
    /// none.
    pub fn other_finalizer<'s>(&self, service: &'s Service) -> Option<&'s str> {
        finalizers(service).find(|finalizer| is_cleanup_finalizer(finalizer) && !self.is_own_finalizer(finalizer))
    }

    /// Returns `true` if only this manager has, or may have, a load balancer of the Service.
    ///
    /// A new manager waits until the previous manager has cleaned up.
    pub fn is_managed(&self, service: &Service) -> bool {
        let (has_own_finalizer, has_other_finalizer) =
            (self.has_finalizer(service), self.other_finalizer(service).is_some());
        match (is_load_balancer(service), self.serves(service)) {
            (true, true) => has_own_finalizer || !has_other_finalizer,
            (true, false) => has_own_finalizer && !has_other_finalizer,
            (false, _) => has_own_finalizer,
        }
    }

    /// Returns `true` if another manager has, or may have, a load balancer of the Service.
    pub fn is_others(&self, service: &Service) -> bool {
        !self.is_managed(service) && self.other_finalizer(service).is_some()
    }
}

/// Returns `true` if the Service is of type `LoadBalancer`, of any class.
pub fn is_load_balancer(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
}

/// Returns `true` if a finalizer of any manager delays the deletion of the Service until its load balancer is deleted.
pub fn has_cleanup_finalizer(service: &Service) -> bool {
    finalizers(service).any(is_cleanup_finalizer)
}

fn class_of(service: &Service) -> Option<&str> {
    service.spec.as_ref()?.load_balancer_class.as_deref()
}

fn finalizers(service: &Service) -> impl Iterator<Item = &str> {
    service.metadata.finalizers.iter().flatten().map(String::as_str)
}

/// Returns `true` if a manager of load balancers adds the finalizer, for Services with or without a class.
pub fn is_cleanup_finalizer(finalizer: &str) -> bool {
    let of_class = |rest: &str| rest.starts_with('/') || rest.starts_with('.');
    finalizer == FINALIZER || finalizer.strip_prefix(CLASS_FINALIZER).is_some_and(of_class)
}

/// Returns the finalizer of a class: `load-balancer-cleanup.example.com/azure` for `example.com/azure`.
fn class_finalizer(class: &str) -> Result<String, String> {
    let (domain, name) = class.split_once('/').map_or((None, class), |(domain, name)| (Some(domain), name));
    let prefix = domain.map_or_else(|| CLASS_FINALIZER.to_owned(), |domain| format!("{CLASS_FINALIZER}.{domain}"));
    if !is_name(name) || domain.is_some_and(|domain| !is_subdomain(domain)) {
        return Err("expected a name like that of a label, such as \"internal-vip\" or \"example.com/azure\"".to_owned());
    }
    if prefix.len() > MAX_PREFIX_LENGTH {
        let most = MAX_PREFIX_LENGTH - CLASS_FINALIZER.len() - 1;
        return Err(format!("expected at most {most} characters before the slash, because a finalizer contains them"));
    }
    Ok(format!("{prefix}/{name}"))
}

fn is_name(text: &str) -> bool {
    let is_end = |end: Option<char>| end.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    is_end(text.chars().next())
        && is_end(text.chars().next_back())
        && text.len() <= MAX_NAME_LENGTH
        && text.chars().all(is_inner)
}

fn is_subdomain(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = |label: &str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
    text.split('.').all(|label| is_label(label) && label.chars().all(is_inner))
}

#[cfg(test)]
mod tests;
