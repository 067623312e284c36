//! Resource groups whose public IPs could not be read for a reason that lasts, and for how long nobody asks again. Pure: time comes in.
//!
//! In: outcomes of reads. Out: the error that answers whoever names such a group meanwhile. A role that is being assigned takes minutes to
//! arrive: the group is asked for again after [`FIRST`], then after twice as long each time, up to [`LONGEST`].

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::providers::azure::arm::{ArmError, ErrorClass, ResourceId};

const FIRST: Duration = Duration::from_secs(120);
const LONGEST: Duration = Duration::from_secs(480);

/// Why a group was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denial {
    /// What ARM said.
    pub(super) error: ArmError,
    /// Whether ARM says of the group itself that it does not exist, and so nothing in it.
    pub(super) gone: bool,
    until: Instant,
    pause: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Denials(HashMap<ResourceId, Denial>);

impl Denials {
    /// A read of the group failed at `now`. Other errors than 403 and 404 may pass at any moment, and are not remembered.
    pub(super) fn note(&mut self, group: &ResourceId, error: &ArmError, gone: bool, now: Instant) {
        if !matches!(error.class, ErrorClass::Forbidden | ErrorClass::NotFound | ErrorClass::ParentNotFound) {
            return;
        }
        let before = self.0.get(group).map(|denial| denial.pause * 2);
        let pause = before.unwrap_or(FIRST).min(LONGEST);
        self.0.insert(group.clone(), Denial { error: error.clone(), gone, until: now + pause, pause });
    }

    /// The group was read.
    pub(super) fn recovered(&mut self, group: &ResourceId) {
        self.0.remove(group);
    }

    /// Why the group is not read at `now`; `None`: it may be read.
    pub(super) fn of(&self, group: &ResourceId, now: Instant) -> Option<&Denial> {
        self.0.get(group).filter(|denial| now < denial.until)
    }

    /// Whether the last read of the group failed, however long ago: it is read again for those who name it, and nobody else waits.
    pub(super) fn is_denied(&self, group: &ResourceId) -> bool {
        self.0.contains_key(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(class: ErrorClass) -> ArmError {
        ArmError {
            class,
            status: None,
            code: String::new(),
            message: String::new(),
            request: String::new(),
            correlation_id: None,
            retry_after: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_stays_forbidden_is_asked_for_less_and_less_often() {
        let (mut denials, group, start) = (Denials::default(), ResourceId::group_of("s", "g"), Instant::now());
        let mut now = start;
        for pause in [120, 240, 480, 480] {
            denials.note(&group, &error(ErrorClass::Forbidden), false, now);
            assert!(denials.of(&group, now + Duration::from_secs(pause - 1)).is_some(), "{pause}");
            now += Duration::from_secs(pause);
            assert!(denials.of(&group, now).is_none() && denials.is_denied(&group), "{pause}");
        }
        denials.recovered(&group);
        assert!(!denials.is_denied(&group));
        denials.note(&group, &error(ErrorClass::Transient), false, now);
        assert!(!denials.is_denied(&group), "that may pass at any moment");
    }
}
