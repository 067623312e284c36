//! Conversion of a [`RouteTablePlan`] to the write that executes it.
//!
//! In: the observed table, and the plan. Out: a [`WritePlan`] with at most one write, and the routes that cannot be created.

use super::plan::{RouteTablePlan, RouteTableStep};
use crate::{
    cloud_provider::write_plan::{PUT, PlannedWrite, WritePlan},
    providers::azure::model::{ResourceId, network::RouteTable},
};

/// Returns the write of the table `id`; `before` is the observed table.
pub fn write_plan(id: &ResourceId, before: Option<&RouteTable>, plan: &RouteTablePlan) -> WritePlan {
    let is_waiting = |step: &&RouteTableStep| matches!(step, RouteTableStep::Wait { .. });
    let (waiting, steps): (Vec<_>, Vec<_>) = plan.steps.iter().partition(is_waiting);
    let json = |table| serde_json::to_value(table).ok();
    let write = plan.document.as_ref().map(|document| PlannedWrite {
        kind: "route_table",
        method: PUT,
        target: id.as_str().to_owned(),
        reasons: steps.iter().map(ToString::to_string).collect(),
        leftover: steps.iter().all(|step| matches!(step, RouteTableStep::Delete(_))),
        before: before.and_then(json),
        after: json(document),
        ..PlannedWrite::default()
    });
    let refused = waiting.iter().map(ToString::to_string).collect();
    WritePlan { writes: write.into_iter().collect(), refused, ..WritePlan::default() }
}
