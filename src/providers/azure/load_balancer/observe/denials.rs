//! What only some Services name and what could not be read for a reason that lasts, and for how long nobody asks again: public IPs of other
//! resource groups, and subnets. Pure: time comes in.
//!
//! In: outcomes of reads. Out: what answers whoever names such a thing meanwhile. A role that is being assigned takes minutes to
//! arrive: the thing is asked for again after [`FIRST`], a subnet that is not there after [`FIRST_ABSENT`], since somebody may be about to
//! make it; then after twice as long each time, up to [`LONGEST`]. What nobody has asked for
//! for [`LONGEST`] after that is forgotten, and so is what would have been asked for soonest when there are more than [`MOST`].

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::need::Doubt;
use crate::providers::azure::arm::{ArmError, ErrorClass};

const FIRST: Duration = Duration::from_secs(120);
const FIRST_ABSENT: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(480);
/// So many are remembered.
const MOST: usize = 1_000;

/// Why something was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// ARM said this.
    Failed(ArmError),
    /// ARM said this, and of the group itself that it does not exist, and so nothing in it.
    NoGroup(ArmError),
    /// ARM says that there is no such subnet.
    Absent,
}

#[derive(Debug)]
struct Denial {
    cause: Cause,
    until: Instant,
    pause: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Denials(HashMap<Doubt, Denial>);

impl Denials {
    /// A read of `what` failed at `now`. Other errors than 403 and 404 may pass at any moment, and are not remembered.
    pub(super) fn note(&mut self, what: &Doubt, cause: Cause, now: Instant) {
        if matches!(&cause, Cause::Failed(error) | Cause::NoGroup(error) if !lasts(error)) {
            return;
        }
        self.0.retain(|_, denial| now < denial.until + LONGEST);
        let before = self.0.get(what).map(|denial| denial.pause * 2);
        if before.is_none() && self.0.len() >= MOST {
            let soonest = self.0.iter().min_by_key(|(_, denial)| denial.until).map(|(what, _)| what.clone());
            soonest.and_then(|what| self.0.remove(&what));
        }
        let first = if cause == Cause::Absent { FIRST_ABSENT } else { FIRST };
        let pause = before.unwrap_or(first).min(LONGEST);
        self.0.insert(what.clone(), Denial { cause, until: now + pause, pause });
    }

    /// It was read.
    pub(super) fn recovered(&mut self, what: &Doubt) {
        self.0.remove(what);
    }

    /// Why it is not read at `now`; `None`: it may be read.
    pub(super) fn of(&self, what: &Doubt, now: Instant) -> Option<&Cause> {
        self.0.get(what).filter(|denial| now < denial.until).map(|denial| &denial.cause)
    }

    /// Whether the last read of it failed: it is read again for those who name it, and nobody else waits.
    pub(super) fn is_denied(&self, what: &Doubt) -> bool {
        self.0.contains_key(what)
    }
}

fn lasts(error: &ArmError) -> bool {
    matches!(error.class, ErrorClass::Forbidden | ErrorClass::NotFound | ErrorClass::ParentNotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::arm::ResourceId;

    fn failed(class: ErrorClass) -> Cause {
        Cause::Failed(ArmError {
            class,
            status: None,
            code: String::new(),
            message: String::new(),
            request: String::new(),
            correlation_id: None,
            retry_after: None,
        })
    }

    fn public_ips(group: &str) -> Doubt {
        Doubt::PublicIps(ResourceId::group_of("s", group))
    }

    #[tokio::test(start_paused = true)]
    async fn what_stays_forbidden_or_absent_is_asked_for_less_and_less_often() {
        let forbidden = (public_ips("g"), failed(ErrorClass::Forbidden), [120, 240, 480, 480]);
        let absent = (Doubt::Subnet("a".into()), Cause::Absent, [15, 30, 60, 120]);
        for (what, cause, pauses) in [forbidden, absent] {
            let (mut denials, mut now) = (Denials::default(), Instant::now());
            for pause in pauses {
                denials.note(&what, cause.clone(), now);
                assert!(denials.of(&what, now + Duration::from_secs(pause - 1)).is_some(), "{pause}");
                now += Duration::from_secs(pause);
                assert!(denials.of(&what, now).is_none() && denials.is_denied(&what), "{pause}");
            }
            denials.recovered(&what);
            assert!(!denials.is_denied(&what));
            denials.note(&what, failed(ErrorClass::Transient), now);
            assert!(!denials.is_denied(&what), "that may pass at any moment");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_names_any_more_is_forgotten() {
        let (mut denials, start, what) = (Denials::default(), Instant::now(), public_ips("g"));
        let note = |denials: &mut Denials, what: &Doubt, now| denials.note(what, failed(ErrorClass::Forbidden), now);
        note(&mut denials, &what, start);
        note(&mut denials, &what, start + FIRST);
        let later = start + FIRST * 3 + LONGEST;
        note(&mut denials, &public_ips("other"), later);
        assert!(!denials.is_denied(&what));
        note(&mut denials, &what, later);
        assert!(denials.of(&what, later + FIRST).is_none(), "long ago it was denied twice");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_remembered_and_no_more() {
        let (mut denials, start) = (Denials::default(), Instant::now());
        for index in 0..=MOST {
            let now = start + Duration::from_millis(u64::try_from(index).unwrap());
            denials.note(&public_ips(&format!("g{index}")), failed(ErrorClass::Forbidden), now);
        }
        assert_eq!(denials.0.len(), MOST);
        assert!(!denials.is_denied(&public_ips("g0")) && denials.is_denied(&public_ips("g1")));
    }
}
