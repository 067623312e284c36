//! Configuration of the service controller: its concurrency, and the Services that it manages. In: the arguments. Out: plain data, or
//! errors.

use super::{OptionsBuilder, controller_flags, generic};
use crate::cloud_provider::load_balancer_class::LoadBalancerClasses;
use crate::controllers::service::config::ServiceControllerConfig;

impl OptionsBuilder {
    pub(super) fn service(&mut self, classes: LoadBalancerClasses) -> ServiceControllerConfig {
        ServiceControllerConfig {
            concurrent_syncs: self.number(&controller_flags::CONCURRENT_SERVICE_SYNCS, 0, i32::MAX),
            resync_period: self.positive(&generic::MIN_RESYNC_PERIOD),
            classes,
        }
    }

    pub(super) fn load_balancer_classes(&mut self) -> LoadBalancerClasses {
        let class = self.read(&controller_flags::LOAD_BALANCER_CLASS);
        let without_class = self.read(&controller_flags::SERVE_SERVICES_WITHOUT_CLASS);
        if class.is_empty() && !without_class {
            let accepted =
                format!("no Service would get a load balancer: give --{}", controller_flags::LOAD_BALANCER_CLASS.spec.name);
            self.refuse(&controller_flags::SERVE_SERVICES_WITHOUT_CLASS, "false", &accepted);
        }
        let classes = LoadBalancerClasses::new(Some(class.as_str()).filter(|class| !class.is_empty()), without_class);
        classes.unwrap_or_else(|accepted| {
            self.refuse(&controller_flags::LOAD_BALANCER_CLASS, &class, &accepted);
            LoadBalancerClasses::default()
        })
    }
}
