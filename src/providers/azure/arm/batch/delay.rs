//! Decides when a batch is written. Pure.
//!
//! In: the numbers of waiting, reserved and written requests, and times. Out: how long to wait for more. A reservation whose
//! caller seems to be stuck does not count, so that a request that never ends delays others only for a moment. Each write sends
//! the whole document. If a write waits until it adds as many items as were written before, writes become rarer as the document
//! grows, and the total traffic grows with the number of Services, not with its square.

use std::time::Duration;

/// Minimum time between two writes while reservations are pending.
const WRITE_SPACING: Duration = Duration::from_secs(5);
/// Maximum wait for stragglers after the latest request. Longer than the interval between two lists of an operation watch.
const STRAGGLER_WAIT: Duration = Duration::from_secs(9);
/// Minimum size of a batch that waits for stragglers.
const STRAGGLER_MIN_BATCH: usize = 50;
/// Divisor of the batch size that gives the maximum number of stragglers.
const STRAGGLER_DIVISOR: usize = 8;

/// Minimum age of an overtaken reservation: several times the time that Azure needs for a public IP.
const OVERTAKEN_AGE: Duration = Duration::from_secs(10);
/// Minimum lead of a reservation that overtakes another one, so that callers that begin together do not overtake each other.
const OVERTAKING_LEAD: Duration = Duration::from_secs(2);

/// State that the decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchStatus {
    /// Number of waiting requests.
    pub waiting: usize,
    /// Number of reserved requests, without those that were overtaken.
    pub reserved: usize,
    /// Time until the next reservation is overtaken.
    pub next_overtaken: Option<Duration>,
    /// Number of reservations that were overtaken.
    pub overtaken: usize,
    /// Requests written since the reservation count was last zero.
    pub written: usize,
    /// Waiting time of the first request.
    pub oldest: Duration,
    /// Waiting time of the last request.
    pub youngest: Duration,
    /// Time since the last write has ended; `None` before the first one.
    pub idle: Option<Duration>,
}

/// Returns how long to wait for more requests; `None` to write now.
///
/// Without reservations there is no wait; an overtaken reservation only spaces the writes. `max_delay` limits the wait of the oldest
/// request. A large batch waits for stragglers while others still arrive: a second write would send the whole document again.
pub fn batch_delay(status: &BatchStatus, max_delay: Duration) -> Option<Duration> {
    let BatchStatus { waiting, reserved, next_overtaken, overtaken, written, oldest, youngest, idle } = *status;
    let remaining = max_delay.saturating_sub(oldest);
    if reserved + overtaken == 0 || remaining.is_zero() {
        return None;
    }
    let remaining = next_overtaken.map_or(remaining, |next| remaining.min(next));
    let spacing = idle.map_or(Duration::ZERO, |idle| WRITE_SPACING.saturating_sub(idle));
    if !spacing.is_zero() {
        return Some(spacing.min(remaining));
    }
    if reserved == 0 {
        return None;
    }
    if waiting < written {
        return Some(remaining);
    }
    let is_nearly_complete = waiting >= STRAGGLER_MIN_BATCH && reserved.saturating_mul(STRAGGLER_DIVISOR) <= waiting;
    let straggler_wait = STRAGGLER_WAIT.saturating_sub(youngest).min(remaining);
    (is_nearly_complete && !straggler_wait.is_zero()).then_some(straggler_wait)
}

/// Returns the number of reservations that were not overtaken, and the time until the next of them is.
///
/// `ages`: time since the announcement of each pending reservation; `newest_arrival`: time since the announcement of the newest
/// reservation that has arrived.
pub fn count_reservations(
    ages: impl Iterator<Item = Duration>,
    newest_arrival: Option<Duration>,
) -> (usize, Option<Duration>) {
    let overtaken_in = |age: Duration| {
        let is_passed = newest_arrival.is_some_and(|newest| newest + OVERTAKING_LEAD <= age);
        is_passed.then(|| OVERTAKEN_AGE.saturating_sub(age))
    };
    let counted: Vec<_> = ages.map(overtaken_in).filter(|remaining| *remaining != Some(Duration::ZERO)).collect();
    (counted.len(), counted.into_iter().flatten().min())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_DELAY: Duration = seconds(15);

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_batch_waits_until_it_adds_as_much_as_was_written() {
        let (next_overtaken, idle) = (None, None);
        let (oldest, youngest) = (seconds(0), seconds(0));
        let calm = BatchStatus { waiting: 1, reserved: 0, next_overtaken, overtaken: 0, written: 0, oldest, youngest, idle };
        let large = BatchStatus { waiting: 80, reserved: 10, ..calm };
        for (status, expected) in [
            (calm, None),
            (BatchStatus { written: 9, idle: Some(seconds(0)), ..calm }, None),
            (BatchStatus { reserved: 9, ..calm }, None),
            (BatchStatus { reserved: 9, written: 2, ..calm }, Some(seconds(15))),
            (BatchStatus { reserved: 9, written: 2, oldest: seconds(14), ..calm }, Some(seconds(1))),
            (BatchStatus { reserved: 9, written: 2, oldest: seconds(15), ..calm }, None),
            (BatchStatus { reserved: 9, written: 2, next_overtaken: Some(seconds(7)), ..calm }, Some(seconds(7))),
            (BatchStatus { reserved: 9, next_overtaken: Some(seconds(7)), ..calm }, None),
            (BatchStatus { overtaken: 1, written: 2, ..calm }, None),
            (BatchStatus { overtaken: 1, idle: Some(seconds(2)), ..calm }, Some(seconds(3))),
            (BatchStatus { reserved: 9, written: 1, ..calm }, None),
            (BatchStatus { reserved: 1, idle: Some(seconds(2)), ..calm }, Some(seconds(3))),
            (BatchStatus { reserved: 1, idle: Some(seconds(2)), oldest: seconds(14), ..calm }, Some(seconds(1))),
            (BatchStatus { reserved: 1, idle: Some(seconds(9)), ..calm }, None),
            (large, Some(seconds(9))),
            (BatchStatus { youngest: seconds(2), oldest: seconds(3), ..large }, Some(seconds(7))),
            (BatchStatus { youngest: seconds(9), oldest: seconds(10), ..large }, None),
            (BatchStatus { oldest: seconds(14), ..large }, Some(seconds(1))),
            (BatchStatus { reserved: 11, ..large }, None),
            (BatchStatus { waiting: 49, reserved: 1, ..large }, None),
        ] {
            assert_eq!(batch_delay(&status, MAX_DELAY), expected, "{status:?}");
        }
    }

    #[test]
    fn overtaken_reservations_do_not_count() {
        for (ages, newest_arrival, expected) in [
            (vec![], None, (0, None)),
            (vec![600, 600], None, (2, None)),
            (vec![600], Some(600), (1, None)),
            (vec![12], Some(11), (1, None)),
            (vec![12], Some(10), (0, None)),
            (vec![10], Some(0), (0, None)),
            (vec![9], Some(0), (1, Some(1))),
            (vec![3, 1, 30], Some(1), (2, Some(7))),
            (vec![8, 5, 4, 30, 20], Some(3), (3, Some(2))),
            (vec![1], Some(5), (1, None)),
        ] {
            let counted = count_reservations(ages.iter().copied().map(seconds), newest_arrival.map(seconds));
            assert_eq!(counted, (expected.0, expected.1.map(seconds)), "{ages:?}, {newest_arrival:?}");
        }
    }
}
