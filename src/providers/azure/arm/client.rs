//! The ARM client: one path for every request.

use serde::{Serialize, de::DeserializeOwned};

use super::{ApiType, ArmError, ArmResult, ErrorClass, ResourceId, Urgency};

/// Sends requests to ARM. Cheap to clone; a clone may have another urgency.
#[derive(Clone)]
pub struct ArmClient {}

fn skeleton<T>() -> ArmResult<T> {
    Err(ArmError {
        class: ErrorClass::Transient,
        status: None,
        code: String::new(),
        message: "not built yet".to_owned(),
        request: String::new(),
        correlation_id: None,
        retry_after: None,
    })
}

impl ArmClient {
    /// The same client with another urgency.
    pub fn with_urgency(&self, urgency: Urgency) -> Self {
        let _ = urgency;
        self.clone()
    }

    /// One document. A missing one is an error of class `NotFound` (or `ParentNotFound`). `query` is added to `api-version`.
    pub async fn get<D: DeserializeOwned>(
        &self,
        kind: &'static ApiType,
        id: &ResourceId,
        query: &[(&str, &str)],
    ) -> ArmResult<D> {
        let _ = (kind, id, query);
        skeleton()
    }

    /// All pages of the collection at `path`: a group's or resource's id and what follows, e.g. `{group}/providers/Microsoft.Compute/virtualMachines`.
    pub async fn list<D: DeserializeOwned>(
        &self,
        kind: &'static ApiType,
        path: &str,
        query: &[(&str, &str)],
    ) -> ArmResult<Vec<D>> {
        let _ = (kind, path, query);
        skeleton()
    }

    /// Creates or replaces; waits for the operation; answers the document as it is then. `etag` goes into `If-Match`.
    pub async fn put<D: Serialize + DeserializeOwned + Sync>(
        &self,
        kind: &'static ApiType,
        id: &ResourceId,
        etag: Option<&str>,
        document: &D,
    ) -> ArmResult<D> {
        let _ = (kind, id, etag, document);
        skeleton()
    }

    /// Deletes; waits for the operation. Absent before is success.
    pub async fn delete(&self, kind: &'static ApiType, id: &ResourceId) -> ArmResult<()> {
        let _ = (kind, id);
        skeleton()
    }
}
