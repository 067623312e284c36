//! Decides whether and when a failed request is sent again. Pure.
//!
//! Reads may always be repeated; a write only if it is certain that ARM did not receive it. Upstream (azcore
//! `policy_retry.go`) repeats writes too.

use std::time::Duration;

use super::settings::ArmBackoff;
use crate::{
    providers::azure::model::{ArmError, ArmErrorClass},
    runtime::backoff::ExponentialBackoff,
};

/// Returns the delay before the next attempt, or `None` to stop.
///
/// `attempts` counts the attempts so far, `random` is between 0 and 1, `remaining` is the time until the deadline. After a throttled
/// request the delay is zero, because the budget delays the next attempt for as long as ARM requested.
pub(super) fn pause(
    error: &ArmError,
    writes: bool,
    attempts: u32,
    backoff: &ArmBackoff,
    random: f64,
    remaining: Duration,
) -> Option<Duration> {
    let is_repeatable = match error.class {
        ArmErrorClass::Throttled | ArmErrorClass::Busy => error.status.is_some(),
        // Without a status the request was not sent.
        ArmErrorClass::Transient => !writes || error.status.is_none(),
        ArmErrorClass::MalformedAnswer => !writes,
        _ => false,
    };
    if !is_repeatable || attempts >= backoff.attempts {
        return None;
    }
    let requested_delay = error.retry_after.unwrap_or_default();
    if error.class == ArmErrorClass::Throttled {
        return (requested_delay < remaining).then_some(Duration::ZERO);
    }
    let pause = delay(backoff, attempts, random).max(requested_delay);
    (requested_delay <= backoff.longest && pause < remaining).then_some(pause)
}

fn delay(backoff: &ArmBackoff, attempts: u32, random: f64) -> Duration {
    let ArmBackoff { first, factor, jitter, longest, .. } = *backoff;
    ExponentialBackoff { first, factor, jitter, max: longest }.delay_with(attempts, random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::samples::arm_error;

    fn error(class: ArmErrorClass, status: Option<u16>, retry_after: Option<u64>) -> ArmError {
        ArmError { status, retry_after: retry_after.map(Duration::from_secs), ..arm_error(class, "", "") }
    }

    const BACKOFF: ArmBackoff = ArmBackoff {
        attempts: 4,
        first: Duration::from_secs(1),
        factor: 2.0,
        jitter: 0.5,
        longest: Duration::from_secs(30),
    };
    const MINUTE: Duration = Duration::from_secs(60);

    fn is_retried(error: &ArmError, writes: bool) -> bool {
        pause(error, writes, 1, &BACKOFF, 0.0, MINUTE).is_some()
    }

    #[test]
    fn reads_and_writes() {
        use ArmErrorClass::*;
        for (class, status, read, write) in [
            (Transient, Some(503), true, false),
            (Transient, None, true, true),
            (Busy, Some(409), true, true),
            (Throttled, Some(429), true, true),
            (Throttled, None, false, false),
            (MalformedAnswer, Some(200), true, false),
            (OutcomeUnknown, None, false, false),
            (OutcomeUnknown, Some(504), false, false),
            (NotFound, Some(404), false, false),
            (ParentNotFound, Some(404), false, false),
            (Unauthorized, Some(401), false, false),
            (Forbidden, Some(403), false, false),
            (Conflict, Some(412), false, false),
            (QuotaExceeded, Some(400), false, false),
            (Invalid, Some(400), false, false),
            (NotLeader, None, false, false),
        ] {
            let error = error(class, status, None);
            assert_eq!((is_retried(&error, false), is_retried(&error, true)), (read, write), "{class:?} {status:?}");
        }
    }

    #[test]
    fn delays_grow_up_to_the_deadline() {
        let down = error(ArmErrorClass::Transient, None, None);
        let seconds = |attempts, random, remaining| {
            pause(&down, false, attempts, &BACKOFF, random, remaining).map(|pause| pause.as_secs_f64())
        };
        assert_eq!([1, 2, 3, 4].map(|attempts| seconds(attempts, 0.0, MINUTE)), [Some(1.0), Some(2.0), Some(4.0), None]);
        assert_eq!(seconds(1, 1.0, MINUTE), Some(1.5), "with jitter");
        assert_eq!(seconds(3, 0.0, Duration::from_secs(4)), None, "no time remains for another attempt");
        let many = ArmBackoff { attempts: u32::MAX, ..BACKOFF };
        assert_eq!(pause(&down, false, u32::MAX - 1, &many, 1.0, MINUTE), Some(BACKOFF.longest));
    }

    #[test]
    fn requested_delays_are_respected() {
        let after = |class, seconds| pause(&error(class, Some(429), Some(seconds)), false, 1, &BACKOFF, 0.0, MINUTE);
        assert_eq!(after(ArmErrorClass::Busy, 14), Some(Duration::from_secs(14)));
        assert_eq!(after(ArmErrorClass::Busy, 31), None, "longer than the longest pause: the caller retries later");
        assert_eq!(after(ArmErrorClass::Throttled, 40), Some(Duration::ZERO), "the budget waits");
        assert_eq!(after(ArmErrorClass::Throttled, 61), None, "the pause ends after the deadline");
    }
}
