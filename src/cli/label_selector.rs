//! Label selectors as flags take them. Pure.
//!
//! In: text. Out: whether an API server would take it, else what is wrong with it. The grammar is that of apimachinery's `labels.Parse`:
//! requirements between commas, each `key`, `!key`, `key=value`, `key!=value`, `key in (a,b)`, `key notin (a,b)`, `key>1` or `key<1`.

use crate::flags::quoted;

/// Longest name and value of a label.
const LONGEST_NAME: usize = 63;
/// Longest prefix of a key.
const LONGEST_PREFIX: usize = 253;

/// Checks a selector; an empty one selects everything.
pub fn check(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Ok(());
    }
    requirements(text)?.into_iter().try_for_each(requirement)
}

/// The parts between commas that stand outside of parentheses.
fn requirements(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            '(' if inside => return Err("a parenthesis inside of parentheses".to_owned()),
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
    if let Some((left, values)) = text.split_once('(') {
        return set_based(left.trim(), values);
    }
    for operator in ["!=", "==", "=", ">", "<"] {
        let Some((left, right)) = text.split_once(operator) else { continue };
        key(left.trim())?;
        return match operator {
            ">" | "<" => number(right.trim()),
            _ => value(right.trim()),
        };
    }
    key(text)
}

fn set_based(left: &str, values: &str) -> Result<(), String> {
    let Some(values) = values.strip_suffix(')') else {
        return Err(format!("{} does not end with a parenthesis", quoted(values)));
    };
    match left.rsplit_once(char::is_whitespace) {
        Some((name, "in" | "notin")) => key(name.trim())?,
        _ => return Err(format!("{} stands before a parenthesis: want a key with \"in\" or \"notin\"", quoted(left))),
    }
    values.split(',').try_for_each(|text| value(text.trim()))
}

fn key(text: &str) -> Result<(), String> {
    let wrong = || Err(format!("{} is no key of a label", quoted(text)));
    let name = match text.split_once('/') {
        Some((prefix, _)) if !is_subdomain(prefix) => return wrong(),
        Some((_, name)) => name,
        None => text,
    };
    if is_name(name) { Ok(()) } else { wrong() }
}

fn value(text: &str) -> Result<(), String> {
    if text.is_empty() || is_name(text) { Ok(()) } else { Err(format!("{} is no value of a label", quoted(text))) }
}

fn number(text: &str) -> Result<(), String> {
    text.parse::<i64>().map(drop).map_err(|_| format!("{} is no whole number", quoted(text)))
}

fn is_name(text: &str) -> bool {
    let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= LONGEST_NAME
        && ends_well(text.chars().next())
        && ends_well(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.chars().all(allowed)
    };
    text.len() <= LONGEST_PREFIX && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_an_api_server_takes_is_taken() {
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
    fn what_is_wrong_is_named() {
        for (text, part) in [
            (",", "\"\" is no key"),
            ("a,", "\"\" is no key"),
            ("=b", "\"\" is no key"),
            ("a b", "\"a b\" is no key"),
            ("-a", "\"-a\" is no key"),
            ("A.example/a", "is no key"),
            ("/a", "is no key"),
            ("a/b/c", "is no key"),
            ("a=b=c", "\"b=c\" is no value"),
            ("a=b c", "\"b c\" is no value"),
            ("a===b", "\"=b\" is no value"),
            ("a in b", "\"a in b\" is no key"),
            ("a in (b", "not closed"),
            ("a in b)", "without an opening one"),
            ("a in ((b))", "inside of parentheses"),
            ("a within (b)", "want a key with \"in\""),
            ("in (b)", "want a key with \"in\""),
            ("a in (b) c", "does not end"),
            ("a in (ü)", "is no value"),
            ("a>b", "is no whole number"),
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
        fn a_selector_is_as_good_as_its_worst_requirement(terms in proptest::collection::vec("[a-c]|![ab]|a=|b!=c|c in \\(a, b\\)|a<1|a=-|=|b in a", 1..5)) {
            let good = terms.iter().all(|term| check(term).is_ok());
            prop_assert_eq!(check(&terms.join(",")).is_ok(), good);
        }
    }
}
