//! Validation of label selectors in flags. Pure.
//!
//! In: text. Out: nothing if an API server would accept it, else the first error. The grammar is that of apimachinery's `labels.Parse`:
//! requirements between commas, each `key`, `!key`, `key=value`, `key!=value`, `key in (a,b)`, `key notin (a,b)`, `key>1` or `key<1`.

use crate::flags::quoted;

/// Maximum length of the name in a label key, and of a label value.
const MAX_NAME_LENGTH: usize = 63;
/// Maximum length of the prefix of a label key.
const MAX_PREFIX_LENGTH: usize = 253;

/// Checks a selector. An empty one is valid and selects everything.
pub fn check(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Ok(());
    }
    requirements(text)?.into_iter().try_for_each(requirement)
}

/// Splits a selector at the commas outside of parentheses.
fn requirements(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            '(' if inside => return Err("nested parentheses are not allowed".to_owned()),
            '(' => inside = true,
            ')' if !inside => return Err("a closing parenthesis without an opening one".to_owned()),
            ')' => inside = false,
            ',' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("a parenthesis is not closed".to_owned());
    }
    parts.push(&text[start..]);
    Ok(parts)
}

fn requirement(text: &str) -> Result<(), String> {
    let text = text.trim();
    if let Some(absent) = text.strip_prefix('!') {
        return key(absent.trim());
    }
    if let Some((head, values)) = text.split_once('(') {
        return set_based(head.trim(), values);
    }
    for operator in ["!=", "==", "=", ">", "<"] {
        let Some((name, operand)) = text.split_once(operator) else { continue };
        key(name.trim())?;
        return match operator {
            ">" | "<" => number(operand.trim()),
            _ => value(operand.trim()),
        };
    }
    key(text)
}

fn set_based(head: &str, values: &str) -> Result<(), String> {
    let Some(values) = values.strip_suffix(')') else {
        return Err(format!("{} does not end with a parenthesis", quoted(values)));
    };
    match head.rsplit_once(char::is_whitespace) {
        Some((name, "in" | "notin")) => key(name.trim())?,
        _ => {
            return Err(format!(
                "{} before a parenthesis is not valid: expected a key with \"in\" or \"notin\"",
                quoted(head)
            ));
        }
    }
    values.split(',').try_for_each(|text| value(text.trim()))
}

fn key(text: &str) -> Result<(), String> {
    let invalid = || Err(format!("{} is not a valid label key", quoted(text)));
    let name = match text.split_once('/') {
        Some((prefix, _)) if !is_subdomain(prefix) => return invalid(),
        Some((_, name)) => name,
        None => text,
    };
    if is_name(name) { Ok(()) } else { invalid() }
}

fn value(text: &str) -> Result<(), String> {
    if text.is_empty() || is_name(text) { Ok(()) } else { Err(format!("{} is not a valid label value", quoted(text))) }
}

fn number(text: &str) -> Result<(), String> {
    text.parse::<i64>().map(drop).map_err(|_| format!("{} is not a whole number", quoted(text)))
}

fn is_name(text: &str) -> bool {
    let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= MAX_NAME_LENGTH
        && ends_well(text.chars().next())
        && ends_well(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.chars().all(allowed)
    };
    text.len() <= MAX_PREFIX_LENGTH && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn selectors_that_api_servers_accept_are_valid() {
        for text in [
            "",
            " ",
            "a",
            "!a",
            "! a",
            "a=b",
            "a==b",
            "a!=b",
            "a=",
            "a in (b)",
            "a in (b, c)",
            "a notin (b,c),d",
            "a  in(b)",
            "a in ()",
            "a>1",
            "a<-1",
            "example.com/a.b_c-d=E.f_g-1",
            "kubernetes.azure.com/managed!=false,!maintenance, tier in (prod,staging)",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        assert_eq!(check(&format!("{}=b", "a".repeat(63))), Ok(()));
    }

    #[test]
    fn errors_name_the_invalid_part() {
        for (text, part) in [
            (",", "\"\" is not a valid label key"),
            ("a,", "\"\" is not a valid label key"),
            ("=b", "\"\" is not a valid label key"),
            ("a b", "\"a b\" is not a valid label key"),
            ("-a", "\"-a\" is not a valid label key"),
            ("A.example/a", "is not a valid label key"),
            ("/a", "is not a valid label key"),
            ("a/b/c", "is not a valid label key"),
            ("a=b=c", "\"b=c\" is not a valid label value"),
            ("a=b c", "\"b c\" is not a valid label value"),
            ("a===b", "\"=b\" is not a valid label value"),
            ("a in b", "\"a in b\" is not a valid label key"),
            ("a in (b", "not closed"),
            ("a in b)", "without an opening one"),
            ("a in ((b))", "nested parentheses"),
            ("a within (b)", "expected a key with \"in\""),
            ("in (b)", "expected a key with \"in\""),
            ("a in (b) c", "does not end"),
            ("a in (ü)", "is not a valid label value"),
            ("a>b", "is not a whole number"),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(check(&format!("{}=b", "a".repeat(64))).is_err());
    }

    proptest! {
        #[test]
        fn no_text_crashes(text in ".{0,60}") {
            let _ = check(&text);
        }

        #[test]
        fn selector_is_valid_if_all_requirements_are(terms in proptest::collection::vec("[a-c]|![ab]|a=|b!=c|c in \\(a, b\\)|a<1|a=-|=|b in a", 1..5)) {
            let all_valid = terms.iter().all(|term| check(term).is_ok());
            prop_assert_eq!(check(&terms.join(",")).is_ok(), all_valid);
        }
    }
}
