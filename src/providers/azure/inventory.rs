//! Inventory: the cached state of machines in ARM, with its age.
//!
//! In: the ARM client. Out: [`Machine`]s by node name or ARM id, not older than the caller requires. Built from lists; one
//! refresh serves all waiting callers; writes and direct reads update it.
//!
//! ```text
//! query ─► resolve (what is it?) or existence (does it exist?) ─► result
//!                 ▲ snapshot        │ required reads
//!                 │                 ▼
//!     records ─► build ◄── ARM ◄── plan (lists or single reads)
//! ```
//! All pending queries are planned together, in rounds of reads, until each has a result. Reads run concurrently in their own
//! tasks: a hanging read delays the queries that need it and, for `ROUND_TIMEOUT`, the next round. A cancelled caller does not
//! abort its reads. Everything but [`Inventory`] itself and `refresh` is pure.

mod build;
mod denial;
mod existence;
mod names;
mod plan;
mod query;
mod read;
mod records;
mod refresh;
mod report;
mod resolve;
mod second_look;
mod settings;
mod snapshot;
mod unlisted;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use parking_lot::Mutex;
pub use query::{Freshness, MachineExistence};
use query::{PendingQuery, QueryEvaluation};
use read::{ArmRead, ArmReadPayload};
use resolve::QueryView;
pub use settings::InventorySettings;
use snapshot::InventorySnapshot;
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
};

use super::{
    arm::{ArmClient, Urgency},
    model::{ArmError, ArmErrorClass, ArmResult, LookupError, Machine, MachineQuery, ResourceId},
};
use crate::{cloud_provider::SecondLook, runtime::clock::Clock, status::InventoryStatus};

/// Maximum number of reads in flight. The request budget decides when each is sent.
const MAX_CONCURRENT_READS: usize = 64;
/// Maximum number of rounds of reads for one query. With consistent responses of ARM, five suffice.
const MAX_ROUNDS: usize = 12;
/// Time for which one round of reads may delay the next one.
const ROUND_TIMEOUT: Duration = Duration::from_secs(1);

/// Machines of a cluster, as ARM last reported them.
pub struct Inventory {
    arm: ArmClient,
    /// Searched locations, and validity of results.
    pub settings: InventorySettings,
    clock: Clock,
    state: Mutex<InventoryState>,
    /// Serializes planning; the holder plans for all pending queries.
    planning: tokio::sync::Mutex<()>,
    /// Notified when a read ends.
    read_ended: Notify,
    permits: Semaphore,
    /// Reference for the tasks that read.
    this: Weak<Self>,
    lists_sent: AtomicU64,
    single_reads_sent: AtomicU64,
}

#[derive(Default)]
struct InventoryState {
    snapshot: InventorySnapshot,
    /// Unresolved queries, by ticket.
    pending: BTreeMap<u64, Arc<[PendingQuery]>>,
    next_ticket: u64,
    in_flight: BTreeSet<ArmRead>,
    /// Number of Nodes in the last lookup, if it found none of their machines.
    unfound_nodes: usize,
}

/// Progress of a set of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum QueryProgress {
    Resolved,
    /// Waits for reads that are in progress.
    ReadsInFlight,
    /// A read is needed.
    NeedsReads,
}

impl Inventory {
    /// Creates an empty inventory.
    pub fn new(arm: ArmClient, settings: InventorySettings, clock: Clock) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            arm,
            settings,
            clock,
            state: Mutex::default(),
            planning: tokio::sync::Mutex::new(()),
            read_ended: Notify::new(),
            permits: Semaphore::new(MAX_CONCURRENT_READS),
            this: Weak::clone(this),
            lists_sent: AtomicU64::new(0),
            single_reads_sent: AtomicU64::new(0),
        })
    }

    /// Returns the machines of `query`, in its order. Concurrent calls share their reads.
    pub async fn lookup(&self, query: &[MachineQuery], freshness: Freshness) -> Vec<Result<Arc<Machine>, LookupError>> {
        let pending_queries = self.pending_queries(query, freshness, false);
        let results = self.evaluate_all(pending_queries, resolve::lookup).await;
        let results: Vec<_> =
            results.into_iter().map(|result| result.unwrap_or_else(|| Err(contradiction_error().into()))).collect();
        let found = results.iter().any(Result::is_ok);
        self.state.lock().unfound_nodes = if found { 0 } else { results.len() };
        results
    }

    /// Returns the cached machine of each query, in their order, however old. Nothing is read.
    pub fn cached(&self, queries: &[MachineQuery]) -> Vec<Option<Arc<Machine>>> {
        let (pending_queries, state) = (self.pending_queries(queries, Freshness::Cached, false), self.state.lock());
        let view = |pending_query| QueryView { pending_query, snapshot: &state.snapshot, settings: &self.settings };
        pending_queries.iter().map(|pending_query| Some(Arc::clone(&view(pending_query).cached_entry()?.machine))).collect()
    }

    /// Returns whether the machine exists and its power state, not older than `freshness`. Many at once are read with lists.
    pub async fn check_existence(&self, query: &MachineQuery, freshness: Duration) -> MachineExistence {
        self.existence_of(self.pending_queries(std::slice::from_ref(query), Freshness::Within(freshness), true)).await
    }

    /// Checks existence by a read of this machine alone, where a slightly stale list would be wrong.
    pub async fn check_existence_directly(&self, query: &MachineQuery, freshness: Duration) -> MachineExistence {
        let pending_queries = self.pending_queries(std::slice::from_ref(query), Freshness::Within(freshness), true);
        let directly = |pending_query: &PendingQuery| PendingQuery { needs_single_read: true, ..pending_query.clone() };
        self.existence_of(pending_queries.iter().map(directly).collect()).await
    }

    /// Returns the verdict of the lists that should have a machine, after ARM reported that it does not exist; read after
    /// that, and not older than `freshness`.
    pub async fn second_look(&self, query: &MachineQuery, freshness: Duration) -> SecondLook {
        let pending_queries = self.pending_queries(std::slice::from_ref(query), Freshness::Within(freshness), false);
        let confirmation = |pending_query: &PendingQuery| PendingQuery { second_look: true, ..pending_query.clone() };
        let result = self
            .evaluate_all(pending_queries.iter().map(confirmation).collect(), second_look::evaluate)
            .await
            .pop()
            .flatten();
        result.unwrap_or_else(|| SecondLook::Silent(contradiction_error().message))
    }

    async fn existence_of(&self, pending_queries: Arc<[PendingQuery]>) -> MachineExistence {
        let result = self.evaluate_all(pending_queries, existence::check_existence).await.pop().flatten();
        result.unwrap_or_else(|| MachineExistence::Unknown(contradiction_error().message))
    }

    /// Reads what is older than the cache times allow, or failed last: at start, then periodically, also on standbys.
    ///
    /// The first failure is the result; the other reads are made nevertheless.
    pub async fn warm(&self) -> ArmResult<()> {
        let started = self.clock.now();
        let mut attempted = BTreeSet::new();
        let mut outcome = Ok(());
        loop {
            let reads = plan::due(&self.state.lock().snapshot, &self.settings, started, &attempted);
            if reads.is_empty() {
                return outcome;
            }
            attempted.extend(reads.iter().cloned());
            let ended = join_all(self.start(reads, Urgency::Resync)).await;
            outcome = ended.into_iter().flatten().fold(outcome, Result::and);
        }
    }

    /// Returns the cached machines that have some of these interfaces (keys of IDs). Nothing is read.
    pub fn with_interfaces(&self, keys: &BTreeSet<&str>) -> Vec<Arc<Machine>> {
        let has = |machine: &Machine| machine.interfaces.iter().any(|interface| keys.contains(interface.id.key().as_str()));
        let state = self.state.lock();
        state.snapshot.entries.values().map(|entry| &entry.machine).filter(|machine| has(machine)).cloned().collect()
    }

    /// Records a machine that a read or the response to a write has just shown.
    pub fn observe(&self, machine: Machine) {
        let now = self.clock.now();
        self.state.lock().snapshot.observe(machine, now);
    }

    /// Records that a machine has been removed.
    pub fn forget(&self, id: &ResourceId) {
        let now = self.clock.now();
        self.state.lock().snapshot.note_absence(id, now);
    }

    /// Returns the reason why the inventory cannot be trusted now.
    pub fn health(&self) -> Result<(), String> {
        let state = self.state.lock();
        report::health(&state.snapshot, &self.settings, state.unfound_nodes)
    }

    /// Returns the age of the oldest list; `None` before the first.
    pub fn age(&self) -> Option<Duration> {
        report::age(&self.state.lock().snapshot, self.clock.now())
    }

    /// Returns ages, counts, errors and reads, for the status page.
    pub fn status(&self) -> InventoryStatus {
        let state = self.state.lock();
        InventoryStatus {
            waiting: state.pending.values().map(|pending_queries| pending_queries.len()).sum(),
            lists_sent: self.lists_sent.load(Ordering::Relaxed),
            single_reads_sent: self.single_reads_sent.load(Ordering::Relaxed),
            ..report::status(&state.snapshot, self.clock.now())
        }
    }

    fn pending_queries(&self, query: &[MachineQuery], freshness: Freshness, confirm: bool) -> Arc<[PendingQuery]> {
        let now = self.clock.now();
        query.iter().map(|query| PendingQuery::new(query, &self.settings, now, freshness, confirm)).collect()
    }

    /// Reads until all queries are resolved. `None` remains where reading gave no result.
    async fn evaluate_all<T>(
        &self,
        pending_queries: Arc<[PendingQuery]>,
        evaluate_query: fn(&QueryView<'_>) -> QueryEvaluation<T>,
    ) -> Vec<Option<T>> {
        let mut results: Vec<Option<T>> = pending_queries.iter().map(|_| None).collect();
        if self.evaluate(&pending_queries, evaluate_query, &mut results) == QueryProgress::Resolved {
            return results;
        }
        let _ticket = QueryTicket::new(self, Arc::clone(&pending_queries));
        let mut rounds = 0;
        while rounds < MAX_ROUNDS {
            let ended = self.read_ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            {
                let _planning_guard = self.planning.lock().await;
                // Concurrent callers join the same round.
                tokio::task::yield_now().await;
                match self.evaluate(&pending_queries, evaluate_query, &mut results) {
                    QueryProgress::Resolved => return results,
                    QueryProgress::NeedsReads if self.start_round().await => {
                        rounds += 1;
                        continue;
                    }
                    QueryProgress::NeedsReads | QueryProgress::ReadsInFlight => {}
                }
            }
            ended.await;
        }
        self.evaluate(&pending_queries, evaluate_query, &mut results);
        results
    }

    /// Fills in the available results, and returns the progress.
    fn evaluate<T>(
        &self,
        pending_queries: &[PendingQuery],
        evaluate_query: fn(&QueryView<'_>) -> QueryEvaluation<T>,
        results: &mut [Option<T>],
    ) -> QueryProgress {
        let state = self.state.lock();
        let mut progress = QueryProgress::Resolved;
        for (pending_query, result) in pending_queries.iter().zip(results.iter_mut()).filter(|(_, result)| result.is_none())
        {
            let view = QueryView { pending_query, snapshot: &state.snapshot, settings: &self.settings };
            progress = progress.max(match evaluate_query(&view) {
                QueryEvaluation::Done(finished) => {
                    *result = Some(finished);
                    QueryProgress::Resolved
                }
                QueryEvaluation::NeedsReads(needs)
                    if needs.iter().all(|need| plan::is_in_flight(need, &state.in_flight)) =>
                {
                    QueryProgress::ReadsInFlight
                }
                QueryEvaluation::NeedsReads(_) => QueryProgress::NeedsReads,
            });
        }
        progress
    }

    /// Starts a round of reads for all pending queries, and waits for them, at most `ROUND_TIMEOUT`. Returns `false` if
    /// there was nothing to start.
    async fn start_round(&self) -> bool {
        let (reads, urgency) = self.plan();
        let started = self.start(reads, urgency);
        if started.is_empty() {
            return false;
        }
        // Failures are in the snapshot, from which the queries are resolved.
        let _ = tokio::time::timeout(ROUND_TIMEOUT, join_all(started)).await;
        true
    }

    fn plan(&self) -> (Vec<ArmRead>, Urgency) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let mut urgency = Urgency::Node;
        let mut needs = BTreeSet::new();
        for pending_query in state.pending.values().flat_map(|pending_queries| pending_queries.iter()) {
            let view = QueryView { pending_query, snapshot: &state.snapshot, settings: &self.settings };
            let needed = match pending_query {
                _ if pending_query.second_look => required_reads(second_look::evaluate(&view)),
                _ if pending_query.is_existence_check => required_reads(existence::check_existence(&view)),
                _ => required_reads(resolve::lookup(&view)),
            };
            let is_existence = pending_query.is_existence_check || pending_query.second_look;
            if !needed.is_empty() && !is_existence && view.cached_entry().is_none() {
                urgency = Urgency::Change;
            }
            needs.extend(needed.into_iter().filter(|need| !plan::is_in_flight(need, &state.in_flight)));
        }
        let reads = plan::plan(&needs.into_iter().collect::<Vec<_>>(), &state.snapshot, now);
        for read in &reads {
            if let Some(list) = plan::list_of(read, &state.snapshot) {
                state.snapshot.count_single_read(list, now);
            }
        }
        (reads, urgency)
    }

    /// Starts the reads that are not in progress, each in its own task.
    fn start(&self, reads: Vec<ArmRead>, urgency: Urgency) -> Vec<JoinHandle<ArmResult<()>>> {
        let Some(this) = self.this.upgrade() else { return Vec::new() };
        let arm = self.arm.with_urgency(urgency);
        let start = |read: ArmRead| {
            let in_flight_read = InFlightRead::new(Arc::clone(&this), read)?;
            let arm = arm.clone();
            Some(tokio::spawn(async move { in_flight_read.inventory.send(&arm, in_flight_read.read.clone()).await }))
        };
        reads.into_iter().filter_map(start).collect()
    }

    async fn send(&self, arm: &ArmClient, read: ArmRead) -> ArmResult<()> {
        // The semaphore is never closed, so that acquiring cannot fail.
        let _permit = self.permits.acquire().await;
        let started = self.clock.now();
        let interfaces = match &read {
            ArmRead::InterfacesOf(id) => self.interface_ids(id),
            _ => Vec::new(),
        };
        let counter = if read.is_list() { &self.lists_sent } else { &self.single_reads_sent };
        counter.fetch_add(1, Ordering::Relaxed);
        let outcome = refresh::send(arm, &read, &interfaces, !self.settings.without_instance_view).await;
        let outcome = outcome.or_else(|error| empty_if_foreign(&read, &self.settings.group, error));
        let result = outcome.as_ref().map(|_| ()).map_err(Clone::clone);
        self.state.lock().snapshot.record(read, started, outcome);
        result
    }

    fn interface_ids(&self, machine: &ResourceId) -> Vec<ResourceId> {
        let state = self.state.lock();
        let interfaces = state.snapshot.entries.get(machine).map(|entry| entry.machine.interfaces.iter());
        interfaces.into_iter().flatten().map(|interface| interface.id.clone()).collect()
    }
}

/// Returns an empty list for a missing resource group that a label names. The cluster's own group must exist.
fn empty_if_foreign(read: &ArmRead, own: &ResourceId, error: ArmError) -> ArmResult<ArmReadPayload> {
    let missing = matches!(error.class, ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound);
    match read {
        ArmRead::ScaleSets(group) if missing && group != own => Ok(ArmReadPayload::ScaleSets(Vec::new())),
        ArmRead::Machines(read::ListScope::Group(group)) if missing && group != own => {
            Ok(ArmReadPayload::Machines(Vec::new()))
        }
        _ => Err(error),
    }
}

fn required_reads<T>(step: QueryEvaluation<T>) -> Vec<query::RequiredRead> {
    match step {
        QueryEvaluation::Done(_) => Vec::new(),
        QueryEvaluation::NeedsReads(needs) => needs,
    }
}

fn contradiction_error() -> ArmError {
    let message = "ARM's responses contradict each other; the inventory reads again";
    ArmError::without_response(ArmErrorClass::Transient, "inventory", message)
}

/// Position in the queue, released when the caller is cancelled.
struct QueryTicket<'a> {
    inventory: &'a Inventory,
    number: u64,
}

impl<'a> QueryTicket<'a> {
    fn new(inventory: &'a Inventory, pending_queries: Arc<[PendingQuery]>) -> Self {
        let mut state = inventory.state.lock();
        let number = state.next_ticket;
        state.next_ticket += 1;
        state.pending.insert(number, pending_queries);
        Self { inventory, number }
    }
}

impl Drop for QueryTicket<'_> {
    fn drop(&mut self) {
        self.inventory.state.lock().pending.remove(&self.number);
    }
}

/// Read in progress, until it has ended or its task was dropped.
struct InFlightRead {
    inventory: Arc<Inventory>,
    read: ArmRead,
}

impl InFlightRead {
    /// Returns `None` if it is in progress already.
    fn new(inventory: Arc<Inventory>, read: ArmRead) -> Option<Self> {
        let is_new = inventory.state.lock().in_flight.insert(read.clone());
        is_new.then_some(Self { inventory, read })
    }
}

impl Drop for InFlightRead {
    fn drop(&mut self) {
        self.inventory.state.lock().in_flight.remove(&self.read);
        self.inventory.read_ended.notify_waiters();
    }
}

#[cfg(all(test, feature = "sandbox"))]
mod tests;
