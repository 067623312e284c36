//! Comparisons with ARM's rule: IDs, names, keys of tags and enumerated words of its documents ignore ASCII letter case. Pure.
//!
//! In: text in ARM's spelling or this program's. Out: whether both mean the same. The methods of documents and of
//! [`super::ResourceId`] use these functions; code with plain text calls them directly.

/// Returns `true` if two texts are the same ID.
pub fn same_id(text: &str, other: &str) -> bool {
    // IDs of one resource group share a hundred letters: comparing from the end distinguishes them after a few.
    text == other || text.len() == other.len() && text.bytes().rev().zip(other.bytes().rev()).all(same_letter)
}

fn same_letter((letter, other): (u8, u8)) -> bool {
    letter.eq_ignore_ascii_case(&other)
}

/// Returns `true` if two names (of resources, groups, machines of Nodes, keys of tags) are the same.
pub fn same_name(name: &str, other: &str) -> bool {
    same_id(name, other)
}

/// Returns `true` if two words of an enumeration or two error codes are the same.
pub fn same_word(word: &str, other: &str) -> bool {
    same_id(word, other)
}

/// Returns `true` if a field is present and has this value of an enumeration, such as `Failed`, `IPv6` or `Basic`.
pub fn is_word(field: Option<&str>, word: &str) -> bool {
    field.is_some_and(|text| same_word(text, word))
}

/// Returns the text after `start`, if `text` begins with it, ignoring case.
pub fn strip_start<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let (found, rest) = text.split_at_checked(start.len())?;
    same_name(found, start).then_some(rest)
}

/// Returns `true` if `text` begins with `start`, ignoring case.
pub fn starts_with(text: &str, start: &str) -> bool {
    strip_start(text, start).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ascii_letter_case_is_ignored() {
        for (text, other, expected) in [
            ("A", "a", true),
            ("", "", true),
            ("a", "a ", false),
            ("ä", "Ä", false),
            ("a", "ab", false),
            ("xa", "Ya", false),
        ] {
            assert_eq!((same_id(text, other), same_name(text, other)), (expected, expected), "{text} {other}");
            assert_eq!((is_word(Some(text), other), same_word(text, other)), (expected, expected), "{text} {other}");
        }
        assert!(!is_word(None, ""));
    }

    #[test]
    fn the_start_is_removed_at_a_character_boundary() {
        for (text, start, rest) in [
            ("PowerState/running", "powerstate/", Some("running")),
            ("a", "a", Some("")),
            ("a", "", Some("a")),
            ("a", "ab", None),
            ("ä", "a", None),
            ("aä", "A\u{c3}", None),
        ] {
            assert_eq!(strip_start(text, start), rest, "{text} {start}");
            assert_eq!(starts_with(text, start), rest.is_some());
        }
    }
}
