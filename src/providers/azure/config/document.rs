//! Text to a tree: the only place that knows a YAML library.
//!
//! In: YAML, of which JSON is a part. Out: a [`YamlNode`] that still has duplicate keys, their order and the line of every
//! value, or the line of the syntax error. Errors never quote the text: it may be a secret.
//!
//! The library bounds depth, nodes and the expansion of aliases, so that time and memory grow with the length of the text.
//! Like the Go program's, it reads `yes`, `on` and the like as booleans and expands merge keys (`<<`).

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{DuplicateKeyPolicy, Error, NonFiniteFloatPolicy, Spanned};

/// Longest text that is read, in bytes: the API server accepts no larger Secret.
pub const MAX_BYTES: usize = 1 << 20;

/// Lists and maps within each other; the deepest field has seven.
const MAX_DEPTH: usize = 16;

/// Value with its line, counted from 1.
#[derive(Clone, PartialEq)]
pub(super) struct YamlNode {
    pub(super) line: u64,
    pub(super) value: YamlValue,
}

/// Value of any type. Has no `Debug` because it may hold a secret.
#[derive(Clone, PartialEq)]
pub(super) enum YamlValue {
    Null,
    Bool(bool),
    Whole(i64),
    Number(f64),
    Text(String),
    List(Vec<YamlNode>),
    /// Keys in the order of the text, duplicates included.
    Map(Vec<(String, YamlNode)>),
}

/// Error in a text as a whole, and its line, if there is one.
pub(super) struct YamlSyntaxError {
    pub(super) line: Option<u64>,
    pub(super) message: String,
}

/// Reads one document. An empty text is `Null`.
pub(super) fn parse(text: &str) -> Result<YamlNode, YamlSyntaxError> {
    if text.len() > MAX_BYTES {
        let message = format!("the text has {} bytes; {MAX_BYTES} are the most that is read", text.len());
        return Err(YamlSyntaxError { line: None, message });
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_aliases: 1_000, max_depth: MAX_DEPTH, flow_nesting_limit: MAX_DEPTH },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    let parsed = serde_saphyr::from_str_with_options::<Spanned<YamlValue>>(text, options);
    parsed.map(YamlNode::from).map_err(|error| describe(&error))
}

/// Describes an error in our own words, because the library's messages quote the text.
fn describe(error: &Error) -> YamlSyntaxError {
    let message = match error {
        Error::Budget { .. } | Error::AliasReplayLimitExceeded { .. } => {
            "nested too deeply, too long, or unfolded too often through aliases"
        }
        Error::MultipleDocuments { .. } => "more than one document; leave only one",
        _ => {
            "not valid YAML or JSON from here; check indentation, brackets and quotes, and quote values that begin with one of \
             * & ! % @ ` { [ or contain ': ' or ' #'"
        }
    };
    YamlSyntaxError { line: error.location().map(|location| location.line()), message: message.to_owned() }
}

impl From<Spanned<YamlValue>> for YamlNode {
    fn from(spanned: Spanned<YamlValue>) -> Self {
        Self { line: spanned.referenced.line(), value: spanned.value }
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlValueVisitor)
    }
}

struct YamlValueVisitor;

impl<'de> Visitor<'de> for YamlValueVisitor {
    type Value = YamlValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }
    fn visit_none<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlValue, D::Error> {
        YamlValue::deserialize(deserializer)
    }
    fn visit_bool<E>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Whole(value))
    }
    #[expect(clippy::cast_precision_loss, reason = "beyond 64 bits no field is exact")]
    fn visit_u64<E>(self, value: u64) -> Result<YamlValue, E> {
        Ok(i64::try_from(value).map_or(YamlValue::Number(value as f64), YamlValue::Whole))
    }
    fn visit_f64<E>(self, value: f64) -> Result<YamlValue, E> {
        Ok(YamlValue::Number(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(value.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<YamlValue>>()? {
            list.push(item.into());
        }
        Ok(YamlValue::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<YamlValue, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<String>()? {
            map.push((key, entries.next_value::<Spanned<YamlValue>>()?.into()));
        }
        Ok(YamlValue::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> Vec<(String, YamlNode)> {
        match parse(text) {
            Ok(YamlNode { value: YamlValue::Map(map), .. }) => map,
            Ok(_) => panic!("no map"),
            Err(problem) => panic!("{:?}: {}", problem.line, problem.message),
        }
    }

    #[test]
    fn scalars_have_the_types_they_have_for_go() {
        let text = |text: &str| YamlValue::Text(text.to_owned());
        let cases = [
            ("yes", YamlValue::Bool(true)),
            ("off", YamlValue::Bool(false)),
            ("\"yes\"", text("yes")),
            ("5", YamlValue::Whole(5)),
            ("\"5\"", text("5")),
            ("5.5", YamlValue::Number(5.5)),
            ("~", YamlValue::Null),
            ("", YamlValue::Null),
            ("00000000-0000-0000-0000-000000000000", text("00000000-0000-0000-0000-000000000000")),
            ("a:b", text("a:b")),
            ("\"\\ud83d\\ude00\\/\"", text("😀/")),
            ("!!str 5", text("5")),
        ];
        for (value, expected) in cases {
            assert!(map(&format!("k: {value}"))[0].1.value == expected, "{value}");
        }
    }

    #[test]
    fn duplicates_lines_tabs_and_byte_order_marks_survive() {
        let entries = map("\u{feff}{\n\t\"a\":\t1,\n\t\"a\": 2\n}");
        let lines: Vec<_> = entries.iter().map(|(key, node)| (key.as_str(), node.line)).collect();
        assert_eq!(lines, [("a", 2), ("a", 3)]);
        assert_eq!(map("1: a\ntrue: b\n").iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["1", "true"]);
    }

    #[test]
    fn problems_name_the_line_and_repeat_nothing() {
        for text in
            ["a: 1\nb: *hunter2\n", "a: 1\nb: \"hunter2\n", "a: 1\nb: !hunter2 {\n", "a: 1\n@hunter2\n", "a\n---\nhunter2"]
        {
            let Err(problem) = parse(text) else { panic!("{text:?} was accepted") };
            assert!(problem.line.is_some() && !problem.message.contains("hunter2"), "{}", problem.message);
        }
    }

    #[test]
    fn hostile_texts_are_refused_at_once() {
        let laughs: String = (1..20).map(|n| format!("a{n}: &a{n} [{}]\n", format!("*a{}, ", n - 1).repeat(9))).collect();
        let unfolding = format!("a: &a [{}]\nb: [{}]\n", "1,".repeat(50_000), "*a,".repeat(50_000));
        let texts = [
            "[".repeat(MAX_BYTES),
            "{a: ".repeat(MAX_BYTES / 4),
            "- ".repeat(MAX_BYTES / 2),
            "? ".repeat(MAX_BYTES / 2),
            format!("a0: &a0 x\n{laughs}"),
            unfolding,
            "a".repeat(MAX_BYTES + 1),
        ];
        for text in texts {
            assert!(parse(&text).is_err(), "{}", &text[..20]);
        }
    }
}
