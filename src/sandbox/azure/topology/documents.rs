//! ARM documents of machines and of the sets they belong to, in ARM's shape.
//!
//! In: a topology and its machines. Out: documents with `id`, `type`, `name`, `location` and `properties`, without `etag`.
//! Some irregularities of ARM are reproduced on purpose: a machine names its availability set in upper case, an instance of
//! a uniform scale set has an empty hardware profile.

use serde_json::{Map, Value, json};

use super::{IpConfiguration, Machine, Pool, PoolKind, Power, Topology, network};

/// Creation time of all resources, in ARM's spelling.
const CREATED: &str = "2026-01-01T00:00:00+00:00";

/// Omits nulls, as ARM does.
fn compact(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key, compact(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(compact).collect(),
        other => other,
    }
}

fn statuses(power: Power) -> Value {
    json!([
        {"code": "ProvisioningState/succeeded", "time": CREATED},
        {"code": format!("PowerState/{}", power.as_str())},
    ])
}

impl Topology {
    /// Returns all documents of the cluster: network, resource groups, sets, machines.
    pub fn documents(&self, machines: &[Machine]) -> Vec<Value> {
        let mut documents = self.network_documents();
        documents.extend(self.pools.iter().filter_map(|pool| self.set_document(pool, machines)));
        documents.extend(machines.iter().flat_map(|machine| self.machine_documents(machine)));
        documents
    }

    /// Returns the document of a scale set or availability set; `machines` may hold those of other pools as well.
    pub fn set_document(&self, pool: &Pool, machines: &[Machine]) -> Option<Value> {
        let members: Vec<_> = machines.iter().filter(|machine| machine.pool.name == pool.name).collect();
        match pool.kind {
            PoolKind::Uniform | PoolKind::Flexible => Some(self.scale_set(pool, members.len())),
            PoolKind::AvailabilitySet => Some(self.availability_set(pool, &members)),
            PoolKind::Standalone => None,
        }
    }

    /// Returns the documents of one machine: itself, its network interface, its public IPs.
    pub fn machine_documents(&self, machine: &Machine) -> Vec<Value> {
        let machine_document = match machine.pool.kind {
            PoolKind::Uniform => self.instance(machine),
            _ => self.virtual_machine(machine),
        };
        let mut documents = vec![machine_document, self.interface(machine)];
        documents.extend(self.public_ips(machine));
        documents
    }

    fn scale_set(&self, pool: &Pool, capacity: usize) -> Value {
        let id = self.set_id(pool);
        let mode = if pool.kind == PoolKind::Uniform { "Uniform" } else { "Flexible" };
        compact(json!({
            "id": id, "location": self.location, "name": pool.name,
            "properties": {
                "orchestrationMode": mode,
                "overprovision": false,
                "platformFaultDomainCount": pool.fault_domains,
                "provisioningState": "Succeeded",
                "singlePlacementGroup": false,
                "uniqueId": super::uuid(self.seed, &pool.name),
                "upgradePolicy": {"mode": "Manual"},
                "virtualMachineProfile": {
                    "networkProfile": {"networkInterfaceConfigurations": self.interface_configurations(pool)},
                    "osProfile": {"computerNamePrefix": pool.prefix()},
                    "storageProfile": storage_profile(pool),
                },
            },
            "sku": {"capacity": capacity, "name": pool.vm_size, "tier": "Standard"},
            "tags": pool.tags,
            "type": "Microsoft.Compute/virtualMachineScaleSets",
            "zones": some_zones(&pool.zones),
        }))
    }

    fn availability_set(&self, pool: &Pool, members: &[&Machine]) -> Value {
        let members: Vec<_> = members.iter().map(|machine| json!({"id": machine.id(self)})).collect();
        compact(json!({
            "id": self.set_id(pool), "location": self.location, "name": pool.name,
            "properties": {
                "platformFaultDomainCount": pool.fault_domains.max(2),
                "platformUpdateDomainCount": 5,
                "provisioningState": "Succeeded",
                "virtualMachines": members,
            },
            "sku": {"name": "Aligned"},
            "tags": pool.tags,
            "type": "Microsoft.Compute/availabilitySets",
        }))
    }

    fn instance(&self, machine: &Machine) -> Value {
        let pool = &machine.pool;
        let mut properties = self.common_properties(machine);
        properties.insert("hardwareProfile".to_owned(), json!({}));
        properties.insert("latestModelApplied".to_owned(), json!(true));
        properties.insert("modelDefinitionApplied".to_owned(), json!("VirtualMachineScaleSet"));
        let configurations = json!({"networkInterfaceConfigurations": self.interface_configurations(pool)});
        properties.insert("networkProfileConfiguration".to_owned(), configurations);
        compact(json!({
            "id": machine.id(self), "instanceId": machine.number.to_string(), "location": self.location, "name": machine.name(),
            "properties": properties,
            "sku": {"name": pool.vm_size, "tier": "Standard"},
            "tags": pool.tags,
            "type": "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
            "zones": machine.zone().map(|zone| [zone]),
        }))
    }

    fn virtual_machine(&self, machine: &Machine) -> Value {
        let pool = &machine.pool;
        let mut properties = self.common_properties(machine);
        properties.insert("hardwareProfile".to_owned(), json!({"vmSize": pool.vm_size}));
        if let Some(set) = self.set_id(pool) {
            let (field, id) = match pool.kind {
                PoolKind::Flexible => ("virtualMachineScaleSet", set.to_string()),
                _ => ("availabilitySet", shouted(set.as_str())),
            };
            properties.insert(field.to_owned(), json!({"id": id}));
        }
        compact(json!({
            "id": machine.id(self), "location": self.location, "name": machine.name(),
            "properties": properties,
            "tags": pool.tags,
            "type": "Microsoft.Compute/virtualMachines",
            "zones": machine.zone().map(|zone| [zone]),
        }))
    }

    /// Returns the properties that instances and virtual machines share.
    fn common_properties(&self, machine: &Machine) -> Map<String, Value> {
        let interface = json!({"id": machine.interface_id(self), "properties": {"primary": true}});
        let properties = [
            ("instanceView", machine.instance_view()),
            ("networkProfile", json!({"networkInterfaces": [interface]})),
            ("osProfile", json!({"computerName": machine.computer_name()})),
            ("provisioningState", json!("Succeeded")),
            ("storageProfile", storage_profile(&machine.pool)),
            ("timeCreated", json!(CREATED)),
            ("vmId", json!(machine.vm_id)),
        ];
        properties.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn interface_configurations(&self, pool: &Pool) -> Value {
        let families: &[(&str, &str, &str)] = &[("ipconfig1", "IPv4", "pub"), ("ipconfig1-v6", "IPv6", "pub-v6")];
        let families = families.iter().take(if self.dual_stack { 2 } else { 1 });
        let configurations = families.enumerate().map(|(index, (name, version, public))| {
            let public = pool.public_ips.then(|| {
                json!({"name": public, "properties": {"idleTimeoutInMinutes": 4, "ipTags": [], "publicIPAddressVersion": version}})
            });
            json!({"name": name, "properties": {
                "primary": index == 0,
                "privateIPAddressVersion": version,
                "publicIPAddressConfiguration": public,
                "subnet": {"id": self.subnet_id()},
            }})
        });
        json!([{
            "name": pool.name,
            "properties": {
                "disableTcpStateTracking": false,
                "dnsSettings": {"dnsServers": []},
                "enableAcceleratedNetworking": true,
                "enableIPForwarding": true,
                "ipConfigurations": configurations.collect::<Vec<_>>(),
                "primary": true,
            },
        }])
    }

    fn interface(&self, machine: &Machine) -> Value {
        let kind = match machine.pool.kind {
            PoolKind::Uniform => "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces",
            _ => "Microsoft.Network/networkInterfaces",
        };
        let configurations =
            machine.ip_configurations.iter().map(|configuration| self.ip_configuration(machine, configuration));
        compact(json!({
            "id": machine.interface_id(self), "location": self.location, "name": machine.interface_name(),
            "properties": {
                "dnsSettings": {"dnsServers": []},
                "enableAcceleratedNetworking": true,
                "enableIPForwarding": true,
                "ipConfigurations": configurations.collect::<Vec<_>>(),
                "primary": true,
                "provisioningState": "Succeeded",
                "virtualMachine": {"id": machine.id(self)},
            },
            "type": kind,
        }))
    }

    fn ip_configuration(&self, machine: &Machine, configuration: &IpConfiguration) -> Value {
        let public = configuration.public_address.map(|_| json!({"id": machine.public_ip_id(self, configuration)}));
        json!({
            "id": machine.ip_configuration_id(self, configuration), "name": configuration.name,
            "properties": {
                "primary": configuration.is_primary(),
                "privateIPAddress": configuration.address,
                "privateIPAddressVersion": configuration.version(),
                "privateIPAllocationMethod": "Dynamic",
                "publicIPAddress": public,
                "subnet": {"id": self.subnet_id()},
            },
        })
    }

    fn public_ips(&self, machine: &Machine) -> Vec<Value> {
        let with_public = machine.ip_configurations.iter().filter(|configuration| configuration.public_address.is_some());
        with_public.map(|configuration| compact(network::public_ip(self, machine, configuration))).collect()
    }
}

/// Returns the last name of the id in upper case: how ARM refers from a machine to its availability set.
fn shouted(id: &str) -> String {
    id.rsplit_once('/').map_or_else(|| id.to_owned(), |(path, name)| format!("{path}/{}", name.to_uppercase()))
}

fn some_zones(zones: &[String]) -> Option<&[String]> {
    Some(zones).filter(|zones| !zones.is_empty())
}

fn storage_profile(pool: &Pool) -> Value {
    let system = if pool.windows { "Windows" } else { "Linux" };
    json!({"imageReference": {"id": pool.image}, "osDisk": {"createOption": "FromImage", "osType": system}})
}

impl Machine {
    /// Returns the value of `properties.instanceView`.
    pub fn instance_view(&self) -> Value {
        let update_domain = self.fault_domain().map(|_| self.update_domain());
        compact(json!({
            "platformFaultDomain": self.fault_domain(),
            "platformUpdateDomain": update_domain,
            "statuses": statuses(self.power),
        }))
    }
}
