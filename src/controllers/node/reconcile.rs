//! The shell of the node controller: reads the store, requests metadata from the cloud, lets `plan` and [`crate::node`]
//! decide, writes.
//!
//! At most two writes initialize a Node: its addresses (status), then all the rest with the taint. Both carry the resource
//! version they were decided on, the second the one that the first returned. After a conflict the Node is read live and
//! decided again.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use kube::api::Patch;
use serde_json::Value;
use tokio::sync::SemaphorePermit;

use super::{NodeController, events, plan};
use crate::{
    cloud_provider::{CloudError, InstanceMetadata},
    controllers::{after_cloud_error, after_write_error},
    node::{
        addresses, age_in_seconds,
        initialize::{NodeInitialization, initialize},
        patch::{self, NodeChanges},
        routes, taints, uid,
    },
    runtime::{
        patch::{ApiError, PatchTarget},
        store::ObjectKey,
        work_queue::ReconcileResult,
    },
};

/// Decisions after conflicts before the key backs off.
const ATTEMPTS: usize = 5;

/// Result of one write attempt.
enum WriteAttempt {
    Finished(ReconcileResult),
    /// Another writer changed the Node in between.
    Conflict,
}

/// State that the attempts at one Node share.
#[derive(Default)]
struct InitializationAttempts<'a> {
    described: Option<DescribedInstance>,
    /// Write permit, kept across conflicts: after giving it up, this Node would wait behind all others and conflict again.
    write_permit: Option<SemaphorePermit<'a>>,
}

/// Metadata of the instance of the Node with this UID.
struct DescribedInstance {
    uid: String,
    metadata: InstanceMetadata,
}

impl NodeController {
    pub(super) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> ReconcileResult {
        let Some(node) = self.current(&key) else { return ReconcileResult::Done };
        match self.kind_of(&node) {
            plan::NodeKind::Foreign => {
                self.allocate_pod_cidrs_separately(&node);
                self.context.events.record(events::foreign(&node, self.provider.provider_name()));
                return ReconcileResult::Done;
            }
            plan::NodeKind::NeverInitialized => self.context.events.record(events::without_provider_id(&node)),
            plan::NodeKind::Ordinary => {}
        }
        let outcome = self.reconcile_node(&key, Arc::clone(&node)).await;
        if outcome != ReconcileResult::Done {
            self.allocate_pod_cidrs_separately(&node);
        }
        outcome
    }

    /// Allocates the pod CIDRs without waiting for the initialization.
    fn allocate_pod_cidrs_separately(&self, node: &Node) {
        if let Some(pod_cidrs) = &self.pod_cidrs {
            pod_cidrs.allocate_separately(node);
        }
    }

    async fn reconcile_node(&self, key: &ObjectKey, mut node: Arc<Node>) -> ReconcileResult {
        let mut shared = InitializationAttempts::default();
        for _ in 0..ATTEMPTS {
            match self.attempt(&mut node, &mut shared).await {
                WriteAttempt::Finished(outcome) => return outcome,
                WriteAttempt::Conflict => match self.read_live(key).await {
                    Ok(live) => node = live,
                    Err(outcome) => return outcome,
                },
            }
        }
        ReconcileResult::Failed(format!("{key} was changed by other writers at each attempt"))
    }

    async fn attempt<'a>(&'a self, node: &mut Arc<Node>, shared: &mut InitializationAttempts<'a>) -> WriteAttempt {
        match plan::next_action(node, self.config.reconciles_beta_labels()) {
            plan::NodeAction::Nothing => WriteAttempt::Finished(ReconcileResult::Done),
            plan::NodeAction::UpdateLabels(changes) => {
                let written = self.write(node, PatchTarget::Object, patch::node(node, &changes)).await;
                self.after_write(written.map(drop))
            }
            plan::NodeAction::Initialize => match self.initialization(node, shared).await {
                // Boxed to keep the future of a Node that waits for its permit small.
                Ok(initialization) => self.after_write(Box::pin(self.apply(node, initialization)).await),
                Err(outcome) => WriteAttempt::Finished(outcome),
            },
        }
    }

    /// Returns the initialization of `node` once it has a write permit, or the outcome of the reconcile without one.
    ///
    /// The metadata is requested once, however often other writers cause a conflict, but metadata of an earlier Node of this
    /// name is not used.
    async fn initialization<'a>(
        &'a self,
        node: &mut Arc<Node>,
        shared: &mut InitializationAttempts<'a>,
    ) -> Result<NodeInitialization, ReconcileResult> {
        let metadata = match shared.described.take().filter(|described| described.uid == uid(node)) {
            Some(described) => described.metadata,
            None => self.describe(node).await?,
        };
        if shared.write_permit.is_none() {
            if let Some(pod_cidrs) = &self.pod_cidrs {
                pod_cidrs.wait_until_decided().await;
            }
            // The semaphore is never closed.
            shared.write_permit = self.writes.acquire().await.ok();
            self.refresh_from_store(node);
        }
        if !taints::is_uninitialized(node) {
            // Another component initialized it meanwhile, and that watch event has enqueued the key again.
            return Err(ReconcileResult::Done);
        }
        let initialization = initialize(node, &metadata, self.config.sets_beta_labels());
        shared.described = Some(DescribedInstance { uid: uid(node).to_owned(), metadata });
        initialization.map_err(|error| {
            self.context.events.record(events::initialization_failed(node, &error));
            ReconcileResult::Failed(error.to_string())
        })
    }

    /// Replaces `node` by the version in the store, which may have changed while this one waited for a permit: writing the
    /// old version would conflict.
    fn refresh_from_store(&self, node: &mut Arc<Node>) {
        let stored = self.current(&ObjectKey::of(&**node));
        if let Some(stored) = stored.filter(|stored| uid(stored) == uid(node)) {
            *node = stored;
        }
    }

    /// Returns the metadata of the instance, or the outcome of the reconcile without it.
    async fn describe(&self, node: &Arc<Node>) -> Result<InstanceMetadata, ReconcileResult> {
        let retry_interval = self.config.status_update_frequency;
        match self.metadata_batcher.fetch(node).await {
            Ok(Some(metadata)) => Ok(metadata),
            Ok(None) => {
                self.context.events.record(events::no_instance(node));
                Err(ReconcileResult::RequeueAfter(retry_interval, plan::NO_INSTANCE.to_owned()))
            }
            Err(error) => {
                // Needed here, because this key is not retried if another component initializes the Node.
                self.allocate_pod_cidrs_separately(node);
                self.context.events.record(events::metadata_failed(node, &error));
                Err(after_cloud_error(&error, retry_interval))
            }
        }
    }

    /// Writes the initialization. A Node that waits for its first route keeps the taint, and its condition reports the reason.
    async fn apply(&self, node: &Node, initialization: NodeInitialization) -> Result<(), ApiError> {
        let dropped_labels = initialization.dropped_labels.iter();
        dropped_labels.for_each(|dropped| tracing::warn!(node = crate::node::name(node), "{dropped}"));
        if !plan::awaits_route(node, self.config.waits_for_routes) {
            return self.finish(node, initialization).await;
        }
        let newest = self.write_all(node, &routes::without_taint_removal(initialization)).await?;
        if let Some(condition) = routes::network_unavailable_patch(node, self.context.clock.wall()) {
            let condition = patch::at_newest(condition, newest.as_deref());
            let (key, nodes) = (ObjectKey::of(node), self.context.nodes());
            self.context.writer.patch(&nodes, &key, PatchTarget::Status, &Patch::Strategic(condition)).await?;
            self.context.events.record(events::waiting_for_routes(node));
        }
        Ok(())
    }

    /// Writes the addresses, then everything else. Returns the Node's version, or `None` if nothing was written.
    ///
    /// Of the first response only the version is retained, because thousands of Nodes may wait for their second write.
    async fn write_all(&self, node: &Node, initialization: &NodeInitialization) -> Result<Option<String>, ApiError> {
        let mut newest = None;
        if let Some(addresses) = &initialization.addresses {
            newest = Some(self.write(node, PatchTarget::Status, patch::addresses(node, addresses)).await?);
        }
        if initialization.changes.is_empty() {
            return Ok(newest);
        }
        let body = patch::at_newest(patch::node(node, &initialization.changes), newest.as_deref());
        self.write_with_pod_cidrs(node, body).await.map(Some)
    }

    /// Writes `body`, with the pod CIDRs that the Node needs if this process allocates them.
    async fn write_with_pod_cidrs(&self, node: &Node, mut body: Value) -> Result<String, ApiError> {
        let version = body["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let version = version.as_deref();
        let allocated = self.pod_cidrs.as_ref().and_then(|pod_cidrs| Some((pod_cidrs, pod_cidrs.spec_for(node, version)?)));
        let Some((pod_cidrs, spec)) = allocated else { return self.write(node, PatchTarget::Object, body).await };
        for (field, value) in spec {
            body["spec"][field] = value;
        }
        let written = self.write(node, PatchTarget::Object, body).await;
        pod_cidrs.settle(node, version, written.as_ref().err());
        written
    }

    /// Writes everything, the removal of the taint last, and records the event and the metrics of the initialization.
    async fn finish(&self, node: &Node, initialization: NodeInitialization) -> Result<(), ApiError> {
        if self.write_all(node, &initialization).await?.is_none() {
            return Ok(());
        }
        let age = age_in_seconds(node, self.context.clock.wall());
        self.context.metrics.node_taint_removal_delay.with_label_values::<&str>(&[]).observe(age);
        self.context.metrics.node_initial_sync_delay.with_label_values::<&str>(&[]).observe(age);
        self.context.events.record(events::synced(node));
        Ok(())
    }

    /// Writes the changes of an initialized Node: its addresses, then its labels.
    async fn refresh(&self, node: &Node, new: Option<Vec<NodeAddress>>, changes: NodeChanges) -> Result<(), ApiError> {
        let mut newest = None;
        if let Some(new) = new {
            newest = Some(self.write(node, PatchTarget::Status, patch::addresses(node, &new)).await?);
        }
        if !changes.is_empty() {
            let body = patch::at_newest(patch::node(node, &changes), newest.as_deref());
            self.write(node, PatchTarget::Object, body).await?;
            self.after_label_update(node, &changes.labels);
        }
        Ok(())
    }

    /// Updates the addresses of an initialized Node, and with `--reconcile-node-labels` its labels.
    pub(super) async fn update_addresses(self: Arc<Self>, key: ObjectKey) -> ReconcileResult {
        let Some(mut node) = self.current(&key) else { return ReconcileResult::Done };
        if taints::is_uninitialized(&node) {
            return ReconcileResult::Done;
        }
        let retry_interval = self.config.status_update_frequency;
        let metadata = match self.address_batcher.fetch(&node).await {
            Ok(Some(metadata)) => metadata,
            // The node-lifecycle controller decides about Nodes without an instance.
            Ok(None) | Err(CloudError::InstanceNotFound) => return ReconcileResult::Done,
            // No event: an outage of the cloud would mean one for each Node.
            Err(error) => return after_cloud_error(&error, retry_interval),
        };
        self.compare_labels(&node, &metadata);
        let node_uid = uid(&node).to_owned();
        for _ in 0..ATTEMPTS {
            if taints::is_uninitialized(&node) || uid(&node) != node_uid {
                return ReconcileResult::Done;
            }
            let attempt = match addresses::changed(&node, &metadata.node_addresses) {
                Ok(new) => self.refresh(&node, new, self.label_changes(&node, &metadata)).await,
                Err(error) => {
                    self.context.events.record(events::addresses_failed(&node, &error));
                    return ReconcileResult::RequeueAfter(retry_interval, error.to_string());
                }
            };
            match self.after_write(attempt) {
                WriteAttempt::Finished(outcome) => return outcome,
                WriteAttempt::Conflict => match self.read_live(&key).await {
                    Ok(live) => node = live,
                    Err(outcome) => return outcome,
                },
            }
        }
        ReconcileResult::Failed(format!("{key} was changed by other writers at each attempt"))
    }

    fn after_write(&self, result: Result<(), ApiError>) -> WriteAttempt {
        match result {
            Ok(()) => {
                *self.forbidden.lock() = None;
                WriteAttempt::Finished(ReconcileResult::Done)
            }
            Err(ApiError::Conflict(_)) => WriteAttempt::Conflict,
            Err(error) => WriteAttempt::Finished(after_write_error(&error, &self.forbidden)),
        }
    }

    /// Patches `node` and returns its new resource version.
    async fn write(&self, node: &Node, part: PatchTarget, body: Value) -> Result<String, ApiError> {
        let key = ObjectKey::of(node);
        let base_version = body["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let written = self.context.writer.patch_briefly(&self.context.nodes(), &key, part, &Patch::Merge(body)).await?;
        if let Some(version) = base_version.filter(|version| *version != written) {
            self.replaced.lock().entry(key).or_default().push(version);
        }
        Ok(written)
    }

    async fn read_live(&self, key: &ObjectKey) -> Result<Arc<Node>, ReconcileResult> {
        self.context
            .writer
            .get(&self.context.nodes(), key)
            .await
            .map(Arc::new)
            .map_err(|error| after_write_error(&error, &self.forbidden))
    }

    /// Returns the Node in the store, unless this process has replaced that version: then the watch brings the newer one,
    /// which enqueues this key again if work remains.
    fn current(&self, key: &ObjectKey) -> Option<Arc<Node>> {
        let node = self.nodes.get(key);
        let mut replaced = self.replaced.lock();
        let version = node.as_ref()?.metadata.resource_version.as_ref();
        match replaced.get(key) {
            Some(versions) if version.is_some_and(|version| versions.contains(version)) => None,
            Some(_) => {
                replaced.remove(key);
                node
            }
            None => node,
        }
    }

    pub(super) fn forget_deleted(&self) {
        self.replaced.lock().retain(|key, _| self.nodes.get(key).is_some());
    }
}
