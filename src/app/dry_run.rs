//! What would be done now for the load balancer of one Service, for `/planz`.
//!
//! In: what the process watches, and the Service's key. Out: the provider's plan as text, or why there is none. Nothing is written, so
//! that every replica answers, leading or not.

use super::manager::ManagerState;
use crate::{
    cloud_provider::CloudError,
    controllers::service::{
        needs_update::{is_being_deleted, wants_load_balancer},
        predicates::LoadBalancerHosts,
    },
    runtime::store::ObjectKey,
    serving::DryRunError,
};

/// Plans. `cluster`: `--cluster-name`; `key`: `namespace/name`.
pub(super) async fn plan(watched: &ManagerState, cluster: &str, key: &str) -> Result<String, DryRunError> {
    can_plan(watched)?;
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
    Ok(if plan.trim().is_empty() { "nothing to do".to_owned() } else { plan })
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

fn dry_run_error(code: u16, reason: String) -> DryRunError {
    DryRunError { code, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

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
