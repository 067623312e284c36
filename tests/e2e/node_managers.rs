//! cloud-node-manager on the machines of a simulated Azure: some as processes, the others as tasks, each with the metadata service
//! of its machine.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use cloud_controller_manager::{
    metrics::Metrics,
    node_manager::{NodeManager, NodeManagerDeps, NodeManagerSettings},
    providers::azure::metadata::{LocalMachineCloud, MetadataService},
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::azure::topology::{Pool, PoolKind, Topology},
};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    azure::Azure,
    control_plane::{ControlPlane, NODE_MANAGER, Process, client},
    objects::Objects,
    support::{SOON, binary, eventually, is_shipped},
};

const SETTINGS: NodeManagerSettings = NodeManagerSettings {
    status_update_frequency: Duration::from_secs(300),
    wait_routes: false,
    beta_labels: false,
    reconcile_labels: false,
};
/// Number of node managers that run as processes. The others are tasks.
const PROCESSES: usize = 3;
/// Limit of anonymous memory of a process in KiB. Pages of the program file are not included: they are shared, and dropped when memory is
/// short.
const MEMORY: u64 = 8 * 1024;
/// Limit of resident memory in KiB, with the pages of the program file, for the program of the image.
const RESIDENT: u64 = 15 * 1024;

fn topology() -> Topology {
    Topology::new()
        .pool(Pool::new(PoolKind::Uniform, "zonal", 20).zones(&["1", "2", "3"]).public_ips())
        .pool(Pool::new(PoolKind::Flexible, "flex", 10).fault_domains(2))
        .pool(Pool::new(PoolKind::AvailabilitySet, "avset", 10))
        .pool(Pool::new(PoolKind::Standalone, "lone", 10).public_ips())
}

/// Starts the binary under the name cloud-node-manager, with the metadata service of the machine of `node`.
async fn process(azure: &Azure, program: &Path, kubeconfig: &Path, node: &str, stop: &Shutdown) -> Process {
    let metadata = azure.simulation.machine_metadata(node, Vec::new()).expect("the machine");
    let address = metadata.serve_plain(([127, 0, 0, 1], 0).into(), stop).await.expect("a port");
    let log = fs::File::create(kubeconfig.with_file_name(format!("node-manager-{node}.log"))).expect("log");
    let mut command = Command::new(program);
    command
        .env("IMDS_ENDPOINT", format!("http://{address}"))
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .arg(format!("--node-name={}", node.to_uppercase()))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg("--v=4");
    Process(command.stdout(Stdio::null()).stderr(log).spawn().expect("the node manager starts"))
}

async fn task(azure: &Azure, kubeconfig: &Path, node: &str, stop: &Shutdown) {
    let metadata = azure.simulation.machine_metadata(node, Vec::new()).expect("the machine");
    let service = MetadataService::new("http://169.254.169.254", metadata.transport());
    let client = client(kubeconfig).await;
    let parts = NodeManagerDeps {
        node_name: node.to_owned(),
        client: client.clone(),
        watches: client,
        provider: Arc::new(LocalMachineCloud::new(service, SETTINGS.max_age())),
        metrics: Arc::new(Metrics::new().expect("metrics")),
        clock: Clock::System,
        settings: SETTINGS,
    };
    let manager = NodeManager::start(parts, stop).expect("a node manager");
    let stop = stop.clone();
    tokio::spawn(async move { manager.run(&stop).await });
}

/// Returns a field of `/proc/*/status` in KiB.
fn memory(process: &Process, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.0.id())).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a line about memory");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
}

fn comparable(mut node: Node) -> Node {
    node.metadata.uid = None;
    node.metadata.resource_version = None;
    node.metadata.creation_timestamp = None;
    node.metadata.managed_fields = None;
    // As in Go, cloud-node-manager sets the deprecated labels with a flag only.
    let labels = node.metadata.labels.get_or_insert_default();
    labels.retain(|key, _| {
        !key.starts_with("failure-domain.beta.kubernetes.io/") && key != "beta.kubernetes.io/instance-type"
    });
    node
}

async fn read(objects: &Objects, names: &[String]) -> Vec<Node> {
    let mut nodes = Vec::new();
    for name in names {
        objects.until_initialized(name).await;
        nodes.push(comparable(objects.node(name).await.expect("the node")));
    }
    nodes
}

/// Fifty node managers initialize their Nodes next to a manager without node controller: without a request to ARM, and with the same result
/// as the node controller.
pub(crate) async fn node_managers(plane: &mut ControlPlane, objects: &Objects) {
    let azure = Azure::of(plane, "node-managers", topology()).await;
    let stop = Shutdown::new();
    let manager = azure.manager_with(plane, "node-managers", &["--enable-node-controller=false"]).await;
    manager.until_ready().await;
    azure.simulation.azure().clear_requests();

    let program = plane.folder().join("cloud-node-manager");
    if !program.exists() {
        symlink(binary(), &program).expect("a link to the binary");
    }
    let names = azure.register_all(objects).await;
    assert_eq!(names.len(), 50);
    let (own, others) = names.split_at(PROCESSES);
    let mut processes = Vec::new();
    for name in own {
        let started = tokio::time::Instant::now();
        let kubeconfig = plane.node_manager_kubeconfig(name).await;
        processes.push(process(&azure, &program, &kubeconfig, name, &stop).await);
        objects.until_initialized(name).await;
        eprintln!("{name}: from start to initialized: {:?}", started.elapsed());
    }
    for name in others {
        task(&azure, &plane.node_manager_kubeconfig(name).await, name, &stop).await;
    }
    let local = read(objects, &names).await;
    assert!(azure.simulation.azure().requests().is_empty(), "requests to ARM: {:?}", azure.simulation.azure().requests());
    for process in &processes {
        let (own, resident) = (memory(process, "RssAnon"), memory(process, "VmRSS"));
        eprintln!("memory of a node manager: {own} KiB of its own, {resident} KiB with the pages of the program file");
        assert!(own <= MEMORY, "{own} KiB");
        assert!(resident <= RESIDENT || !is_shipped(), "{resident} KiB");
    }
    drop(processes);
    stop.begin();
    manager.kill();

    for name in &names {
        objects.nodes.delete(name, &DeleteParams::default()).await.expect("the node");
        objects.until_gone(name).await;
    }
    let _manager = azure.manager_with(plane, "node-managers", &[]).await;
    azure.register_all(objects).await;
    let central = read(objects, &names).await;
    for (local, central) in local.into_iter().zip(central) {
        assert_eq!(local, central);
    }
}

/// Returns `true` if a merge patch of a Node, or of its status, is accepted.
async fn may_patch(client: &Client, node: &str, subresource: &str, patch: &Value) -> bool {
    let nodes: Api<Node> = Api::all(client.clone());
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let result = match subresource {
        "" => nodes.patch(node, &params, &patch).await,
        _ => nodes.patch_status(node, &params, &patch).await,
    };
    match result {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 403 => {
            assert!(status.message.contains(NODE_MANAGER), "{}", status.message);
            false
        }
        Err(error) => panic!("{error}"),
    }
}

async fn may_create_event(client: &Client, node: &str) -> bool {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "e2e-", "namespace": "default"}, "reason": "Test",
        "type": "Normal", "involvedObject": {"kind": "Node", "name": node},
    });
    events.create(&PostParams::default(), &serde_json::from_value(event).expect("an event")).await.is_ok()
}

/// The token of a Node's pod may change only that Node, and only as cloud-node-manager does. A token without a Node may change no Node.
pub(crate) async fn confined(plane: &mut ControlPlane, objects: &Objects) {
    if !plane.has_admission_policies().await {
        eprintln!(
            "NOT TESTED HERE: this API server has no ValidatingAdmissionPolicy; tests/manifests evaluates its expressions"
        );
        return;
    }
    for (name, range) in [("node-a", "10.244.0.0/24"), ("node-b", "10.244.1.0/24")] {
        objects.register_node(name, range).await;
    }
    let own = client(&plane.node_manager_kubeconfig("node-a").await).await;
    let unbound = client(&plane.powerless_kubeconfig(NODE_MANAGER).await).await;
    let zone = |zone: &str| json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
    // The API server enforces a new policy with a delay.
    eventually("the policy is enforced", SOON, async || !may_patch(&unbound, "node-a", "", &zone("unbound")).await).await;

    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}});
    // The API server itself taints a new Node.
    let taints = objects.node("node-a").await.and_then(|node| node.spec?.taints).expect("taints");
    let (initialization, others): (Vec<_>, Vec<_>) =
        taints.into_iter().partition(|taint| taint.key == "node.cloudprovider.kubernetes.io/uninitialized");
    assert!(!initialization.is_empty() && !others.is_empty(), "{initialization:?} {others:?}");
    assert!(!may_patch(&own, "node-a", "", &json!({"spec": {"taints": null}})).await, "a taint of another component");
    let initialized = json!({
        "metadata": {"labels": {"topology.kubernetes.io/zone": "1"}}, "spec": {"providerID": "azure:///a", "taints": others},
    });
    assert!(may_patch(&own, "node-a", "", &initialized).await && may_patch(&own, "node-a", "status", &addresses).await);
    assert!(may_create_event(&own, "node-a").await);
    assert!(!may_patch(&own, "node-b", "", &zone("2")).await, "another Node");
    assert!(!may_patch(&own, "node-b", "status", &addresses).await, "another Node");
    assert!(!may_create_event(&own, "node-b").await && !may_create_event(&unbound, "node-a").await);
    assert!(!may_patch(&unbound, "node-b", "status", &addresses).await, "a token that names no Node");

    for (subresource, patch) in [
        ("", json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}})),
        ("", json!({"metadata": {"annotations": {"a": "b"}}})),
        ("", json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})),
        ("", json!({"spec": {"unschedulable": true}})),
        ("status", json!({"metadata": {"labels": {"pool": "b"}}})),
        ("status", json!({"status": {"capacity": {"cpu": "1000"}}})),
        ("status", json!({"status": {"nodeInfo": {"systemUUID": "another"}}})),
        ("status", json!({"status": {"conditions": null}})),
    ] {
        assert!(!may_patch(&own, "node-a", subresource, &patch).await, "{patch}");
    }
    let node = objects.node("node-b").await.expect("node-b");
    assert!(node.spec.and_then(|spec| spec.provider_id).is_none(), "node-b was changed");
}
