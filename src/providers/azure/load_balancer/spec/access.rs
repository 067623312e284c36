//! Who may reach a Service. Pure. Upstream: `pkg/provider/loadbalancer/accesscontrol.go`, `configuration.go`.

use ipnet::IpNet;

use super::{
    Access, ranges,
    reading::{Reading, refusal},
    reason,
};
use crate::providers::azure::load_balancer::annotations::{
    ALLOWED_IP_RANGES, ALLOWED_SERVICE_TAGS, AnyCase, DENY_ALL, DISABLE_NSG_RULE, Exact, INTERNAL, Key, Kind, Ranges,
    SOURCE_RANGES, shown,
};

const SPEC_RANGES: &str = "spec.loadBalancerSourceRanges";

/// Ranges, and whether some text was none.
#[derive(Default)]
struct Sources {
    ranges: Vec<IpNet>,
    has_invalid: bool,
}

impl Sources {
    fn and(mut self, other: Self) -> Self {
        self.ranges.extend(other.ranges);
        self.has_invalid |= other.has_invalid;
        self
    }
}

/// `from_spec`: `spec.loadBalancerSourceRanges`.
pub(super) fn access(reading: &mut Reading<'_>, from_spec: &[String], internal: bool) -> Access {
    let items = from_spec.iter().map(|text| ranges::parse(text)).collect();
    let spec = sources(reading, SPEC_RANGES, reason::INVALID_SOURCE_RANGES, items);
    let annotated = annotated(reading, &ALLOWED_IP_RANGES).and(annotated(reading, &SOURCE_RANGES));
    let tags: Vec<String> = reading.get(&ALLOWED_SERVICE_TAGS).unwrap_or_default().into_iter().map(str::to_owned).collect();
    if tags.is_empty() && ALLOWED_SERVICE_TAGS.is_given(reading.annotations) {
        reading.without_effect(ALLOWED_SERVICE_TAGS.key, "an empty list counts as not given");
    }
    conflicts(reading, &spec, &annotated, &tags);
    combine(reading, spec.and(annotated), tags, internal)
}

fn annotated(reading: &mut Reading<'_>, key: &Key<Ranges>) -> Sources {
    let Some(items) = reading.get(key) else {
        if key.is_given(reading.annotations) {
            reading.without_effect(key.key, "an empty list counts as not given");
        }
        return Sources::default();
    };
    sources(reading, key.key, reason::INVALID_ALLOWED_IP_RANGES, items)
}

fn sources(reading: &mut Reading<'_>, field: &str, reason: &'static str, items: Vec<Result<IpNet, &str>>) -> Sources {
    let invalid: Vec<String> = items.iter().filter_map(|item| item.err()).map(|text| format!("`{}`", shown(text))).collect();
    if !invalid.is_empty() {
        let rule = "left out, and all that is not allowed is denied";
        reading.warn(reason, field, format!("expected {}, found {}: {rule}", Ranges::accepts(), invalid.join(", ")));
    }
    Sources { ranges: items.into_iter().filter_map(Result::ok).collect(), has_invalid: !invalid.is_empty() }
}

fn conflicts(reading: &mut Reading<'_>, spec: &Sources, annotated: &Sources, tags: &[String]) {
    if !spec.ranges.is_empty() && !annotated.ranges.is_empty() {
        let keys = format!("`{}` or `{}`", ALLOWED_IP_RANGES.key, SOURCE_RANGES.key);
        reading.refuse(refusal(SPEC_RANGES, format!("not together with {keys}; put all ranges into one of them")));
    }
    if !spec.ranges.is_empty() && !tags.is_empty() {
        let advice = format!("with `{}`, ranges belong into `{}`", ALLOWED_SERVICE_TAGS.key, ALLOWED_IP_RANGES.key);
        reading.warn(reason::CONFLICT_CONFIGURATION, SPEC_RANGES, advice);
    }
}

fn combine(reading: &mut Reading<'_>, sources: Sources, tags: Vec<String>, internal: bool) -> Access {
    let Sources { ranges, has_invalid } = sources;
    let seems_internal = !internal && seems_internal(reading);
    let open = tags.is_empty() && ranges.is_empty() && !has_invalid;
    Access {
        deny_all: has_invalid || (reading.is(&DENY_ALL) && !ranges.is_empty()),
        disabled: reading.is(&DISABLE_NSG_RULE) || (seems_internal && open),
        ranges: ranges::aggregate(&ranges),
        has_invalid_ranges: has_invalid,
        tags,
    }
}

/// `True` and the like: upstream makes such a Service external, but does not let the Internet in.
fn seems_internal(reading: &mut Reading<'_>) -> bool {
    let text = reading.annotations.get(INTERNAL.key);
    let seems = text.is_some_and(|text| matches!(AnyCase::read(text), Ok(Some(true))));
    if seems {
        let message = format!("expected {}: the Service is external, and no rule lets the Internet in", Exact::accepts());
        reading.warn(reason::WITHOUT_EFFECT, INTERNAL.key, message);
    }
    seems
}

#[cfg(test)]
mod tests;
