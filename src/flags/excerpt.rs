//! Values in messages, truncated so that a message remains one line. Pure.

/// Maximum number of characters of a value in a message.
const MAX_LENGTH: usize = 64;

/// Returns `text`, truncated after 64 characters.
pub fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_LENGTH).collect();
    if text.chars().nth(MAX_LENGTH).is_some() {
        shown.push('…');
    }
    shown
}

/// Returns `text` in quotes, with escapes, truncated after 64 characters.
pub fn quoted(text: &str) -> String {
    format!("{:?}", excerpt(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_truncated_after_64_characters() {
        let long = "ä".repeat(65);
        assert_eq!(excerpt(&long), format!("{}…", "ä".repeat(64)));
        assert_eq!(excerpt(&long[2..]), "ä".repeat(64));
        assert_eq!(quoted("a\nb"), "\"a\\nb\"");
    }
}
