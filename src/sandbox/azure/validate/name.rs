//! Names of the network provider's documents and of their parts.

use serde_json::Value;

use super::{Candidate, text};
use crate::sandbox::azure::{kinds, refusal::Refusal, shape};

/// Upstream: "Naming rules and restrictions for Azure resources", Microsoft.Network.
const MAX_LENGTH: usize = 80;

/// Checks new names. Existing names were checked when they were created.
pub(super) fn check(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let kind = candidate.id.resource_type().to_ascii_lowercase();
    if !kind.starts_with("microsoft.network/") {
        return Ok(());
    }
    if candidate.old.is_none() {
        check_name(candidate.id.name())?;
    }
    let lists = kinds::kind_of(&kind).map_or(&[][..], |kind| kind.parts);
    lists.iter().flat_map(|list| new_parts(candidate, list)).try_for_each(|part| check_name(text(part, "name")))
}

fn new_parts<'a>(candidate: Candidate<'a>, list: &'a str) -> impl Iterator<Item = &'a Value> {
    let is_old = move |part: &Value| candidate.old.is_some_and(|old| shape::part(old, list, text(part, "name")).is_some());
    shape::parts(candidate.body, list).filter(move |part| !part["name"].is_null() && !is_old(part))
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let fits = name.len() <= MAX_LENGTH
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.ends_with(word)
        && name.chars().all(|character| word(character) || matches!(character, '.' | '-'));
    if fits {
        return Ok(());
    }
    let message = format!(
        "Resource name {name} is invalid. The name can be up to {MAX_LENGTH} characters long. It must begin with a word character, and it \
         must end with a word character or with '_'. The name may contain word characters or '.', '-', '_'."
    );
    Err(Refusal::invalid("InvalidResourceName", message))
}
