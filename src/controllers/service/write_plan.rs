//! Plan of the writes that the service controller would send now: the cloud's documents, then objects of the API server.
//!
//! In: Services, planned as by a process that has just started. Out: a [`WritePlan`]: the cloud's part, then patches of Services.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service};

use super::{
    conditions::LoadBalancerPhase,
    labels::SelectedLabels,
    needs_update::{is_being_deleted, is_handed_over},
    plan::{self, ServiceAction, ServiceSyncError},
    reconcile::{ServiceController, without_status},
    status_patch,
};
use crate::{
    cloud_provider::{
        CloudResult, PlannedWrite, ServiceDemand, ServicesPlan, WritePlan, load_balancer_class::LoadBalancerClasses,
    },
    controllers::ServiceScope,
    runtime::store::ObjectKey,
};

impl ServiceController {
    /// Plans for all Services of `scope` together.
    pub(super) async fn write_plan(&self, scope: &ServiceScope) -> CloudResult<WritePlan> {
        let hosts = self.hosts();
        let mut services = self.services.list();
        services.retain(|service| scope.includes(&ObjectKey::of(service.as_ref()).to_string()));
        services.sort_by_key(|service| ObjectKey::of(service.as_ref()).to_string());
        let mut demand = ServiceDemand { nodes: hosts.nodes.clone(), ..ServiceDemand::default() };
        let mut patches = WritePlan::default();
        for service in services {
            match plan::decide(&self.classes, Some(&service), None, &hosts.set, &SelectedLabels::default()) {
                ServiceAction::Ensure(_) => demand.to_ensure.push(service),
                ServiceAction::Cleanup if is_handed_over(&self.classes, &service) => {
                    demand.to_delete.push(without_status(&service))
                }
                ServiceAction::Cleanup => demand.to_delete.push(service),
                ServiceAction::Wait(finalizer) => {
                    let key = ObjectKey::of(service.as_ref());
                    patches.later.insert(format!("Service {key}: after another manager has removed {finalizer}"));
                }
                ServiceAction::HandOver => {
                    let body = status_patch::remove_finalizer(&self.classes, &service);
                    let reason = "remove the finalizer: another manager serves it";
                    patches.writes.extend(body.map(|body| PlannedWrite::patch("service", path(&service), reason, body)));
                }
                _ => {}
            }
        }
        let planned = self.balancer.plan_services(&self.context.cluster_name, &demand).await?;
        let now = self.context.clock.wall();
        demand.to_ensure.iter().for_each(|service| plan_status(&self.classes, service, &planned, now, &mut patches));
        demand.to_delete.iter().for_each(|service| self.plan_release(service, &planned, &mut patches));
        let mut plan = planned.writes;
        plan.extend(patches);
        Ok(plan)
    }

    /// Plans the removal of finalizer, addresses and condition.
    fn plan_release(&self, subject: &Arc<Service>, planned: &ServicesPlan, plan: &mut WritePlan) {
        let key = ObjectKey::of(subject.as_ref());
        if planned.unread.contains(&key.to_string()) {
            return;
        }
        let Some(service) = self.services.get(&key) else { return };
        let (handed_over, exists) = (is_handed_over(&self.classes, &service), planned.existing.contains(&key.to_string()));
        if handed_over && !exists && !is_being_deleted(&service) {
            return;
        }
        let release = if handed_over { status_patch::remove_finalizer_and_condition } else { status_patch::clean };
        let body = release(&self.classes, &service);
        let reason = "remove finalizer and status: its load balancer is deleted";
        plan.writes.extend(body.map(|body| PlannedWrite::patch("service", path(&service), reason, body)));
    }
}

/// Plans the finalizer, then the addresses or the condition with the reason why there are none.
fn plan_status(
    classes: &LoadBalancerClasses,
    service: &Arc<Service>,
    planned: &ServicesPlan,
    now: Timestamp,
    plan: &mut WritePlan,
) {
    let key = ObjectKey::of(service.as_ref()).to_string();
    let patch = |reason: &str, body| PlannedWrite::patch("service", path(service), reason, body).on_behalf_of(&key);
    if planned.unread.contains(&key) {
        return;
    }
    let finalizer = status_patch::add_finalizer(classes, service, now);
    // The patch that adds the finalizer also adds a condition, which the next patch must update.
    let has_finalizer = finalizer.is_none();
    plan.writes.extend(finalizer.map(|body| patch("add the finalizer", body)));
    if let Some(error) = planned.refused.get(&key) {
        let failure = ServiceSyncError::Cloud { operation: "failed to ensure load balancer", error: error.clone() };
        let body = failure.response().phase.and_then(|phase| status_patch::publish(service, None, &phase, now));
        return plan.writes.extend(body.map(|body| patch("write the reason of the refusal into its condition", body)));
    }
    let Some(status) = planned.statuses.get(&key) else {
        plan.later.insert(format!("Service {key}: its status, when its addresses are known"));
        return;
    };
    let body = status_patch::publish(service, Some(status), &LoadBalancerPhase::Ready, now);
    let body = body.or_else(|| (!has_finalizer).then(|| serde_json::json!({"status": {}})));
    plan.writes.extend(body.map(|body| patch(&publish_reason(service, status), body)));
}

/// Returns the reason for the patch of the status. It names addresses that the patch removes, because they are served no more.
fn publish_reason(service: &Service, desired: &LoadBalancerStatus) -> String {
    match status_patch::removed_addresses(service, desired).as_slice() {
        [] => "publish its addresses".to_owned(),
        removed => format!("publish its addresses; removes served address {}", removed.join(", ")),
    }
}

fn path(service: &Service) -> String {
    let ObjectKey { namespace, name, .. } = ObjectKey::of(service);
    format!("/api/v1/namespaces/{namespace}/services/{name}/status")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{LoadBalancerIngress, ServiceStatus};

    use super::*;

    fn status(addresses: &[&str]) -> LoadBalancerStatus {
        let entry = |ip: &&str| LoadBalancerIngress { ip: Some((*ip).to_owned()), ..LoadBalancerIngress::default() };
        LoadBalancerStatus { ingress: Some(addresses.iter().map(entry).collect()) }
    }

    #[test]
    fn reason_names_the_addresses_that_the_patch_removes() {
        let mut service = Service::default();
        service.metadata.namespace = Some("default".to_owned());
        service.metadata.name = Some("web".to_owned());
        let listed = Some(status(&["20.0.0.1", "10.0.0.9"]));
        service.status = Some(ServiceStatus { load_balancer: listed, ..ServiceStatus::default() });
        let service = Arc::new(service);
        for (planned, expected) in [
            (&["20.0.0.1"][..], "publish its addresses; removes served address 10.0.0.9"),
            (&["20.0.0.1", "10.0.0.9", "20.0.0.2"][..], "publish its addresses"),
        ] {
            let statuses = [("default/web".to_owned(), status(planned))].into();
            let planned = ServicesPlan { statuses, ..ServicesPlan::default() };
            let mut plan = WritePlan::default();
            plan_status(&LoadBalancerClasses::default(), &service, &planned, Timestamp::UNIX_EPOCH, &mut plan);
            assert_eq!(plan.writes.last().map(|write| write.reasons.as_slice()), Some(&[expected.to_owned()][..]));
        }
    }
}
