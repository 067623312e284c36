//! Scheduler for pending operations of one collection: poll each, or list once for all. Pure: callers pass the time.
//!
//! In: the waiting writes with their times, and the finished lists. Out: the next step of each waiting write.
//!
//! A list costs one request per page, and saves a poll and a read for each write whose operation has ended. While new writes arrive, the
//! interval between rounds grows, so that each list completes many writes. A single write polls its own operation at its own pace. If ARM
//! allows fewer lists than polls, a page costs more: more writes must wait for a list, and lists are rarer.
//!
//! A list of several pages that shows no ended operation is wasted. So after a long list, the oldest write polls its own operation as the
//! sentinel. Its end gives the length of operations, and with it the time at which a list shows enough ended ones. When no more writes
//! are pending, the list follows at the expected end of the last one.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::providers::azure::arm::PollingPace;

/// Maximum interval between two rounds if the list has one page.
const BASE_MAX_INTERVAL: Duration = Duration::from_secs(1);
/// Increase of the maximum interval for each further page.
const MAX_INTERVAL_PER_PAGE: Duration = Duration::from_secs(2);
/// Maximum interval for lists of any length.
const MAX_INTERVAL: Duration = Duration::from_secs(8);
/// Increase of the interval's growth factor for each further page, because most of a long list concerns other resources.
const GROWTH_PER_PAGE: f64 = 0.5;
/// Delay of a list after the expected end of an operation.
const MARGIN: Duration = Duration::from_millis(50);
/// Time without lists after a failed list.
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
    /// Time at which the write would poll its own operation.
    due: Instant,
    /// Whether the last round decided that the write polls its own operation.
    polls_alone: bool,
}

#[derive(Debug)]
pub(super) struct WatchSchedule {
    pace: PollingPace,
    waiting: BTreeMap<Waiter, WaitingWrite>,
    /// Times at which ARM accepted the watched writes, oldest first.
    accepted: BTreeMap<Waiter, Instant>,
    /// Number of announced writes that ARM has not accepted yet.
    unaccepted: usize,
    /// Length of the operation that ended first since a list.
    length: Option<Duration>,
    /// Whether an operation has ended since the last list.
    has_ended: bool,
    sentinel: Option<Waiter>,
    /// Whether the operation of a sentinel has ended since the last list.
    sentinel_has_ended: bool,
    /// Time between rounds, in which the waiting writes are listed or start to poll alone.
    interval: Duration,
    last_round: Option<Instant>,
    /// Number of pages of the last list.
    pages: usize,
    /// Number of waiting writes that justify a page.
    page_cost: usize,
    is_listing: bool,
    /// End of the time without lists, after a failed one.
    not_before: Option<Instant>,
}

impl WatchSchedule {
    pub(super) fn new(pace: PollingPace, page_cost: usize) -> Self {
        Self {
            pace,
            waiting: BTreeMap::new(),
            accepted: BTreeMap::new(),
            unaccepted: 0,
            length: None,
            has_ended: false,
            sentinel: None,
            sentinel_has_ended: false,
            interval: pace.first,
            last_round: None,
            pages: 1,
            page_cost,
            is_listing: false,
            not_before: None,
        }
    }

    /// Registers `waiter`, which would poll its own operation at `due`.
    pub(super) fn wait(&mut self, waiter: Waiter, due: Instant, now: Instant) {
        if self.waiting.is_empty() && !self.is_busy(now) {
            (self.interval, self.last_round) = (self.pace.first, None);
            (self.has_ended, self.sentinel_has_ended) = (false, false);
        }
        self.accepted.entry(waiter).or_insert(now);
        self.waiting.insert(waiter, WaitingWrite { due, polls_alone: false });
    }

    /// Records that `waiter` has received an event, and may wait again.
    pub(super) fn acknowledge(&mut self, waiter: Waiter) {
        self.waiting.remove(&waiter);
    }

    /// Removes `waiter`, which then receives no events.
    pub(super) fn leave(&mut self, waiter: Waiter) {
        self.acknowledge(waiter);
        self.accepted.remove(&waiter);
        self.sentinel = self.sentinel.filter(|sentinel| *sentinel != waiter);
    }

    /// Records that the operation of `waiter` has ended. Returns `true` if it is the first since the last list, so that others may
    /// list earlier.
    pub(super) fn ended(&mut self, waiter: Waiter, now: Instant) -> bool {
        let Some(accepted) = self.accepted.get(&waiter) else { return false };
        let length = now.saturating_duration_since(*accepted);
        let shorter = self.length.filter(|existing| self.has_ended && *existing < length);
        self.length = Some(shorter.unwrap_or(length));
        let is_sentinel = self.sentinel == Some(waiter);
        let event = if is_sentinel { &mut self.sentinel_has_ended } else { &mut self.has_ended };
        !std::mem::replace(event, true)
    }

    /// Returns `true` if `waiter` is the sentinel, whose end causes a list.
    pub(super) fn is_sentinel(&self, waiter: Waiter) -> bool {
        self.sentinel == Some(waiter) && self.needs_sentinel()
    }

    /// Counts a write that ARM has not accepted yet, or the end of its request.
    pub(super) fn announce(&mut self, is_unaccepted: bool) {
        self.unaccepted = if is_unaccepted { self.unaccepted + 1 } else { self.unaccepted.saturating_sub(1) };
    }

    pub(super) fn is_waiting(&self, waiter: Waiter) -> bool {
        self.waiting.contains_key(&waiter)
    }

    /// Returns `true` if the schedule holds no state that a new one would lack.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.waiting.is_empty()
            && self.unaccepted == 0
            && !self.is_listing
            && !self.is_busy(now)
            && self.not_before.is_none_or(|until| until <= now)
    }

    /// Returns the next step of `waiter`. After [`WatchMove::List`] a list is in progress until [`WatchSchedule::listed`].
    pub(super) fn next(&mut self, waiter: Waiter, now: Instant) -> WatchMove {
        let Some(own) = self.waiting.get(&waiter).copied() else { return WatchMove::PollAlone };
        if self.is_listing {
            return WatchMove::WaitForList;
        }
        let poll_alone = if own.due <= now { WatchMove::PollAlone } else { WatchMove::WaitUntil(own.due) };
        if own.polls_alone || self.not_before.is_some_and(|until| now < until) {
            return poll_alone;
        }
        let round = self.next_round(own.due);
        if now < round {
            return self.poll_as_sentinel(waiter, own.due, now).unwrap_or(WatchMove::WaitUntil(round));
        }
        let ready = self.waiting.values().filter(|item| item.due <= now).count();
        if ready >= self.min_waiters() {
            self.is_listing = true;
            return WatchMove::List;
        }
        if self.waiting.len() > 1 && ready > 0 {
            self.waiting.values_mut().filter(|item| item.due <= now).for_each(|item| item.polls_alone = true);
            self.end_round(now);
        }
        poll_alone
    }

    /// Returns the next step of the sentinel: the oldest waiter, if a list would probably show no ended operation.
    fn poll_as_sentinel(&mut self, waiter: Waiter, due: Instant, now: Instant) -> Option<WatchMove> {
        let is_oldest = || self.accepted.first_key_value().is_some_and(|(oldest, _)| *oldest == waiter);
        if !self.needs_sentinel()
            || self.sentinel_has_ended
            || !self.sentinel.map_or_else(is_oldest, |sentinel| sentinel == waiter)
        {
            return None;
        }
        self.sentinel = Some(waiter);
        Some(if due <= now { WatchMove::PollAlone } else { WatchMove::WaitUntil(due.min(self.next_round(due))) })
    }

    /// Returns `true` if a list pays off but has several pages, and no operation has ended since the last one.
    fn needs_sentinel(&self) -> bool {
        self.pages > 1 && !self.has_ended && self.accepted.len() >= self.min_waiters()
    }

    /// Returns the number of waiting writes from which on a list pays off.
    fn min_waiters(&self) -> usize {
        self.pages.saturating_mul(self.page_cost).max(2)
    }

    /// Records the end of a list of `pages` pages; `None` if it failed.
    pub(super) fn listed(&mut self, pages: Option<usize>, now: Instant) {
        (self.is_listing, self.sentinel) = (false, None);
        (self.has_ended, self.sentinel_has_ended) = (false, false);
        match pages {
            Some(pages) => self.pages = pages.max(1),
            None => self.not_before = Some(now + AFTER_FAILURE),
        }
        self.end_round(now);
    }

    fn end_round(&mut self, now: Instant) {
        let further_pages = f64::from(u8::try_from(self.pages - 1).unwrap_or(u8::MAX));
        let growth = self.pace.factor.max(1.0) + GROWTH_PER_PAGE * further_pages;
        self.interval = self.interval.mul_f64(growth).min(self.max_interval());
        self.last_round = Some(now);
    }

    fn max_interval(&self) -> Duration {
        let increase = MAX_INTERVAL_PER_PAGE.saturating_mul(u32::try_from(self.pages - 1).unwrap_or(u32::MAX));
        let page_cost = u32::try_from(self.page_cost).unwrap_or(u32::MAX);
        BASE_MAX_INTERVAL.saturating_add(increase).saturating_mul(page_cost).min(MAX_INTERVAL).max(self.pace.first)
    }

    /// Returns the next round of a write that is due at `own`.
    ///
    /// Writes that are due within a moment proceed together, and not too soon after the last round. A later `own`, which ARM may have
    /// requested, is respected.
    fn next_round(&self, own: Instant) -> Instant {
        let first = self.waiting.values().map(|item| item.due).min().unwrap_or(own);
        let moment = first + self.pace.first / 2;
        let together = self.waiting.values().map(|item| item.due).filter(|due| *due <= moment).max().unwrap_or(own);
        let spaced = self.earliest_round().map_or(together, |earliest| together.max(earliest));
        spaced.max(if own > moment { own } else { first })
    }

    /// Returns the earliest time of the next round; `None` if none has been.
    fn earliest_round(&self) -> Option<Instant> {
        let expected = |accepted: &Instant| self.length.map(|length| *accepted + length + MARGIN);
        let after_last = |at: &Instant| self.last_round.is_none_or(|last| *at > last);
        if self.needs_sentinel() {
            let (_, oldest) = self.accepted.first_key_value()?;
            let latest = self.last_round.unwrap_or(*oldest) + self.max_interval();
            let enough = self.accepted.values().nth(self.min_waiters() - 1).and_then(expected);
            return Some(enough.filter(after_last).map_or(latest, |at| at.min(latest)));
        }
        let last = self.last_round?;
        if self.unaccepted > 0 {
            // While writes wait for a quota, a list that shows only a few ended operations saves nothing.
            return Some(last + if self.has_ended { self.max_interval() } else { self.interval });
        }
        let (spaced, newest) = (last + self.interval, self.accepted.values().next_back()?);
        let grown = || last + (last.saturating_duration_since(*newest) / 2).max(self.pace.first);
        let after_newest = expected(newest).map(|at| if after_last(&at) { at } else { grown() });
        Some(after_newest.map_or(spaced, |at| at.min(spaced)))
    }

    fn is_busy(&self, now: Instant) -> bool {
        self.last_round.is_some_and(|last| now < last + self.interval)
    }
}

#[cfg(test)]
mod tests;
