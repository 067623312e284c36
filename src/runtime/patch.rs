//! Writing to the cluster: minimal patches, leadership checked at each, errors classed by the caller's next move.
//!
//! In: a typed api call's coordinates and a JSON body. Out: the object as the server has it now. Nothing is ever read, modified and
//! PUT back, so fields that this program does not know survive.

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
    /// The object is gone: nothing left to do.
    #[error("{0} not found")]
    NotFound(String),
    /// Another writer changed the object in between: read and decide again.
    #[error("conflict on {0}")]
    Conflict(String),
    /// RBAC forbids it: the operator has to grant the verb that the message names.
    #[error("{0}; grant it in the ClusterRole of this process")]
    Forbidden(String),
    /// The process may not write now.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// The API server is too busy: nothing was written, try later.
    #[error("{0}")]
    Busy(String),
    /// The API server, or one of its admission webhooks, rejected the request: nothing was written.
    #[error("{0}")]
    Rejected(String),
    /// Any other error, after which the write may have happened or not: retry with backoff.
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

/// Returns `true` if a status means that nothing was written, and that a repetition will be rejected: 408 and 499 are those
/// of timeouts.
fn is_refusal(code: u16) -> bool {
    (400..500).contains(&code) && code != 408 && code != 499
}

/// For answers that carry no more of an object than its metadata. A server that cannot sends the whole object.
const METADATA_ONLY: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=1,application/json");

/// Fields that are read of a brief response.
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

/// The only way to write objects to the cluster.
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

    /// Reads an object afresh.
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
        // Boxed, because otherwise every future that may write reserves room for it all the time.
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
    fn an_answer_says_what_to_do_next() {
        let class = |code: u16| {
            let status = Status { code, message: "told".to_owned(), ..Status::default() };
            ApiError::from_kube("n", &kube::Error::Api(Box::new(status)))
        };
        let told = |code: u16| format!("n: told ({code})");
        for (code, expected) in [
            (404, ApiError::NotFound("n".to_owned())),
            (409, ApiError::Conflict("n".to_owned())),
            (403, ApiError::Forbidden("told".to_owned())),
            (400, ApiError::Rejected(told(400))),
            (422, ApiError::Rejected(told(422))),
            (429, ApiError::Busy(told(429))),
            (408, ApiError::Failed(told(408))),
            (499, ApiError::Failed(told(499))),
            (500, ApiError::Failed(told(500))),
            (504, ApiError::Failed(told(504))),
        ] {
            assert_eq!(class(code), expected, "{code}");
        }
    }
}
