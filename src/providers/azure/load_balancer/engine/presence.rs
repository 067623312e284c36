//! Whether a Service has a load balancer, or anything else in Azure that its deletion has to remove.
//!
//! In: a Service. Out: its addresses, or `None` when neither its status nor Azure shows anything of it.

use k8s_openapi::api::core::v1::Service;

use super::{
    AzureLoadBalancers, plan_services,
    planning::{StagePlan, StagePlanRequest, blocked_error},
};
use crate::{
    cloud_provider::{CloudError, CloudResult, LoadBalancerStatus},
    providers::azure::{
        arm::Urgency,
        load_balancer::events,
        planner::load_balancer::{
            desired::{expected, plan_index::PlanIndex, traces},
            plan::{Plan, PlanScope},
            spec::{ServiceSpec, identity_of, parse_leniently, status_addresses},
        },
    },
};

impl AzureLoadBalancers {
    /// Whether this Service can be let go although no load balancer is touched: neither its status nor Azure shows anything that
    /// somebody has made for it. `false`: it is to be deleted as usual.
    pub(super) async fn can_skip_deletion(&self, service: &Service) -> CloudResult<bool> {
        let Some(problem) = self.unsupported() else { return Ok(false) };
        if status_addresses(service).is_empty() {
            let uid = service.metadata.uid.as_deref().unwrap_or_default();
            let observed = self.plan_deletion(service).await?.input.observed;
            if !traces::has_traces(&observed, &identity_of(service), uid, &self.settings) {
                return Ok(true);
            }
        }
        Err(CloudError::refused(problem))
    }

    /// There is a load balancer as long as the documents or the Service's status tell of one: then the rest is taken away as well.
    pub(super) async fn find_status(&self, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        if self.can_skip_deletion(service).await? {
            return Ok(None);
        }
        // Reading for each of thousands of Services that are deleted at once would block everything else.
        let published = status_addresses(service);
        if !published.is_empty() {
            return Ok(Some(plan_services::ingress(&published)));
        }
        let StagePlan { plan: Plan { network: plan, .. }, input } = self.plan_deletion(service).await?;
        let spec = parse_leniently(service, &self.settings);
        let flipped = ServiceSpec { internal: !spec.internal, ..spec.clone() };
        let found = [&spec, &flipped].map(|spec| PlanIndex::of_one_service(&input.observed).status(spec, &self.settings));
        if let Some(addresses) = found.iter().find(|addresses| !addresses.is_empty()) {
            return Ok(Some(plan_services::ingress(addresses)));
        }
        if plan.is_empty() {
            self.pipeline.context.public_ip_attempts.lock().remove(&spec.identity);
        }
        Ok((!plan.is_empty()).then(|| plan_services::ingress(&[])))
    }

    /// What would have to be taken away with the Service.
    async fn plan_deletion(&self, service: &Service) -> CloudResult<StagePlan> {
        let requests = [self.pipeline.context.service_index.deletion_request(service)];
        let request = StagePlanRequest::write(PlanScope::Network, &requests, Urgency::Change);
        let planned = self.pipeline.context.plan(&request).await?;
        if let Some(blocked) = planned.plan.blocked.values().next() {
            return Err(blocked_error(blocked));
        }
        let [request] = &requests;
        if let Some(unread) = planned.input.reads.ignorable_failure(request, &self.settings) {
            let external = request.spec().filter(|spec| !spec.internal);
            let ids = external.map(|spec| expected::asked_for(spec, &self.settings)).unwrap_or_default();
            ids.iter().for_each(|id| self.events.record(events::public_ip_maybe_left(service, id, &unread.error)));
        }
        Ok(planned)
    }
}
