//! YAML of operators and tests. This is the only module that depends on `serde_yaml`.
//!
//! In: text of bounded length. Out: typed values, or the position of the error. Used for text that is read at a start or
//! when a file changes: the fake cloud, leader migration, the sandbox, the program's own alerts. Text that others may write
//! while the program runs, such as `azure.json` from a Secret, is parsed by `serde-saphyr` (`providers::azure::config`),
//! which bounds depth and aliases and repeats nothing of the text. The output of the sandbox and `/statusz` is printed here,
//! too.
//!
//! Errors name the path of a wrong field, such as `instances.a.powerState`; those of `serde-saphyr` have only its line.
//!
//! The library is no longer maintained. A replacement changes this file alone; `tests/layering.rs` enforces that.

use serde::{Serialize, de::DeserializeOwned};

/// Longest text that is read, in bytes. A thousand instances of the fake cloud take 200 KiB.
pub const LONGEST: usize = 16 << 20;

/// Error in a text, with its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct YamlError(String);

impl From<serde_yaml::Error> for YamlError {
    fn from(error: serde_yaml::Error) -> Self {
        Self(error.to_string())
    }
}

/// Reads one document. An empty text is null.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    Ok(serde_yaml::from_str(bounded(text)?)?)
}

/// Reads the documents of a text that `---` divides.
pub fn documents<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, YamlError> {
    let documents = serde_yaml::Deserializer::from_str(bounded(text)?);
    documents.map(|document| T::deserialize(document).map_err(YamlError::from)).collect()
}

/// Returns `true` if a text contains only comments.
pub fn is_empty(text: &str) -> Result<bool, YamlError> {
    Ok(parse::<serde_yaml::Value>(text)?.is_null())
}

/// Formats a value as YAML.
pub fn print(value: &impl Serialize) -> Result<String, YamlError> {
    Ok(serde_yaml::to_string(value)?)
}

fn bounded(text: &str) -> Result<&str, YamlError> {
    let too_long = || YamlError(format!("the text has {} bytes; at most {LONGEST} are accepted", text.len()));
    (text.len() <= LONGEST).then_some(text).ok_or_else(too_long)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn printed_values_are_parsed_to_the_same_values() {
        let value = json!({"a": [1, true, null], "b": {"c": "yes"}});
        assert_eq!(parse::<Value>(&print(&value).unwrap()), Ok(value));
        assert_eq!(documents::<Value>("a: 1\n---\nb: 2\n"), Ok(vec![json!({"a": 1}), json!({"b": 2})]));
        assert_eq!((is_empty("# nothing\n"), is_empty("{}")), (Ok(true), Ok(false)));
    }

    #[test]
    fn errors_name_the_line_and_long_texts_are_not_read() {
        assert!(parse::<Value>("a: 1\nb: [").unwrap_err().to_string().contains("line"));
        let long = " ".repeat(LONGEST + 1);
        let refused = [parse::<Value>(&long).unwrap_err(), documents::<Value>(&long).unwrap_err()];
        assert!(refused.iter().all(|error| error.to_string().contains("are accepted")), "{refused:?}");
    }
}
