//! Limits the length of an event's message. Pure.
//!
//! In: texts that may repeat what users or clouds say, at any length. Out: texts that the API server accepts and a person
//! reads. Upstream: the API's limit for notes of events (`pkg/apis/core/validation/events.go`, 1,024 bytes).

/// Longest message, in bytes.
pub(super) const LONGEST: usize = 1024;
const MORE: &str = "…";

/// Cuts `message` between two characters.
pub(super) fn truncate_message(message: &mut String) {
    if message.len() <= LONGEST {
        return;
    }
    let end = (0..=LONGEST - MORE.len()).rev().find(|end| message.is_char_boundary(*end));
    message.truncate(end.unwrap_or_default());
    message.shrink_to_fit();
    message.push_str(MORE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_between_characters() {
        for (text, want) in [("a".repeat(LONGEST), LONGEST), ("a".repeat(240_000), LONGEST), ("ä€".repeat(500), LONGEST - 1)]
        {
            let mut message = text.clone();
            truncate_message(&mut message);
            assert!(message.len() <= LONGEST && message.len() >= want - 4, "{}", message.len());
            assert!(text.starts_with(message.trim_end_matches(MORE)));
        }
    }
}
