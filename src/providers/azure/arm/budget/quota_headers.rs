//! Quotas in a response of ARM. Pure.
//!
//! In: the request's charge and buckets, status, headers and error code of the response. Out: corrections, and the one pause
//! that a 429 requests.
//!
//! The remaining part of a shared quota is for all clients, and this process takes its share of it: without other clients,
//! that is never less than what its own bucket holds; when others have used the quota up, it is less, and the process slows
//! down with them. The remaining part of the principal's own quota is this process's.
//!
//! Corrections only lower, except for a single resource: few clients write it, and one at a time, so its share of the
//! remaining quota may also exceed the content of its bucket. Elsewhere requests in flight make the number too large.

use std::time::Duration;

use http::HeaderMap;

use super::{
    super::error_codes::names_another_write,
    charge::ChargedOperation,
    limits::{BucketCharge, BudgetSettings, QuotaLevel},
};

/// Pause after a 429 that names no time.
const PAUSE: Duration = Duration::from_secs(10);

/// Bounds of a pause, whatever an answer says.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

/// Update of a bucket; the index is that among the request's charges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum QuotaUpdate {
    /// No more than this many tokens are left.
    AtMost(usize, f64),
    /// So many tokens are left.
    Left(usize, f64),
    /// Pause for this long.
    Pause(usize, Duration),
}

/// Response, as far as it concerns quotas.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuotaHeaders<'a> {
    pub(super) status: u16,
    pub(super) headers: &'a HeaderMap,
    /// ARM's error code; empty when there is none.
    pub(super) code: &'a str,
    /// Result of [`retry_after`](super::super::retry_after::retry_after).
    pub(super) retry_after: Option<Duration>,
}

/// Returns all updates from a response.
pub(super) fn quota_updates(
    operation: ChargedOperation,
    drains: &[BucketCharge],
    settings: &BudgetSettings,
    response: &QuotaHeaders<'_>,
) -> Vec<QuotaUpdate> {
    let left = remaining(operation, response.headers);
    let own = left.iter().map(|(level, left)| (*level, left * settings.share_of(*level)));
    let of_all = global(operation, response.headers).map(|left| (QuotaLevel::Subscription, left * settings.share()));
    let (of_resource, others): (Vec<_>, Vec<_>) = own.chain(of_all).partition(|(level, _)| *level == QuotaLevel::Resource);
    let of_resource = of_resource.into_iter().min_by(|a, other| a.1.total_cmp(&other.1));
    let mut lessons: Vec<_> =
        others.into_iter().chain(of_resource).filter_map(|(level, left)| update(drains, level, left)).collect();
    if response.status == 429 && !names_another_write(response.code) {
        let level = throttled_level(&left, response);
        let index = drains.iter().position(|drain| drain.id.level >= level);
        let pause = response.retry_after.unwrap_or(PAUSE).clamp(PAUSES.0, PAUSES.1);
        lessons.extend(index.map(|index| QuotaUpdate::Pause(index, pause)));
    }
    lessons
}

fn update(drains: &[BucketCharge], level: QuotaLevel, remaining: f64) -> Option<QuotaUpdate> {
    let index = drains.iter().position(|drain| drain.id.level == level)?;
    let is_raised = level == QuotaLevel::Resource;
    Some(if is_raised { QuotaUpdate::Left(index, remaining) } else { QuotaUpdate::AtMost(index, remaining) })
}

/// Returns the quota that a 429 is about: the one it names, the one that is empty, ARM's if ARM itself rejected, else the
/// provider's.
///
/// If the request has no bucket of that level, it is the next wider one.
fn throttled_level(remaining: &[(QuotaLevel, f64)], response: &QuotaHeaders<'_>) -> QuotaLevel {
    let code = response.code.to_ascii_lowercase();
    if code.contains("throttled") && (code.starts_with("subscription") || code.starts_with("tenant")) {
        return QuotaLevel::Subscription;
    }
    if let Some((level, _)) = remaining.iter().find(|(_, remaining)| *remaining <= 0.0) {
        return *level;
    }
    let by_arm = response.headers.get("x-ms-failure-cause").is_some_and(|cause| cause.as_bytes() == b"gateway");
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

/// Returns the remaining quota of all principals of the subscription.
fn global(operation: ChargedOperation, headers: &HeaderMap) -> Option<f64> {
    number(headers, &format!("x-ms-ratelimit-remaining-subscription-global-{}", what(operation)))
}

/// Returns the remaining part of each quota.
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

/// Parses `Microsoft.Compute/HighCostGet3Min;159`. Policies of single resources have that word in their name.
fn policy(text: &str) -> Option<(QuotaLevel, f64)> {
    let (name, remaining) = text.rsplit_once([';', ' '])?;
    let remaining = remaining.trim().parse::<u32>().ok()?;
    let of_resource = name.to_ascii_lowercase().contains("resource");
    Some((if of_resource { QuotaLevel::Resource } else { QuotaLevel::Provider }, f64::from(remaining)))
}

#[cfg(test)]
mod tests;
