//! Node ports and cluster IPs of Services, which the server allocates once. Pure.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde_json::Value;

use super::validation::items;

/// `--service-node-port-range`.
const NODE_PORTS: std::ops::RangeInclusive<u64> = 30000..=32767;
/// First free address of `--service-cluster-ip-range` 10.96.0.0/12; .1 is the API server's.
const FIRST_V4: u32 = u32::from_be_bytes([10, 96, 0, 2]);
const FIRST_V6: u128 = Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 2).to_bits();

/// Allocated ports and addresses.
#[derive(Debug, Default, Clone)]
pub struct Allocations {
    ports: BTreeSet<u64>,
    addresses: BTreeSet<IpAddr>,
}

impl Allocations {
    /// Reserves the ports and addresses of `service`.
    pub fn hold(&mut self, service: &Value) {
        self.ports.extend(node_ports(service));
        self.addresses.extend(cluster_ips(service));
    }

    /// Releases the ports and addresses of `service`.
    pub fn release(&mut self, service: &Value) {
        node_ports(service).iter().for_each(|port| {
            self.ports.remove(port);
        });
        cluster_ips(service).iter().for_each(|address| {
            self.addresses.remove(address);
        });
    }

    /// Returns `true` if the port is in use.
    pub fn has_port(&self, port: u64) -> bool {
        self.ports.contains(&port)
    }

    /// Returns the lowest node port that is in use neither here nor in `reserved`.
    pub fn free_port(&self, reserved: &BTreeSet<u64>) -> Option<u64> {
        NODE_PORTS.into_iter().find(|port| !self.ports.contains(port) && !reserved.contains(port))
    }

    /// Returns the lowest free cluster IP of the family (`IPv4` or `IPv6`).
    pub fn free_address(&self, family: &str) -> IpAddr {
        let mut offset: u32 = 0;
        loop {
            let address = if family == "IPv6" {
                IpAddr::V6(Ipv6Addr::from_bits(FIRST_V6 + u128::from(offset)))
            } else {
                IpAddr::V4(Ipv4Addr::from_bits(FIRST_V4 + offset))
            };
            if !self.addresses.contains(&address) {
                return address;
            }
            offset += 1;
        }
    }
}

/// Returns every node port of `service`, that of its health check included.
pub fn node_ports(service: &Value) -> BTreeSet<u64> {
    let spec = &service["spec"];
    let ports = items(&spec["ports"]).iter().map(|port| &port["nodePort"]);
    ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_u64).filter(|port| *port != 0).collect()
}

fn cluster_ips(service: &Value) -> Vec<IpAddr> {
    items(&service["spec"]["clusterIPs"]).iter().filter_map(|address| address.as_str()?.parse().ok()).collect()
}
