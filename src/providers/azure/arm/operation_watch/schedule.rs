//! What those ask next who wait for the operations of one collection: each for its own, or one list for all. Pure: time comes in.
//!
//! In: who waits since when and until when, and the lists that were made. Out: for each who waits, what to do now.
//!
//! A list costs as many requests as it has pages, and saves each whose operation has ended a poll and the read of its document. While
//! writes go on coming, turns keep a distance that grows, so that each list settles many. Who is alone asks alone, at its own pace. Where
//! ARM allows fewer lists than polls, a page weighs more: more have to wait for a list, and lists come less often.
//!
//! A list of several pages that shows nothing ended was in vain. So after such a one the oldest write asks for its own operation, as a
//! scout; when that has ended, it is known when a list shows enough. How long operations take is remembered. When no more writes are on their way, the list comes when
//! the last one should have ended.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::providers::azure::arm::PollingPace;

/// Longest distance between two turns when the list has one page.
const LONGEST_DISTANCE: Duration = Duration::from_secs(1);
/// For each page more.
const LONGEST_DISTANCE_PER_PAGE: Duration = Duration::from_secs(2);
/// Longest distance, however long the list.
const LONGEST_DISTANCE_EVER: Duration = Duration::from_secs(8);
/// By how much more the distance grows from turn to turn for each page more: most of a long list is about others.
const GROWTH_PER_PAGE: f64 = 0.5;
/// So much later than an operation should have ended it is looked for.
const MARGIN: Duration = Duration::from_millis(50);
/// For so long nothing is listed after a list that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

/// Identity of a waiting write.
pub(super) type Waiter = u64;

/// Next step of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchMove {
    /// Wait until this time, unless a list ends earlier.
    WaitUntil(Instant),
    /// Wait for the list in progress.
    WaitForList,
    /// List for all waiters.
    List,
    /// Poll its own operation.
    PollAlone,
}

#[derive(Debug, Clone, Copy)]
struct WaitingWrite {
    /// Time at which it would poll its own operation.
    due: Instant,
    /// Whether its turn has come, and no list was worth it.
    alone: bool,
}

#[derive(Debug)]
pub(super) struct WatchSchedule {
    pace: PollingPace,
    waiting: BTreeMap<Waiter, WaitingWrite>,
    /// Times at which ARM accepted the writes that still wait.
    accepted: BTreeMap<Waiter, Instant>,
    /// Number of writes that ARM has yet to accept.
    coming: usize,
    /// Duration after which the first operation has ended, according to the latest end.
    length: Option<Duration>,
    /// Whether one has ended since the last list.
    has_ended: bool,
    scout: Option<Waiter>,
    /// Whether the operation of a scout has ended since the last list.
    sentinel_has_ended: bool,
    distance: Duration,
    last_turn: Option<Instant>,
    pages: usize,
    /// Cost of a page in waiting writes.
    weight: usize,
    listing: bool,
    not_before: Option<Instant>,
}

impl WatchSchedule {
    pub(super) fn new(pace: PollingPace, weight: usize) -> Self {
        Self {
            pace,
            waiting: BTreeMap::new(),
            accepted: BTreeMap::new(),
            coming: 0,
            length: None,
            has_ended: false,
            scout: None,
            sentinel_has_ended: false,
            distance: pace.first,
            last_turn: None,
            pages: 1,
            weight,
            listing: false,
            not_before: None,
        }
    }

    /// Registers `waiter`, which would poll its own operation at `due`.
    pub(super) fn wait(&mut self, waiter: Waiter, due: Instant, now: Instant) {
        if self.waiting.is_empty() && !self.is_busy(now) {
            (self.distance, self.last_turn) = (self.pace.first, None);
            (self.has_ended, self.sentinel_has_ended) = (false, false);
        }
        self.accepted.entry(waiter).or_insert(now);
        self.waiting.insert(waiter, WaitingWrite { due, alone: false });
    }

    /// Records that `waiter` has received an event, and may wait again.
    pub(super) fn acknowledge(&mut self, waiter: Waiter) {
        self.waiting.remove(&waiter);
    }

    /// Removes `waiter`.
    pub(super) fn leave(&mut self, waiter: Waiter) {
        self.acknowledge(waiter);
        self.accepted.remove(&waiter);
        self.scout = self.scout.filter(|sentinel| *sentinel != waiter);
    }

    /// Records that the operation of `waiter` has ended. Returns `true` if it is the first since the last list: others may
    /// list earlier now.
    pub(super) fn ended(&mut self, waiter: Waiter, now: Instant) -> bool {
        let Some(accepted) = self.accepted.get(&waiter) else { return false };
        let length = now.saturating_duration_since(*accepted);
        let shorter = self.length.filter(|existing| self.has_ended && *existing < length);
        self.length = Some(shorter.unwrap_or(length));
        let is_sentinel = self.scout == Some(waiter);
        let event = if is_sentinel { &mut self.sentinel_has_ended } else { &mut self.has_ended };
        !std::mem::replace(event, true)
    }

    /// Returns `true` if `waiter` looks ahead for the others, and a list follows soon.
    pub(super) fn is_sentinel(&self, waiter: Waiter) -> bool {
        self.scout == Some(waiter) && self.needs_sentinel()
    }

    /// Counts one more write that ARM has yet to accept; or one less.
    pub(super) fn announce(&mut self, is_coming: bool) {
        self.coming = if is_coming { self.coming + 1 } else { self.coming.saturating_sub(1) };
    }

    pub(super) fn is_waiting(&self, waiter: Waiter) -> bool {
        self.waiting.contains_key(&waiter)
    }

    /// Returns `true` if nothing would be lost with this.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.waiting.is_empty()
            && self.coming == 0
            && !self.listing
            && !self.is_busy(now)
            && self.not_before.is_none_or(|until| until <= now)
    }

    /// Returns the next step of `waiter`. After [`WatchMove::List`] a list is in progress until [`WatchSchedule::listed`].
    pub(super) fn next(&mut self, waiter: Waiter, now: Instant) -> WatchMove {
        let Some(own) = self.waiting.get(&waiter).copied() else { return WatchMove::PollAlone };
        if self.listing {
            return WatchMove::WaitForList;
        }
        let by_itself = if own.due <= now { WatchMove::PollAlone } else { WatchMove::WaitUntil(own.due) };
        if own.alone || self.not_before.is_some_and(|until| now < until) {
            return by_itself;
        }
        let queued = self.turn(own.due);
        if now < queued {
            return self.poll_as_sentinel(waiter, own.due, now).unwrap_or(WatchMove::WaitUntil(queued));
        }
        let ready = self.waiting.values().filter(|item| item.due <= now).count();
        if ready >= self.min_waiters() {
            self.listing = true;
            return WatchMove::List;
        }
        if self.waiting.len() > 1 && ready > 0 {
            self.waiting.values_mut().filter(|item| item.due <= now).for_each(|item| item.alone = true);
            self.end_turn(now);
        }
        by_itself
    }

    /// Lets the oldest waiter poll first when a list would probably show no end.
    fn poll_as_sentinel(&mut self, waiter: Waiter, due: Instant, now: Instant) -> Option<WatchMove> {
        let is_oldest = || self.accepted.first_key_value().is_some_and(|(oldest, _)| *oldest == waiter);
        if !self.needs_sentinel()
            || self.sentinel_has_ended
            || !self.scout.map_or_else(is_oldest, |sentinel| sentinel == waiter)
        {
            return None;
        }
        self.scout = Some(waiter);
        Some(if due <= now { WatchMove::PollAlone } else { WatchMove::WaitUntil(due.min(self.turn(due))) })
    }

    /// Returns `true` if a list is worth it, but costs much, and nothing says that it would show anything ended.
    fn needs_sentinel(&self) -> bool {
        self.pages > 1 && !self.has_ended && self.accepted.len() >= self.min_waiters()
    }

    /// Returns for how many writes a list pays off.
    fn min_waiters(&self) -> usize {
        self.pages.saturating_mul(self.weight).max(2)
    }

    /// Records the end of a list, after so many pages; `None` if it failed.
    pub(super) fn listed(&mut self, pages: Option<usize>, now: Instant) {
        (self.listing, self.scout) = (false, None);
        (self.has_ended, self.sentinel_has_ended) = (false, false);
        match pages {
            Some(pages) => self.pages = pages.max(1),
            None => self.not_before = Some(now + AFTER_FAILURE),
        }
        self.end_turn(now);
    }

    fn end_turn(&mut self, now: Instant) {
        let others = f64::from(u8::try_from(self.pages - 1).unwrap_or(u8::MAX));
        let growth = self.pace.factor.max(1.0) + GROWTH_PER_PAGE * others;
        self.distance = self.distance.mul_f64(growth).min(self.longest_distance());
        self.last_turn = Some(now);
    }

    fn longest_distance(&self) -> Duration {
        let more = LONGEST_DISTANCE_PER_PAGE.saturating_mul(u32::try_from(self.pages - 1).unwrap_or(u32::MAX));
        let weight = u32::try_from(self.weight).unwrap_or(u32::MAX);
        LONGEST_DISTANCE.saturating_add(more).saturating_mul(weight).min(LONGEST_DISTANCE_EVER).max(self.pace.first)
    }

    /// Returns when a write that is due at `own` proceeds: together with those that are due a moment after the first, and
    /// not too soon after the list before. A longer delay requested by ARM is kept.
    fn turn(&self, own: Instant) -> Instant {
        let first = self.waiting.values().map(|item| item.due).min().unwrap_or(own);
        let moment = first + self.pace.first / 2;
        let together = self.waiting.values().map(|item| item.due).filter(|due| *due <= moment).max().unwrap_or(own);
        let spaced = self.spaced().map_or(together, |spaced| together.max(spaced));
        spaced.max(if own > moment { own } else { first })
    }

    /// Returns the earliest turn after the one before.
    fn spaced(&self) -> Option<Instant> {
        let expected = |accepted: &Instant| self.length.map(|length| *accepted + length + MARGIN);
        let after_last = |at: &Instant| self.last_turn.is_none_or(|last| *at > last);
        if self.needs_sentinel() {
            let (_, oldest) = self.accepted.first_key_value()?;
            let latest = self.last_turn.unwrap_or(*oldest) + self.longest_distance();
            let enough = self.accepted.values().nth(self.min_waiters() - 1).and_then(expected);
            return Some(enough.filter(after_last).map_or(latest, |at| at.min(latest)));
        }
        let last = self.last_turn?;
        if self.coming > 0 {
            // Behind writes that wait for a quota, a list that shows a few gains nothing.
            return Some(last + if self.has_ended { self.longest_distance() } else { self.distance });
        }
        let (spaced, newest) = (last + self.distance, self.accepted.values().next_back()?);
        let grown = || last + (last.saturating_duration_since(*newest) / 2).max(self.pace.first);
        let of_last = expected(newest).map(|at| if after_last(&at) { at } else { grown() });
        Some(of_last.map_or(spaced, |at| at.min(spaced)))
    }

    fn is_busy(&self, now: Instant) -> bool {
        self.last_turn.is_some_and(|last| now < last + self.distance)
    }
}

#[cfg(test)]
mod tests;
