//! Finds the changes of a batch that ARM's message names. Pure.
//!
//! In: changes with their numbers in the batch, and an error. Out: whether it is about the table's contents, and the blamed
//! changes.

use std::collections::BTreeSet;

use crate::providers::azure::{
    arm::batch::bisect::{BatchError, BatchRequest},
    model::{ArmError, ArmErrorClass, spelling},
    planner::routes::plan::RouteChange,
};

/// Change in a batch; a change that is requested twice is there twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NumberedChange {
    /// Index in the batch.
    pub(super) index: usize,
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
    let RouteChange::Set(desired) = change else { return false };
    let is_part = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    message.split(|c| !is_part(c)).any(|word| spelling::same_name(word.trim_end_matches('.'), &desired.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::{planner::routes::plan::DesiredRoute, samples::arm_error};

    fn set(name: &str) -> RouteChange {
        RouteChange::Set(DesiredRoute { name: name.into(), prefix: "10.0.0.0/24".into(), next_hop: [10, 0, 0, 1].into() })
    }

    #[test]
    fn changes_that_the_message_names_are_blamed() {
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
        assert_eq!(blamed("x is bad"), [], "deletions are never blamed");
    }
}
