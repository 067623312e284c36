//! Patterns of actions, and what each configuration needs.

use std::collections::BTreeSet;

use super::*;
use crate::providers::azure::config::VmType;

#[test]
fn wildcards_stand_for_any_text() {
    let action = "Microsoft.Network/loadBalancers/write";
    for (pattern, fits) in [
        ("*", true),
        ("*/write", true),
        ("microsoft.network/*", true),
        ("Microsoft.Network/*/write", true),
        ("Microsoft.Network/loadBalancers/write", true),
        ("Microsoft.Network/loadBalancers/*/write", false),
        ("*/read", false),
        ("Microsoft.Compute/*", false),
        ("Microsoft.Network/loadBalancers/wri", false),
        ("", false),
    ] {
        assert_eq!(matches(pattern, action), fits, "{pattern}");
    }
}

#[test]
fn an_exception_takes_back_only_what_its_own_grant_gives() {
    let grant = |actions: &[&str], not: &[&str]| PermissionGrant {
        actions: actions.iter().map(|text| (*text).to_owned()).collect(),
        not_actions: not.iter().map(|text| (*text).to_owned()).collect(),
    };
    let read_all = grant(&["*/read"], &["Microsoft.Network/*"]);
    assert!(!is_allowed(std::slice::from_ref(&read_all), "Microsoft.Network/loadBalancers/read"));
    let network = grant(&["Microsoft.Network/*"], &[]);
    assert!(is_allowed(&[read_all, network], "Microsoft.Network/loadBalancers/read"));
    assert!(!is_allowed(&[], "Microsoft.Network/loadBalancers/read"));
}

fn config() -> AzureConfig {
    AzureConfig { subscription_id: "s".into(), resource_group: "rg".into(), ..AzureConfig::default() }
}

fn actions(config: &AzureConfig) -> Vec<&'static str> {
    required_permissions(config, false).into_iter().map(|need| need.action).collect()
}

fn has(config: &AzureConfig, end: &str) -> bool {
    actions(config).iter().any(|action| action.ends_with(end))
}

#[test]
fn scopes_follow_the_configuration() {
    let full = AzureConfig {
        route_table_name: "rt".into(),
        route_table_resource_group: "routes".into(),
        security_group_name: "nsg".into(),
        load_balancer_resource_group: "lb".into(),
        vnet_name: "v".into(),
        vnet_resource_group: "net".into(),
        network_resource_subscription_id: "n".into(),
        ..config()
    };
    let network = |group: &str| ResourceId::group_of("n", group);
    for (action, scope) in [
        ("Microsoft.Network/routeTables/write", network("routes")),
        ("Microsoft.Network/networkSecurityGroups/write", network("rg")),
        ("Microsoft.Network/loadBalancers/write", network("lb")),
        ("Microsoft.Network/publicIPAddresses/write", network("rg")),
        ("Microsoft.Network/virtualNetworks/subnets/join/action", network("net")),
        ("Microsoft.Compute/virtualMachineScaleSets/write", ResourceId::group_of("s", "rg")),
        ("Microsoft.Network/networkInterfaces/write", ResourceId::group_of("s", "rg")),
        (ZONES, ResourceId::subscription_of("n")),
    ] {
        assert!(
            required_permissions(&full, false).iter().any(|need| need.action == action && need.scope == scope),
            "{action}"
        );
    }
}

#[test]
fn unconfigured_features_need_no_permission() {
    let bare = config();
    assert!(has(&bare, "loadBalancers/write") && has(&bare, "publicIPAddresses/delete"), "without a security group, too");
    for end in ["networkSecurityGroups/read", "routeTables/read", "subnets/read", "backendAddressPools/write"] {
        assert!(!has(&bare, end), "{end}");
    }
    let gateway = AzureConfig { service_gateway_enabled: true, ..config() };
    assert!(
        required_permissions(&gateway, false).iter().all(|need| need.purpose == PermissionPurpose::Nodes),
        "no load balancer is touched"
    );
    assert!(actions(&bare).contains(&ZONES) && required_permissions(&bare, true).iter().all(|need| need.action != ZONES));
    let edge = AzureConfig { extended_location_name: "e".into(), extended_location_type: "EdgeZone".into(), ..config() };
    assert!(!actions(&edge).contains(&ZONES));
}

#[test]
fn machines_of_other_kinds_are_neither_read_nor_written() {
    // vmType, disableAvailabilitySetNodes; scale sets, instances, interfaces.
    for (vm_type, uniform_only, expected) in [
        (VmType::Vmss, false, [true, true, true]),
        (VmType::Vmss, true, [true, true, false]),
        (VmType::VmssFlex, false, [true, false, true]),
        (VmType::Standard, false, [false, false, true]),
    ] {
        let config = AzureConfig { vm_type, disable_availability_set_nodes: uniform_only, ..config() };
        for verb in ["read", "write"] {
            let kinds = [
                "Microsoft.Compute/virtualMachineScaleSets/",
                "virtualMachineScaleSets/virtualMachines/",
                "Microsoft.Network/networkInterfaces/",
            ];
            let found = kinds.map(|kind| has(&config, &format!("{kind}{verb}")));
            assert_eq!(found, expected, "{vm_type:?} {uniform_only} {verb}");
        }
    }
}

#[test]
fn pools_of_addresses_are_written_themselves() {
    let pool_type = BackendPoolType::NodeIp;
    let config = AzureConfig { load_balancer_backend_pool_configuration_type: pool_type, vnet_name: "v".into(), ..config() };
    for end in ["backendAddressPools/read", "backendAddressPools/write", "virtualNetworks/joinLoadBalancer/action"] {
        assert!(has(&config, end), "{end}");
    }
    for end in ["virtualMachineScaleSets/write", "virtualMachines/write", "networkInterfaces/write", "Pools/join/action"] {
        assert!(!has(&config, end), "{end}");
    }
    let migrating = AzureConfig { enable_migrate_to_ip_based_backend_pool_api: true, ..config.clone() };
    assert_eq!([&config, &migrating].map(|config| has(config, "migrateToIpBased/action")), [false, true]);
}

#[test]
fn the_guide_has_the_same_actions() {
    let guide = include_str!("../../../../../docs/guides/azure.md");
    let quoted = guide.split('"').filter(|text| text.starts_with("Microsoft.") && text.contains('/'));
    let documented: BTreeSet<&str> = quoted.filter(|action| !action.starts_with("Microsoft.Authorization/")).collect();
    let needed: BTreeSet<&str> = PERMISSION_TABLE.iter().map(|(.., action)| *action).collect();
    assert_eq!(documented, needed);
}
