//! What the service controller would write now, as requests: the cloud's and those to the API server.
//!
//! In: every Service, decided on as by a process that begins now. Out: a [`WritePlan`]: the cloud's part, then patches of Services.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;

use super::{
    conditions::LoadBalancerPhase,
    labels::SelectedLabels,
    needs_update::{is_being_deleted, is_handed_over},
    plan::{self, ServiceAction, ServiceSyncError},
    reconcile::{ServiceReconciler, without_status},
    status_patch,
};
use crate::{
    cloud_provider::{
        CloudResult, LoadBalancerForecast, PlannedWrite, ServiceDemand, WritePlan, load_balancer_class::LoadBalancerClasses,
    },
    runtime::store::ObjectKey,
};

impl ServiceReconciler {
    /// Plans for all Services together.
    pub(super) async fn forecast(&self) -> CloudResult<WritePlan> {
        let hosts = self.hosts();
        let mut services = self.services.list();
        services.sort_by_key(|service| ObjectKey::of(service.as_ref()).to_string());
        let mut demand = ServiceDemand { nodes: hosts.nodes.clone(), ..ServiceDemand::default() };
        let mut patches = WritePlan::default();
        for service in services {
            match plan::decide(&self.classes, Some(&service), None, &hosts.set, &SelectedLabels::default()) {
                ServiceAction::Ensure(_) => demand.wanted.push(service),
                ServiceAction::Cleanup if is_handed_over(&self.classes, &service) => {
                    demand.unwanted.push(without_status(&service))
                }
                ServiceAction::Cleanup => demand.unwanted.push(service),
                ServiceAction::Wait(finalizer) => {
                    let key = ObjectKey::of(service.as_ref());
                    patches.later.insert(format!("Service {key}: when another manager has taken {finalizer} off"));
                }
                ServiceAction::HandOver => {
                    let body = status_patch::let_go(&self.classes, &service);
                    let why = "another manager is at work on it";
                    patches.writes.extend(body.map(|body| PlannedWrite::patch("service", path(&service), why, body)));
                }
                _ => {}
            }
        }
        let answer = self.balancer.forecast(&self.context.cluster_name, &demand).await?;
        let now = self.context.clock.wall();
        demand.wanted.iter().for_each(|service| wanted(&self.classes, service, &answer, now, &mut patches));
        demand.unwanted.iter().for_each(|service| self.unwanted(service, &answer, &mut patches));
        let mut plan = answer.plan;
        plan.extend(patches);
        Ok(plan)
    }

    /// The finalizer, the addresses and the condition go.
    fn unwanted(&self, subject: &Arc<Service>, answer: &LoadBalancerForecast, plan: &mut WritePlan) {
        let key = ObjectKey::of(subject.as_ref());
        if answer.unknown.contains(&key.to_string()) {
            return;
        }
        let Some(service) = self.services.get(&key) else { return };
        let (handed_over, exists) = (is_handed_over(&self.classes, &service), answer.existing.contains(&key.to_string()));
        if handed_over && !exists && !is_being_deleted(&service) {
            return;
        }
        let release = if handed_over { status_patch::hand_over } else { status_patch::clean };
        let body = release(&self.classes, &service);
        let why = "its load balancer is gone";
        plan.writes.extend(body.map(|body| PlannedWrite::patch("service", path(&service), why, body)));
    }
}

/// The finalizer, then the addresses or why there are none.
fn wanted(
    classes: &LoadBalancerClasses,
    service: &Arc<Service>,
    answer: &LoadBalancerForecast,
    now: Timestamp,
    plan: &mut WritePlan,
) {
    let key = ObjectKey::of(service.as_ref()).to_string();
    let patch = |why: &str, body| PlannedWrite::patch("service", path(service), why, body).on_behalf_of(&key);
    if answer.unknown.contains(&key) {
        return;
    }
    let finalizer = status_patch::add_finalizer(classes, service, now);
    // With the finalizer comes a condition, which is brought up to date.
    let is_told = finalizer.is_none();
    plan.writes.extend(finalizer.map(|body| patch("add the finalizer", body)));
    if let Some(error) = answer.refused.get(&key) {
        let failure = ServiceSyncError::Cloud { doing: "failed to ensure load balancer", error: error.clone() };
        let body = failure.response().phase.and_then(|phase| status_patch::publish(service, None, &phase, now));
        return plan.writes.extend(body.map(|body| patch("say in its condition why it is refused", body)));
    }
    let Some(status) = answer.statuses.get(&key) else {
        plan.later.insert(format!("Service {key}: its status, when its addresses are known"));
        return;
    };
    let body = status_patch::publish(service, Some(status), &LoadBalancerPhase::Ready, now);
    let body = body.or_else(|| (!is_told).then(|| serde_json::json!({"status": {}})));
    plan.writes.extend(body.map(|body| patch("publish its addresses", body)));
}

fn path(service: &Service) -> String {
    let ObjectKey { namespace, name, .. } = ObjectKey::of(service);
    format!("/api/v1/namespaces/{namespace}/services/{name}/status")
}
