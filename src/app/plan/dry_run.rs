//! Loop of a manager with `--dry-run`, which plans periodically and reports the differences.
//!
//! In: the state of the manager. Out: a report for `/reportz`, the gauge `cloud_controller_manager_planned_writes`, and a log line for
//! everything that enters or leaves the plan.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::{
    cluster_plan::{ClusterPlan, ClusterPlanRequest, plan_cluster},
    report::{ReadinessReport, ReportTracker},
};
use crate::{app::manager_state::ManagerState, metrics::Metrics, runtime::clock::Clock};

/// Delay between two plans.
const PERIOD: Duration = Duration::from_secs(60);

/// Kinds that the gauge has from the start.
const KINDS: [&str; 9] = [
    "load_balancer",
    "public_ip",
    "security_group",
    "config_map",
    "backend_pool",
    "route_table",
    "service",
    "node",
    "unread",
];

/// Reports that the loop and the page share.
pub(crate) struct DryRunReports {
    tracker: Mutex<ReportTracker>,
    clock: Clock,
}

impl DryRunReports {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { tracker: Mutex::default(), clock })
    }

    /// Sets the maximum age of the data of plans, before the first plan.
    fn begin(&self, cache_age: Duration) {
        *self.tracker.lock() = ReportTracker::with_cache_age(cache_age);
    }

    /// Returns the report, or `None` before the first plan.
    pub(crate) fn report(&self) -> Option<ReadinessReport> {
        self.tracker.lock().report(self.clock.wall())
    }

    /// Records a plan and logs its changes. Returns the part of it that is older than the caches.
    fn observe(&self, plan: ClusterPlan) -> ClusterPlan {
        let (mut tracker, now) = (self.tracker.lock(), self.clock.wall());
        let (changes, settled) = (tracker.observe(plan, now), tracker.settled(now));
        drop(tracker);
        changes.appeared.iter().for_each(|line| tracing::info!(%line, "added to the plan"));
        changes.removed.iter().for_each(|line| tracing::info!(%line, "no longer in the plan"));
        settled
    }
}

/// Plans until the task is dropped.
pub(crate) async fn run(state: Arc<ManagerState>, reports: Arc<DryRunReports>, metrics: Arc<Metrics>) {
    tracing::warn!("shadow mode (--dry-run): nothing is written, and no lease is acquired");
    state.ready_to_plan().await;
    reports.begin(state.provider.cache_age());
    loop {
        let settled = reports.observe(plan_cluster(&state, &ClusterPlanRequest::everything()).await);
        export(&settled, &metrics);
        tokio::time::sleep(PERIOD).await;
    }
}

fn export(plan: &ClusterPlan, metrics: &Metrics) {
    let mut counts: BTreeMap<&str, u32> = KINDS.into_iter().chain(["leftovers"]).map(|kind| (kind, 0)).collect();
    for write in plan.writes() {
        *counts.entry(write.kind).or_default() += 1;
        *counts.entry("leftovers").or_default() += u32::from(write.leftover);
    }
    counts.insert("unread", u32::try_from(plan.unread().count()).unwrap_or(u32::MAX));
    metrics.planned_writes.reset();
    for (kind, count) in counts {
        metrics.planned_writes.with_label_values(&[kind]).set(f64::from(count));
    }
}
