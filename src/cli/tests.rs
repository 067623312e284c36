mod bad_values;
mod features;
mod outputs;
mod subcommands;

use std::time::Duration;

use super::{
    config::ManagerConfig,
    feature_gates,
    logging::{LogFormat, ModuleLevel},
    *,
};
use crate::{
    controllers::node_ipam::CidrAllocatorType,
    providers::registry,
    serving::config::{RequestHeaderNames, TlsMinVersion},
};

const PROVIDERS: &[&str] = &["azure", "fake", "gce"];

fn parsed(line: &str) -> Result<CliCommand, UsageError> {
    typed(&format!("{NAME} {line}"))
}

/// Parses a line that begins with the name of the program.
fn typed(line: &str) -> Result<CliCommand, UsageError> {
    parse_for(line.split_whitespace().map(OsString::from), providers(registry().flags()))
}

fn providers(flags: &[FlagSection]) -> RegisteredProviders<'_> {
    RegisteredProviders { all: PROVIDERS, checkable: &["azure"], local: &["azure", "fake"], flags }
}

/// Returns the configuration for these flags and the fake provider.
fn config(line: &str) -> ManagerConfig {
    match parsed(&format!("--cloud-provider=fake {line}")) {
        Ok(CliCommand::Run(config)) => *config,
        other => panic!("{line}: {other:?}"),
    }
}

fn printed(line: &str) -> String {
    match parsed(line) {
        Ok(CliCommand::Print(text)) => text,
        other => panic!("{line}: {other:?}"),
    }
}

fn errors(line: &str) -> Vec<String> {
    match parsed(&format!("--cloud-provider=fake {line}")) {
        Err(error) => error.lines().to_vec(),
        Ok(other) => panic!("{line}: {other:?}"),
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Tests the meaning of defaults in `docs/reference/flags.md`.
#[test]
fn zero_and_empty_defaults_select_values() {
    let config = config("");
    assert_eq!(config.controllers.len(), controllers::TABLE.len());
    assert_eq!((config.cloud.config.cloud_config, config.kube_api.kubeconfig, config.kube_api.master), (None, None, None));
    assert_eq!((config.serving.http2_max_streams, config.serving.tls_min_version), (100, TlsMinVersion::Tls12));
    assert_eq!(config.serving.authentication.requestheader_client_ca_file, None);
    assert_eq!(config.serving.authentication.requestheader, RequestHeaderNames::default());
    assert_eq!((config.node.workers, config.node.status_workers), (Some(64), Some(64)));
    assert_eq!(config.version, VERSION);
}

#[test]
fn every_flag_reaches_the_configuration() {
    let config = config(
        "--allow-untagged-cloud --cloud-config=/c --cluster-cidr=10.0.0.0/8,fd00::/48 --cluster-name=n \
         --configure-cloud-routes=false --controller-start-interval=2m --controllers=service,route \
         --kube-api-burst=50 --kube-api-qps=50.5 --leader-elect-lease-duration=30s --leader-elect-renew-deadline=20s \
         --leader-elect-retry-period=5s --leader-elect-resource-name=lock --leader-elect-resource-namespace=ns \
         --min-resync-period=100m --node-monitor-period=6s --concurrent-node-lifecycle-syncs=5 --route-reconciliation-period=30s \
         --use-service-account-credentials --profiling=false --concurrent-service-syncs=1 --concurrent-node-syncs=10 \
         --concurrent-node-status-updates=3 --node-status-update-frequency=10m --master=https://m --kubeconfig=/k \
         --bind-address=:: --secure-port=10001 --cert-dir=/certs --tls-cert-file=/t.crt --tls-private-key-file=/t.key \
         --tls-cipher-suites=TLS_AES_128_GCM_SHA256 --tls-min-version=VersionTLS13 --tls-curve-preferences=29 \
         --tls-sni-cert-key=a,b:c --http2-max-streams-per-connection=47 --disable-http2-serving --permit-port-sharing \
         --permit-address-sharing --authentication-kubeconfig=/ak --authentication-skip-lookup \
         --authentication-tolerate-lookup-failure --authentication-token-webhook-cache-ttl=1s --client-ca-file=/ca \
         --requestheader-client-ca-file=/rca --requestheader-allowed-names=p --requestheader-username-headers=u \
         --requestheader-uid-headers=i --requestheader-group-headers=g --requestheader-extra-headers-prefix=x \
         --authorization-kubeconfig=/zk --authorization-always-allow-paths=/a* \
         --authorization-webhook-cache-authorized-ttl=2s --authorization-webhook-cache-unauthorized-ttl=3s \
         --node-deletion-grace-period=1m --node-deletion-max-count=1 --node-deletion-max-percent=2 \
         --node-deletion-window=3m --shutdown-grace-period=4s --logging-format=json -v 4 --vmodule=a*=6 \
         --feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=false --version=v9.8.7",
    );
    for expected in [("authentication-kubeconfig", "/ak"), ("authorization-kubeconfig", "/zk")] {
        assert!(config.flagz().contains(&(expected.0.to_owned(), expected.1.to_owned())), "{expected:?}");
    }
    assert_eq!(config.controllers, [controllers::SERVICE.canonical, controllers::ROUTE.canonical].into());
    assert!(config.cloud.allow_untagged_cloud && !config.cloud.configure_cloud_routes);
    assert_eq!((config.cloud.config.cloud_config, config.cloud.config.cluster_name.as_str()), (Some("/c".into()), "n"));
    assert_eq!(config.route.cluster_cidrs.len(), 2);
    assert_eq!((config.kube_api.kubeconfig, config.kube_api.master), (Some("/k".into()), Some("https://m".to_owned())));
    assert_eq!((config.kube_api.qps, config.kube_api.burst), (50.5, 50));
    assert!(config.use_service_account_credentials);
    let election = config.leader_election;
    assert_eq!(
        (election.lease_duration, election.renew_deadline, election.retry_period),
        (seconds(30), seconds(20), seconds(5))
    );
    assert_eq!((election.resource_name.as_str(), election.resource_namespace.as_str()), ("lock", "ns"));
    let serving = config.serving;
    assert_eq!((serving.bind_address.to_string().as_str(), serving.port), ("::", 10001));
    assert_eq!(serving.cert_dir, Some("/certs".into()));
    assert_eq!((serving.tls_cert_file, serving.tls_private_key_file), (Some("/t.crt".into()), Some("/t.key".into())));
    assert_eq!(
        (serving.tls_cipher_suites, serving.tls_min_version),
        (vec!["TLS_AES_128_GCM_SHA256".to_owned()], TlsMinVersion::Tls13)
    );
    assert_eq!((serving.tls_curve_preferences, serving.tls_sni_cert_key.len()), (vec![29], 1));
    assert_eq!((serving.http2_max_streams, serving.disable_http2), (47, true));
    assert!(serving.permit_port_sharing && !serving.profiling);
    let authentication = serving.authentication;
    assert_eq!(authentication.client_ca_file, Some("/ca".into()));
    assert!(authentication.skip_lookup && authentication.tolerate_lookup_failure);
    assert_eq!(authentication.token_cache_ttl, seconds(1));
    let list = |item: &str| vec![item.to_owned()];
    let request_header = RequestHeaderNames {
        allowed_names: list("p"),
        username_headers: list("u"),
        uid_headers: list("i"),
        group_headers: list("g"),
        extra_headers_prefix: list("x"),
    };
    assert_eq!(authentication.requestheader_client_ca_file, Some("/rca".into()));
    assert_eq!(authentication.requestheader, request_header);
    let authorization = serving.authorization;
    assert_eq!(authorization.always_allow_paths, list("/a*"));
    assert_eq!((authorization.authorized_ttl, authorization.unauthorized_ttl), (seconds(2), seconds(3)));
    assert_eq!((config.node.workers, config.node.status_workers), (Some(10), Some(3)));
    assert_eq!(config.node.status_update_frequency, seconds(600));
    let lifecycle = config.node_lifecycle;
    assert_eq!((lifecycle.monitor_period, lifecycle.grace_period), (seconds(6), seconds(60)));
    assert_eq!(lifecycle.concurrent_syncs, 5);
    assert_eq!((lifecycle.max_count, lifecycle.max_percent), (1, 2));
    assert_eq!(lifecycle.window, seconds(180));
    assert_eq!((config.route.reconciliation_period, config.route.watch_based), (seconds(30), false));
    assert_eq!(config.service.concurrent_syncs, 1);
    assert_eq!((config.service.resync_period, config.start_interval), (seconds(6000), seconds(120)));
    assert_eq!(config.shutdown_grace_period, seconds(4));
    assert_eq!((config.logging.format, config.logging.verbosity), (LogFormat::Json, 4));
    assert_eq!(config.logging.modules, [ModuleLevel { pattern: "a*".to_owned(), verbosity: 6 }]);
    assert!(!config.feature_gates.enabled(feature_gates::WATCH_BASED_ROUTES));
    assert_eq!(config.version, "v9.8.7");
}

#[test]
fn existing_manifests_are_accepted() {
    for line in [
        // cloud-provider-azure: examples/out-of-tree/cloud-controller-manager.yaml
        "--allocate-node-cidrs=true --cloud-config=/etc/kubernetes/cloud-config/azure.json --cloud-provider=azure \
         --cluster-cidr=10.244.0.0/16 --cluster-name=k8s --controllers=*,-cloud-node --configure-cloud-routes=true \
         --leader-elect=true --route-reconciliation-period=10s --v=4 --secure-port=10267",
        // kubetest2-aks
        "--cloud-provider=azure --min-resync-period=10h0m0s --profiling=false --v=6",
        // kubernetes: cluster/gce
        "--v=4 --cloud-config=/etc/gce.conf --secure-port=10258 --use-service-account-credentials=true --cloud-provider=gce \
         --concurrent-node-syncs=10 --kubeconfig=/k --authorization-kubeconfig=/k --authentication-kubeconfig=/k \
         --cluster-name=c --cluster-cidr=10.64.0.0/14 --concurrent-service-syncs=3 --allocate-node-cidrs=true \
         --cidr-allocator-type=CloudAllocator --configure-cloud-routes=false --feature-gates=WatchList=true \
         --controllers=*,-node-ipam",
        // Kubernetes 1.37: new flag with its default, and new gates
        "--cloud-provider=azure --node-monitor-period=5s --concurrent-node-lifecycle-syncs=1 \
         --feature-gates=EtcdRangeStream=true,WatchListCompression=true",
        // options test of the Go program: another lock is accepted without leader election
        "--cloud-provider=azure --leader-elect=false --leader-elect-resource-lock=configmap --node-sync-period=1m \
         --external-cloud-volume-plugin=v --log-format=json --node-cidr-mask-size=48",
    ] {
        assert!(matches!(parsed(line), Ok(CliCommand::Run(_))), "{line}: {:?}", parsed(line));
    }
}

#[test]
fn notations_of_one_flag_are_equivalent() {
    for line in
        ["--cluster-name=a", "--cluster-name a", "--cluster_name=a", "--cluster_name a", "--cluster-name=b --cluster-name=a"]
    {
        assert_eq!(config(line).cloud.config.cluster_name, "a", "{line}");
    }
    for line in ["-v 4", "-v=4", "-v4", "--v=4", "--v 4", "--v=2 -v 4", "--v=0x4"] {
        assert_eq!(config(line).logging.verbosity, 4, "{line}");
    }
    for line in
        ["--log-format=json", "--log_format json", "--logging-format=json", "--log-format=text --logging-format=json"]
    {
        assert_eq!(config(line).logging.format, LogFormat::Json, "{line}");
    }
    for line in [
        "--controllers=route,service",
        "--controllers route --controllers=service",
        "--controllers=*,-cloud-node,-cloud-node-lifecycle,-node-ipam",
    ] {
        assert_eq!(config(line).controllers.len(), 2, "{line}");
    }
    assert!(!config("--leader-elect --leader-elect=f").leader_election.enabled);
    assert!(config("--leader-elect=0 --leader_elect").leader_election.enabled);
    assert_eq!(config("--controllers -route,*").controllers.len(), 4);
    assert_eq!(config("--controllers=").controllers.len(), 0);
    assert_eq!(config("--cluster-name=a_b").cloud.config.cluster_name, "a_b");
    assert_eq!(config("-v=-1").logging.verbosity, 0);
}

#[test]
fn node_controller_can_be_disabled() {
    let controllers = config("--enable-node-controller=false").controllers;
    assert_eq!(controllers.len(), 4);
    assert!(!controllers.contains(controllers::NODE.canonical));
    assert!(config("--enable-node-controller=false --controllers=cloud-node").controllers.is_empty());
}

#[test]
fn each_error_is_one_line() {
    for (line, expected) in [
        ("--secure-port=x", "invalid value \"x\" for --secure-port: expected a whole number from -2147483648 to 2147483647"),
        ("--secure-port=65536", "invalid value \"65536\" for --secure-port: expected a whole number from 0 to 65535"),
        ("--leader-elect=maybe", "invalid value \"maybe\" for --leader-elect: expected true or false"),
        (
            "--min-resync-period=12",
            "invalid value \"12\" for --min-resync-period: expected a duration with units h, m, s, ms, us or ns, such as 1m30s",
        ),
        ("--node-monitor-period=-5s", "invalid value \"-5s\" for --node-monitor-period: a duration must not be negative"),
        (
            "--delete-uninitialized-nodes-after=5m",
            "invalid value \"5m0s\" for --delete-uninitialized-nodes-after: expected 0s, or at least 10m0s",
        ),
        ("--node-monitor-period=0", "invalid value \"0s\" for --node-monitor-period: expected more than zero"),
        ("--bind-address=localhost", "invalid value \"localhost\" for --bind-address: expected an IPv4 or IPv6 address"),
        ("--logging-format=xml", "invalid value \"xml\" for --logging-format: expected text or json"),
        ("--log-format=xml", "invalid value \"xml\" for --logging-format: expected text or json"),
        (
            "--cluster-cidr=10.0.0.0/8,11.0.0.0/8",
            "invalid value \"10.0.0.0/8,11.0.0.0/8\" for --cluster-cidr: expected at most one CIDR per IP family",
        ),
        ("--cloud-provider=acme", "invalid value \"acme\" for --cloud-provider: expected one of azure, fake, gce"),
        (
            "--cloud-provider=CLOUD-NOT-SET",
            "invalid value \"CLOUD-NOT-SET\" for --cloud-provider: the manifests name no cloud: expected one of azure, fake, gce; \
             add the component of your cloud to your kustomization, for example `components: [../manifests/azure]`",
        ),
        ("--cloud-provider=", "--cloud-provider cannot be empty: expected one of azure, fake, gce"),
        (
            "--controllers=*,-nope",
            "\"nope\" in --controllers is not in the list of known controllers: node-ipam, cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller, node-route-controller",
        ),
        (
            "--feature-gates=Nope",
            "invalid value \"Nope\" for --feature-gates: expected name=true or name=false, not \"Nope\"",
        ),
        (
            "--leader-elect-resource-lock=endpoints",
            "invalid value \"endpoints\" for --leader-elect-resource-lock: resourceLock value must be \"leases\"",
        ),
        (
            "--leader-elect-renew-deadline=15s",
            "invalid value \"15s\" for --leader-elect-renew-deadline: expected less than --leader-elect-lease-duration (15s)",
        ),
        (
            "--leader-elect-renew-deadline=2.4s",
            "invalid value \"2.4s\" for --leader-elect-renew-deadline: expected more than 1.2 times --leader-elect-retry-period (2s)",
        ),
        (
            "--concurrent-node-lifecycle-syncs=0",
            "invalid value \"0\" for --concurrent-node-lifecycle-syncs: expected a whole number of at least 1",
        ),
        (
            "--concurrent-node-syncs=0",
            "invalid value \"0\" for --concurrent-node-syncs: expected a whole number of at least 1",
        ),
        (
            "--node-deletion-max-percent=101",
            "invalid value \"101\" for --node-deletion-max-percent: expected a whole number from 0 to 100",
        ),
        (
            "--node-filter-requirements=a--b=c,=d",
            "invalid value \"a--b=c,=d\" for --node-filter-requirements: expected a label selector, as for `kubectl get nodes -l`: \"\" is not a valid label key",
        ),
        (
            "--allocate-node-cidrs",
            "invalid value \"\" for --cluster-cidr: expected one CIDR, or one per IP family: --allocate-node-cidrs allocates the pod CIDRs of nodes from it",
        ),
        (
            "--allocate-node-cidrs --configure-cloud-routes=false --cluster-cidr=10.0.0.0/8,11.0.0.0/8",
            "invalid value \"10.0.0.0/8,11.0.0.0/8\" for --cluster-cidr: expected at most one CIDR per IP family",
        ),
        (
            "--allocate-node-cidrs --cluster-cidr=10.0.0.0/8 --cidr-allocator-type=Range",
            "invalid value \"Range\" for --cidr-allocator-type: expected RangeAllocator or CloudAllocator",
        ),
        (
            "--allocate-node-cidrs --cluster-cidr=10.0.0.0/8 --node-cidr-mask-size-ipv4=33",
            "invalid value \"33\" for --node-cidr-mask-size-ipv4: expected a whole number from 0 to 32",
        ),
        (
            "--allocate-node-cidrs --cluster-cidr=10.0.0.0/8 --service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16",
            "invalid value \"10.0.0.0/16,10.1.0.0/16\" for --service-cluster-ip-range: expected at most one CIDR per IP family",
        ),
        (
            "--service-cluster-ip-range=10.0.0.0/16,fd00::/108,10.1.0.0/16",
            "invalid value \"10.0.0.0/16,fd00::/108,10.1.0.0/16\" for --service-cluster-ip-range: expected at most two CIDRs, one per IP family",
        ),
        ("--tls-cert-file=a", "--tls-cert-file and --tls-private-key-file must be given together"),
        (
            "--tls-min-version=1.2",
            "invalid value \"1.2\" for --tls-min-version: expected VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13",
        ),
        (
            "--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA",
            "invalid value \"TLS_RSA_WITH_RC4_128_SHA\" for --tls-cipher-suites: this server offers none of these suites",
        ),
        ("--leader-elected=true", "unknown flag --leader-elected: did you mean --leader-elect?"),
        ("--port=0", "unknown flag --port: --help lists the flags"),
        ("--cluster-name", "--cluster-name <string> needs a value"),
        ("--kube-api-burst=0", "invalid value \"0\" for --kube-api-burst: expected a whole number of at least 1"),
        (
            "nonsense",
            "unexpected argument \"nonsense\": expected flags, or one of the subcommands acr-credential-provider, check-config, cloud-node-manager, completion, doctor, explain, health-probe-proxy, help, orphans, plan, status, support-bundle, version; a switch takes its value after an equals sign, as in --leader-elect=false",
        ),
        (
            "--leader-elect false",
            "unexpected argument \"false\": a switch takes its value after an equals sign, as in --leader-elect=false",
        ),
    ] {
        assert_eq!(errors(line), [expected], "{line}");
    }
}

#[test]
fn pod_cidr_flags_are_checked_if_pod_cidrs_are_allocated() {
    let default = config("").node_ipam;
    assert!(!default.enabled && (default.mask_ipv4, default.mask_ipv6) == (24, 64));
    for off in [
        "--cidr-allocator-type=x --service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16",
        "--allocate-node-cidrs --controllers=*,-node-ipam --cidr-allocator-type=x",
    ] {
        assert!(!config(off).node_ipam.enabled, "{off}");
    }
    let ipam = config(
        "--allocate-node-cidrs --cluster-cidr=10.0.0.0/8,fd00::/48 --cidr-allocator-type=CloudAllocator \
         --service-cluster-ip-range=10.1.0.0/16 --node-cidr-mask-size-ipv4=25 --node-cidr-mask-size-ipv6=60",
    )
    .node_ipam;
    assert!(ipam.enabled && ipam.allocator == CidrAllocatorType::CloudAllocator);
    assert_eq!((ipam.cluster_cidrs.len(), ipam.service_cidrs.len(), ipam.mask_ipv4, ipam.mask_ipv6), (2, 1, 25, 60));
    // Upstream: `TestSetNodeCIDRMaskSizesDualStack`.
    for (line, expected) in [
        ("", (24, 64)),
        ("--node-cidr-mask-size-ipv6=65", (24, 65)),
        ("--node-cidr-mask-size-ipv4=18 --node-cidr-mask-size-ipv6=65", (18, 65)),
    ] {
        let ipam = config(&format!("--node-cidr-mask-size=17 {line}")).node_ipam;
        assert_eq!((ipam.mask_ipv4, ipam.mask_ipv6), expected, "{line}");
    }
}

#[test]
fn flags_determine_which_prefixes_limit_routes() {
    for (line, expected) in [
        ("", (None, None)),
        ("--node-cidr-mask-size-ipv4=22", (Some(22), None)),
        ("--allocate-node-cidrs --controllers=*,-node-ipam", (None, None)),
        ("--allocate-node-cidrs --cluster-cidr=10.0.0.0/8", (Some(24), Some(64))),
        ("--allocate-node-cidrs --cluster-cidr=10.0.0.0/8 --cidr-allocator-type=CloudAllocator", (None, None)),
    ] {
        let masks = config(line).route.node_masks;
        assert_eq!((masks.ipv4, masks.ipv6), expected, "{line}");
    }
}

#[test]
fn several_errors_are_reported_together() {
    let lines = errors("--controllers=x --leader-elect-resource-lock=y --secure-port=70000 --cloud-provider=");
    assert_eq!(lines.len(), 4, "{lines:?}");
    let lines = errors("--secure-port=x --leader-elect=y");
    assert_eq!(lines.len(), 2, "{lines:?}");
    let many: String = (0..100).map(|number| format!("--nonsense-{number} ")).collect();
    assert_eq!(errors(&many).len(), 20, "the parser runs once for each");
}

#[test]
fn zero_rate_and_burst_select_the_defaults_of_client_go() {
    for (line, expected) in [
        ("--kube-api-qps=0", (5.0, 30)),
        ("--kube-api-qps=0 --kube-api-burst=0", (5.0, 10)),
        ("--kube-api-qps=-1 --kube-api-burst=0", (-1.0, 0)),
    ] {
        let api = config(line).kube_api;
        assert_eq!((api.qps, api.burst), expected, "{line}");
    }
}

#[test]
fn explicit_rate_limit_always_applies() {
    for (line, expected) in [("", true), ("--kube-api-qps=20", false), ("--kube-api-burst=30", false)] {
        assert_eq!(config(line).kube_api.limit_unless_fair, expected, "{line}");
    }
}

#[test]
fn default_provider_is_azure_or_the_only_one() {
    let provider = |providers: &[&str]| match parse([OsString::from(NAME)], providers, &[]) {
        Ok(CliCommand::Run(config)) => config.cloud.provider,
        other => format!("{other:?}"),
    };
    assert_eq!(provider(&["acme", "azure"]), "azure");
    assert_eq!(provider(&["acme"]), "acme");
    assert!(provider(&["acme", "other"]).contains("--cloud-provider cannot be empty: expected one of acme, other"));
}

#[test]
fn server_flags_are_checked_only_if_the_server_is_enabled() {
    assert_eq!(config("--secure-port=0 --tls-min-version=bad").serving.port, 0);
    assert_eq!(
        config("--leader-elect=false --leader-elect-renew-deadline=1h").leader_election.renew_deadline,
        seconds(3600)
    );
    assert_eq!(config("--tls-min-version=VersionTLS10").serving.tls_min_version, TlsMinVersion::Tls12);
}

#[test]
fn flags_and_gates_without_effect_are_reported() {
    let notices = config(
        "--webhooks=x --allow-untagged-cloud --feature-gates=WatchList=true --node-cidr-mask-size=24 \
         --service-cluster-ip-range=10.0.0.0/16,nonsense",
    )
    .notices;
    assert_eq!(notices.len(), 5, "{notices:?}");
    for text in [
        "--webhooks has no effect",
        "--allow-untagged-cloud is deprecated",
        "WatchList has no effect",
        "--node-cidr-mask-size has no effect: upstream ignores it, too",
        "\"nonsense\" in --service-cluster-ip-range is not a valid CIDR and is ignored",
    ] {
        assert!(notices.iter().any(|notice| notice.contains(text)), "{text}: {notices:?}");
    }
}
