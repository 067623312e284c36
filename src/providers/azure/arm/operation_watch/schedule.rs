//! What those ask next who wait for the operations of one collection: each for its own, or one list for all. Pure: time comes in.
//!
//! In: who waits since when and until when, and the lists that were made. Out: for each who waits, what to do now.
//!
//! A list costs as many requests as it has pages, and saves each whose operation has ended a poll and the read of its document. While
//! writes go on coming, turns keep a distance that grows, so that each list settles many. Who is alone asks alone, at its own pace. Where
//! ARM allows fewer lists than polls, a page weighs more: more have to wait for a list, and lists come less often.

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
/// For so long nothing is listed after a list that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

/// One who waits.
pub(super) type Waiter = u64;

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchMove {
    /// Nothing before this time, unless a list ends earlier.
    WaitUntil(Instant),
    /// Wait for the list under way.
    WaitForList,
    /// List for all.
    List,
    /// Ask for one's own operation.
    PollAlone,
}

#[derive(Debug, Clone, Copy)]
struct WaitingWrite {
    /// When it would ask for its own operation.
    due: Instant,
    /// Whether its turn has come, and no list was worth it.
    alone: bool,
}

#[derive(Debug)]
pub(super) struct WatchSchedule {
    pace: PollingPace,
    waiting: BTreeMap<Waiter, WaitingWrite>,
    distance: Duration,
    last_turn: Option<Instant>,
    pages: usize,
    /// What a page is worth in writes that wait.
    weight: usize,
    listing: bool,
    not_before: Option<Instant>,
}

impl WatchSchedule {
    pub(super) fn new(pace: PollingPace, weight: usize) -> Self {
        Self {
            pace,
            waiting: BTreeMap::new(),
            distance: pace.first,
            last_turn: None,
            pages: 1,
            weight,
            listing: false,
            not_before: None,
        }
    }

    /// `waiter` would ask for its own operation at `due`.
    pub(super) fn wait(&mut self, waiter: Waiter, due: Instant, now: Instant) {
        if self.waiting.is_empty() && !self.is_busy(now) {
            (self.distance, self.last_turn) = (self.pace.first, None);
        }
        self.waiting.insert(waiter, WaitingWrite { due, alone: false });
    }

    /// `waiter` waits no more.
    pub(super) fn leave(&mut self, waiter: Waiter) {
        self.waiting.remove(&waiter);
    }

    pub(super) fn is_waiting(&self, waiter: Waiter) -> bool {
        self.waiting.contains_key(&waiter)
    }

    /// Whether nothing would be lost with this.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.waiting.is_empty() && !self.listing && !self.is_busy(now) && self.not_before.is_none_or(|until| until <= now)
    }

    /// What `waiter` does now. After [`WatchMove::List`] a list is under way until [`WatchSchedule::listed`].
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
            return WatchMove::WaitUntil(queued);
        }
        let ready = self.waiting.values().filter(|one| one.due <= now).count();
        if ready >= 2 && ready >= self.pages.saturating_mul(self.weight) {
            self.listing = true;
            return WatchMove::List;
        }
        if self.waiting.len() > 1 && ready > 0 {
            self.waiting.values_mut().filter(|one| one.due <= now).for_each(|one| one.alone = true);
            self.end_turn(now);
        }
        by_itself
    }

    /// The list has ended, after so many pages; `None`: it failed.
    pub(super) fn listed(&mut self, pages: Option<usize>, now: Instant) {
        self.listing = false;
        match pages {
            Some(pages) => self.pages = pages.max(1),
            None => self.not_before = Some(now + AFTER_FAILURE),
        }
        self.end_turn(now);
    }

    fn end_turn(&mut self, now: Instant) {
        let more = LONGEST_DISTANCE_PER_PAGE.saturating_mul(u32::try_from(self.pages - 1).unwrap_or(u32::MAX));
        let weight = u32::try_from(self.weight).unwrap_or(u32::MAX);
        let longest =
            LONGEST_DISTANCE.saturating_add(more).saturating_mul(weight).min(LONGEST_DISTANCE_EVER).max(self.pace.first);
        let others = f64::from(u8::try_from(self.pages - 1).unwrap_or(u8::MAX));
        let growth = self.pace.factor.max(1.0) + GROWTH_PER_PAGE * others;
        self.distance = self.distance.mul_f64(growth).min(longest);
        self.last_turn = Some(now);
    }

    /// When somebody who is due at `own` asks: together with those who are due a moment after the first, and not too soon after the turn
    /// before. Whoever ARM told to wait longer waits longer.
    fn turn(&self, own: Instant) -> Instant {
        let first = self.waiting.values().map(|one| one.due).min().unwrap_or(own);
        let moment = first + self.pace.first / 2;
        let together = self.waiting.values().map(|one| one.due).filter(|due| *due <= moment).max().unwrap_or(own);
        self.last_turn.map_or(together, |last| together.max(last + self.distance)).max(if own > moment {
            own
        } else {
            first
        })
    }

    fn is_busy(&self, now: Instant) -> bool {
        self.last_turn.is_some_and(|last| now < last + self.distance)
    }
}

#[cfg(test)]
mod tests;
