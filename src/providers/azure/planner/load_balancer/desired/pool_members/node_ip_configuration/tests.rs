use serde_json::{Value, json};

use super::*;
use crate::providers::azure::instances::fixtures::scale_set_instance;

fn pool_id(balancer: &str, pool: &str) -> ResourceId {
    let group = ResourceId::group_of("s", "rg");
    group.resource("Microsoft.Network/loadBalancers/backendAddressPools", &[balancer, pool])
}

fn joins(pools: &[&ResourceId]) -> PoolMembershipPatch {
    PoolMembershipPatch {
        join: pools.iter().map(|pool| (*pool).clone()).collect(),
        is_standard: true,
        ..PoolMembershipPatch::default()
    }
}

fn configurations(listed: &[&ResourceId]) -> Value {
    let listed: Vec<_> = listed
        .iter()
        .map(|id| json!({"id": id.as_str().to_uppercase().replace("/SUBSCRIPTIONS", "/subscriptions")}))
        .collect();
    json!([
        {"name": "second", "properties": {"privateIPAddressVersion": "IPv6", "unknown": 1}},
        {"name": "first", "properties": {"primary": true, "loadBalancerBackendAddressPools": listed}},
    ])
}

fn interfaces(listed: &[&ResourceId]) -> Value {
    json!([{"name": "other", "properties": {}}, {"name": "n", "properties": {"primary": true, "ipConfigurations": configurations(listed)}}])
}

fn set(listed: &[&ResourceId], mode: &str, state: &str, image: &str) -> VirtualMachineScaleSet {
    serde_json::from_value(
        json!({"id": "/x", "name": "x", "location": "eastus", "etag": "e", "tags": {"a": "b"}, "properties": {
        "orchestrationMode": mode, "provisioningState": state, "upgradePolicy": {}, "virtualMachineProfile": {
            "storageProfile": {"imageReference": {"id": image}},
            "networkProfile": {"networkInterfaceConfigurations": interfaces(listed)}}}}),
    )
    .unwrap()
}

fn lists(body: &impl serde::Serialize, pointer: &str) -> Vec<Vec<String>> {
    let body = serde_json::to_value(body).unwrap();
    let configurations = body.pointer(pointer).unwrap().as_array().unwrap();
    let ids = |configuration: &Value| {
        let pools = configuration["properties"]["loadBalancerBackendAddressPools"].as_array().cloned().unwrap_or_default();
        pools.iter().map(|pool| pool["id"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
    };
    configurations.iter().map(ids).collect()
}

const MODEL: &str =
    "/properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations/1/properties/ipConfigurations";

#[test]
fn the_model_lists_a_pool_in_the_configuration_of_its_family_and_the_body_has_only_what_is_needed() {
    let (four, six) = (pool_id("kubernetes", "kubernetes"), pool_id("kubernetes", "kubernetes-IPv6"));
    let body = model(&set(&[], "Uniform", "Succeeded", ""), &joins(&[&four, &six])).unwrap();
    assert_eq!(lists(&body, MODEL), [["kubernetes-IPv6"], ["kubernetes"]]);
    let value = serde_json::to_value(&body).unwrap();
    assert_eq!(value.as_object().unwrap().keys().collect::<Vec<_>>(), ["etag", "location", "properties"]);
    assert_eq!(value.pointer(MODEL).unwrap()[0]["properties"]["unknown"], 1);

    // A pool that cannot be joined does not prevent the join of others.
    let mut four_only = set(&[], "Uniform", "Succeeded", "");
    let network =
        four_only.properties.as_mut().unwrap().virtual_machine_profile.as_mut().unwrap().network_profile.as_mut().unwrap();
    let primary = network.network_interface_configurations.as_mut().unwrap()[1].properties.as_mut().unwrap();
    primary.ip_configurations.as_mut().unwrap().remove(0);
    assert_eq!(lists(&model(&four_only, &joins(&[&six, &four])).unwrap(), MODEL), [["kubernetes"]]);

    let flex = serde_json::to_value(model(&set(&[], "Flexible", "Succeeded", ""), &joins(&[&four])).unwrap()).unwrap();
    assert_eq!(flex["properties"]["virtualMachineProfile"]["networkProfile"]["networkApiVersion"], "2020-11-01");
    assert_eq!(flex["etag"], Value::Null);
}

#[test]
fn a_model_is_left_alone_with_a_reason() {
    let (own, internal, other) = (pool_id("lb", "k"), pool_id("lb-Internal", "k"), pool_id("lb2", "k"));
    let six = pool_id("lb", "k-IPv6");
    let windows = "/subscriptions/s/providers/x/images/windows-2019-containerd/versions/17763.1.2";
    let answer = |set: VirtualMachineScaleSet, pool: &ResourceId| {
        model(&set, &joins(&[pool])).map(|body| lists(&body, MODEL)[1].len())
    };
    assert_eq!(answer(set(&[&own], "Uniform", "Succeeded", ""), &own), Err(MembershipSkipReason::Unchanged));
    assert_eq!(answer(set(&[&internal], "Uniform", "Succeeded", ""), &own), Ok(2));
    let in_other = set(&[&other], "Uniform", "Succeeded", "");
    assert_eq!(answer(in_other, &own), Err(MembershipSkipReason::OtherLoadBalancer("lb2".into())));
    assert_eq!(answer(set(&[], "Uniform", "deleting", ""), &own), Err(MembershipSkipReason::State("deleting".into())));
    assert_eq!(answer(set(&[], "Uniform", "Succeeded", windows), &six), Err(MembershipSkipReason::Unchanged));
    assert_eq!(answer(VirtualMachineScaleSet::default(), &six), Err(MembershipSkipReason::NoConfiguration(IpFamily::V6)));
    let basic = PoolMembershipPatch { is_standard: false, ..joins(&[&own]) };
    assert!(model(&set(&[&other], "Uniform", "Succeeded", ""), &basic).is_ok());
}

#[test]
fn leaving_takes_out_that_pool_alone_and_the_second_time_changes_nothing() {
    let (own, internal) = (pool_id("lb", "k"), pool_id("lb-internal", "k2"));
    let wish = PoolMembershipPatch { leave: vec![own.clone()], is_standard: true, ..PoolMembershipPatch::default() };
    let nic: NetworkInterface = serde_json::from_value(json!({"id": "/n", "etag": "e", "properties": {
        "provisioningState": "Succeeded", "ipConfigurations": configurations(&[&own, &internal]), "dnsSettings": {"a": 1}}}))
    .unwrap();
    let after = interface(&nic, &wish).unwrap();
    assert_eq!(lists(&after, "/properties/ipConfigurations"), [vec![], vec!["K2".to_owned()]]);
    assert_eq!(interface(&after, &wish), Err(MembershipSkipReason::Unchanged));
    let back = interface(&after, &joins(&[&own])).unwrap();
    assert_eq!(interface(&back, &joins(&[&own])), Err(MembershipSkipReason::Unchanged));
    assert_eq!((back.etag, back.properties.unwrap().extra), (nic.etag, nic.properties.unwrap().extra));
}

#[test]
fn an_instance_is_written_with_its_size_and_interfaces() {
    let own = pool_id("lb", "k");
    let vm: VirtualMachineScaleSetVm = serde_json::from_value(json!({"id": "/x", "location": "eastus", "etag": "e", "properties": {
        "vmId": "1", "hardwareProfile": {"vmSize": "D2"}, "networkProfileConfiguration": {"networkInterfaceConfigurations": interfaces(&[])}}}))
    .unwrap();
    let body = serde_json::to_value(instance(&vm, &joins(&[&own])).unwrap()).unwrap();
    let fields: Vec<_> = body["properties"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["hardwareProfile", "networkProfileConfiguration"]);
    assert_eq!((&body["etag"], &body["properties"]["hardwareProfile"]["vmSize"]), (&json!("e"), &json!("D2")));
}

/// The process that wrote the instance was killed. Only a pool without the instance shows that the write is not in effect: the failed state
/// can have other causes.
#[test]
fn an_instance_that_has_failed_is_written_again_only_where_a_pool_lacks_it() {
    let (own, other) = (pool_id("lb", "k"), pool_id("lb2", "k"));
    let vm = |state: &str| -> VirtualMachineScaleSetVm {
        let profile = json!({"networkInterfaceConfigurations": interfaces(&[&own])});
        let properties = json!({"provisioningState": state, "networkProfileConfiguration": profile});
        serde_json::from_value(json!({"id": "/x", "properties": properties})).unwrap()
    };
    let left = |state: &str, patch: &PoolMembershipPatch| instance(&vm(state), patch).err();
    assert_eq!(left("failed", &joins(&[&own])), None);
    for state in ["Succeeded", "Updating"] {
        assert_eq!(left(state, &joins(&[&own])), Some(MembershipSkipReason::Unchanged), "{state}");
    }
    assert_eq!(left("Failed", &joins(&[])), Some(MembershipSkipReason::Unchanged));
    assert!(matches!(left("Failed", &joins(&[&other])), Some(MembershipSkipReason::OtherLoadBalancer(_))));
}

#[test]
fn machines_that_are_off_do_not_join_and_unknown_ones_do() {
    let machine = |power: Option<&str>, provisioning: &str| Machine {
        provisioning_state: provisioning.to_owned(),
        power_state: power.map(str::to_owned),
        ..scale_set_instance("set", 0)
    };
    for (power, provisioning, expected) in [
        (Some("running"), "Succeeded", true),
        (None, "Succeeded", true),
        (Some("Deallocated"), "Succeeded", false),
        (Some("stopping"), "Succeeded", false),
        (Some("running"), "deleting", false),
    ] {
        assert_eq!(is_active(&machine(power, provisioning)), expected, "{power:?} {provisioning}");
    }
}

#[test]
fn excluded_nodes_leave_unless_the_pool_would_be_empty() {
    let entry =
        |name: &str| format!("/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/networkInterfaces/{name}");
    let pool = |names: &[&str]| -> BackendAddressPool {
        let entries: Vec<_> = names.iter().map(|name| json!({"id": entry(name)})).collect();
        serde_json::from_value(json!({"properties": {"backendIPConfigurations": entries}})).unwrap()
    };
    for (names, expected) in [(&["in", "out"][..], &["out"][..]), (&["in"], &[]), (&["out"], &[]), (&[], &[])] {
        let left = entries_to_remove(&pool(names), |id| id.name() == "out");
        assert_eq!(left.iter().map(ResourceId::name).collect::<Vec<_>>(), expected, "{names:?}");
    }
}
