//! Behavior of a simulated Azure.
//!
//! By default it responds to writes as Azure does, by operations, though short ones; all other delays and limits are off
//! unless they are configured.

use std::time::Duration;

use super::{canonical, limits::LoadBalancerLimits, throttle::Quotas};

/// Class of a request's quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    Read,
    /// PUT, PATCH and POST.
    Write,
    Delete,
    /// GET of a long-running operation.
    Poll,
    /// Not for ARM: tokens, instance metadata.
    Other,
}

/// Duration of requests and operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    /// Time from the request to its response.
    pub respond: Duration,
    /// Time from the response to a write until the operation has ended. Zero: the response is final.
    pub operation: Duration,
}

/// Default duration of an operation.
const OPERATION: Duration = Duration::from_millis(100);

/// Latencies by class and type; of several that match, the last one that was added applies.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    rules: Vec<(Class, String, Latency)>,
}

impl Latencies {
    /// Returns this duration for every write and deletion. Types whose responses are final have no operation (see
    /// [`super::kinds::Manner`]).
    pub fn writes(latency: Latency) -> Self {
        Self::default().with(Class::Write, "*", latency).with(Class::Delete, "*", latency)
    }

    /// Adds a rule for requests of this class on documents of this type (`*`: all types).
    pub fn with(mut self, class: Class, resource_type: &str, latency: Latency) -> Self {
        self.rules.push((class, resource_type.to_ascii_lowercase(), latency));
        self
    }

    /// Returns the duration for a request on a type, given in lower case.
    pub fn of(&self, class: Class, resource_type: &str) -> Latency {
        let matches = |(of, kind, _): &&(Class, String, Latency)| *of == class && (kind == "*" || kind == resource_type);
        self.rules.iter().rfind(matches).map(|(_, _, latency)| *latency).unwrap_or_default()
    }
}

/// Response to a write while another operation on the same resource is running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Busy {
    /// Response 429, code `RetryableErrorDueToAnotherOperation`.
    #[default]
    Retryable,
    /// Response 409, code `AnotherOperationInProgress`.
    Conflict,
    /// Acceptance; the running operation ends as `Canceled`.
    Supersede,
}

/// Ways in which a client follows a long-running operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncStyle {
    /// Whether the response has `Azure-AsyncOperation`.
    pub operation_header: bool,
    /// Whether the response has `Location`.
    pub location_header: bool,
    /// `Retry-After`, in whole seconds; `None` omits it.
    pub retry_after: Option<u64>,
    /// Whether documents whose types report `Succeeded` at once show the operation, too. Without `Azure-AsyncOperation` all
    /// do, because nothing else would report it.
    pub in_documents: bool,
}

impl Default for AsyncStyle {
    fn default() -> Self {
        Self { operation_header: true, location_header: false, retry_after: None, in_documents: false }
    }
}

/// Settings of a simulated Azure.
#[derive(Debug, Clone)]
pub struct AzureOptions {
    /// Ids of the subscriptions that exist.
    pub subscriptions: Vec<String>,
    /// Region, by its short name (`eastus`).
    pub location: String,
    /// Region, by its long name (`East US`).
    pub location_name: String,
    /// Zones that the region offers.
    pub zones: Vec<String>,
    /// Documents in a page of a list.
    pub page_size: usize,
    /// Durations of requests and operations.
    pub latencies: Latencies,
    pub quotas: Quotas,
    /// Limits of load balancers and interfaces.
    pub limits: LoadBalancerLimits,
    /// Response to a write of a busy resource.
    pub busy: Busy,
    /// Ways in which operations are followed.
    pub operations: AsyncStyle,
    /// Seed of the faults with a probability.
    pub seed: u64,
}

impl Default for AzureOptions {
    fn default() -> Self {
        Self {
            subscriptions: vec![canonical::SUBSCRIPTION.to_owned()],
            location: "eastus".to_owned(),
            location_name: "East US".to_owned(),
            zones: ["1", "2", "3"].map(str::to_owned).to_vec(),
            page_size: 100,
            latencies: Latencies::writes(Latency { respond: Duration::ZERO, operation: OPERATION }),
            quotas: Quotas::default(),
            limits: LoadBalancerLimits::default(),
            busy: Busy::default(),
            operations: AsyncStyle::default(),
            seed: 0,
        }
    }
}

impl AzureOptions {
    /// Returns the default with final responses only: for tests that do not depend on operations.
    pub fn immediate() -> Self {
        Self { latencies: Latencies::default(), ..Self::default() }
    }
}
