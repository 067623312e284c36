//! What a Service is told beside how its call ended: what stays, what is strange, why it is refused.

use k8s_openapi::api::core::v1::Service;

use super::{AzureLoadBalancers, pipeline::PipelineResult};
use crate::{
    cloud_provider::CloudError,
    providers::azure::{
        load_balancer::events,
        planner::load_balancer::{
            plan::print::PlannedChange,
            rule_memory::ParsedService,
            spec::{ServiceRefusal, ServiceWarning, identity_of, reason, warnings},
        },
    },
};

impl AzureLoadBalancers {
    /// What could not be taken away.
    pub(super) fn record_retained(&self, service: &Service, result: &PipelineResult) {
        let PipelineResult::Done(kept, _) = result else { return };
        let frontends = kept.frontends.iter().map(|kept| events::kept_frontend(service, kept));
        let public_ips = kept.public_ips.iter().map(|kept| events::kept_public_ip(service, kept));
        frontends.chain(public_ips).for_each(|event| self.events.record(event));
    }

    /// What is strange about a Service, which may be why it is refused.
    pub(super) fn record_warnings(&self, service: &Service, left_out: Option<&ServiceRefusal>) {
        let left_out = left_out.map(|ServiceRefusal { field, message }| ServiceWarning {
            reason: reason::IGNORED_CONFIGURATION,
            field: field.clone(),
            message: format!("left out: {message}"),
        });
        for warning in warnings(service, &self.settings).into_iter().chain(left_out) {
            self.events.record(events::spec_warning(service, &warning));
        }
    }

    /// Why it cannot have what it asks for.
    pub(super) fn report_refusals(&self, service: &Service, error: &CloudError) {
        let (context, identity) = (&self.pipeline.context, identity_of(service));
        context.progress.refused(&identity.key, error);
        if let ParsedService::Refused(_, refusals) = context.service_index.parsed(service) {
            refusals.iter().for_each(|refusal| context.announce(PlannedChange::Refused(&identity, refusal), [&identity]));
        }
    }
}
