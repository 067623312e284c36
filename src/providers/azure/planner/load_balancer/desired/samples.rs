//! Services, settings and documents for the tests of planning.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{ServiceRequest, load_balancers::PublicIpAssignment};
use crate::providers::azure::{
    config::AzureConfig,
    model::{ResourceId, network::ArmLoadBalancer},
    planner::load_balancer::{
        naming,
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{
            AccessControl, IpFamily, PerFamily, PortProbe, PortSpec, PrivateLinkSpec, ProbeProtocol, ProbeSpec, Protocol,
            PublicIpSpec, ServiceIdentity, ServiceSpec,
        },
    },
};

pub(crate) fn settings() -> LoadBalancerSettings {
    let config = AzureConfig {
        subscription_id: "SUB".into(),
        resource_group: "RG".into(),
        location: "eastus".into(),
        vnet_name: "vnet".into(),
        subnet_name: "nodes".into(),
        ..AzureConfig::default()
    };
    LoadBalancerSettings::new(&config, "kubernetes")
}

pub(crate) fn network(rest: &str) -> String {
    format!("/subscriptions/SUB/resourceGroups/RG/providers/Microsoft.Network/{rest}")
}

/// Returns the private link service of a Service that has no further annotation about it.
pub(crate) fn plain_private_link(group: ResourceId) -> PrivateLinkSpec {
    PrivateLinkSpec {
        group,
        names_group: false,
        name: None,
        subnet: None,
        address_count: 1,
        addresses: Vec::new(),
        fqdns: Vec::new(),
        proxy_protocol: false,
        visibility: Vec::new(),
        auto_approval: Vec::new(),
        owners_only: Vec::new(),
    }
}

pub(crate) fn observed(load_balancers: Vec<ArmLoadBalancer>) -> ObservedNetwork {
    let subnet = |name: &str, prefix: &str| {
        let id = network(&format!("virtualNetworks/vnet/subnets/{name}"));
        let subnet = json!({"id": id, "name": name, "properties": {"addressPrefixes": [prefix, "fd00::/64"]}});
        (name.to_owned(), serde_json::from_value(subnet).unwrap())
    };
    ObservedNetwork {
        load_balancers,
        subnets: BTreeMap::from([subnet("nodes", "10.0.0.0/24"), subnet("apps", "10.0.1.0/24")]),
        zones: vec!["1".into(), "2".into(), "3".into()],
        vm_sets: vec!["pool1".into(), "pool2".into()],
        ..ObservedNetwork::default()
    }
}

pub(crate) fn tcp_probe(port: i32) -> ProbeSpec {
    ProbeSpec { protocol: ProbeProtocol::Tcp, port, path: None, interval: 5, threshold: 2 }
}

pub(crate) fn http_probe(port: i32, path: &str) -> ProbeSpec {
    ProbeSpec { protocol: ProbeProtocol::Http, path: Some(path.into()), ..tcp_probe(port) }
}

pub(crate) fn port(protocol: Protocol, port: i32, node_port: i32) -> PortSpec {
    let probe = if protocol == Protocol::Tcp { PortProbe::Own(tcp_probe(node_port)) } else { PortProbe::None };
    PortSpec { protocol, port, node_port, rule: true, probe }
}

/// Returns the external Service `default/<name>` with TCP ports 80 and 443. `web` is the Service of the reference's examples.
pub(crate) fn service(name: &str) -> ServiceSpec {
    let digits: u32 = name.bytes().fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let uid = if name == "web" {
        "6f3c1a52-8d7e-4b90-9a41-2c5d7e8f9a01".to_owned()
    } else {
        format!("{digits:08x}-8d7e-4b90-9a41-2c5d7e8f9a01")
    };
    let ports = vec![port(Protocol::Tcp, 80, 30080), port(Protocol::Tcp, 443, 30443)];
    ServiceSpec { ports, ..bare(naming::identity("default", name, &uid), settings().group) }
}

/// Returns an external IPv4 Service with default settings and without ports. Its public IPs are in `group`.
pub(super) fn bare(identity: ServiceIdentity, group: ResourceId) -> ServiceSpec {
    ServiceSpec {
        identity,
        is_others: false,
        internal: false,
        families: vec![IpFamily::V4],
        ports: Vec::new(),
        local_probe: None,
        own_pool: false,
        ha_ports: None,
        client_ip_affinity: false,
        idle_timeout: 4,
        tcp_reset: true,
        floating_ip: true,
        subnet: None,
        pinned: PerFamily::default(),
        sharing_namespaces: Vec::new(),
        public_ip: PublicIpSpec {
            group,
            name: PerFamily::default(),
            prefix: PerFamily::default(),
            tags: BTreeMap::new(),
            ip_tags: None,
            dns_label: None,
        },
        additional_ips: Vec::new(),
        access: AccessControl::default(),
        mode: None,
        configurations: None,
        labels: BTreeMap::new(),
        namespace_labels: None,
        private_link: None,
        status_addresses: Vec::new(),
    }
}

pub(crate) fn internal(name: &str) -> ServiceSpec {
    ServiceSpec { internal: true, ..service(name) }
}

pub(crate) fn pinned(address: &str, spec: ServiceSpec) -> ServiceSpec {
    let address = address.parse::<std::net::IpAddr>().unwrap();
    let pinned = match IpFamily::of(address) {
        IpFamily::V4 => PerFamily { v4: Some(address), ..spec.pinned },
        IpFamily::V6 => PerFamily { v6: Some(address), ..spec.pinned },
    };
    ServiceSpec { pinned, ..spec }
}

pub(crate) fn ensure(spec: &ServiceSpec) -> ServiceRequest {
    ServiceRequest::Ensure(Arc::new(spec.clone()))
}

pub(crate) fn remove(spec: &ServiceSpec) -> ServiceRequest {
    ServiceRequest::Delete(spec.identity.clone(), None)
}

pub(crate) fn public_ip(name: &str) -> ResourceId {
    settings().group.resource("Microsoft.Network/publicIPAddresses", &[name])
}

/// Returns the public IP that each external Service has by default.
pub(crate) fn public_ips(specs: &[&ServiceSpec]) -> PublicIpAssignment {
    let of = |spec: &ServiceSpec, family: IpFamily| {
        let name = naming::public_ip("kubernetes", &spec.identity, None, family, spec.is_dual_stack());
        ((spec.identity.clone(), family), public_ip(&name))
    };
    let external = specs.iter().filter(|spec| !spec.internal);
    external.flat_map(|spec| spec.families.iter().map(|family| of(spec, *family)).collect::<Vec<_>>()).collect()
}

pub(crate) fn load_balancer(value: Value) -> ArmLoadBalancer {
    serde_json::from_value(value).unwrap()
}
