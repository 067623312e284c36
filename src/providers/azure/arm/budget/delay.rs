//! Quota that requests wait for. Pure.

use tokio::time::Instant;

use super::limits::BucketId;

/// Delay of requests that wait for a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestDelay {
    /// Name of the quota, as in `/statusz` and the metrics.
    pub quota: String,
    /// ID of the subscription that the quota belongs to, in lower case.
    pub subscription: String,
    /// Time at which the first of them is admitted, if nothing else happens.
    pub until: Instant,
    /// Start of the wait of a namespace that has used more than its share; `None` if the quota is used up.
    pub share_since: Option<Instant>,
}

impl RequestDelay {
    pub(super) fn new(bucket: &BucketId, until: Instant, share_since: Option<Instant>) -> Self {
        Self { quota: bucket.name.to_string(), subscription: bucket.subscription.to_string(), until, share_since }
    }
}
