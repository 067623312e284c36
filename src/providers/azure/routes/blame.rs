//! Which changes of a batch ARM's message names: pure.
//!
//! In: changes with their numbers in the batch, and an error. Out: whether it is about the table's contents, and who is to blame.

use std::collections::BTreeSet;

use crate::providers::azure::{
    arm::batch::bisect::{BatchError, BatchRequest},
    model::{ArmError, ArmErrorClass, spelling},
    planner::routes::plan::RouteChange,
};

/// A change of a batch; what is asked for twice is there twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NumberedChange {
    /// Which one of the batch it is.
    pub(super) index: usize,
    /// What is asked for.
    pub(super) change: RouteChange,
}

impl BatchRequest for NumberedChange {
    type Identity = RouteChange;

    fn identity(&self) -> &RouteChange {
        &self.change
    }
}

impl BatchError<NumberedChange> for ArmError {
    fn can_split(&self) -> bool {
        matches!(self.class, ArmErrorClass::Invalid | ArmErrorClass::QuotaExceeded)
    }

    fn blamed(&self, part: &[NumberedChange]) -> BTreeSet<RouteChange> {
        let changes = part.iter().map(|numbered| &numbered.change);
        changes.filter(|change| is_named(change, &self.message)).cloned().collect()
    }
}

fn is_named(change: &RouteChange, message: &str) -> bool {
    let RouteChange::Set(wanted) = change else { return false };
    let is_part = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    message.split(|c| !is_part(c)).any(|word| spelling::same_name(word.trim_end_matches('.'), &wanted.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::{planner::routes::plan::DesiredRoute, samples::arm_error};

    fn set(name: &str) -> RouteChange {
        RouteChange::Set(DesiredRoute { name: name.into(), prefix: "10.0.0.0/24".into(), next_hop: [10, 0, 0, 1].into() })
    }

    #[test]
    fn who_is_named_is_to_blame() {
        let changes = [RouteChange::Remove("x".into()), set("a____1"), set("b____1"), set("c____1")];
        let part: Vec<_> = changes.into_iter().enumerate().map(|(index, change)| NumberedChange { index, change }).collect();
        let blamed = |message: &str| {
            let error = arm_error(ArmErrorClass::Invalid, "", message);
            error.blamed(&part).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(blamed("Bad."), []);
        assert_eq!(blamed("Route /subscriptions/s/routes/B____1. is bad"), [set("b____1")]);
        assert_eq!(blamed("b____11 is bad"), [], "somebody else");
        assert_eq!(blamed("a____1 b____1"), [set("a____1"), set("b____1")]);
        assert_eq!(blamed("x is bad"), [], "a deletion is nobody's fault");
    }
}
