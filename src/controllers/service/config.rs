//! Settings of the service controller as plain data, which `cli` builds from flags.

use std::time::Duration;

use crate::cloud_provider::load_balancer_class::LoadBalancerClasses;

/// Settings of the service controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceControllerConfig {
    /// Maximum number of concurrent Services (`--concurrent-service-syncs`). 0 selects the limit of the provider.
    pub concurrent_syncs: usize,
    /// Interval at which every load balancer is checked against the cloud; zero for never.
    pub resync_period: Duration,
    /// Classes of Services that this manager serves (`--load-balancer-class`, `--serve-services-without-class`).
    pub classes: LoadBalancerClasses,
}
