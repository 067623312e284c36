//! Lengths and characters that ARM accepts in names, labels and tags. Pure.
//!
//! In: texts of users. Out: whether ARM could accept them. Other texts are not used in URLs, labels and log lines. Source:
//! Azure's naming rules (`azure-resource-manager/management/resource-name-rules`, `…/tag-resources`).

use std::net::IpAddr;

use ipnet::IpNet;

/// Maximum length of a resource group's name, in characters.
const MAX_GROUP: usize = 90;
/// Maximum length of a network resource's name, in characters.
const MAX_RESOURCE: usize = 80;
/// Allowed lengths of a DNS label.
const LABEL_LENGTHS: std::ops::RangeInclusive<usize> = 3..=63;
/// Maximum length of a tag's key, in characters.
const MAX_TAG_KEY: usize = 512;
/// Maximum length of a tag's value, in characters.
pub const MAX_TAG_VALUE: usize = 256;
/// Maximum number of tags of a resource.
pub const MAX_TAGS: usize = 50;
/// Maximum length of the type and the value of an IP tag, in characters.
const MAX_IP_TAG: usize = 256;

/// Description of the format that [`is_group`] accepts, for messages.
pub const GROUP_FORMAT: &str = "1 to 90 letters, digits, `_`, `-`, `.` and parentheses, no `.` at the end";
/// Description of the format that [`is_resource`] accepts, for messages.
pub const RESOURCE_FORMAT: &str =
    "1 to 80 letters, digits, `_`, `.` and `-`, beginning with a letter or digit and ending with one or `_`";
/// Description of the format that [`is_machine_set`] accepts, for messages.
pub const MACHINE_SET_FORMAT: &str = "1 to 80 letters, digits, `_`, `.` and `-`";

/// Returns `true` if `text` has at most `max` characters, without counting the others.
fn fits(text: &str, max: usize) -> bool {
    text.chars().nth(max).is_none()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.-".contains(c)
}

/// Returns `true` for a valid name of a resource group: letters and digits of any script, `_`, `-`, `.`, `(` and `)`, no `.` at the end.
pub fn is_group(text: &str) -> bool {
    let allowed = |c: char| c.is_alphanumeric() || "_-.()".contains(c);
    !text.is_empty() && fits(text, MAX_GROUP) && !text.ends_with('.') && text.chars().all(allowed)
}

/// Returns `true` for a valid name of a network resource, such as a public IP or a subnet.
///
/// It begins with a letter or digit and ends with a letter, digit or `_`.
pub fn is_resource(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let ends = text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    starts && ends && fits(text, MAX_RESOURCE) && text.chars().all(is_word)
}

/// Returns `true` for a valid name of a scale set or availability set, and for `__auto__`.
pub fn is_machine_set(text: &str) -> bool {
    !text.is_empty() && fits(text, MAX_RESOURCE) && text.chars().all(is_word)
}

/// Returns `true` if ARM accepts the DNS label of a public IP: `^[a-z][a-z0-9-]{1,61}[a-z0-9]$`, as ARM's own error states.
pub fn is_dns_label(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let starts = text.starts_with(|c: char| c.is_ascii_lowercase());
    starts && !text.ends_with('-') && LABEL_LENGTHS.contains(&text.len()) && text.chars().all(is_allowed)
}

/// Returns `true` if ARM accepts the key and value of a tag.
pub fn is_tag(key: &str, value: &str) -> bool {
    let allowed = |c: char| !c.is_control() && !"<>%&\\?/".contains(c);
    fits(key, MAX_TAG_KEY) && key.chars().all(allowed) && fits(value, MAX_TAG_VALUE) && !value.chars().any(char::is_control)
}

/// Returns `true` if ARM accepts the type and value of an IP tag.
pub fn is_ip_tag(kind: &str, value: &str) -> bool {
    [kind, value].iter().all(|text| fits(text, MAX_IP_TAG) && !text.chars().any(char::is_control))
}

/// Returns `true` for a source of a security rule: a service tag, a range, an address or `*`.
pub fn is_source(text: &str) -> bool {
    let is_tag = !text.is_empty() && fits(text, MAX_RESOURCE) && text.chars().all(is_word);
    is_tag || text == "*" || text.parse::<IpNet>().is_ok() || text.parse::<IpAddr>().is_ok()
}

/// Returns `true` for a valid path of an HTTP request.
pub fn is_path(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_arm_could_accept() {
        let long = |length: usize| "a".repeat(length);
        for (text, group, resource) in [
            ("rg-pips", true, true),
            ("Größe_(1).x", true, false),
            ("ends.", false, false),
            ("ends-", true, false),
            ("_x", true, false),
            ("x_", true, true),
            ("", false, false),
            ("a b", false, false),
            ("../x", false, false),
            ("a/b", false, false),
            ("a?b", false, false),
            ("a\u{202e}b", false, false),
            (&long(80), true, true),
            (&long(81), true, false),
            (&long(90), true, false),
            (&long(91), false, false),
            (&long(240_000), false, false),
        ] {
            assert_eq!((is_group(text), is_resource(text)), (group, resource), "{:.20}", text);
        }
        assert!(is_machine_set("__auto__") && !is_machine_set(&long(81)));
    }

    #[test]
    fn labels_and_tags_have_limits() {
        for (text, valid) in [
            ("my-label", true),
            ("my1", true),
            ("My1", false),
            ("my-Label", false),
            ("MY-LABEL", false),
            ("ab", false),
            ("1ab", false),
            ("ab-", false),
            ("a.b.c", false),
            ("äbc", false),
        ] {
            assert_eq!(is_dns_label(text), valid, "{text}");
        }
        assert!(is_dns_label(&"a".repeat(63)) && !is_dns_label(&"a".repeat(64)));
        assert!(is_tag("team", "a/b?c") && !is_tag("a/b", "") && !is_tag("k", "a\nb"));
        assert!(!is_tag(&"k".repeat(513), "") && !is_tag("k", &"v".repeat(257)));
        assert!(is_ip_tag("FirstPartyUsage", "/x") && !is_ip_tag("x", &"v".repeat(257)));
        for (text, valid) in
            [("AzureFrontDoor.Backend", true), ("*", true), ("10.0.0.0/8", true), ("::1", true), ("a b", false), ("", false)]
        {
            assert_eq!(is_source(text), valid, "{text}");
        }
        assert!(is_path("/healthz?x=1") && !is_path("/a b") && !is_path("/ä"));
    }
}
