//! The ConfigMap with the [`RuleRecords`] of the cluster.
//!
//! In: what the security group has of which Service, before and after it is written. Out: a ConfigMap that names at least what the group
//! has, whenever the process ends. It is read before the first write of the group, and believed only if it is the object that a manager
//! wrote (a copy from another cluster has another UID) and this process may write it (else it may be years old). Entries of single Services
//! are patched, and those of another manager's Services are left alone. Where the API server refuses the ConfigMap, Services are served
//! without it.

use std::{
    collections::{BTreeMap, BTreeSet},
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
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::timeout};

use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        load_balancer::{
            lease::plan::NAMESPACE,
            service_index::{ServiceIndex, ServiceOwner},
        },
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
/// The UID of the ConfigMap itself: a copy has another one.
const OWN_UID: &str = "cloud-controller-manager/uid";

/// What the ConfigMap has, as far as this process knows.
#[derive(Clone, Default)]
struct SavedRecords {
    /// `None`: there is no ConfigMap.
    uid: Option<String>,
    records: RuleRecords,
    /// Whether a manager wrote them into this very object.
    is_original: bool,
}

impl SavedRecords {
    fn of(map: ConfigMap) -> Self {
        let marked = map.metadata.annotations.and_then(|mut annotations| annotations.remove(OWN_UID));
        let is_original = marked.is_some() && marked == map.metadata.uid;
        Self { uid: map.metadata.uid, records: rule_records::decode(&map.data.unwrap_or_default()), is_original }
    }
}

/// See the module.
pub(super) struct RuleRecordStore {
    writer: ObjectWriter,
    /// `None`: to be read.
    saved: Mutex<Option<SavedRecords>>,
    /// Whether the log has why the ConfigMap cannot be written.
    reported: AtomicBool,
}

impl RuleRecordStore {
    pub(super) fn new(writer: ObjectWriter) -> Self {
        Self { writer, saved: Mutex::default(), reported: AtomicBool::new(false) }
    }

    /// Reads the ConfigMap into the memory of this process, unless it knows what is there.
    pub(super) async fn restore(&self, index: &ServiceIndex) -> CloudResult<()> {
        let mut saved = self.saved.lock().await;
        if saved.is_some() {
            return Ok(());
        }
        let read = match self.read(index).await {
            Ok(read) => read,
            Err(ApiError::Forbidden(reason)) => {
                self.report(&reason);
                SavedRecords::default()
            }
            Err(error) => return Err(CloudError::failed(format!("read whose security rules are whose: {error}"))),
        };
        if read.is_original && self.is_writable(&read).await {
            let gone = self.gone(&read.records, index).await;
            index.restore_records(read.records.clone(), gone);
        }
        *saved = Some(read);
        Ok(())
    }

    /// Returns what a process that has not restored the records yet would restore, for a plan that is not carried out.
    pub(super) async fn records_for_plan(&self, index: &ServiceIndex) -> RuleRecords {
        if self.saved.lock().await.is_some() {
            return RuleRecords::new();
        }
        let read = self.read(index).await.unwrap_or_default();
        if read.is_original { read.records } else { RuleRecords::new() }
    }

    /// Makes the ConfigMap name `records` and no others of this manager. Failures are tolerated, since Services must not wait for it.
    pub(super) async fn save(&self, records: RuleRecords, index: &ServiceIndex) -> CloudResult<()> {
        let mut saved = self.saved.lock().await;
        // Once more if somebody has deleted it, or made another one.
        for _ in 0..2 {
            let before = saved.get_or_insert_default();
            let changes = rule_records::changes(&before.records, &records);
            if changes.is_empty() {
                return Ok(());
            }
            match self.write(before.uid.as_deref(), &changes).await {
                Ok(uid) => {
                    *before = SavedRecords { uid: Some(uid), records, is_original: true };
                    return Ok(());
                }
                Err(ApiError::NotFound(_)) => *before = SavedRecords::default(),
                Err(ApiError::NotLeading(error)) => return Err(CloudError::NotLeader(error.to_string())),
                Err(error) => {
                    if let Some(other) = self.replacement(before, index).await {
                        *before = other;
                        continue;
                    }
                    self.report(&error);
                    if !matches!(error, ApiError::Rejected(_)) {
                        // It may have been written.
                        *saved = None;
                    } else if self.write(before.uid.as_deref(), &removals(&changes)).await.is_ok() {
                        before.records.retain(|identity, _| records.contains_key(identity));
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.writer.client().clone(), NAMESPACE)
    }

    /// What the ConfigMap has, without Services of other managers.
    async fn read(&self, index: &ServiceIndex) -> Result<SavedRecords, ApiError> {
        let mut read = match with_timeout(self.writer.get(&self.api(), &key())).await {
            Ok(map) => SavedRecords::of(map),
            Err(ApiError::NotFound(_)) => return Ok(SavedRecords::default()),
            Err(error) => return Err(error),
        };
        read.records.retain(|identity, _| index.owner(identity) != ServiceOwner::Others);
        Ok(read)
    }

    /// The ConfigMap of this name, if it is another one than `before`.
    async fn replacement(&self, before: &SavedRecords, index: &ServiceIndex) -> Option<SavedRecords> {
        let read = self.read(index).await.ok()?;
        (read.uid.is_some() && read.uid != before.uid).then_some(read)
    }

    /// Whether a patch that changes nothing is accepted.
    async fn is_writable(&self, read: &SavedRecords) -> bool {
        let written = self.write(read.uid.as_deref(), &BTreeMap::new()).await;
        written.inspect_err(|error| self.report(error)).is_ok()
    }

    /// Patches the ConfigMap with this UID, or creates one. Answers its UID.
    async fn write(&self, uid: Option<&str>, changes: &BTreeMap<String, Option<String>>) -> Result<String, ApiError> {
        let uid = match uid {
            Some(uid) => uid.to_owned(),
            None => self.create().await?,
        };
        // The UID makes it fail when the object is another one by now.
        let body: Value = json!({"metadata": {"uid": uid, "annotations": {OWN_UID: uid}}, "data": changes});
        let (api, key) = (self.api(), key());
        let patched = self.writer.patch_briefly(&api, &key, PatchTarget::Object, PatchKind::Merge, body);
        with_timeout(patched).await.map(|_| uid)
    }

    async fn create(&self) -> Result<String, ApiError> {
        self.writer.leadership().check()?;
        let metadata = ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        let created = async {
            let created = Box::pin(self.api().create(&PostParams::default(), &map)).await;
            created.map_err(|error| ApiError::from_kube(key(), &error))
        };
        Ok(with_timeout(created).await?.metadata.uid.unwrap_or_default())
    }

    /// Which recorded Services do not exist any more, or are no manager's: the API server says so for each by name. One that cannot be read
    /// may exist.
    async fn gone(&self, records: &RuleRecords, index: &ServiceIndex) -> BTreeSet<ServiceIdentity> {
        let missing = records.keys().filter(|identity| index.owner(identity) == ServiceOwner::Nobody).cloned();
        let checked = stream::iter(missing.collect::<Vec<_>>()).map(|identity| async move {
            let (namespace, name) = identity.key.split_once('/')?;
            let api: Api<Service> = Api::namespaced(self.writer.client().clone(), namespace);
            let is_gone = match with_timeout(self.writer.get(&api, &ObjectKey::namespaced(namespace, name))).await {
                Ok(service) => identity_of(&service) != identity || !index.takes_part(&service),
                Err(ApiError::NotFound(_)) => true,
                Err(error) => {
                    self.report(&error);
                    false
                }
            };
            is_gone.then_some(identity)
        });
        checked.buffer_unordered(CONCURRENT_READS).filter_map(|gone| async { gone }).collect().await
    }

    /// Logs once why the ConfigMap is out of reach.
    fn report(&self, error: &dyn std::fmt::Display) {
        if self.reported.swap(true, Ordering::Relaxed) {
            return tracing::debug!(config_map = %key(), %error, "cannot record whose security rules are whose");
        }
        tracing::warn!(
            config_map = %key(), %error,
            "cannot record whose security rules are whose; after a restart, rules may keep former addresses"
        );
    }
}

fn removals(changes: &BTreeMap<String, Option<String>>) -> BTreeMap<String, Option<String>> {
    changes.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| (key.clone(), None)).collect()
}

fn key() -> ObjectKey {
    ObjectKey::namespaced(NAMESPACE, CONFIG_MAP)
}

async fn with_timeout<T>(request: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let late = || ApiError::Failed(format!("no response from the API server within {REQUEST_TIMEOUT:?}"));
    timeout(REQUEST_TIMEOUT, request).await.unwrap_or_else(|_| Err(late()))
}
