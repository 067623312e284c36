//! Who goes next: callers that wait for tokens, over (now).
//!
//! In: callers with their buckets and urgency. Out: who may go, and when to ask again. Rules:
//! - Each class of urgency is worth [`CLASS`] of waiting: a caller goes before all that came after it by more than that, however
//!   urgent they are, so nobody starves. Within that time the more urgent goes first; equals go in the order they came.
//! - Callers with the same shared buckets stand in one line. When one of these is empty, only the first is looked at, so a wake-up
//!   costs lines, not callers. A bucket of a single resource holds up only those who want that resource.
//! - A caller takes a token from each of its buckets or from none. Whoever waits for one bucket holds nobody up who does not need it.
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
    Urgency,
    buckets::{Buckets, Ready},
    limits::{BucketId, Drain, Level},
};

/// What one class of urgency is worth.
pub(super) const CLASS: Duration = Duration::from_secs(60);

/// Order of callers: the time they came, later by [`CLASS`] for each class less urgent; then first come, first served.
type Rank = (Instant, u64);

/// A caller's place.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    /// Unique.
    pub(super) number: u64,
    rank: Rank,
    /// What it needs.
    pub(super) drains: Arc<[Drain]>,
}

/// Callers that need the same shared buckets.
#[derive(Debug)]
struct Line {
    shared: Vec<Drain>,
    waiting: BTreeMap<Rank, Caller>,
}

#[derive(Debug)]
struct Caller {
    urgency: Urgency,
    drains: Arc<[Drain]>,
}

/// Everybody who waits.
#[derive(Debug, Default)]
pub(super) struct Queue {
    lines: HashMap<Vec<BucketId>, Line>,
    count: u64,
}

/// What a look at the queue comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// Numbers of the tickets that go now, most urgent first; their tokens are taken.
    pub(super) go: Vec<u64>,
    /// When the next can go, if nothing else happens; `None` when nobody waits.
    pub(super) next: Option<Instant>,
}

fn shared(drains: &[Drain]) -> impl Iterator<Item = &Drain> {
    drains.iter().filter(|drain| drain.id.level != Level::Resource)
}

fn line_of(drains: &[Drain]) -> Vec<BucketId> {
    shared(drains).map(|drain| drain.id.clone()).collect()
}

impl Queue {
    /// Lines up a caller.
    pub(super) fn join(&mut self, drains: Vec<Drain>, urgency: Urgency, now: Instant) -> Ticket {
        self.count += 1;
        let rank = (now + CLASS * urgency as u32, self.count);
        let line = self.lines.entry(line_of(&drains));
        let line = line.or_insert_with(|| Line { shared: shared(&drains).cloned().collect(), waiting: BTreeMap::new() });
        let drains: Arc<[Drain]> = drains.into();
        line.waiting.insert(rank, Caller { urgency, drains: Arc::clone(&drains) });
        Ticket { number: self.count, rank, drains }
    }

    /// Gives a place away. `false`: the caller was let through before, and its tokens are taken.
    pub(super) fn leave(&mut self, ticket: &Ticket) -> bool {
        let key = line_of(&ticket.drains);
        let Some(line) = self.lines.get_mut(&key) else { return false };
        let was_waiting = line.waiting.remove(&ticket.rank).is_some();
        if line.waiting.is_empty() {
            self.lines.remove(&key);
        }
        was_waiting
    }

    /// Lets everybody through who can go now.
    pub(super) fn turn(&mut self, buckets: &mut Buckets, now: Instant) -> Turn {
        let firsts = self.lines.iter().filter_map(|(key, line)| Some(Reverse((line.after(None)?, key.clone()))));
        let mut firsts: BinaryHeap<_> = firsts.collect();
        let (mut turn, mut aside) = (Turn::default(), SetAside::default());
        while let Some(Reverse((rank, key))) = firsts.pop() {
            let Some(line) = self.lines.get_mut(&key) else { continue };
            let Some(caller) = line.waiting.get(&rank) else { continue };
            let of_line = buckets.ready(&line.shared, |id| aside.tokens(id), now);
            if of_line.at > now {
                turn.ask_again(of_line.at);
                aside.add(&line.shared, of_line, now);
                continue;
            }
            let ready = buckets.ready(&caller.drains, |id| aside.tokens(id), now);
            if ready.at > now || buckets.take(&caller.drains, now).is_err() {
                turn.ask_again(ready.at);
                aside.add(&caller.drains, ready, now);
            } else {
                line.waiting.remove(&rank);
                turn.go.push(rank.1);
            }
            let next = line.after(Some(rank));
            firsts.extend(next.map(|next| Reverse((next, key))));
        }
        self.lines.retain(|_, line| !line.waiting.is_empty());
        turn
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// How many wait, by the bucket that is the last to let them through and by urgency.
    pub(super) fn waiting(&self, buckets: &Buckets, now: Instant) -> BTreeMap<(BucketId, Urgency), usize> {
        let mut counts = BTreeMap::new();
        for caller in self.lines.values().flat_map(|line| line.waiting.values()) {
            let ready = buckets.ready(&caller.drains, |_| 0.0, now);
            let Some(drain) = caller.drains.get(ready.last) else { continue };
            *counts.entry((drain.id.clone(), caller.urgency)).or_default() += 1;
        }
        counts
    }
}

impl Line {
    /// Who stands behind `rank`, or first.
    fn after(&self, rank: Option<Rank>) -> Option<Rank> {
        let behind = (rank.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        self.waiting.range(behind).next().map(|(rank, _)| *rank)
    }
}

impl Turn {
    fn ask_again(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

/// Tokens that others must leave behind.
#[derive(Default)]
struct SetAside {
    tokens: HashMap<BucketId, f64>,
    has_first: HashSet<BucketId>,
}

impl SetAside {
    fn tokens(&self, id: &BucketId) -> f64 {
        self.tokens.get(id).copied().unwrap_or(0.0)
    }

    fn add(&mut self, drains: &[Drain], ready: Ready, now: Instant) {
        let Some(last) = drains.get(ready.last) else { return };
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
