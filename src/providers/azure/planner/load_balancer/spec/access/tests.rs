use serde_json::{Value, json};

use super::*;
use crate::providers::azure::planner::load_balancer::spec::{
    ServiceWarning, parse_leniently,
    tests::{accepted, refused, service, settings, warned},
    warnings,
};

const RANGES: &str = "azure-allowed-ip-ranges";
const TAGS: &str = "azure-allowed-service-tags";
const DENY: (&str, &str) = ("azure-deny-all-except-load-balancer-source-ranges", "True");

fn access_of(annotations: &[(&str, &str)], fields: Value) -> AccessControl {
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
    let want = AccessControl {
        tags: vec!["B".into(), "A".into()],
        ranges: parsed(&["10.0.0.0/8", "192.168.0.0/23", "2001:db8::/32"]),
        has_invalid_ranges: false,
        deny_all: true,
        disabled: false,
        closed: false,
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

/// Empty values of Helm charts, and other values that allow no particular source.
#[test]
fn a_restriction_that_says_nothing_lets_nobody_in() {
    let closed = AccessControl { has_invalid_ranges: true, deny_all: true, ..AccessControl::default() };
    for key in [RANGES, TAGS, "load-balancer-source-ranges"] {
        for text in ["", "  ", ",", "not a range"] {
            for internal in [("azure-load-balancer-internal", "true"), ("azure-load-balancer-internal", "false")] {
                assert_eq!(access_of(&[(key, text), internal], json!({})), closed, "{key}: {text:?}");
            }
            assert_eq!(warned(&[(key, text)], json!({})).len(), 1, "{key}: {text:?}");
        }
    }
    assert_eq!(access_of(&[], json!({"loadBalancerSourceRanges": [""]})), closed);
    assert_eq!(access_of(&[], json!({"loadBalancerSourceRanges": []})), AccessControl::default());
    let some = access_of(&[(TAGS, "AzureCloud,"), (RANGES, "")], json!({}));
    assert_eq!(some, AccessControl { tags: vec!["AzureCloud".into()], ..closed });
}

#[test]
fn lists_beyond_what_azure_takes_are_refused_and_open_nothing() {
    let many = vec!["10.0.0.0/8"; 4_001];
    let long = "1".repeat(200_000);
    for (annotations, fields) in [
        (vec![(RANGES, many.join(","))], json!({})),
        (vec![(RANGES, long.clone())], json!({})),
        (vec![(TAGS, long)], json!({})),
        (vec![], json!({"loadBalancerSourceRanges": many})),
    ] {
        let annotations: Vec<_> = annotations.iter().map(|(key, text)| (*key, text.as_str())).collect();
        let found = refused(&annotations, fields.clone());
        assert!(found.len() == 1 && found[0].len() < 512, "{found:?}");
        let lenient = parse_leniently(&service(&annotations, fields), &settings());
        assert!(lenient.access.has_invalid_ranges && lenient.access.deny_all);
    }
}

#[test]
fn switches_that_nobody_can_read_restrict() {
    let range = (RANGES, "10.0.0.0/8");
    for (text, restricts, is_told) in [
        ("true", true, false),
        (" TRUE ", true, false),
        ("False", false, false),
        ("0", false, false),
        ("", false, false),
        ("yes", true, true),
        (" true x", true, true),
    ] {
        let deny = access_of(&[(DENY.0, text), range], json!({})).deny_all;
        assert_eq!(deny, restricts, "{text}");
        // Rules that deny remain, unless the value clearly disables all rules.
        let access = access_of(&[("azure-disable-load-balancer-nsg-rule", text), DENY, range], json!({}));
        assert_eq!((access.disabled, access.closed), (restricts && !is_told, is_told), "{text}");
        assert!(access.deny_all, "{text}");
        assert_eq!(!warned(&[(DENY.0, text)], json!({})).is_empty(), is_told, "{text}");
    }
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

/// A family without ranges is closed, which looks like a network fault (cloud-provider-azure#10864).
#[test]
fn ranges_of_another_family_are_reported() {
    let closed = |family: &str, all: &str| {
        format!(
            "{family} is closed as no rule of the Service allows it: expected a range of {family}, such as {all} for every address"
        )
    };
    let unused = |ranges: &str| format!("{ranges} without effect, as the Service has no address of this family");
    let (v4, v6) = (closed("IPv4", "0.0.0.0/0"), closed("IPv6", "::/0"));
    let both = |unused: String, closed: &str| Some(format!("{unused}; {closed}"));
    for (families, ranges, expected) in [
        (&["IPv4"][..], "10.0.0.0/8", None),
        (&["IPv4"], "2001:db8::/64", both(unused("`2001:db8::/64`"), &v4)),
        (&["IPv4"], "::/0", both(unused("`::/0`"), &v4)),
        (&[], "::/0", both(unused("`::/0`"), &v4)),
        (&["IPv4"], "0.0.0.0/0,::/0", Some(unused("`::/0`"))),
        (&["IPv6"], "10.0.0.0/8,192.0.2.0/24", both(unused("`10.0.0.0/8`, `192.0.2.0/24`"), &v6)),
        (&["IPv4", "IPv6"], "10.0.0.0/8,2001:db8::/64", None),
        (&["IPv6", "IPv4"], "10.0.0.0/8", Some(v6)),
        (&["IPv4", "IPv6"], "2001:db8::/64", Some(v4)),
    ] {
        let of_field = json!({"ipFamilies": families, "loadBalancerSourceRanges": ranges.split(',').collect::<Vec<_>>()});
        let of_annotation = json!({"ipFamilies": families});
        for (annotations, fields, field) in [
            (vec![], of_field, SPEC_RANGES),
            (vec![(RANGES, ranges)], of_annotation.clone(), ALLOWED_IP_RANGES.key),
            (vec![("load-balancer-source-ranges", ranges)], of_annotation, SOURCE_RANGES.key),
        ] {
            let found = warnings(&service(&annotations, fields), &settings());
            let expected = expected.clone().map(|message| ServiceWarning {
                reason: reason::IP_RANGE_FAMILY_MISMATCH,
                field: field.to_owned(),
                message,
            });
            assert_eq!(found, Vec::from_iter(expected), "{families:?} {ranges}");
        }
    }
}

#[test]
fn families_with_other_sources_or_addresses_are_no_mismatch() {
    let dual = json!({"ipFamilies": ["IPv4", "IPv6"]});
    let range = (RANGES, "10.0.0.0/8");
    for other in [(TAGS, "AzureCloud"), ("azure-disable-load-balancer-nsg-rule", "true")] {
        assert!(warned(&[range, other], dual.clone()).is_empty(), "{other:?}");
    }
    assert!(warned(&[], dual.clone()).is_empty());
    let additional = ("azure-additional-public-ips", "2603:1030:c02::9");
    assert!(warned(&[(RANGES, "10.0.0.0/8,2001:db8::/64"), additional], json!({})).is_empty());
    let internal = warnings(&service(&[range, ("azure-load-balancer-internal", "true")], dual.clone()), &settings());
    assert!(internal[0].message.starts_with("IPv6 is closed, except to the virtual network, as"), "{internal:?}");
    let mismatch = (reason::IP_RANGE_FAMILY_MISMATCH, RANGES.to_owned());
    assert_eq!(warned(&[range], dual), [mismatch]);
}

#[test]
fn what_was_meant_to_be_internal_is_not_opened_to_the_internet() {
    let internal = "azure-load-balancer-internal";
    for (text, is_internal, closed) in [
        ("true", true, false),
        ("True", false, true),
        (" true ", false, true),
        ("yes", false, true),
        ("no", false, false),
        ("", false, false),
    ] {
        let spec = accepted(&[(internal, text)], json!({}));
        assert_eq!((spec.internal, spec.access.closed), (is_internal, closed), "{text}");
    }
    assert!(!access_of(&[(internal, "True"), (RANGES, "10.0.0.0/8")], json!({})).closed);
    assert_eq!(warned(&[(internal, "True")], json!({})), [(reason::IGNORED_CONFIGURATION, internal.to_owned())]);
}
