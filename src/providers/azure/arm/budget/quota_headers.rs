//! Corrections of the buckets from a response of ARM. Pure.
//!
//! In: the request's charge and buckets, status, headers and error code of the response. Out: corrections, and the one pause
//! that a 429 requests.
//!
//! All clients share the remaining part of a shared quota, and this process takes its share of it. Without other clients,
//! the share is never less than the content of its own bucket. When others have used the quota up, the share is less, and the
//! process slows down with them. The remaining part of the principal's own quota belongs to this process alone.
//!
//! Corrections only lower the tokens, except for a single resource: few clients write it, one at a time, so the share of the
//! remaining quota may also raise the bucket. For other quotas, requests in flight make the reported number too large.

use std::time::Duration;

use http::HeaderMap;

use super::{
    super::error_codes::names_another_write,
    charge::ChargedOperation,
    limits::{BucketCharge, BudgetSettings, QuotaLevel},
};

/// Pause after a 429 without `Retry-After`.
const DEFAULT_PAUSE: Duration = Duration::from_secs(10);

/// Bounds of a pause, whatever a response says.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// Update of a bucket, with its index among the charges of the request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum QuotaUpdate {
    /// Upper bound of the remaining tokens.
    AtMost(usize, f64),
    /// Number of remaining tokens.
    Remaining(usize, f64),
    /// Pause of this length, from now.
    Pause(usize, Duration),
}

/// Parts of a response that concern quotas.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuotaHeaders<'a> {
    pub(super) status: u16,
    pub(super) headers: &'a HeaderMap,
    /// Error code of ARM; empty if there is none.
    pub(super) code: &'a str,
    /// Delay that [`retry_after`](super::super::retry_after::retry_after) reads from the headers.
    pub(super) retry_after: Option<Duration>,
}

/// Returns all updates from a response.
pub(super) fn quota_updates(
    operation: ChargedOperation,
    charges: &[BucketCharge],
    settings: &BudgetSettings,
    response: &QuotaHeaders<'_>,
) -> Vec<QuotaUpdate> {
    let quotas = remaining(operation, response.headers);
    let own = quotas.iter().map(|(level, tokens)| (*level, tokens * settings.share_of(*level)));
    let of_all = global(operation, response.headers).map(|tokens| (QuotaLevel::Subscription, tokens * settings.share()));
    let (of_resource, others): (Vec<_>, Vec<_>) = own.chain(of_all).partition(|(level, _)| *level == QuotaLevel::Resource);
    let of_resource = of_resource.into_iter().min_by(|left, right| left.1.total_cmp(&right.1));
    let mut updates: Vec<_> =
        others.into_iter().chain(of_resource).filter_map(|(level, tokens)| update(charges, level, tokens)).collect();
    if response.status == 429 && !names_another_write(response.code) {
        let level = throttled_level(&quotas, response);
        let index = charges.iter().position(|charge| charge.id.level >= level);
        let pause = response.retry_after.unwrap_or(DEFAULT_PAUSE).clamp(MIN_PAUSE, MAX_PAUSE);
        updates.extend(index.map(|index| QuotaUpdate::Pause(index, pause)));
    }
    updates
}

fn update(charges: &[BucketCharge], level: QuotaLevel, remaining: f64) -> Option<QuotaUpdate> {
    let index = charges.iter().position(|charge| charge.id.level == level)?;
    let can_raise = level == QuotaLevel::Resource;
    Some(if can_raise { QuotaUpdate::Remaining(index, remaining) } else { QuotaUpdate::AtMost(index, remaining) })
}

/// Returns the quota that a 429 is about: the named one, the exhausted one, ARM's if ARM itself rejected the request, or the
/// provider's.
///
/// A request without a bucket of that level uses the next wider one.
fn throttled_level(remaining: &[(QuotaLevel, f64)], response: &QuotaHeaders<'_>) -> QuotaLevel {
    let code = response.code.to_ascii_lowercase();
    if code.contains("throttled") && (code.starts_with("subscription") || code.starts_with("tenant")) {
        return QuotaLevel::Subscription;
    }
    if let Some((level, _)) = remaining.iter().find(|(_, remaining)| *remaining <= 0.0) {
        return *level;
    }
    let is_from_arm = response.headers.get("x-ms-failure-cause").is_some_and(|cause| cause.as_bytes() == b"gateway");
    if is_from_arm && code != "resourcerequeststhrottled" { QuotaLevel::Subscription } else { QuotaLevel::Provider }
}

fn plural_name(operation: ChargedOperation) -> &'static str {
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
    number(headers, &format!("x-ms-ratelimit-remaining-subscription-global-{}", plural_name(operation)))
}

/// Returns the remaining part of each quota.
fn remaining(operation: ChargedOperation, headers: &HeaderMap) -> Vec<(QuotaLevel, f64)> {
    let single = [
        (QuotaLevel::Subscription, format!("x-ms-ratelimit-remaining-subscription-{}", plural_name(operation))),
        (QuotaLevel::Provider, "x-ms-ratelimit-remaining-subscription-resource-requests".to_owned()),
    ];
    let single = single.into_iter().filter_map(|(level, name)| Some((level, number(headers, &name)?)));
    let policies = headers.get_all("x-ms-ratelimit-remaining-resource");
    let policies = policies.iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    single.chain(policies.filter_map(policy)).collect()
}

/// Parses `Microsoft.Compute/HighCostGet3Min;159`. Names of policies for single resources contain the word "Resource".
fn policy(text: &str) -> Option<(QuotaLevel, f64)> {
    let (name, remaining) = text.rsplit_once([';', ' '])?;
    let remaining = remaining.trim().parse::<u32>().ok()?;
    let is_for_resource = name.to_ascii_lowercase().contains("resource");
    Some((if is_for_resource { QuotaLevel::Resource } else { QuotaLevel::Provider }, f64::from(remaining)))
}

#[cfg(test)]
mod tests;
