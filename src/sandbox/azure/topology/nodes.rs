//! Kubernetes Nodes of machines: as the kubelet registers them, and as they are after a provider has initialized them.

use k8s_openapi::api::core::v1::{Node, NodeSystemInfo};

use super::{Machine, Topology};
use crate::sandbox::objects::{self, NodeExt, ObjectExt};

impl Topology {
    /// Returns the Node as a kubelet with `--cloud-provider=external` registers it: the taint, no provider ID, no address
    /// but the host name.
    pub fn uninitialized_node(&self, machine: &Machine) -> Node {
        self.kubelet_view(objects::uninitialized_node(&machine.computer_name()), machine)
    }

    /// Returns the Node as upstream's provider leaves it: provider ID, addresses, labels of type and location.
    pub fn node(&self, machine: &Machine) -> Node {
        let mut node = objects::node(&machine.computer_name()).provider_id(&machine.provider_id(self));
        if let Some(status) = &mut node.status {
            status.addresses = None;
        }
        for configuration in &machine.ip_configurations {
            node = node.address("InternalIP", &configuration.address.to_string());
        }
        let mut node = node.address("Hostname", &machine.computer_name());
        for public in machine.ip_configurations.iter().filter_map(|configuration| configuration.public_address) {
            node = node.address("ExternalIP", &public.to_string());
        }
        let node = self.kubelet_view(node, machine).label("node.kubernetes.io/instance-type", &machine.pool.vm_size);
        node.zone(&self.location, &self.zone_label(machine))
    }

    /// Returns `<region>-<zone>`, without zones the fault domain, as upstream.
    fn zone_label(&self, machine: &Machine) -> String {
        let domain = || machine.fault_domain().unwrap_or_default().to_string();
        machine.zone().map_or_else(domain, |zone| format!("{}-{zone}", self.location).to_lowercase())
    }

    fn kubelet_view(&self, node: Node, machine: &Machine) -> Node {
        let system = if machine.pool.windows { "windows" } else { "linux" };
        let mut node = node.label("agentpool", &machine.pool.name);
        node = node.label("kubernetes.io/arch", "amd64").label("kubernetes.io/os", system);
        if let Some(group) = &machine.pool.resource_group {
            node = node.label("kubernetes.azure.com/resource-group", group);
        }
        if let Some(status) = &mut node.status {
            status.node_info = Some(NodeSystemInfo {
                architecture: "amd64".to_owned(),
                operating_system: system.to_owned(),
                system_uuid: machine.vm_id.clone(),
                ..NodeSystemInfo::default()
            });
        }
        let cidrs = self.pod_cidrs(machine);
        node.pod_cidrs(&cidrs.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn pod_cidrs(&self, machine: &Machine) -> Vec<String> {
        let slot = machine.slot;
        let v4 = format!("100.{}.{}.0/24", 64 + slot / 256, slot % 256);
        let v6 = format!("fd00:64:0:{slot:x}::/64");
        std::iter::once(v4).chain(self.dual_stack.then_some(v6)).collect()
    }
}
