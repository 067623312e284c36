//! Fault injection: names of the calls of a fake cloud, and the configured latency and faults of each.
//!
//! In: the `calls` section of the configuration. Out: a [`FaultInjection`] per call: its latency and its fault, if any.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::cloud_provider::CloudError;

macro_rules! calls {
    ($($variant:ident $name:literal $doc:literal;)*) => {
        /// Name of a call, or of one step inside a call.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum CallName {
            $(#[doc = $doc] #[serde(rename = $name)] $variant),*
        }

        impl CallName {
            /// Table of all names with their meanings, in the order of the guide.
            pub const TABLE: &[(CallName, &'static str)] = &[$((CallName::$variant, $doc)),*];

            /// Returns the name as written in the configuration.
            pub fn name(self) -> &'static str {
                match self { $(CallName::$variant => $name),* }
            }
        }
    };
}

calls! {
    Any "*" "Every call that has no entry of its own (steps excepted).";
    Initialize "initialize" "Start of the provider.";
    InstanceExists "instanceExists" "Whether an instance exists.";
    InstanceShutdown "instanceShutdown" "Whether an instance is shut down.";
    InstanceMetadata "instanceMetadata" "Metadata of an instance.";
    InstanceMetadataBatch "instanceMetadataBatch" "Metadata of many instances.";
    PodCidrMasks "podCIDRMasks" "Prefix lengths of the pod CIDRs of a Node.";
    NodeAddresses "nodeAddresses" "Addresses of an instance (`instancesV2: false`).";
    InstanceId "instanceID" "Id of an instance (`instancesV2: false`).";
    InstanceType "instanceType" "Machine type of an instance (`instancesV2: false`).";
    GetZone "getZone" "Zone of an instance (`instancesV2: false`).";
    GetLoadBalancer "getLoadBalancer" "Status of a load balancer.";
    EnsureLoadBalancer "ensureLoadBalancer" "Create or update a load balancer.";
    UpdateLoadBalancer "updateLoadBalancer" "Change the hosts of a load balancer.";
    EnsureLoadBalancerDeleted "ensureLoadBalancerDeleted" "Delete a load balancer.";
    PlanLoadBalancer "planLoadBalancer" "Plan for a Service.";
    ListRoutes "listRoutes" "List the routes of a cluster.";
    CreateRoute "createRoute" "Create a route, alone or inside a batch.";
    DeleteRoute "deleteRoute" "Delete a route, alone or inside a batch.";
    ApplyRoutes "applyRoutes" "Change many routes at once.";
    PlanRoutes "planRoutes" "Plan changes of routes.";
    AllocateAddress "allocateAddress" "Step of ensure: allocate an address from the pool.";
    CreateLoadBalancer "createLoadBalancer" "Step of ensure: create the load balancer, or change its addresses.";
    SetPorts "setPorts" "Step of ensure: set the ports.";
    SetHosts "setHosts" "Step of ensure and update: set the hosts.";
    RemoveLoadBalancer "removeLoadBalancer" "Step of delete: remove the load balancer.";
    ReleaseAddress "releaseAddress" "Step of ensure and delete: release an address to the pool.";
}

impl CallName {
    /// Returns `true` if the call is one step inside another call.
    pub fn is_step(self) -> bool {
        matches!(
            self,
            Self::AllocateAddress
                | Self::CreateLoadBalancer
                | Self::SetPorts
                | Self::SetHosts
                | Self::RemoveLoadBalancer
                | Self::ReleaseAddress
        )
    }
}

/// Class of a configured error, see [`CloudError`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FakeErrorClass {
    /// Failure that is retried with backoff.
    #[default]
    Failed,
    /// Rejection by the cloud: the user must change something.
    Invalid,
    /// Refusal before any request to the cloud: the user must change something.
    Refused,
    /// Throttling: the caller retries after `retryAfter`.
    RetryAfter,
    /// Operation that the cloud does not support.
    NotImplemented,
    /// Confirmed absence of the instance.
    InstanceNotFound,
    /// Operation that another component performs.
    ImplementedElsewhere,
    /// Write that is refused because this replica does not lead.
    NotLeader,
}

/// Latency and fault of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CallBehavior {
    /// Time added before the call takes effect, e.g. `50ms`.
    #[serde(deserialize_with = "duration", serialize_with = "print_duration")]
    pub latency: Duration,
    /// Message of the returned error.
    pub error: Option<String>,
    /// Class of the returned error; the default is `failed` if only `error` is set.
    pub class: Option<FakeErrorClass>,
    /// Delay after which the caller may retry, with class `retryAfter`.
    #[serde(deserialize_with = "duration", serialize_with = "print_duration")]
    pub retry_after: Duration,
    /// Whether the call never returns.
    pub hang: bool,
    pub panic: bool,
    /// Whether the call ends the whole process at once, as `kill -9` would.
    pub crash: bool,
    /// Whether the fault follows the effect instead of replacing it: the change is made, and its response is lost.
    #[serde(rename = "answerLost")]
    pub loses_response: bool,
    /// Number of calls that show the fault; `None`: all of them. Latency applies to every call.
    pub times: Option<u32>,
    /// Objects whose calls are affected: `namespace/name` of a Service, or name of a Node. Empty: all.
    pub objects: Vec<String>,
}

/// Fault that a call shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FakeFault {
    Error(CloudError),
    Hang,
    Panic,
    Crash,
}

impl CallBehavior {
    /// Returns why the entry is invalid, with the names of the fields; `None` if it is valid.
    pub(super) fn problem(&self) -> Option<String> {
        let has_error = self.error.is_some() || self.class.is_some();
        let faults = [has_error, self.hang, self.panic, self.crash].into_iter().filter(|set| *set).count();
        if faults > 1 {
            return Some("more than one of `error` (with `class`), `hang`, `panic` and `crash` is given; keep one".into());
        }
        if (self.class == Some(FakeErrorClass::RetryAfter)) == self.retry_after.is_zero() {
            return Some("`retryAfter` (a duration above zero, e.g. 42s) and `class: retryAfter` go together".into());
        }
        if faults == 0 && (self.loses_response || self.times.is_some()) {
            return Some("`answerLost` and `times` need one of `error`, `hang`, `panic` or `crash`".into());
        }
        None
    }

    fn fault(&self) -> Option<FakeFault> {
        match self {
            CallBehavior { crash: true, .. } => Some(FakeFault::Crash),
            CallBehavior { panic: true, .. } => Some(FakeFault::Panic),
            CallBehavior { hang: true, .. } => Some(FakeFault::Hang),
            CallBehavior { error: None, class: None, .. } => None,
            _ => Some(FakeFault::Error(self.cloud_error())),
        }
    }

    fn cloud_error(&self) -> CloudError {
        let message = self.error.clone().unwrap_or_else(|| "the configuration of the fake cloud fails this call".into());
        match self.class.unwrap_or_default() {
            FakeErrorClass::Failed => CloudError::Failed(message),
            FakeErrorClass::Invalid => CloudError::Invalid(message),
            FakeErrorClass::Refused => CloudError::Refused(message),
            FakeErrorClass::RetryAfter => CloudError::RetryAfter { after: self.retry_after, message },
            FakeErrorClass::NotImplemented => CloudError::NotImplemented,
            FakeErrorClass::InstanceNotFound => CloudError::InstanceNotFound,
            FakeErrorClass::ImplementedElsewhere => CloudError::ImplementedElsewhere,
            FakeErrorClass::NotLeader => CloudError::NotLeader(message),
        }
    }

    fn concerns(&self, object: &str) -> bool {
        self.objects.is_empty() || self.objects.iter().any(|configured| configured == object)
    }
}

/// Latency and fault of one call, after `times` and `objects` are considered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FaultInjection {
    pub(super) latency: Duration,
    pub(super) fault: Option<FakeFault>,
    pub(super) loses_response: bool,
}

/// Returns the latency and fault of a call on `object`, from the entry of the call or else the entry of `*`.
///
/// Entries that list other objects are skipped. `used` counts the faults shown per entry, and is updated. `*` applies to
/// whole calls only, not to steps or parts of a batch.
pub(super) fn fault_injection(
    behaviors: &BTreeMap<CallName, CallBehavior>,
    used: &mut BTreeMap<CallName, u32>,
    call: CallName,
    object: &str,
    whole_call: bool,
) -> FaultInjection {
    let entries = [call, CallName::Any].into_iter().take(if whole_call { 2 } else { 1 });
    let mut matching = entries.filter_map(|name| Some((name, behaviors.get(&name)?))).filter(|(_, b)| b.concerns(object));
    let Some((name, behavior)) = matching.next() else { return FaultInjection::default() };
    let shown = used.entry(name).or_default();
    let fault = behavior.fault().filter(|_| behavior.times.is_none_or(|times| *shown < times));
    *shown = shown.saturating_add(u32::from(fault.is_some()));
    FaultInjection { latency: behavior.latency, fault, loses_response: behavior.loses_response }
}

struct DurationVisitor;

/// A visitor keeps the path of the field in error messages.
impl serde::de::Visitor<'_> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a duration: a number with its unit, e.g. 50ms, 42s or 1m30s")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
        let parsed: Option<jiff::SignedDuration> = text.parse().ok();
        let positive = parsed.and_then(|duration| Duration::try_from(duration).ok());
        positive.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

fn duration<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(DurationVisitor)
}

fn print_duration<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}ms", duration.as_millis()))
}
