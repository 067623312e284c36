//! What an answer of ARM says about its quotas.
//!
//! In: the request's charge and buckets, status, headers and error code of the answer. Out: corrections, always downward, and the
//! one pause that a 429 asks for.
//!
//! What is left according to ARM is left for everybody. Of it we take our share: with nobody else about, that is never less than
//! what our own bucket holds; when others have used the quota up, it is less, and we slow down with them.

use std::time::Duration;

use http::HeaderMap;

use super::{
    super::classify::names_another_write,
    charge::ChargedOperation,
    limits::{BucketCharge, QuotaLevel},
};

/// Pause after a 429 that names no time.
const PAUSE: Duration = Duration::from_secs(10);

/// Bounds of a pause, whatever an answer says.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

/// What to do with a bucket; the index is that among the request's drains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum QuotaUpdate {
    /// No more than this many tokens are left.
    AtMost(usize, f64),
    /// Nothing may leave for so long.
    Pause(usize, Duration),
}

/// An answer, as far as it tells about quotas.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuotaHeaders<'a> {
    pub(super) status: u16,
    pub(super) headers: &'a HeaderMap,
    /// ARM's error code; empty when there is none.
    pub(super) code: &'a str,
    /// See [`retry_after`](super::super::retry_after::retry_after).
    pub(super) retry_after: Option<Duration>,
}

/// Everything an answer teaches.
pub(super) fn quota_updates(
    operation: ChargedOperation,
    drains: &[BucketCharge],
    share: f64,
    answer: &QuotaHeaders<'_>,
) -> Vec<QuotaUpdate> {
    let left = remaining(operation, answer.headers);
    let mut lessons: Vec<_> = left
        .iter()
        .filter_map(|(level, left)| {
            let index = drains.iter().position(|drain| drain.id.level == *level)?;
            Some(QuotaUpdate::AtMost(index, left * share))
        })
        .collect();
    if answer.status == 429 && !names_another_write(answer.code) {
        let level = throttled_level(&left, answer);
        let index = drains.iter().position(|drain| drain.id.level >= level);
        let pause = answer.retry_after.unwrap_or(PAUSE).clamp(PAUSES.0, PAUSES.1);
        lessons.extend(index.map(|index| QuotaUpdate::Pause(index, pause)));
    }
    lessons
}

/// Which quota a 429 speaks of: the one it names, the one that is empty, ARM's when ARM itself refused, else the provider's. When
/// the request has no bucket of that level, the next wider one is meant.
fn throttled_level(left: &[(QuotaLevel, f64)], answer: &QuotaHeaders<'_>) -> QuotaLevel {
    let code = answer.code.to_ascii_lowercase();
    if code.contains("throttled") && (code.starts_with("subscription") || code.starts_with("tenant")) {
        return QuotaLevel::Subscription;
    }
    if let Some((level, _)) = left.iter().find(|(_, left)| *left <= 0.0) {
        return *level;
    }
    let by_arm = answer.headers.get("x-ms-failure-cause").is_some_and(|cause| cause.as_bytes() == b"gateway");
    if by_arm && code != "resourcerequeststhrottled" { QuotaLevel::Subscription } else { QuotaLevel::Provider }
}

/// What is left of which quota.
fn remaining(operation: ChargedOperation, headers: &HeaderMap) -> Vec<(QuotaLevel, f64)> {
    let what = match operation {
        ChargedOperation::Read => "reads",
        ChargedOperation::Write => "writes",
        ChargedOperation::Delete => "deletes",
    };
    let number = |name: String| headers.get(name)?.to_str().ok()?.trim().parse::<u32>().ok().map(f64::from);
    let single = [
        (QuotaLevel::Subscription, format!("x-ms-ratelimit-remaining-subscription-{what}")),
        (QuotaLevel::Subscription, format!("x-ms-ratelimit-remaining-subscription-global-{what}")),
        (QuotaLevel::Provider, "x-ms-ratelimit-remaining-subscription-resource-requests".to_owned()),
    ];
    let single = single.into_iter().filter_map(|(level, name)| Some((level, number(name)?)));
    let policies = headers.get_all("x-ms-ratelimit-remaining-resource");
    let policies = policies.iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    single.chain(policies.filter_map(policy)).collect()
}

/// `Microsoft.Compute/HighCostGet3Min;159`. Policies of single resources have that word in their name.
fn policy(text: &str) -> Option<(QuotaLevel, f64)> {
    let (name, left) = text.rsplit_once([';', ' '])?;
    let left = left.trim().parse::<u32>().ok()?;
    let of_resource = name.to_ascii_lowercase().contains("resource");
    Some((if of_resource { QuotaLevel::Resource } else { QuotaLevel::Provider }, f64::from(left)))
}

#[cfg(test)]
mod tests;
