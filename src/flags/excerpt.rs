//! Values in messages, cut so that a message stays one line. Pure.

/// Most characters of a value in a message.
const LONGEST: usize = 64;

/// Returns `text`, cut after 64 characters.
pub fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

/// Returns `text` in quotes, with escapes, cut after 64 characters.
pub fn quoted(text: &str) -> String {
    format!("{:?}", excerpt(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_after_64_characters() {
        let long = "ä".repeat(65);
        assert_eq!(excerpt(&long), format!("{}…", "ä".repeat(64)));
        assert_eq!(excerpt(&long[2..]), "ä".repeat(64));
        assert_eq!(quoted("a\nb"), "\"a\\nb\"");
    }
}
