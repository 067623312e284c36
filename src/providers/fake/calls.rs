//! The calls a fake cloud can be told to spoil: their names, and what to do with them.
//!
//! In: the `calls` section of the configuration. Out: a [`FaultInjection`] per call: how long to wait, and which fault to show, if any.

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
            /// Every name with what it stands for, in the order of the guide.
            pub const TABLE: &[(CallName, &'static str)] = &[$((CallName::$variant, $doc)),*];

            /// The name as written in the configuration.
            pub fn name(self) -> &'static str {
                match self { $(CallName::$variant => $name),* }
            }
        }
    };
}

calls! {
    Any "*" "Every call that has no entry of its own (steps excepted).";
    Initialize "initialize" "Start of the provider.";
    InstanceExists "instanceExists" "Whether an instance is there.";
    InstanceShutdown "instanceShutdown" "Whether an instance is shut down.";
    InstanceMetadata "instanceMetadata" "What is known of an instance.";
    InstanceMetadataBatch "instanceMetadataBatch" "What is known of many instances.";
    PodCidrMasks "podCIDRMasks" "How large the pod CIDRs of a node are.";
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
    AllocateAddress "allocateAddress" "Step of ensure: take an address from the pool.";
    CreateLoadBalancer "createLoadBalancer" "Step of ensure: make the load balancer, or give it other addresses.";
    SetPorts "setPorts" "Step of ensure: set the ports.";
    SetHosts "setHosts" "Step of ensure and update: set the hosts.";
    RemoveLoadBalancer "removeLoadBalancer" "Step of delete: remove the load balancer.";
    ReleaseAddress "releaseAddress" "Step of ensure and delete: give an address back to the pool.";
}

impl CallName {
    /// Returns `true` if it is one step inside another call.
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
    /// Retried with back-off.
    #[default]
    Failed,
    /// The cloud says that the user has to change something.
    Invalid,
    /// The user has to change something, as is known without asking the cloud.
    Refused,
    /// The cloud asks to wait; see `retryAfter`.
    RetryAfter,
    /// The cloud lacks this.
    NotImplemented,
    /// The instance is gone.
    InstanceNotFound,
    /// Somebody else does it.
    ImplementedElsewhere,
    /// Refused for lack of leadership.
    NotLeader,
}

/// What to do with a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CallBehaviour {
    /// How long the call takes, e.g. `50ms`.
    #[serde(deserialize_with = "duration", serialize_with = "print_duration")]
    pub latency: Duration,
    /// Message of an error to answer with.
    pub error: Option<String>,
    /// Class of the error.
    pub class: Option<FakeErrorClass>,
    /// For class `retryAfter`: how long the caller is told to wait.
    #[serde(deserialize_with = "duration", serialize_with = "print_duration")]
    pub retry_after: Duration,
    /// Never answer.
    pub hang: bool,
    pub panic: bool,
    /// End the whole process at once, as `kill -9` would.
    pub crash: bool,
    /// Show the fault after the effect rather than instead of it: the work is done, the answer lost.
    pub answer_lost: bool,
    /// Only the first so many calls are spoilt; all, when not given. Latency is not counted.
    pub times: Option<u32>,
    /// Only calls for these objects are spoilt: `namespace/name` of a Service, name of a node. All, when empty.
    pub objects: Vec<String>,
}

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FakeFault {
    Error(CloudError),
    Hang,
    Panic,
    Crash,
}

impl CallBehaviour {
    /// What is wrong with it, naming the field.
    pub(super) fn problem(&self) -> Option<String> {
        let has_error = self.error.is_some() || self.class.is_some();
        let faults = [has_error, self.hang, self.panic, self.crash].into_iter().filter(|set| *set).count();
        if faults > 1 {
            return Some("more than one of `error` (with `class`), `hang`, `panic` and `crash` is given; keep one".into());
        }
        if (self.class == Some(FakeErrorClass::RetryAfter)) == self.retry_after.is_zero() {
            return Some("`retryAfter` (a duration above zero, e.g. 42s) and `class: retryAfter` go together".into());
        }
        if faults == 0 && (self.answer_lost || self.times.is_some()) {
            return Some("`answerLost` and `times` need one of `error`, `hang`, `panic` or `crash`".into());
        }
        None
    }

    fn fault(&self) -> Option<FakeFault> {
        match self {
            CallBehaviour { crash: true, .. } => Some(FakeFault::Crash),
            CallBehaviour { panic: true, .. } => Some(FakeFault::Panic),
            CallBehaviour { hang: true, .. } => Some(FakeFault::Hang),
            CallBehaviour { error: None, class: None, .. } => None,
            _ => Some(FakeFault::Error(self.cloud_error())),
        }
    }

    fn cloud_error(&self) -> CloudError {
        let message = self.error.clone().unwrap_or_else(|| "the fake cloud was told to fail this call".into());
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
        self.objects.is_empty() || self.objects.iter().any(|wanted| wanted == object)
    }
}

/// What is to become of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FaultInjection {
    pub(super) latency: Duration,
    pub(super) fault: Option<FakeFault>,
    pub(super) answer_lost: bool,
}

/// The behaviour that counts for a call: its own, else that of `*`; none when it concerns other objects. `used` tells how often
/// the fault of each entry was shown and is brought up to date. `*` concerns whole calls only, no steps or parts of a batch.
pub(super) fn fault_injection(
    behaviours: &BTreeMap<CallName, CallBehaviour>,
    used: &mut BTreeMap<CallName, u32>,
    call: CallName,
    object: &str,
    whole_call: bool,
) -> FaultInjection {
    let entries = [call, CallName::Any].into_iter().take(if whole_call { 2 } else { 1 });
    let mut matching = entries.filter_map(|name| Some((name, behaviours.get(&name)?))).filter(|(_, b)| b.concerns(object));
    let Some((name, behaviour)) = matching.next() else { return FaultInjection::default() };
    let shown = used.entry(name).or_default();
    let fault = behaviour.fault().filter(|_| behaviour.times.is_none_or(|times| *shown < times));
    *shown = shown.saturating_add(u32::from(fault.is_some()));
    FaultInjection { latency: behaviour.latency, fault, answer_lost: behaviour.answer_lost }
}

struct DurationVisitor;

/// A visitor, so that messages carry the path of the field.
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
