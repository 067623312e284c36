//! What would be done now, for `/planz`: for the load balancer of one Service, or for the cluster.
//!
//! In: what the process watches, and what is asked about. Out: the plans as text, or why there are none. Nothing is written, so that every
//! replica answers, leading or not. A plan for the cluster is bounded: in time, in lines per section, and in Services, one after the other.

use std::{future::Future, sync::Arc, time::Duration};

use futures::FutureExt;
use k8s_openapi::api::core::v1::Service;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use super::{manager_state::ManagerState, preview::shadow::ShadowReports};
use crate::{
    cloud_provider::CloudError,
    controllers::{
        Controller,
        names::{ControllerNames, NODE, NODE_LIFECYCLE, ROUTE},
        service::{needs_update::is_being_deleted, predicates::LoadBalancerHosts},
    },
    runtime::store::ObjectKey,
    serving::{DryRunError, DryRunKind, DryRunPlanner, DryRunScope, truncate},
};

/// What a manager answers that has nothing to report.
pub(super) const NO_REPORT: &str = "no report: this manager writes";

/// How long a plan for the cluster may take: less than the secure port waits for an answer.
const PATIENCE: Duration = Duration::from_secs(90);
/// Lines of a section beyond which only their number is told.
const LINES: usize = 1_000;
/// Services of one answer.
const SERVICES: usize = 100;
/// What is printed for nothing.
const NOTHING: &str = "nothing to do";

/// Plans for whoever asks, on this state. `cluster`: `--cluster-name`.
pub(super) fn planner(watched: &Arc<ManagerState>, shadow: Option<&Arc<ShadowReports>>, cluster: String) -> DryRunPlanner {
    let (watched, shadow, cluster) = (Arc::clone(watched), shadow.cloned(), Arc::<str>::from(cluster));
    let turn = Arc::new(Semaphore::new(1));
    Arc::new(move |scope| {
        let (watched, cluster, turn) = (Arc::clone(&watched), Arc::clone(&cluster), Arc::clone(&turn));
        let shadow = shadow.clone();
        async move {
            if let DryRunScope::Report { json } = scope {
                return report(shadow.as_deref(), json);
            }
            // The plan of a whole cluster costs much: one at a time.
            let is_large = matches!(scope, DryRunScope::Cluster { .. });
            let turn = is_large.then(|| turn.try_acquire().map_err(|_| busy())).transpose()?;
            let planned = plan(&watched, &cluster, scope).await;
            drop(turn);
            planned
        }
        .boxed()
    })
}

/// What a shadow manager has to say.
fn report(shadow: Option<&ShadowReports>, json: bool) -> Result<String, DryRunError> {
    let Some(shadow) = shadow else {
        return Err(dry_run_error(404, format!("{NO_REPORT}; one with --dry-run reports")));
    };
    let Some(report) = shadow.report() else {
        return Err(dry_run_error(503, "not yet: the first plan is being made".to_owned()));
    };
    Ok(if json { report.json.to_string() } else { report.text })
}

async fn plan(watched: &ManagerState, cluster: &str, scope: DryRunScope) -> Result<String, DryRunError> {
    can_plan(watched)?;
    let (kind, after) = match scope {
        DryRunScope::Service(key) => {
            let told = plan_service(watched, cluster, &key).await?;
            return Ok(first_lines(&told, "", (usize::MAX, LONGEST_PAGE - LONGEST_END)));
        }
        DryRunScope::Cluster { kind, after } => (kind, after),
        DryRunScope::Report { .. } => (None, None),
    };
    let until = Instant::now() + PATIENCE;
    let is_asked = |own: DryRunKind| kind.is_none_or(|kind| kind == own);
    let mut text = String::new();
    if is_asked(DryRunKind::Routes) {
        text += &plan_of_controller(watched, "Routes", ROUTE, until).await;
    }
    if is_asked(DryRunKind::Nodes) {
        text += &plan_of_controller(watched, "New Nodes", NODE, until).await;
        text += &plan_of_controller(watched, "Nodes whose machine may be gone", NODE_LIFECYCLE, until).await;
    }
    if is_asked(DryRunKind::Services) {
        let Some(keys) = service_keys(watched) else {
            return Ok(text + &section("Services", "nothing to do: the controller of Services does not run here"));
        };
        let plan = |key: String| async move { plan_service(watched, cluster, &key).await };
        let room = LONGEST_PAGE - text.len();
        text += &plan_services(&keys, after.as_deref(), (until, room), plan).await;
    }
    Ok(text)
}

/// The Services that have or want a load balancer, in the order of their keys. `None`: nobody cares for Services here.
fn service_keys(watched: &ManagerState) -> Option<Vec<String>> {
    let concerned = |service: &Arc<Service>| watched.classes.is_managed(service);
    let listed = watched.services.as_ref()?.list().into_iter().filter(concerned);
    let mut keys: Vec<String> = listed.map(|service| ObjectKey::of(service.as_ref()).to_string()).collect();
    keys.sort_unstable();
    Some(keys)
}

/// What a controller would do, under a heading. One that does not run here does nothing.
async fn plan_of_controller(watched: &ManagerState, heading: &str, names: ControllerNames, until: Instant) -> String {
    let found = watched.controllers.iter().find(|(known, _)| *known == names);
    let Some((_, controller)) = found else {
        let skipped = watched.skipped.iter().find(|(name, _)| *name == names.canonical);
        let why = skipped.map_or("", |(_, why)| why);
        return section(heading, &format!("nothing to do: the controller does not run here: {why}"));
    };
    section(heading, &controller_plan(controller, until).await)
}

async fn controller_plan(controller: &Arc<dyn Controller>, until: Instant) -> String {
    in_time(controller.dry_run(), until).await.map_or_else(
        || format!("no plan: it was not made within {PATIENCE:?}"),
        |told| told.unwrap_or_else(|error| format!("no plan: {error}")),
    )
}

/// `None`: not in time. What is due already gets no attempt.
async fn in_time<T>(work: impl Future<Output = T>, until: Instant) -> Option<T> {
    if Instant::now() >= until {
        return None;
    }
    timeout_at(until, work).await.ok()
}

/// Plans for the Services behind `after`, one after the other, until the time or the room on the page is over. The first of them is always
/// on the page, so that who goes on from page to page comes to the end.
async fn plan_services<F>(
    keys: &[String],
    after: Option<&str>,
    (until, room): (Instant, usize),
    plan: impl Fn(String) -> F,
) -> String
where
    F: Future<Output = Result<String, DryRunError>>,
{
    let start = after.map_or(0, |after| keys.partition_point(|key| key.as_str() <= after));
    let keys = keys.get(start..).unwrap_or_default();
    if keys.is_empty() {
        return section("Services", "");
    }
    let (mut text, mut planned) = (String::new(), 0);
    for key in keys.iter().take(SERVICES) {
        let Some(told) = in_time(plan(key.clone()), until).await else { break };
        let plan = told.unwrap_or_else(|error| format!("no plan: {}", error.reason));
        let section = section(&format!("Service {key}"), &plan);
        if planned > 0 && text.len() + section.len() + LONGEST_END > room {
            break;
        }
        text += &section;
        planned += 1;
    }
    text + &left_out(keys, planned, after)
}

/// How many Services a page has no plan for, and where they are found.
fn left_out(keys: &[String], planned: usize, after: Option<&str>) -> String {
    let rest = keys.len() - planned;
    if rest == 0 {
        return String::new();
    }
    let last = planned.checked_sub(1).and_then(|last| keys.get(last)).map(String::as_str).or(after);
    let next = last.map_or_else(String::new, |last| format!("&after={last}"));
    format!("{rest} more Services are left out: see /planz?kind=services{next}\n")
}

/// Bytes of a page: many members of pools make long plans, and each page is held in memory.
const LONGEST_PAGE: usize = 512 * 1024;
/// Bytes of a section: three of them leave room for that of a Service.
const LONGEST_SECTION: usize = 96 * 1024;
/// Bytes of a line: what it does not say must not keep the lines behind it from being shown.
const LONGEST_LINE: usize = 4 * 1024;
/// Bytes of what is said at the end of what is left out: a key is not longer than 317.
const LONGEST_END: usize = 1024;

/// A heading and its lines, of which only the first [`LINES`] are shown.
fn section(heading: &str, plan: &str) -> String {
    let plan = if plan.trim().is_empty() { NOTHING } else { plan.trim_end() };
    format!("{heading}\n{}", first_lines(plan, "  ", (LINES, LONGEST_SECTION - LONGEST_END)))
}

/// As many lines as may be shown, each as far as it may be, and how many are not.
fn first_lines(plan: &str, indent: &str, (lines, bytes): (usize, usize)) -> String {
    let (mut text, mut shown) = (String::new(), 0);
    for line in plan.lines().take(lines).map(|line| truncate(line, LONGEST_LINE)) {
        if text.len() + indent.len() + line.len() > bytes {
            break;
        }
        text += &format!("{indent}{line}\n");
        shown += 1;
    }
    match plan.lines().count() - shown {
        0 => text,
        rest => text + &format!("{indent}{rest} more lines are left out\n"),
    }
}

/// Plans for one Service. `key`: `namespace/name`.
async fn plan_service(watched: &ManagerState, cluster: &str, key: &str) -> Result<String, DryRunError> {
    let name = watched.provider.provider_name();
    let Some(balancer) = watched.provider.load_balancer() else {
        return Err(dry_run_error(501, format!("the cloud provider {name:?} has no load balancers")));
    };
    let (namespace, service) = key.split_once('/').unwrap_or_default();
    let Some(services) = &watched.services else {
        return Err(dry_run_error(501, "the controller of Services does not run here".to_owned()));
    };
    let Some(service) = services.get(&ObjectKey::namespaced(namespace, service)) else {
        return Err(dry_run_error(404, format!("there is no Service {key}")));
    };
    if let Some(finalizer) = watched.classes.other_finalizer(&service).filter(|_| !watched.classes.is_managed(&service)) {
        return Ok(format!("{key} is another manager's: nothing is done before {finalizer} is taken off"));
    }
    if !watched.classes.wants(&service) || is_being_deleted(&service) {
        return Ok(format!("{key} asks for no load balancer of this program: what it has is taken away"));
    }
    let hosts = LoadBalancerHosts::among(watched.nodes.list(), None);
    let plan =
        balancer.plan_load_balancer(cluster, &service, &hosts.nodes).await.map_err(|error| cloud_refusal(name, &error))?;
    Ok(if plan.trim().is_empty() { NOTHING.to_owned() } else { plan })
}

/// Whether everything is there that a plan is made from.
fn can_plan(watched: &ManagerState) -> Result<(), DryRunError> {
    let not_yet = |what: &str| Err(dry_run_error(503, format!("not yet: {what}")));
    match &*watched.provider_ready.borrow() {
        None => return not_yet("the cloud provider is being initialised"),
        Some(Err(reason)) => return not_yet(&format!("cannot initialise the cloud provider: {reason}")),
        Some(Ok(())) => {}
    }
    if watched.services.as_ref().is_some_and(|services| !services.status().synced) || !watched.nodes.status().synced {
        return not_yet("the Services and Nodes of the cluster have not been listed");
    }
    Ok(())
}

fn cloud_refusal(provider: &str, error: &CloudError) -> DryRunError {
    match error {
        CloudError::NotImplemented => dry_run_error(501, format!("the cloud provider {provider:?} does not support plans")),
        CloudError::Invalid(reason) | CloudError::Refused(reason) => dry_run_error(422, format!("refused: {reason}")),
        CloudError::Deadline { .. } => dry_run_error(504, error.to_string()),
        other => dry_run_error(502, other.to_string()),
    }
}

/// Somebody else's plan of the cluster is being made.
fn busy() -> DryRunError {
    dry_run_error(503, "another plan of the cluster is being made: ask again in a moment".to_owned())
}

fn dry_run_error(code: u16, reason: String) -> DryRunError {
    DryRunError { code, reason }
}

#[cfg(test)]
mod tests;
