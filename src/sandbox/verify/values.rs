//! Placeholders in the texts of rows. Pure.
//!
//! `{name}` is replaced by a variable. In a list, `{"$repeat": N, "$item": VALUE}` is replaced by N values, in which `{n}`
//! counts from 1, `{hi}` and `{lo}` are its upper and lower byte. A text that is `{#name}` or `{#name+K}` becomes a number.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Values of variables, by name.
#[derive(Debug, Clone, Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.set(name, value);
        self
    }

    /// Returns variables with which paths can be resolved without a cloud.
    pub fn placeholders() -> Self {
        let group = "/subscriptions/s/resourceGroups/g";
        let all = [("p", "p-"), ("group", group), ("net", "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network")];
        let own = all.into_iter().fold(Self::default(), |variables, (name, value)| variables.with(name, value));
        own.with("compute", format!("{group}/providers/Microsoft.Compute")).with("subscription", "s").with("location", "l")
    }

    fn value(&self, name: &str) -> Result<&str, String> {
        self.0.get(name).map(String::as_str).ok_or_else(|| format!("nothing sets the variable {{{name}}}"))
    }

    /// Returns the text with all placeholders replaced.
    pub fn text(&self, text: &str) -> Result<String, String> {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or_else(|| format!("{text:?} has a brace that does not end"))?;
            expanded.push_str(before);
            expanded.push_str(self.value(name)?);
            rest = after;
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    /// Returns a value with all placeholders replaced.
    pub fn expand(&self, value: &Value) -> Result<Value, String> {
        match value {
            Value::String(text) => match text.strip_prefix("{#").and_then(|text| text.strip_suffix('}')) {
                Some(number) => self.number(number),
                None => self.text(text).map(Value::String),
            },
            Value::Array(items) => {
                let expanded: Result<Vec<Vec<Value>>, String> = items.iter().map(|item| self.items(item)).collect();
                Ok(Value::Array(expanded?.into_iter().flatten().collect()))
            }
            Value::Object(fields) => {
                let field = |(name, value): (&String, &Value)| Ok((name.clone(), self.expand(value)?));
                fields.iter().map(field).collect::<Result<Map<_, _>, String>>().map(Value::Object)
            }
            other => Ok(other.clone()),
        }
    }

    fn number(&self, text: &str) -> Result<Value, String> {
        let (name, offset) = text.split_once('+').unwrap_or((text, "0"));
        let parse = |text: &str| text.parse::<i64>().map_err(|error| format!("{{#{text}}}: {error}"));
        Ok(json!(parse(self.value(name)?)? + parse(offset)?))
    }

    /// Returns the values to which an item of a list expands.
    fn items(&self, item: &Value) -> Result<Vec<Value>, String> {
        let Some(count) = item["$repeat"].as_u64() else { return Ok(vec![self.expand(item)?]) };
        let numbered = |n: u64| {
            let own = self.clone().with("n", n.to_string()).with("hi", (n / 256).to_string());
            own.with("lo", (n % 256).to_string()).expand(&item["$item"])
        };
        (1..=count).map(numbered).collect()
    }
}
