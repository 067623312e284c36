//! A Node as large as those of AKS, for benchmarks: most of the size of a Node is in fields that this program never reads.
//!
//! In: a number. Out: the Node of that number before its initialization, with 40 labels, 10 annotations, 50 images, the
//! conditions of the node problem detector and the `managedFields` of five writers. Names, versions and sizes are those of
//! an AKS node of 2026.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};

/// Repositories of images below `mcr.microsoft.com`, of which a node image caches several versions each.
const REPOSITORIES: [&str; 10] = [
    "oss/v2/kubernetes/azure-cloud-node-manager",
    "oss/v2/kubernetes-csi/azuredisk-csi",
    "oss/v2/kubernetes-csi/azurefile-csi",
    "oss/v2/kubernetes-csi/csi-node-driver-registrar",
    "oss/v2/kubernetes-csi/livenessprobe",
    "azuremonitor/containerinsights/ciprod/prometheus-collector/images",
    "containernetworking/azure-cns",
    "aks/ip-masq-agent-v2",
    "oss/v2/kubernetes/kube-proxy",
    "oss/v2/kubernetes/pause",
];
const IMAGES: usize = 50;

/// Labels that AKS and kubelet set, of which `{pool}` and `{name}` differ between Nodes.
const LABELS: [(&str, &str); 40] = [
    ("agentpool", "{pool}"),
    ("beta.kubernetes.io/arch", "amd64"),
    ("beta.kubernetes.io/os", "linux"),
    ("kubernetes.azure.com/agentpool", "{pool}"),
    ("kubernetes.azure.com/azure-cni-overlay", "true"),
    ("kubernetes.azure.com/cluster", "MC_production-westeurope_production_westeurope"),
    ("kubernetes.azure.com/consolidated-additional-properties", "5b0f4e5c-7c1e-11ef-9a2e-8a1d5f1f0a11"),
    ("kubernetes.azure.com/ebpf-dataplane", "cilium"),
    ("kubernetes.azure.com/kubelet-identity-client-id", "7e0b3c2a-9f0e-4c0e-8a52-0d2f7c8d6b11"),
    ("kubernetes.azure.com/kubelet-serving-ca", "cluster"),
    ("kubernetes.azure.com/localdns-state", "disabled"),
    ("kubernetes.azure.com/mode", "user"),
    ("kubernetes.azure.com/network-name", "production-westeurope-vnet"),
    ("kubernetes.azure.com/network-policy", "cilium"),
    ("kubernetes.azure.com/network-resourcegroup", "production-westeurope-network"),
    ("kubernetes.azure.com/network-stateless-cni", "false"),
    ("kubernetes.azure.com/network-subnet", "nodes"),
    ("kubernetes.azure.com/network-subscription", "0f7a2d0e-53c1-4c3c-9f25-1c1b6a7a4e90"),
    ("kubernetes.azure.com/node-image-version", "AKSUbuntu-2204gen2containerd-202601.08.0"),
    ("kubernetes.azure.com/nodenetwork-vnetguid", "c1a5d0a2-2f3b-4f0e-9a0a-6d2f7c8d6b11"),
    ("kubernetes.azure.com/nodepool-type", "VirtualMachineScaleSets"),
    ("kubernetes.azure.com/os-sku", "Ubuntu"),
    ("kubernetes.azure.com/os-sku-effective", "Ubuntu2204"),
    ("kubernetes.azure.com/os-sku-requested", "Ubuntu"),
    ("kubernetes.azure.com/podnetwork-name", "production-westeurope-vnet"),
    ("kubernetes.azure.com/podnetwork-type", "overlay"),
    ("kubernetes.azure.com/role", "agent"),
    ("kubernetes.azure.com/security-type", "TrustedLaunch"),
    ("kubernetes.azure.com/sku-cpu", "8"),
    ("kubernetes.azure.com/sku-memory", "32768"),
    ("kubernetes.azure.com/storageprofile", "managed"),
    ("kubernetes.azure.com/storagetier", "Premium_LRS"),
    ("kubernetes.io/arch", "amd64"),
    ("kubernetes.io/hostname", "{name}"),
    ("kubernetes.io/os", "linux"),
    ("kubernetes.io/role", "agent"),
    ("node-role.kubernetes.io/agent", ""),
    ("storageprofile", "managed"),
    ("storagetier", "Premium_LRS"),
    ("workload.example.com/tier", "backend"),
];

const ANNOTATIONS: [(&str, &str); 10] = [
    ("csi.volume.kubernetes.io/nodeid", r#"{"disk.csi.azure.com":"{name}","file.csi.azure.com":"{name}"}"#),
    ("kubernetes.azure.com/livepatch-last-checked", "2026-01-12T04:11:52Z"),
    ("network.cilium.io/ipv4-cilium-host", "10.244.3.17"),
    ("network.cilium.io/ipv4-health-ip", "10.244.3.201"),
    ("network.cilium.io/ipv4-pod-cidr", "10.244.3.0/24"),
    ("node.alpha.kubernetes.io/ttl", "0"),
    ("volumes.kubernetes.io/controller-managed-attach-detach", "true"),
    ("alpha.kubernetes.io/provided-node-ip", "{address}"),
    ("weave.works/kured-most-recent-reboot-needed", "2026-01-10T02:00:00Z"),
    ("weave.works/kured-reboot-in-progress", "2026-01-10T02:05:00Z"),
];

const CONDITIONS: [&str; 16] = [
    "ContainerRuntimeProblem",
    "FilesystemCorruptionProblem",
    "FreezeScheduled",
    "FrequentContainerdRestart",
    "FrequentDockerRestart",
    "FrequentKubeletRestart",
    "FrequentUnregisterNetDevice",
    "KernelDeadlock",
    "KubeletProblem",
    "PreemptScheduled",
    "ReadonlyFilesystem",
    "RebootScheduled",
    "VMEventScheduled",
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
];

/// Returns the Node with this number. `node-7` is that of 7.
pub fn aks_node(number: u32) -> Node {
    serde_json::from_value(document(number)).unwrap_or_default()
}

fn document(number: u32) -> Value {
    let name = format!("node-{number}");
    let address = std::net::Ipv4Addr::from(0x0ae0_0004 + number).to_string();
    let text = |template: &str| {
        let pool = format!("pool{}", number / 1_000);
        json!(template.replace("{name}", &name).replace("{pool}", &pool).replace("{address}", &address))
    };
    let texts = |pairs: &[(&str, &str)]| -> Map<String, Value> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), text(value))).collect()
    };
    json!({
        "metadata": {
            "name": name, "uid": format!("5b0f4e5c-7c1e-41ef-9a2e-{number:012x}"), "labels": texts(&LABELS), "annotations": texts(&ANNOTATIONS), "managedFields": managed_fields(),
        },
        "spec": {
            "podCIDR": "10.244.3.0/24", "podCIDRs": ["10.244.3.0/24"],
            "taints": [
                {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
                {"key": "workload.example.com/dedicated", "value": "backend", "effect": "NoSchedule"},
            ],
        },
        "status": status(&name, number),
    })
}

fn status(name: &str, number: u32) -> Value {
    let quantities = json!({
        "cpu": "7820m", "ephemeral-storage": "119703055367", "hugepages-1Gi": "0", "hugepages-2Mi": "0", "memory": "29293716Ki",
        "pods": "250",
    });
    let images: Vec<_> = (0..IMAGES).map(image).collect();
    json!({
        "addresses": [{"type": "Hostname", "address": name}],
        "allocatable": quantities, "capacity": quantities, "conditions": conditions(), "images": images,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "features": {"supplementalGroupsPolicy": true},
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "Ubuntu 22.04.5 LTS",
            "bootID": "4f7c2a52-5d2c-4f4b-8d5e-2b7b0f1e9a10", "machineID": "8a1d5f1f0a114b0f9a2e7c1e11ef5b0f",
            "systemUUID": format!("8a1d5f1f-0a11-4b0f-9a2e-{number:012x}"), "kernelVersion": "5.15.0-1079-azure",
            "containerRuntimeVersion": "containerd://1.7.27-1", "kubeletVersion": "v1.33.5", "kubeProxyVersion": "",
        },
        "runtimeHandlers": [
            {"name": "", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": true}},
            {"name": "runc", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": true}},
            {"name": "untrusted", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": true}},
        ],
        "volumesAttached": [
            {"name": "kubernetes.io/csi/disk.csi.azure.com^/subscriptions/0f7a2d0e/resourceGroups/mc/providers/d", "devicePath": ""},
        ],
        "volumesInUse": ["kubernetes.io/csi/disk.csi.azure.com^/subscriptions/0f7a2d0e/resourceGroups/mc/providers/d"],
    })
}

fn image(index: usize) -> Value {
    let repository = format!("mcr.microsoft.com/{}", REPOSITORIES[index % REPOSITORIES.len()]);
    let digest = format!("{:016x}", 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1)).repeat(4);
    let names = [format!("{repository}@sha256:{digest}"), format!("{repository}:v1.{}.{index}", 30 + index / 10)];
    json!({"names": names, "sizeBytes": 41_000_000 + 3_777_777 * index})
}

fn conditions() -> Vec<Value> {
    let condition = |name: &str, status: &str| {
        json!({
            "type": name, "status": status, "reason": format!("No{name}"),
            "message": format!("{name} has not been seen on this node since it was started"),
            "lastHeartbeatTime": "2026-01-12T04:15:22Z", "lastTransitionTime": "2026-01-10T02:07:31Z",
        })
    };
    CONDITIONS.iter().map(|name| condition(name, "False")).chain([condition("Ready", "True")]).collect()
}

/// Returns each field that a writer has set, by path, as the API server keeps them.
fn managed_fields() -> Vec<Value> {
    let set = |keys: &[(&str, &str)]| -> Map<String, Value> {
        keys.iter().map(|(key, _)| (format!("f:{key}"), json!({}))).collect()
    };
    let condition = |name: &&str| {
        let fields = json!({
            ".": {}, "f:type": {}, "f:status": {}, "f:reason": {}, "f:message": {}, "f:lastHeartbeatTime": {},
            "f:lastTransitionTime": {},
        });
        (format!("k:{{\"type\":\"{name}\"}}"), fields)
    };
    let conditions: Map<String, Value> = CONDITIONS.iter().map(condition).collect();
    let resources =
        json!({".": {}, "f:cpu": {}, "f:ephemeral-storage": {}, "f:hugepages-1Gi": {}, "f:memory": {}, "f:pods": {}});
    [
        ("kubelet", "", json!({"f:metadata": {"f:labels": set(&LABELS), "f:annotations": set(&ANNOTATIONS[..1])}})),
        (
            "kube-controller-manager",
            "",
            json!({"f:spec": {"f:podCIDR": {}, "f:podCIDRs": {".": {}, "v:\"10.244.3.0/24\"": {}}}}),
        ),
        ("cilium-operator", "", json!({"f:metadata": {"f:annotations": set(&ANNOTATIONS[2..5])}})),
        ("node-problem-detector", "status", json!({"f:status": {"f:conditions": conditions}})),
        (
            "kubelet",
            "status",
            json!({"f:status": {
                "f:allocatable": resources, "f:capacity": resources, "f:conditions": conditions, "f:images": {},
                "f:runtimeHandlers": {}, "f:volumesAttached": {}, "f:volumesInUse": {},
                "f:nodeInfo": {"f:bootID": {}, "f:kernelVersion": {}, "f:kubeletVersion": {}, "f:systemUUID": {}},
            }}),
        ),
    ]
    .into_iter()
    .map(|(manager, subresource, fields)| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-12T04:15:22Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": subresource,
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_large_as_that_of_aks() {
        let node = aks_node(7);
        assert_eq!(node.metadata.name.as_deref(), Some("node-7"));
        assert_eq!(node.metadata.labels.as_ref().map(|all| all.len()), Some(40));
        assert_eq!(node.metadata.annotations.as_ref().map(|all| all.len()), Some(10));
        assert_eq!(node.status.as_ref().and_then(|status| status.images.as_ref()).map(Vec::len), Some(50));
        assert_eq!(node.metadata.managed_fields.as_ref().map(Vec::len), Some(5));
        let bytes = serde_json::to_vec(&node).unwrap().len();
        assert!((20_000..35_000).contains(&bytes), "{bytes} bytes");
    }
}
