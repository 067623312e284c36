//! What a Service is told beside how its call ended: what stays, what is strange, why it is refused.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};

use super::{AzureLoadBalancers, pipeline::PipelineResult};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::Urgency,
        load_balancer::events,
        planner::load_balancer::{
            plan::print::PlannedChange,
            pools::nodes::internal_addresses,
            rule_memory::ParsedService,
            spec::{IpFamily, ServiceRefusal, ServiceSpec, ServiceWarning, identity_of, reason, warnings},
        },
    },
};

impl AzureLoadBalancers {
    /// What could not be taken away.
    pub(super) fn record_retained(&self, service: &Service, result: &PipelineResult) {
        let PipelineResult::Done(kept, _) = result else { return };
        let frontends = kept.frontends.iter().map(|kept| events::kept_frontend(service, kept));
        let public_ips = kept.public_ips.iter().chain(&kept.unlabeled).map(|kept| events::kept_public_ip(service, kept));
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

    /// Reports each address family of the Service that no Node can serve.
    pub(super) fn record_unserved_families(&self, service: &Service, families: &[IpFamily], nodes: &[Arc<Node>]) {
        for family in unserved_families(families, nodes) {
            self.events.record(events::no_nodes_of_family(service, family));
        }
    }

    /// Returns what is asked for this Service, and what of that it does not get.
    pub(super) async fn checked_spec(
        &self,
        service: &Service,
        urgency: Urgency,
    ) -> CloudResult<(Arc<ServiceSpec>, Option<ServiceRefusal>)> {
        let context = &self.pipeline.context;
        let checked = match (self.require_supported(), context.service_index.parsed(service)) {
            (Err(error), _) => Err(error),
            (Ok(()), ParsedService::Valid(spec)) => context.without_conflicting_ips(spec, urgency).await,
            (Ok(()), ParsedService::Refused(_, refusals)) => {
                let all: Vec<String> = refusals.iter().map(ToString::to_string).collect();
                Err(CloudError::refused(all.join("; ")))
            }
        };
        checked.inspect_err(|error| self.report_refusals(service, error))
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

/// Returns the families of which no Node has an internal address, if some Node has one of another family. Without any Node, the service
/// controller reports.
fn unserved_families(families: &[IpFamily], nodes: &[Arc<Node>]) -> Vec<IpFamily> {
    let served: Vec<bool> =
        nodes.iter().flat_map(|node| internal_addresses(node)).map(|address| address.is_ipv6()).collect();
    let is_served = |family: &IpFamily| served.contains(&(*family == IpFamily::V6));
    if served.is_empty() { Vec::new() } else { families.iter().copied().filter(|family| !is_served(family)).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_family_that_no_node_has_is_unserved() {
        let node = |addresses: &[&str]| {
            let listed: Vec<_> = addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
            Arc::new(serde_json::from_value::<Node>(json!({"metadata": {}, "status": {"addresses": listed}})).unwrap())
        };
        let both = [IpFamily::V4, IpFamily::V6];
        for (nodes, expected) in [
            (vec![], vec![]),
            (vec![node(&[])], vec![]),
            (vec![node(&["10.0.0.4"]), node(&[])], vec![IpFamily::V6]),
            (vec![node(&["fd00::4"])], vec![IpFamily::V4]),
            (vec![node(&["10.0.0.4"]), node(&["10.0.0.5", "fd00::5"])], vec![]),
        ] {
            assert_eq!(unserved_families(&both, &nodes), expected, "{nodes:?}");
        }
        assert_eq!(unserved_families(&[IpFamily::V4], &[node(&["10.0.0.4"])]), []);
    }
}
