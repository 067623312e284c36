//! Queue of callers that wait for tokens. Pure: callers pass the time.
//!
//! In: callers with their buckets and urgency. Out: the callers to admit now, and the time of the next evaluation. Rules:
//! - Each class of urgency equals [`URGENCY_STEP`] of waiting. A caller precedes all that arrive later by more than the difference of
//!   their classes, which prevents starvation. Within that time the more urgent caller is first; equal callers keep their order of arrival.
//! - Inside a class, the namespace that has used least within the window is first. A write with several causes takes the position of the
//!   first of their namespaces, and a request that no Service causes precedes all. After [`MAX_FAIRNESS_DELAY`] only age counts.
//! - Callers with the same shared buckets and causes form a line. While one of these buckets is empty, only the first caller is evaluated,
//!   so that a wake-up costs lines, not callers. The bucket of a single resource delays only the callers that need this resource.
//! - A Service whose namespace has used more than its allowance needs a permit before it writes, which leaves the reserve of the window to
//!   others. It waits before it has reserved or locked anything, so that no other Service waits for it.
//! - A caller takes a token from each of its buckets or from none. A caller that waits for one bucket delays only callers that need it.
//! - Less urgent callers leave a few of ARM's own tokens, so that the most urgent do not have to wait for a refill. Waiting increases
//!   urgency, as above, so this rule excludes no caller forever.
//! - For the first caller that waits for a bucket, a token is reserved in each of its other buckets that would not have refilled by the
//!   time of its admission. Otherwise two streams of single-bucket callers could starve it.

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

/// Waiting time after which a caller is ordered by age alone, so that namespaces that have used less cannot starve it.
const MAX_FAIRNESS_DELAY: Duration = WINDOW;

/// Order of callers: their time of arrival plus [`URGENCY_STEP`] for each less urgent class, then their number.
type QueueRank = (Instant, u64);

/// Order of lines: the class of the first caller, the lowest usage among its namespaces, and its rank.
type LineOrder = (u32, u32, QueueRank);

/// Properties of a caller that determine its position in the queue.
#[derive(Debug, Clone)]
pub(super) struct QueueClaim {
    pub(super) urgency: Urgency,
    pub(super) causes: Causes,
    /// Usage after which the reserve is closed to the namespace, for a permit; `None` for a request.
    pub(super) allowance: Option<u32>,
}

impl From<Urgency> for QueueClaim {
    /// Returns the claim of a request that no Service causes.
    fn from(urgency: Urgency) -> Self {
        Self { urgency, causes: Causes::default(), allowance: None }
    }
}

/// Entry of a caller in the queue.
#[derive(Debug, Clone)]
pub(super) struct QueueTicket {
    /// Unique number of the caller.
    pub(super) number: u64,
    rank: QueueRank,
    /// Tokens that admission takes, one from each bucket.
    pub(super) charges: Arc<[BucketCharge]>,
    claim: QueueClaim,
}

impl QueueTicket {
    /// Returns the tokens and the usage that admission took.
    pub(super) fn give_back(&self, buckets: &mut QuotaBuckets, now: Instant) {
        buckets.give_back(&self.charges, now, now);
        if self.claim.allowance.is_none() {
            buckets.usage.remove(&self.charges, &self.claim.causes, now);
        }
    }

    /// Returns `true` if the caller must leave the reserve to other namespaces.
    fn is_closed_out(&self, buckets: &QuotaBuckets, now: Instant) -> bool {
        self.claim.allowance.is_some_and(|allowance| buckets.usage.of_causes(&self.claim.causes, now) > allowance)
    }
}

/// Common properties of the callers in a line.
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
    /// Numbers of the admitted callers, most urgent first; their tokens are taken.
    pub(super) tickets: Vec<u64>,
    /// Time at which the next caller can be admitted, unless tokens change before; `None` if the queue is empty.
    pub(super) retry_at: Option<Instant>,
}

fn shared_charges(charges: &[BucketCharge]) -> impl Iterator<Item = &BucketCharge> {
    charges.iter().filter(|charge| charge.id.level != QuotaLevel::Resource)
}

/// Returns the current urgency class of a caller, 0 being the most urgent: one less for each [`URGENCY_STEP`] of waiting.
/// In order of rank, the class never falls.
fn class((rank, _): QueueRank, now: Instant) -> u32 {
    let remaining = rank.saturating_duration_since(now).as_millis().div_ceil(URGENCY_STEP.as_millis());
    u32::try_from(remaining).unwrap_or(u32::MAX)
}

impl LineKey {
    fn of(charges: &[BucketCharge], claim: &QueueClaim) -> Self {
        let buckets = shared_charges(charges).map(|charge| charge.id.clone()).collect();
        Self { buckets, causes: claim.causes.clone(), is_permit: claim.allowance.is_some() }
    }

    fn order(&self, rank: QueueRank, buckets: &QuotaBuckets, now: Instant) -> LineOrder {
        let is_overdue = now.saturating_duration_since(rank.0) >= MAX_FAIRNESS_DELAY;
        let used = if is_overdue { 0 } else { buckets.usage.of_causes(&self.causes, now) };
        (class(rank, now), used, rank)
    }
}

impl BudgetQueue {
    /// Adds a caller to the queue.
    pub(super) fn join(&mut self, charges: Vec<BucketCharge>, claim: impl Into<QueueClaim>, now: Instant) -> QueueTicket {
        let claim = claim.into();
        self.count += 1;
        let rank = (now + URGENCY_STEP * claim.urgency as u32, self.count);
        let line = self.lines.entry(LineKey::of(&charges, &claim));
        let line = line.or_insert_with(|| QueueLine {
            shared_charges: shared_charges(&charges).cloned().collect(),
            waiting: BTreeMap::new(),
        });
        let ticket = QueueTicket { number: self.count, rank, charges: charges.into(), claim };
        line.waiting.insert(rank, ticket.clone());
        ticket
    }

    /// Removes a caller. Returns `false` if it was admitted before, so that its tokens are taken.
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
        let (mut queued, mut reserved) = (AdmittedCallers::default(), ReservedTokens::default());
        while let Some(Reverse((order, key))) = firsts.pop() {
            let (class, _, rank) = order;
            let current = key.order(rank, buckets, now);
            if current > order {
                // A caller of the same namespace was admitted from another line.
                firsts.push(Reverse((current, key)));
                continue;
            }
            let Some(line) = self.lines.get_mut(&key) else { continue };
            let Some(caller) = line.waiting.get(&rank) else { continue };
            let is_closed_out = caller.is_closed_out(buckets, now);
            let line_time =
                buckets.send_time(&line.shared_charges, |charge| reserved.remainder(charge, class, is_closed_out), now);
            if line_time.at > now {
                queued.retry_no_later_than(line_time.at);
                if !is_closed_out {
                    reserved.add(&line.shared_charges, line_time, now);
                }
                continue;
            }
            let ready = buckets.send_time(&caller.charges, |charge| reserved.remainder(charge, class, is_closed_out), now);
            if ready.at > now {
                queued.retry_no_later_than(ready.at);
                reserved.add(&caller.charges, ready, now);
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

    /// Returns the number of waiting callers, by the bucket that delays them longest and by urgency.
    pub(super) fn waiting(&self, buckets: &QuotaBuckets, now: Instant) -> BTreeMap<(BucketId, Urgency), usize> {
        let mut counts = BTreeMap::new();
        for caller in self.lines.values().flat_map(|line| line.waiting.values()) {
            let ready = buckets.send_time(&caller.charges, |_| 0.0, now);
            let Some(charge) = caller.charges.get(ready.limiting_bucket) else { continue };
            *counts.entry((charge.id.clone(), caller.claim.urgency)).or_default() += 1;
        }
        counts
    }

    /// Returns the delay of a new or changed Service in `namespace`: its wait for a permit, or else the longest wait of a request
    /// that it or all Services need.
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
    /// Returns the rank of the caller after `rank`, or of the first caller.
    fn after(&self, rank: Option<QueueRank>) -> Option<QueueRank> {
        let range = (rank.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        self.waiting.range(range).next().map(|(rank, _)| *rank)
    }
}

impl AdmittedCallers {
    fn retry_no_later_than(&mut self, at: Instant) {
        self.retry_at = Some(self.retry_at.map_or(at, |next| next.min(at)));
    }
}

/// Tokens that later callers must leave in the buckets.
#[derive(Default)]
struct ReservedTokens {
    tokens: HashMap<BucketId, f64>,
    /// Buckets that a caller already waits for.
    delaying_buckets: HashSet<BucketId>,
}

impl ReservedTokens {
    fn tokens(&self, id: &BucketId) -> f64 {
        self.tokens.get(id).copied().unwrap_or(0.0)
    }

    /// Returns the tokens that a caller must leave in the bucket of `charge`.
    fn remainder(&self, charge: &BucketCharge, class: u32, is_closed_out: bool) -> f64 {
        let reserve = if is_closed_out { charge.limit.reserve() } else { 0.0 };
        self.tokens(&charge.id) + charge.id.level.reserve(class) + reserve
    }

    fn add(&mut self, charges: &[BucketCharge], ready: SendTime, now: Instant) {
        let Some(last) = charges.get(ready.limiting_bucket) else { return };
        if !self.delaying_buckets.insert(last.id.clone()) {
            return;
        }
        let wait = ready.at.saturating_duration_since(now).as_secs_f64();
        for charge in charges.iter().filter(|charge| charge.id != last.id) {
            let missing = (1.0 - wait * charge.limit.per_second).max(0.0);
            *self.tokens.entry(charge.id.clone()).or_default() += missing;
        }
    }
}

#[cfg(test)]
mod tests;
