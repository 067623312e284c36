//! Tags of documents of every type: their number and lengths.
//!
//! Upstream: Microsoft Learn, "Use tags to organize your Azure resources". Recorded: the code and text for values
//! (kubernetes-sigs/cloud-provider-azure#510).

use super::Candidate;
use crate::sandbox::azure::refusal::Refusal;

/// Most tags of a document.
const MAX_TAGS: usize = 50;
/// Longest name and value, in characters.
const MAX_LENGTHS: (usize, usize) = (512, 256);

pub(super) fn check(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let Some(tags) = candidate.body["tags"].as_object() else { return Ok(()) };
    if tags.len() > MAX_TAGS {
        let count = tags.len();
        let message = format!(
            "Too many tags specified. Requested tag count - '{count}'. Maximum number of tags allowed - '{MAX_TAGS}'."
        );
        return Err(Refusal::invalid("InvalidTags", message));
    }
    tags.iter().try_for_each(|(name, value)| {
        check_length("name", name, MAX_LENGTHS.0)?;
        check_length("value", value.as_str().unwrap_or_default(), MAX_LENGTHS.1)
    })
}

fn check_length(part: &str, text: &str, longest: usize) -> Result<(), Refusal> {
    if text.chars().count() <= longest {
        return Ok(());
    }
    let code = if part == "name" { "InvalidTagNameLength" } else { "InvalidTagValueLength" };
    let message = format!(
        "Tag {part} too large. Following tag {part} '{text}' exceeded the maximum length. Maximum allowed length for tag {part} - \
         '{longest}' characters."
    );
    Err(Refusal::invalid(code, message))
}
