//! What the value of an annotation may be, and how it is read. Pure.
//!
//! In: the text, as the user wrote it. Out: the typed value, nothing where the text counts as not given, or what cannot be accepted.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use crate::providers::azure::load_balancer::{settings::parse_tags, spec::ranges};

/// A kind of values.
pub trait Kind {
    /// What a text becomes.
    type Value<'a>;

    /// What is accepted, as it follows `expected`.
    fn accepts() -> String;

    /// Reads a text; `None`: it counts as not given.
    fn read(text: &str) -> Result<Option<Self::Value<'_>>, Unacceptable<'_>>;
}

/// The part of a text that cannot be accepted.
#[derive(Debug, PartialEq, Eq)]
pub struct Unacceptable<'a>(pub &'a str);

fn non_blank(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident => $value:ty, $accepts:literal, |$text:ident| $read:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $name {}

        impl Kind for $name {
            type Value<'a> = $value;

            fn accepts() -> String {
                $accepts.to_owned()
            }

            fn read($text: &str) -> Result<Option<Self::Value<'_>>, Unacceptable<'_>> {
                $read
            }
        }
    )*};
}

kinds! {
    /// The literal `true`; all else is false.
    Exact => bool, "exactly `true`", |text| Ok(Some(text == "true"));
    /// `true` in any letter case; all else is false.
    AnyCase => bool, "`true` in any letter case", |text| Ok(Some(text.eq_ignore_ascii_case("true")));
    /// `true` in any letter case, perhaps among blanks; all else is false.
    Trimmed => bool, "`true` in any letter case, blanks around it do not matter", |text| Ok(Some(text.trim().eq_ignore_ascii_case("true")));
    /// A text as it is, even an empty one.
    Text => &'a str, "text", |text| Ok(Some(text));
    /// A text without blanks around it; an empty one counts as not given.
    Name => &'a str, "text", |text| Ok(non_blank(text));
    /// Words between commas, without blanks around them; empty ones do not count.
    Words => Vec<&'a str>, "words between commas", |text| Ok(some(text.split(',').filter_map(non_blank).collect()));
    /// Words between blanks.
    SpacedWords => Vec<&'a str>, "words between spaces", |text| Ok(some(text.split_whitespace().collect()));
    /// IP addresses between commas.
    Addresses => Vec<IpAddr>, "IP addresses between commas", |text| addresses(text);
    /// CIDR ranges between commas, each by itself: the range, or the text that is none.
    Ranges => Vec<Result<IpNet, &'a str>>, "CIDR ranges between commas, without host bits",
        |text| Ok(non_blank(text).map(|text| text.split(',').map(ranges::parse).collect()));
    /// Tags of a resource. Pairs without exactly one `=` do not count.
    Tags => BTreeMap<String, String>, "`key=value` pairs between commas", |text| Ok(Some(parse_tags(text)));
    /// IP tags, sorted by type. Pairs without exactly one `=` do not count; of one type the last value does.
    IpTags => Vec<(String, String)>, "`type=value` pairs between commas", |text| Ok(Some(ip_tags(text)));
}

/// A whole number from `MIN` to `MAX`, perhaps among blanks.
#[derive(Debug)]
pub enum Whole<const MIN: i32, const MAX: i32> {}

impl<const MIN: i32, const MAX: i32> Kind for Whole<MIN, MAX> {
    type Value<'a> = i32;

    fn accepts() -> String {
        if MAX == i32::MAX { format!("a whole number from {MIN} up") } else { format!("a whole number from {MIN} to {MAX}") }
    }

    fn read(text: &str) -> Result<Option<i32>, Unacceptable<'_>> {
        let number = text.trim().parse().ok().filter(|number| (MIN..=MAX).contains(number));
        number.map(Some).ok_or(Unacceptable(text))
    }
}

fn some(words: Vec<&str>) -> Option<Vec<&str>> {
    Some(words).filter(|words| !words.is_empty())
}

fn addresses(text: &str) -> Result<Option<Vec<IpAddr>>, Unacceptable<'_>> {
    let read = |item: &'_ str| item.trim().parse::<IpAddr>().map(|address| address.to_canonical()).ok();
    let Some(text) = non_blank(text) else { return Ok(None) };
    text.split(',').map(|item| read(item).ok_or(Unacceptable(item))).collect::<Result<_, _>>().map(Some)
}

fn ip_tags(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| match pair.split('=').collect::<Vec<_>>()[..] {
        [kind, value] => Some((kind.trim().to_owned(), value.trim().to_owned())),
        _ => None,
    });
    pairs.collect::<BTreeMap<_, _>>().into_iter().collect()
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
            assert_eq!(Exact::read(text), Ok(Some(exact)), "{text}");
            assert_eq!(AnyCase::read(text), Ok(Some(any_case)), "{text}");
            assert_eq!(Trimmed::read(text), Ok(Some(trimmed)), "{text}");
        }
    }

    #[test]
    fn lists_drop_blanks_and_empty_lists_count_as_not_given() {
        assert_eq!(Words::read(" a, b ,,"), Ok(Some(vec!["a", "b"])));
        assert_eq!(Words::read(" , "), Ok(None));
        assert_eq!(SpacedWords::read(" a  b "), Ok(Some(vec!["a", "b"])));
        assert_eq!(Ranges::read("  "), Ok(None));
        assert_eq!(Name::read("  "), Ok(None));
        assert_eq!(Text::read("  "), Ok(Some("  ")));
    }

    #[test]
    fn numbers_have_bounds() {
        for (text, want) in [("4", Some(4)), (" 100 ", Some(100)), ("3", None), ("101", None), ("4.5", None), ("", None)] {
            assert_eq!(Whole::<4, 100>::read(text).ok().flatten(), want, "{text}");
        }
    }

    #[test]
    fn one_bad_address_spoils_the_list() {
        assert_eq!(Addresses::read("192.0.2.1, 2001:db8::1").map(|found| found.map(|found| found.len())), Ok(Some(2)));
        assert_eq!(Addresses::read("192.0.2.1,x"), Err(Unacceptable("x")));
        assert_eq!(Addresses::read("192.0.2.1,"), Err(Unacceptable("")));
        assert_eq!(Addresses::read(""), Ok(None));
    }

    #[test]
    fn of_ip_tags_the_last_value_counts() {
        let pair = |kind: &str, value: &str| (kind.to_owned(), value.to_owned());
        assert_eq!(IpTags::read("b=1, a = 2 ,b=3,bad,x=y=z"), Ok(Some(vec![pair("a", "2"), pair("b", "3")])));
        assert_eq!(IpTags::read(""), Ok(Some(vec![])));
    }
}
