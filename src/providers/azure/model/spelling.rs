//! Comparisons as ARM makes them: IDs, names, keys of tags and the words of its documents are equal in any ASCII letter
//! case. Pure.
//!
//! In: text in ARM's spelling or this program's. Out: whether both mean the same. Documents and [`super::ResourceId`] have
//! methods made of these; code with bare text calls them directly.

/// Returns `true` if two texts are one id, ARM's spelling or not.
pub fn same_id(a: &str, other: &str) -> bool {
    // IDs of one resource group share a hundred letters: comparing from the end distinguishes them after a few.
    a == other || a.len() == other.len() && a.bytes().rev().zip(other.bytes().rev()).all(same_letter)
}

fn same_letter((a, other): (u8, u8)) -> bool {
    a.eq_ignore_ascii_case(&other)
}

/// Returns `true` if two names (of resources, groups, Nodes' machines, keys of tags) are one.
pub fn same_name(a: &str, other: &str) -> bool {
    same_id(a, other)
}

/// Returns `true` if two words of an enumeration or two codes of errors are one.
pub fn same_word(a: &str, other: &str) -> bool {
    same_id(a, other)
}

/// Returns `true` if a field of a document, if it is there, has this value of an enumeration: `Failed`, `IPv6`, `Basic`.
pub fn is_word(field: Option<&str>, word: &str) -> bool {
    field.is_some_and(|text| same_word(text, word))
}

/// Returns the text that follows `start`, if `text` begins with it.
pub fn strip_start<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let (found, rest) = text.split_at_checked(start.len())?;
    same_name(found, start).then_some(rest)
}

/// Returns `true` if `text` begins with `start`.
pub fn starts_with(text: &str, start: &str) -> bool {
    strip_start(text, start).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letter_case_does_not_matter_and_nothing_else_is_ignored() {
        for (one, other, expected) in [
            ("A", "a", true),
            ("", "", true),
            ("a", "a ", false),
            ("ä", "Ä", false),
            ("a", "ab", false),
            ("xa", "Ya", false),
        ] {
            assert_eq!((same_id(one, other), same_name(one, other)), (expected, expected), "{one} {other}");
            assert_eq!((is_word(Some(one), other), same_word(one, other)), (expected, expected), "{one} {other}");
        }
        assert!(!is_word(None, ""));
    }

    #[test]
    fn the_start_is_taken_off_at_a_border_of_letters() {
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
