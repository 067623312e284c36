#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

use serde_json::{Value, json};

use super::*;

const GROUP: &str = "/subscriptions/s/resourceGroups/RG/providers";

fn built(value: Value) -> Option<(Machine, bool)> {
    machine(serde_json::from_value(value).unwrap())
}

#[test]
fn an_instance_of_a_uniform_set() {
    let id = format!("{GROUP}/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/12");
    let nic = format!("{id}/networkInterfaces/nic");
    let (machine, view) = built(json!({
        "id": id, "name": "pool_12", "instanceId": "12", "location": "westeurope", "zones": ["2", "3"], "sku": {"name": "Standard_D4"},
        "tags": {"ignored": "yes"},
        "properties": {
            "vmId": "v", "provisioningState": "Succeeded", "hardwareProfile": {}, "osProfile": {"computerName": "pool00000c"},
            "networkProfile": {"networkInterfaces": [{"id": nic, "properties": {"primary": true}}, {"id": "not an id"}]},
            "instanceView": {"platformFaultDomain": 3, "statuses": [{"code": null}, {"code": "ProvisioningState/x"}, {"code": "PowerState/deallocated"}]},
        },
    }))
    .unwrap();
    assert!(view);
    let scale_set = ResourceId::parse(&id).unwrap().parent().unwrap();
    assert_eq!(machine.kind, MachineKind::ScaleSetInstance { scale_set, instance_id: "12".to_owned() });
    let seen = (machine.vm_size.as_str(), machine.zone.as_deref(), machine.fault_domain, machine.power_state.as_deref());
    assert_eq!(seen, ("Standard_D4", Some("2"), Some(3), Some("deallocated")));
    assert_eq!((machine.interfaces.len(), machine.interfaces[0].primary), (1, true));
}

#[test]
fn machines_outside_uniform_sets() {
    let id = format!("{GROUP}/Microsoft.Compute/virtualMachines/a");
    let reference = |kind: &str| json!({"id": format!("{GROUP}/Microsoft.Compute/{kind}/x")});
    let of = |properties: Value| built(json!({"id": id, "properties": properties})).unwrap();
    assert!(matches!(
        of(json!({"virtualMachineScaleSet": reference("virtualMachineScaleSets")})).0.kind,
        MachineKind::FlexInstance { .. }
    ));
    assert!(matches!(
        of(json!({"availabilitySet": reference("availabilitySets")})).0.kind,
        MachineKind::AvailabilitySet { .. }
    ));
    let (machine, view) = of(json!({"hardwareProfile": {"vmSize": "Standard_B1"}, "instanceView": null}));
    let seen = (machine.kind, machine.name.as_str(), machine.vm_size.as_str(), view);
    assert_eq!(seen, (MachineKind::Standalone, "a", "Standard_B1", false));
}

#[test]
fn records_that_are_poor_or_broken_do_no_harm() {
    for poor in [json!({}), json!({"id": ""}), json!({"id": "/x"}), json!({"properties": null})] {
        assert_eq!(built(poor), None);
    }
    let id = format!("{GROUP}/Microsoft.Compute/virtualMachines/a");
    for poor in [
        json!({"id": id}),
        json!({"id": id, "properties": null, "zones": null}),
        json!({"id": id, "properties": {"instanceView": {"statuses": null}}}),
    ] {
        assert!(built(poor).is_some());
    }
    let codes = ["", "PowerState", "PowerStateä/running", "powerstate/Running"];
    assert_eq!(power_state(codes.into_iter()).as_deref(), Some("Running"));
}

#[test]
fn scale_sets() {
    let id = format!("{GROUP}/Microsoft.Compute/virtualMachineScaleSets/Pool");
    let of = |value| scale_set(serde_json::from_value(value).unwrap());
    let plain = of(json!({"id": id})).unwrap();
    assert_eq!((plain.prefix.as_str(), plain.flexible, plain.capacity), ("Pool", false, None));
    let full = of(json!({"id": id, "sku": {"capacity": 7}, "properties": {"orchestrationMode": "flexible",
        "virtualMachineProfile": {"osProfile": {"computerNamePrefix": "akswin"}}}}));
    let full = full.unwrap();
    assert_eq!((full.prefix.as_str(), full.flexible, full.capacity), ("akswin", true, Some(7)));
    assert_eq!(of(json!({"id": "x"})), None);
}

#[test]
fn interfaces_in_two_families_with_public_addresses() {
    let public = format!("{GROUP}/Microsoft.Network/publicIPAddresses/p");
    let record: InterfaceRecord = serde_json::from_value(json!({
        "id": format!("{GROUP}/Microsoft.Network/networkInterfaces/n"),
        "properties": {"primary": true, "ipConfigurations": [
            {"properties": {"primary": true, "privateIPAddress": "10.0.0.4", "publicIPAddress": {"id": public.to_uppercase().replace("/SUBSCRIPTIONS/S/RESOURCEGROUPS/RG/PROVIDERS", GROUP)}}},
            {"properties": {"privateIPAddress": "fd00::4", "privateIPAddressVersion": "IPv6"}},
            {"properties": null},
        ]},
    }))
    .unwrap();
    assert_eq!(record.public_ips().count(), 1);
    let ips = serde_json::from_value(json!([{"id": public, "properties": {"ipAddress": "52.0.0.1"}}, {"id": "x"}])).unwrap();
    let interface = interface(record, &public_addresses(ips)).unwrap();
    let first = &interface.ip_configurations[0];
    assert_eq!((first.primary, first.ipv6, first.public_address.as_deref()), (true, false, Some("52.0.0.1")));
    assert_eq!((interface.ip_configurations[1].ipv6, interface.ip_configurations.len()), (true, 3));
}
