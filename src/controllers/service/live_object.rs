//! Reads and patches of one Service at the API server.
//!
//! In: patches made from cached Services. Out: Services as the server has them, pruned for the cache.

use std::sync::{Arc, atomic::Ordering};

use k8s_openapi::api::core::v1::Service;
use kube::{Api, api::Patch};
use serde_json::Value;

use super::{
    conditions,
    plan::{ServiceSyncError, SyncResult},
    prune,
    reconcile::ServiceController,
};
use crate::runtime::{
    patch::{ApiError, PatchTarget},
    store::ObjectKey,
};

impl ServiceController {
    fn api(&self, key: &ObjectKey) -> Api<Service> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    pub(super) async fn patch(&self, key: &ObjectKey, body: Value, operation: &'static str) -> SyncResult<Arc<Service>> {
        let replaced = body["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let is_own = |condition: &Value| condition["type"] == conditions::CONDITION_TYPE;
        let has_condition = body["status"]["conditions"].as_array().is_some_and(|conditions| conditions.iter().any(is_own));
        let body = self.with_whole_lists(key, body).await.map_err(|error| ServiceSyncError::Api { operation, error })?;
        let result = self.context.writer.patch(&self.api(key), key, PatchTarget::Status, &Patch::Merge(body)).await;
        self.missing_right.observe(self.context.writer.client(), &key.namespace, result.as_ref().err()).await;
        let written: Service = result.map_err(|error| ServiceSyncError::Api { operation, error })?;
        if written.metadata.resource_version != replaced {
            self.cache().mark_replaced(key, replaced.as_deref());
        }
        if has_condition && conditions::current(&written).is_none() {
            self.conditions_are_dropped.store(true, Ordering::Relaxed);
        }
        Ok(Arc::new(self.services.pruned(written)))
    }

    /// Returns `body` with the finalizers and conditions that the cache omits of a Service with many, because a patch replaces the lists.
    async fn with_whole_lists(&self, key: &ObjectKey, mut body: Value) -> Result<Value, ApiError> {
        if !prune::replaces_cut_list(&body) {
            return Ok(body);
        }
        let live: Service = self.context.writer.get(&self.api(key), key).await?;
        if live.metadata.resource_version.as_deref() != body["metadata"]["resourceVersion"].as_str() {
            return Err(ApiError::Conflict(key.to_string()));
        }
        let cached = self.services.pruned(live.clone());
        prune::complete_lists(&mut body, &cached, &live);
        Ok(body)
    }

    /// Returns the Service of the store.
    ///
    /// While a list is pending, the watch may have missed a change. A cached Service that the store lacks is then read from the server.
    pub(super) async fn current(&self, key: &ObjectKey) -> SyncResult<Option<Arc<Service>>> {
        let (is_complete, is_tracked) = (self.services.proves_absence(), self.cache().get(key).is_some());
        match self.services.get(key) {
            None if is_tracked && !is_complete => self.read(key).await,
            stored => Ok(stored),
        }
    }

    /// Reads the Service from the server; `None` if it does not exist.
    pub(super) async fn read(&self, key: &ObjectKey) -> SyncResult<Option<Arc<Service>>> {
        match self.context.writer.get(&self.api(key), key).await {
            Ok(service) => Ok(Some(Arc::new(self.services.pruned(service)))),
            Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(ServiceSyncError::Api { operation: "failed to read the Service", error }),
        }
    }
}
