//! A golden case as data: the inputs, and the state of Azure and the cluster after each step. Resource ids are complete.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Node, Service};
use serde::Deserialize;
use serde_json::Value;

/// ARM documents by lower-cased id.
pub(crate) type State = BTreeMap<String, Value>;

/// Builds a state from a list of documents.
pub(crate) fn state(documents: impl IntoIterator<Item = Value>) -> State {
    documents
        .into_iter()
        .map(|document| (document["id"].as_str().unwrap_or_default().to_ascii_lowercase(), document))
        .collect()
}

#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Folder and name: `azure-lb/external-tcp`.
    pub(crate) path: String,
    /// Whether the case was recorded from Go's controllers. We wrote the other cases.
    pub(crate) is_recorded: bool,
    /// Subject, for the selection of cases.
    pub(crate) topic: String,
    /// `azure.json`, without endpoints and credentials.
    pub(crate) config: Value,
    /// Command line.
    pub(crate) flags: Vec<String>,
    /// Whether the region offers zones.
    pub(crate) region_zones: bool,
    /// Nodes before the controllers start.
    pub(crate) nodes: Vec<Node>,
    /// Documents before the controllers start.
    pub(crate) before: State,
    pub(crate) steps: Vec<Step>,
}

impl Case {
    /// Returns `true` for a case about pod routes, `false` for one about Services.
    pub(crate) fn is_about_routes(&self) -> bool {
        self.topic == "routes"
    }
}

/// Actions, and the state after them.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) name: String,
    /// Actions in order.
    pub(crate) actions: Vec<Action>,
    /// Whether a Service fails in this step.
    pub(crate) expect_failure: bool,
    /// Leftovers of Go's controller that have no owner.
    pub(crate) oddities: Oddities,
    /// Documents that another client writes in this step.
    pub(crate) azure_put: Vec<Value>,
    /// Ids of documents that another client deletes in this step.
    pub(crate) azure_delete: Vec<String>,
    /// All Nodes after the step, if the step changes them.
    pub(crate) nodes: Option<Vec<Node>>,
    /// All Services after the step, by namespace/name, without status and finalizers.
    pub(crate) services: BTreeMap<String, Service>,
    /// All documents after the step.
    pub(crate) after: State,
    /// Outcomes of Services (namespace/name) and Nodes (node/name).
    pub(crate) outcomes: BTreeMap<String, Outcome>,
}

impl Step {
    /// Returns the keys of the Services that fail in this step.
    pub(crate) fn failing(&self) -> BTreeSet<String> {
        let failed = |outcome: &Outcome| outcome.events.iter().any(|event| event == "Warning SyncLoadBalancerFailed");
        let failing = self.outcomes.iter().filter(|(_, outcome)| self.expect_failure && failed(outcome));
        failing.map(|(key, _)| key.clone()).collect()
    }
}

/// Action of a step.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub(crate) enum Action {
    /// Another client changes documents.
    Azure,
    /// Create or update a Service.
    Apply { service: String },
    /// Delete a Service.
    Delete { service: String },
    /// Create the Nodes of the step that do not exist.
    CreateNodes,
    /// Delete a Node.
    DeleteNode { node: String },
    /// Merge labels into a Node; null removes.
    LabelNode { node: String, labels: BTreeMap<String, Option<String>> },
    /// One EndpointSlice with one ready endpoint on each of these Nodes.
    EndpointSlice { service: String, nodes: Vec<String> },
    /// Create a Namespace with these labels.
    Namespace { name: String, labels: BTreeMap<String, String> },
    /// Restart the controllers, with these fields merged into their configuration.
    Restart { config: Value },
    /// Wait until no more requests arrive.
    Settle,
}

/// Resources without an owner. Deleting them at once is valid, too.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct Oddities {
    /// `security rule -> address`.
    pub(crate) stale_security_destinations: Vec<String>,
    /// Resource ids.
    #[serde(rename = "unusedManagedPublicIPs")]
    pub(crate) unused_managed_public_ips: Vec<String>,
}

impl Oddities {
    /// Returns names of security rules, each with a destination that no Service has.
    pub(crate) fn stale(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stale_security_destinations.iter().filter_map(|text| text.split_once(" -> "))
    }
}

/// Outcome of a step for a Service or a Node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct Outcome {
    /// Whether the object no longer exists.
    #[serde(rename = "gone")]
    pub(crate) is_deleted: bool,
    /// `status.loadBalancer`.
    pub(crate) load_balancer: Balancer,
    /// `metadata.finalizers`.
    pub(crate) finalizers: Vec<String>,
    /// `type reason` of the events of the step.
    pub(crate) events: Vec<String>,
    /// Messages of the warnings, for information.
    #[serde(rename = "messages")]
    pub(crate) _messages: Vec<String>,
    /// Condition of a Node.
    #[serde(rename = "NetworkUnavailable")]
    pub(crate) network_unavailable: Option<Condition>,
}

/// `status.loadBalancer`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Balancer {
    pub(crate) ingress: Vec<LoadBalancerIngress>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Condition {
    /// `True`, `False`, `Unknown`.
    pub(crate) status: String,
    /// Reason in camel case.
    pub(crate) reason: String,
}
