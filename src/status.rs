//! Types of the status page `/statusz`, for those who fill it and those who read it. Plain data.
//!
//! In: the state of controllers, watches and provider. Out: one JSON document. Readers ignore keys that they do not know, so that the page
//! of another version can be read as long as it says what waits. A column of a page is a field here, its value where the field is filled,
//! and a cell where it is shown.

mod drift;
mod failure;

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    drift::{DriftNote, DriftOutcome, DriftStatus, DriftedService},
    failure::FailureClass,
};

/// Status page of a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagerStatus {
    #[serde(default)]
    pub version: String,
    /// State of its leadership; `None`: it has no leader election.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leading: Option<bool>,
    /// Whether it only plans (`--dry-run`).
    #[serde(default)]
    pub shadow: bool,
    /// `None`: leader migration is off.
    pub leader_migration: Option<MigrationStatus>,
    #[serde(default)]
    pub informers: InformersStatus,
    pub cloud_provider: ProviderStatus,
    pub controllers: Vec<ControllerStatus>,
    /// Controllers that do not run, with the reasons.
    #[serde(default)]
    pub not_running: BTreeMap<String, String>,
}

impl ManagerStatus {
    /// Returns the details of a provider with a session.
    pub fn details(&self) -> Option<&SessionDetails> {
        match &self.cloud_provider.details {
            Some(ProviderDetails::Session(details)) => Some(details),
            Some(ProviderDetails::Other(_)) | None => None,
        }
    }

    /// Returns the state of the load balancers of the provider.
    pub fn load_balancers(&self) -> Option<&BalancersStatus> {
        self.details()?.session.load_balancers.as_ref()
    }

    /// Returns the external changes that provider and controllers found, the latest first.
    pub fn drift(&self) -> Vec<&DriftNote> {
        let of_provider = self.load_balancers().into_iter().flat_map(|balancers| &balancers.drift.latest);
        let mut notes: Vec<_> =
            of_provider.chain(self.controllers.iter().flat_map(|controller| &controller.drift)).collect();
        notes.sort_by_key(|note| std::cmp::Reverse(note.found));
        notes
    }
}

/// The second lease of leader migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationStatus {
    /// Name of the Lease.
    pub lease: String,
    /// Whether this process holds it.
    pub leading: bool,
    /// Controllers that run under it.
    pub controllers: Vec<String>,
}

/// Watches; `None`: nothing that runs needs these objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InformersStatus {
    pub nodes: Option<InformerStatus>,
    pub services: Option<InformerStatus>,
    pub namespaces: Option<InformerStatus>,
    pub endpointslices: Option<InformerStatus>,
}

/// State of one watch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InformerStatus {
    /// Whether the first list has ended.
    pub synced: bool,
    /// Number of objects in the store.
    pub objects: usize,
    /// Error since the last success.
    pub error: Option<String>,
}

/// State of a controller. Health checks read it, too.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStatus {
    /// Canonical name, added by the page.
    pub name: String,
    /// Reason why it cannot do its work. Shown by `/readyz`.
    pub problem: Option<String>,
    /// Facts worth showing, by their labels.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
    /// Number of load balancers by the reason of their condition.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub load_balancers: BTreeMap<String, usize>,
    /// Number of Nodes that wait for their initialization, if the controller initializes Nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uninitialized_nodes: Option<usize>,
    /// Keys that are pending, running or failing.
    pub unsettled: Vec<UnsettledKey>,
    /// Recent external changes to the cloud resources of the controller.
    #[serde(default)]
    pub drift: Vec<DriftNote>,
}

/// A key that is pending, running or failing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UnsettledKey {
    /// The Service, `namespace/name`, or the Node.
    pub key: String,
    /// Duration of the current reconcile, if there is one.
    pub running_for_seconds: Option<f64>,
    /// Time until it is due; zero when it is due already; `None` when it is not pending.
    pub due_in_seconds: Option<f64>,
    /// Failures in a row.
    pub failures: u32,
    /// Reason why it waits or failed.
    pub reason: Option<String>,
    /// Class of the reason, if its controller classifies failures.
    pub class: Option<FailureClass>,
}

/// State of the cloud provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProviderStatus {
    pub name: Option<String>,
    pub state: Option<ProviderState>,
    /// Reason why it cannot do its work.
    pub problem: Option<String>,
    pub details: Option<ProviderDetails>,
}

/// Result of the provider's initialization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProviderState {
    #[serde(rename = "initialising")]
    Initializing,
    #[serde(rename = "initialised")]
    Initialized,
    /// The sentence about the last failure.
    #[serde(untagged)]
    Failed(String),
}

impl fmt::Display for ProviderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// State that a provider reports on its own: a shape that pages show in tables, or any value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ProviderDetails {
    Session(Box<SessionDetails>),
    Other(Value),
}

/// State of a provider with a session, which one configuration opened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionDetails {
    /// Reason why a later configuration is not in use.
    pub refused_configuration: Option<String>,
    pub session: SessionStatus,
}

/// State of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionStatus {
    pub subscription: String,
    pub resource_group: String,
    /// URL of the cloud's API.
    pub resource_manager: String,
    pub inventory: InventoryStatus,
    /// `None`: the session serves no Services.
    pub load_balancers: Option<BalancersStatus>,
    /// `None` on a page of another version.
    pub routes: Option<RoutesStatus>,
    pub request_budget: BudgetStatus,
}

/// State of the lists of machines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InventoryStatus {
    pub machines: MachineCounts,
    pub lists: Vec<ListStatus>,
    /// Failures of single reads, the newest first.
    pub failures: Vec<ReadFailure>,
    /// Number of machines that callers wait for.
    pub waiting: usize,
    /// Number of requests since the start that list resources.
    pub lists_sent: u64,
    /// Number of requests since the start that read one resource.
    pub single_reads_sent: u64,
}

/// Number of machines by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineCounts {
    pub flexible: usize,
    /// Machines of all kinds that the latest lists do not have.
    pub missing: usize,
    pub other: usize,
    pub uniform: usize,
}

/// State of one list: its last success, and the failure since then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListStatus {
    /// Kind of the resources, and the name of their group or scale set.
    pub list: String,
    /// Resource id of that group or scale set.
    pub id: String,
    /// Number of items at the last success; `None`: there was none.
    pub items: Option<usize>,
    pub age_seconds: Option<u64>,
    pub last_error: Option<String>,
    pub last_error_class: Option<FailureClass>,
    pub last_error_age_seconds: Option<u64>,
}

/// Failure of a read of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadFailure {
    pub read: String,
    pub error: String,
    pub class: FailureClass,
    pub age_seconds: u64,
}

/// State of the pod routes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RoutesStatus {
    Unconfigured(RoutesProblem),
    Table(RouteTableStatus),
}

/// Reason why there are no routes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutesProblem {
    pub problem: String,
}

/// State of the route table; `None`: it was not read yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteTableStatus {
    pub age_seconds: Option<u64>,
    pub exists: Option<bool>,
    /// Names of the routes that ARM rejects.
    pub rejected: Vec<String>,
    /// Number of all its routes.
    pub routes: Option<usize>,
    /// ARM resource id of the table.
    pub table: String,
    /// Number of callers that wait for a write.
    pub waiting: usize,
    /// Number of writes since the start.
    pub writes: u64,
}

/// State of the load balancers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BalancersStatus {
    /// Settings that this version does not support.
    pub unsupported: Vec<String>,
    /// Number of Services that wait for each batch.
    pub waiting: BTreeMap<String, usize>,
    pub unsettled: UnsettledBalancers,
    pub drift: DriftStatus,
}

/// Services whose load balancer is not as desired.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnsettledBalancers {
    /// Number of all of them.
    pub unsettled: usize,
    /// The first of them, by `namespace/name`.
    pub services: BTreeMap<String, UnsettledBalancer>,
}

/// Progress of a Service whose load balancer is not as desired.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnsettledBalancer {
    pub stage: PipelineStage,
    /// Time at which it reached the stage.
    pub since: Timestamp,
    /// Writes of the stage, or reasons why nothing is written.
    pub changes: Vec<String>,
    /// Error of the last attempt.
    pub problem: Option<String>,
    pub class: Option<FailureClass>,
    /// Remedy for the problem.
    pub advice: Option<String>,
}

/// Stage that a Service has reached on its way to a load balancer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PipelineStage {
    /// The request cannot be satisfied until the Service or the configuration changes.
    #[serde(rename = "refused")]
    Refused,
    /// Waits for the lease that all writers of load balancers share.
    #[serde(rename = "waiting for the lease")]
    Lease,
    /// Waits for the observed state and the plan.
    #[serde(rename = "planning")]
    Planning,
    #[serde(rename = "writing public IPs")]
    PublicIps,
    #[serde(rename = "waiting for the load balancer")]
    LoadBalancer,
    #[serde(rename = "waiting for back-end pools")]
    BackendPools,
    #[serde(rename = "waiting for the security group")]
    SecurityGroup,
    #[serde(rename = "writing the private link service")]
    PrivateLinks,
    /// Former public IPs of the Service are deleted.
    #[serde(rename = "deleting public IPs")]
    Releasing,
    /// A stage of another version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl fmt::Display for PipelineStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// State of the request budget.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    /// Part of the shared quotas that this process may use.
    pub share_percent: i32,
    pub buckets: Vec<BucketStatus>,
}

/// State of one request quota.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BucketStatus {
    /// Name of the quota.
    pub bucket: String,
    pub subscription: String,
    /// Resource with a quota of its own; `None`: all resources share the quota.
    pub resource: Option<String>,
    /// Number of requests that may be sent now.
    #[serde(rename = "left")]
    pub remaining: f64,
    /// Largest number of requests that may be sent at once.
    pub capacity: f64,
    pub refill_per_second: f64,
    /// Part of the quota that this process may use.
    pub share_percent: f64,
    /// Clients that use the same quota.
    pub shared_with: String,
    /// Remaining time without requests, after the cloud throttled one.
    pub paused_for_seconds: f64,
    /// Number of waiting requests by urgency.
    pub waiting: BTreeMap<String, usize>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["Invalid", "invalid", "Failed", "retry_after", "Forbidden", "Ensuring"] {
            assert_eq!(json!(FailureClass::named(name)), name);
            assert_eq!(matches!(FailureClass::named(name), FailureClass::Other(_)), name == "Ensuring", "{name}");
        }
        for name in ["refused", "waiting for the lease", "waiting for back-end pools"] {
            let stage: PipelineStage = serde_json::from_value(json!(name)).unwrap();
            assert_eq!((json!(stage), stage.to_string()), (json!(name), name.to_owned()));
        }
        assert_eq!(serde_json::from_value::<PipelineStage>(json!("later")).unwrap(), PipelineStage::Unknown);
    }

    #[test]
    fn a_page_is_read_as_it_is_written() {
        let list = json!({"list": "LIST virtualMachines", "id": "/s", "items": 1, "ageSeconds": 2,
            "lastError": null, "lastErrorClass": null, "lastErrorAgeSeconds": null});
        let page = json!({
            "version": "v1", "leading": true, "shadow": false, "leaderMigration": null, "notRunning": {"route": "off"},
            "informers": {"nodes": {"synced": true, "objects": 1, "error": null}, "services": null, "namespaces": null, "endpointslices": null},
            "cloudProvider": {"name": "x", "state": "down", "problem": null, "details": {"free": ["form"]}},
            "controllers": [],
        });
        let status: ManagerStatus = serde_json::from_value(page.clone()).unwrap();
        assert_eq!((json!(status), status.details()), (page.clone(), None));
        let mut page = page;
        page["cloudProvider"]["details"] =
            json!({"refusedConfiguration": null, "session": {"inventory": {"lists": [list], "machines": {"uniform": 2}}}});
        let status: ManagerStatus = serde_json::from_value(page).unwrap();
        let InventoryStatus { lists, machines, .. } = &status.details().unwrap().session.inventory;
        assert_eq!((json!(lists), lists[0].items), (json!([list]), Some(1)));
        assert_eq!(json!(machines), json!({"flexible": 0, "missing": 0, "other": 0, "uniform": 2}));
        let table = json!({"ageSeconds": 1, "exists": null, "rejected": ["r"], "routes": 3, "table": "/t", "waiting": 0, "writes": 2});
        for routes in [json!({"problem": "no table"}), table] {
            assert_eq!(json!(serde_json::from_value::<RoutesStatus>(routes.clone()).unwrap()), routes);
        }
    }
}
