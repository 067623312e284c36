//! Requests within the last five minutes, for quotas that providers count in such windows.
//!
//! In: sends, and their limit. Out: the time at which more may be sent. Sends of one second are counted together, as if all were
//! at its end, so that neither a fixed nor a sliding window exceeds the limit.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// Length of the window.
pub(super) const WINDOW: Duration = Duration::from_secs(300);

/// Length of a slot, whose sends are counted together.
const SLOT: Duration = Duration::from_secs(1);

/// Part of the whole quota that may be borrowed beyond the share while no request is rejected.
///
/// Without it, the last Services of a large cluster would wait for minutes.
const BORROWED: f64 = 0.05;

/// Time without borrowing after a 429.
pub(super) const STRICT_FOR: Duration = Duration::from_secs(3600);

/// Maximum number of sends within a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WindowLimit {
    /// Share of this process, without borrowing.
    pub(super) share: f64,
    /// Share plus what may be borrowed.
    pub(super) borrowing: f64,
}

impl WindowLimit {
    pub(super) const fn all(count: f64) -> Self {
        Self { share: count, borrowing: count }
    }

    pub(super) fn share(self, share: f64) -> Self {
        let reduced = (self.share * share).max(1.0);
        Self { share: reduced, borrowing: (reduced + self.share * BORROWED).min(self.share) }
    }
}

/// Slots with their start and number of sends, oldest first.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct SendWindow {
    slots: VecDeque<(Instant, u32)>,
    count: u32,
}

fn end((start, _): &(Instant, u32)) -> Instant {
    *start + SLOT + WINDOW
}

impl SendWindow {
    pub(super) fn add(&mut self, count: u32, now: Instant) {
        while self.slots.front().is_some_and(|slot| end(slot) <= now) {
            self.count -= self.slots.pop_front().map_or(0, |(_, sends)| sends);
        }
        self.count += count;
        match self.slots.back_mut() {
            Some((start, sends)) if now < *start + SLOT => *sends += count,
            _ => self.slots.push_back((now, count)),
        }
    }

    /// Removes `count` sends of the last slot that began at `at` or before, unless it has expired.
    pub(super) fn remove(&mut self, count: u32, at: Instant) {
        let Some(index) = self.slots.iter().rposition(|(start, _)| *start <= at) else { return };
        let removed = count.min(self.slots[index].1);
        self.slots[index].1 -= removed;
        self.count -= removed;
        if self.slots[index].1 == 0 {
            self.slots.remove(index);
        }
    }

    /// Returns the number of sends within the window.
    pub(super) fn sent(&self, now: Instant) -> u32 {
        let expired: u32 = self.slots.iter().take_while(|slot| end(slot) <= now).map(|(_, sends)| sends).sum();
        self.count - expired
    }

    /// Returns how many of `limit` may still be sent at `now`.
    pub(super) fn remaining(&self, limit: f64, now: Instant) -> f64 {
        limit - f64::from(self.sent(now))
    }

    /// Returns the time at which `level` sends fit into `limit`.
    pub(super) fn room_at(&self, level: f64, limit: f64, now: Instant) -> Instant {
        let (mut count, mut at) = (self.count, now);
        for slot in &self.slots {
            if end(slot) > now {
                if f64::from(count) + level <= limit {
                    break;
                }
                at = end(slot);
            }
            count -= slot.1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_share_borrows_a_little_and_never_beyond_the_whole() {
        let limit = |share| WindowLimit::all(1_000.0).share(share);
        assert_eq!(limit(0.5), WindowLimit { share: 500.0, borrowing: 550.0 });
        assert_eq!(limit(1.0), WindowLimit::all(1_000.0));
        assert_eq!(limit(0.0001).share, 1.0);
    }

    #[test]
    fn removed_sends_make_room() {
        let (start, mut window) = (Instant::now(), SendWindow::default());
        (0..3).for_each(|_| window.add(1, start));
        assert_eq!(window.room_at(1.0, 3.0, start), start + SLOT + WINDOW);
        window.remove(1, start);
        assert_eq!((window.remaining(3.0, start), window.room_at(1.0, 3.0, start)), (1.0, start));
        (0..5).for_each(|_| window.remove(1, start));
        assert_eq!(window, SendWindow::default());
    }

    #[test]
    fn sends_are_removed_from_their_own_second() {
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        let mut window = SendWindow::default();
        (0..3).for_each(|queued| window.add(1, start + minute * queued));
        let mut without = SendWindow::default();
        [0, 2].into_iter().for_each(|queued| without.add(1, start + minute * queued));
        window.remove(1, start + minute + SLOT);
        assert_eq!(window, without);
        let later = start + minute * 6;
        window.add(1, later);
        let before = window.clone();
        window.remove(1, start);
        assert_eq!(window, before, "it expired before it was given back");
    }

    proptest! {
        #[test]
        fn no_window_sees_more_than_the_limit(most in 1..8u32, waits in proptest::collection::vec(0..200_000u64, 1..60)) {
            let (mut now, mut window, mut sent) = (Instant::now(), SendWindow::default(), Vec::<Instant>::new());
            for wait in waits {
                now += Duration::from_millis(wait);
                let room = window.room_at(1.0, most.into(), now);
                prop_assert_eq!(room <= now, window.remaining(most.into(), now) >= 1.0);
                now = room;
                window.add(1, now);
                sent.push(now);
            }
            for first in &sent {
                let within = sent.iter().filter(|at| **at >= *first && **at < *first + WINDOW).count();
                prop_assert!(within <= most as usize, "{within}");
            }
        }
    }
}
