//! The ConfigMap with the [`RuleRecords`] of the cluster.
//!
//! In: what the security group has of which Service, before and after it is written. Out: a ConfigMap that always names at least what the
//! group has, whenever the process ends. It is read once, before the first write of the group. Entries of single Services are patched, so
//! that another manager's stay. Where the API server refuses the ConfigMap, Services are served without it.

use std::{
    collections::BTreeSet,
    future::Future,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, api::PostParams};
use serde_json::json;
use tokio::{sync::Mutex, time::timeout};

use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        load_balancer::{lease::plan::NAMESPACE, service_index::ServiceIndex},
        planner::load_balancer::{
            rule_records::{self, CONFIG_MAP, RuleRecords},
            spec::{ServiceIdentity, identity_of},
        },
    },
    runtime::{
        patch::{ApiError, ObjectWriter, PatchKind, PatchTarget},
        store::ObjectKey,
    },
};

/// Limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Services that are looked for at once.
const CONCURRENT_READS: usize = 10;

/// See the module.
pub(super) struct RuleRecordStore {
    writer: ObjectWriter,
    /// What the ConfigMap has; `None`: not read yet.
    saved: Mutex<Option<RuleRecords>>,
    /// Whether the log has why the ConfigMap is refused.
    reported: AtomicBool,
}

impl RuleRecordStore {
    pub(super) fn new(writer: ObjectWriter) -> Self {
        Self { writer, saved: Mutex::default(), reported: AtomicBool::new(false) }
    }

    /// Reads the ConfigMap into the memory of this process, once.
    pub(super) async fn restore(&self, index: &ServiceIndex) -> CloudResult<()> {
        let mut saved = self.saved.lock().await;
        if saved.is_some() {
            return Ok(());
        }
        let records = match self.read().await {
            Ok(records) => records,
            Err(error) => self.tolerated(error).map(|()| RuleRecords::new())?,
        };
        let gone = self.gone(&records, index).await;
        index.restore_records(records.clone(), gone);
        *saved = Some(records);
        Ok(())
    }

    /// The same for a plan that nobody carries out: what a leader would remember.
    pub(super) async fn peek(&self) -> RuleRecords {
        match self.saved.lock().await.as_ref() {
            Some(_) => RuleRecords::new(),
            None => self.read().await.unwrap_or_default(),
        }
    }

    /// Makes the ConfigMap name `records` and no others of this manager.
    pub(super) async fn save(&self, records: RuleRecords) -> CloudResult<()> {
        let mut saved = self.saved.lock().await;
        let changes = rule_records::changes(saved.as_ref().unwrap_or(&RuleRecords::new()), &records);
        if changes.is_empty() {
            return Ok(());
        }
        let changed = json!({"data": changes});
        let (api, key) = (self.api(), key());
        let patched = self.writer.patch_briefly(&api, &key, PatchTarget::Object, PatchKind::Merge, changed);
        let written = match with_timeout(patched).await {
            Err(ApiError::NotFound(_)) => self.create(&records).await,
            other => other.map(drop),
        };
        match written {
            Ok(()) => *saved = Some(records),
            Err(error) => self.tolerated(error)?,
        }
        Ok(())
    }

    fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.writer.client().clone(), NAMESPACE)
    }

    async fn read(&self) -> Result<RuleRecords, ApiError> {
        match with_timeout(self.writer.get(&self.api(), &key())).await {
            Ok(map) => Ok(rule_records::decode(&map.data.unwrap_or_default())),
            Err(ApiError::NotFound(_)) => Ok(RuleRecords::new()),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, records: &RuleRecords) -> Result<(), ApiError> {
        self.writer.leadership().check()?;
        let data = rule_records::changes(&RuleRecords::new(), records);
        let data = data.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        let metadata = ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() };
        let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
        let created = async {
            let created = Box::pin(self.api().create(&PostParams::default(), &map)).await;
            created.map(drop).map_err(|error| ApiError::from_kube(key(), &error))
        };
        with_timeout(created).await
    }

    /// Which recorded Services do not exist any more: the API server says so for each by name. Whoever cannot be read may exist.
    async fn gone(&self, records: &RuleRecords, index: &ServiceIndex) -> BTreeSet<ServiceIdentity> {
        let missing = records.keys().filter(|identity| index.service(identity).is_none()).cloned();
        let checked = stream::iter(missing.collect::<Vec<_>>()).map(|identity| async move {
            let (namespace, name) = identity.key.split_once('/')?;
            let api: Api<Service> = Api::namespaced(self.writer.client().clone(), namespace);
            let is_gone = match with_timeout(self.writer.get(&api, &ObjectKey::namespaced(namespace, name))).await {
                Ok(service) => identity_of(&service) != identity,
                Err(error) => matches!(error, ApiError::NotFound(_)),
            };
            is_gone.then_some(identity)
        });
        checked.buffer_unordered(CONCURRENT_READS).filter_map(|gone| async { gone }).collect().await
    }

    /// Services go on without the ConfigMap where the API server will not take it; anything else is tried again.
    fn tolerated(&self, error: ApiError) -> CloudResult<()> {
        match error {
            ApiError::Forbidden(_) | ApiError::Rejected(_) | ApiError::NotFound(_) => {
                if !self.reported.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        config_map = %key(), %error,
                        "cannot record whose security rules are whose; after a restart, rules of former addresses may stay"
                    );
                }
                Ok(())
            }
            ApiError::NotLeading(error) => Err(CloudError::NotLeader(error.to_string())),
            error => Err(CloudError::failed(format!("record whose security rules are whose: {error}"))),
        }
    }
}

fn key() -> ObjectKey {
    ObjectKey::namespaced(NAMESPACE, CONFIG_MAP)
}

async fn with_timeout<T>(request: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let late = || ApiError::Failed(format!("no response from the API server within {REQUEST_TIMEOUT:?}"));
    timeout(REQUEST_TIMEOUT, request).await.unwrap_or_else(|_| Err(late()))
}
