//! State of the server as typed objects, for tests: no HTTP, no faults, no record of requests.
//!
//! These calls play "the rest of the cluster" (kubelets, users, other controllers). Objects that the API would refuse are
//! errors of the test and panic with the API's message.

use std::fmt;

use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    api_server::ApiServer,
    kinds::{self, Kind},
    refusal::Refusal,
    storage::{Preconditions, key_of},
    strategy::{self, Origin, Part},
};
use crate::runtime::store::ObjectKey;

/// Requirements of the typed calls on a kind.
pub trait Object: Resource<DynamicType = ()> + Serialize + DeserializeOwned + fmt::Debug + Clone {}

impl<K> Object for K where K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + fmt::Debug + Clone {}

#[expect(clippy::panic, reason = "a mistake in a test ends the test")]
#[track_caller]
fn must<T>(result: Result<T, Refusal>) -> T {
    match result {
        Ok(value) => value,
        Err(refusal) => panic!("the sandbox refuses: {} ({})", refusal.message, refusal.code),
    }
}

fn encode<K: Object>(object: &K) -> Result<Value, Refusal> {
    serde_json::to_value(object).map_err(|error| Refusal::bad_request(error.to_string()))
}

fn decode<K: Object>(object: &Value) -> Result<K, Refusal> {
    K::deserialize(object).map_err(|error| Refusal::bad_request(error.to_string()))
}

fn kind_of<K: Object>() -> Result<&'static Kind, Refusal> {
    let (api_version, kind) = (K::api_version(&()), K::kind(&()));
    kinds::by_type(&api_version, &kind)
        .ok_or_else(|| Refusal::bad_request(format!("the sandbox does not know {api_version} {kind}")))
}

impl ApiServer {
    /// Creates `object`, with its namespace if that is missing. Its status is kept, as if it had been written right after.
    #[track_caller]
    pub fn create<K: Object>(&self, object: &K) -> K {
        let kind = must(kind_of::<K>());
        let mut value = must(encode(object));
        let namespace = key_of(&value).namespace;
        let namespace = if kind.namespaced && namespace.is_empty() { "default".to_owned() } else { namespace };
        if kind.namespaced {
            self.ensure_namespace(&namespace);
        }
        if let Some(meta) = value["metadata"].as_object_mut() {
            meta.remove("resourceVersion");
        }
        let status = value.get("status").filter(|status| !status.is_null()).cloned();
        let write = self.write_now();
        let created = self.with_storage(|storage| {
            let created = storage.create(kind, &namespace, value, write)?;
            let Some(status) = status.filter(|status| kind.status && created["status"] != *status) else {
                return Ok(created);
            };
            let mut object = (*created).clone();
            object["status"] = status;
            storage.update(kind, &key_of(&created), object, (Part::Status, Origin::Put), write)
        });
        must(created.and_then(|created| decode(&created)))
    }

    /// Stores `object` as a backup has it, replacing any existing object: UID, allocations, finalizers and status are
    /// unchanged. Its namespace is created if it is missing.
    #[track_caller]
    pub fn restore<K: Object>(&self, object: &K) -> K {
        let kind = must(kind_of::<K>());
        let mut value = must(encode(object));
        if kind.namespaced && key_of(&value).namespace.is_empty() {
            value["metadata"]["namespace"] = json!("default");
        }
        let key = key_of(&value);
        if kind.namespaced {
            self.ensure_namespace(&key.namespace);
        }
        let write = self.write_now();
        if value["metadata"]["creationTimestamp"].is_null() {
            value["metadata"]["creationTimestamp"] = json!(strategy::timestamp(write.now));
        }
        must(decode(&self.with_storage(|storage| storage.insert_unchecked(kind, value, write))))
    }

    /// Returns the object at `namespace` (empty for kinds without) and `name`. `None` as well if it is malformed.
    #[track_caller]
    pub fn get<K: Object>(&self, namespace: &str, name: &str) -> Option<K> {
        let kind = must(kind_of::<K>());
        let found = self.with_storage(|storage| storage.get(kind, &ObjectKey::namespaced(namespace, name)));
        decode(&*found.ok()?).ok()
    }

    /// Returns all objects of the kind, by namespace and name. Malformed ones are left out.
    #[track_caller]
    pub fn list<K: Object>(&self) -> Vec<K> {
        let kind = must(kind_of::<K>());
        let objects = must(self.with_storage(|storage| storage.list(kind, storage.revision())));
        objects.values().filter_map(|object| decode(object).ok()).collect()
    }

    /// Changes the object at `namespace` and `name`, its status too. Fields that the type lacks are kept.
    #[track_caller]
    pub fn update_with<K: Object>(&self, namespace: &str, name: &str, change: impl FnOnce(&mut K)) -> K {
        let (kind, key) = (must(kind_of::<K>()), ObjectKey::namespaced(namespace, name));
        let write = self.write_now();
        let updated = self.with_storage(|storage| {
            let old = storage.get(kind, &key)?;
            let mut object: K = decode(&old)?;
            let before = encode(&object)?;
            change(&mut object);
            let mut value = (*old).clone();
            let difference = json_patch::diff(&before, &encode(&object)?);
            json_patch::patch(&mut value, &difference).map_err(|error| Refusal::bad_request(error.to_string()))?;
            let mut updated = storage.update(kind, &key, value.clone(), (Part::Main, Origin::Patch), write)?;
            if kind.status && storage.get(kind, &key).is_ok() && updated["status"] != value["status"] {
                value["metadata"] = updated["metadata"].clone();
                updated = storage.update(kind, &key, value, (Part::Status, Origin::Patch), write)?;
            }
            Ok(updated)
        });
        must(updated.and_then(|updated| decode(&updated)))
    }

    /// Deletes the object at `namespace` and `name`, or marks it while it has finalizers. Returns `false` if it did not
    /// exist.
    #[track_caller]
    pub fn delete<K: Object>(&self, namespace: &str, name: &str) -> bool {
        let (kind, key) = (must(kind_of::<K>()), ObjectKey::namespaced(namespace, name));
        let write = self.write_now();
        match self.with_storage(|storage| storage.delete(kind, &key, &Preconditions::default(), write)) {
            Err(refusal) if refusal.code == 404 => false,
            result => {
                must(result);
                true
            }
        }
    }

    pub(super) fn ensure_namespace(&self, name: &str) {
        let object = json!({"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}});
        if self.get::<Namespace>("", name).is_none() {
            let write = self.write_now();
            must(self.with_storage(|storage| storage.create(&kinds::NAMESPACE, "", object, write)));
        }
    }
}
