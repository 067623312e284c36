//! When what has gathered is to be written. Pure.
//!
//! In: how much waits, how much is on its way, and times. Out: how long to wait for more. A document is written once for all that
//! waits; writing too early costs one more write, and the next one can begin only when this one is done.

use std::time::Duration;

/// Least time between two writes while more is on its way: it bounds the writes that a slow stream of work costs.
const SPACING: Duration = Duration::from_secs(5);

/// What there is to consider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gathering {
    /// How many wait.
    pub waiting: usize,
    /// How many have begun and will come.
    pub coming: usize,
    /// How long the one that came first has waited.
    pub oldest: Duration,
    /// Time since the last write has ended; `None` before the first one.
    pub idle: Option<Duration>,
}

/// How long to wait for more; `None`: it is time. Without anybody on the way nobody waits.
/// `longest`: that anybody waits for others.
pub fn wait(gathering: &Gathering, longest: Duration) -> Option<Duration> {
    let Gathering { waiting, coming, oldest, idle } = *gathering;
    let left = longest.saturating_sub(oldest);
    if coming == 0 || left.is_zero() {
        return None;
    }
    let spacing = idle.map_or(Duration::ZERO, |idle| SPACING.saturating_sub(idle));
    if !spacing.is_zero() {
        return Some(spacing.min(left));
    }
    (waiting < coming).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = seconds(15);

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn it_waits_while_most_are_still_to_come() {
        let calm = Gathering { waiting: 1, coming: 0, oldest: Duration::ZERO, idle: None };
        for (gathering, expected) in [
            (calm, None),
            (Gathering { idle: Some(seconds(0)), ..calm }, None),
            (Gathering { coming: 1, ..calm }, None),
            (Gathering { coming: 2, ..calm }, Some(seconds(15))),
            (Gathering { coming: 2, oldest: seconds(14), ..calm }, Some(seconds(1))),
            (Gathering { coming: 2, oldest: seconds(15), ..calm }, None),
            (Gathering { coming: 1, idle: Some(seconds(2)), ..calm }, Some(seconds(3))),
            (Gathering { coming: 1, idle: Some(seconds(2)), oldest: seconds(14), ..calm }, Some(seconds(1))),
            (Gathering { coming: 1, idle: Some(seconds(9)), ..calm }, None),
        ] {
            assert_eq!(wait(&gathering, LONGEST), expected, "{gathering:?}");
        }
    }

    /// 500 that come ten a second, writes of five seconds.
    #[test]
    fn a_slow_stream_costs_few_writes() {
        let (mut now, mut waiting, mut writes, mut since, mut ended) = (0_u64, 0_usize, 0, 0, None::<u64>);
        let mut arrived = 0_usize;
        while arrived < 500 || waiting > 0 {
            let came = 10.min(500 - arrived);
            since = if waiting == 0 { now } else { since };
            (arrived, waiting) = (arrived + came, waiting + came);
            let idle = ended.map(|ended| seconds(now.saturating_sub(ended)));
            let gathering = Gathering { waiting, coming: 500 - arrived, oldest: seconds(now - since), idle };
            now += 1;
            if ended.is_none_or(|ended| ended < now) && waiting > 0 && wait(&gathering, LONGEST).is_none() {
                (writes, waiting, ended) = (writes + 1, 0, Some(now + 5));
            }
        }
        assert!((2..=8).contains(&writes), "{writes}");
    }
}
