//! Access restrictions of a Service. Pure. Upstream: `pkg/provider/loadbalancer/accesscontrol.go`, `configuration.go`.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::{
    AccessControl, IpFamily, ServiceSpec, ranges,
    reader::{SpecReader, refusal},
    reason,
};
use crate::providers::azure::planner::load_balancer::annotations::{
    ALLOWED_IP_RANGES, ALLOWED_SERVICE_TAGS, AnnotationFormat, AnnotationKey, DENY_ALL, DISABLE_NSG_RULE, ExactTrueFormat,
    INTERNAL, MOST_RANGES, RangeListFormat, RestrictionFormat, SOURCE_RANGES, ServiceTagListFormat, excerpt, excerpts,
};

pub(super) const SPEC_RANGES: &str = "spec.loadBalancerSourceRanges";
/// Longest text of a range in the field, in bytes.
const MAX_RANGE_LENGTH: usize = 64;

/// Valid ranges, and whether some text was invalid.
#[derive(Default)]
struct SourceRanges {
    ranges: Vec<IpNet>,
    has_invalid: bool,
}

impl SourceRanges {
    /// Returns the sources of a restriction that cannot be read: no range is allowed.
    fn unreadable() -> Self {
        Self { ranges: Vec::new(), has_invalid: true }
    }

    fn and(mut self, other: Self) -> Self {
        self.ranges.extend(other.ranges);
        self.has_invalid |= other.has_invalid;
        self
    }
}

/// Returns the access restrictions of a Service. `from_spec`: `spec.loadBalancerSourceRanges`.
///
/// Invalid parts of the field or of the annotations close the Service to all sources that the valid parts do not allow.
pub(super) fn access(reading: &mut SpecReader<'_>, from_spec: &[String], internal: bool) -> AccessControl {
    let spec = from_field(reading, from_spec);
    let annotated = from_annotation(reading, &ALLOWED_IP_RANGES).and(from_annotation(reading, &SOURCE_RANGES));
    let (tags, has_invalid_tags) = tags(reading);
    conflicts(reading, &spec, &annotated, &tags);
    let mut sources = spec.and(annotated);
    sources.has_invalid |= has_invalid_tags;
    combine(reading, sources, tags, internal)
}

/// Warns about ranges of a family that the Service has no address of, and about a family of the Service that no range names.
pub(super) fn compare_families(reading: &mut SpecReader<'_>, spec: &ServiceSpec) {
    let AccessControl { ranges, tags, disabled, deny_all, .. } = &spec.access;
    if *disabled || ranges.is_empty() {
        return;
    }
    let of_additional = spec.additional_ips.iter().map(|address| IpFamily::of(*address));
    let families: BTreeSet<IpFamily> = spec.families.iter().copied().chain(of_additional).collect();
    let has_ranges = |family: IpFamily| ranges.iter().any(|range| IpFamily::of(range.addr()) == family);
    let unused_ranges = ranges.iter().filter(|range| !families.contains(&IpFamily::of(range.addr())));
    let unused_ranges: Vec<String> = unused_ranges.map(ToString::to_string).collect();
    let without_effect = (!unused_ranges.is_empty()).then(|| {
        let found = excerpts(unused_ranges.iter().map(String::as_str));
        format!("{found} without effect, as the Service has no address of this family")
    });
    let closed_family = families.iter().find(|family| tags.is_empty() && !has_ranges(**family));
    let closed = closed_family.map(|family| {
        let example = if *family == IpFamily::V4 { "0.0.0.0/0" } else { "::/0" };
        // Azure's default rules allow the virtual network unless a rule denies the rest.
        let exception = if spec.internal && !deny_all { ", except to the virtual network," } else { "" };
        format!(
            "{family} is closed{exception} as no rule of the Service allows it: expected a range of {family}, such as {example} for every address"
        )
    });
    let messages: Vec<String> = without_effect.into_iter().chain(closed).collect();
    if !messages.is_empty() {
        reading.warn(reason::IP_RANGE_FAMILY_MISMATCH, field_of_ranges(reading), messages.join("; "));
    }
}

pub(super) fn field_of_ranges(reading: &SpecReader<'_>) -> &'static str {
    match (ALLOWED_IP_RANGES.is_given(reading.annotations), SOURCE_RANGES.is_given(reading.annotations)) {
        (true, _) => ALLOWED_IP_RANGES.key,
        (false, true) => SOURCE_RANGES.key,
        (false, false) => SPEC_RANGES,
    }
}

fn from_field(reading: &mut SpecReader<'_>, texts: &[String]) -> SourceRanges {
    if texts.len() > MOST_RANGES {
        let message = format!("expected at most {MOST_RANGES} ranges, found more");
        reading.refuse(refusal(SPEC_RANGES, message));
        return SourceRanges::unreadable();
    }
    sources(reading, SPEC_RANGES, reason::INVALID_SOURCE_RANGES, texts.iter().map(|text| short_range(text)).collect())
}

fn short_range(text: &str) -> Result<IpNet, &str> {
    if text.len() > MAX_RANGE_LENGTH { Err(text) } else { ranges::parse(text) }
}

fn from_annotation(reading: &mut SpecReader<'_>, key: &AnnotationKey<RangeListFormat>) -> SourceRanges {
    match reading.get(key) {
        Some(items) => sources(reading, key.key, reason::INVALID_ALLOWED_IP_RANGES, items),
        None if key.is_given(reading.annotations) => SourceRanges::unreadable(),
        None => SourceRanges::default(),
    }
}

/// Returns the valid service tags, and whether some text was invalid.
fn tags(reading: &mut SpecReader<'_>) -> (Vec<String>, bool) {
    let Some(items) = reading.get(&ALLOWED_SERVICE_TAGS) else {
        return (Vec::new(), ALLOWED_SERVICE_TAGS.is_given(reading.annotations));
    };
    let (key, reason) = (ALLOWED_SERVICE_TAGS.key, reason::UNREADABLE_RESTRICTION);
    let has_invalid =
        warn_invalid(reading, key, reason, &ServiceTagListFormat::accepts(), items.iter().filter_map(|item| item.err()));
    (items.into_iter().filter_map(Result::ok).map(str::to_owned).collect(), has_invalid)
}

fn sources(
    reading: &mut SpecReader<'_>,
    field: &str,
    reason: &'static str,
    items: Vec<Result<IpNet, &str>>,
) -> SourceRanges {
    let invalid = items.iter().filter_map(|item| item.as_ref().err().copied());
    let has_invalid = warn_invalid(reading, field, reason, &RangeListFormat::accepts(), invalid);
    SourceRanges { ranges: items.into_iter().filter_map(Result::ok).collect(), has_invalid }
}

/// Warns about invalid texts, and returns `true` if there are any.
fn warn_invalid<'t>(
    reading: &mut SpecReader<'_>,
    field: &str,
    reason: &'static str,
    accepts: &str,
    invalid: impl Iterator<Item = &'t str>,
) -> bool {
    let found = excerpts(invalid);
    if found.is_empty() {
        return false;
    }
    let rule = "left out, and all that is not allowed is denied";
    reading.warn(reason, field, format!("expected {accepts}, found {found}: {rule}"));
    true
}

fn conflicts(reading: &mut SpecReader<'_>, spec: &SourceRanges, annotated: &SourceRanges, tags: &[String]) {
    if !spec.ranges.is_empty() && !annotated.ranges.is_empty() {
        let keys = format!("`{}` or `{}`", ALLOWED_IP_RANGES.key, SOURCE_RANGES.key);
        reading.refuse(refusal(SPEC_RANGES, format!("not together with {keys}; put all ranges into one of them")));
    }
    if !spec.ranges.is_empty() && !tags.is_empty() {
        let advice = format!("with `{}`, ranges belong into `{}`", ALLOWED_SERVICE_TAGS.key, ALLOWED_IP_RANGES.key);
        reading.warn(reason::CONFLICT_CONFIGURATION, SPEC_RANGES, advice);
    }
}

fn combine(reading: &mut SpecReader<'_>, sources: SourceRanges, tags: Vec<String>, internal: bool) -> AccessControl {
    let SourceRanges { ranges, has_invalid } = sources;
    let seems_internal = !internal && seems_internal(reading);
    let open = tags.is_empty() && ranges.is_empty() && !has_invalid;
    let disabled = matches!(DISABLE_NSG_RULE.read(reading.annotations), Ok(Some(true)));
    let is_unread = reading.restricts(&DISABLE_NSG_RULE) && !disabled;
    AccessControl {
        deny_all: has_invalid || (reading.restricts(&DENY_ALL) && !ranges.is_empty()),
        disabled,
        closed: is_unread || (seems_internal && open),
        // The fewest ranges with the same addresses: IPv4 before IPv6, ascending.
        ranges: IpNet::aggregate(&ranges),
        has_invalid_ranges: has_invalid,
        tags,
    }
}

/// Returns `true` if an external Service was probably meant to be internal: the annotation is `True` or another text that does not clearly
/// mean no.
///
/// The Service is external, as in upstream, but no rule allows the Internet.
fn seems_internal(reading: &mut SpecReader<'_>) -> bool {
    let may_mean_yes = |text: &&String| {
        text.len() > RestrictionFormat::LONGEST || !matches!(RestrictionFormat::read(text), Ok(None | Some(false)))
    };
    let text = reading.annotations.get(INTERNAL.key).filter(|text| *text != "true").filter(may_mean_yes);
    if let Some(text) = text {
        let (expected, found) = (ExactTrueFormat::accepts(), excerpt(text));
        let message =
            format!("expected {expected}, found `{found}`: the Service is external, and no rule lets the Internet in");
        reading.warn(reason::IGNORED_CONFIGURATION, INTERNAL.key, message);
    }
    text.is_some()
}

#[cfg(test)]
mod tests;
