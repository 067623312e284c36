//! Types of the status page `/statusz`, shared by its writers and readers. Plain data.
//!
//! In: the state of controllers, watches and provider. Out: one JSON document. Readers ignore unknown keys, so that they
//! can read the page of another version if it has the controllers with their unsettled keys. To add a column to a page, add a field here,
//! set it where the type is created, and show it in a cell.

mod drift;
mod failure;

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use self::{
    drift::{DriftNote, DriftOutcome, DriftStatus, DriftedService},
    failure::FailureClass,
};

/// Status page of a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagerStatus {
    /// Version of the program.
    #[serde(default)]
    pub version: String,
    /// Leadership of this process; `None` without leader election.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leading: Option<bool>,
    /// Whether this process only plans (`--dry-run`).
    #[serde(default)]
    pub shadow: bool,
    /// Second lease; `None` if leader migration is off.
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

/// State of the watches; `None` if no running controller needs the objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InformersStatus {
    pub nodes: Option<InformerStatus>,
    pub services: Option<InformerStatus>,
    pub namespaces: Option<InformerStatus>,
    /// State of the watch of EndpointSlices.
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
    /// Facts for the page, by their labels.
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
    /// Service, `namespace/name`, or Node.
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
    /// Progress of the initialization, or its last error.
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
    /// Message about the last failure.
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
    /// Subscription of the machines (`subscriptionId` of the configuration).
    pub subscription: String,
    /// Resource group of the cluster (`resourceGroup` of the configuration).
    pub resource_group: String,
    /// URL of the cloud's API.
    pub resource_manager: String,
    pub inventory: InventoryStatus,
    /// State of the load balancers; `None` if the session serves no Services.
    pub load_balancers: Option<BalancersStatus>,
    /// State of the pod routes; `None`: not reported.
    #[serde(deserialize_with = "default_if_unreadable")]
    pub routes: Option<RoutesStatus>,
    pub request_budget: BudgetStatus,
}

/// State of the lists of machines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InventoryStatus {
    #[serde(deserialize_with = "default_if_unreadable")]
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
    /// Machines of flexible scale sets.
    pub flexible: usize,
    /// Machines of all kinds that the latest lists do not have.
    pub missing: usize,
    /// Machines in availability sets or alone.
    pub other: usize,
    /// Instances of uniform scale sets.
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
    /// Seconds since the last success.
    pub age_seconds: Option<u64>,
    /// Error since the last success.
    pub last_error: Option<String>,
    /// Class of that error.
    pub last_error_class: Option<FailureClass>,
    /// Seconds since that error.
    pub last_error_age_seconds: Option<u64>,
}

/// Failure of a read of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadFailure {
    /// Kind and name of the resource.
    pub read: String,
    pub error: String,
    pub class: FailureClass,
    /// Seconds since the failure.
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

/// State of the route table. Values that have not been read yet are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteTableStatus {
    /// Seconds since the table was read.
    pub age_seconds: Option<u64>,
    /// Existence of the table in the cloud.
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
    /// Number of Services that wait for each batch: `plan`, `loadBalancers`, `members` (of backend pools), `securityGroup`.
    pub waiting: BTreeMap<String, usize>,
    pub unsettled: UnsettledBalancers,
    pub drift: DriftStatus,
}

/// Services whose load balancer is not as desired.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnsettledBalancers {
    /// Number of these Services.
    pub unsettled: usize,
    /// The first 100 of these Services, by `namespace/name`.
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
    /// Writes of the public IPs of the Service.
    #[serde(rename = "writing public IPs")]
    PublicIps,
    /// Wait for the batch that writes the load balancer.
    #[serde(rename = "waiting for the load balancer")]
    LoadBalancer,
    /// Wait until each backend pool of the Service has a member, if a machine can join it.
    #[serde(rename = "waiting for back-end pools")]
    BackendPools,
    /// Wait for the batch that writes the security rules.
    #[serde(rename = "waiting for the security group")]
    SecurityGroup,
    /// Writes of the private link service and its subnet.
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
    /// Subscription with this quota, in lower case; empty for requests outside of subscriptions.
    pub subscription: String,
    /// Resource with a quota of its own; `None`: all resources share the quota.
    pub resource: Option<String>,
    /// Number of requests that may be sent now.
    #[serde(rename = "left")]
    pub remaining: f64,
    /// Largest number of requests that may be sent at once.
    pub capacity: f64,
    /// Number of requests by which `left` grows per second, up to `capacity`.
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

/// Reads a value of any shape. Returns the default if the page of another version has a different shape there.
fn default_if_unreadable<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

#[cfg(test)]
mod tests;
