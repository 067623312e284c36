//! Types of values that any flag can have: parser, formatter, and error text of each. Pure.
//!
//! Notations are those of Go's `strconv` and of the value types in `k8s.io/component-base/cli/flag`.

use std::{collections::BTreeMap, time::Duration};

use ipnet::IpNet;

use super::{duration, quoted};

/// Type of the value of a flag.
pub trait FlagValue: Sized + Default {
    /// Placeholder of the value in help texts.
    const PLACEHOLDER: &'static str;
    /// Value of a flag that is given without one; `None` if this is not allowed.
    const IMPLIED_VALUE: Option<&'static str> = None;
    /// Whether several occurrences are merged; otherwise the last one applies.
    const REPEATED: bool = false;
    /// Parses one occurrence. The error describes the accepted values.
    fn parse(text: &str) -> Result<Self, String>;
    /// Merges a later occurrence of a repeated flag.
    fn merge(&mut self, later: Self) {
        *self = later;
    }
    /// Formats the value as one would type it.
    fn print(&self) -> String;
}

/// Text that is not a valid value of its flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFlagValue {
    pub text: String,
    /// Description of the accepted values: "expected …".
    pub accepted: String,
}

/// Parses all occurrences of a flag.
pub fn parse_all<T: FlagValue>(texts: &[String]) -> Result<T, InvalidFlagValue> {
    let mut value: Option<T> = None;
    for text in texts {
        let next = T::parse(text).map_err(|accepted| InvalidFlagValue { text: text.clone(), accepted })?;
        match &mut value {
            Some(value) => value.merge(next),
            None => value = Some(next),
        }
    }
    Ok(value.unwrap_or_default())
}

impl FlagValue for bool {
    const PLACEHOLDER: &'static str = "true|false";
    const IMPLIED_VALUE: Option<&'static str> = Some("true");

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
            _ => Err("expected true or false".to_owned()),
        }
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

impl FlagValue for i32 {
    const PLACEHOLDER: &'static str = "int";

    fn parse(text: &str) -> Result<Self, String> {
        integer(text).ok_or_else(|| format!("expected a whole number from {} to {}", i32::MIN, i32::MAX))
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

/// Parses an integer in Go's base 0: a prefix selects the base, and underscores may separate digits.
pub(crate) fn integer(text: &str) -> Option<i32> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some(_) if lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    i32::from_str_radix(&format!("{sign}{}", digits.replace('_', "")), base).ok()
}

impl FlagValue for f32 {
    const PLACEHOLDER: &'static str = "float";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().ok().filter(|number: &f32| number.is_finite()).ok_or_else(|| "expected a number".to_owned())
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

impl FlagValue for String {
    const PLACEHOLDER: &'static str = "string";

    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn print(&self) -> String {
        self.clone()
    }
}

impl FlagValue for Duration {
    const PLACEHOLDER: &'static str = "duration";

    fn parse(text: &str) -> Result<Self, String> {
        duration::parse(text).map_err(|error| error.to_string())
    }

    fn print(&self) -> String {
        duration::format(*self)
    }
}

/// Splits a comma-separated list as the CSV parser of pflag does; `None` if a quote is not closed.
///
/// An item in double quotes may contain commas, and two quotes in it are one.
fn items(text: &str) -> Option<Vec<String>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let (mut list, mut item, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => item.extend(letters.next()),
            '"' if quoted || item.is_empty() => quoted = !quoted,
            ',' if !quoted => list.push(std::mem::take(&mut item)),
            letter => item.push(letter),
        }
    }
    list.push(item);
    (!quoted).then_some(list)
}

impl FlagValue for Vec<String> {
    const PLACEHOLDER: &'static str = "a,b,…";
    const REPEATED: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        items(text).ok_or_else(|| "expected a comma-separated list with closed quotes".to_owned())
    }

    fn merge(&mut self, later: Self) {
        self.extend(later);
    }

    fn print(&self) -> String {
        self.join(",")
    }
}

impl FlagValue for Vec<i32> {
    const PLACEHOLDER: &'static str = "1,2,…";
    const REPEATED: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        let numbers = text.split(',').filter(|_| !text.is_empty()).map(|item| integer(item.trim()));
        numbers.collect::<Option<_>>().ok_or_else(|| "expected a comma-separated list of whole numbers".to_owned())
    }

    fn merge(&mut self, later: Self) {
        self.extend(later);
    }

    fn print(&self) -> String {
        self.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
    }
}

impl FlagValue for Vec<IpNet> {
    const PLACEHOLDER: &'static str = "cidr,…";

    fn parse(text: &str) -> Result<Self, String> {
        let networks = text.split(',').filter(|_| !text.is_empty()).map(|item| item.trim().parse::<IpNet>());
        let networks: Result<Vec<_>, _> = networks.collect();
        let networks = networks.map_err(|_| "expected comma-separated CIDRs, such as 10.244.0.0/16,fd00::/48".to_owned())?;
        Ok(networks.iter().map(IpNet::trunc).collect())
    }

    fn print(&self) -> String {
        self.iter().map(IpNet::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Switches by name, written as comma-separated `name=true|false` pairs.
pub type MapStringBool = BTreeMap<String, bool>;

impl FlagValue for MapStringBool {
    const PLACEHOLDER: &'static str = "name=true|false,…";
    const REPEATED: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        let mut switches = Self::new();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| format!("expected name=true or name=false, not {}", quoted(pair)))?;
            let value = bool::parse(value.trim()).map_err(|accepted| format!("{accepted} for {}", quoted(name.trim())))?;
            switches.insert(name.trim().to_owned(), value);
        }
        Ok(switches)
    }

    fn merge(&mut self, later: Self) {
        self.extend(later);
    }

    fn print(&self) -> String {
        self.iter().map(|(name, on)| format!("{name}={on}")).collect::<Vec<_>>().join(",")
    }
}
