//! Texts of others, cut for messages and logs. Pure.

/// Returns the first `limit` bytes of `text`, or fewer to keep characters whole, with a mark if it is truncated.
pub(crate) fn truncate(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let rows = [("", 2, ""), ("ab", 2, "ab"), ("abc", 2, "ab…"), ("aé", 2, "a…"), ("é", 1, "…")];
        for (text, limit, expected) in rows {
            assert_eq!(truncate(text, limit), expected, "{text} {limit}");
        }
    }
}
