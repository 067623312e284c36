//! What a request waits for. Pure.

use tokio::time::Instant;

use super::limits::BucketId;

/// Requests that wait for a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestDelay {
    /// The quota, as `/statusz` and the metrics name it.
    pub quota: String,
    /// The subscription whose quota it is.
    pub subscription: String,
    /// Time at which the first of them is admitted, if nothing else happens.
    pub until: Instant,
    /// Since when the Services of a namespace wait that has used more than its share; `None` if the quota is used up.
    pub share_since: Option<Instant>,
}

impl RequestDelay {
    pub(super) fn new(bucket: &BucketId, until: Instant, share_since: Option<Instant>) -> Self {
        Self { quota: bucket.name.to_string(), subscription: bucket.subscription.to_string(), until, share_since }
    }
}
