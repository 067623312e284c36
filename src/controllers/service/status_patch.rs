//! Patches of a Service's status subresource, each with finalizer, ingress and condition together. Pure.
//!
//! Upstream (`service/helpers`) sends strategic merge patches; these are JSON merge patches with `resourceVersion`, because
//! a server without `status.conditions` in its schema rejects a strategic merge of it. Lists are sent whole, and the version
//! guards them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service};
use serde_json::{Value, json};

use super::conditions::{self, LoadBalancerPhase};
use crate::cloud_provider::load_balancer_class::LoadBalancerClasses;

/// Returns the patch that adds the finalizer, and removes those of other classes that this manager serves; `None` if no
/// change is needed.
pub fn add_finalizer(classes: &LoadBalancerClasses, service: &Service, now: Timestamp) -> Option<Value> {
    let finalizers = missing_finalizer(classes, service)?;
    let mut body = body(service);
    body["metadata"]["finalizers"] = json!(finalizers);
    set_condition(&mut body, service, &LoadBalancerPhase::Ensuring, now);
    Some(body)
}

/// Returns `true` if [`add_finalizer`] would return a patch.
pub fn lacks_finalizer(classes: &LoadBalancerClasses, service: &Service) -> bool {
    missing_finalizer(classes, service).is_some()
}

/// Returns the finalizers that `service` should have; `None` if it has them.
fn missing_finalizer<'a>(classes: &'a LoadBalancerClasses, service: &'a Service) -> Option<Vec<&'a str>> {
    let listed = service.metadata.finalizers.iter().flatten().map(String::as_str);
    let (own, others): (Vec<_>, Vec<_>) = listed.partition(|finalizer| classes.is_own_finalizer(finalizer));
    let required = classes.finalizer_of(service);
    (own != [required]).then(|| others.into_iter().chain([required]).collect())
}

/// Returns `true` if [`publish`] would return a patch.
pub fn needs_publish(service: &Service, status: Option<&LoadBalancerStatus>, phase: &LoadBalancerPhase) -> bool {
    status.is_some_and(|status| !is_published(service, status)) || phase.needs_write(conditions::current(service))
}

/// Returns the addresses that `service` must list for `desired`.
///
/// `published` are the addresses that this process wrote before; all others belong to other writers and are kept. Without
/// `published`, only the `desired` addresses are listed, as upstream does.
pub fn addresses(
    service: &Service,
    desired: &LoadBalancerStatus,
    published: Option<&LoadBalancerStatus>,
) -> LoadBalancerStatus {
    let Some(published) = published else { return desired.clone() };
    let is_obsolete = |entry: &LoadBalancerIngress| lists(published, entry) && !lists(desired, entry);
    let retained = ingress(service).iter().filter(|entry| !is_obsolete(entry));
    let missing = entries(desired).iter().filter(|entry| !has_address(ingress(service), entry));
    LoadBalancerStatus { ingress: Some(retained.chain(missing).cloned().collect()) }
}

/// Returns our entries in `service` as the server returned it after the [`addresses`] in `written` were sent for `desired`.
///
/// These are all entries but those of other writers, because an admission policy may have changed ours.
pub fn own_addresses(service: &Service, desired: &LoadBalancerStatus, written: &LoadBalancerStatus) -> LoadBalancerStatus {
    let is_foreign = |entry: &LoadBalancerIngress| lists(written, entry) && !lists(desired, entry);
    LoadBalancerStatus { ingress: Some(ingress(service).iter().filter(|entry| !is_foreign(entry)).cloned().collect()) }
}

/// Returns `true` if `service` lists an entry that differs from all `published` ones.
pub fn has_additions(service: &Service, published: &LoadBalancerStatus) -> bool {
    !ingress(service).iter().all(|entry| entries(published).iter().any(|own| is_same(entry, own)))
}

/// Returns `true` if both list the same addresses.
pub fn lists_same(old: &LoadBalancerStatus, new: &LoadBalancerStatus) -> bool {
    let contains = |all: &LoadBalancerStatus, other: &LoadBalancerStatus| entries(other).iter().all(|it| lists(all, it));
    contains(old, new) && contains(new, old)
}

/// Returns the patch that restores finalizer, addresses and condition after another writer.
pub fn restore(
    classes: &LoadBalancerClasses,
    service: &Service,
    (status, phase): (Option<&LoadBalancerStatus>, &LoadBalancerPhase),
    now: Timestamp,
) -> Value {
    let mut body = status_body(service, status, phase, now);
    if let Some(finalizers) = missing_finalizer(classes, service) {
        body["metadata"]["finalizers"] = json!(finalizers);
    }
    body
}

/// Returns the patch that writes `phase`, and `status` if `service` lacks it.
fn status_body(service: &Service, status: Option<&LoadBalancerStatus>, phase: &LoadBalancerPhase, now: Timestamp) -> Value {
    let mut body = body(service);
    if let Some(status) = status.filter(|status| !is_published(service, status)) {
        body["status"]["loadBalancer"] = json!({ "ingress": status.ingress });
    }
    set_condition(&mut body, service, phase, now);
    body
}

/// Returns the patch that writes `phase`, and `status` if the provider returned one; `None` if no write is needed.
pub fn publish(
    service: &Service,
    status: Option<&LoadBalancerStatus>,
    phase: &LoadBalancerPhase,
    now: Timestamp,
) -> Option<Value> {
    needs_publish(service, status, phase).then(|| status_body(service, status, phase, now))
}

/// Returns the patch that removes finalizer, condition and addresses of a deleted load balancer; `None` if there are none.
pub fn clean(classes: &LoadBalancerClasses, service: &Service) -> Option<Value> {
    let patch = remove_finalizer_and_condition(classes, service);
    if ingress(service).is_empty() {
        return patch;
    }
    let mut body = patch.unwrap_or_else(|| body(service));
    body["status"]["loadBalancer"] = json!({ "ingress": null });
    Some(body)
}

/// Returns the patch that removes only our finalizer and condition; the addresses belong to another component.
pub fn remove_finalizer_and_condition(classes: &LoadBalancerClasses, service: &Service) -> Option<Value> {
    let finalizer = remove_finalizer(classes, service);
    if conditions::current(service).is_none() {
        return finalizer;
    }
    let mut body = finalizer.unwrap_or_else(|| body(service));
    body["status"]["conditions"] = json!(conditions::all_with(service, None));
    Some(body)
}

/// Returns the patch that removes only our finalizer; the condition belongs to another manager.
pub fn remove_finalizer(classes: &LoadBalancerClasses, service: &Service) -> Option<Value> {
    if !classes.has_finalizer(service) {
        return None;
    }
    let listed = service.metadata.finalizers.iter().flatten();
    let others: Vec<_> = listed.filter(|other| !classes.is_own_finalizer(other)).collect();
    let mut body = body(service);
    body["metadata"]["finalizers"] = json!(others);
    Some(body)
}

fn body(service: &Service) -> Value {
    json!({ "metadata": { "resourceVersion": service.metadata.resource_version } })
}

fn set_condition(body: &mut Value, service: &Service, phase: &LoadBalancerPhase, now: Timestamp) {
    let condition = phase.condition(conditions::current(service), service.metadata.generation, now);
    body["status"]["conditions"] = json!(conditions::all_with(service, Some(condition)));
}

/// Returns the addresses that `service` lists and `desired` lacks.
pub fn removed_addresses<'a>(service: &'a Service, desired: &LoadBalancerStatus) -> Vec<&'a str> {
    ingress(service).iter().filter(|entry| !lists(desired, entry)).filter_map(address).collect()
}

pub(super) fn ingress(service: &Service) -> &[LoadBalancerIngress] {
    service.status.as_ref().and_then(|status| status.load_balancer.as_ref()).map(entries).unwrap_or_default()
}

fn entries(status: &LoadBalancerStatus) -> &[LoadBalancerIngress] {
    status.ingress.as_deref().unwrap_or_default()
}

fn lists(status: &LoadBalancerStatus, entry: &LoadBalancerIngress) -> bool {
    has_address(entries(status), entry)
}

/// Returns `true` if one of `entries` has the address of `entry`. Other fields, such as the host name, may differ.
fn has_address(entries: &[LoadBalancerIngress], entry: &LoadBalancerIngress) -> bool {
    entries.iter().any(|other| address(other) == address(entry))
}

/// Returns the IP address of an entry, or its host name if it has none.
fn address(entry: &LoadBalancerIngress) -> Option<&str> {
    entry.ip.as_deref().filter(|ip| !ip.is_empty()).or(entry.hostname.as_deref())
}

/// Returns `true` if `service` lists the entries of `status`, in this order, and no others.
pub fn is_published(service: &Service, status: &LoadBalancerStatus) -> bool {
    let (old, new) = (ingress(service), entries(status));
    old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_same(old, new))
}

/// Returns `true` if `old` equals `new` in all fields that `new` sets. The server sets `ipMode`, for example.
fn is_same(old: &LoadBalancerIngress, new: &LoadBalancerIngress) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    text(&old.ip) == text(&new.ip)
        && text(&old.hostname) == text(&new.hostname)
        && (new.ip_mode.is_none() || old.ip_mode == new.ip_mode)
        && (new.ports.is_none() || old.ports == new.ports)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceStatus;

    use super::*;
    use crate::cloud_provider::helpers::FINALIZER;

    fn upstream() -> LoadBalancerClasses {
        LoadBalancerClasses::default()
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn status(ips: &[&str]) -> LoadBalancerStatus {
        let entry = |ip: &&str| LoadBalancerIngress { ip: Some((*ip).to_owned()), ..Default::default() };
        LoadBalancerStatus { ingress: Some(ips.iter().map(entry).collect()) }
    }

    fn service(finalizers: &[&str], ips: &[&str]) -> Service {
        let mut service = Service::default();
        service.metadata.resource_version = Some("7".into());
        service.metadata.finalizers = Some(finalizers.iter().map(|f| (*f).to_owned()).collect());
        service.status = Some(ServiceStatus { load_balancer: Some(status(ips)), conditions: None });
        service
    }

    #[test]
    fn the_finalizer_is_added_once_next_to_others() {
        let body = add_finalizer(&upstream(), &service(&["other"], &[]), NOW).unwrap();
        assert_eq!(body["metadata"], json!({ "resourceVersion": "7", "finalizers": ["other", FINALIZER] }));
        assert_eq!(body["status"]["conditions"][0]["reason"], "Ensuring");
        assert_eq!(add_finalizer(&upstream(), &service(&[FINALIZER], &[]), NOW), None);
    }

    #[test]
    fn cleanup_is_one_patch() {
        let body = clean(&upstream(), &service(&["other", FINALIZER], &["1.2.3.4"])).unwrap();
        assert_eq!(body["metadata"]["finalizers"], json!(["other"]));
        assert_eq!(body["status"], json!({ "loadBalancer": { "ingress": null } }));
        assert_eq!(clean(&upstream(), &service(&["other"], &[])), None);
        assert_eq!(
            clean(&upstream(), &service(&["other"], &["1.2.3.4"])).unwrap()["status"],
            json!({ "loadBalancer": { "ingress": null } })
        );
    }

    #[test]
    fn hand_over_keeps_foreign_addresses() {
        let body = remove_finalizer_and_condition(&upstream(), &service(&["other", FINALIZER], &["1.2.3.4"])).unwrap();
        assert_eq!((&body["metadata"]["finalizers"], &body["status"]), (&json!(["other"]), &Value::Null));
        assert_eq!(remove_finalizer_and_condition(&upstream(), &service(&["other"], &["1.2.3.4"])), None);
    }

    #[test]
    fn only_the_own_finalizer_is_added_and_removed() {
        const OURS: &str = "load-balancer-cleanup.example.com/azure";
        let both = LoadBalancerClasses::new(Some("example.com/azure"), true).unwrap();
        let mut of_class = service(&["other", FINALIZER], &[]);
        of_class.spec.get_or_insert_default().load_balancer_class = Some("example.com/azure".to_owned());
        let body = add_finalizer(&both, &of_class, NOW).unwrap();
        assert_eq!(
            body["metadata"]["finalizers"],
            json!(["other", OURS]),
            "upstream's finalizer is for Services without a class"
        );
        of_class.metadata.finalizers = Some(vec![OURS.to_owned()]);
        assert_eq!(add_finalizer(&both, &of_class, NOW), None);
        let own = LoadBalancerClasses::new(Some("example.com/azure"), false).unwrap();
        let shared = service(&[FINALIZER, OURS], &["1.2.3.4"]);
        for (classes, rest) in [(&own, json!([FINALIZER])), (&upstream(), json!([OURS])), (&both, json!([]))] {
            let body = remove_finalizer(classes, &shared).unwrap();
            assert_eq!((&body["metadata"]["finalizers"], &body["status"]), (&rest, &Value::Null));
        }
        assert_eq!(remove_finalizer(&own, &service(&[FINALIZER], &["1.2.3.4"])), None);
    }

    #[test]
    fn status_is_patched_only_when_it_differs() {
        let old = service(&[FINALIZER], &["1.2.3.4"]);
        assert_eq!(publish(&old, Some(&status(&["1.2.3.4"])), &LoadBalancerPhase::Ready, NOW), None);
        assert_eq!(publish(&service(&[], &[]), Some(&status(&[])), &LoadBalancerPhase::Ready, NOW), None);
        let body = publish(&old, Some(&status(&["5.6.7.8"])), &LoadBalancerPhase::Ready, NOW).unwrap();
        assert_eq!(body["status"]["loadBalancer"]["ingress"][0]["ip"], "5.6.7.8");
        assert_eq!(body["status"]["conditions"][0]["status"], "True");
        assert!(publish(&old, Some(&status(&[])), &LoadBalancerPhase::Ready, NOW).is_some(), "cleared");
    }

    #[test]
    fn defaults_of_the_server_are_not_a_difference() {
        let mut old = service(&[FINALIZER], &["1.2.3.4"]);
        let ingress = old.status.as_mut().and_then(|s| s.load_balancer.as_mut()).and_then(|l| l.ingress.as_mut()).unwrap();
        ingress[0].ip_mode = Some("VIP".into());
        assert_eq!(publish(&old, Some(&status(&["1.2.3.4"])), &LoadBalancerPhase::Ready, NOW), None);
    }

    #[test]
    fn addresses_of_other_writers_are_kept_next_to_ours() {
        let split = |text: &'static str| text.split(' ').collect::<Vec<_>>();
        for (name, listed, published, desired, expected) in [
            ("first result after a start", "1.1.1.1 9.9.9.9", None, "1.1.1.1", "1.1.1.1"),
            ("unchanged", "1.1.1.1 9.9.9.9", Some("1.1.1.1"), "1.1.1.1", "1.1.1.1 9.9.9.9"),
            ("ours is missing", "9.9.9.9", Some("1.1.1.1"), "1.1.1.1", "9.9.9.9 1.1.1.1"),
            ("ours changed", "1.1.1.1 9.9.9.9", Some("1.1.1.1"), "2.2.2.2", "9.9.9.9 2.2.2.2"),
            ("one of ours is obsolete", "1.1.1.1 2.2.2.2", Some("1.1.1.1 2.2.2.2"), "2.2.2.2", "2.2.2.2"),
        ] {
            let published = published.map(|published| status(&split(published)));
            let result = addresses(&service(&[], &split(listed)), &status(&split(desired)), published.as_ref());
            assert_eq!(result, status(&split(expected)), "{name}");
        }
    }

    #[test]
    fn a_host_name_at_our_address_is_kept_and_reported() {
        let (own, bare) = (status(&["1.2.3.4"]), service(&[FINALIZER], &["1.2.3.4"]));
        let mut named = bare.clone();
        let ingress = named.status.as_mut().and_then(|s| s.load_balancer.as_mut()).and_then(|l| l.ingress.as_mut()).unwrap();
        ingress[0].hostname = Some("web.example.com".into());
        let listed = addresses(&named, &own, Some(&own));
        assert_eq!(publish(&named, Some(&listed), &LoadBalancerPhase::Ready, NOW), None);
        assert!(
            publish(&named, Some(&own), &LoadBalancerPhase::Ready, NOW).is_some(),
            "a changed Service gets the whole list"
        );
        assert!(has_additions(&named, &own) && !has_additions(&bare, &own));
    }

    #[test]
    fn addresses_that_the_server_changed_are_not_restored() {
        let returned = service(&[], &["9.9.9.9", "3.3.3.3"]);
        let own = own_addresses(&returned, &status(&["1.1.1.1"]), &status(&["9.9.9.9", "1.1.1.1"]));
        assert_eq!(own, status(&["3.3.3.3"]), "a policy replaced ours, and another writer's address was kept");
        assert_eq!(addresses(&returned, &own, Some(&own)), status(&["9.9.9.9", "3.3.3.3"]));
        assert!(lists_same(&own, &status(&["3.3.3.3"])) && !lists_same(&own, &status(&["1.1.1.1", "3.3.3.3"])));
    }

    #[test]
    fn a_failure_is_written_without_addresses() {
        let body = publish(&service(&[], &[]), None, &LoadBalancerPhase::Failed("no quota".into()), NOW).unwrap();
        assert_eq!(body["status"]["conditions"][0]["message"], "no quota");
        assert!(body["status"].get("loadBalancer").is_none());
    }
}
