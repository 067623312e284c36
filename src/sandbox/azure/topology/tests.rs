use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

#[test]
fn a_zoneless_node_has_its_fault_domain_and_group() {
    let pool = Pool::new(PoolKind::Standalone, "solo", 2).fault_domains(3).in_group("RG-Other").windows();
    let topology = Topology::new().pool(pool);
    let machine = &topology.machines()[1];
    let node = topology.node(machine);
    let labels = node.metadata.labels.unwrap();
    let label = |key: &str| labels.get(key).map(String::as_str);
    assert_eq!(label("topology.kubernetes.io/zone"), Some("1"));
    assert_eq!(label("kubernetes.azure.com/resource-group"), Some("RG-Other"));
    assert_eq!(label("kubernetes.io/os"), Some("windows"));
    let id = node.spec.unwrap().provider_id.unwrap();
    assert!(id.contains("/resourceGroups/rg-other/providers/"), "{id}");
    assert!(machine.id(&topology).as_str().contains("/resourceGroups/RG-Other/"));
}

#[test]
fn topologies_that_azure_refuses_are_refused() {
    let check = |pool: Pool| Topology::new().pool(pool).check();
    let uniform = |name: &str, count| Pool::new(PoolKind::Uniform, name, count);
    assert_eq!(check(uniform("aks-pool1-vmss", 1_000)), Ok(()));
    assert!(check(uniform("tencharact", 1).windows()).unwrap_err().contains("1 to 9"));
    assert_eq!(check(uniform("ninechars", 1).windows()), Ok(()));
    assert!(check(uniform("pool", 1_001)).unwrap_err().contains("1000"));
    assert!(check(uniform("pool", 2).starting_at(36_u32.pow(6) - 1)).unwrap_err().contains("six"));
    let twice = Topology::new().pool(uniform("pool", 1)).pool(Pool::new(PoolKind::Flexible, "POOL", 1));
    assert!(twice.check().unwrap_err().contains("another pool"));
    let many = (0..16).fold(Topology::new(), |topology, index| topology.pool(uniform(&format!("p{index}"), 1_000)));
    assert!(many.check().unwrap_err().contains("15000"));
}

/// All ids in a document, those of references included.
fn ids(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| match value.as_str().filter(|_| key == "id") {
            Some(id) => found.push(id.to_owned()),
            None => ids(value, found),
        }),
        Value::Array(items) => items.iter().for_each(|item| ids(item, found)),
        _ => {}
    }
}

fn any_pool() -> impl Strategy<Value = (PoolKind, u32, u32, usize, bool, bool, bool)> {
    let kinds =
        prop::sample::select(vec![PoolKind::Uniform, PoolKind::Flexible, PoolKind::AvailabilitySet, PoolKind::Standalone]);
    (kinds, 0..8_u32, 0..100_u32, 0..4_usize, any::<bool>(), any::<bool>(), any::<bool>())
}

const ALL_ZONES: [&str; 3] = ["1", "2", "3"];

fn any_topology() -> impl Strategy<Value = Topology> {
    (prop::collection::vec(any_pool(), 0..4), any::<bool>()).prop_map(|(pools, dual_stack)| {
        let pools = pools.into_iter().enumerate().map(|(index, (kind, count, first, zones, windows, public, external))| {
            let zones = ALL_ZONES.get(..zones).unwrap_or_default();
            let mut pool = Pool::new(kind, &format!("pool{index}"), count).starting_at(first).zones(zones).fault_domains(3);
            pool = if windows { pool.windows() } else { pool };
            pool = if public { pool.public_ips() } else { pool };
            if external { pool.in_group(&format!("rg-{index}")) } else { pool }
        });
        pools.fold(Topology { dual_stack, ..Topology::new() }, Topology::pool)
    })
}

proptest! {
    #[test]
    fn documents_fit_together(topology in any_topology()) {
        prop_assert_eq!(topology.check(), Ok(()));
        let machines = topology.machines();
        let documents = topology.documents(&machines);
        let mut all = Vec::new();
        documents.iter().for_each(|document| ids(document, &mut all));
        let own: BTreeSet<String> = documents.iter().map(|document| document["id"].as_str().unwrap().to_lowercase()).collect();
        prop_assert_eq!(own.len(), documents.len(), "ids are unique");
        for id in all.iter().map(|id| id.to_lowercase()).filter(|id| id.contains(&topology.subscription)) {
            let exists = own.iter().any(|document| id == *document || id.starts_with(&format!("{document}/")));
            prop_assert!(exists, "{} does not exist", id);
        }
        let document = |id: ResourceId| documents.iter().find(|document| document["id"] == id.as_str()).unwrap();
        for machine in &machines {
            let interface = document(machine.interface_id(&topology));
            let (machine_id, interface_id) = (machine.id(&topology).to_string(), machine.interface_id(&topology).to_string());
            prop_assert_eq!(interface["properties"]["virtualMachine"]["id"].as_str(), Some(machine_id.as_str()));
            let listed = &document(machine.id(&topology))["properties"]["networkProfile"]["networkInterfaces"];
            prop_assert_eq!(listed[0]["id"].as_str(), Some(interface_id.as_str()));
            let public = machine.ip_configurations.iter().filter(|found| found.public_address.is_some());
            prop_assert_eq!(public.count() > 0, machine.pool.public_ips);
        }
    }

    #[test]
    fn names_and_addresses_are_unique(topology in any_topology()) {
        let machines = topology.machines();
        let names: BTreeSet<_> = machines.iter().map(Machine::computer_name).collect();
        let vm_ids: BTreeSet<_> = machines.iter().map(|machine| &machine.vm_id).collect();
        let addresses: Vec<_> = machines.iter().flat_map(|machine| &machine.ip_configurations).map(|found| found.address).collect();
        prop_assert_eq!((names.len(), vm_ids.len()), (machines.len(), machines.len()));
        prop_assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), addresses.len());
        prop_assert_eq!(topology.documents(&machines), topology.documents(&topology.machines()), "the same every time");
    }
}
