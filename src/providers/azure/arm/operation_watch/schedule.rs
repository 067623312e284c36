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
    /// When ARM accepted those who have not left, as far as they have waited.
    accepted: BTreeMap<Waiter, Instant>,
    /// How many writes ARM has still to accept.
    coming: usize,
    /// How long operations take: the least after which one has ended, as of the last news.
    length: Option<Duration>,
    /// Whether one has ended since the last list.
    has_ended: bool,
    scout: Option<Waiter>,
    /// Whether the operation of a scout has ended since the last list.
    has_scouted: bool,
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
            accepted: BTreeMap::new(),
            coming: 0,
            length: None,
            has_ended: false,
            scout: None,
            has_scouted: false,
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
            (self.has_ended, self.has_scouted) = (false, false);
        }
        self.accepted.entry(waiter).or_insert(now);
        self.waiting.insert(waiter, WaitingWrite { due, alone: false });
    }

    /// `waiter` has heard something, and may wait again.
    pub(super) fn heard(&mut self, waiter: Waiter) {
        self.waiting.remove(&waiter);
    }

    /// `waiter` waits no more.
    pub(super) fn leave(&mut self, waiter: Waiter) {
        self.heard(waiter);
        self.accepted.remove(&waiter);
        self.scout = self.scout.filter(|scout| *scout != waiter);
    }

    /// The operation of `waiter` has ended. Answers whether it is the first since the last list: others may list earlier now.
    pub(super) fn ended(&mut self, waiter: Waiter, now: Instant) -> bool {
        let Some(accepted) = self.accepted.get(&waiter) else { return false };
        let length = now.saturating_duration_since(*accepted);
        let shorter = self.length.filter(|known| self.has_ended && *known < length);
        self.length = Some(shorter.unwrap_or(length));
        let is_scout = self.scout == Some(waiter);
        let news = if is_scout { &mut self.has_scouted } else { &mut self.has_ended };
        !std::mem::replace(news, true)
    }

    /// Whether `waiter` looks ahead for the others, and a list follows soon.
    pub(super) fn is_scout(&self, waiter: Waiter) -> bool {
        self.scout == Some(waiter) && self.is_blind()
    }

    /// One more write that ARM has still to accept; or one less.
    pub(super) fn announce(&mut self, is_coming: bool) {
        self.coming = if is_coming { self.coming + 1 } else { self.coming.saturating_sub(1) };
    }

    pub(super) fn is_waiting(&self, waiter: Waiter) -> bool {
        self.waiting.contains_key(&waiter)
    }

    /// Whether nothing would be lost with this.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.waiting.is_empty()
            && self.coming == 0
            && !self.listing
            && !self.is_busy(now)
            && self.not_before.is_none_or(|until| until <= now)
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
            return self.scouting(waiter, own.due, now).unwrap_or(WatchMove::WaitUntil(queued));
        }
        let ready = self.waiting.values().filter(|one| one.due <= now).count();
        if ready >= self.worth() {
            self.listing = true;
            return WatchMove::List;
        }
        if self.waiting.len() > 1 && ready > 0 {
            self.waiting.values_mut().filter(|one| one.due <= now).for_each(|one| one.alone = true);
            self.end_turn(now);
        }
        by_itself
    }

    /// What the oldest does until the turn comes, when a list would be in vain as far as anybody knows.
    fn scouting(&mut self, waiter: Waiter, due: Instant, now: Instant) -> Option<WatchMove> {
        let is_oldest = || self.accepted.first_key_value().is_some_and(|(oldest, _)| *oldest == waiter);
        if !self.is_blind() || self.has_scouted || !self.scout.map_or_else(is_oldest, |scout| scout == waiter) {
            return None;
        }
        self.scout = Some(waiter);
        Some(if due <= now { WatchMove::PollAlone } else { WatchMove::WaitUntil(due.min(self.turn(due))) })
    }

    /// Whether a list is worth it, but costs much, and nothing says that it would show anything ended.
    fn is_blind(&self) -> bool {
        self.pages > 1 && !self.has_ended && self.accepted.len() >= self.worth()
    }

    /// For how many writes a list is worth it.
    fn worth(&self) -> usize {
        self.pages.saturating_mul(self.weight).max(2)
    }

    /// The list has ended, after so many pages; `None`: it failed.
    pub(super) fn listed(&mut self, pages: Option<usize>, now: Instant) {
        (self.listing, self.scout) = (false, None);
        (self.has_ended, self.has_scouted) = (false, false);
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

    /// When somebody who is due at `own` asks: together with those who are due a moment after the first, and not too soon after the turn
    /// before. Whoever ARM told to wait longer waits longer.
    fn turn(&self, own: Instant) -> Instant {
        let first = self.waiting.values().map(|one| one.due).min().unwrap_or(own);
        let moment = first + self.pace.first / 2;
        let together = self.waiting.values().map(|one| one.due).filter(|due| *due <= moment).max().unwrap_or(own);
        let spaced = self.spaced().map_or(together, |spaced| together.max(spaced));
        spaced.max(if own > moment { own } else { first })
    }

    /// The earliest turn after the one before.
    fn spaced(&self) -> Option<Instant> {
        let expected = |accepted: &Instant| self.length.map(|length| *accepted + length + MARGIN);
        let after_last = |at: &Instant| self.last_turn.is_none_or(|last| *at > last);
        if self.is_blind() {
            let (_, oldest) = self.accepted.first_key_value()?;
            let latest = self.last_turn.unwrap_or(*oldest) + self.longest_distance();
            let enough = self.accepted.values().nth(self.worth() - 1).and_then(expected);
            return Some(enough.filter(after_last).map_or(latest, |at| at.min(latest)));
        }
        let last = self.last_turn?;
        if self.coming > 0 {
            // Whoever waits behind those who wait for a quota gains nothing by a list that shows a few.
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
