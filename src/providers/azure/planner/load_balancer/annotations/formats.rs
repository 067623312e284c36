//! Formats of the values of annotations, and their readers. Pure.
//!
//! In: the text, as the user wrote it. Out: the typed value, `None` if the text counts as absent, or the invalid part.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use super::patterns;
use crate::providers::azure::{
    model::names::{self, MAX_TAGS},
    planner::load_balancer::{spec::ranges, tag_list::parse_tags},
};

pub trait AnnotationFormat {
    /// Typed value of a text.
    type Value<'a>;

    /// Longest text that is read, in bytes. A longer text is refused unread.
    const LONGEST: usize;

    /// Returns the accepted values, in words that follow `expected` in a message.
    fn accepts() -> String;

    /// Returns the regular expression (RE2) that every value with a meaning matches, for the admission policy; `None`: the policy does not
    /// match it.
    fn pattern() -> Option<&'static str>;

    /// Returns the smallest and the largest number; `None`: the value is not a number.
    fn bounds() -> Option<(i32, i32)> {
        None
    }

    /// Reads a text that is not too long; `None`: the text counts as absent.
    fn read(text: &str) -> Result<Option<Self::Value<'_>>, InvalidAnnotationText<'_>>;
}

/// Invalid part of a text.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidAnnotationText<'a>(pub &'a str);

/// Largest number of addresses and ranges in all rules of a security group, and so in one list.
pub const MOST_RANGES: usize = 4_000;
/// Largest number of service tags of one Service: each tag has a rule for each protocol and family, and a security group has at most 1,000
/// rules.
const MOST_SERVICE_TAGS: usize = 1_000;
/// Largest number of additional public IPs of one Service.
const MOST_ADDRESSES: usize = 100;
/// Prefix of the keys of tags that only this program and operators set.
const RESERVED: &str = "k8s-azure-";
/// Tags in which old versions recorded the owner of a public IP; this program still trusts these tags.
const LEGACY_TAGS: [&str; 3] = ["service", "kubernetes-cluster-name", "kubernetes-dns-label-service"];

/// Longest word with blanks around it, in bytes.
const WORD: usize = 128;
/// Longest name in ARM, in bytes; letters may have four bytes.
const NAME: usize = 512;
const PATH: usize = 2_048;
const LIST: usize = 16_384;
/// Longest list of [`MOST_RANGES`] ranges, in bytes.
const RANGES: usize = 196_608;

fn non_blank(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

/// Returns the trimmed text; `None`: the text is blank. A text that is not blank must be valid.
fn checked(text: &str, is_valid: fn(&str) -> bool) -> Result<Option<&str>, InvalidAnnotationText<'_>> {
    match non_blank(text) {
        Some(text) if !is_valid(text) => Err(InvalidAnnotationText(text)),
        text => Ok(text),
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident => $value:ty, $longest:expr, $accepts:expr, $pattern:expr, |$text:ident| $read:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $name {}

        impl AnnotationFormat for $name {
            type Value<'a> = $value;

            const LONGEST: usize = $longest;

            fn accepts() -> String {
                $accepts.to_owned()
            }

            fn pattern() -> Option<&'static str> {
                $pattern
            }

            fn read($text: &str) -> Result<Option<Self::Value<'_>>, InvalidAnnotationText<'_>> {
                $read
            }
        }
    )*};
}

kinds! {
    /// The literal `true`; every other text is false.
    ExactTrueFormat => bool, WORD, "exactly `true`", Some(patterns::EXACT_TRUE), |text| Ok(Some(text == "true"));
    /// `true` in any letter case; every other text is false.
    AnyCaseTrueFormat => bool, WORD, "`true` in any letter case", Some(patterns::ANY_CASE_TRUE), |text| Ok(Some(text.eq_ignore_ascii_case("true")));
    /// `true` in any letter case, with or without blanks around it; every other text is false.
    TrimmedTrueFormat => bool, WORD, "`true` in any letter case, blanks around it do not matter", Some(patterns::YES_OR_NO), |text| Ok(Some(text.trim().eq_ignore_ascii_case("true")));
    /// Yes or no to a restriction. Other texts are errors, which the caller must treat as yes.
    RestrictionFormat => bool, WORD, "`true` or `false` in any letter case; any other word counts as `true`", Some(patterns::YES_OR_NO), |text| restriction(text);
    /// Text without a format.
    TextFormat => &'a str, LIST, "text", None, |text| Ok(Some(text));
    /// Name of a resource group; an empty text counts as absent.
    ResourceGroupFormat => &'a str, NAME, format!("the name of a resource group: {}", names::GROUP_FORMAT),
        Some(patterns::RESOURCE_GROUP), |text| checked(text, names::is_group);
    /// Name of a network resource; an empty text counts as absent.
    ResourceNameFormat => &'a str, NAME, "a name of 1 to 80 letters, digits, `_`, `.` and `-` that begins with a letter or digit and ends with one or `_`",
        Some(patterns::RESOURCE_NAME), |text| checked(text, names::is_resource);
    /// Name of a subnet, which is part of other names, so that blanks around it matter; a blank text counts as absent.
    SubnetFormat => &'a str, NAME, format!("the name of a subnet: {}", names::RESOURCE_FORMAT),
        Some(patterns::SUBNET), |text| subnet(text);
    /// Name of a VM set, or `__auto__`.
    VmSetFormat => &'a str, NAME, format!("`__auto__` or the name of a VM set: {}", names::MACHINE_SET_FORMAT),
        Some(patterns::VM_SET), |text| checked(text, names::is_machine_set);
    /// DNS label, or an empty text, which removes the label.
    DnsLabelFormat => &'a str, WORD, "3 to 63 lower-case letters, digits and `-` that begin with a letter and do not end with `-`, or nothing",
        Some(patterns::DNS_LABEL), |text| if text.is_empty() || names::is_dns_label(text) { Ok(Some(text)) } else { Err(InvalidAnnotationText(text)) };
    /// Path of a probe; an empty text counts as absent.
    ProbePathFormat => &'a str, PATH, "a path of ASCII characters without blanks, at most 2048", Some(patterns::PROBE_PATH), |text| checked(text, names::is_path);
    /// IP address; further requirements depend on the Service.
    AddressFormat => &'a str, WORD, "an IP address", Some(patterns::ADDRESS), |text| Ok(non_blank(text));
    /// ID of a public IP prefix; checked for external Services only.
    PrefixIdFormat => &'a str, PATH, "the resource id of a public IP prefix (Microsoft.Network/publicIPPrefixes)", Some(patterns::PREFIX_ID), |text| Ok(non_blank(text));
    /// Name or number of the probed port.
    ProbePortFormat => &'a str, WORD, "the name of a port of the Service or a number from 1 to 65535", Some(patterns::PROBE_PORT), |text| Ok(non_blank(text));
    /// Protocol of a probe; an unknown protocol counts as TCP.
    ProbeProtocolFormat => &'a str, WORD, "`tcp`, `http` or `https` in any letter case, other words count as `tcp`", Some(patterns::PROBE_PROTOCOL), |text| Ok(Some(text));
    /// Words between commas, without blanks around them; empty words do not count.
    CommaListFormat => Vec<&'a str>, LIST, "words between commas", None, |text| Ok(some(text.split(',').filter_map(non_blank).collect()));
    /// Names of Namespaces between commas, each with the result of its check; empty items do not count.
    NamespaceListFormat => Vec<Result<&'a str, &'a str>>, LIST, "names of Namespaces (RFC 1123 labels) between commas, or `*`",
        None, |text| Ok(namespaces(text));
    /// Words between blanks.
    SpaceListFormat => Vec<&'a str>, LIST, "words between spaces", None, |text| Ok(some(text.split_whitespace().collect()));
    /// IP addresses between commas.
    AddressListFormat => Vec<IpAddr>, LIST, format!("IP addresses between commas, at most {MOST_ADDRESSES}"), Some(patterns::ADDRESSES), |text| addresses(text);
    /// CIDR ranges between commas, checked separately: the range, or the invalid text. An empty list is one invalid text.
    RangeListFormat => Vec<Result<IpNet, &'a str>>, RANGES, format!("CIDR ranges between commas, without host bits, at most {MOST_RANGES}"),
        Some(patterns::RANGES), |text| at_most(MOST_RANGES, text, ranges::parse);
    /// Service tags between commas, checked separately: the tag, or the invalid text. A list without tags is one invalid text.
    ServiceTagListFormat => Vec<Result<&'a str, &'a str>>, LIST, format!("service tags between commas, at most {MOST_SERVICE_TAGS}"), Some(patterns::SERVICE_TAGS), |text| service_tags(text);
    /// Tags of a resource. Pairs without exactly one `=` do not count, nor do keys that only this program and operators set.
    TagListFormat => BTreeMap<String, String>, 65_536, format!("at most {MAX_TAGS} `key=value` pairs between commas, keys of at most 512 characters without `<>%&\\?/`, values of at most 256"),
        None, |text| tags(text);
    /// IP tags, sorted by type. Pairs without exactly one `=` do not count; the last value of a type counts.
    IpTagListFormat => Vec<(String, String)>, LIST, format!("at most {MAX_TAGS} `type=value` pairs between commas, each part of at most 256 characters"),
        None, |text| ip_tags(text);
}

/// Whole number from `MIN` to `MAX`, with or without blanks around it.
#[derive(Debug)]
pub enum WholeNumberFormat<const MIN: i32, const MAX: i32> {}

impl<const MIN: i32, const MAX: i32> AnnotationFormat for WholeNumberFormat<MIN, MAX> {
    type Value<'a> = i32;

    const LONGEST: usize = WORD;

    fn accepts() -> String {
        if MAX == i32::MAX { format!("a whole number from {MIN} up") } else { format!("a whole number from {MIN} to {MAX}") }
    }

    fn pattern() -> Option<&'static str> {
        Some(patterns::WHOLE_NUMBER)
    }

    fn bounds() -> Option<(i32, i32)> {
        Some((MIN, MAX))
    }

    fn read(text: &str) -> Result<Option<i32>, InvalidAnnotationText<'_>> {
        let number = text.trim().parse().ok().filter(|number| (MIN..=MAX).contains(number));
        number.map(Some).ok_or(InvalidAnnotationText(text))
    }
}

fn some<T>(items: Vec<T>) -> Option<Vec<T>> {
    Some(items).filter(|items| !items.is_empty())
}

fn restriction(text: &str) -> Result<Option<bool>, InvalidAnnotationText<'_>> {
    let is_one_of = |words: &[&str]| words.iter().any(|word| text.trim().eq_ignore_ascii_case(word));
    match () {
        () if text.trim().is_empty() => Ok(None),
        () if is_one_of(&["true"]) => Ok(Some(true)),
        () if is_one_of(&["false", "no", "off", "n", "f", "0"]) => Ok(Some(false)),
        () => Err(InvalidAnnotationText(text)),
    }
}

fn subnet(text: &str) -> Result<Option<&str>, InvalidAnnotationText<'_>> {
    match non_blank(text) {
        None => Ok(None),
        Some(_) if names::is_resource(text) => Ok(Some(text)),
        Some(_) => Err(InvalidAnnotationText(text)),
    }
}

/// Reads each item of a list separately. A list of more than `most` items is refused as a whole.
fn at_most<'a, T>(
    most: usize,
    text: &'a str,
    read: fn(&'a str) -> Result<T, &'a str>,
) -> Result<Option<Vec<Result<T, &'a str>>>, InvalidAnnotationText<'a>> {
    if text.split(',').nth(most).is_some() {
        return Err(InvalidAnnotationText(text));
    }
    Ok(Some(text.split(',').map(read).collect()))
}

fn namespaces(text: &str) -> Option<Vec<Result<&str, &str>>> {
    let check = |name| if name == "*" || is_namespace(name) { Ok(name) } else { Err(name) };
    some(text.split(',').filter_map(non_blank).map(check).collect())
}

/// Returns `true` if Kubernetes accepts the name of a Namespace: an RFC 1123 label.
fn is_namespace(name: &str) -> bool {
    const LONGEST: usize = 63;
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(is_edge)
        && name.ends_with(is_edge)
        && name.len() <= LONGEST
        && name.chars().all(|c| is_edge(c) || c == '-')
}

fn service_tags(text: &str) -> Result<Option<Vec<Result<&str, &str>>>, InvalidAnnotationText<'_>> {
    let mut items = at_most(MOST_SERVICE_TAGS, text, |item| {
        let item = item.trim();
        if names::is_source(item) { Ok(item) } else { Err(item) }
    })?;
    if let Some(items) = &mut items
        && items.iter().any(Result::is_ok)
    {
        items.retain(|item| *item != Err(""));
    }
    Ok(items)
}

fn addresses(text: &str) -> Result<Option<Vec<IpAddr>>, InvalidAnnotationText<'_>> {
    let read = |item: &'_ str| item.trim().parse::<IpAddr>().map(|address| address.to_canonical()).ok();
    let Some(text) = non_blank(text) else { return Ok(None) };
    if text.split(',').nth(MOST_ADDRESSES).is_some() {
        return Err(InvalidAnnotationText(text));
    }
    text.split(',').map(|item| read(item).ok_or(InvalidAnnotationText(item))).collect::<Result<_, _>>().map(Some)
}

/// Returns `true` if only this program and operators set a tag of this key.
pub fn is_reserved(key: &str) -> bool {
    let is_new = key.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED));
    is_new || LEGACY_TAGS.iter().any(|old| old.eq_ignore_ascii_case(key))
}

fn tags(text: &str) -> Result<Option<BTreeMap<String, String>>, InvalidAnnotationText<'_>> {
    let mut tags = parse_tags(text);
    tags.retain(|key, _| !is_reserved(key));
    if tags.len() > MAX_TAGS || !tags.iter().all(|(key, value)| names::is_tag(key, value)) {
        return Err(InvalidAnnotationText(text));
    }
    Ok(Some(tags))
}

fn ip_tags(text: &str) -> Result<Option<Vec<(String, String)>>, InvalidAnnotationText<'_>> {
    let pairs = text.split(',').filter_map(|pair| match pair.split('=').collect::<Vec<_>>()[..] {
        [kind, value] => Some((kind.trim().to_owned(), value.trim().to_owned())),
        _ => None,
    });
    let tags: Vec<_> = pairs.collect::<BTreeMap<_, _>>().into_iter().collect();
    if tags.len() > MAX_TAGS || !tags.iter().all(|(kind, value)| names::is_ip_tag(kind, value)) {
        return Err(InvalidAnnotationText(text));
    }
    Ok(Some(tags))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truth_is_tested_in_three_ways() {
        for (text, exact, any_case, trimmed) in [
            ("true", true, true, true),
            ("True", false, true, true),
            (" TRUE ", false, false, true),
            ("yes", false, false, false),
            ("", false, false, false),
        ] {
            assert_eq!(ExactTrueFormat::read(text), Ok(Some(exact)), "{text}");
            assert_eq!(AnyCaseTrueFormat::read(text), Ok(Some(any_case)), "{text}");
            assert_eq!(TrimmedTrueFormat::read(text), Ok(Some(trimmed)), "{text}");
        }
    }

    #[test]
    fn lists_drop_blanks_and_empty_lists_count_as_not_given() {
        assert_eq!(CommaListFormat::read(" a, b ,,"), Ok(Some(vec!["a", "b"])));
        assert_eq!(CommaListFormat::read(" , "), Ok(None));
        assert_eq!(SpaceListFormat::read(" a  b "), Ok(Some(vec!["a", "b"])));
        assert_eq!(ResourceNameFormat::read("  "), Ok(None));
        assert_eq!(TextFormat::read("  "), Ok(Some("  ")));
    }

    #[test]
    fn lists_of_who_may_connect_are_never_not_given() {
        for text in ["", " ", ","] {
            assert!(RangeListFormat::read(text).unwrap().unwrap().iter().all(Result::is_err), "{text:?}");
            assert!(ServiceTagListFormat::read(text).unwrap().unwrap().iter().all(Result::is_err), "{text:?}");
        }
        assert_eq!(ServiceTagListFormat::read("A, a b,,"), Ok(Some(vec![Ok("A"), Err("a b")])));
        let many = |count: usize| vec!["10.0.0.0/8"; count].join(",");
        assert!(RangeListFormat::read(&many(MOST_RANGES)).is_ok() && RangeListFormat::read(&many(MOST_RANGES + 1)).is_err());
        let [most, more] = [many(MOST_SERVICE_TAGS), many(MOST_SERVICE_TAGS + 1)];
        assert!(ServiceTagListFormat::read(&most).is_ok() && ServiceTagListFormat::read(&more).is_err());
    }

    #[test]
    fn namespace_lists_check_each_name() {
        let long = "a".repeat(64);
        for (text, expected) in [
            ("shop, 1-a ,,*", Some(vec![Ok("shop"), Ok("1-a"), Ok("*")])),
            ("Shop,a_b,a.b", Some(vec![Err("Shop"), Err("a_b"), Err("a.b")])),
            ("-a,a-,a b", Some(vec![Err("-a"), Err("a-"), Err("a b")])),
            (&long[1..], Some(vec![Ok(&long[1..])])),
            (&long, Some(vec![Err(&long)])),
            (" , ", None),
        ] {
            assert_eq!(NamespaceListFormat::read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn tags_that_the_program_sets_are_not_the_users() {
        let tags = TagListFormat::read("a=b,k8s-azure-service=x/y,K8S-azure-Allowed-Namespaces=*,Service=x/y,kubernetes-cluster-name=c,kubernetes-dns-label-service=x").unwrap().unwrap();
        assert_eq!(tags, [("a".to_owned(), "b".to_owned())].into());
        assert!(TagListFormat::read(&format!("a={}", "v".repeat(257))).is_err());
        assert!(TagListFormat::read("a/b=c").is_err());
    }

    #[test]
    fn one_bad_address_spoils_the_list() {
        assert_eq!(AddressListFormat::read("192.0.2.1, 2001:db8::1").unwrap().unwrap().len(), 2);
        assert_eq!(AddressListFormat::read(" ::ffff:192.0.2.1 "), Ok(Some(vec![IpAddr::from([192, 0, 2, 1])])));
        assert_eq!(AddressListFormat::read("192.0.2.1,x"), Err(InvalidAnnotationText("x")));
        assert_eq!(AddressListFormat::read("192.0.2.1,"), Err(InvalidAnnotationText("")));
        assert_eq!(AddressListFormat::read(""), Ok(None));
    }

    #[test]
    fn of_ip_tags_the_last_value_counts() {
        let pair = |kind: &str, value: &str| (kind.to_owned(), value.to_owned());
        assert_eq!(IpTagListFormat::read("b=1, a = 2 ,b=3,bad,x=y=z"), Ok(Some(vec![pair("a", "2"), pair("b", "3")])));
        assert_eq!(IpTagListFormat::read(""), Ok(Some(vec![])));
    }
}
