//! The budget on the status page.

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    buckets::{QuotaBucket, QuotaBuckets},
    limits::{BucketId, BudgetSettings},
    queue::BudgetQueue,
};

/// Returns every bucket in use and who waits for it.
pub(super) fn page(buckets: &QuotaBuckets, queue: &BudgetQueue, settings: &BudgetSettings, now: Instant) -> Value {
    let waiting = queue.waiting(buckets, now);
    let row = |(id, bucket): (&BucketId, &QuotaBucket)| {
        let of_bucket = waiting.iter().filter(|((waits_for, _), _)| waits_for == id);
        let waiting: Map<_, _> =
            of_bucket.map(|((_, urgency), count)| (urgency.as_str().to_owned(), json!(count))).collect();
        json!({
            "bucket": id.name,
            "subscription": id.subscription,
            "resource": id.resource,
            "left": tenths(bucket.left(now)),
            "capacity": tenths(bucket.limit().capacity),
            "refillPerSecond": rounded(bucket.limit().per_second, 1000.0),
            "sharePercent": tenths(settings.share_of(id.level) * 100.0),
            "sharedWith": id.level.shared_with(),
            "pausedForSeconds": tenths(bucket.paused_for(now).as_secs_f64()),
            "waiting": waiting,
        })
    };
    json!({ "sharePercent": settings.share_percent, "buckets": buckets.iter().map(row).collect::<Vec<_>>() })
}

fn tenths(number: f64) -> f64 {
    rounded(number, 10.0)
}

/// Rounds to a multiple of `part`.
fn rounded(number: f64, part: f64) -> f64 {
    (number * part).round() / part
}
