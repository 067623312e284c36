//! Pages `/planz`, the plan for one Service or for the cluster, and `/reportz`, the report of a manager with `--dry-run`.
//!
//! In: the state of the manager, and the subject. Out: the plan as text, or the reason why there is none. Nothing is written, so
//! every replica can respond, leading or not. A page is bounded in time, bytes, Services and lookups of Nodes; the next page of
//! Services continues where it ends.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::FutureExt;
use k8s_openapi::api::core::v1::Service;
use tokio::{sync::Semaphore, time::Instant};

use super::{
    cluster_plan::{ClusterPlan, ClusterPlanRequest, plan_cluster},
    dry_run::DryRunReports,
    print,
};
use crate::{
    app::manager_state::ManagerState,
    controllers::ServiceScope,
    runtime::{store::ObjectKey, text::truncate},
    serving::{PlanError, PlanKind, PlanRequest, Planner},
};

/// Response of a manager without `--dry-run`, which has no report.
pub(crate) const NO_REPORT: &str = "no report: this manager writes";

/// Time limit of a plan: less than the secure port waits for a response.
const PLAN_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum number of Services on a page.
const MAX_SERVICES: usize = 100;
/// Maximum number of bytes of a section. A page has at most six sections, and is held in memory.
const MAX_SECTION: usize = 128 * 1024;
/// Maximum number of bytes of a line, so that a long line leaves space for the next ones.
const MAX_LINE: usize = 4 * 1024;

/// Returns the function that responds to requests for plans and reports, based on `state`.
pub(crate) fn planner(state: &Arc<ManagerState>, reports: Option<&Arc<DryRunReports>>) -> Planner {
    let (state, reports) = (Arc::clone(state), reports.cloned());
    let permits = Arc::new(Semaphore::new(1));
    Arc::new(move |request| {
        let (state, reports, permits) = (Arc::clone(&state), reports.clone(), Arc::clone(&permits));
        async move {
            match request {
                PlanRequest::Report { json } => report(reports.as_deref(), json),
                PlanRequest::Service(key) => plan_service(&state, key).await,
                PlanRequest::Cluster { kind, after } => {
                    // Plans of a whole cluster are expensive, so one is made at a time.
                    let busy = "another plan of the cluster is in progress; retry later";
                    let _permit = permits.try_acquire().map_err(|_| plan_error(503, busy.to_owned()))?;
                    plan_page(&state, kind, after.as_deref()).await
                }
            }
        }
        .boxed()
    })
}

/// Returns the report of a manager with `--dry-run`, or an error without one.
fn report(reports: Option<&DryRunReports>, json: bool) -> Result<String, PlanError> {
    let Some(reports) = reports else {
        return Err(plan_error(404, format!("{NO_REPORT}; one with --dry-run reports")));
    };
    let Some(report) = reports.report() else {
        return Err(plan_error(503, "not yet: the first plan is in progress".to_owned()));
    };
    Ok(if json { report.json.to_string() } else { report.text })
}

/// Plans for the Service with the key `namespace/name`.
async fn plan_service(state: &ManagerState, key: String) -> Result<String, PlanError> {
    can_plan(state)?;
    if state.services.is_none() {
        return Err(plan_error(501, "the service controller does not run in this process".to_owned()));
    }
    if !state.has_service(&key) {
        return Err(plan_error(404, format!("Service {key} does not exist")));
    }
    let scope = ServiceScope::Only(BTreeSet::from([key]));
    let deadline = Instant::now() + PLAN_TIMEOUT;
    let plan = plan_cluster(state, &ClusterPlanRequest { kind: Some(PlanKind::Services), scope, deadline }).await;
    let text = format_page(&plan);
    match (plan.is_complete(), plan.has_refusals()) {
        (false, _) => Err(plan_error(502, text)),
        (true, true) => Err(plan_error(422, text)),
        (true, false) => Ok(text),
    }
}

/// Plans for the cluster. Of the Services, it covers only the next ones after the key `after`.
async fn plan_page(state: &ManagerState, kind: Option<PlanKind>, after: Option<&str>) -> Result<String, PlanError> {
    can_plan(state)?;
    let keys = service_keys(state);
    let rest = after.map_or(&keys[..], |after| &keys[keys.partition_point(|key| key.as_str() <= after)..]);
    let (page, omitted) = rest.split_at(rest.len().min(MAX_SERVICES));
    let scope = ServiceScope::Only(page.iter().cloned().collect());
    let deadline = Instant::now() + PLAN_TIMEOUT;
    let text = format_page(&plan_cluster(state, &ClusterPlanRequest { kind, scope, deadline }).await);
    Ok(match page.last() {
        Some(last) if !omitted.is_empty() && kind.is_none_or(|kind| kind == PlanKind::Services) => {
            text + &format!("{} more Services are omitted: see /planz?kind=services&after={last}\n", omitted.len())
        }
        _ => text,
    })
}

/// Returns the Services that have or request a load balancer, in the order of their keys.
fn service_keys(state: &ManagerState) -> Vec<String> {
    let is_planned = |service: &Arc<Service>| state.classes.is_managed(service) || state.classes.is_others(service);
    let listed = state.services.as_ref().map(|services| services.list()).unwrap_or_default();
    let planned = listed.into_iter().filter(is_planned);
    let mut keys: Vec<String> = planned.map(|service| ObjectKey::of(service.as_ref()).to_string()).collect();
    keys.sort_unstable();
    keys
}

/// Formats the plan within the limits of a page.
fn format_page(plan: &ClusterPlan) -> String {
    print::sections(plan, false).iter().map(|section| bounded(section)).collect::<String>() + &print::summary(plan) + "\n"
}

/// Returns the lines that fit, each truncated, and a line with the number of omitted ones.
fn bounded(section: &str) -> String {
    let (mut text, mut count) = (String::new(), 0);
    for line in section.lines().map(|line| truncate(line, MAX_LINE)) {
        if text.len() + line.len() > MAX_SECTION {
            break;
        }
        text += &format!("{line}\n");
        count += 1;
    }
    match section.lines().count() - count {
        0 => text,
        omitted => text + &format!("  {omitted} more lines are omitted\n"),
    }
}

/// Checks that all inputs of a plan are ready.
fn can_plan(state: &ManagerState) -> Result<(), PlanError> {
    let not_yet = |reason: &str| Err(plan_error(503, format!("not yet: {reason}")));
    match &*state.provider_ready.borrow() {
        None => return not_yet("the cloud provider is being initialized"),
        Some(Err(reason)) => return not_yet(&format!("cannot initialize the cloud provider: {reason}")),
        Some(Ok(())) => {}
    }
    if state.services.as_ref().is_some_and(|services| !services.status().synced) || !state.nodes.status().synced {
        return not_yet("the Services and Nodes of the cluster have not been listed");
    }
    Ok(())
}

fn plan_error(code: u16, reason: String) -> PlanError {
    PlanError { code, reason }
}

#[cfg(test)]
mod tests;
