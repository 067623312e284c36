//! A golden case as data: the inputs, and what is in Azure and in the cluster after each step. Ids are in full.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Node, Service};
use serde::Deserialize;
use serde_json::Value;

/// ARM documents by lower-cased id.
pub(crate) type State = BTreeMap<String, Value>;

/// A state from a list of documents.
pub(crate) fn state(documents: impl IntoIterator<Item = Value>) -> State {
    documents
        .into_iter()
        .map(|document| (document["id"].as_str().unwrap_or_default().to_ascii_lowercase(), document))
        .collect()
}

/// One case.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Its folder and name: `azure-lb/external-tcp`.
    pub(crate) path: String,
    /// Whether it shows what Go's controllers did, rather than what we say is right.
    pub(crate) is_recorded: bool,
    /// What it is about, for choosing cases.
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
    /// What happens then.
    pub(crate) steps: Vec<Step>,
}

impl Case {
    /// Whether it is about pod routes rather than Services.
    pub(crate) fn is_about_routes(&self) -> bool {
        self.topic == "routes"
    }
}

/// Something that happens, and what it leads to.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Its name.
    pub(crate) name: String,
    /// To be done in order.
    pub(crate) actions: Vec<Action>,
    /// Whether a Service fails in it.
    pub(crate) expect_failure: bool,
    /// What Go's controller leaves behind without an owner.
    pub(crate) oddities: Oddities,
    /// Documents that somebody else puts in this step.
    pub(crate) azure_put: Vec<Value>,
    /// Ids of documents that somebody else deletes in this step.
    pub(crate) azure_delete: Vec<String>,
    /// All Nodes after the step, when the step changes them.
    pub(crate) nodes: Option<Vec<Node>>,
    /// All Services after the step, by namespace/name, without status and finalizers.
    pub(crate) services: BTreeMap<String, Service>,
    /// All documents after the step.
    pub(crate) after: State,
    /// What became of Services (namespace/name) and Nodes (node/name).
    pub(crate) outcomes: BTreeMap<String, Outcome>,
}

impl Step {
    /// The Services that fail in this step.
    pub(crate) fn failing(&self) -> BTreeSet<String> {
        let failed = |outcome: &Outcome| outcome.events.iter().any(|event| event == "Warning SyncLoadBalancerFailed");
        let failing = self.outcomes.iter().filter(|(_, outcome)| self.expect_failure && failed(outcome));
        failing.map(|(key, _)| key.clone()).collect()
    }
}

/// One thing to do.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub(crate) enum Action {
    /// Somebody else changes documents.
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
    /// Start the controllers anew, with this merged into their configuration.
    Restart { config: Value },
    /// Wait until it is quiet.
    Settle,
}

/// What belongs to nobody any more; cleaning it up at once is right as well.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct Oddities {
    /// `security rule -> address`.
    pub(crate) stale_security_destinations: Vec<String>,
    /// Ids.
    #[serde(rename = "unusedManagedPublicIPs")]
    pub(crate) unused_managed_public_ips: Vec<String>,
}

impl Oddities {
    /// Names of security rules, each with a destination that nobody has any more.
    pub(crate) fn stale(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stale_security_destinations.iter().filter_map(|text| text.split_once(" -> "))
    }
}

/// What became of a Service or a Node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct Outcome {
    /// Whether the object no longer exists.
    pub(crate) gone: bool,
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
    /// Addresses.
    pub(crate) ingress: Vec<LoadBalancerIngress>,
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Condition {
    /// `True`, `False`, `Unknown`.
    pub(crate) status: String,
    /// Reason in camel case.
    pub(crate) reason: String,
}
