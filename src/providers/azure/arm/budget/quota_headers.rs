//! What an answer of ARM says about its quotas.
//!
//! In: the request's charge and buckets, status, headers and error code of the answer. Out: corrections, and the one pause that a 429
//! asks for.
//!
//! What is left of a shared quota is left for everybody, and this process takes its share of it: with nobody else about, that is
//! never less than what its own bucket holds; when others have used the quota up, it is less, and the process slows down with
//! them. What is left of the principal's own quota is this process's.
//!
//! Corrections lower, but for a single resource: few clients write it, and one at a time, so its share of what is left may also be
//! more than its bucket holds. Elsewhere requests that are on their way make the number too large.

use std::time::Duration;

use http::HeaderMap;

use super::{
    super::classify::names_another_write,
    charge::ChargedOperation,
    limits::{BucketCharge, BudgetSettings, QuotaLevel},
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
    /// So many tokens are left.
    Left(usize, f64),
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
    settings: &BudgetSettings,
    answer: &QuotaHeaders<'_>,
) -> Vec<QuotaUpdate> {
    let left = remaining(operation, answer.headers);
    let own = left.iter().map(|(level, left)| (*level, left * settings.share_of(*level)));
    let of_all = global(operation, answer.headers).map(|left| (QuotaLevel::Subscription, left * settings.share()));
    let (of_resource, others): (Vec<_>, Vec<_>) = own.chain(of_all).partition(|(level, _)| *level == QuotaLevel::Resource);
    let of_resource = of_resource.into_iter().min_by(|one, other| one.1.total_cmp(&other.1));
    let mut lessons: Vec<_> =
        others.into_iter().chain(of_resource).filter_map(|(level, left)| update(drains, level, left)).collect();
    if answer.status == 429 && !names_another_write(answer.code) {
        let level = throttled_level(&left, answer);
        let index = drains.iter().position(|drain| drain.id.level >= level);
        let pause = answer.retry_after.unwrap_or(PAUSE).clamp(PAUSES.0, PAUSES.1);
        lessons.extend(index.map(|index| QuotaUpdate::Pause(index, pause)));
    }
    lessons
}

fn update(drains: &[BucketCharge], level: QuotaLevel, left: f64) -> Option<QuotaUpdate> {
    let index = drains.iter().position(|drain| drain.id.level == level)?;
    let is_raised = level == QuotaLevel::Resource;
    Some(if is_raised { QuotaUpdate::Left(index, left) } else { QuotaUpdate::AtMost(index, left) })
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

fn what(operation: ChargedOperation) -> &'static str {
    match operation {
        ChargedOperation::Read => "reads",
        ChargedOperation::Write => "writes",
        ChargedOperation::Delete => "deletes",
    }
}

fn number(headers: &HeaderMap, name: &str) -> Option<f64> {
    headers.get(name)?.to_str().ok()?.trim().parse::<u32>().ok().map(f64::from)
}

/// What is left for all principals of the subscription.
fn global(operation: ChargedOperation, headers: &HeaderMap) -> Option<f64> {
    number(headers, &format!("x-ms-ratelimit-remaining-subscription-global-{}", what(operation)))
}

/// What is left of which quota.
fn remaining(operation: ChargedOperation, headers: &HeaderMap) -> Vec<(QuotaLevel, f64)> {
    let single = [
        (QuotaLevel::Subscription, format!("x-ms-ratelimit-remaining-subscription-{}", what(operation))),
        (QuotaLevel::Provider, "x-ms-ratelimit-remaining-subscription-resource-requests".to_owned()),
    ];
    let single = single.into_iter().filter_map(|(level, name)| Some((level, number(headers, &name)?)));
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
