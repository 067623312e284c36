//! Flags of cloud-node-manager: its own, and the flags of the manager that have the same meaning.
//!
//! Upstream: `cmd/cloud-node-manager/app/nodemanager.go` and `config`.

use super::{FlagSection, FlagSpec, cloud, controllers, declare_flags, generic, logging, serving};

declare_flags! {
    NODE_NAME: String = "node-name" "" "Name of this machine's Node, lower-cased. Empty selects the host name.";
    USE_INSTANCE_METADATA: bool = "use-instance-metadata" "true"
        "Read the machine's properties from the cloud's metadata service. With false, read them from the cloud's API, with \
         the credentials in --cloud-config.";
    WAIT_ROUTES: bool = "wait-routes" "false"
        "Keep the uninitialized taint of the Node until a route to its pods exists: until its condition NetworkUnavailable \
         is False.";
    WINDOWS_SERVICE: bool = "windows-service" "false"
        "Report to the service control manager of Windows. The flag has no effect on other systems.";
}

/// Flags of the manager that have the same meaning here.
const SHARED: &[&FlagSpec] = &[
    &cloud::CLOUD_PROVIDER.spec,
    &cloud::CLOUD_CONFIG.spec,
    &controllers::NODE_STATUS_UPDATE_FREQUENCY.spec,
    &controllers::ENABLE_DEPRECATED_BETA_TOPOLOGY_LABELS.spec,
    &controllers::RECONCILE_NODE_LABELS.spec,
    &generic::KUBECONFIG.spec,
    &generic::MASTER.spec,
    &generic::KUBE_API_QPS.spec,
    &generic::KUBE_API_BURST.spec,
    &generic::KUBE_API_CONTENT_TYPE.spec,
    &generic::MIN_RESYNC_PERIOD.spec,
    &generic::VERSION.spec,
];

/// Flags whose default differs from that of the manager.
const DEFAULTS: &[(&str, &str)] = &[("kube-api-content-type", ""), ("min-resync-period", "0s"), ("secure-port", "0")];

/// Flags of the manager that have no effect here, with the reason.
const WITHOUT_EFFECT: &[(&str, &str)] = &[("min-resync-period", "only changes are checked")];

pub fn sections() -> Vec<FlagSection> {
    let of = |title, flags: &[&FlagSpec]| FlagSection { title, flags: flags.iter().map(|spec| adapt(spec)).collect() };
    let all = |title, flags: &'static [FlagSpec]| FlagSection { title, flags: flags.iter().map(adapt).collect() };
    vec![
        all("Node", FLAGS),
        of("Cloud and cluster", SHARED),
        all("Secure serving", serving::SERVING),
        all("Authentication", serving::AUTHENTICATION),
        all("Authorization", serving::AUTHORIZATION),
        all("Logging", logging::FLAGS),
    ]
}

/// Returns the flag of the manager with its default and effect in cloud-node-manager.
fn adapt(spec: &FlagSpec) -> FlagSpec {
    let find = |table: &[(&str, &'static str)]| table.iter().find(|(name, _)| *name == spec.name).map(|(_, text)| *text);
    let mut adapted = *spec;
    adapted.default = find(DEFAULTS).unwrap_or(spec.default);
    adapted.ignored = find(WITHOUT_EFFECT).or(spec.ignored);
    adapted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_differences_name_flags() {
        let sections = sections();
        for (name, _) in DEFAULTS.iter().chain(WITHOUT_EFFECT) {
            assert!(sections.iter().flat_map(|section| section.flags.iter()).any(|spec| spec.name == *name), "{name}");
        }
    }
}
