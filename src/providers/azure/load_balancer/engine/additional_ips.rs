//! Additional addresses that a Service may not have: what has them in the cluster is known here, and what the virtual network has is read.

use std::sync::Arc;

use super::stage_context::StageContext;
use crate::{
    cloud_provider::CloudResult,
    providers::azure::{
        arm::Urgency,
        load_balancer::explain::{cloud_error, explain},
        planner::load_balancer::{
            network_query::is_lasting,
            spec::{ServiceRefusal, ServiceSpec, has_private_additional_ips},
        },
    },
};

impl StageContext {
    /// Returns the spec without the additional addresses that something else has, and what has them. Only a private address needs the
    /// subnets of the virtual network, so that only then they are read. As long as the identity may not read them, private addresses are left
    /// out.
    ///
    /// # Errors
    /// The subnets could not be read for a reason that passes.
    pub(super) async fn without_conflicting_ips(
        &self,
        spec: Arc<ServiceSpec>,
        urgency: Urgency,
    ) -> CloudResult<(Arc<ServiceSpec>, Option<ServiceRefusal>)> {
        if has_private_additional_ips(&spec) {
            let network = self.settings.virtual_network.name();
            let ranges = match self.subnets.ranges(urgency).await {
                Err(error) if !is_lasting(&error) => return Err(cloud_error("read the subnets", error)),
                Err(error) => {
                    Err(format!("the subnets of virtual network {network} cannot be read: {}", explain(&error).message))
                }
                Ok(ranges) => Ok(ranges),
            };
            self.service_index.note_subnets(ranges);
        }
        Ok(self.service_index.without_conflicting_ips(spec))
    }
}
