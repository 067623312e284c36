//! Writes of instances of uniform scale sets, and of network interfaces of other machines.
//!
//! In: changes of a plan. Out: documents written, many concurrently. An error of one document does not delay the others.
//! Each document is read before it is written, or many are read with one list. The planner computes the body.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, future::join_all};
use parking_lot::Mutex;
use tracing::{debug, info, warn};

use super::{
    member_list::{INSTANCE_VIEW, ListedInstance, listed_instances},
    outcome::{PoolSyncOutcome, PoolWriteEnds, load_balancers, pause_after},
};
use crate::providers::azure::{
    arm::{ArmClient, Precondition},
    inventory::Inventory,
    model::{ArmErrorClass, ArmResult, ResourceId, api, compute::VirtualMachineScaleSetVm, network::NetworkInterface},
    planner::load_balancer::{
        desired::pool_members::node_ip_configuration::{self, MembershipSkipReason, PoolMembershipPatch},
        plan::{
            pools::{PoolChange, PoolChangeKind, PoolMemory},
            print::PlannedChange,
        },
        pools::{
            member_resource::PoolMemberResource,
            member_updates::{LeaveReason, PoolMemberUpdate},
        },
    },
};

/// Number of instances of one scale set, or of interfaces, that are written concurrently.
const AT_ONCE: usize = 10;
/// Largest number of attempts to read and write a document while another writer changes it, too.
const TRIES: usize = 4;

/// Writer of the pool members of machines.
pub(super) struct PoolMemberWriter {
    inventory: Arc<Inventory>,
    memory: Arc<Mutex<PoolMemory>>,
}

/// Cached facts about a scale set whose instances are written.
#[derive(Default)]
pub(super) struct ScaleSetFacts {
    /// Number of instances to write concurrently; `None`: `AT_ONCE`.
    pub(super) at_once: Option<usize>,
    /// Number of instances of the scale set; `None`: it is not cached.
    pub(super) instances: Option<usize>,
}

/// Reason why a machine is not written.
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
    pub(super) fn new(inventory: Arc<Inventory>, memory: Arc<Mutex<PoolMemory>>) -> Self {
        Self { inventory, memory }
    }

    /// Sends changes of members. `facts` returns the cached facts about a scale set.
    pub(super) async fn write(
        &self,
        arm: &ArmClient,
        changes: &[PoolChange],
        facts: impl Fn(&ResourceId) -> ScaleSetFacts,
        ends: &PoolWriteEnds,
    ) {
        let mut groups: BTreeMap<Option<ResourceId>, Vec<(&PoolChange, &PoolMemberUpdate)>> = BTreeMap::new();
        for change in changes {
            if let PoolChangeKind::Member(update) = &change.kind {
                groups.entry(update.resource.scale_set()).or_default().push((change, update));
            }
        }
        let groups = groups.into_iter().map(|(set, updates)| {
            let facts = set.as_ref().map(&facts).unwrap_or_default();
            self.write_group(arm, set, updates, facts, ends)
        });
        join_all(groups).await;
    }

    /// Writes the instances of one scale set, or all interfaces if `set` is `None`.
    async fn write_group(
        &self,
        arm: &ArmClient,
        set: Option<ResourceId>,
        updates: Vec<(&PoolChange, &PoolMemberUpdate)>,
        facts: ScaleSetFacts,
        ends: &PoolWriteEnds,
    ) {
        let mut listed = match &set {
            Some(set) => {
                let wanted: HashSet<String> = updates.iter().map(|(_, update)| update.resource.key()).collect();
                listed_instances(arm, set, &wanted, facts.instances).await
            }
            None => HashMap::new(),
        };
        let writes = updates.into_iter().map(|(change, update)| {
            let listed = listed.remove(&update.resource.key());
            async move { ends.send(change, self.write_one(arm, change, update, listed).await) }
        });
        let writes: Vec<_> = writes.collect();
        futures::stream::iter(writes).buffer_unordered(facts.at_once.unwrap_or(AT_ONCE)).collect::<()>().await;
    }

    /// Writes one machine, with retries after conflicts. `listed` is the instance's document if a list has shown it.
    async fn write_one(
        &self,
        arm: &ArmClient,
        change: &PoolChange,
        update: &PoolMemberUpdate,
        mut listed: Option<ListedInstance>,
    ) -> PoolSyncOutcome {
        let name = if update.node.is_empty() { update.resource.id().as_str() } else { &update.node };
        let mut outcome = PoolSyncOutcome::default();
        for _ in 0..TRIES {
            outcome.failures.clear();
            match self.attempt(arm, update, listed.take(), &mut outcome).await {
                Ok(None) => {
                    outcome.summary.machines += 1;
                    info!(change = %PlannedChange::Pool(change), "changed backend pools of a machine");
                    break;
                }
                Ok(Some(reason)) => {
                    debug!(machine = name, %reason, "machine not changed");
                    outcome.pause = Some(self.pause_of(&reason));
                    outcome.deferred = matches!(
                        reason,
                        MachineSkipReason::PoweredOff(_) | MachineSkipReason::Skip(MembershipSkipReason::State(_))
                    );
                    break;
                }
                Err(error) => {
                    let again = error.class == ArmErrorClass::Conflict;
                    outcome.fail_at(name, error, load_balancers(&update.patch), None);
                    if !again {
                        break;
                    }
                }
            }
        }
        if update.leave_reason == LeaveReason::Orphan { defer_failures(outcome) } else { outcome }
    }

    /// Records a failed write, because ARM may have stored the document without carrying it out. The next plan then writes
    /// the machine again, unchanged.
    fn note_failure(&self, update: &PoolMemberUpdate, result: &ArmResult<Option<MachineSkipReason>>) {
        let (key, mut memory) = (update.resource.key(), self.memory.lock());
        match result {
            Err(error) if !matches!(error.class, ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound) => {
                let patch = PoolMembershipPatch { join: Vec::new(), leave: Vec::new(), ..update.patch.clone() };
                memory.failed_members.insert(key, PoolMemberUpdate { patch, ..update.clone() });
            }
            _ => drop(memory.failed_members.remove(&key)),
        }
    }

    /// Returns how long a machine that was not written is not read again.
    fn pause_of(&self, reason: &MachineSkipReason) -> Duration {
        let settings = &self.inventory.settings;
        match reason {
            MachineSkipReason::Skip(
                MembershipSkipReason::OtherLoadBalancer(_) | MembershipSkipReason::NoConfiguration(_),
            ) => settings.instances_ttl,
            MachineSkipReason::Skip(MembershipSkipReason::Unchanged | MembershipSkipReason::State(_))
            | MachineSkipReason::Gone
            | MachineSkipReason::PoweredOff(_) => settings.absent_ttl,
        }
    }

    /// Reads one document unless it is `listed`, and writes it. Returns the reason if it was not written.
    async fn attempt(
        &self,
        arm: &ArmClient,
        update: &PoolMemberUpdate,
        listed: Option<ListedInstance>,
        outcome: &mut PoolSyncOutcome,
    ) -> ArmResult<Option<MachineSkipReason>> {
        let result = match &update.resource {
            PoolMemberResource::Instance(id) => instance(arm, id, listed, &update.patch, outcome).await,
            PoolMemberResource::Interface(id) => interface(arm, id, &update.patch, outcome).await,
        };
        self.note_failure(update, &result);
        match result {
            Err(error) if matches!(error.class, ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound) => {
                if error.class == ArmErrorClass::NotFound && matches!(update.resource, PoolMemberResource::Instance(_)) {
                    self.inventory.forget(update.resource.id());
                }
                Ok(Some(MachineSkipReason::Gone))
            }
            result => result,
        }
    }
}

/// Converts the reason. A machine that already is in its pool although the cache says otherwise shows that the cached load
/// balancer is outdated.
fn skipped(skip: MembershipSkipReason, patch: &PoolMembershipPatch, outcome: &mut PoolSyncOutcome) -> MachineSkipReason {
    if skip == MembershipSkipReason::Unchanged {
        outcome.mark_outdated(patch);
    }
    MachineSkipReason::Skip(skip)
}

/// Defers the failures of a machine without a Node: the write is retried later, and no Service waits for it.
fn defer_failures(mut outcome: PoolSyncOutcome) -> PoolSyncOutcome {
    for failure in std::mem::take(&mut outcome.failures) {
        warn!(machine = failure.what, error = %failure.error, "cannot remove a machine without a node from its backend pools yet");
        outcome.pause = failure.arm().map(pause_after);
        outcome.deferred = true;
    }
    outcome
}

async fn instance(
    arm: &ArmClient,
    id: &ResourceId,
    listed: Option<ListedInstance>,
    patch: &PoolMembershipPatch,
    outcome: &mut PoolSyncOutcome,
) -> ArmResult<Option<MachineSkipReason>> {
    let joins_only = patch.leave.is_empty();
    let document = match listed.and_then(|listed| listed.current(joins_only)) {
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
