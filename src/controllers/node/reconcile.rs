//! The shell of the node controller: reads the store, asks the cloud, lets `plan` and [`crate::node`] decide, writes.
//!
//! At most two writes initialise a Node: its addresses (status), then all the rest with the taint. Both carry the resource version
//! they were decided on, the second that which the first one answered. After a conflict the Node is read live and decided anew.

use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use kube::Api;
use serde_json::Value;
use tokio::sync::SemaphorePermit;

use super::{NodeController, events, metadata::MetadataScope, plan, preview};
use crate::{
    cloud_provider::{CloudError, CloudResult, InstanceMetadata},
    node::{
        addresses, age_in_seconds,
        initialize::{NodeInitialization, ProviderIdRequirement, initialize},
        patch::{self, NodeChanges},
        routes, taints, uid,
    },
    runtime::{
        patch::{ApiError, PatchKind, PatchTarget},
        store::ObjectKey,
        work_queue::ReconcileResult,
    },
};

/// How often a decision is made anew after conflicts before the key backs off.
const ATTEMPTS: usize = 5;

/// How one attempt ended.
enum WriteAttempt {
    Finished(ReconcileResult),
    /// Somebody else wrote in between.
    Conflict,
}

/// What the attempts at one Node share.
#[derive(Default)]
struct InitializationAttempts<'a> {
    described: Option<DescribedInstance>,
    /// The turn to write. Who lost it to a conflict would wait behind everybody else, and lose the next one the same way.
    turn: Option<SemaphorePermit<'a>>,
}

/// What the cloud told of the instance of the Node with this UID.
struct DescribedInstance {
    uid: String,
    metadata: (InstanceMetadata, ProviderIdRequirement),
}

impl NodeController {
    /// What initialisation would do to the first `limit` Nodes that need it. Addresses of others are not asked for.
    pub(super) async fn plan_initialization(&self, limit: usize) -> CloudResult<String> {
        let mut nodes = self.own_nodes();
        nodes.retain(|node| plan::next_action(node, self.config.beta_labels) != plan::NodeAction::Nothing);
        nodes.sort_by(|one, other| crate::node::name(one).cmp(crate::node::name(other)));
        let left_out = nodes.len().saturating_sub(limit);
        nodes.truncate(limit);
        let asked: Vec<_> = nodes.iter().filter(|node| taints::is_uninitialized(node)).cloned().collect();
        let mut described = self.metadata_batcher.source().fetch_all(MetadataScope::All, &asked).await.into_iter();
        let mut text = String::new();
        for node in &nodes {
            let told = if taints::is_uninitialized(node) { described.next() } else { None };
            if let Some(plan) = preview::plan(node, told.as_ref(), &self.config) {
                text += &format!("Node {:?}: {plan}\n", crate::node::name(node));
            }
        }
        let more = (left_out > 0).then(|| format!("{left_out} more Nodes are left out\n"));
        Ok(text + &more.unwrap_or_default())
    }

    pub(super) async fn reconcile(&self, key: &ObjectKey) -> ReconcileResult {
        let Some(node) = self.current(key) else { return ReconcileResult::Done };
        match self.kind_of(&node) {
            plan::NodeKind::Foreign => {
                self.give_pod_cidrs_apart(&node);
                self.context.events.record(events::foreign(&node, self.provider.provider_name()));
                return ReconcileResult::Done;
            }
            plan::NodeKind::NeverInitialized => self.context.events.record(events::without_provider_id(&node)),
            plan::NodeKind::Ordinary => {}
        }
        let outcome = self.reconcile_node(key, Arc::clone(&node)).await;
        if outcome != ReconcileResult::Done {
            self.give_pod_cidrs_apart(&node);
        }
        outcome
    }

    /// The Node is not initialised now: its pod CIDRs do not wait for that.
    fn give_pod_cidrs_apart(&self, node: &Node) {
        if let Some(pod_cidrs) = &self.pod_cidrs {
            pod_cidrs.go_ahead(node);
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
        ReconcileResult::Failed(format!("{key} kept being changed by others"))
    }

    async fn attempt<'a>(&'a self, node: &mut Arc<Node>, shared: &mut InitializationAttempts<'a>) -> WriteAttempt {
        match plan::next_action(node, self.config.beta_labels) {
            plan::NodeAction::Nothing => WriteAttempt::Finished(ReconcileResult::Done),
            plan::NodeAction::UpdateLabels(changes) => {
                let written = self.write(node, PatchTarget::Object, patch::node(node, &changes)).await;
                self.after_write(written.map(drop))
            }
            plan::NodeAction::Initialize => match self.initialization(node, shared).await {
                // Apart, since every Node that waits for its turn would hold room for it.
                Ok(decided) => self.after_write(Box::pin(self.apply(node, decided)).await),
                Err(outcome) => WriteAttempt::Finished(outcome),
            },
        }
    }

    /// What initialises `node`, with the turn to write it, or how the reconcile ends without. The cloud is asked once, however often others
    /// write; but what it told of an earlier Node of this name does not hold for this one.
    async fn initialization<'a>(
        &'a self,
        node: &mut Arc<Node>,
        shared: &mut InitializationAttempts<'a>,
    ) -> Result<NodeInitialization, ReconcileResult> {
        let told = match shared.described.take().filter(|described| described.uid == uid(node)) {
            Some(described) => described.metadata,
            None => self.describe(node).await?,
        };
        if shared.turn.is_none() {
            if let Some(pod_cidrs) = &self.pod_cidrs {
                pod_cidrs.decided().await;
            }
            // Nobody closes it.
            shared.turn = self.writes.acquire().await.ok();
            self.renew(node);
        }
        if !taints::is_uninitialized(node) {
            // Others did it meanwhile, and the watch that told of it has brought the key again.
            return Err(ReconcileResult::Done);
        }
        let decided = initialize(node, &told.0, told.1, self.config.beta_labels);
        shared.described = Some(DescribedInstance { uid: uid(node).to_owned(), metadata: told });
        decided.map_err(|error| {
            self.context.events.record(events::initialization_failed(node, &error));
            ReconcileResult::Failed(error.to_string())
        })
    }

    /// The Node as it was written while this one waited for its turn: on its former version, the write would be a conflict.
    fn renew(&self, node: &mut Arc<Node>) {
        let stored = self.current(&ObjectKey::of(&**node));
        if let Some(stored) = stored.filter(|stored| uid(stored) == uid(node)) {
            *node = stored;
        }
    }

    /// What the cloud tells of the instance, or how the reconcile ends without it.
    async fn describe(&self, node: &Arc<Node>) -> Result<(InstanceMetadata, ProviderIdRequirement), ReconcileResult> {
        let slowly = self.config.status_update_frequency;
        match self.metadata_batcher.fetch(node).await {
            Ok(Some(told)) => Ok(told),
            Ok(None) => {
                self.context.events.record(events::no_instance(node));
                Err(ReconcileResult::RequeueAfter(slowly, plan::NO_INSTANCE.to_owned()))
            }
            Err(error) => {
                // Also when somebody else initialises the Node, so that there is nothing to come back for.
                self.give_pod_cidrs_apart(node);
                self.context.events.record(events::metadata_failed(node, &error));
                Err(plan::after_cloud_error(&error, slowly))
            }
        }
    }

    /// Writes what was decided. Without a route that is waited for the taint stays, and the condition says so.
    async fn apply(&self, node: &Node, decided: NodeInitialization) -> Result<(), ApiError> {
        decided.dropped_labels.iter().for_each(|dropped| tracing::warn!(node = crate::node::name(node), "{dropped}"));
        if !plan::awaits_route(node, self.config.waits_for_routes) {
            return self.finish(node, decided).await;
        }
        let newest = self.write_all(node, &routes::without_taint_removal(decided)).await?;
        if let Some(condition) = routes::network_unavailable_patch(node, self.context.clock.wall()) {
            let condition = at_newest(condition, newest.as_deref());
            let (key, api) = (ObjectKey::of(node), self.api());
            self.context.writer.patch(&api, &key, PatchTarget::Status, PatchKind::Strategic, condition).await?;
            self.context.events.record(events::waiting_for_routes(node));
        }
        Ok(())
    }

    /// Addresses first, all the rest after; the Node's version then, if anything was to be written. No more is kept of the first
    /// answer: thousands of Nodes may wait for their second write.
    async fn write_all(&self, node: &Node, decided: &NodeInitialization) -> Result<Option<String>, ApiError> {
        let mut newest = None;
        if let Some(addresses) = &decided.addresses {
            newest = Some(self.write(node, PatchTarget::Status, patch::addresses(node, addresses)).await?);
        }
        if decided.changes.is_empty() {
            return Ok(newest);
        }
        let body = at_newest(patch::node(node, &decided.changes), newest.as_deref());
        self.write_with_pod_cidrs(node, body).await.map(Some)
    }

    /// `body`, with the pod CIDRs that the Node needs and that are given out here.
    async fn write_with_pod_cidrs(&self, node: &Node, mut body: Value) -> Result<String, ApiError> {
        let version = body["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let version = version.as_deref();
        let given = self.pod_cidrs.as_ref().and_then(|pod_cidrs| Some((pod_cidrs, pod_cidrs.spec_for(node, version)?)));
        let Some((pod_cidrs, spec)) = given else { return self.write(node, PatchTarget::Object, body).await };
        for (field, value) in spec {
            body["spec"][field] = value;
        }
        let written = self.write(node, PatchTarget::Object, body).await;
        pod_cidrs.settle(node, version, written.as_ref().err());
        written
    }

    /// Everything, the taint last.
    async fn finish(&self, node: &Node, decided: NodeInitialization) -> Result<(), ApiError> {
        if self.write_all(node, &decided).await?.is_none() {
            return Ok(());
        }
        let age = age_in_seconds(node, self.context.clock.wall());
        self.context.metrics.node_taint_removal_delay.with_label_values::<&str>(&[]).observe(age);
        self.context.metrics.node_initial_sync_delay.with_label_values::<&str>(&[]).observe(age);
        self.context.events.record(events::synced(node));
        Ok(())
    }

    /// Writes what changed of an initialized Node: its addresses, then its labels.
    async fn refresh(&self, node: &Node, new: Option<Vec<NodeAddress>>, changes: NodeChanges) -> Result<(), ApiError> {
        let mut newest = None;
        if let Some(new) = new {
            newest = Some(self.write(node, PatchTarget::Status, patch::addresses(node, &new)).await?);
        }
        if !changes.is_empty() {
            let body = at_newest(patch::node(node, &changes), newest.as_deref());
            self.write(node, PatchTarget::Object, body).await?;
            self.after_label_update(node, &changes.labels);
        }
        Ok(())
    }

    /// Brings the addresses of an initialised Node up to date, and with `--reconcile-node-labels` its labels.
    pub(super) async fn update_addresses(&self, key: &ObjectKey) -> ReconcileResult {
        let Some(mut node) = self.current(key) else { return ReconcileResult::Done };
        if taints::is_uninitialized(&node) {
            return ReconcileResult::Done;
        }
        let slowly = self.config.status_update_frequency;
        let told = match self.address_batcher.fetch(&node).await {
            Ok(Some((metadata, _))) => metadata,
            // Whether a Node without an instance stays is the node-lifecycle controller's business.
            Ok(None) | Err(CloudError::InstanceNotFound) => return ReconcileResult::Done,
            // No event: an outage of the cloud would mean one for each Node.
            Err(error) => return plan::after_cloud_error(&error, slowly),
        };
        self.compare_labels(&node, &told);
        let asked_for = uid(&node).to_owned();
        for _ in 0..ATTEMPTS {
            if taints::is_uninitialized(&node) || uid(&node) != asked_for {
                return ReconcileResult::Done;
            }
            let attempt = match addresses::changed(&node, &told.node_addresses) {
                Ok(new) => self.refresh(&node, new, self.label_changes(&node, &told)).await,
                Err(error) => {
                    self.context.events.record(events::addresses_failed(&node, &error));
                    return ReconcileResult::RequeueAfter(slowly, error.to_string());
                }
            };
            match self.after_write(attempt) {
                WriteAttempt::Finished(outcome) => return outcome,
                WriteAttempt::Conflict => match self.read_live(key).await {
                    Ok(live) => node = live,
                    Err(outcome) => return outcome,
                },
            }
        }
        ReconcileResult::Failed(format!("{key} kept being changed by others"))
    }

    fn after_write(&self, result: Result<(), ApiError>) -> WriteAttempt {
        match result {
            Ok(()) => {
                *self.forbidden() = None;
                WriteAttempt::Finished(ReconcileResult::Done)
            }
            Err(ApiError::Conflict(_)) => WriteAttempt::Conflict,
            Err(error) => WriteAttempt::Finished(self.failed(&error)),
        }
    }

    fn failed(&self, error: &ApiError) -> ReconcileResult {
        if matches!(error, ApiError::Forbidden(_)) {
            *self.forbidden() = Some(error.to_string());
        }
        plan::after_api_error(error)
    }

    /// Answers the version that the Node has then.
    async fn write(&self, node: &Node, part: PatchTarget, body: Value) -> Result<String, ApiError> {
        let key = ObjectKey::of(node);
        let decided_on = body["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let written = self.context.writer.patch_briefly(&self.api(), &key, part, PatchKind::Merge, body).await?;
        if let Some(version) = decided_on.filter(|version| *version != written) {
            self.replaced().entry(key).or_default().push(version);
        }
        Ok(written)
    }

    async fn read_live(&self, key: &ObjectKey) -> Result<Arc<Node>, ReconcileResult> {
        self.context.writer.get(&self.api(), key).await.map(Arc::new).map_err(|error| self.failed(&error))
    }

    fn api(&self) -> Api<Node> {
        Api::all(self.context.writer.client().clone())
    }

    /// The Node in the store, unless that is one we have written over: then the watch will bring the newer one, and with it this
    /// key if there is anything left to do.
    fn current(&self, key: &ObjectKey) -> Option<Arc<Node>> {
        let node = self.nodes.get(key);
        let mut replaced = self.replaced();
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
        self.replaced().retain(|key, _| self.nodes.get(key).is_some());
    }

    fn replaced(&self) -> MutexGuard<'_, HashMap<ObjectKey, Vec<String>>> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forbidden(&self) -> MutexGuard<'_, Option<String>> {
        self.forbidden.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn at_newest(body: Value, version: Option<&str>) -> Value {
    match version {
        Some(version) => patch::at_version(body, version),
        None => body,
    }
}
