//! An object of a list or a watch that may not decode: one bad object must not end either.
//!
//! In: the text of an object. Out: the object, or its metadata and what is wrong with it.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

/// An object, or of one that cannot be decoded at least the metadata.
#[derive(Debug, Clone)]
pub(super) struct LenientObject<K>(Result<K, MalformedObject>);

#[derive(Debug, Clone)]
struct MalformedObject {
    metadata: ObjectMeta,
    error: String,
}

impl<K> LenientObject<K> {
    /// The object, or why it could not be decoded.
    pub(super) fn into_result(self) -> Result<K, String> {
        self.0.map_err(|malformed| malformed.error)
    }
}

impl MalformedObject {
    fn of(text: &str, error: &serde_json::Error) -> Self {
        let whole: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        let metadata = whole.get("metadata").map(ObjectMeta::deserialize).and_then(Result::ok).unwrap_or_default();
        Self { metadata, error: error.to_string() }
    }
}

impl<'de, K: Resource + DeserializeOwned> Deserialize<'de> for LenientObject<K> {
    /// From its text, since a decoder that has failed cannot tell what it has read. Only JSON has text, and an event of a watch only
    /// while its type stands before its object, as every server written in Go sends it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let decoded = serde_json::from_str::<K>(text.get());
        let object = decoded.map_err(|error| MalformedObject::of(text.get(), &error));
        Ok(Self(object.map(|mut object| {
            // The filter of the bytes has left them out already where the answer came through it.
            object.meta_mut().managed_fields = None;
            object
        })))
    }
}

impl<K: Resource<DynamicType = ()>> Resource for LenientObject<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        K::kind(&())
    }
    fn group(_: &()) -> Cow<'_, str> {
        K::group(&())
    }
    fn version(_: &()) -> Cow<'_, str> {
        K::version(&())
    }
    fn plural(_: &()) -> Cow<'_, str> {
        K::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|malformed| &malformed.metadata, K::meta)
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(malformed) => &mut malformed.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::api::WatchEvent;
    use serde_json::json;

    use super::*;

    fn of(document: &serde_json::Value) -> LenientObject<Node> {
        serde_json::from_str(&document.to_string()).unwrap()
    }

    #[test]
    fn managed_fields_are_dropped_and_a_bad_object_keeps_its_name() {
        let good = of(&json!({"metadata": {"name": "n", "managedFields": [{"manager": "kubelet"}]}}));
        assert_eq!(good.meta().name.as_deref(), Some("n"));
        assert_eq!(good.into_result().unwrap().metadata.managed_fields, None);
        let bad = of(&json!({"metadata": {"name": "n"}, "spec": 7}));
        assert_eq!(bad.meta().name.as_deref(), Some("n"));
        assert!(bad.into_result().unwrap_err().contains("invalid type: integer `7`"));
        assert_eq!(*of(&json!({"metadata": 7})).meta(), ObjectMeta::default());
    }

    #[test]
    fn an_event_of_a_watch_has_one() {
        let text = r#"{"type":"MODIFIED","object":{"metadata":{"name":"n"},"spec":7}}"#;
        let WatchEvent::Modified(bad) = serde_json::from_str::<WatchEvent<LenientObject<Node>>>(text).unwrap() else {
            panic!("another event")
        };
        assert_eq!(bad.meta().name.as_deref(), Some("n"));
    }
}
