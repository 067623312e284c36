//! Azure's limit of rules at a network interface: what this process learns of it, and who crosses it.

use super::stage_context::StageContext;
use crate::providers::azure::{
    load_balancer::{events, explain::is_interface_limit},
    model::ArmError,
    planner::load_balancer::plan::network::NetworkPlan,
};

impl StageContext {
    /// Records that Azure enforces the limit, if one of these errors says so. From then on, plans keep to it.
    pub(super) fn record_interface_limit<'a>(&self, errors: impl IntoIterator<Item = &'a ArmError>) {
        if errors.into_iter().any(is_interface_limit) {
            self.observer.update(|known| known.interface_limit_reached, |known| known.interface_limit_reached = true);
        }
    }

    /// Reports the Services whose rules were written although they cross the documented limit.
    pub(super) fn report_crowded_interfaces(&self, plan: &NetworkPlan) {
        for (identity, placed) in &plan.load_balancers.services {
            let message = placed.as_ref().ok().and_then(|placed| placed.crowded_interfaces.as_ref());
            if let Some((message, service)) = message.zip(self.service_index.service(identity)) {
                self.events.record(events::crowded_interfaces(&service, message));
            }
        }
    }
}
