//! What ARM last said about machines, and how old it is.
//!
//! In: the ARM client. Out: [`Machine`]s by node name or ARM id, as fresh as the caller asks. Built from lists; one refresh answers
//! all who wait for it; writes and direct reads update it.
//!
//! ```text
//! query ─► resolve (what is it?) or existence (does it exist?) ─► answer
//!                 ▲ snapshot        │ required reads
//!                 │                 ▼
//!     records ─► build ◄── ARM ◄── plan (lists or single reads)
//! ```
//! All questions that wait are planned for together, one round of reads after the other, until each is answered. Reads run side by
//! side in tasks of their own: one that hangs keeps those waiting who need it and, for `ROUND_TIMEOUT`, the next round; and whoever
//! asked may go away without its being sent again. Everything but [`Inventory`] itself and `refresh` is pure.

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

/// Reads in flight at once. The budget decides when each may go.
const MAX_CONCURRENT_READS: usize = 64;
/// Rounds of reads one question may cause. Five are the most that a sane ARM needs.
const MAX_ROUNDS: usize = 12;
/// Time for which one round of reads may delay the next one.
const ROUND_TIMEOUT: Duration = Duration::from_secs(1);

/// The machines of a cluster.
pub struct Inventory {
    arm: ArmClient,
    /// Where it looks, and how long results are valid.
    pub settings: InventorySettings,
    clock: Clock,
    state: Mutex<InventoryState>,
    /// Serializes planning; the holder plans for all pending queries.
    planning: tokio::sync::Mutex<()>,
    /// A read has ended.
    read_ended: Notify,
    permits: Semaphore,
    /// For the tasks that read.
    this: Weak<Self>,
    lists_sent: AtomicU64,
    single_reads_sent: AtomicU64,
}

#[derive(Default)]
struct InventoryState {
    snapshot: InventorySnapshot,
    /// Questions that are not answered yet, by ticket.
    pending: BTreeMap<u64, Arc<[PendingQuery]>>,
    next_ticket: u64,
    in_flight: BTreeSet<ArmRead>,
    /// Nodes of the last look-up that found none of its machines.
    unfound_nodes: usize,
}

/// Progress of a set of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum QueryProgress {
    Answered,
    /// The reads of the others are in progress.
    ReadsInFlight,
    /// A read is needed.
    NeedsReads,
}

impl Inventory {
    /// Creates an inventory that knows nothing yet.
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
    pub async fn look_up(&self, query: &[MachineQuery], freshness: Freshness) -> Vec<Result<Arc<Machine>, LookupError>> {
        let questions = self.questions(query, freshness, false);
        let results = self.evaluate_all(questions, resolve::look_up).await;
        let results: Vec<_> =
            results.into_iter().map(|result| result.unwrap_or_else(|| Err(contradiction_error().into()))).collect();
        let found = results.iter().any(Result::is_ok);
        self.state.lock().unfound_nodes = if found { 0 } else { results.len() };
        results
    }

    /// Returns the cached machine of each query, in their order, however old. Nothing is read.
    pub fn cached(&self, queries: &[MachineQuery]) -> Vec<Option<Arc<Machine>>> {
        let (questions, state) = (self.questions(queries, Freshness::Cached, false), self.state.lock());
        let view = |question| QueryView { question, snapshot: &state.snapshot, settings: &self.settings };
        questions.iter().map(|question| Some(Arc::clone(&view(question).known()?.machine))).collect()
    }

    /// Returns whether the machine exists and its power state, not older than `freshness`. Many at once are read with lists.
    pub async fn check_existence(&self, query: &MachineQuery, freshness: Duration) -> MachineExistence {
        self.existence_of(self.questions(std::slice::from_ref(query), Freshness::Within(freshness), true)).await
    }

    /// Checks existence by a read of this machine alone, where a slightly stale list would be wrong.
    pub async fn check_existence_directly(&self, query: &MachineQuery, freshness: Duration) -> MachineExistence {
        let questions = self.questions(std::slice::from_ref(query), Freshness::Within(freshness), true);
        let directly = |question: &PendingQuery| PendingQuery { needs_single_read: true, ..question.clone() };
        self.existence_of(questions.iter().map(directly).collect()).await
    }

    /// Returns the verdict of the lists that should have a machine, after ARM reported that it does not exist; read after
    /// that, and not older than `freshness`.
    pub async fn second_look(&self, query: &MachineQuery, freshness: Duration) -> SecondLook {
        let questions = self.questions(std::slice::from_ref(query), Freshness::Within(freshness), false);
        let confirmation = |question: &PendingQuery| PendingQuery { second_look: true, ..question.clone() };
        let result =
            self.evaluate_all(questions.iter().map(confirmation).collect(), second_look::evaluate).await.pop().flatten();
        result.unwrap_or_else(|| SecondLook::Silent(contradiction_error().message))
    }

    async fn existence_of(&self, questions: Arc<[PendingQuery]>) -> MachineExistence {
        let result = self.evaluate_all(questions, existence::check_existence).await.pop().flatten();
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

    /// Returns the machines that are known to have some of these interfaces (keys of ids). Nothing is read.
    pub fn with_interfaces(&self, keys: &BTreeSet<&str>) -> Vec<Arc<Machine>> {
        let has = |machine: &Machine| machine.interfaces.iter().any(|interface| keys.contains(interface.id.key().as_str()));
        let state = self.state.lock();
        state.snapshot.entries.values().map(|entry| &entry.machine).filter(|machine| has(machine)).cloned().collect()
    }

    /// Notes a machine that a read or the answer of a write has shown just now.
    pub fn observe(&self, machine: Machine) {
        let now = self.clock.now();
        self.state.lock().snapshot.observe(machine, now);
    }

    /// Notes that a machine has been removed.
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

    /// Ages, counts, errors and reads, for the status page.
    pub fn status(&self) -> InventoryStatus {
        let state = self.state.lock();
        InventoryStatus {
            waiting: state.pending.values().map(|questions| questions.len()).sum(),
            lists_sent: self.lists_sent.load(Ordering::Relaxed),
            single_reads_sent: self.single_reads_sent.load(Ordering::Relaxed),
            ..report::status(&state.snapshot, self.clock.now())
        }
    }

    fn questions(&self, query: &[MachineQuery], freshness: Freshness, confirm: bool) -> Arc<[PendingQuery]> {
        let now = self.clock.now();
        query.iter().map(|query| PendingQuery::new(query, &self.settings, now, freshness, confirm)).collect()
    }

    /// Reads until all questions are answered. `None` stays where reading did not lead to an answer.
    async fn evaluate_all<T>(
        &self,
        questions: Arc<[PendingQuery]>,
        evaluate_query: fn(&QueryView<'_>) -> QueryEvaluation<T>,
    ) -> Vec<Option<T>> {
        let mut results: Vec<Option<T>> = questions.iter().map(|_| None).collect();
        if self.evaluate(&questions, evaluate_query, &mut results) == QueryProgress::Answered {
            return results;
        }
        let _ticket = QueryTicket::new(self, Arc::clone(&questions));
        let mut rounds = 0;
        while rounds < MAX_ROUNDS {
            let ended = self.read_ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            {
                let _planning_guard = self.planning.lock().await;
                // Concurrent callers join the same round.
                tokio::task::yield_now().await;
                match self.evaluate(&questions, evaluate_query, &mut results) {
                    QueryProgress::Answered => return results,
                    QueryProgress::NeedsReads if self.start_round().await => {
                        rounds += 1;
                        continue;
                    }
                    QueryProgress::NeedsReads | QueryProgress::ReadsInFlight => {}
                }
            }
            ended.await;
        }
        self.evaluate(&questions, evaluate_query, &mut results);
        results
    }

    /// Fills in the answers there are, and says how far that is.
    fn evaluate<T>(
        &self,
        questions: &[PendingQuery],
        evaluate_query: fn(&QueryView<'_>) -> QueryEvaluation<T>,
        results: &mut [Option<T>],
    ) -> QueryProgress {
        let state = self.state.lock();
        let mut progress = QueryProgress::Answered;
        for (question, result) in questions.iter().zip(results.iter_mut()).filter(|(_, result)| result.is_none()) {
            let view = QueryView { question, snapshot: &state.snapshot, settings: &self.settings };
            progress = progress.max(match evaluate_query(&view) {
                QueryEvaluation::Done(finished) => {
                    *result = Some(finished);
                    QueryProgress::Answered
                }
                QueryEvaluation::NeedsReads(needs)
                    if needs.iter().all(|need| plan::is_under_way(need, &state.in_flight)) =>
                {
                    QueryProgress::ReadsInFlight
                }
                QueryEvaluation::NeedsReads(_) => QueryProgress::NeedsReads,
            });
        }
        progress
    }

    /// Starts a round of reads for all questions that wait, and waits a while for them; whether there was anything to start.
    async fn start_round(&self) -> bool {
        let (reads, urgency) = self.plan();
        let started = self.start(reads, urgency);
        if started.is_empty() {
            return false;
        }
        // What failed is in the snapshot, and answers the questions from there.
        let _ = tokio::time::timeout(ROUND_TIMEOUT, join_all(started)).await;
        true
    }

    fn plan(&self) -> (Vec<ArmRead>, Urgency) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let mut urgency = Urgency::Node;
        let mut needs = BTreeSet::new();
        for question in state.pending.values().flat_map(|questions| questions.iter()) {
            let view = QueryView { question, snapshot: &state.snapshot, settings: &self.settings };
            let needed = match question {
                _ if question.second_look => required_reads(second_look::evaluate(&view)),
                _ if question.is_existence_check => required_reads(existence::check_existence(&view)),
                _ => required_reads(resolve::look_up(&view)),
            };
            let is_existence = question.is_existence_check || question.second_look;
            if !needed.is_empty() && !is_existence && view.known().is_none() {
                urgency = Urgency::Change;
            }
            needs.extend(needed.into_iter().filter(|need| !plan::is_under_way(need, &state.in_flight)));
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
            let under_way = InFlightRead::new(Arc::clone(&this), read)?;
            let arm = arm.clone();
            Some(tokio::spawn(async move { under_way.inventory.send(&arm, under_way.read.clone()).await }))
        };
        reads.into_iter().filter_map(start).collect()
    }

    async fn send(&self, arm: &ArmClient, read: ArmRead) -> ArmResult<()> {
        // Never closed, so that there is always one to wait for.
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
    fn new(inventory: &'a Inventory, questions: Arc<[PendingQuery]>) -> Self {
        let mut state = inventory.state.lock();
        let number = state.next_ticket;
        state.next_ticket += 1;
        state.pending.insert(number, questions);
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
