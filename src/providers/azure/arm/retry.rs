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
/// `tries` have been made; `random` is between 0 and 1; `remaining` is the time until the deadline. After a throttled
/// request the delay is zero: the budget delays the next one for as long as ARM requested.
pub(super) fn pause(
    error: &ArmError,
    writes: bool,
    tries: u32,
    backoff: &ArmBackoff,
    random: f64,
    remaining: Duration,
) -> Option<Duration> {
    let repeatable = match error.class {
        ArmErrorClass::Throttled | ArmErrorClass::Busy => error.status.is_some(),
        // Without a status the request was not sent.
        ArmErrorClass::Transient => !writes || error.status.is_none(),
        ArmErrorClass::MalformedAnswer => !writes,
        _ => false,
    };
    if !repeatable || tries >= backoff.tries {
        return None;
    }
    let requested_delay = error.retry_after.unwrap_or_default();
    if error.class == ArmErrorClass::Throttled {
        return (requested_delay < remaining).then_some(Duration::ZERO);
    }
    let pause = delay(backoff, tries, random).max(requested_delay);
    (requested_delay <= backoff.longest && pause < remaining).then_some(pause)
}

fn delay(backoff: &ArmBackoff, tries: u32, random: f64) -> Duration {
    let ArmBackoff { first, factor, jitter, longest, .. } = *backoff;
    ExponentialBackoff { first, factor, jitter, max: longest }.delay_with(tries, random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::samples::arm_error;

    fn error(class: ArmErrorClass, status: Option<u16>, asked: Option<u64>) -> ArmError {
        ArmError { status, retry_after: asked.map(Duration::from_secs), ..arm_error(class, "", "") }
    }

    const BACKOFF: ArmBackoff =
        ArmBackoff { tries: 4, first: Duration::from_secs(1), factor: 2.0, jitter: 0.5, longest: Duration::from_secs(30) };
    const MINUTE: Duration = Duration::from_secs(60);

    fn again(error: &ArmError, writes: bool) -> bool {
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
            assert_eq!((again(&error, false), again(&error, true)), (read, write), "{class:?} {status:?}");
        }
    }

    #[test]
    fn delays_grow_up_to_the_deadline() {
        let down = error(ArmErrorClass::Transient, None, None);
        let seconds =
            |tries, random, left| pause(&down, false, tries, &BACKOFF, random, left).map(|pause| pause.as_secs_f64());
        assert_eq!([1, 2, 3, 4].map(|tries| seconds(tries, 0.0, MINUTE)), [Some(1.0), Some(2.0), Some(4.0), None]);
        assert_eq!(seconds(1, 1.0, MINUTE), Some(1.5), "with jitter");
        assert_eq!(seconds(3, 0.0, Duration::from_secs(4)), None, "no time is left for another try");
        let many = ArmBackoff { tries: u32::MAX, ..BACKOFF };
        assert_eq!(pause(&down, false, u32::MAX - 1, &many, 1.0, MINUTE), Some(BACKOFF.longest));
    }

    #[test]
    fn what_arm_asks_for_is_respected() {
        let after = |class, asked| pause(&error(class, Some(429), Some(asked)), false, 1, &BACKOFF, 0.0, MINUTE);
        assert_eq!(after(ArmErrorClass::Busy, 14), Some(Duration::from_secs(14)));
        assert_eq!(after(ArmErrorClass::Busy, 31), None, "longer than the longest pause: the caller comes back");
        assert_eq!(after(ArmErrorClass::Throttled, 40), Some(Duration::ZERO), "the budget waits");
        assert_eq!(after(ArmErrorClass::Throttled, 61), None, "the pause ends behind the deadline");
    }
}
