//! Compares a response with the expectation of a row. Pure.
//!
//! An expected value is compared for equality unless it is one of these texts:
//!
//! | text | holds if the found value |
//! | --- | --- |
//! | `<present>`, `<absent>` | is there, is not there (or null) |
//! | `<like> PATTERN` | matches; `*` matches any text |
//! | `<not> TEXT` | is another one |
//! | `<one-of> A\|B` | is one of them |
//! | `<count> N` | is a list of so many |
//! | `<id> ID` | is this id, in any letter case |
//! | `<has-id> ID` | is a list with an entry of this id, in any letter case |
//! | `<lacks-id> ID` | is no such list |
//! | `<has-name> NAME` | is a list with an entry of this name |

use serde::Serialize;
use serde_json::Value;

use super::{table::Expectation, values::Variables};
use crate::{
    providers::azure::model::{ArmErrorClass, spelling},
    sandbox::azure::faults::glob,
};

/// The part of a response that rows check.
#[derive(Debug, Clone, Default)]
pub struct StepAnswer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// JSON; null if there is none.
    pub body: Value,
    /// `status` of the polls of the operation.
    pub polls: Vec<String>,
    /// The class of the error that the client reported.
    pub class: Option<ArmErrorClass>,
    /// The entries of all pages of a list.
    pub entries: Vec<Value>,
}

impl StepAnswer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns the field at a dotted path: names, and indices or names of entries in lists. A path that begins with
    /// `header:` is a header's.
    pub fn field(&self, path: &str) -> Value {
        match path.strip_prefix("header:") {
            Some(name) => self.header(name).map_or(Value::Null, |value| Value::String(value.to_owned())),
            None => field(&self.body, path).clone(),
        }
    }

    fn codes(&self) -> Vec<&str> {
        let mut codes = Vec::new();
        collect_codes(&self.body["error"], &mut codes);
        codes
    }
}

fn collect_codes<'a>(error: &'a Value, codes: &mut Vec<&'a str>) {
    codes.extend(error["code"].as_str());
    error["details"].as_array().into_iter().flatten().for_each(|detail| collect_codes(detail, codes));
}

fn field<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, segment| match value.as_array() {
        Some(items) => match segment.parse::<usize>() {
            Ok(index) => &value[index],
            Err(_) => items.iter().find(|item| item["name"] == segment).unwrap_or(&Value::Null),
        },
        None => &value[segment],
    })
}

/// Difference between a response and an expectation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AnswerDifference {
    /// Subject of the difference: `status`, `code`, `field etag` …
    pub subject: String,
    pub expected: String,
    pub found: String,
}

/// Returns the differences. The error is about the row itself.
pub fn differences(
    expect: &Expectation,
    actual: &StepAnswer,
    variables: &Variables,
) -> Result<Vec<AnswerDifference>, String> {
    let mut found = Vec::new();
    let mut note = |subject: &str, expected: String, shown: String| {
        found.push(AnswerDifference { subject: subject.to_owned(), expected, found: shown });
    };
    compare_status(expect, actual, &mut note);
    if let Some(pattern) = &expect.message {
        let (pattern, message) = (variables.text(pattern)?, actual.field("error.message"));
        if !message.as_str().is_some_and(|message| glob(&pattern, message)) {
            note("message", pattern, text_of(&message));
        }
    }
    for (name, expected) in &expect.headers {
        let (expected, shown) = (variables.text(expected)?, actual.field(&format!("header:{name}")));
        if !holds(&Value::String(expected.clone()), &shown)? {
            note(&format!("header {name}"), expected, text_of(&shown));
        }
    }
    for (path, expected) in &expect.fields {
        let (expected, shown) = (variables.expand(expected)?, actual.field(path));
        if !holds(&expected, &shown)? {
            note(&format!("field {path}"), text_of(&expected), text_of(&shown));
        }
    }
    let has = |name: &str| actual.entries.iter().any(|entry| entry["name"] == name);
    for (names, is_listed) in [(&expect.lists, true), (&expect.lacks, false)] {
        for name in names {
            let name = variables.text(name)?;
            if has(&name) != is_listed {
                let text = |is_listed| if is_listed { "listed" } else { "not listed" };
                note(&format!("list entry {name}"), text(is_listed).to_owned(), text(!is_listed).to_owned());
            }
        }
    }
    Ok(found)
}

fn compare_status(expect: &Expectation, actual: &StepAnswer, note: &mut impl FnMut(&str, String, String)) {
    let codes = actual.codes();
    let shown = || format!("{} {}", actual.status, codes.join(" > ")).trim_end().to_owned();
    match &expect.status {
        Some(expected) if !expected.includes(actual.status) => note("status", expected.text(), shown()),
        None if expect.code.is_none() && !(200..300).contains(&actual.status) => {
            let message = actual.body["error"]["message"].as_str().unwrap_or_default();
            note("status", "a success".to_owned(), format!("{}: {message}", shown()));
        }
        _ => {}
    }
    if let Some(code) = &expect.code
        && !codes.iter().any(|found| found == code)
    {
        note("code", code.clone(), shown());
    }
    let class = actual.class.map_or_else(|| "none".to_owned(), |class| format!("{class:?}"));
    if let Some(expected) = expect.class.as_ref().filter(|expected| **expected != class) {
        note("class of the error", expected.clone(), class);
    }
    let last = actual.polls.last().map_or("none", String::as_str);
    if let Some(expected) = expect.operation.as_ref().filter(|expected| *expected != last) {
        note("operation", expected.clone(), last.to_owned());
    }
}

/// Returns `true` if the found value is as expected.
pub fn holds(expected: &Value, found: &Value) -> Result<bool, String> {
    let Some((rule, argument)) = expected.as_str().and_then(rule) else { return Ok(expected == found) };
    let text = found.as_str();
    let entries = || found.as_array().into_iter().flatten();
    Ok(match rule {
        "present" => !found.is_null(),
        "absent" => found.is_null(),
        "like" => text.is_some_and(|text| glob(argument, text)),
        "not" => text != Some(argument),
        "one-of" => text.is_some_and(|text| argument.split('|').any(|alternative| alternative == text)),
        "count" => Some(argument) == found.as_array().map(|items| items.len().to_string()).as_deref(),
        "id" => text.is_some_and(|text| spelling::same_id(text, argument)),
        "has-id" => has_id(found, argument),
        "lacks-id" => !has_id(found, argument),
        "has-name" => entries().any(|entry| entry["name"] == argument),
        other => return Err(format!("unknown rule <{other}>")),
    })
}

fn has_id(list: &Value, id: &str) -> bool {
    let mut entries = list.as_array().into_iter().flatten();
    entries.any(|entry| entry["id"].as_str().is_some_and(|found| spelling::same_id(found, id)))
}

fn rule(text: &str) -> Option<(&str, &str)> {
    let (rule, argument) = text.strip_prefix('<')?.split_once('>')?;
    Some((rule, argument.trim_start()))
}

/// Returns a value on one line of bounded length.
fn text_of(value: &Value) -> String {
    let text = match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
