//! The containers start: the parser of the program accepts their arguments, which name mounted files and correspond to the values.

use std::{ffi::OsString, time::Duration};

use cloud_controller_manager::cli::{self, CliCommand, NodeManagerConfig, config::ManagerConfig};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::Value;

use crate::chart::objects::{cases, find, pod, rendered};

const NAME: &str = "cloud-controller-manager";
const NODES: &str = "cloud-node-manager";
/// Folder of the image on Windows.
pub(crate) const MOUNT_POINT: &str = "$env:CONTAINER_SANDBOX_MOUNT_POINT/";
/// Flags of Go without effect here. A release may have them.
const HARMLESS: [&str; 3] = ["--contention-profiling", "--kube-api-content-type", "--min-resync-period"];

/// Placeholder for the cloud in the manifests, which a component replaces.
pub(crate) const NO_CLOUD: &str = "CLOUD-NOT-SET";

/// Parses the arguments of the program with this name, on a Node, and with a cloud in place of the placeholder.
pub(crate) fn parse(program: &str, arguments: &[String]) -> CliCommand {
    let resolved = arguments.iter().map(|word| word.replace("$(NODE_NAME)", "Node-1").replace(NO_CLOUD, "fake"));
    let words = std::iter::once(program.to_owned()).chain(resolved).map(OsString::from);
    cli::parse(words, &["azure", "fake"], &[]).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

/// Parses the arguments of a container. The image for Linux has an entry point. The image for Windows has the program under each name in a
/// folder that the container runtime sets.
pub(crate) fn start(container: &Container) -> CliCommand {
    let program = match container.command.as_deref() {
        None => NAME,
        Some([path]) => path.strip_prefix(MOUNT_POINT).unwrap().strip_suffix(".exe").unwrap(),
        Some(other) => panic!("{other:?}"),
    };
    parse(program, container.args.as_deref().unwrap_or_default())
}

pub(crate) fn manager_config(command: CliCommand) -> ManagerConfig {
    match command {
        CliCommand::Run(config) => *config,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn node_manager_config(command: CliCommand) -> NodeManagerConfig {
    match command {
        CliCommand::ManageNode(config) => *config,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn manager(objects: &[Value]) -> ManagerConfig {
    manager_config(start(&pod(find(objects, "Deployment", NAME)).containers[0]))
}

pub(crate) fn node_manager(objects: &[Value]) -> NodeManagerConfig {
    node_manager_of(find(objects, "DaemonSet", NODES))
}

pub(crate) fn node_manager_of(set: &Value) -> NodeManagerConfig {
    node_manager_config(start(&pod(set).containers[0]))
}

/// Container of the case `additions` that is not this program.
const FOREIGN_CONTAINER: &str = "proxy";

fn pods(objects: &[Value]) -> Vec<PodSpec> {
    let mut pods: Vec<PodSpec> = objects.iter().filter(|object| !object["spec"]["template"].is_null()).map(pod).collect();
    pods.iter_mut().for_each(|pod| pod.containers.retain(|container| container.name != FOREIGN_CONTAINER));
    pods
}

fn notices(command: &CliCommand) -> &[String] {
    match command {
        CliCommand::Run(config) => &config.notices,
        CliCommand::ManageNode(config) => &config.notices,
        _ => &[],
    }
}

#[test]
fn every_container_of_every_case_starts() {
    let mut started = 0;
    for (case, objects) in cases() {
        for container in pods(&objects).into_iter().flat_map(|pod| pod.containers) {
            let command = start(&container);
            for notice in notices(&command) {
                assert!(HARMLESS.iter().any(|flag| notice.starts_with(flag)), "{case}: {notice}");
            }
            started += 1;
        }
    }
    assert!(started >= 14, "{started} containers");
}

#[test]
fn files_that_flags_name_are_mounted_from_volumes_that_exist() {
    for (case, objects) in cases() {
        for pod in pods(&objects) {
            let container = &pod.containers[0];
            let mounts: Vec<_> = container.volume_mounts.iter().flatten().collect();
            for flag in container.args.iter().flatten() {
                let file = ["--cloud-config=", "--kubeconfig="].iter().find_map(|name| flag.strip_prefix(name));
                let file = file.filter(|file| !file.is_empty());
                let is_mounted =
                    |file: &str| mounts.iter().any(|mount| std::path::Path::new(file).starts_with(&mount.mount_path));
                assert!(file.is_none_or(is_mounted), "{case}: {flag} is in no volume");
            }
            let mut mounted: Vec<_> = mounts.iter().map(|mount| mount.name.as_str()).collect();
            let mut volumes: Vec<_> = pod.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
            mounted.sort_unstable();
            volumes.sort_unstable();
            assert_eq!(mounted, volumes, "{case}");
        }
    }
}

#[test]
fn images_are_those_of_the_values_and_never_gos() {
    let image = |case: &str| {
        let objects = rendered(case);
        let images: Vec<String> =
            pods(&objects).into_iter().flat_map(|pod| pod.containers).map(|container| container.image.unwrap()).collect();
        assert!(images.windows(2).all(|pair| pair[0] == pair[1]), "{case}: {images:?}");
        images[0].clone()
    };
    let own = "registry.example.com/cloud-controller-manager";
    let version = format!("{own}:v{}", env!("CARGO_PKG_VERSION"));
    // Go's chart rendered empty tags under one version of Helm.
    for case in ["minimal", "go-defaults", "azure-cni", "nodes-only", "additions"] {
        assert_eq!(image(case), version, "{case}");
    }
    assert!(image("every-option").starts_with(&format!("{own}@sha256:")));
    assert_eq!(image("manager-only"), "registry.example.com/team/my-cloud-controller-manager:v7");
}

#[test]
fn values_mean_the_same_as_in_gos_chart() {
    let config = manager(&rendered("every-option"));
    assert_eq!(config.leader_election.lease_duration, Duration::from_secs(30));
    assert!(config.use_service_account_credentials && config.leader_election.enabled);
    assert_eq!(config.cloud.config.cloud_config_secret.unwrap().name, "my-azure-config");
    assert_eq!((config.kube_api.qps, config.kube_api.burst), (50.0, 100));

    let config = manager(&rendered("azure-cni"));
    assert!(!config.cloud.configure_cloud_routes && config.cloud.provider == "azure");
    assert_eq!((config.serving.port, config.kube_api.burst), (10268, 1_000_000), "no exponent");
    let config = manager(&rendered("go-defaults"));
    assert!(config.cloud.configure_cloud_routes && !config.controllers.contains("cloud-node-controller"));
    assert!(manager(&rendered("manager-only")).controllers.contains("cloud-node-controller"));

    let config = node_manager(&rendered("every-option"));
    assert!(!config.use_instance_metadata && config.node_name.as_deref() == Some("node-1"));
    assert!(node_manager(&rendered("go-defaults")).use_instance_metadata);
    let objects = rendered("azure-cni");
    let proxy = &pod(find(&objects, "DaemonSet", NODES)).containers[1];
    let CliCommand::ProxyProbes(config) = start(proxy) else { panic!("{proxy:?}") };
    assert_eq!((config.health_check_port, config.target_port), (10400, 10256));
    assert_eq!(proxy.ports.as_ref().unwrap()[0].container_port, 10400);
}

#[test]
fn probes_use_the_served_port() {
    for (case, objects) in cases() {
        for object in objects.iter().filter(|object| object["kind"] == "Deployment") {
            let container = &pod(object).containers[0];
            let port = container.ports.as_ref().unwrap()[0].container_port;
            assert_eq!(port, i32::from(manager(&objects).serving.port), "{case}");
            for probe in [&container.startup_probe, &container.liveness_probe, &container.readiness_probe] {
                let request = probe.as_ref().unwrap().http_get.as_ref().unwrap();
                let host = (case == "every-option").then_some("127.0.0.1");
                assert_eq!((request.host.as_deref(), request.scheme.as_deref()), (host, Some("HTTPS")), "{case}");
            }
        }
    }
}

#[test]
fn the_created_secret_is_mounted() {
    let objects = rendered("additions");
    let secret = find(&objects, "Secret", "cloud-controller-manager-azure-config");
    let [(key, text)] = secret["stringData"].as_object().unwrap().iter().collect::<Vec<_>>()[..] else { panic!("{secret}") };
    let document: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    assert_eq!(document["cloud"], "AzurePublicCloud");
    let volumes = pod(find(&objects, "Deployment", NAME)).volumes.unwrap();
    let mounted = volumes.into_iter().find_map(|volume| volume.secret).unwrap();
    assert_eq!(mounted.secret_name.as_deref(), secret["metadata"]["name"].as_str());
    assert_eq!(&mounted.items.unwrap()[0].key, key);
}

#[test]
fn defaults_of_gos_chart_allocate_pod_cidrs_out_of_its_range() {
    let of = |case: &str| manager(&rendered(case)).node_ipam;
    let config = of("go-defaults");
    assert_eq!((config.enabled, config.cluster_cidrs), (true, vec!["10.244.0.0/16".parse().unwrap()]));
    let config = of("no-pod-cidrs");
    assert_eq!(
        (config.enabled, config.cluster_cidrs.len()),
        (false, 0),
        "the chart and the program read `controllers` alike"
    );
}

#[test]
fn pods_and_accounts_have_what_values_add() {
    let objects = rendered("additions");
    for (kind, name, policy) in [("Deployment", NAME, "None"), ("DaemonSet", NODES, "ClusterFirstWithHostNet")] {
        let object = find(&objects, kind, name);
        let pod = pod(object);
        assert_eq!((object["spec"]["revisionHistoryLimit"].as_i64(), pod.dns_policy.as_deref()), (Some(3), Some(policy)));
        assert_eq!(pod.host_aliases.unwrap()[0].ip, "192.0.2.1");
        assert_eq!(pod.init_containers.unwrap()[0].name, "wait");
        assert_eq!(pod.containers.last().unwrap().name, FOREIGN_CONTAINER);
        assert!(find(&objects, "ServiceAccount", name)["metadata"]["annotations"].is_object(), "{name}");
        let labels = &object["metadata"]["labels"];
        assert_eq!((&labels["example.com/cost-center"], &labels["component"]), (&"42".into(), &name.into()));
    }
    let pod = pod(find(&objects, "Deployment", NAME));
    assert_eq!(pod.termination_grace_period_seconds, Some(60));
    let selected = pod
        .topology_spread_constraints
        .unwrap()
        .into_iter()
        .map(|constraint| constraint.label_selector.unwrap().match_labels.unwrap().into_keys().collect::<Vec<_>>());
    assert_eq!(selected.collect::<Vec<_>>(), [vec!["component", "tier"], vec!["tier"]]);
}
