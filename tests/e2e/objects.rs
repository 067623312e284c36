//! Nodes and Services as a kubelet and a user create them, and reads of their state.

use cloud_controller_manager::{controllers::service::conditions, node::condition_status};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Service},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::support::{SOON, eventually};

pub(crate) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
pub(crate) const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Objects of one cluster, accessed as administrator.
pub(crate) struct Objects {
    pub(crate) nodes: Api<Node>,
    pub(crate) services: Api<Service>,
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

impl Objects {
    pub(crate) fn new(admin: &Client) -> Self {
        Self { nodes: Api::all(admin.clone()), services: Api::namespaced(admin.clone(), "default") }
    }

    /// Registers a Node as a kubelet with `--cloud-provider=external` does.
    pub(crate) async fn register_node(&self, name: &str, pod_cidr: &str) {
        let node = object(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {
                "podCIDR": pod_cidr, "podCIDRs": [pod_cidr],
                "taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}],
            },
        }));
        self.nodes.create(&PostParams::default(), &node).await.expect("node");
        self.set_ready(name, "True").await;
    }

    /// Registers a prepared Node with the `nodeInfo` of its status.
    pub(crate) async fn register(&self, node: &Node) {
        let name = node.metadata.name.clone().expect("a name");
        self.nodes.create(&PostParams::default(), node).await.expect("node");
        let patch = json!({"status": {"nodeInfo": node.status.as_ref().and_then(|status| status.node_info.clone())}});
        self.nodes.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await.expect("node status");
        self.set_ready(&name, "True").await;
    }

    pub(crate) async fn until_initialized(&self, name: &str) {
        eventually(&format!("{name} is initialized"), SOON, async || {
            self.node(name).await.is_some_and(|node| !has_taint(&node, UNINITIALIZED))
        })
        .await;
    }

    pub(crate) async fn until_routed(&self, name: &str) {
        eventually(&format!("{name} has its route"), SOON, async || {
            self.node(name).await.is_some_and(|node| condition_status(&node, "NetworkUnavailable") == Some("False"))
        })
        .await;
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        eventually(&format!("{name} is gone"), SOON, async || self.node(name).await.is_none()).await;
    }

    /// Waits until the Node has the taint, or no longer has it.
    pub(crate) async fn until_tainted(&self, name: &str, key: &str, is_tainted: bool) {
        eventually(&format!("{name}: taint {key} is {is_tainted}"), SOON, async || {
            self.node(name).await.is_some_and(|node| has_taint(&node, key) == is_tainted)
        })
        .await;
    }

    /// Writes the Ready condition as the kubelet does, or as the node controller does for a silent kubelet.
    pub(crate) async fn set_ready(&self, name: &str, status: &str) {
        let now = "2026-01-01T00:00:00Z";
        let condition = json!({"type": "Ready", "status": status, "reason": "Test", "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now});
        let patch = json!({"status": {"conditions": [condition]}});
        self.nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await.expect("node status");
    }

    pub(crate) async fn delete_node(&self, name: &str) {
        self.nodes.delete(name, &DeleteParams::default()).await.expect("delete a node");
    }

    pub(crate) async fn node(&self, name: &str) -> Option<Node> {
        self.nodes.get_opt(name).await.ok().flatten()
    }

    pub(crate) async fn create_service(&self, name: &str) {
        let service = object(json!({
            "metadata": {"name": name},
            "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
        }));
        self.services.create(&PostParams::default(), &service).await.expect("service");
    }

    /// Creates a Service and waits for its address.
    pub(crate) async fn add_service(&self, name: &str) {
        self.create_service(name).await;
        self.until_service_has_address(name).await;
    }

    /// Deletes a Service and waits until it is gone.
    pub(crate) async fn remove_service(&self, name: &str) {
        self.delete_service(name).await;
        self.until_service_is_gone(name).await;
    }

    pub(crate) async fn patch_service(&self, name: &str, patch: Value) {
        // The manager may patch the Service, too. Older API servers then return a conflict.
        eventually("the Service is patched", SOON, async || {
            self.services.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.is_ok()
        })
        .await;
    }

    pub(crate) async fn delete_service(&self, name: &str) {
        self.services.delete(name, &DeleteParams::default()).await.expect("service");
    }

    pub(crate) async fn service(&self, name: &str) -> Option<Service> {
        self.services.get_opt(name).await.ok().flatten()
    }

    /// Returns the addresses in the status of the Service.
    pub(crate) async fn ingress(&self, name: &str) -> Vec<String> {
        let status = self.service(name).await.and_then(|service| service.status);
        let ingress = status.and_then(|status| status.load_balancer).and_then(|balancer| balancer.ingress);
        ingress.unwrap_or_default().into_iter().filter_map(|entry| entry.ip.or(entry.hostname)).collect()
    }

    pub(crate) async fn until_service_has_address(&self, name: &str) {
        eventually(&format!("service {name} has an address"), SOON, async || !self.ingress(name).await.is_empty()).await;
    }

    pub(crate) async fn until_service_is_gone(&self, name: &str) {
        eventually(&format!("service {name} is gone"), SOON, async || self.service(name).await.is_none()).await;
    }

    /// Deletes the objects of the last scenario.
    pub(crate) async fn clear(&self) {
        for service in self.services.list(&Default::default()).await.expect("services") {
            let name = service.metadata.name.unwrap_or_default();
            if name != "kubernetes" {
                self.patch_service(&name, json!({"metadata": {"finalizers": null}})).await;
                self.services.delete(&name, &DeleteParams::default()).await.ok();
                self.until_service_is_gone(&name).await;
            }
        }
        for node in self.nodes.list(&Default::default()).await.expect("nodes") {
            self.nodes.delete(&node.metadata.name.unwrap_or_default(), &DeleteParams::default()).await.ok();
        }
        // A killed manager has not released its Lease: the next manager would wait until it expires.
        let leases: Api<Lease> = Api::namespaced(self.nodes.clone().into_client(), "kube-system");
        leases.delete("cloud-controller-manager", &DeleteParams::default()).await.ok();
    }
}

pub(crate) fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == key))
}

pub(crate) fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str)
}

/// Returns the reason of the condition that the service controller writes.
pub(crate) fn condition_reason(service: &Service) -> Option<String> {
    conditions::current(service).map(|condition| condition.reason.clone())
}

pub(crate) fn has_finalizer(service: &Service) -> bool {
    service.metadata.finalizers.as_ref().is_some_and(|finalizers| finalizers.iter().any(|name| name == FINALIZER))
}
