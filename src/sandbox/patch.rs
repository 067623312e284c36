//! Patches, as pure functions: an object and a patch in, the patched object out.

pub mod merge;
pub mod strategic;

use serde_json::Value;

use super::{kinds::Kind, refusal::Refusal};

/// The patch types of the API, by content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// JSON patch, RFC 6902.
    Json,
    /// JSON merge patch, RFC 7386.
    Merge,
    /// Kubernetes' own: lists with a merge key are merged.
    Strategic,
    /// Server-side apply, simplified: merged as a strategic merge patch, without field ownership.
    Apply,
}

impl PatchType {
    /// Returns the patch type of a `Content-Type`.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Some(PatchType::Json),
            "application/merge-patch+json" => Some(PatchType::Merge),
            "application/strategic-merge-patch+json" => Some(PatchType::Strategic),
            "application/apply-patch+yaml" => Some(PatchType::Apply),
            _ => None,
        }
    }
}

/// Returns `object` of `kind` with `patch` applied.
pub fn apply(kind: &Kind, patch_type: PatchType, object: &Value, patch: &Value) -> Result<Value, Refusal> {
    let mut patched = object.clone();
    match patch_type {
        PatchType::Json => json(&mut patched, patch)?,
        PatchType::Merge => merge::apply(&mut patched, patch),
        PatchType::Strategic | PatchType::Apply => strategic::apply(kind, &mut patched, patch)?,
    }
    if patched.is_object() { Ok(patched) } else { Err(Refusal::bad_request("the patched value is not an object")) }
}

fn json(object: &mut Value, patch: &Value) -> Result<(), Refusal> {
    let patch: json_patch::Patch =
        serde_json::from_value(patch.clone()).map_err(|error| Refusal::bad_request(error.to_string()))?;
    json_patch::patch(object, &patch)
        .map_err(|error| Refusal::unprocessable(format!("the server rejected the JSON patch: {error}")))
}
