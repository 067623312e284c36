//! How ARM compares: ids, names, keys of tags and the words of its documents are equal in any ASCII letter case. Pure.
//!
//! In: text in ARM's spelling or this program's. Out: whether both mean the same. Documents and [`super::ResourceId`] have methods made
//! of these; who has bare text calls them directly.

/// Whether two texts are one id, ARM's spelling or not.
pub fn same_id(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Whether two names (of resources, groups, Nodes' machines, keys of tags) are one.
pub fn same_name(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Whether two words of an enumeration or two codes of errors are one.
pub fn same_word(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Whether a field of a document, if it is there, has this value of an enumeration: `Failed`, `IPv6`, `Basic`.
pub fn is_word(field: Option<&str>, word: &str) -> bool {
    field.is_some_and(|text| same_word(text, word))
}

/// What follows `start` in `text`, if it begins so.
pub fn strip_start<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let (found, rest) = text.split_at_checked(start.len())?;
    same_name(found, start).then_some(rest)
}

/// Whether `text` begins with `start`.
pub fn starts_with(text: &str, start: &str) -> bool {
    strip_start(text, start).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letter_case_does_not_matter_and_nothing_else_is_ignored() {
        for (one, other, expected) in
            [("A", "a", true), ("", "", true), ("a", "a ", false), ("ä", "Ä", false), ("a", "ab", false)]
        {
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
