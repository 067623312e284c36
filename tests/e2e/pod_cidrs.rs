//! Pod CIDRs on a cluster: Nodes get them from the built binary under the shipped rights, and then their routes.

use std::collections::BTreeSet;

use cloud_controller_manager::sandbox::azure::topology::{Pool, PoolKind, Topology};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::{Api, api::ListParams};
use serde_json::json;

use crate::{
    azure::Azure,
    cloud::Cloud,
    control_plane::ControlPlane,
    objects::Objects,
    support::{Manager, SOON, eventually},
};

/// Returns the number of address families and the flags. Old API servers store only one family of a Node's CIDRs.
fn flags(plane: &ControlPlane) -> (usize, [&'static str; 3]) {
    let (families, clusters) = match plane.is_real() {
        true => (1, "--cluster-cidr=10.244.0.0/22"),
        false => (2, "--cluster-cidr=10.244.0.0/22,fd00:10::/48"),
    };
    (families, ["--allocate-node-cidrs=true", clusters, "--leader-elect=false"])
}

/// Returns a Node as the kubelet registers it, without pod CIDRs.
fn bare(name: &str) -> Node {
    let node = json!({
        "metadata": {"name": name},
        "spec": {"taints": [
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
        ]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    serde_json::from_value(node).expect("a Node")
}

async fn cidrs(objects: &Objects, name: &str) -> Vec<String> {
    let spec = objects.node(name).await.and_then(|node| node.spec).unwrap_or_default();
    let listed = spec.pod_cidrs.unwrap_or_default();
    assert_eq!(listed.first(), spec.pod_cidr.as_ref(), "{name}");
    listed
}

/// Each Node gets blocks of both families, then routes to them. The successor of a killed manager continues. The blocks of a deleted Node
/// are allocated again.
pub(crate) async fn allocated(plane: &mut ControlPlane, objects: &Objects) {
    let names = ["pod-a", "pod-b", "pod-c", "pod-d", "pod-e"];
    let cloud = Cloud::new(plane.folder(), "pod-cidrs").with_instances(&names);
    let (families, flags) = flags(plane);
    let manager = Manager::start(plane, "manager-a", cloud.path(), &flags).await;
    for name in &names[..3] {
        objects.register(&bare(name)).await;
    }
    let mut allocated_cidrs = BTreeSet::new();
    for name in &names[..3] {
        has_route(objects, name).await;
        allocated_cidrs.extend(cidrs(objects, name).await);
    }
    assert_eq!(allocated_cidrs.len(), 3 * families, "{allocated_cidrs:?}");
    eventually("there is a route to each", SOON, async || cloud.resources("routes").len() == 3 * families).await;
    manager.kill();

    let _manager = Manager::start(plane, "manager-a", cloud.path(), &flags).await;
    objects.register(&bare(names[3])).await;
    has_route(objects, names[3]).await;
    let last = cidrs(objects, names[3]).await;
    assert!(
        last.len() == families && last.iter().all(|cidr| !allocated_cidrs.contains(cidr)),
        "{last:?} {allocated_cidrs:?}"
    );

    // A /22 has four /24 blocks.
    objects.register(&bare(names[4])).await;
    let events: Api<Event> = Api::all(plane.admin().await);
    eventually("an event reports that no block is free", SOON, async || {
        let events = events.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        events.iter().any(|event| {
            event.reason.as_deref() == Some("CIDRNotAvailable") && event.involved_object.name.as_deref() == Some(names[4])
        })
    })
    .await;
    assert!(cidrs(objects, names[4]).await.is_empty());
    let freed = cidrs(objects, names[0]).await;
    objects.delete_node(names[0]).await;
    has_route(objects, names[4]).await;
    assert_eq!(cidrs(objects, names[4]).await[0], freed[0]);
}

async fn has_route(objects: &Objects, name: &str) {
    eventually(&format!("{name} has pod CIDRs"), SOON, async || !cidrs(objects, name).await.is_empty()).await;
    objects.until_routed(name).await;
}

/// Tags of scale sets and availability sets set the block size of their Nodes.
pub(crate) async fn of_azure(plane: &mut ControlPlane, objects: &Objects) {
    let sized = |mut pool: Pool, size: &str| {
        pool.tags.insert("kubernetesNodeCIDRMaskIPV4".to_owned(), size.to_owned());
        pool
    };
    let topology = Topology::new()
        .pool(sized(Pool::new(PoolKind::Uniform, "pool1", 2), "26"))
        .pool(sized(Pool::new(PoolKind::Flexible, "flex1", 1), "23"))
        .pool(sized(Pool::new(PoolKind::AvailabilitySet, "as1", 1), "25"))
        .pool(Pool::new(PoolKind::Standalone, "lone", 1));
    let azure = Azure::of(plane, "azure-pod-cidrs", topology).await;
    let flags = [
        "--allocate-node-cidrs=true",
        "--cidr-allocator-type=CloudAllocator",
        "--cluster-cidr=100.64.0.0/16",
        "--configure-cloud-routes=true",
    ];
    let _manager = azure.manager_with(plane, "azure-pod-cidrs", &flags).await;
    let mut sizes = Vec::new();
    for mut node in azure.simulation.uninitialized_nodes() {
        node.spec.iter_mut().for_each(|spec| (spec.pod_cidr, spec.pod_cidrs) = (None, None));
        objects.register(&node).await;
        let name = node.metadata.name.unwrap_or_default();
        has_route(objects, &name).await;
        sizes.extend(cidrs(objects, &name).await.iter().map(|cidr| cidr.split_once('/').expect("a size").1.to_owned()));
    }
    sizes.sort_unstable();
    assert_eq!(sizes, ["23", "24", "25", "26", "26"]);
}
