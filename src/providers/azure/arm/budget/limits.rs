//! Request limits of Azure and of the configuration, and the limits that a request counts against. Pure.
//!
//! In: a [`RequestCharge`] and the settings. Out: the buckets that the request takes a token from, with capacity and refill, narrowest first.
//!
//! Sources: ARM's "Understand how Azure Resource Manager throttles requests", compute's "Compute throttling limits". All quotas are
//! also per region. A cluster is in one region, so one bucket per subscription suffices. Where compute publishes no limits (availability
//! sets), only ARM's bucket and its 429s apply. ARM's bucket for all principals of a subscription is 15 times that of one principal,
//! which cannot empty it alone: it has no bucket here, and its headers lower the principal's bucket (`quota_headers`).

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    super::settings::subscriptions,
    charge::{ChargeTarget, ChargedOperation, RequestCharge},
    window::WindowLimit,
};
use crate::providers::azure::{
    config::{AzureConfig, ClientRateLimit},
    model::Quota,
};

/// Size of a token bucket. Values may be fractions: a share of a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BucketLimit {
    /// Maximum number of tokens; at least one.
    pub(super) capacity: f64,
    /// Tokens refilled per second; positive.
    pub(super) per_second: f64,
    /// Maximum within five minutes, for limits that a provider counts in such windows.
    pub(super) window: Option<WindowLimit>,
}

const fn per_second(capacity: f64, per_second: f64) -> BucketLimit {
    BucketLimit { capacity, per_second, window: None }
}

const fn per_minute(capacity: f64, tokens: f64) -> BucketLimit {
    BucketLimit { capacity, per_second: tokens / 60.0, window: None }
}

/// Returns the limit of `count` requests in five minutes: a bucket of that capacity, which refills in five minutes.
///
/// A burst and the refill after it could be twice as many within five minutes, which a provider with fixed windows would reject, so
/// requests are also counted in a window.
const fn per_five_minutes(count: f64) -> BucketLimit {
    BucketLimit { capacity: count, per_second: count / 300.0, window: Some(WindowLimit::all(count)) }
}

/// Part of a window that is closed to namespaces that have used more than their share.
const RESERVED_SHARE: f64 = 0.2;

impl BucketLimit {
    /// Returns the tokens that a namespace beyond its share must leave for others.
    pub(super) fn reserve(self) -> f64 {
        self.window.map_or(0.0, |window| window.share * RESERVED_SHARE)
    }

    fn share(self, share: f64) -> Self {
        let window = self.window.map(|window| window.share(share));
        Self { capacity: (self.capacity * share).max(1.0), per_second: self.per_second * share, window }
    }
}

/// Scope of the limit that a bucket mirrors, narrowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum QuotaLevel {
    /// Limit in the configuration, for one client.
    Configured,
    /// Limit of a resource provider, for one resource.
    Resource,
    /// Limit of a resource provider, for a subscription.
    Provider,
    /// Limit of ARM itself, for one principal in a subscription.
    Subscription,
}

/// Tokens that the most urgent requests leave in ARM's own buckets, because requests can reach ARM out of order. Each less urgent
/// class leaves as many more.
const RESERVE: f64 = 2.0;

impl QuotaLevel {
    /// Returns the other users of the limit.
    pub(super) fn shared_with(self) -> &'static str {
        match self {
            Self::Configured => "nobody",
            Self::Resource => "all clients that use this resource",
            Self::Provider => "all clients of the subscription in this region",
            Self::Subscription => "clients with the same identity",
        }
    }

    /// Returns `true` if other principals use the limit, so that this process uses only a share of it.
    pub(super) fn is_shared(self) -> bool {
        matches!(self, Self::Resource | Self::Provider)
    }

    /// Returns the tokens that a request leaves for more urgent ones. `class` 0 is the most urgent.
    pub(super) fn reserve(self, class: u32) -> f64 {
        if self == Self::Subscription { RESERVE * f64::from(class + 1) } else { 0.0 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BucketId {
    pub(super) level: QuotaLevel,
    /// Name in metrics and on the status page: `subscription-reads`, `network-writes`, `compute-UpdateVM`, `loadBalancer-reads`.
    pub(super) name: Cow<'static, str>,
    /// ID in lower case; empty for a path without a subscription.
    pub(super) subscription: String,
    /// Lower-case resource ID, at [`QuotaLevel::Resource`] only.
    pub(super) resource: Option<String>,
}

/// Bucket that a request takes one token from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BucketCharge {
    pub(super) id: BucketId,
    /// Size of the bucket, after the share was applied.
    pub(super) limit: BucketLimit,
}

/// Limits and shares of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetSettings {
    /// Share of every limit that all clients of a subscription share, in percent; clamped to 1..=100.
    pub share_percent: i32,
    /// `cloudProviderRateLimit*`: upper bounds for every client.
    pub limit: ClientRateLimit,
    /// Settings of single clients: `loadBalancerRateLimit` or `loadBalancer`, in any letter case.
    pub client_limits: BTreeMap<String, ClientRateLimit>,
    /// Subscriptions of the configuration, in lower case. Only these become labels of metrics; if empty, all do.
    pub labeled_subscriptions: BTreeSet<String>,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self::from(&AzureConfig::default())
    }
}

impl From<&AzureConfig> for BudgetSettings {
    fn from(config: &AzureConfig) -> Self {
        let limit = ClientRateLimit {
            cloud_provider_rate_limit: config.cloud_provider_rate_limit,
            cloud_provider_rate_limit_qps: config.cloud_provider_rate_limit_qps,
            cloud_provider_rate_limit_bucket: config.cloud_provider_rate_limit_bucket,
            cloud_provider_rate_limit_qps_write: config.cloud_provider_rate_limit_qps_write,
            cloud_provider_rate_limit_bucket_write: config.cloud_provider_rate_limit_bucket_write,
        };
        Self {
            share_percent: config.request_share_percent,
            limit,
            client_limits: config.rate_limit_entries.clone(),
            labeled_subscriptions: subscriptions(config),
        }
    }
}

impl BudgetSettings {
    /// Returns `true` if the subscription may become a label of metrics. Provider IDs of Nodes can name any subscription.
    pub(super) fn is_labeled(&self, subscription: &str) -> bool {
        self.labeled_subscriptions.is_empty() || self.labeled_subscriptions.contains(&subscription.to_lowercase())
    }

    /// Returns the configured share of the limits as a fraction.
    pub fn share(&self) -> f64 {
        f64::from(self.share_percent.clamp(1, 100)) / 100.0
    }

    /// Returns the fraction of a limit that this process may use.
    pub(super) fn share_of(&self, level: QuotaLevel) -> f64 {
        if level.is_shared() { self.share() } else { 1.0 }
    }
}

const NETWORK_READS: BucketLimit = per_five_minutes(10_000.0);
const NETWORK_WRITES: BucketLimit = per_five_minutes(1_000.0);

/// Policy of the compute provider: limits on requests of a client, per resource and per subscription.
struct ComputeQuotaPolicy {
    client: &'static str,
    operation: ChargedOperation,
    target: ChargeTarget,
    name: &'static str,
    resource: Option<BucketLimit>,
    subscription: BucketLimit,
}

macro_rules! policies {
    ($($client:literal $operation:ident $target:ident $name:literal $(resource $burst:literal $refill:literal)?, subscription $all_burst:literal $all_refill:literal;)*) => {
        &[$(ComputeQuotaPolicy {
            client: $client, operation: ChargedOperation::$operation, target: ChargeTarget::$target, name: $name,
            resource: policies!(@limit $($burst $refill)?), subscription: per_minute($all_burst, $all_refill),
        }),*]
    };
    (@limit) => { None };
    (@limit $burst:literal $refill:literal) => { Some(per_minute($burst, $refill)) };
}

/// Capacity and refill per minute. The published table lacks the list of a scale set's instances, which gets the most expensive
/// class of reads.
const COMPUTE: &[ComputeQuotaPolicy] = policies! {
    "VirtualMachine" Read Item "compute-LowCostGetVM" resource 36.0 12.0, subscription 24_000.0 8_000.0;
    "VirtualMachine" Read Collection "compute-HighCostGetVM", subscription 900.0 300.0;
    "VirtualMachine" Write Item "compute-UpdateVM" resource 12.0 4.0, subscription 1_500.0 500.0;
    "VirtualMachine" Delete Item "compute-DeleteVM" resource 12.0 4.0, subscription 1_500.0 500.0;
    "VirtualMachineScaleSet" Read Item "compute-LowCostGetVMSS" resource 36.0 12.0, subscription 2_400.0 800.0;
    "VirtualMachineScaleSet" Read Collection "compute-HighCostGetVMSS", subscription 1_080.0 360.0;
    "VirtualMachineScaleSet" Write Item "compute-UpdateVMSS" resource 12.0 4.0, subscription 1_500.0 500.0;
    "VirtualMachineScaleSet" Delete Item "compute-DeleteVMSS" resource 12.0 4.0, subscription 525.0 175.0;
    "VirtualMachineScaleSetVM" Read Item "compute-GetVMSSVM" resource 36.0 12.0, subscription 6_000.0 2_000.0;
    "VirtualMachineScaleSetVM" Read Collection "compute-ListVMSSVM", subscription 1_080.0 360.0;
    "VirtualMachineScaleSetVM" Write Item "compute-UpdateVMSSVM" resource 12.0 4.0, subscription 1_500.0 500.0;
    "VirtualMachineScaleSetVM" Delete Item "compute-DeleteVMSSVM" resource 12.0 4.0, subscription 1_500.0 500.0;
};

/// Bucket for polls of compute's long-running operations.
const COMPUTE_PROGRESS: (&str, BucketLimit) = ("compute-GetOperation", per_minute(15_000.0, 5_000.0));

/// Returns the buckets that a request takes a token from, narrowest first.
pub(super) fn bucket_charges(charge: &RequestCharge, settings: &BudgetSettings) -> Vec<BucketCharge> {
    let is_request = charge.target != ChargeTarget::Permit;
    let azure = provider(charge).into_iter().chain(is_request.then(|| subscription(charge)));
    let azure = azure.map(|(id, limit)| BucketCharge { limit: limit.share(settings.share_of(id.level)), id });
    configured(charge, settings).filter(|_| is_request).into_iter().chain(azure).collect()
}

fn id(level: QuotaLevel, name: impl Into<Cow<'static, str>>, charge: &RequestCharge) -> BucketId {
    let resource = charge.resource.clone().filter(|_| level == QuotaLevel::Resource);
    BucketId { level, name: name.into(), subscription: charge.subscription.clone(), resource }
}

/// Returns ARM's own bucket of the principal in the subscription.
fn subscription(charge: &RequestCharge) -> (BucketId, BucketLimit) {
    let (name, limit) = match charge.operation {
        ChargedOperation::Read => ("subscription-reads", per_second(250.0, 25.0)),
        ChargedOperation::Write => ("subscription-writes", per_second(200.0, 10.0)),
        ChargedOperation::Delete => ("subscription-deletes", per_second(200.0, 10.0)),
    };
    (id(QuotaLevel::Subscription, name, charge), limit)
}

fn provider(charge: &RequestCharge) -> Vec<(BucketId, BucketLimit)> {
    match (charge.quota, charge.operation) {
        (Quota::Subscription, _) => Vec::new(),
        (Quota::Network, ChargedOperation::Read) => vec![(id(QuotaLevel::Provider, "network-reads", charge), NETWORK_READS)],
        (Quota::Network, _) => vec![(id(QuotaLevel::Provider, "network-writes", charge), NETWORK_WRITES)],
        (Quota::Compute, _) => compute(charge),
    }
}

fn compute(charge: &RequestCharge) -> Vec<(BucketId, BucketLimit)> {
    if charge.target == ChargeTarget::OperationStatus {
        return vec![(id(QuotaLevel::Provider, COMPUTE_PROGRESS.0, charge), COMPUTE_PROGRESS.1)];
    }
    let applies = |row: &&ComputeQuotaPolicy| {
        (row.client, row.operation, row.target) == (charge.client, charge.operation, charge.target)
    };
    let Some(policy) = COMPUTE.iter().find(applies) else { return Vec::new() };
    let resource = policy.resource.filter(|_| charge.resource.is_some());
    let resource = resource.map(|limit| (id(QuotaLevel::Resource, policy.name, charge), limit));
    resource.into_iter().chain([(id(QuotaLevel::Provider, policy.name, charge), policy.subscription)]).collect()
}

fn configured(charge: &RequestCharge, settings: &BudgetSettings) -> Option<BucketCharge> {
    let client = charge.configured;
    let client_limit = settings.client_limits.iter().find(|(key, _)| {
        let key = key.to_ascii_lowercase();
        key.strip_suffix("ratelimit").unwrap_or(&key) == client.to_ascii_lowercase()
    });
    let limit = client_limit.map_or(&settings.limit, |(_, limit)| limit);
    let (subject, qps, bucket) = match charge.operation {
        ChargedOperation::Read => ("reads", limit.cloud_provider_rate_limit_qps, limit.cloud_provider_rate_limit_bucket),
        _ => ("writes", limit.cloud_provider_rate_limit_qps_write, limit.cloud_provider_rate_limit_bucket_write),
    };
    (limit.cloud_provider_rate_limit && qps > 0.0 && qps.is_finite()).then(|| BucketCharge {
        id: id(QuotaLevel::Configured, format!("{client}-{subject}"), charge),
        limit: per_second(f64::from(bucket).max(1.0), qps),
    })
}

#[cfg(test)]
mod tests;
