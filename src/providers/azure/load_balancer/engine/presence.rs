//! Whether a Service has a load balancer, or anything else in Azure that its deletion has to remove.
//!
//! In: a Service. Out: its addresses, or `None` when neither its status nor Azure shows anything of it.

use k8s_openapi::api::core::v1::Service;

use super::{AzureLoadBalancers, forecast, stage_context::StageInput};
use crate::{
    cloud_provider::{CloudError, CloudResult, LoadBalancerStatus},
    providers::azure::{
        arm::Urgency,
        load_balancer::events,
        planner::load_balancer::{
            desired::{expected, status::status, traces},
            plan::network::plan_network,
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
            let (look, uid) = (self.load_for_service(service).await?, service.metadata.uid.as_deref().unwrap_or_default());
            if !traces::has_traces(&look.observed, &identity_of(service), uid, &self.settings) {
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
            return Ok(Some(forecast::ingress(&published)));
        }
        let look = self.load_for_service(service).await?;
        let spec = parse_leniently(service, &self.settings);
        let flipped = ServiceSpec { internal: !spec.internal, ..spec.clone() };
        let found = [&spec, &flipped].map(|spec| status(&look.observed, spec, &self.settings));
        if let Some(addresses) = found.iter().find(|addresses| !addresses.is_empty()) {
            return Ok(Some(forecast::ingress(addresses)));
        }
        let requests = [self.pipeline.context.service_index.deletion_request(service)];
        let plan = plan_network(&look.observed, &requests, &look.specs(), &self.settings);
        if plan.is_empty() {
            self.pipeline.context.public_ip_attempts().remove(&spec.identity);
        }
        Ok((!plan.is_empty()).then(|| forecast::ingress(&[])))
    }

    async fn load_for_service(&self, service: &Service) -> CloudResult<StageInput> {
        let request = self.pipeline.context.service_index.deletion_request(service);
        let look = self.pipeline.context.load_first(std::slice::from_ref(&request), Urgency::Change).await?;
        if let Some(error) = look.blocked_by(&request, &self.settings) {
            return Err(error);
        }
        if let Some(unread) = look.ignorable_failure(&request, &self.settings) {
            let external = request.spec().filter(|spec| !spec.internal);
            let ids = external.map(|spec| expected::asked_for(spec, &self.settings)).unwrap_or_default();
            ids.iter().for_each(|id| self.events.record(events::public_ip_maybe_left(service, id, &unread.error)));
        }
        Ok(look)
    }
}
