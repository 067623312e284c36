//! ARM's request quotas, with the headers and refusals by which Azure tells of them. Pure over the time that is passed in.
//!
//! ARM has token buckets per subscription, filled by the second; the resource providers count in fixed windows.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::{options::Class, refusal::Refusal};

/// A bucket that holds `burst` requests and gains `per_second`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BucketSize {
    /// Most requests at once.
    pub burst: f64,
    /// Requests regained per second.
    pub per_second: f64,
}

/// Buckets of ARM itself, for each subscription.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArmQuota {
    pub reads: BucketSize,
    pub writes: BucketSize,
    pub deletes: BucketSize,
}

/// Requests that a resource provider serves in a window, for each subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowQuota {
    /// Length of the window.
    pub window: Duration,
    pub reads: u32,
    /// Writes and deletes.
    pub writes: u32,
}

/// Which quotas hold. None by default.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Quotas {
    /// Of ARM.
    pub arm: Option<ArmQuota>,
    /// Of the network provider.
    pub network: Option<WindowQuota>,
    /// Of the compute provider.
    pub compute: Option<WindowQuota>,
}

impl Quotas {
    /// ARM's and the network provider's, as documented.
    pub fn azure() -> Self {
        let bucket = |burst, per_second| BucketSize { burst, per_second };
        let arm = ArmQuota { reads: bucket(250.0, 25.0), writes: bucket(200.0, 10.0), deletes: bucket(200.0, 10.0) };
        let network = WindowQuota { window: Duration::from_secs(300), reads: 10_000, writes: 1_000 };
        Self { arm: Some(arm), network: Some(network), compute: None }
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    level: f64,
    at: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    start: Instant,
    used: u32,
}

/// What was used so far.
#[derive(Debug, Default)]
pub struct Throttle {
    buckets: BTreeMap<(String, Class), Bucket>,
    windows: BTreeMap<(String, &'static str, bool), Window>,
}

/// Names and values of response headers.
pub type Headers = Vec<(&'static str, String)>;

impl Throttle {
    /// Charges a request; answers the headers that say what is left, or the 429. `kind` is the lower-case resource type.
    pub fn charge(
        &mut self,
        quotas: &Quotas,
        (subscription, kind): (&str, &str),
        class: Class,
        now: Instant,
    ) -> Result<Headers, Refusal> {
        let mut headers = Headers::new();
        if let Some(arm) = &quotas.arm {
            headers.push(self.charge_arm(arm, subscription, class, now)?);
        }
        let provider = match kind.split('/').next() {
            Some("microsoft.network") => quotas.network.as_ref().map(|quota| ("Microsoft.Network", quota)),
            Some("microsoft.compute") if kind.ends_with("networkinterfaces") || kind.ends_with("publicipaddresses") => {
                quotas.network.as_ref().map(|quota| ("Microsoft.Network", quota))
            }
            Some("microsoft.compute") => quotas.compute.as_ref().map(|quota| ("Microsoft.Compute", quota)),
            _ => None,
        };
        if let Some((name, quota)) = provider {
            headers.push(self.charge_window((name, quota), subscription, class, now)?);
        }
        Ok(headers)
    }

    fn charge_arm(
        &mut self,
        arm: &ArmQuota,
        subscription: &str,
        class: Class,
        now: Instant,
    ) -> Result<(&'static str, String), Refusal> {
        let (class, size, header, what) = match class {
            Class::Write => (Class::Write, arm.writes, "x-ms-ratelimit-remaining-subscription-writes", "write"),
            Class::Delete => (Class::Delete, arm.deletes, "x-ms-ratelimit-remaining-subscription-deletes", "delete"),
            _ => (Class::Read, arm.reads, "x-ms-ratelimit-remaining-subscription-reads", "read"),
        };
        let full = Bucket { level: size.burst, at: now };
        let bucket = self.buckets.entry((subscription.to_owned(), class)).or_insert(full);
        let gained = now.saturating_duration_since(bucket.at).as_secs_f64() * size.per_second;
        *bucket = Bucket { level: (bucket.level + gained).min(size.burst), at: now };
        if bucket.level < 1.0 {
            let seconds = ((1.0 - bucket.level) / size.per_second).ceil().max(1.0);
            let message = format!(
                "Number of '{what}' requests for subscription '{subscription}' exceeded the limit of '{:.0}'. Please try again \
                 after '{seconds:.0}' seconds.",
                size.burst
            );
            return Err(Refusal::new(429, "SubscriptionRequestsThrottled", message).retry_after(whole(seconds)));
        }
        bucket.level -= 1.0;
        Ok((header, format!("{:.0}", bucket.level.floor())))
    }

    fn charge_window(
        &mut self,
        (name, quota): (&'static str, &WindowQuota),
        subscription: &str,
        class: Class,
        now: Instant,
    ) -> Result<(&'static str, String), Refusal> {
        let writes = matches!(class, Class::Write | Class::Delete);
        let limit = if writes { quota.writes } else { quota.reads };
        let window = self.windows.entry((subscription.to_owned(), name, writes)).or_insert(Window { start: now, used: 0 });
        if now.saturating_duration_since(window.start) >= quota.window {
            *window = Window { start: now, used: 0 };
        }
        if window.used >= limit {
            let left = quota.window.saturating_sub(now.saturating_duration_since(window.start));
            let message = format!(
                "The server rejected the request because too many requests have been received for this subscription: {limit} {} \
                 in {} minutes for {name}.",
                if writes { "writes" } else { "reads" },
                quota.window.as_secs() / 60
            );
            let code = if name == "Microsoft.Network" { "TooManyRequests" } else { "OperationNotAllowed" };
            return Err(Refusal::new(429, code, message).retry_after(whole(left.as_secs_f64().ceil().max(1.0))));
        }
        window.used += 1;
        let kind = if writes { "Write" } else { "Read" };
        Ok(("x-ms-ratelimit-remaining-resource", format!("{name}/{kind}Operations;{}", limit - window.used)))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded up and at least one")]
fn whole(seconds: f64) -> u64 {
    seconds as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LB: (&str, &str) = ("s", "microsoft.network/loadbalancers");

    #[test]
    fn a_bucket_empties_and_fills() {
        let (mut throttle, quotas, start) =
            (Throttle::default(), Quotas { network: None, ..Quotas::azure() }, Instant::now());
        let mut write = |at: Duration| throttle.charge(&quotas, LB, Class::Write, start + at);
        for left in (0..200).rev() {
            let headers = write(Duration::ZERO).unwrap();
            assert_eq!(headers, [("x-ms-ratelimit-remaining-subscription-writes", left.to_string())]);
        }
        let refused = write(Duration::ZERO).unwrap_err();
        assert_eq!(
            (refused.status, refused.code.as_str(), refused.retry_after),
            (429, "SubscriptionRequestsThrottled", Some(1))
        );
        assert!(write(Duration::from_millis(99)).is_err());
        assert!(write(Duration::from_millis(200)).is_ok());
        assert!(throttle.charge(&quotas, LB, Class::Read, start).is_ok(), "reads have a bucket of their own");
        assert!(throttle.charge(&quotas, ("t", LB.1), Class::Write, start).is_ok(), "and so has each subscription");
    }

    #[test]
    fn a_window_counts_writes_and_deletes_together() {
        let (mut throttle, quotas, start) = (Throttle::default(), Quotas { arm: None, ..Quotas::azure() }, Instant::now());
        for turn in 0..1_000 {
            let class = if turn % 2 == 0 { Class::Write } else { Class::Delete };
            assert!(throttle.charge(&quotas, LB, class, start).is_ok());
        }
        let refused = throttle.charge(&quotas, LB, Class::Write, start + Duration::from_secs(100)).unwrap_err();
        assert_eq!((refused.code.as_str(), refused.retry_after), ("TooManyRequests", Some(200)));
        assert!(throttle.charge(&quotas, LB, Class::Read, start).is_ok());
        assert!(throttle.charge(&quotas, LB, Class::Write, start + Duration::from_secs(300)).is_ok());
    }
}
