//! The values for the Helm chart of Azure's Go program: keys of the chart, arguments that this program accepts, and the rights that the
//! chart's ClusterRoles lack.
//!
//! The tables below describe the chart, from `kubernetes-sigs/cloud-provider-azure`, `helm/cloud-provider-azure/values.yaml` and
//! `templates/cloud-provider-azure.yaml`, chart 1.36.0.

use cloud_controller_manager::cli::config::ManagerConfig;
use k8s_openapi::api::apps::v1::DeploymentStrategy;

use super::*;

const VALUES: &str = "azure/helm-values.yaml";
const RIGHTS: &str = "azure/helm-rbac.yaml";
const MANAGER: &str = "cloudControllerManager";
const NODES: &str = "cloudNodeManager";

/// Argument up to its value, key of the value, and its default in the chart.
type Argument = (&'static str, &'static str, &'static str);

/// Arguments that the Deployment always has.
const MANAGER_ARGUMENTS: &[Argument] = &[
    ("--allocate-node-cidrs=", "allocateNodeCidrs", "true"),
    ("--cloud-config=", "cloudConfig", "/etc/kubernetes/azure.json"),
    ("--cloud-provider=azure", "", ""),
    ("--cluster-cidr=", "clusterCIDR", "10.244.0.0/16"),
    ("--cluster-name=kubernetes", "", ""),
    ("--configure-cloud-routes=", "configureCloudRoutes", "true"),
    ("--controllers=*,-cloud-node", "", ""),
    ("--leader-elect=", "leaderElect", "true"),
    ("--route-reconciliation-period=", "routeReconciliationPeriod", "10s"),
    ("--secure-port=", "securePort", "10268"),
    ("--v=", "logVerbosity", "2"),
];

/// Arguments of the Deployment whose value is set. The examples are those of the chart, except for `configmap`, which Go's program
/// refuses, too.
const MANAGER_OPTIONS: &[Argument] = &[
    ("--bind-address=", "bindAddress", "0.0.0.0"),
    ("--cert-dir=", "certDir", "/path/to/certs"),
    ("--cloud-config-secret-name=", "cloudConfigSecretName", "azure-cloud-provider"),
    ("--contention-profiling=", "contentionProfiling", "true"),
    ("--controller-start-interval=", "controllerStartInterval", "2m"),
    ("--enable-dynamic-reloading=", "enableDynamicReloading", "true"),
    ("--http2-max-streams-per-connection=", "http2MaxStreamsPerConnection", "47"),
    ("--kube-api-burst=", "kubeAPIBurst", "100"),
    ("--kube-api-content-type=", "kubeAPIContentType", "application/vnd.kubernetes.protobuf"),
    ("--kube-api-qps=", "kubeAPIQPS", "50.0"),
    ("--kubeconfig=", "kubeconfig", "/kubeconfig"),
    ("--leader-elect-lease-duration=", "leaderElectLeaseDuration", "30s"),
    ("--leader-elect-renew-deadline=", "leaderElectRenewDeadline", "15s"),
    ("--leader-elect-retry-period=", "leaderElectRetryPeriod", "5s"),
    // The template contains this argument twice.
    ("--leader-elect-resource-lock=", "leaderElectResourceLock", "leases"),
    ("--leader-elect-resource-lock=", "leaderElectResourceLock", "leases"),
    ("--master=", "master", "192.168.4.20"),
    ("--min-resync-period=", "minResyncPeriod", "100m"),
    ("--node-status-update-frequency=", "nodeStatusUpdateFrequency", "10m"),
    ("--profiling=", "profiling", "false"),
    ("--use-service-account-credentials=", "useServiceAccountCredentials", "false"),
];

/// Arguments that the DaemonSet for Linux always has.
const NODES_ARGUMENTS: &[Argument] = &[("--node-name=$(NODE_NAME)", "", ""), ("--v=", "logVerbosity", "2")];

/// Arguments of the DaemonSet whose value is set.
const NODES_OPTIONS: &[Argument] = &[
    ("--cloud-config=", "cloudConfig", "/etc/kubernetes/azure.json"),
    ("--kube-api-burst=", "kubeAPIBurst", "100"),
    ("--kube-api-content-type=", "kubeAPIContentType", "application/vnd.kubernetes.protobuf"),
    ("--kube-api-qps=", "kubeAPIQPS", "50.0"),
    ("--kubeconfig=", "kubeconfig", "/kubeconfig"),
    ("--master=", "master", "192.168.4.20"),
    ("--min-resync-period=", "minResyncPeriod", "100m"),
    ("--node-status-update-frequency=", "nodeStatusUpdateFrequency", "10m"),
    ("--use-instance-metadata=", "useInstanceMetadata", "true"),
    ("--wait-routes=", "waitRoutes", "false"),
];

/// Keys of both programs that are not arguments.
const KEYS: &[&str] = &["imageRepository", "imageName", "imageTag", "imagePullPolicy", "containerResourceManagement"];
/// Keys of the manager alone.
const MANAGER_KEYS: &[&str] = &["updateStrategy"];
/// Keys of the node manager alone. The chart starts the proxy without arguments. Its ports are only in the port list of the pod.
const NODES_KEYS: &[&str] = &["enableHealthProbeProxy", "healthProbeProxyImage", "healthCheckPort", "targetPort"];
/// Command of the proxy's container in the chart.
const PROXY_COMMAND: &str = "/usr/local/bin/health-probe-proxy";
const RESOURCES: &[&str] = &["requestsCPU", "requestsMem", "limitsCPU", "limitsMem"];

/// Account, API group, resource and verbs that the chart grants, all cluster-wide.
#[rustfmt::skip]
const CHART_RULES: &[(&str, &str, &str, &[&str])] = &[
    (NAME, "", "events", &["create", "patch", "update"]),
    (NAME, "", "nodes", &["*"]),
    (NAME, "", "nodes/status", &["patch"]),
    (NAME, "", "services", &["list", "patch", "update", "watch"]),
    (NAME, "", "services/status", &["list", "patch", "update", "watch"]),
    (NAME, "", "serviceaccounts", &["create", "get", "list", "watch", "update"]),
    (NAME, "", "persistentvolumes", &["get", "list", "update", "watch"]),
    (NAME, "", "endpoints", &["create", "get", "list", "watch", "update"]),
    (NAME, "", "secrets", &["get", "list", "watch"]),
    (NAME, "coordination.k8s.io", "leases", &["get", "create", "update"]),
    (NAME, "discovery.k8s.io", "endpointslices", &["get", "list", "watch"]),
    (NODE_MANAGER, "", "nodes", &["watch", "list", "get", "update", "patch"]),
    (NODE_MANAGER, "", "nodes/status", &["patch"]),
];

fn values() -> Value {
    documents(VALUES).remove(0)
}

fn keys(object: &Value) -> impl Iterator<Item = &str> {
    object.as_object().unwrap().keys().map(String::as_str)
}

/// Returns a value as the chart prints it between quotes.
fn printed(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the arguments as the chart renders them: the set values and the chart's defaults.
fn rendered(values: &Value, always: &[Argument], options: &[Argument]) -> Vec<String> {
    let always = always.iter().map(|(text, key, default)| match values.get(key) {
        Some(value) => format!("{text}{}", printed(value)),
        None => format!("{text}{default}"),
    });
    let set = options.iter().filter_map(|(text, key, _)| Some(format!("{text}{}", printed(values.get(key)?))));
    always.chain(set).collect()
}

/// Adds the chart's example of every option that is not set.
fn with_examples(mut values: Value, options: &[Argument]) -> Value {
    for (_, key, example) in options {
        values.as_object_mut().unwrap().entry(*key).or_insert_with(|| (*example).into());
    }
    values
}

fn manager(values: &Value) -> ManagerConfig {
    manager_config(parse(NAME, &rendered(values, MANAGER_ARGUMENTS, MANAGER_OPTIONS)))
}

fn node_manager(values: &Value) -> cli::NodeManagerConfig {
    node_manager_config(parse(NODE_MANAGER, &rendered(values, NODES_ARGUMENTS, NODES_OPTIONS)))
}

#[test]
fn values_have_the_keys_of_the_chart() {
    let values = values();
    assert_eq!(keys(&values).collect::<BTreeSet<_>>(), BTreeSet::from([MANAGER, NODES]));
    let tables: [(_, [&[Argument]; 2], &[&str]); 2] = [
        (MANAGER, [MANAGER_ARGUMENTS, MANAGER_OPTIONS], MANAGER_KEYS),
        (NODES, [NODES_ARGUMENTS, NODES_OPTIONS], NODES_KEYS),
    ];
    for (program, arguments, own) in tables {
        let chart_keys: BTreeSet<&str> =
            arguments.into_iter().flatten().map(|(_, key, _)| *key).chain([own, KEYS].concat()).collect();
        for key in keys(&values[program]) {
            assert!(chart_keys.contains(key), "{program}.{key} is not a key of the chart");
        }
        for key in keys(&values[program]["containerResourceManagement"]) {
            assert!(RESOURCES.contains(&key), "{program}.containerResourceManagement.{key} is not a key of the chart");
        }
    }
    let strategy = &values[MANAGER]["updateStrategy"];
    assert_eq!(&round_trip::<DeploymentStrategy>(strategy), strategy);
}

#[test]
fn values_are_those_of_the_manifests() {
    let values = values();
    for key in ["imageRepository", "imageName", "imageTag"] {
        assert!(values[MANAGER][key].is_string(), "the chart would use the image of Go");
        assert_eq!(values[MANAGER][key], values[NODES][key], "both are one image");
    }
    let deployment = deployment_with(&[]).spec;
    assert_eq!(serde_json::to_value(deployment.strategy.unwrap()).unwrap(), values[MANAGER]["updateStrategy"]);
    let containers = |spec: Option<PodSpec>| spec.unwrap().containers.remove(0);
    for (program, container) in [
        (MANAGER, containers(deployment.template.spec)),
        (NODES, containers(daemon_set("daemonset.yaml").spec.template.spec)),
    ] {
        let quantities = &values[program]["containerResourceManagement"];
        let resources = container.resources.unwrap();
        let (requests, limits) = (resources.requests.unwrap(), resources.limits.unwrap());
        for (key, quantity) in
            [("requestsCPU", &requests["cpu"]), ("requestsMem", &requests["memory"]), ("limitsMem", &limits["memory"])]
        {
            assert_eq!(quantities[key].as_str(), Some(quantity.0.as_str()), "{program} {key}");
        }
    }
    let ours = manager_config(start(&pod_with(&["azure"]).containers[0])).kube_api;
    let theirs = manager(&values[MANAGER]).kube_api;
    // The chart always sets a rate. The manifests leave the limit to the API server.
    assert!(ours.limit_unless_fair && !theirs.limit_unless_fair);
    assert_eq!((theirs.qps, theirs.burst), (200.0, 400));
}

#[test]
fn arguments_of_the_chart_are_accepted() {
    let values = values();
    let config = manager(&values[MANAGER]);
    assert!(config.notices.is_empty(), "{:?}", config.notices);
    assert!(config.cloud.provider == "azure" && config.node_ipam.enabled && config.leader_election.enabled);
    assert!(!config.controllers.contains("cloud-node-controller") && config.controllers.len() == 4);

    let config = node_manager(&values[NODES]);
    assert_eq!((config.node_name.as_deref(), config.notices), (Some("node-1"), Vec::new()));
    assert!(config.provider == "azure" && config.use_instance_metadata && config.serving.port == 0);
}

#[test]
fn the_probe_proxy_of_the_chart_is_the_same_image() {
    let values = values();
    let part = |key: &str| values[NODES][key].as_str().unwrap().to_owned();
    let image = format!("{}/{}:{}", part("imageRepository"), part("imageName"), part("imageTag"));
    assert_eq!(part("healthProbeProxyImage"), image);
    let CliCommand::ProxyProbes(config) = parse(PROXY_COMMAND, &[]) else { panic!("{PROXY_COMMAND} is another program") };
    assert_eq!((config.health_check_port, config.target_port), (10356, 10256), "the chart's values");
    let link = format!("ln -s cloud-controller-manager /out/{}", PROXY_COMMAND.rsplit('/').next().unwrap());
    let image = fs::read_to_string("Dockerfile").unwrap();
    assert!(image.contains(&link) && image.contains("COPY --from=build /out/ /usr/local/bin/"), "{link}");
}

#[test]
fn all_options_of_the_chart_are_accepted() {
    let values = values();
    let config = manager(&with_examples(values[MANAGER].clone(), MANAGER_OPTIONS));
    assert_eq!(config.leader_election.lease_duration, Duration::from_secs(30));
    let config = node_manager(&with_examples(values[NODES].clone(), NODES_OPTIONS));
    assert_eq!(config.settings.status_update_frequency, Duration::from_secs(600));
    // The program also starts with a release that has none of our values.
    manager(&with_examples(json!({}), MANAGER_OPTIONS));
}

#[test]
fn the_secret_in_the_comments_replaces_the_file() {
    let commented = read(VALUES).replace("  # cloudConfig", "  cloudConfig");
    let values: Value = yaml::parse(&commented).unwrap();
    let cloud = manager(&values[MANAGER]).cloud.config;
    let (secret, of_flags) = (cloud.cloud_config_secret.unwrap(), default_secret());
    assert_eq!((cloud.cloud_config, secret.name, secret.namespace), (None, of_flags.name, of_flags.namespace));
    assert!(
        CHART_RULES
            .iter()
            .any(|(account, _, resource, verbs)| (*account, *resource) == (NAME, "secrets") && verbs.contains(&"get"))
    );
}

/// Returns the rights that the code needs and the chart does not grant, by account.
fn missing() -> BTreeMap<String, BTreeSet<Grant>> {
    let manager = calls().map(|call| (NAME, call));
    let nodes = NODE_MANAGER_CALLS.iter().map(|call| (NODE_MANAGER, *call));
    let mut missing: BTreeMap<String, BTreeSet<Grant>> = BTreeMap::new();
    for (account, (scope, group, resource, name, verbs)) in manager.chain(nodes) {
        let is_granted = |verb: &str| {
            let mut rules = CHART_RULES.iter().filter(|rule| (rule.0, rule.1, rule.2) == (account, group, resource));
            rules.any(|rule| rule.3.contains(&verb) || rule.3.contains(&"*"))
        };
        for verb in verbs.iter().filter(|verb| !is_granted(verb)) {
            missing.entry(account.to_owned()).or_default().insert(grant([scope, group, resource, name, verb]));
        }
    }
    missing
}

#[test]
fn the_additional_rights_are_those_that_the_chart_lacks() {
    assert_eq!(rights(&documents(RIGHTS)), missing());
}
