//! Sanitized texts for one line of a message, a log or a terminal. Pure.
//!
//! In: texts of any length from users, clouds or servers. Out: texts without control characters and with a maximum length.

/// Returns `true` for control characters, and for characters that are invisible, end a line or change the direction of
/// writing.
pub fn is_disruptive(letter: char) -> bool {
    let is_invisible = matches!(
        letter,
        '\u{061C}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}'
    );
    is_invisible || letter.is_control()
}

/// Returns `text` with a space in place of each disruptive character.
pub fn one_line(text: &str) -> String {
    text.replace(is_disruptive, " ")
}

/// Returns `text`, or its first `limit` characters and an ellipsis.
pub fn excerpt(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the words of `text` with single spaces, or the first `limit` characters of that and an ellipsis.
pub fn condense(text: &str, limit: usize) -> String {
    excerpt(&one_line(text).split_whitespace().collect::<Vec<_>>().join(" "), limit)
}

/// Returns `text`, or the whole characters in its first `limit` bytes and an ellipsis.
pub fn truncate(text: &str, limit: usize) -> String {
    let end = (0..=limit.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    if end == text.len() { text.to_owned() } else { format!("{}…", &text[..end]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, limit, bytes, characters) in [
            ("", 2, "", ""),
            ("ab", 2, "ab", "ab"),
            ("abc", 2, "ab…", "ab…"),
            ("aé", 2, "a…", "aé"),
            ("é", 1, "…", "é"),
            ("éab", 2, "é…", "éa…"),
        ] {
            assert_eq!(
                (truncate(text, limit).as_str(), excerpt(text, limit).as_str()),
                (bytes, characters),
                "{text} {limit}"
            );
        }
    }

    #[test]
    fn control_and_bidi_characters_become_spaces() {
        assert_eq!(condense(" a\nb\u{1b}[31m  c ", 6), "a b [3…");
        assert_eq!(one_line("a\nb\u{1b}[31m\u{202e}c\u{200b}é\t"), "a b [31m c é ");
    }
}
