//! What would be done now, for `/planz`: for the load balancer of one Service, or for the cluster.
//!
//! In: what the process watches, and what is asked about. Out: the plans as text, or why there are none. Nothing is written, so that every
//! replica answers, leading or not. A plan for the cluster is bounded: in time, in lines per section, and in Services, one after the other.

use std::{future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Service;
use tokio::time::{Instant, timeout_at};

use super::manager_state::ManagerState;
use crate::{
    cloud_provider::CloudError,
    controllers::{
        Controller,
        names::{ControllerNames, NODE, NODE_LIFECYCLE, ROUTE},
        service::{
            needs_update::{has_finalizer, is_being_deleted, wants_load_balancer},
            predicates::LoadBalancerHosts,
        },
    },
    runtime::store::ObjectKey,
    serving::{DryRunError, DryRunKind, DryRunScope},
};

/// How long a plan for the cluster may take: less than the secure port waits for an answer.
const PATIENCE: Duration = Duration::from_secs(90);
/// Lines of a section beyond which only their number is told.
const LINES: usize = 1_000;
/// Services of one answer.
const SERVICES: usize = 100;
/// What is printed for nothing.
const NOTHING: &str = "nothing to do";

/// Plans. `cluster`: `--cluster-name`.
pub(super) async fn plan(watched: &ManagerState, cluster: &str, scope: DryRunScope) -> Result<String, DryRunError> {
    can_plan(watched)?;
    let (kind, after) = match scope {
        DryRunScope::Service(key) => return plan_service(watched, cluster, &key).await,
        DryRunScope::Cluster { kind, after } => (kind, after),
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
        text += &plan_services(watched, cluster, after.as_deref(), until).await;
    }
    Ok(text)
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

/// The Services that have or want a load balancer, in the order of their keys, until the time or the page is over.
async fn plan_services(watched: &ManagerState, cluster: &str, after: Option<&str>, until: Instant) -> String {
    let Some(services) = &watched.services else {
        return section("Services", "nothing to do: the controller of Services does not run here");
    };
    let concerned = |service: &Arc<Service>| wants_load_balancer(service) || has_finalizer(service);
    let listed = services.list().into_iter().filter(concerned);
    let mut keys: Vec<String> = listed.map(|service| ObjectKey::of(service.as_ref()).to_string()).collect();
    keys.retain(|key| after.is_none_or(|after| key.as_str() > after));
    keys.sort_unstable();
    if keys.is_empty() {
        return section("Services", "");
    }
    let (mut text, mut planned) = (String::new(), 0);
    for key in keys.iter().take(SERVICES) {
        let Some(told) = in_time(plan_service(watched, cluster, key), until).await else { break };
        let plan = told.unwrap_or_else(|error| format!("no plan: {}", error.reason));
        text += &section(&format!("Service {key}"), &plan);
        planned += 1;
        if text.len() > LONGEST_PAGE {
            break;
        }
    }
    text + &left_out(&keys, planned, after)
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

/// Bytes after which a page has no further Service: many members of pools make long plans, and each page is held in memory.
const LONGEST_PAGE: usize = 512 * 1024;

/// A heading and its lines, of which only the first [`LINES`] are shown.
fn section(heading: &str, plan: &str) -> String {
    let mut text = format!("{heading}\n");
    let plan = if plan.trim().is_empty() { NOTHING } else { plan.trim_end() };
    plan.lines().take(LINES).for_each(|line| text += &format!("  {line}\n"));
    let rest = plan.lines().count().saturating_sub(LINES);
    if rest > 0 {
        text += &format!("  {rest} more lines are left out\n");
    }
    text
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
    if !wants_load_balancer(&service) || is_being_deleted(&service) {
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
pub(super) fn busy() -> DryRunError {
    dry_run_error(503, "another plan of the cluster is being made: ask again in a moment".to_owned())
}

fn dry_run_error(code: u16, reason: String) -> DryRunError {
    DryRunError { code, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_pages_are_bounded_and_say_so() {
        assert_eq!(section("Routes", " \n"), "Routes\n  nothing to do\n");
        assert_eq!(section("Routes", "a\n  b\n"), "Routes\n  a\n    b\n");
        let long = section("Routes", &"x\n".repeat(LINES + 2));
        assert!(long.ends_with("  x\n  2 more lines are left out\n") && long.lines().count() == LINES + 2);
        let keys: Vec<String> = ["a/a", "a/b", "a/c"].map(str::to_owned).into();
        assert_eq!(left_out(&keys, 3, None), "");
        assert_eq!(left_out(&keys, 2, None), "1 more Services are left out: see /planz?kind=services&after=a/b\n");
        assert_eq!(left_out(&keys, 0, Some("a/0")), "3 more Services are left out: see /planz?kind=services&after=a/0\n");
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_too_long_is_left_out() {
        let until = Instant::now() + PATIENCE;
        assert_eq!(in_time(std::future::ready(1), until).await, Some(1));
        assert_eq!(in_time(std::future::pending::<u8>(), until).await, None);
        assert_eq!(in_time(std::future::ready(1), until).await, None, "the time is over");
    }

    #[test]
    fn what_is_the_users_to_change_is_told_apart_from_what_the_cloud_does_not_tell() {
        for (error, code, part) in [
            (CloudError::invalid("spec.ports: no"), 422, "refused: spec.ports: no"),
            (CloudError::refused("spec.ports: no"), 422, "refused: spec.ports: no"),
            (CloudError::NotImplemented, 501, "\"some\""),
            (CloudError::failed("HTTP 500"), 502, "HTTP 500"),
            (CloudError::Deadline { call: "plan_load_balancer", limit: std::time::Duration::from_secs(9) }, 504, "9s"),
        ] {
            let told = cloud_refusal("some", &error);
            assert!(told.code == code && told.reason.contains(part), "{told:?}");
        }
    }
}
