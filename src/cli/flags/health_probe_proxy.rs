//! Flags of health-probe-proxy: its own, and the logging flags.
//!
//! Upstream: `health-probe-proxy/main.go` of cloud-provider-azure.

use super::{FlagSection, declare_flags, logging};

declare_flags! {
    HEALTH_CHECK_PORT: i32 = "health-check-port" "10356"
        "Port on which health probes arrive, on every address of the machine. \
         `clusterServiceSharedLoadBalancerHealthProbePort` of the provider's configuration names it.";
    TARGET_PORT: i32 = "target-port" "10256" "Port of kube-proxy's health check on this machine.";
}

pub const SECTIONS: &[FlagSection] = &[FlagSection::of("Probes", FLAGS), FlagSection::of("Logging", logging::FLAGS)];
