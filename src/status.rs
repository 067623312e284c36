//! Types of the status page `/statusz`, for those who fill it and those who read it. Plain data.
//!
//! In: the state of controllers, watches and provider. Out: one JSON document. Readers ignore keys that they do not know, so that the page
//! of another version can be read as long as it says what waits. A column of a page is a field here, its value where the field is filled,
//! and a cell where it is shown.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{
    Deserialize, Serialize,
    de::{IntoDeserializer, value},
};
use serde_json::Value;

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
    pub lease: String,
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

/// Class of a failure: the reason of a condition, the class of a provider call, or the class of a request to the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureClass {
    /// A user must change something: the reason of a condition, or a document that the cloud cannot accept.
    Invalid,
    /// The condition of a Service that is tried again.
    Failed,
    /// The condition of a Service whose cloud requested a delay.
    Waiting,
    NotFound,
    ParentNotFound,
    Unauthorized,
    Forbidden,
    Throttled,
    Busy,
    QuotaExceeded,
    Transient,
    OutcomeUnknown,
    MalformedAnswer,
    NotLeader,
    #[serde(rename = "invalid")]
    CallInvalid,
    #[serde(rename = "refused")]
    CallRefused,
    #[serde(rename = "failed")]
    CallFailed,
    #[serde(rename = "deadline")]
    CallDeadline,
    #[serde(rename = "retry_after")]
    CallRetryAfter,
    #[serde(rename = "not_leader")]
    CallNotLeader,
    /// A class that is treated like an unclassified failure.
    #[serde(untagged)]
    Other(String),
}

impl FailureClass {
    /// Returns the class with this name, as pages spell it.
    pub fn named(name: &str) -> Self {
        let named: Result<Self, value::Error> = Self::deserialize(name.into_deserializer());
        named.unwrap_or_else(|_| Self::Other(name.to_owned()))
    }
}

/// Response to an external change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriftOutcome {
    /// Reverted to the desired state.
    Repaired,
    /// Left unchanged, as configured.
    Reported,
    /// Left unchanged until later, because it keeps coming back.
    Delayed,
}

impl DriftOutcome {
    /// Returns the name for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Repaired => "repaired",
            Self::Reported => "reported",
            Self::Delayed => "delayed",
        }
    }
}

/// External change to a cloud resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftNote {
    /// The Service, `namespace/name`, or the Node. Empty: no object's.
    pub about: String,
    /// Time of the finding, to the second.
    pub found: Timestamp,
    /// Response to the change.
    pub outcome: DriftOutcome,
    /// Changed fields, and the time range.
    pub what: String,
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
    pub resource_manager: String,
    pub inventory: InventoryStatus,
    /// `None`: the session serves no Services.
    pub load_balancers: Option<BalancersStatus>,
    pub routes: Value,
    pub request_budget: BudgetStatus,
}

/// State of the lists of machines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InventoryStatus {
    /// Number of machines by kind.
    pub machines: Value,
    pub lists: Vec<ListStatus>,
    /// Failures of single reads, the newest first.
    pub failures: Vec<ReadFailure>,
    /// Number of machines that callers wait for.
    pub waiting: usize,
    pub lists_sent: u64,
    pub single_reads_sent: u64,
}

/// State of one list: its last success, and the failure since then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListStatus {
    pub list: String,
    pub id: String,
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

/// External changes to load balancers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriftStatus {
    pub policy: String,
    /// Number of Services with changes that are not reverted.
    pub drifted: usize,
    /// The first of these Services, by `namespace/name`.
    pub services: BTreeMap<String, DriftedService>,
    pub latest: Vec<DriftNote>,
}

/// External changes to the resources of one Service that are not reverted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DriftedService {
    /// Time at which everything was last as desired.
    #[serde(rename = "right")]
    pub last_correct: Option<String>,
    pub found: String,
    pub documents: Vec<String>,
    /// Time after which they are reverted; `None`: they are only reported.
    pub repair_after: Option<String>,
}

/// State of the request budget.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    pub share_percent: i32,
    pub buckets: Vec<BucketStatus>,
}

/// State of one request quota.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BucketStatus {
    pub bucket: String,
    pub subscription: String,
    pub resource: Option<String>,
    #[serde(rename = "left")]
    pub remaining: f64,
    pub capacity: f64,
    pub refill_per_second: f64,
    pub share_percent: f64,
    /// Clients that use the same quota.
    pub shared_with: String,
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
            json!({"refusedConfiguration": null, "session": {"inventory": {"lists": [list]}}});
        let status: ManagerStatus = serde_json::from_value(page).unwrap();
        let lists = &status.details().unwrap().session.inventory.lists;
        assert_eq!((json!(lists), lists[0].items), (json!([list]), Some(1)));
    }
}
