//! Object of a list or a watch that may be invalid. An invalid object must end neither.
//!
//! In: the text of an object. Out: its identity, and the object itself or the decoding error on demand. The text is untyped,
//! so the code of lists and watches is compiled once and not for each kind.

use std::{borrow::Cow, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, api::ApiResource, core::DynamicResourceScope};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Object of a response, as undecoded text with its identity.
#[derive(Debug, Clone)]
pub(super) struct RawObject {
    /// Name, namespace and versions.
    metadata: ObjectMeta,
    text: Box<RawValue>,
}

impl RawObject {
    /// Decodes the object from its text.
    pub(super) fn decode<K: Resource + DeserializeOwned>(&self) -> Result<K, String> {
        let mut object: K = serde_json::from_str(self.text.get()).map_err(|error| error.to_string())?;
        // The filter of the body has already removed them if the response passed it.
        object.meta_mut().managed_fields = None;
        Ok(object)
    }
}

/// Fields that identify an object and its version.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ObjectIdentity {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
}

impl ObjectIdentity {
    /// Returns the identity of the object in `text`. Nothing after its metadata is read.
    fn of(text: &str) -> Self {
        let mut identity = Self::default();
        // The result is an error unless the metadata are the last field, because the rest is not read.
        let _ = serde_json::Deserializer::from_str(text).deserialize_map(UpToMetadata(&mut identity));
        identity
    }
}

/// Visitor that stops after the metadata.
struct UpToMetadata<'identity>(&'identity mut ObjectIdentity);

impl<'text> Visitor<'text> for UpToMetadata<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'text>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            if name == "metadata" {
                *self.0 = members.next_value::<Option<_>>()?.unwrap_or_default();
                return Ok(());
            }
            members.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for RawObject {
    /// Decodes from the text, because a failed decoder cannot report what it has read.
    ///
    /// Only JSON has text, and an event of a watch only if its type precedes its object, as every server written in Go sends
    /// it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let ObjectIdentity { name, namespace, resource_version } = ObjectIdentity::of(text.get());
        let metadata = ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() };
        Ok(Self { metadata, text })
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }
    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }
    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }
    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::api::WatchEvent;
    use serde_json::json;

    use super::*;

    fn of(document: &serde_json::Value) -> RawObject {
        serde_json::from_str(&document.to_string()).unwrap()
    }

    #[test]
    fn managed_fields_are_dropped_and_a_bad_object_keeps_its_name() {
        let good = of(&json!({"metadata": {"name": "n", "managedFields": [{"manager": "kubelet"}]}}));
        assert_eq!(good.meta().name.as_deref(), Some("n"));
        assert_eq!(good.decode::<Node>().unwrap().metadata.managed_fields, None);
        let bad = of(&json!({"metadata": {"name": "n"}, "spec": 7}));
        assert_eq!(bad.meta().name.as_deref(), Some("n"));
        assert!(bad.decode::<Node>().unwrap_err().contains("invalid type: integer `7`"));
        assert_eq!(*of(&json!({"metadata": 7})).meta(), ObjectMeta::default());
        assert_eq!(*of(&json!({"metadata": null, "spec": {}})).meta(), ObjectMeta::default());
        assert_eq!(*of(&json!([])).meta(), ObjectMeta::default());
        assert_eq!(
            of(&json!({"apiVersion": {"metadata": {"name": "x"}}, "metadata": {"name": "n"}})).meta().name.as_deref(),
            Some("n")
        );
    }

    #[test]
    fn an_event_of_a_watch_has_one() {
        let text = r#"{"type":"MODIFIED","object":{"metadata":{"name":"n"},"spec":7}}"#;
        let WatchEvent::Modified(bad) = serde_json::from_str::<WatchEvent<RawObject>>(text).unwrap() else {
            panic!("another event")
        };
        assert_eq!(bad.meta().name.as_deref(), Some("n"));
    }
}
