//! Who goes next: callers that wait for tokens, over (now).
//!
//! In: callers with their buckets and urgency. Out: who may go, and when to ask again. Rules:
//! - Each class of urgency is worth [`URGENCY_STEP`] of waiting: a caller goes before all that came after it by more than that, however
//!   urgent they are, so nobody starves. Within that time the more urgent goes first; equals go in the order they came.
//! - Callers with the same shared buckets stand in one line. When one of these is empty, only the first is looked at, so a wake-up
//!   costs lines, not callers. A bucket of a single resource holds up only those who want that resource.
//! - A caller takes a token from each of its buckets or from none. Whoever waits for one bucket holds nobody up who does not need it.
//! - The less urgent leave a few of ARM's own tokens behind, so that the most urgent need not wait for a refill. Whoever has waited
//!   counts as more urgent, as above, and so nobody is kept out by it.
//! - The first that waits for a bucket has a token set aside in its other buckets, as far as they would not have refilled by the
//!   time it goes; otherwise two streams of single-bucket callers could keep it out for ever.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, HashSet},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    buckets::{QuotaBuckets, SendTime},
    limits::{BucketCharge, BucketId, QuotaLevel},
    urgency::Urgency,
};

/// Waiting time that equals one class of urgency.
pub(super) const URGENCY_STEP: Duration = Duration::from_secs(60);

/// Order of callers: the time they came, later by [`URGENCY_STEP`] for each class less urgent; then first come, first served.
type QueueRank = (Instant, u64);

/// Position of a caller in the queue.
#[derive(Debug, Clone)]
pub(super) struct QueueTicket {
    /// Unique number of the caller.
    pub(super) number: u64,
    rank: QueueRank,
    /// Charges of the request.
    pub(super) charges: Arc<[BucketCharge]>,
}

/// Callers that need the same shared buckets.
#[derive(Debug)]
struct QueueLine {
    shared_charges: Vec<BucketCharge>,
    waiting: BTreeMap<QueueRank, QueuedCaller>,
}

#[derive(Debug)]
struct QueuedCaller {
    urgency: Urgency,
    charges: Arc<[BucketCharge]>,
}

/// Queue of all waiting callers.
#[derive(Debug, Default)]
pub(super) struct BudgetQueue {
    lines: BTreeMap<Vec<BucketId>, QueueLine>,
    count: u64,
}

/// Result of one evaluation of the queue.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AdmittedCallers {
    /// Numbers of the tickets that go now, most urgent first; their tokens are taken.
    pub(super) tickets: Vec<u64>,
    /// Time at which the next can be admitted, if nothing else happens; `None` if the queue is empty.
    pub(super) retry_at: Option<Instant>,
}

fn shared_charges(drains: &[BucketCharge]) -> impl Iterator<Item = &BucketCharge> {
    drains.iter().filter(|drain| drain.id.level != QuotaLevel::Resource)
}

/// Returns the current urgency of a caller, from 0, the most urgent: one class less for each [`URGENCY_STEP`] that it has
/// waited. Later callers never have a lower value.
fn class((rank, _): QueueRank, now: Instant) -> u32 {
    let remaining = rank.saturating_duration_since(now).as_millis().div_ceil(URGENCY_STEP.as_millis());
    u32::try_from(remaining).unwrap_or(u32::MAX)
}

fn line_key(drains: &[BucketCharge]) -> Vec<BucketId> {
    shared_charges(drains).map(|drain| drain.id.clone()).collect()
}

impl BudgetQueue {
    /// Adds a caller to the queue.
    pub(super) fn join(&mut self, drains: Vec<BucketCharge>, urgency: Urgency, now: Instant) -> QueueTicket {
        self.count += 1;
        let rank = (now + URGENCY_STEP * urgency as u32, self.count);
        let line = self.lines.entry(line_key(&drains));
        let line = line.or_insert_with(|| QueueLine {
            shared_charges: shared_charges(&drains).cloned().collect(),
            waiting: BTreeMap::new(),
        });
        let drains: Arc<[BucketCharge]> = drains.into();
        line.waiting.insert(rank, QueuedCaller { urgency, charges: Arc::clone(&drains) });
        QueueTicket { number: self.count, rank, charges: drains }
    }

    /// Gives a place away. `false`: the caller was let through before, and its tokens are taken.
    pub(super) fn leave(&mut self, ticket: &QueueTicket) -> bool {
        let key = line_key(&ticket.charges);
        let Some(line) = self.lines.get_mut(&key) else { return false };
        let was_waiting = line.waiting.remove(&ticket.rank).is_some();
        if line.waiting.is_empty() {
            self.lines.remove(&key);
        }
        was_waiting
    }

    /// Admits all callers that can send now.
    pub(super) fn admit(&mut self, buckets: &mut QuotaBuckets, now: Instant) -> AdmittedCallers {
        let firsts = self.lines.iter().filter_map(|(key, line)| Some(Reverse((line.after(None)?, key.clone()))));
        let mut firsts: BinaryHeap<_> = firsts.collect();
        let (mut queued, mut aside) = (AdmittedCallers::default(), ReservedTokens::default());
        while let Some(Reverse((rank, key))) = firsts.pop() {
            let Some(line) = self.lines.get_mut(&key) else { continue };
            let Some(caller) = line.waiting.get(&rank) else { continue };
            let class = class(rank, now);
            let of_line = buckets.send_time(&line.shared_charges, |id| aside.tokens(id) + id.level.reserve(class), now);
            if of_line.at > now {
                queued.retry_no_later_than(of_line.at);
                aside.add(&line.shared_charges, of_line, now);
                continue;
            }
            let ready = buckets.send_time(&caller.charges, |id| aside.tokens(id) + id.level.reserve(class), now);
            if ready.at > now || buckets.take(&caller.charges, now).is_err() {
                queued.retry_no_later_than(ready.at);
                aside.add(&caller.charges, ready, now);
            } else {
                line.waiting.remove(&rank);
                queued.tickets.push(rank.1);
            }
            let next = line.after(Some(rank));
            firsts.extend(next.map(|next| Reverse((next, key))));
        }
        self.lines.retain(|_, line| !line.waiting.is_empty());
        queued
    }

    /// Returns `true` if no caller waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns how many wait, by the bucket that is the last to let them through and by urgency.
    pub(super) fn waiting(&self, buckets: &QuotaBuckets, now: Instant) -> BTreeMap<(BucketId, Urgency), usize> {
        let mut counts = BTreeMap::new();
        for caller in self.lines.values().flat_map(|line| line.waiting.values()) {
            let ready = buckets.send_time(&caller.charges, |_| 0.0, now);
            let Some(drain) = caller.charges.get(ready.limiting_bucket) else { continue };
            *counts.entry((drain.id.clone(), caller.urgency)).or_default() += 1;
        }
        counts
    }

    /// Returns the bucket for which a request for a new or changed Service waits longest, and until when the first one in
    /// its line does.
    pub(super) fn longest_wait(&self, buckets: &QuotaBuckets, now: Instant) -> Option<(BucketId, Instant)> {
        let waits = self.lines.values().filter_map(|line| {
            let caller = line.waiting.values().find(|caller| caller.urgency <= Urgency::Change)?;
            let ready = buckets.send_time(&caller.charges, |_| 0.0, now);
            let charge = caller.charges.get(ready.limiting_bucket)?;
            (ready.at > now).then(|| (charge.id.clone(), ready.at))
        });
        waits.max_by_key(|(_, until)| *until)
    }
}

impl QueueLine {
    /// Returns the caller behind `rank`, or the first.
    fn after(&self, rank: Option<QueueRank>) -> Option<QueueRank> {
        let behind = (rank.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        self.waiting.range(behind).next().map(|(rank, _)| *rank)
    }
}

impl AdmittedCallers {
    fn retry_no_later_than(&mut self, at: Instant) {
        self.retry_at = Some(self.retry_at.map_or(at, |next| next.min(at)));
    }
}

/// Tokens that others must leave behind.
#[derive(Default)]
struct ReservedTokens {
    tokens: HashMap<BucketId, f64>,
    has_first: HashSet<BucketId>,
}

impl ReservedTokens {
    fn tokens(&self, id: &BucketId) -> f64 {
        self.tokens.get(id).copied().unwrap_or(0.0)
    }

    fn add(&mut self, drains: &[BucketCharge], ready: SendTime, now: Instant) {
        let Some(last) = drains.get(ready.limiting_bucket) else { return };
        if !self.has_first.insert(last.id.clone()) {
            return;
        }
        let wait = ready.at.saturating_duration_since(now).as_secs_f64();
        for drain in drains.iter().filter(|drain| drain.id != last.id) {
            let missing = (1.0 - wait * drain.limit.per_second).max(0.0);
            *self.tokens.entry(drain.id.clone()).or_default() += missing;
        }
    }
}

#[cfg(test)]
mod tests;
