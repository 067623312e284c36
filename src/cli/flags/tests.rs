use std::collections::BTreeSet;

use super::*;
use crate::providers::registry;

fn all() -> Vec<FlagSpec> {
    FlagTable::new(registry().flags()).all().copied().collect()
}

/// Upstream's flags and defaults, as `--help` of the Go program prints them.
const UPSTREAM: &[(&str, &str)] = &[
    ("allocate-node-cidrs", "false"),
    ("allow-untagged-cloud", "false"),
    ("cidr-allocator-type", "RangeAllocator"),
    ("cloud-config", ""),
    ("cluster-cidr", ""),
    ("cluster-name", "kubernetes"),
    ("configure-cloud-routes", "true"),
    ("controller-start-interval", "0s"),
    ("controllers", "*"),
    ("external-cloud-volume-plugin", ""),
    ("feature-gates", ""),
    ("kube-api-burst", "30"),
    ("kube-api-content-type", "application/vnd.kubernetes.protobuf"),
    ("kube-api-qps", "20"),
    ("leader-elect", "true"),
    ("leader-elect-lease-duration", "15s"),
    ("leader-elect-renew-deadline", "10s"),
    ("leader-elect-retry-period", "2s"),
    ("leader-elect-resource-lock", "leases"),
    ("leader-elect-resource-name", "cloud-controller-manager"),
    ("leader-elect-resource-namespace", "kube-system"),
    ("min-resync-period", "12h0m0s"),
    ("node-monitor-period", "5s"),
    ("node-sync-period", "0s"),
    ("route-reconciliation-period", "10s"),
    ("use-service-account-credentials", "false"),
    ("profiling", "true"),
    ("contention-profiling", "false"),
    ("enable-leader-migration", "false"),
    ("leader-migration-config", ""),
    ("node-status-update-frequency", "5m0s"),
    ("master", ""),
    ("kubeconfig", ""),
    ("bind-address", "0.0.0.0"),
    ("secure-port", "10258"),
    ("cert-dir", ""),
    ("tls-cert-file", ""),
    ("tls-private-key-file", ""),
    ("tls-cipher-suites", ""),
    ("tls-min-version", ""),
    ("tls-curve-preferences", ""),
    ("tls-sni-cert-key", ""),
    ("http2-max-streams-per-connection", "0"),
    ("disable-http2-serving", "false"),
    ("permit-port-sharing", "false"),
    ("permit-address-sharing", "false"),
    ("authentication-kubeconfig", ""),
    ("authentication-skip-lookup", "false"),
    ("authentication-tolerate-lookup-failure", "false"),
    ("authentication-token-webhook-cache-ttl", "10s"),
    ("client-ca-file", ""),
    ("requestheader-client-ca-file", ""),
    ("requestheader-allowed-names", ""),
    ("requestheader-username-headers", "x-remote-user"),
    ("requestheader-uid-headers", ""),
    ("requestheader-group-headers", "x-remote-group"),
    ("requestheader-extra-headers-prefix", "x-remote-extra-"),
    ("authorization-kubeconfig", ""),
    ("authorization-always-allow-paths", "/healthz,/readyz,/livez"),
    ("authorization-webhook-cache-authorized-ttl", "10s"),
    ("authorization-webhook-cache-unauthorized-ttl", "10s"),
    ("service-cluster-ip-range", ""),
    ("node-cidr-mask-size", "24"),
    ("node-cidr-mask-size-ipv4", "0"),
    ("node-cidr-mask-size-ipv6", "0"),
    ("enable-dynamic-reloading", "false"),
    ("cloud-config-secret-name", ""),
    ("cloud-config-secret-namespace", "kube-system"),
    ("cloud-config-key", "cloud-config"),
    ("node-filter-requirements", ""),
    ("logging-format", "text"),
    ("concurrent-node-status-updates", "0"),
    ("webhooks", ""),
    ("webhook-bind-address", "0.0.0.0"),
    ("webhook-secure-port", "10260"),
    ("webhook-cert-dir", ""),
    ("webhook-tls-cert-file", ""),
    ("webhook-tls-private-key-file", ""),
    ("webhook-tls-cipher-suites", ""),
    ("webhook-tls-curve-preferences", ""),
    ("webhook-tls-min-version", ""),
    ("webhook-tls-sni-cert-key", ""),
    ("webhook-disable-http2-serving", "false"),
    ("v", "0"),
    ("vmodule", ""),
    ("log-flush-frequency", "5s"),
    ("log-text-split-stream", "false"),
    ("log-text-info-buffer-size", "0"),
    ("log-json-split-stream", "false"),
    ("log-json-info-buffer-size", "0"),
    ("version", "false"),
];

/// Flags that upstream does not have, or whose default we chose to differ.
const OURS: &[(&str, &str)] = &[
    // Azure's build has it, too.
    ("cloud-provider", "azure"),
    // Upstream has it since 1.37.
    ("concurrent-node-lifecycle-syncs", "100"),
    ("concurrent-node-syncs", "64"),
    ("concurrent-service-syncs", "0"),
    ("delete-uninitialized-nodes-after", "0s"),
    ("dry-run", "false"),
    ("enable-deprecated-beta-topology-labels", "false"),
    ("enable-node-controller", "true"),
    ("load-balancer-class", ""),
    ("node-deletion-grace-period", "30s"),
    ("node-deletion-max-count", "10"),
    ("node-deletion-max-percent", "20"),
    ("node-deletion-window", "5m0s"),
    ("reconcile-node-labels", "false"),
    ("serve-services-without-class", "true"),
    ("shutdown-grace-period", "10s"),
    ("webhook-configurations", ""),
    ("webhook-service", "kube-system/cloud-controller-manager-webhook"),
];

#[test]
fn the_table_holds_upstreams_flags_with_their_defaults_and_ours() {
    let defaults: BTreeSet<_> =
        all().iter().map(|spec| (spec.name, spec.canonical(&[spec.default.to_owned()]).unwrap())).collect();
    let expected = UPSTREAM.iter().chain(OURS).map(|(name, default)| (*name, (*default).to_owned())).collect();
    let difference: Vec<_> = defaults.symmetric_difference(&expected).collect();
    assert!(difference.is_empty(), "{difference:?}");
}

#[test]
fn names_are_unique() {
    let (all, mut seen) = (all(), BTreeSet::new());
    for name in all.iter().flat_map(|spec| spec.aliases.iter().chain([&spec.name])) {
        assert!(seen.insert(name), "{name}");
    }
    assert!(!seen.contains(&"help"));
}

#[test]
fn names_and_texts_are_well_formed() {
    for spec in all() {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(spec.name.chars().all(is_plain), "{}", spec.name);
        assert!(spec.help.len() > 10 && spec.help.ends_with('.'), "--{}: {:?}", spec.name, spec.help);
        assert!(!spec.placeholder.is_empty(), "--{}", spec.name);
        if let Some(reason) = spec.ignored {
            assert!(!reason.is_empty() && !reason.ends_with('.'), "--{}: {reason:?}", spec.name);
        }
    }
}
