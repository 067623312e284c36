//! ARM's request quotas, with the headers and refusals by which Azure reports them. Pure over the time that is passed in.
//!
//! In: a request, its principal and the time. Out: the headers of its response, or the 429. ARM has token buckets for each
//! principal and for all principals of a subscription; the network provider counts in fixed windows and does not report what
//! remains; the compute provider has token buckets for each resource and each subscription.

mod bucket;
mod compute;

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

pub use self::bucket::BucketSize;
use self::bucket::{Bucket, whole};
use super::{
    options::Class,
    refusal::{Headers, Refusal},
};

/// Buckets of ARM itself, for each principal in a subscription.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArmQuota {
    pub reads: BucketSize,
    pub writes: BucketSize,
    pub deletes: BucketSize,
    /// Ratio of the bucket of all principals together to that of one.
    pub principals: f64,
}

/// Requests that a resource provider serves in a window, for each subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowQuota {
    /// Length of the window.
    pub window: Duration,
    pub reads: u32,
    pub writes: u32,
}

/// Quotas in effect. None by default.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Quotas {
    pub arm: Option<ArmQuota>,
    /// Quota of the network provider.
    pub network: Option<WindowQuota>,
    /// Whether compute's quotas apply.
    pub compute: bool,
}

impl Quotas {
    /// Returns all of them, as documented.
    pub fn azure() -> Self {
        let bucket = |burst, per_second| BucketSize { burst, per_second };
        let (reads, writes, deletes) = (bucket(250.0, 25.0), bucket(200.0, 10.0), bucket(200.0, 10.0));
        let arm = ArmQuota { reads, writes, deletes, principals: 15.0 };
        let network = WindowQuota { window: Duration::from_secs(300), reads: 10_000, writes: 1_000 };
        Self { arm: Some(arm), network: Some(network), compute: true }
    }
}

/// A request, as far as quotas go.
#[derive(Debug, Clone, Copy)]
pub struct ThrottledRequest<'a> {
    pub subscription: &'a str,
    /// Principal of the request.
    pub principal: &'a str,
    /// Type of the resource or of the members of the list, lower-case; of an operation: the provider.
    pub kind: &'a str,
    /// Subject of the request, lower-case.
    pub resource: &'a str,
    pub list: bool,
    pub class: Class,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    start: Instant,
    used: u32,
}

/// Used parts of the quotas.
#[derive(Debug, Default)]
pub struct Throttle {
    buckets: BTreeMap<String, Bucket>,
    windows: BTreeMap<(String, bool), Window>,
}

impl Throttle {
    /// Charges a request. Returns the headers that report what remains, or the 429.
    pub fn charge(&mut self, quotas: &Quotas, request: &ThrottledRequest<'_>, now: Instant) -> Result<Headers, Refusal> {
        let mut headers = match &quotas.arm {
            Some(arm) => self.charge_arm(arm, request, now)?,
            None => Headers::new(),
        };
        let of_provider = match request.kind.split('/').next() {
            Some("microsoft.network") => self.charge_network(quotas.network.as_ref(), request, now),
            Some("microsoft.compute") if serves_network(request.kind) => {
                self.charge_network(quotas.network.as_ref(), request, now)
            }
            Some("microsoft.compute") if quotas.compute => self.charge_compute(request, now),
            _ => Ok(Headers::new()),
        };
        match of_provider {
            Ok(more) => headers.extend(more),
            Err(refusal) => return Err(refusal.by_provider(headers)),
        }
        Ok(headers)
    }

    fn bucket(&mut self, key: String, size: BucketSize, now: Instant) -> &mut Bucket {
        self.buckets.entry(key).or_insert_with(|| Bucket::full(size, now))
    }

    /// Takes a token of each bucket and returns what remains of each, or takes none and returns the bucket to wait for, with
    /// the seconds.
    fn take(&mut self, charges: &[(String, BucketSize)], now: Instant) -> Result<Vec<String>, (usize, u64)> {
        for (index, (key, size)) in charges.iter().enumerate() {
            if let Some(wait) = self.bucket(key.clone(), *size, now).wait(now) {
                return Err((index, wait));
            }
        }
        Ok(charges.iter().map(|(key, size)| self.bucket(key.clone(), *size, now).take()).collect())
    }

    fn charge_arm(&mut self, arm: &ArmQuota, request: &ThrottledRequest<'_>, now: Instant) -> Result<Headers, Refusal> {
        let (size, name_prefix, names) = match request.class {
            Class::Write => (arm.writes, "write", WRITES),
            Class::Delete => (arm.deletes, "delete", DELETES),
            _ => (arm.reads, "read", READS),
        };
        let (subscription, principal) = (request.subscription, request.principal);
        let all = size.times(arm.principals);
        let charges =
            [(format!("{name_prefix} {subscription} {principal}"), size), (format!("{name_prefix} {subscription}"), all)];
        let remaining = self.take(&charges, now).map_err(|(index, wait)| {
            let limit = charges[index].1.burst;
            let message = format!(
                "Number of '{name_prefix}' requests for subscription '{subscription}' exceeded the limit of '{limit:.0}'. Please try again \
                 after '{wait}' seconds."
            );
            Refusal::new(429, "SubscriptionRequestsThrottled", message).retry_after(wait)
        })?;
        Ok(names.into_iter().zip(remaining).collect())
    }

    fn charge_compute(&mut self, request: &ThrottledRequest<'_>, now: Instant) -> Result<Headers, Refusal> {
        let Some(policy) = compute::policy_of(request) else { return Ok(Headers::new()) };
        let (name, subscription) = (policy.name, request.subscription);
        let resource_bucket = policy.resource.map(|size| (format!("{name} {}", request.resource), size));
        let charges: Vec<_> =
            resource_bucket.into_iter().chain([(format!("{name} {subscription}"), policy.subscription)]).collect();
        let names = ["Resource", "SubscriptionMaximum"];
        let names = &names[names.len() - charges.len()..];
        let header_of = |remaining: &[String]| {
            let header_of =
                names.iter().zip(remaining).map(|(of, remaining)| format!("Microsoft.Compute/{name}{of};{remaining}"));
            (REMAINING, header_of.collect::<Vec<_>>().join(","))
        };
        match self.take(&charges, now) {
            Ok(remaining) => Ok(vec![header_of(&remaining)]),
            Err((index, wait)) => {
                let message =
                    "The server rejected the request because too many requests have been received for this subscription.";
                let refusal = Refusal::new(429, "OperationNotAllowed", message).retry_after(wait);
                let empty = format!("Microsoft.Compute/{name}{};0", names[index]);
                Err(refusal.by_provider(vec![(REMAINING, empty)]))
            }
        }
    }

    fn charge_network(
        &mut self,
        quota: Option<&WindowQuota>,
        request: &ThrottledRequest<'_>,
        now: Instant,
    ) -> Result<Headers, Refusal> {
        let Some(quota) = quota else { return Ok(Headers::new()) };
        let writes = matches!(request.class, Class::Write | Class::Delete);
        let limit = if writes { quota.writes } else { quota.reads };
        let new = Window { start: now, used: 0 };
        let window = self.windows.entry((request.subscription.to_owned(), writes)).or_insert(new);
        if now.saturating_duration_since(window.start) >= quota.window {
            *window = new;
        }
        if window.used >= limit {
            let remaining = quota.window.saturating_sub(now.saturating_duration_since(window.start));
            let message = format!(
                "The server rejected the request because too many requests have been received for this subscription: {limit} {} \
                 in {} minutes for Microsoft.Network.",
                if writes { "writes" } else { "reads" },
                quota.window.as_secs() / 60
            );
            let wait = whole(remaining.as_secs_f64().ceil().max(1.0));
            return Err(Refusal::new(429, "TooManyRequests", message).retry_after(wait));
        }
        window.used += 1;
        Ok(Headers::new())
    }
}

const READS: [&str; 2] =
    ["x-ms-ratelimit-remaining-subscription-reads", "x-ms-ratelimit-remaining-subscription-global-reads"];
const WRITES: [&str; 2] =
    ["x-ms-ratelimit-remaining-subscription-writes", "x-ms-ratelimit-remaining-subscription-global-writes"];
const DELETES: [&str; 2] =
    ["x-ms-ratelimit-remaining-subscription-deletes", "x-ms-ratelimit-remaining-subscription-global-deletes"];
const REMAINING: &str = "x-ms-ratelimit-remaining-resource";

/// Interfaces and public IPs of scale sets are the network provider's.
fn serves_network(kind: &str) -> bool {
    kind.ends_with("networkinterfaces") || kind.ends_with("publicipaddresses")
}

#[cfg(test)]
mod tests;
