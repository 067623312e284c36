//! The ConfigMap with the [`RuleRecords`] of the cluster.
//!
//! In: what the security group has of which Service, before and after it is written. Out: a ConfigMap that names at least the additional and
//! former public addresses that the group has, whenever the process ends. It is read before the first write of the group, and believed only
//! if it is the object that a manager wrote (a copy from another cluster has another UID) and this process may write it (else it may be years
//! old). Entries of single Services are patched, and those of another manager's Services are left alone. Where the API server does not
//! answer or refuses, Services are served without it, and the next sync of hosts after a minute tries again.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{Patch, PostParams},
};
use serde_json::json;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use crate::{
    cloud_provider::{CloudError, CloudResult, PlannedWrite},
    metrics::Metrics,
    providers::azure::{
        load_balancer::{lease::plan::NAMESPACE, service_index::ServiceIndex},
        metrics::AzureMetrics,
        model::network::NetworkSecurityGroup,
        planner::load_balancer::{
            desired::security_rules::listed_destinations,
            rule_records::{self, CONFIG_MAP, PlannedRecords, RuleRecords},
            spec::{ServiceIdentity, identity_of},
        },
    },
    runtime::{
        clock::Clock,
        patch::{ApiError, ObjectWriter, PatchTarget},
        store::ObjectKey,
    },
};

/// Limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after a failure in which nothing is tried, so that no write of the group waits for another timeout.
const RETRY_DELAY: Duration = Duration::from_secs(60);
/// Services that are looked for at once.
const CONCURRENT_READS: usize = 10;
/// The UID of the ConfigMap itself: a copy has another one.
const OWN_UID: &str = "cloud-controller-manager/uid";

/// What the ConfigMap has, as far as this process knows.
#[derive(Default)]
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

#[derive(Default)]
struct RecordState {
    /// `None`: to be read.
    saved: Option<SavedRecords>,
    /// When it may be read again after a failure.
    retry_at: Option<Instant>,
    /// Whether the ConfigMap may lack something since the last failure.
    is_pending: bool,
    /// Whether the log has why the ConfigMap is out of reach.
    is_reported: bool,
    /// Services of which not everything is recorded.
    omitted: BTreeSet<ServiceIdentity>,
}

/// See the module.
pub(super) struct RuleRecordStore {
    writer: ObjectWriter,
    metrics: Arc<Metrics>,
    clock: Clock,
    state: Mutex<RecordState>,
}

impl RuleRecordStore {
    pub(super) fn new(writer: ObjectWriter, metrics: Arc<Metrics>, clock: Clock) -> Self {
        if let Some(metrics) = metrics.table::<AzureMetrics>() {
            drop(metrics.rows.rule_record_failures.with_label_values::<&str>(&[]));
        }
        Self { writer, metrics, clock, state: Mutex::default() }
    }

    /// Reads the ConfigMap into the memory of this process, unless it knows what is there.
    ///
    /// # Errors
    /// The process does not lead. All other failures are tolerated.
    pub(super) async fn restore(&self, index: &ServiceIndex) -> CloudResult<()> {
        let mut state = self.state.lock().await;
        if state.saved.is_some() || state.retry_at.is_some_and(|at| self.clock.now() < at) {
            return Ok(());
        }
        match self.read_trusted(index).await {
            Ok(read) => {
                if read.is_original {
                    index.with_memory(|memory| memory.restore(read.records.clone()));
                }
                state.saved = Some(read);
                Ok(())
            }
            Err(error) => self.tolerate(&mut state, &error),
        }
    }

    /// Returns what a process that has not restored the records yet would restore, for a plan that is not carried out.
    pub(super) async fn records_for_plan(&self, index: &ServiceIndex) -> RuleRecords {
        if self.state.lock().await.saved.is_some() {
            return RuleRecords::new();
        }
        let read = self.read(index).await.unwrap_or_default();
        if read.is_original { read.records } else { RuleRecords::new() }
    }

    /// Makes the ConfigMap name `records` and no others of this manager. Returns Services that have become too many or too large for it.
    ///
    /// # Errors
    /// The process does not lead. All other failures are tolerated, since Services must not wait for it.
    pub(super) async fn save(&self, records: &RuleRecords, index: &ServiceIndex) -> CloudResult<Vec<ServiceIdentity>> {
        let mut state = self.state.lock().await;
        let (records, omitted) = rule_records::bounded(records);
        if let Some(metrics) = self.metrics.table::<AzureMetrics>() {
            let count = u32::try_from(omitted.len()).unwrap_or(u32::MAX);
            metrics.rows.unrecorded_services.with_label_values::<&str>(&[]).set(count.into());
        }
        let newly_omitted: Vec<_> = omitted.difference(&state.omitted).cloned().collect();
        state.omitted = omitted;
        self.save_bounded(&mut state, records, index).await.map(|()| newly_omitted)
    }

    async fn save_bounded(&self, state: &mut RecordState, records: RuleRecords, index: &ServiceIndex) -> CloudResult<()> {
        // Once more if another client has deleted it, or made another one.
        for _ in 0..2 {
            let Some(before) = &state.saved else { return Ok(()) };
            let changes = rule_records::changes(&before.records, &records);
            if changes.is_empty() {
                state.is_pending = false;
                return Ok(());
            }
            let written = self.write(before.uid.as_deref(), &changes).await;
            let error = match written {
                Ok(uid) => {
                    state.saved = Some(SavedRecords { uid: Some(uid), records, is_original: true });
                    state.is_pending = false;
                    return Ok(());
                }
                Err(error) => error,
            };
            let Some(other) = self.replacement(before, &error, index).await else { return self.tolerate(state, &error) };
            state.saved = Some(other);
        }
        Ok(())
    }

    /// Goes on without the ConfigMap for a while: it is read again, since it may have been written.
    fn tolerate(&self, state: &mut RecordState, error: &ApiError) -> CloudResult<()> {
        if let ApiError::NotLeading(error) = error {
            return Err(CloudError::NotLeader(error.to_string()));
        }
        (state.saved, state.retry_at, state.is_pending) = (None, Some(self.clock.now() + RETRY_DELAY), true);
        if let Some(metrics) = self.metrics.table::<AzureMetrics>() {
            metrics.rows.rule_record_failures.with_label_values::<&str>(&[]).inc();
        }
        if std::mem::replace(&mut state.is_reported, true) {
            tracing::debug!(config_map = %key(), %error, "cannot record whose security rules are whose");
        } else {
            tracing::warn!(
                config_map = %key(), %error,
                "cannot record whose security rules are whose; after a restart, rules may keep former addresses"
            );
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
        read.records.retain(|identity, _| !index.is_others(identity));
        Ok(read)
    }

    /// Reads the ConfigMap. If a manager wrote it, the API server must accept a patch that changes nothing.
    async fn read_trusted(&self, index: &ServiceIndex) -> Result<SavedRecords, ApiError> {
        let read = self.read(index).await?;
        if read.is_original {
            self.write(read.uid.as_deref(), &BTreeMap::new()).await?;
        }
        Ok(read)
    }

    /// Returns the ConfigMap of this name, if the write failed because it is another one than `before`.
    async fn replacement(&self, before: &SavedRecords, error: &ApiError, index: &ServiceIndex) -> Option<SavedRecords> {
        if !matches!(error, ApiError::NotFound(_) | ApiError::Conflict(_) | ApiError::Rejected(_)) {
            return None;
        }
        let read = self.read(index).await.ok()?;
        (read.uid != before.uid).then_some(read)
    }

    /// Patches the ConfigMap with this UID, or creates one. Answers its UID.
    async fn write(&self, uid: Option<&str>, changes: &BTreeMap<String, Option<String>>) -> Result<String, ApiError> {
        let uid = match uid {
            Some(uid) => uid.to_owned(),
            None => self.create().await?,
        };
        // The UID makes it fail when the object is another one by now.
        let patch = Patch::Merge(json!({"metadata": {"uid": uid, "annotations": {OWN_UID: uid}}, "data": changes}));
        let (api, key) = (self.api(), key());
        let patched = self.writer.patch_briefly(&api, &key, PatchTarget::Object, &patch);
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

    /// Reads the ConfigMap if that is due, and records what could not be recorded when `group` was written.
    ///
    /// Also looks for recorded Services that do not exist any more. No Service waits for this.
    pub(super) async fn refresh(&self, group: Option<&NetworkSecurityGroup>, index: &ServiceIndex) -> CloudResult<()> {
        self.restore(index).await?;
        let mut state = self.state.lock().await;
        if let (Some(group), true) = (group, state.is_pending) {
            let listed = listed_destinations([group]);
            let records = index.with_memory(|memory| memory.records([], &listed));
            self.save_bounded(&mut state, rule_records::bounded(&records).0, index).await?;
        }
        drop(state);
        let checked =
            stream::iter(index.note_deleted()).take(CONCURRENT_READS).map(|identity| self.if_deleted(identity, index));
        let deleted: Vec<_> =
            checked.buffer_unordered(CONCURRENT_READS).filter_map(|deleted| async { deleted }).collect().await;
        index.with_memory(|memory| memory.note_deleted(deleted));
        Ok(())
    }

    /// Returns the Service if the API server says that it does not exist or belongs to no manager.
    async fn if_deleted(&self, identity: ServiceIdentity, index: &ServiceIndex) -> Option<ServiceIdentity> {
        let (namespace, name) = identity.key.split_once('/')?;
        let api: Api<Service> = Api::namespaced(self.writer.client().clone(), namespace);
        let is_deleted = match with_timeout(self.writer.get(&api, &ObjectKey::namespaced(namespace, name))).await {
            Ok(service) => identity_of(&service) != identity || !index.takes_part(&service),
            Err(ApiError::NotFound(_)) => true,
            Err(error) => {
                tracing::debug!(service = %identity.key, %error, "cannot check whether a recorded Service exists");
                false
            }
        };
        is_deleted.then_some(identity)
    }
}

/// Returns the writes of the ConfigMap before and after that of the group.
pub(super) fn planned_writes(planned: &PlannedRecords) -> Vec<PlannedWrite> {
    let bounded = |records| rule_records::bounded(records).0;
    let (before, during, after) = (bounded(&planned.before), bounded(&planned.during), bounded(&planned.after));
    let write = |before: &RuleRecords, after: &RuleRecords, then: bool| {
        let changes = rule_records::changes(before, after);
        let target = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{CONFIG_MAP}");
        let reason = "record additional and former public addresses in security rules";
        let patch = || PlannedWrite::patch("config_map", target, reason, json!({"data": changes}));
        (!changes.is_empty()).then(|| PlannedWrite { then, ..patch() })
    };
    write(&before, &during, false).into_iter().chain(write(&during, &after, true)).collect()
}

fn key() -> ObjectKey {
    ObjectKey::namespaced(NAMESPACE, CONFIG_MAP)
}

async fn with_timeout<T>(request: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let late = || ApiError::Failed(format!("no response from the API server within {REQUEST_TIMEOUT:?}"));
    timeout(REQUEST_TIMEOUT, request).await.unwrap_or_else(|_| Err(late()))
}
