//! Writes to the cluster: minimal patches, a leadership check before each, and errors by the next step of the caller.
//!
//! In: the API, the key of an object, and a JSON body. Out: the object as returned by the server. Objects are never read,
//! modified and written as a whole, so fields that this program does not know are kept.

use std::fmt;

use http::{HeaderValue, header::ACCEPT};
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::Request,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    client::with_causes,
    leader_election::{Leadership, NotLeading},
    store::ObjectKey,
};

/// Reason why a request to the API server failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The object does not exist: nothing remains to be done.
    #[error("{0} not found")]
    NotFound(String),
    /// Another writer changed the object in between: read the object and decide again.
    #[error("conflict on {0}")]
    Conflict(String),
    /// RBAC denies the request: the operator must grant the verb that the message names.
    #[error("{0}; grant it in the ClusterRole of this process")]
    Forbidden(String),
    /// The process does not lead, so it must not write.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// The API server is too busy: nothing was written; retry later.
    #[error("{0}")]
    Busy(String),
    /// The API server, or one of its admission webhooks, rejected the request: nothing was written.
    #[error("{0}")]
    Rejected(String),
    /// Any other error. The write may have had an effect: retry with backoff.
    #[error("{0}")]
    Failed(String),
}

impl ApiError {
    /// Classes an error of the client.
    pub fn from_kube(about: impl fmt::Display, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 404 => ApiError::NotFound(about.to_string()),
            kube::Error::Api(status) if status.code == 409 => ApiError::Conflict(about.to_string()),
            kube::Error::Api(status) if status.code == 403 => ApiError::Forbidden(status.message.clone()),
            kube::Error::Api(status) => {
                let message = format!("{about}: {} ({})", status.message, status.code);
                match status.code {
                    429 => ApiError::Busy(message),
                    code if is_refusal(code) => ApiError::Rejected(message),
                    _ => ApiError::Failed(message),
                }
            }
            kube::Error::Service(refused) if refused.is::<NotLeading>() => ApiError::NotLeading(NotLeading),
            other => ApiError::Failed(format!("{about}: {}", with_causes(other))),
        }
    }
}

/// Returns `true` if a status code means that nothing was written, and that a retry will be rejected.
///
/// 408 and 499 are timeouts, so they do not.
fn is_refusal(code: u16) -> bool {
    (400..500).contains(&code) && code != 408 && code != 499
}

/// `Accept` header for responses with the metadata of an object only. A server without support sends the whole object.
const METADATA_ONLY: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=1,application/json");

/// Fields of a brief response that are read.
#[derive(Deserialize)]
struct WrittenObject {
    metadata: WrittenVersion,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenVersion {
    resource_version: String,
}

/// Part of the object that is patched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchTarget {
    Object,
    Status,
}

/// Writer of objects, which all writes to the cluster use.
#[derive(Clone)]
pub struct ObjectWriter {
    client: kube::Client,
    leadership: Leadership,
}

impl ObjectWriter {
    /// Creates a writer that writes while `leadership` holds.
    pub fn new(client: kube::Client, leadership: Leadership) -> Self {
        Self { client, leadership }
    }

    /// Returns the client, for reads.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Returns the leadership that writes require.
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Gets an object from the API server instead of the cache.
    pub async fn get<K>(&self, api: &Api<K>, key: &ObjectKey) -> Result<K, ApiError>
    where
        K: Resource + Clone + DeserializeOwned + fmt::Debug,
    {
        Box::pin(api.get(&key.name)).await.map_err(|error| ApiError::from_kube(key, &error))
    }

    /// Patches `part` of the object at `key`.
    ///
    /// With `resourceVersion` in the body's metadata the server rejects the patch if another writer changed the object in
    /// between ([`ApiError::Conflict`]).
    pub async fn patch<K>(
        &self,
        api: &Api<K>,
        key: &ObjectKey,
        part: PatchTarget,
        patch: &Patch<Value>,
    ) -> Result<K, ApiError>
    where
        K: Resource + Clone + DeserializeOwned + fmt::Debug,
    {
        self.leadership.check()?;
        let params = PatchParams::default();
        // The future is boxed, because otherwise every future that may write would be as large.
        let result = match part {
            PatchTarget::Object => Box::pin(api.patch(&key.name, &params, patch)).await,
            PatchTarget::Status => Box::pin(api.patch_status(&key.name, &params, patch)).await,
        };
        result.map_err(|error| ApiError::from_kube(key, &error))
    }

    /// Patches like [`Self::patch`], but returns only the object's resource version, and has the server send no more than
    /// metadata.
    pub async fn patch_briefly<K: Resource>(
        &self,
        api: &Api<K>,
        key: &ObjectKey,
        part: PatchTarget,
        patch: &Patch<Value>,
    ) -> Result<String, ApiError> {
        self.leadership.check()?;
        let failed = |error: &kube::Error| ApiError::from_kube(key, error);
        let request = metadata_patch(api, key, part, patch).map_err(|error| failed(&error))?;
        let written = Box::pin(self.client.request::<WrittenObject>(request)).await;
        written.map(|written| written.metadata.resource_version).map_err(|error| failed(&error))
    }

    /// Deletes the object at `key` if it still has this UID. [`ApiError::Conflict`] when another object has its name.
    pub async fn delete<K>(&self, api: &Api<K>, key: &ObjectKey, uid: &str) -> Result<(), ApiError>
    where
        K: Resource + Clone + DeserializeOwned + fmt::Debug,
    {
        self.leadership.check()?;
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let result = Box::pin(api.delete(&key.name, &params)).await;
        result.map(|_| ()).map_err(|error| ApiError::from_kube(key, &error))
    }
}

fn metadata_patch<K: Resource>(
    api: &Api<K>,
    key: &ObjectKey,
    part: PatchTarget,
    patch: &Patch<Value>,
) -> Result<http::Request<Vec<u8>>, kube::Error> {
    let (request, params) = (Request::new(api.resource_url()), PatchParams::default());
    let built = match part {
        PatchTarget::Object => request.patch(&key.name, &params, patch),
        PatchTarget::Status => request.patch_subresource("status", &key.name, &params, patch),
    };
    let mut built = built.map_err(kube::Error::BuildRequest)?;
    built.headers_mut().insert(ACCEPT, METADATA_ONLY);
    Ok(built)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn the_status_code_determines_the_error() {
        let class = |code: u16| {
            let status = Status { code, message: "reason".to_owned(), ..Status::default() };
            ApiError::from_kube("n", &kube::Error::Api(Box::new(status)))
        };
        let text = |code: u16| format!("n: reason ({code})");
        for (code, expected) in [
            (404, ApiError::NotFound("n".to_owned())),
            (409, ApiError::Conflict("n".to_owned())),
            (403, ApiError::Forbidden("reason".to_owned())),
            (400, ApiError::Rejected(text(400))),
            (422, ApiError::Rejected(text(422))),
            (429, ApiError::Busy(text(429))),
            (408, ApiError::Failed(text(408))),
            (499, ApiError::Failed(text(499))),
            (500, ApiError::Failed(text(500))),
            (504, ApiError::Failed(text(504))),
        ] {
            assert_eq!(class(code), expected, "{code}");
        }
    }
}
