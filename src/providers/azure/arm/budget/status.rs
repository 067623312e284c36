//! Status page of the budget.

use tokio::time::Instant;

use super::{
    buckets::{QuotaBucket, QuotaBuckets},
    limits::{BucketId, BudgetSettings},
    queue::BudgetQueue,
};
use crate::status::{BucketStatus, BudgetStatus};

/// Returns every bucket in use with the number of waiting requests by urgency.
pub(super) fn page(buckets: &QuotaBuckets, queue: &BudgetQueue, settings: &BudgetSettings, now: Instant) -> BudgetStatus {
    let waiting = queue.waiting(buckets, now);
    let row = |(id, bucket): (&BucketId, &QuotaBucket)| {
        let of_bucket = waiting.iter().filter(|((bucket_id, _), _)| bucket_id == id);
        BucketStatus {
            bucket: id.name.to_string(),
            subscription: id.subscription.clone(),
            resource: id.resource.clone(),
            remaining: tenths(bucket.remaining(now)),
            capacity: tenths(bucket.limit().capacity),
            refill_per_second: rounded(bucket.limit().per_second, 1000.0),
            share_percent: tenths(settings.share_of(id.level) * 100.0),
            shared_with: id.level.shared_with().to_owned(),
            paused_for_seconds: tenths(bucket.paused_for(now).as_secs_f64()),
            waiting: of_bucket.map(|((_, urgency), count)| (urgency.as_str().to_owned(), *count)).collect(),
        }
    };
    BudgetStatus { share_percent: settings.share_percent, buckets: buckets.iter().map(row).collect() }
}

fn tenths(number: f64) -> f64 {
    rounded(number, 10.0)
}

/// Rounds to a multiple of `part`.
fn rounded(number: f64, part: f64) -> f64 {
    (number * part).round() / part
}
