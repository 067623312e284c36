//! Charge of one request, derived from its method and path. Pure.

use std::{collections::BTreeSet, sync::Arc};

use crate::providers::azure::model::{ApiType, Quota};

/// Namespaces whose Services cause a write, each once; none if no Service causes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Causes(Arc<[String]>);

impl<'a> FromIterator<&'a str> for Causes {
    fn from_iter<I: IntoIterator<Item = &'a str>>(namespaces: I) -> Self {
        let unique: BTreeSet<&str> = namespaces.into_iter().collect();
        Self(unique.into_iter().map(str::to_owned).collect())
    }
}

impl Causes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Class of a request in ARM's quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChargedOperation {
    /// GET and HEAD, including lists and polls.
    Read,
    /// PUT, PATCH and POST.
    Write,
    Delete,
}

impl ChargedOperation {
    /// Returns the class of requests with this method.
    pub fn of(method: &http::Method) -> Self {
        match *method {
            http::Method::GET | http::Method::HEAD => Self::Read,
            http::Method::DELETE => Self::Delete,
            _ => Self::Write,
        }
    }
}

/// Kind of target that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChargeTarget {
    /// Single resource, or an action on it.
    Item,
    Collection,
    /// Status of a long-running operation.
    OperationStatus,
    /// Permit of a Service that is about to write; no resource is named.
    Permit,
}

/// Charge of one request. Every page of a list, every attempt and every poll is a request of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestCharge {
    /// Subscription ID in the path, in lower case; empty if there is none.
    pub subscription: String,
    /// Quota of the resource provider that counts the request.
    pub quota: Quota,
    pub operation: ChargedOperation,
    pub target: ChargeTarget,
    /// Lower-case ID of the resource, if compute counts requests for each.
    pub resource: Option<String>,
    /// [`ApiType::metric`], which selects the policy of compute.
    pub client: &'static str,
    /// [`ApiType::limit`], which selects the rate limit of the configuration.
    pub configured: &'static str,
    /// Namespaces whose Services cause a write.
    pub causes: Causes,
}

impl RequestCharge {
    /// Returns the charge of the permit for a Service in `namespace` to write network resources in `subscription`.
    pub fn permit(subscription: &str, namespace: &str) -> Self {
        Self {
            subscription: subscription.to_ascii_lowercase(),
            quota: Quota::Network,
            operation: ChargedOperation::Write,
            target: ChargeTarget::Permit,
            resource: None,
            client: "",
            configured: "",
            causes: [namespace].into_iter().collect(),
        }
    }

    /// Returns the charge of a request for `kind` at `path`, the part of the URL after the host, with or without a query.
    ///
    /// Never fails: a path that names no resource is charged to its subscription, if it has one.
    pub fn of(kind: &ApiType, method: &http::Method, path: &str) -> Self {
        let path = path.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let subscription = match segments.as_slice() {
            ["subscriptions", subscription, ..] => (*subscription).to_owned(),
            _ => String::new(),
        };
        let provider = segments.iter().position(|segment| *segment == "providers");
        let levels = provider.and_then(|position| segments.get(position + 2..)).unwrap_or_default();
        let operation = ChargedOperation::of(method);
        let target = target(levels, operation);
        let names = levels.len() / 2 * 2;
        let resource = (kind.quota == Quota::Compute && target == ChargeTarget::Item && names > 0)
            .then(|| format!("/{}", segments[..segments.len() - levels.len() + names].join("/")));
        let causes = Causes::default();
        let (quota, client, configured) = (kind.quota, kind.metric, kind.limit);
        Self { subscription, quota, operation, target, resource, client, configured, causes }
    }
}

/// Returns the target. `levels` are alternating types and names.
fn target(levels: &[&str], operation: ChargedOperation) -> ChargeTarget {
    let is_list = !levels.len().is_multiple_of(2) && levels.last() != Some(&"instanceview");
    match levels {
        ["locations", _, kind, ..] if kind.ends_with("operations") || kind.ends_with("operationresults") => {
            ChargeTarget::OperationStatus
        }
        _ if is_list && operation == ChargedOperation::Read => ChargeTarget::Collection,
        _ => ChargeTarget::Item,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::model::api;
    use http::Method;

    #[test]
    fn a_path_determines_target_and_resource() {
        use ChargeTarget::{Collection, Item, OperationStatus};
        const VM: &str = "resourceGroups/RG/providers/Microsoft.Compute/virtualMachines/A";
        const SET: &str = "resourceGroups/RG/providers/microsoft.compute/virtualMachineScaleSets/P";
        const STATUS: &str = "providers/Microsoft.Compute/locations/eastus/operations/x?p=1";
        let list = VM.trim_end_matches("/A");
        let (machine, instance) = ("virtualmachines/a", "virtualmachinescalesets/p/virtualmachines/3");
        for (kind, method, path, target, resource) in [
            (&api::VIRTUAL_MACHINES, Method::GET, format!("{list}?api-version=1"), Collection, None),
            (&api::VIRTUAL_MACHINES, Method::GET, format!("{VM}?$expand=instanceView"), Item, Some(machine)),
            (&api::VIRTUAL_MACHINES, Method::GET, format!("{VM}/instanceView"), Item, Some(machine)),
            (&api::SCALE_SETS, Method::POST, format!("{SET}/manualUpgrade"), Item, Some("virtualmachinescalesets/p")),
            (&api::SCALE_SET_VMS, Method::PUT, format!("{SET}/virtualMachines/3"), Item, Some(instance)),
            (&api::SCALE_SET_VMS, Method::GET, format!("{SET}/virtualMachines"), Collection, None),
            (&api::SCALE_SETS, Method::GET, STATUS.to_owned(), OperationStatus, None),
            (&api::LOAD_BALANCERS, Method::PUT, VM.replace("Compute/virtualMachines", "Network/loadBalancers"), Item, None),
            (&api::RESOURCE_GROUPS, Method::GET, "resourceGroups/RG".to_owned(), Item, None),
        ] {
            let charge = RequestCharge::of(kind, &method, &format!("/subscriptions/S/{path}"));
            assert_eq!((charge.target, charge.subscription.as_str(), charge.quota), (target, "s", kind.quota), "{path}");
            let expected =
                resource.map(|rest| format!("/subscriptions/s/resourcegroups/rg/providers/microsoft.compute/{rest}"));
            assert_eq!(charge.resource, expected, "{path}");
        }
    }

    #[test]
    fn methods_are_reads_writes_or_deletes() {
        let operations = [Method::GET, Method::HEAD, Method::PUT, Method::PATCH, Method::POST, Method::DELETE];
        use ChargedOperation::{Delete, Read, Write};
        assert_eq!(operations.map(|method| ChargedOperation::of(&method)), [Read, Read, Write, Write, Write, Delete]);
    }
}
