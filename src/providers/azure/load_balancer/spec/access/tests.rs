use serde_json::{Value, json};

use super::*;
use crate::providers::azure::load_balancer::spec::tests::{accepted, refused, warned};

const RANGES: &str = "azure-allowed-ip-ranges";
const TAGS: &str = "azure-allowed-service-tags";
const DENY: (&str, &str) = ("azure-deny-all-except-load-balancer-source-ranges", "True");

fn access_of(annotations: &[(&str, &str)], fields: Value) -> Access {
    accepted(annotations, fields).access
}

fn parsed(ranges: &[&str]) -> Vec<IpNet> {
    ranges.iter().map(|range| range.parse().unwrap()).collect()
}

#[test]
fn ranges_are_aggregated_and_tags_keep_their_order() {
    let access = access_of(
        &[
            (RANGES, "10.0.0.0/8,192.168.1.0/24, 192.168.0.0/24"),
            ("load-balancer-source-ranges", "2001:db8::/32"),
            (TAGS, "B, A"),
            DENY,
        ],
        json!({}),
    );
    let want = Access {
        tags: vec!["B".into(), "A".into()],
        ranges: parsed(&["10.0.0.0/8", "192.168.0.0/23", "2001:db8::/32"]),
        has_invalid_ranges: false,
        deny_all: true,
        disabled: false,
    };
    assert_eq!(access, want);
}

#[test]
fn denying_needs_a_valid_range_or_an_invalid_one() {
    for (annotations, deny_all, has_invalid) in [
        (vec![DENY], false, false),
        (vec![DENY, (TAGS, "A")], false, false),
        (vec![DENY, (RANGES, "10.0.0.0/8")], true, false),
        (vec![(RANGES, "10.0.0.0/8")], false, false),
        (vec![(RANGES, "10.0.0.1/8")], true, true),
        (vec![(RANGES, "10.0.0.0/8,")], true, true),
    ] {
        let access = access_of(&annotations, json!({}));
        assert_eq!((access.deny_all, access.has_invalid_ranges), (deny_all, has_invalid), "{annotations:?}");
    }
}

#[test]
fn empty_lists_count_as_not_given() {
    let empty = [(RANGES, " "), (TAGS, ",")];
    assert_eq!(access_of(&empty, json!({})), Access::default());
    assert_eq!(warned(&empty, json!({})).len(), 2);
}

#[test]
fn ranges_stand_in_the_field_or_in_annotations() {
    let fields = json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]});
    for (text, count) in [("198.51.100.0/24", 1), ("nonsense", 0), ("", 0)] {
        assert_eq!(refused(&[(RANGES, text)], fields.clone()).len(), count, "{text}");
        assert_eq!(refused(&[("load-balancer-source-ranges", text)], fields.clone()).len(), count, "{text}");
    }
}

#[test]
fn what_upstream_only_warns_about_is_a_warning() {
    let bad = json!({"loadBalancerSourceRanges": ["x"]});
    assert_eq!(warned(&[], bad), [(reason::INVALID_SOURCE_RANGES, SPEC_RANGES.to_owned())]);
    assert_eq!(warned(&[(RANGES, "x")], json!({})), [(reason::INVALID_ALLOWED_IP_RANGES, RANGES.to_owned())]);
    let good = json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]});
    assert_eq!(warned(&[(TAGS, "A")], good), [(reason::CONFLICT_CONFIGURATION, SPEC_RANGES.to_owned())]);
}

#[test]
fn what_was_meant_to_be_internal_is_not_opened_to_the_internet() {
    let internal = "azure-load-balancer-internal";
    for (text, is_internal, disabled) in
        [("true", true, false), ("True", false, true), ("false", false, false), ("", false, false)]
    {
        let spec = accepted(&[(internal, text)], json!({}));
        assert_eq!((spec.internal, spec.access.disabled), (is_internal, disabled), "{text}");
    }
    assert!(!access_of(&[(internal, "True"), (RANGES, "10.0.0.0/8")], json!({})).disabled);
    assert_eq!(warned(&[(internal, "True")], json!({})), [(reason::WITHOUT_EFFECT, internal.to_owned())]);
}
