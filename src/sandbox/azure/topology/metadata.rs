//! Metadata of a machine in the instance metadata service.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{IpConfiguration, Machine, Topology};

impl Topology {
    /// Returns the response to `/metadata/instance?api-version=2021-10-01&format=json`. Public addresses of a Standard SKU
    /// are not in it.
    pub fn instance_metadata(&self, machine: &Machine) -> Value {
        json!({"compute": self.compute_metadata(machine), "network": {"interface": [self.interface_metadata(machine)]}})
    }

    fn compute_metadata(&self, machine: &Machine) -> Value {
        let pool = &machine.pool;
        let number = |value: Option<u32>| value.map(|value| value.to_string()).unwrap_or_default();
        let id = machine.id(self);
        let tags: Vec<_> = pool.tags.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let tag_text: Vec<_> = pool.tags.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        let scale_set = if pool.is_scale_set() { pool.name.as_str() } else { "" };
        let system = if pool.windows { "Windows" } else { "Linux" };
        json!({
            "azEnvironment": "AzurePublicCloud",
            "evictionPolicy": "",
            "isHostCompatibilityLayerVm": "false",
            "location": self.location,
            "name": machine.name(),
            "offer": "",
            "osProfile": {"adminUsername": "azureuser", "computerName": machine.computer_name()},
            "osType": system,
            "placementGroupId": "",
            "platformFaultDomain": number(machine.fault_domain()),
            "platformSubFaultDomain": "",
            "platformUpdateDomain": number(machine.fault_domain().map(|_| machine.update_domain())),
            "priority": "Regular",
            "provider": "Microsoft.Compute",
            "resourceGroupName": id.resource_group(),
            "resourceId": id,
            "sku": if pool.windows { "windows-2022-containerd-gen2" } else { "2204gen2containerd" },
            "storageProfile": {"imageReference": {"id": pool.image}, "osDisk": {"osType": system}},
            "subscriptionId": self.subscription,
            "tags": tag_text.join(";"),
            "tagsList": tags,
            "vmId": machine.vm_id,
            "vmScaleSetName": scale_set,
            "vmSize": pool.vm_size,
            "zone": machine.zone().unwrap_or_default(),
        })
    }

    fn interface_metadata(&self, machine: &Machine) -> Value {
        let of = |predicate: fn(&IpAddr) -> bool| {
            let found = machine.ip_configurations.iter().filter(move |configuration| predicate(&configuration.address));
            found
                .map(|configuration| json!({"privateIpAddress": configuration.address, "publicIpAddress": ""}))
                .collect::<Vec<_>>()
        };
        let mut interface = json!({
            "ipv4": {"ipAddress": of(IpAddr::is_ipv4), "subnet": [{"address": "10.224.0.0", "prefix": "16"}]},
            "ipv6": {"ipAddress": of(IpAddr::is_ipv6)},
            "macAddress": format!("000D3A{:06X}", machine.slot),
        });
        if self.dual_stack {
            interface["ipv6"]["subnet"] = json!([{"address": "fd00:10::", "prefix": "64"}]);
        }
        interface
    }

    /// Returns the response to `/metadata/loadbalancer?api-version=2020-10-01&format=json`; `None` if the machine has no
    /// public IP, which the service reports with 404. Addresses of IPv6 are in brackets.
    pub fn load_balancer_metadata(&self, machine: &Machine) -> Option<Value> {
        let entry = |configuration: &IpConfiguration| {
            let public = configuration.public_address?;
            Some(json!({"frontendIpAddress": bracketed(public), "privateIpAddress": bracketed(configuration.address)}))
        };
        let entries: Vec<_> = machine.ip_configurations.iter().filter_map(entry).collect();
        let response = json!({"loadbalancer": {"publicIpAddresses": entries, "inboundRules": [], "outboundRules": []}});
        (!entries.is_empty()).then_some(response)
    }
}

fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}
