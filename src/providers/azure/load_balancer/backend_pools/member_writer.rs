//! Writes instances of uniform scale sets and network interfaces of other machines.
//!
//! In: [`PoolMemberUpdates`]. Out: documents written, many at once. What one of them answers holds up none of the others.
//! Each is read before it is written, or many with one list; what the write would be, the planner says.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt, future::join_all};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{
    member_list::{INSTANCE_VIEW, ListedInstance, listed_instances},
    outcome::PoolSyncOutcome,
};
use crate::providers::azure::{
    arm::{
        ArmClient, ArmErrorClass, ArmResult, Precondition, ResourceId, api, compute::VirtualMachineScaleSetVm,
        network::NetworkInterface,
    },
    inventory::Inventory,
    planner::load_balancer::{
        desired::pool_members::node_ip_configuration::{self, MembershipSkipReason, PoolMembershipPatch},
        plan::{pools::PoolChange, print::PlannedChange},
        pools::{
            member_resource::PoolMemberResource,
            member_updates::{LeaveReason, PoolMemberUpdate, PoolMemberUpdates},
        },
    },
};

/// Instances of one scale set, or interfaces, written at once.
const AT_ONCE: usize = 10;
/// How often a document is read and written when somebody else writes it as well.
const TRIES: usize = 4;

/// See the module.
pub(super) struct PoolMemberWriter {
    inventory: Arc<Inventory>,
    /// Documents that refused a wish, by key, and until when that stands.
    refused: Mutex<HashMap<String, (PoolMembershipPatch, Instant)>>,
    /// Documents that our last write may have left in a failed state, by key.
    failed: Mutex<BTreeMap<String, PoolMemberUpdate>>,
}

/// What is known of a scale set whose instances are written.
#[derive(Default)]
pub(super) struct ScaleSetFacts {
    /// How many instances are written at once; `None`: as many as usual.
    pub(super) at_once: Option<usize>,
    /// How many it has.
    pub(super) instances: Option<usize>,
}

/// Why a machine is left alone.
enum MachineSkipReason {
    Skip(MembershipSkipReason),
    Gone,
    PoweredOff(String),
}

impl std::fmt::Display for MachineSkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MachineSkipReason::Skip(skip) => skip.fmt(f),
            MachineSkipReason::Gone => f.write_str("it does not exist any more"),
            MachineSkipReason::PoweredOff(state) => write!(f, "it is {state}"),
        }
    }
}

impl PoolMemberWriter {
    pub(super) fn new(inventory: Arc<Inventory>) -> Self {
        Self { inventory, refused: Mutex::default(), failed: Mutex::default() }
    }

    fn refused(&self) -> MutexGuard<'_, HashMap<String, (PoolMembershipPatch, Instant)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, BTreeMap<String, PoolMemberUpdate>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Also those whose last write failed, and that list what they shall by now.
    fn with_failed(&self, mut tasks: PoolMemberUpdates) -> PoolMemberUpdates {
        for (key, task) in self.failed().iter() {
            tasks.entry(key.clone()).or_insert_with(|| task.clone()).patch.last_write_failed = true;
        }
        tasks
    }

    /// Brings the documents to what they shall list. `facts`: of scale sets.
    pub(super) async fn write(
        &self,
        arm: &ArmClient,
        tasks: PoolMemberUpdates,
        facts: impl Fn(&ResourceId) -> ScaleSetFacts,
    ) -> PoolSyncOutcome {
        let mut groups: BTreeMap<Option<ResourceId>, Vec<PoolMemberUpdate>> = BTreeMap::new();
        for (_, task) in self.with_failed(tasks).into_iter().filter(|(key, task)| !self.has_refused(key, &task.patch)) {
            groups.entry(task.resource.scale_set()).or_default().push(task);
        }
        let groups = groups.into_iter().map(|(set, tasks)| {
            let facts = set.as_ref().map(&facts).unwrap_or_default();
            self.write_group(arm, set, tasks, facts)
        });
        let mut outcome = PoolSyncOutcome::default();
        join_all(groups).await.into_iter().for_each(|one| outcome.merge(one));
        outcome
    }

    /// The instances of one scale set, or all interfaces.
    async fn write_group(
        &self,
        arm: &ArmClient,
        set: Option<ResourceId>,
        tasks: Vec<PoolMemberUpdate>,
        facts: ScaleSetFacts,
    ) -> PoolSyncOutcome {
        let mut listed = match &set {
            Some(set) => {
                let wanted: HashSet<String> = tasks.iter().map(|task| task.resource.key()).collect();
                listed_instances(arm, set, &wanted, facts.instances).await
            }
            None => HashMap::new(),
        };
        let writes = tasks.into_iter().map(|task| {
            let shown = listed.remove(&task.resource.key());
            self.write_one(arm, task, shown)
        });
        let mut written = futures::stream::iter(writes).buffer_unordered(facts.at_once.unwrap_or(AT_ONCE));
        let mut outcome = PoolSyncOutcome::default();
        while let Some(one) = written.next().await {
            outcome.merge(one);
        }
        outcome
    }

    fn has_refused(&self, key: &str, patch: &PoolMembershipPatch) -> bool {
        let now = Instant::now();
        self.refused().get(key).is_some_and(|(refused, until)| refused == patch && *until > now)
    }

    /// `shown`: the document of an instance, as a list has it.
    async fn write_one(
        &self,
        arm: &ArmClient,
        task: PoolMemberUpdate,
        mut shown: Option<ListedInstance>,
    ) -> PoolSyncOutcome {
        let name = if task.node.is_empty() { task.resource.id().as_str() } else { &task.node };
        let mut outcome = PoolSyncOutcome::default();
        for _ in 0..TRIES {
            outcome.failures.clear();
            match self.attempt(arm, &task, shown.take(), &mut outcome).await {
                Ok(None) => {
                    outcome.summary.machines += 1;
                    info!(change = %PlannedChange::Pool(&PoolChange::of_member(task.clone())), "changed back-end pools of a machine");
                    break;
                }
                Ok(Some(left)) => {
                    debug!(machine = name, reason = %left, "machine not changed");
                    self.note_refusal(&task, &left);
                    outcome.deferred = matches!(
                        left,
                        MachineSkipReason::PoweredOff(_) | MachineSkipReason::Skip(MembershipSkipReason::State(_))
                    );
                    break;
                }
                Err(error) => {
                    let again = error.class == ArmErrorClass::Conflict;
                    outcome.fail_member(name, error, &task.patch);
                    if !again {
                        break;
                    }
                }
            }
        }
        if task.leave_reason == LeaveReason::Orphan { defer_failures(outcome) } else { outcome }
    }

    /// What ARM may have taken without carrying it out is written again as it then reads.
    fn note_failure(&self, task: &PoolMemberUpdate, done: &ArmResult<Option<MachineSkipReason>>) {
        match done {
            Err(error) if !matches!(error.class, ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound) => {
                let wish = PoolMembershipPatch { join: Vec::new(), leave: Vec::new(), ..task.patch.clone() };
                self.failed().insert(task.resource.key(), PoolMemberUpdate { patch: wish, ..task.clone() });
            }
            _ => drop(self.failed().remove(&task.resource.key())),
        }
    }

    /// What stays as it is for long is not read again at every turn.
    fn note_refusal(&self, task: &PoolMemberUpdate, left: &MachineSkipReason) {
        let settings = self.inventory.settings();
        let stands: Duration = match left {
            MachineSkipReason::Skip(
                MembershipSkipReason::OtherLoadBalancer(_) | MembershipSkipReason::NoConfiguration(_),
            ) => settings.instances_ttl,
            MachineSkipReason::Skip(MembershipSkipReason::Unchanged | MembershipSkipReason::State(_))
            | MachineSkipReason::Gone
            | MachineSkipReason::PoweredOff(_) => settings.absent_ttl,
        };
        let now = Instant::now();
        let mut refused = self.refused();
        refused.retain(|_, (_, until)| *until > now);
        refused.insert(task.resource.key(), (task.patch.clone(), now + stands));
    }

    /// Reads one document unless it is `shown`, plans and writes it. Answers why it was left.
    async fn attempt(
        &self,
        arm: &ArmClient,
        task: &PoolMemberUpdate,
        shown: Option<ListedInstance>,
        outcome: &mut PoolSyncOutcome,
    ) -> ArmResult<Option<MachineSkipReason>> {
        let done = match &task.resource {
            PoolMemberResource::Instance(id) => instance(arm, id, shown, &task.patch, outcome).await,
            PoolMemberResource::Interface(id) => interface(arm, id, &task.patch, outcome).await,
        };
        self.note_failure(task, &done);
        match done {
            Err(error) if matches!(error.class, ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound) => {
                if error.class == ArmErrorClass::NotFound && matches!(task.resource, PoolMemberResource::Instance(_)) {
                    self.inventory.forget(task.resource.id());
                }
                Ok(Some(MachineSkipReason::Gone))
            }
            done => done,
        }
    }
}

/// What is in a pool already, and is not known to be, shows that the load balancer is known as it was before.
fn skipped(skip: MembershipSkipReason, patch: &PoolMembershipPatch, outcome: &mut PoolSyncOutcome) -> MachineSkipReason {
    if skip == MembershipSkipReason::Unchanged {
        outcome.mark_outdated(patch);
    }
    MachineSkipReason::Skip(skip)
}

/// What fails of a machine without a Node is tried again later, and keeps no Service waiting.
fn defer_failures(mut outcome: PoolSyncOutcome) -> PoolSyncOutcome {
    for failure in std::mem::take(&mut outcome.failures) {
        warn!(machine = failure.what, error = %failure.error, "cannot remove a machine without a node from its back-end pools yet");
        outcome.deferred = true;
    }
    outcome
}

async fn instance(
    arm: &ArmClient,
    id: &ResourceId,
    shown: Option<ListedInstance>,
    patch: &PoolMembershipPatch,
    outcome: &mut PoolSyncOutcome,
) -> ArmResult<Option<MachineSkipReason>> {
    let joins_only = patch.leave.is_empty();
    let document = match shown.and_then(|shown| shown.current(joins_only)) {
        Some(document) => document,
        None => arm.get::<VirtualMachineScaleSetVm>(&api::SCALE_SET_VMS, id, &[INSTANCE_VIEW]).await?,
    };
    let view = document.properties.as_ref().and_then(|properties| properties.instance_view.as_ref());
    let power = view.and_then(|view| view.power_state()).unwrap_or_default();
    if joins_only && node_ip_configuration::is_off(power) {
        return Ok(Some(MachineSkipReason::PoweredOff(power.to_owned())));
    }
    let body = match node_ip_configuration::instance(&document, patch) {
        Ok(body) => body,
        Err(skip) => return Ok(Some(skipped(skip, patch, outcome))),
    };
    outcome.mark_outdated(patch);
    let unchanged = Precondition::unchanged_if_versioned(body.etag.as_deref());
    arm.replace(&api::SCALE_SET_VMS, id, unchanged, &body).await.map(|()| None)
}

async fn interface(
    arm: &ArmClient,
    id: &ResourceId,
    patch: &PoolMembershipPatch,
    outcome: &mut PoolSyncOutcome,
) -> ArmResult<Option<MachineSkipReason>> {
    let document: NetworkInterface = arm.get(&api::INTERFACES, id, &[]).await?;
    let body = match node_ip_configuration::interface(&document, patch) {
        Ok(body) => body,
        Err(skip) => return Ok(Some(skipped(skip, patch, outcome))),
    };
    outcome.mark_outdated(patch);
    let unchanged = Precondition::unchanged_if_versioned(body.etag.as_deref());
    arm.replace(&api::INTERFACES, id, unchanged, &body).await.map(|()| None)
}
