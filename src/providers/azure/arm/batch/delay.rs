//! Decides when a batch is written. Pure.
//!
//! In: the numbers of waiting, reserved and written requests, and times. Out: how long to wait for more. A reservation whose
//! caller seems to be stuck does not count, so that one request without an end delays others only for a moment. Each write sends
//! the whole document. If a write waits until it brings as much as there was, writes become fewer as the document grows, and
//! the traffic in all grows with the number of Services, not with its square.

use std::time::Duration;

/// Least time between two writes while more is on its way.
const WRITE_SPACING: Duration = Duration::from_secs(5);
/// Longest wait for a few more after the last one: longer than two lists that follow operations are apart.
const STRAGGLER_WAIT: Duration = Duration::from_secs(9);
/// A batch of so many waits for a few more.
const LARGE: usize = 50;
/// A few more are this part of those who wait.
const FEW: usize = 8;

/// Age of a reservation that can be overtaken: several times what Azure takes for a public IP.
const OVERTAKEN_AGE: Duration = Duration::from_secs(10);
/// Least lead of a reservation that overtakes another one: callers that begin together do not overtake each other.
const OVERTAKING_LEAD: Duration = Duration::from_secs(2);

/// State that the decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchStatus {
    /// Number of waiting requests.
    pub waiting: usize,
    /// Number of reserved requests, without those that were overtaken.
    pub reserved: usize,
    /// Time until the next of them is overtaken.
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

/// Returns how long to wait for more; `None` to write now.
///
/// Without reservations there is no wait, and one that was overtaken spaces writes only. `longest` limits it. A large batch waits for a few stragglers while others still
/// arrive: a second write would send all of it again for them.
pub fn batch_delay(gathering: &BatchStatus, longest: Duration) -> Option<Duration> {
    let BatchStatus { waiting, reserved: coming, next_overtaken, overtaken, written, oldest, youngest, idle } = *gathering;
    let remaining = longest.saturating_sub(oldest);
    if coming + overtaken == 0 || remaining.is_zero() {
        return None;
    }
    let remaining = next_overtaken.map_or(remaining, |next| remaining.min(next));
    let spacing = idle.map_or(Duration::ZERO, |idle| WRITE_SPACING.saturating_sub(idle));
    if !spacing.is_zero() {
        return Some(spacing.min(remaining));
    }
    if coming == 0 {
        return None;
    }
    if waiting < written {
        return Some(remaining);
    }
    let is_nearly_whole = waiting >= LARGE && coming.saturating_mul(FEW) <= waiting;
    let policy = STRAGGLER_WAIT.saturating_sub(youngest).min(remaining);
    (is_nearly_whole && !policy.is_zero()).then_some(policy)
}

/// Returns the number of reservations that were not overtaken, and the time until the next of them is.
///
/// `ages`: since the announcements of those that have not arrived; `newest_arrival`: since that of the newest one that has.
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

    const LONGEST: Duration = seconds(15);

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn it_waits_until_it_brings_as_much_as_there_was() {
        let (next_overtaken, idle) = (None, None);
        let (oldest, youngest) = (seconds(0), seconds(0));
        let calm = BatchStatus { waiting: 1, reserved: 0, next_overtaken, overtaken: 0, written: 0, oldest, youngest, idle };
        let large = BatchStatus { waiting: 80, reserved: 10, ..calm };
        for (gathering, expected) in [
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
            assert_eq!(batch_delay(&gathering, LONGEST), expected, "{gathering:?}");
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
