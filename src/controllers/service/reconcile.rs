//! One Service: read the store, decide ([`super::plan`]), call the provider, write. Decides nothing itself.
//!
//! Runs in rounds: every round asks the plan for the next step until it answers that nothing is left. A conflict means that the
//! Service changed under our feet: it is read afresh and the plan is asked again; a call of the provider that succeeded is not
//! repeated for that.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use serde_json::Value;

use super::{
    conditions::{self, Stage},
    events,
    hosts::HostSync,
    needs_update::{announcement, has_finalizer, is_being_deleted, is_handed_over},
    plan::{self, Answer, Cause, Decision, Failure},
    predicates::Hosts,
    prune::prune_service,
    state::State,
    status_patch,
};
use crate::{
    cloud_provider::{CloudError, LoadBalancer},
    controllers::ControllerContext,
    runtime::{
        events::Event,
        patch::{ApiError, Part, PatchKind},
        store::{ObjectKey, Store},
        work_queue::{Outcome, Priority},
        worker::Queue,
    },
};

/// How long node changes gather before they are looked at together.
pub(super) const COALESCE: Duration = Duration::from_secs(1);

/// Most rounds of one reconcile; a Service that still conflicts then is tried again with back-off.
const MAX_ROUNDS: usize = 10;

/// The key of the queue of node changes: all of them are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeSync;

impl fmt::Display for NodeSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nodes")
    }
}

/// How a round ended.
enum Round {
    /// Nothing is left to do.
    Settled,
    /// Ask the plan again.
    Again,
    /// As [`Round::Again`]; the load balancer has been given the hosts of now.
    Applied,
}

/// The Service without the addresses in its status, which are those of somebody else.
fn without_status(service: &Service) -> Arc<Service> {
    Arc::new(Service { status: None, ..service.clone() })
}

/// Everything a reconcile needs.
pub(super) struct Reconciler {
    pub(super) context: ControllerContext,
    pub(super) services: Store<Service>,
    pub(super) nodes: Store<Node>,
    pub(super) balancer: Arc<dyn LoadBalancer>,
    pub(super) queue: Queue<ObjectKey>,
    pub(super) node_queue: Queue<NodeSync>,
    pub(super) host_queue: Queue<HostSync>,
    /// Never held across an await.
    pub(super) state: Mutex<State>,
    /// Counts node changes that load balancers care about.
    pub(super) node_changes: AtomicU64,
    /// Counts node changes that may move hosts in or out; there are more of these.
    pub(super) host_changes: AtomicU64,
    /// The server does not keep `status.conditions` (Kubernetes before 1.20): none is written for its own sake.
    pub(super) conditions_are_dropped: AtomicBool,
}

impl Reconciler {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hosts(&self) -> Arc<Hosts> {
        self.state().hosts(|| self.nodes.list())
    }

    fn record(&self, event: Event) {
        self.context.events.record(event);
    }

    /// Finds the Services whose load balancers have other hosts than they should, and enqueues them.
    pub(super) fn sync_nodes(&self) -> Outcome {
        let (hosts, now) = (self.hosts(), self.context.clock.now());
        let affected: Vec<ObjectKey> = plan::affected(self.state().iter(), &hosts.set).into_iter().cloned().collect();
        tracing::info!(services = affected.len(), hosts = hosts.nodes.len(), "nodes changed");
        self.observe_node_sync(self.state().carry(&affected, now));
        affected.into_iter().for_each(|key| self.queue.add(key, Priority::NodeChange));
        Outcome::Done
    }

    fn observe_node_sync(&self, age: Option<Duration>) {
        let latency = self.context.metrics.service_nodesync_latency.with_label_values::<&str>(&[]);
        age.iter().for_each(|age| latency.observe(age.as_secs_f64()));
    }

    /// Brings the load balancer of the Service at `key` to where it should be.
    pub(super) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> Outcome {
        let node_changes = self.node_changes.load(Ordering::SeqCst);
        let host_changes = self.host_changes.load(Ordering::SeqCst);
        let outcome = self.rounds(&key).await;
        let age = self.state().carried(&key, self.context.clock.now());
        self.observe_node_sync(age);
        if self.node_changes.load(Ordering::SeqCst) != node_changes {
            // The node sync may have looked while this Service still had the hosts of before.
            self.node_queue.add_after(NodeSync, Priority::NodeChange, COALESCE);
        }
        // It may have brought hosts of before, or left some out.
        if outcome != Outcome::Done || self.host_changes.load(Ordering::SeqCst) != host_changes {
            self.host_queue.add_after(HostSync, Priority::Resync, COALESCE);
        }
        outcome
    }

    async fn rounds(&self, key: &ObjectKey) -> Outcome {
        let mut service = self.services.get(key);
        let mut applied = false;
        for _ in 0..MAX_ROUNDS {
            let failure = match self.round(key, &mut service, applied).await {
                Ok(Round::Settled) => return Outcome::Done,
                Ok(Round::Again) => continue,
                Ok(Round::Applied) => {
                    applied = true;
                    continue;
                }
                Err(Failure::Api { error: ApiError::Conflict(_), .. }) => match self.read(key).await {
                    Ok(fresh) => {
                        service = fresh;
                        continue;
                    }
                    Err(failure) => failure,
                },
                Err(failure) => failure,
            };
            return self.failed(key, service, &failure).await;
        }
        Outcome::Failed("the Service kept changing while its load balancer was reconciled".to_owned())
    }

    /// One step. Nodes that change after this reconcile `applied` hosts are left to the node sync, which gathers them: while
    /// a cluster grows, a load balancer would else be updated back to back until the rounds run out.
    async fn round(&self, key: &ObjectKey, current: &mut Option<Arc<Service>>, applied: bool) -> Result<Round, Failure> {
        let hosts = self.hosts();
        let decision = plan::decide(current.as_deref(), self.state().get(key), &hosts.set);
        let service = match (&decision, current) {
            (Decision::DeleteOrphan(old), _) => return self.delete_orphan(key, old).await,
            (Decision::Ignore, _) | (_, None) => return Ok(Round::Settled),
            (Decision::UpdateHosts, _) if applied => return Ok(Round::Settled),
            (_, Some(service)) => service,
        };
        let result = match decision {
            Decision::Cleanup => self.cleanup(key, service).await,
            Decision::Ensure(cause) => self.ensure(key, service, &hosts, cause).await,
            Decision::UpdateHosts => return self.update_hosts(key, service, &hosts).await,
            Decision::Publish(answer) => self.publish(key, service, &answer).await,
            Decision::Ignore | Decision::DeleteOrphan(_) => Ok(Round::Settled),
        };
        result.inspect_err(|failure| self.announce(failure, |error| events::sync_failed(service, error)))
    }

    /// Records the event of a failure that users should hear of.
    fn announce(&self, failure: &Failure, event: impl FnOnce(&dyn fmt::Display) -> Event) {
        if failure.is_news() {
            self.record(event(failure));
        }
    }

    async fn ensure(
        &self,
        key: &ObjectKey,
        service: &mut Arc<Service>,
        hosts: &Hosts,
        cause: Cause,
    ) -> Result<Round, Failure> {
        let before = self.state().get(key).map(|applied| Arc::clone(&applied.service));
        before.and_then(|old| announcement(&old, service)).into_iter().for_each(|change| {
            self.record(events::changed(service, change));
        });
        self.state().begin(key, service, Stage::Ensuring);
        if cause != Cause::Resync {
            self.record(events::ensuring(service));
        }
        if let Some(body) = status_patch::add_finalizer(service, self.context.clock.wall()) {
            *service = self.patch(key, body, "failed to add load balancer cleanup finalizer").await?;
        }
        if hosts.nodes.is_empty() {
            self.record(events::unavailable(service));
        }
        let answer = match self.balancer.ensure_load_balancer(&self.context.cluster_name, service, &hosts.nodes).await {
            Ok(status) => Answer { status: Some(status), stage: Stage::Ready },
            Err(CloudError::ImplementedElsewhere) => Answer { status: None, stage: Stage::ImplementedElsewhere },
            Err(error) => return Err(Failure::Cloud { doing: "failed to ensure load balancer", error }),
        };
        if cause != Cause::Resync && answer.stage == Stage::Ready {
            self.record(events::ensured(service));
        }
        self.state().settle(key, &hosts.set, answer);
        Ok(Round::Applied)
    }

    async fn publish(&self, key: &ObjectKey, service: &mut Arc<Service>, answer: &Answer) -> Result<Round, Failure> {
        let body = status_patch::publish(service, answer.status.as_ref(), &answer.stage, self.context.clock.wall());
        if let Some(body) = body {
            match self.patch(key, body, "failed to update load balancer status").await {
                Ok(written) => *service = written,
                Err(Failure::Api { error: ApiError::NotFound(_), .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        self.state().published(key);
        Ok(Round::Again)
    }

    async fn update_hosts(&self, key: &ObjectKey, service: &Arc<Service>, hosts: &Hosts) -> Result<Round, Failure> {
        self.state().begin(key, service, Stage::Updating);
        let stage = match self.call_update(service, hosts).await {
            Ok(()) => {
                let event = if hosts.nodes.is_empty() { events::unavailable } else { events::updated };
                self.record(event(service));
                Ok(Stage::Ready)
            }
            Err(CloudError::ImplementedElsewhere) => Ok(Stage::ImplementedElsewhere),
            // Upstream: an update of a load balancer that is gone is no error.
            Err(error) if self.is_gone(service, &error).await => Ok(Stage::Ready),
            Err(error) => Err(error),
        };
        match stage {
            Ok(stage) => {
                self.state().settle(key, &hosts.set, Answer { status: None, stage });
                Ok(Round::Applied)
            }
            Err(error) => Err(self.update_failed(key, service, hosts, error)),
        }
    }

    async fn call_update(&self, service: &Service, hosts: &Hosts) -> Result<(), CloudError> {
        let (metrics, clock) = (&self.context.metrics, &self.context.clock);
        metrics.service_loadbalancer_sync_total.with_label_values::<&str>(&[]).inc();
        let start = clock.now();
        let result = self.balancer.update_load_balancer(&self.context.cluster_name, service, &hosts.nodes).await;
        let latency = metrics.service_update_host_latency.with_label_values::<&str>(&[]);
        latency.observe(start.elapsed().as_secs_f64());
        result
    }

    async fn is_gone(&self, service: &Service, error: &CloudError) -> bool {
        let says_nothing =
            matches!(error, CloudError::RetryAfter { .. } | CloudError::NotLeader(_) | CloudError::Refused(_));
        !says_nothing && matches!(self.balancer.get_load_balancer(&self.context.cluster_name, service).await, Ok(None))
    }

    fn update_failed(&self, key: &ObjectKey, service: &Service, hosts: &Hosts, error: CloudError) -> Failure {
        if matches!(error, CloudError::RetryAfter { .. }) {
            self.state().put_off(key);
        } else {
            self.context.metrics.service_nodesync_error_total.with_label_values::<&str>(&[]).inc();
        }
        let failure = Failure::Cloud { doing: "failed to update load balancer hosts", error };
        self.announce(&failure, |_| events::update_failed(service, &hosts.nodes, failure.cause()));
        failure
    }

    async fn cleanup(&self, key: &ObjectKey, service: &mut Arc<Service>) -> Result<Round, Failure> {
        let known = self.state().get(key).map(|applied| Arc::clone(&applied.service));
        let (handed_over, is_known) = (is_handed_over(service), known.is_some());
        // Without the finalizer the store may hold but a stub of a Service that is none of ours any more.
        let known = known.filter(|_| !has_finalizer(service) || handed_over);
        let subject = known.unwrap_or_else(|| if handed_over { without_status(service) } else { Arc::clone(service) });
        self.state().set_stage(key, Stage::Deleting);
        let cluster = &self.context.cluster_name;
        let doing = "failed to check if load balancer exists before cleanup";
        let found = self.balancer.get_load_balancer(cluster, &subject).await;
        let exists = found.map_err(|error| Failure::Cloud { doing, error })?.is_some();
        if exists {
            self.record(events::deleting(service));
            match self.balancer.ensure_load_balancer_deleted(cluster, &subject).await {
                Ok(()) | Err(CloudError::ImplementedElsewhere) => {}
                Err(error) => return Err(Failure::Cloud { doing: "failed to delete load balancer", error }),
            }
        }
        if handed_over && !exists && !is_known && !is_being_deleted(service) {
            // Nothing shows that the finalizer is ours rather than that of whoever implements the class.
            return Ok(Round::Settled);
        }
        let announced = exists || (has_finalizer(service) && !handed_over);
        let body = if handed_over { status_patch::hand_over(service) } else { status_patch::clean(service) };
        if let Some(body) = body {
            match self.patch(key, body, "failed to remove load balancer cleanup finalizer").await {
                Ok(_) | Err(Failure::Api { error: ApiError::NotFound(_), .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        if announced {
            self.record(events::deleted(service));
        }
        self.state().forget(key);
        Ok(Round::Settled)
    }

    async fn delete_orphan(&self, key: &ObjectKey, old: &Arc<Service>) -> Result<Round, Failure> {
        self.state().set_stage(key, Stage::Deleting);
        self.record(events::deleting(old));
        match self.balancer.ensure_load_balancer_deleted(&self.context.cluster_name, old).await {
            Ok(()) | Err(CloudError::ImplementedElsewhere) => {
                self.record(events::deleted(old));
                self.state().forget(key);
                Ok(Round::Again)
            }
            Err(error) => {
                let failure = Failure::Cloud { doing: "failed to delete load balancer", error };
                self.announce(&failure, |_| events::delete_failed(old, failure.cause()));
                Err(failure)
            }
        }
    }

    /// Says what went wrong where users look, and what the queue shall do.
    async fn failed(&self, key: &ObjectKey, service: Option<Arc<Service>>, failure: &Failure) -> Outcome {
        let verdict = failure.verdict();
        if let Some(stage) = verdict.stage {
            self.state().set_stage(key, stage.clone());
            self.report(key, service, &stage).await;
        }
        verdict.outcome
    }

    /// Writes the condition if it is worth it. Best effort: the failure itself is in log, event and queue already.
    async fn report(&self, key: &ObjectKey, mut service: Option<Arc<Service>>, stage: &Stage) {
        for _ in 0..MAX_ROUNDS {
            let Some(current) = service.take() else { return };
            let body = status_patch::publish(&current, None, stage, self.context.clock.wall());
            let Some(body) = body.filter(|_| !self.conditions_are_dropped.load(Ordering::Relaxed)) else { return };
            match self.patch(key, body, "failed to update condition").await {
                Err(Failure::Api { error: ApiError::Conflict(_), .. }) => {
                    let same = |fresh: &Arc<Service>| fresh.metadata.uid == current.metadata.uid;
                    service = self.read(key).await.unwrap_or_default().filter(same);
                }
                Err(error) => return tracing::debug!(%key, %error, "condition not written"),
                Ok(_) => return,
            }
        }
    }

    fn api(&self, key: &ObjectKey) -> Api<Service> {
        Api::namespaced(self.context.writer.client().clone(), &key.namespace)
    }

    async fn patch(&self, key: &ObjectKey, body: Value, doing: &'static str) -> Result<Arc<Service>, Failure> {
        let has_condition = body["status"]["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty());
        let api = self.api(key);
        let patch = self.context.writer.patch(&api, key, Part::Status, PatchKind::Merge, body);
        let mut written: Service = patch.await.map_err(|error| Failure::Api { doing, error })?;
        if has_condition && conditions::current(&written).is_none() {
            self.conditions_are_dropped.store(true, Ordering::Relaxed);
        }
        prune_service(&mut written);
        Ok(Arc::new(written))
    }

    /// The Service as the server has it now, `None` when it is gone.
    async fn read(&self, key: &ObjectKey) -> Result<Option<Arc<Service>>, Failure> {
        match self.context.writer.get(&self.api(key), key).await {
            Ok(mut service) => {
                prune_service(&mut service);
                Ok(Some(Arc::new(service)))
            }
            Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(Failure::Api { doing: "failed to read the Service after a conflict", error }),
        }
    }
}
