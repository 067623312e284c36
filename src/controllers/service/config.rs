//! Settings of the service controller as plain data. In: what the flags said: `cli` builds them. Out: what the controller reads.

use std::time::Duration;

use crate::cloud_provider::load_balancer_class::LoadBalancerClasses;

/// Settings of the controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceControllerConfig {
    /// `--concurrent-service-syncs`: most Services in flight; 0, or what the provider disregards, leaves it to the provider.
    pub concurrent_syncs: usize,
    /// Interval at which every load balancer is checked against the cloud; zero for never.
    pub resync_period: Duration,
    /// `--load-balancer-class`, `--serve-services-without-class`: which Services get their load balancers here.
    pub classes: LoadBalancerClasses,
}
