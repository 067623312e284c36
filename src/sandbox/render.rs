//! Objects and lists in the requested representation: full, metadata only, or as a table. Pure.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::{handler::List, http::Representation, kinds::Kind, table};

pub fn object(kind: &Kind, object: &Arc<Value>, representation: Representation) -> Arc<Value> {
    match representation {
        Representation::Full => Arc::clone(object),
        Representation::Metadata => Arc::new(partial(object)),
        Representation::Table => {
            let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            Arc::new(table::table(kind, std::slice::from_ref(object), &metadata))
        }
    }
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

#[derive(Serialize)]
struct FullList<'a> {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    metadata: &'a Value,
    items: Vec<&'a Value>,
}

/// Returns a list, as bytes so that full objects are not copied.
pub fn list(kind: &Kind, list: &List, representation: Representation) -> Vec<u8> {
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
    if let Some(token) = &list.continue_token {
        metadata["continue"] = json!(token);
    }
    if let Some(remaining) = list.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    let (kind, api_version, items) = match representation {
        Representation::Table => return bytes(&table::table(kind, &list.items, &metadata)),
        Representation::Metadata => {
            let items: Vec<_> = list.items.iter().map(|object| partial(object)).collect();
            let body = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items,
            });
            return bytes(&body);
        }
        Representation::Full => {
            (format!("{}List", kind.kind), kind.api_version(), list.items.iter().map(|object| &**object).collect())
        }
    };
    bytes(&FullList { kind, api_version, metadata: &metadata, items })
}

/// Returns a value as bytes. Serializing our own values cannot fail.
pub fn bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
