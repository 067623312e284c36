//! Who goes next: callers that wait for tokens, over (now). Pure.
//!
//! In: callers with their buckets and urgency. Out: who may go, and when to ask again. Rules:
//! - Each class of urgency is worth [`URGENCY_STEP`] of waiting: a caller goes before all that came after it by more than that, however
//!   urgent they are, so nobody starves. Within that time the more urgent goes first; equals go in the order they came.
//! - Inside a class, namespaces take turns: first is the one that has used least within the window. A write that several of them cause is
//!   at the place of the first of these, and a request that no Service causes precedes all. After [`MAX_TURN_DELAY`] age alone counts.
//! - Callers with the same shared buckets and causes stand in one line. When one of these buckets is empty, only the first is looked at, so
//!   a wake-up costs lines, not callers. A bucket of a single resource holds up only those who want that resource.
//! - A Service whose namespace has used more than its allowance needs a permit before it writes, which leaves the reserve of the window to
//!   others. It waits before it has reserved or locked anything, so that no other Service waits for it.
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
    charge::Causes,
    delay::RequestDelay,
    limits::{BucketCharge, BucketId, QuotaLevel},
    urgency::Urgency,
    window::WINDOW,
};

/// Waiting time that equals one class of urgency.
pub(super) const URGENCY_STEP: Duration = Duration::from_secs(60);

/// Whoever has waited so long is ordered by age alone: others that have used less must not keep it out.
const MAX_TURN_DELAY: Duration = WINDOW;

/// Order of callers: the time they came, later by [`URGENCY_STEP`] for each class less urgent; then first come, first served.
type QueueRank = (Instant, u64);

/// Order of lines: the class of the first caller, what the namespace has used that comes first, the rank.
type LineOrder = (u32, u32, QueueRank);

/// Caller's claim to a place.
#[derive(Debug, Clone)]
pub(super) struct QueueClaim {
    pub(super) urgency: Urgency,
    pub(super) causes: Causes,
    /// Of a permit: what its namespace may have used before the reserve is closed to it. `None` for a request.
    pub(super) allowance: Option<u32>,
}

impl From<Urgency> for QueueClaim {
    /// Returns the claim of a request that no Service causes.
    fn from(urgency: Urgency) -> Self {
        Self { urgency, causes: Causes::default(), allowance: None }
    }
}

/// Position of a caller in the queue.
#[derive(Debug, Clone)]
pub(super) struct QueueTicket {
    /// Unique number of the caller.
    pub(super) number: u64,
    rank: QueueRank,
    /// Charges of the request.
    pub(super) charges: Arc<[BucketCharge]>,
    claim: QueueClaim,
}

impl QueueTicket {
    /// Puts back what was taken for it.
    pub(super) fn give_back(&self, buckets: &mut QuotaBuckets, now: Instant) {
        buckets.give_back(&self.charges, now, now);
        if self.claim.allowance.is_none() {
            buckets.usage.remove(&self.charges, &self.claim.causes, now);
        }
    }

    /// Returns `true` if it must leave the reserve to others.
    fn is_closed_out(&self, buckets: &QuotaBuckets, now: Instant) -> bool {
        self.claim.allowance.is_some_and(|allowance| buckets.usage.of_causes(&self.claim.causes, now) > allowance)
    }
}

/// What the callers of a line have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LineKey {
    buckets: Vec<BucketId>,
    causes: Causes,
    is_permit: bool,
}

/// Callers that need the same shared buckets for the same namespaces.
#[derive(Debug)]
struct QueueLine {
    shared_charges: Vec<BucketCharge>,
    waiting: BTreeMap<QueueRank, QueueTicket>,
}

/// Queue of all waiting callers.
#[derive(Debug, Default)]
pub(super) struct BudgetQueue {
    lines: BTreeMap<LineKey, QueueLine>,
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

impl LineKey {
    fn of(drains: &[BucketCharge], claim: &QueueClaim) -> Self {
        let buckets = shared_charges(drains).map(|drain| drain.id.clone()).collect();
        Self { buckets, causes: claim.causes.clone(), is_permit: claim.allowance.is_some() }
    }

    fn order(&self, rank: QueueRank, buckets: &QuotaBuckets, now: Instant) -> LineOrder {
        let is_overdue = now.saturating_duration_since(rank.0) >= MAX_TURN_DELAY;
        let used = if is_overdue { 0 } else { buckets.usage.of_causes(&self.causes, now) };
        (class(rank, now), used, rank)
    }
}

impl BudgetQueue {
    /// Adds a caller to the queue.
    pub(super) fn join(&mut self, drains: Vec<BucketCharge>, claim: impl Into<QueueClaim>, now: Instant) -> QueueTicket {
        let claim = claim.into();
        self.count += 1;
        let rank = (now + URGENCY_STEP * claim.urgency as u32, self.count);
        let line = self.lines.entry(LineKey::of(&drains, &claim));
        let line = line.or_insert_with(|| QueueLine {
            shared_charges: shared_charges(&drains).cloned().collect(),
            waiting: BTreeMap::new(),
        });
        let ticket = QueueTicket { number: self.count, rank, charges: drains.into(), claim };
        line.waiting.insert(rank, ticket.clone());
        ticket
    }

    /// Gives a place away. `false`: the caller was let through before, and its tokens are taken.
    pub(super) fn leave(&mut self, ticket: &QueueTicket) -> bool {
        let key = LineKey::of(&ticket.charges, &ticket.claim);
        let Some(line) = self.lines.get_mut(&key) else { return false };
        let was_waiting = line.waiting.remove(&ticket.rank).is_some();
        if line.waiting.is_empty() {
            self.lines.remove(&key);
        }
        was_waiting
    }

    /// Admits all callers that can send now.
    pub(super) fn admit(&mut self, buckets: &mut QuotaBuckets, now: Instant) -> AdmittedCallers {
        let first =
            |(key, line): (&LineKey, &QueueLine)| Some(Reverse((key.order(line.after(None)?, buckets, now), key.clone())));
        let mut firsts: BinaryHeap<_> = self.lines.iter().filter_map(first).collect();
        let (mut queued, mut aside) = (AdmittedCallers::default(), ReservedTokens::default());
        while let Some(Reverse((order, key))) = firsts.pop() {
            let (class, _, rank) = order;
            let current = key.order(rank, buckets, now);
            if current > order {
                // A caller of the same namespace went from another line.
                firsts.push(Reverse((current, key)));
                continue;
            }
            let Some(line) = self.lines.get_mut(&key) else { continue };
            let Some(caller) = line.waiting.get(&rank) else { continue };
            let is_closed_out = caller.is_closed_out(buckets, now);
            let of_line =
                buckets.send_time(&line.shared_charges, |charge| aside.remainder(charge, class, is_closed_out), now);
            if of_line.at > now {
                queued.retry_no_later_than(of_line.at);
                if !is_closed_out {
                    aside.add(&line.shared_charges, of_line, now);
                }
                continue;
            }
            let ready = buckets.send_time(&caller.charges, |charge| aside.remainder(charge, class, is_closed_out), now);
            if ready.at > now {
                queued.retry_no_later_than(ready.at);
                aside.add(&caller.charges, ready, now);
            } else {
                buckets.take(&caller.charges, now);
                if !key.is_permit {
                    buckets.usage.add(&caller.charges, &key.causes, now);
                }
                line.waiting.remove(&rank);
                queued.tickets.push(rank.1);
            }
            let next = line.after(Some(rank)).map(|next| key.order(next, buckets, now));
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
            *counts.entry((drain.id.clone(), caller.claim.urgency)).or_default() += 1;
        }
        counts
    }

    /// Returns what a new or changed Service in `namespace` waits for: a permit, or the bucket for which a
    /// request waits longest that it or all Services need.
    pub(super) fn longest_wait(&self, namespace: &str, buckets: &QuotaBuckets, now: Instant) -> Option<RequestDelay> {
        let concerns = |causes: &Causes| causes.iter().any(|cause| cause == namespace);
        let waits = self.lines.iter().filter_map(|(key, line)| {
            let (rank, caller) = line.waiting.iter().find(|(_, caller)| caller.claim.urgency <= Urgency::Change)?;
            let is_awaited = key.causes.is_empty() || caller.claim.urgency == Urgency::Shared;
            let ready = buckets.send_time(&caller.charges, |_| 0.0, now);
            let charge = caller.charges.get(ready.limiting_bucket)?;
            let since = rank.0.checked_sub(URGENCY_STEP * caller.claim.urgency as u32);
            let share_since = since.filter(|_| caller.is_closed_out(buckets, now));
            let is_waiting = ready.at > now || share_since.is_some();
            (is_waiting && (is_awaited || concerns(&key.causes)))
                .then(|| RequestDelay::new(&charge.id, ready.at, share_since))
        });
        waits.max_by_key(|delay| (delay.share_since.is_some(), delay.until))
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

    /// Returns the tokens that a caller leaves behind in the bucket of `charge`.
    fn remainder(&self, charge: &BucketCharge, class: u32, is_closed_out: bool) -> f64 {
        let reserve = if is_closed_out { charge.limit.reserve() } else { 0.0 };
        self.tokens(&charge.id) + charge.id.level.reserve(class) + reserve
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
