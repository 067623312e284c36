//! Next hops of routes: pure.
//!
//! In: a route to create and the machine of its Node. Out: the desired route of the table. Upstream:
//! `pkg/provider/azure_routes.go`, `CreateRoute` (`findFirstIPByFamily`).

use std::net::IpAddr;

use ipnet::IpNet;

use super::{names::route_name, plan::DesiredRoute};
use crate::{
    cloud_provider::{AddressType, Route},
    providers::azure::model::Machine,
};

/// Returns the desired route: its next hop is the first private address of the CIDR's family at the machine's primary
/// interface.
pub fn desired_route(route: &Route, machine: &Machine) -> Result<DesiredRoute, String> {
    let cidr = route.destination_cidr.trim();
    let net: IpNet = cidr.parse().map_err(|_| format!("{cidr:?} of node {:?} is no CIDR", route.target_node))?;
    let family = if is_ipv6(&net) { "IPv6" } else { "IPv4" };
    let missing = |what: &str| format!("{} has no private {family} address for {cidr}: {what}", machine.id);
    let next_hop = address_of(machine, is_ipv6(&net)).map_err(missing)?;
    Ok(DesiredRoute { name: route_name(&route.target_node, cidr), prefix: cidr.to_owned(), next_hop })
}

/// Returns `true` if `machine` may have been read before its address changed.
///
/// In that case the Node has addresses of the CIDR's family, and the machine's address is none of them.
pub fn is_outdated(route: &Route, machine: &Machine) -> bool {
    let Ok(net) = route.destination_cidr.trim().parse::<IpNet>() else { return false };
    let internal = route.target_node_addresses.iter().filter(|address| address.type_ == AddressType::InternalIP);
    let known = internal.filter_map(|address| address.address.parse::<IpAddr>().ok());
    let mut known = known.filter(|address| address.is_ipv6() == is_ipv6(&net)).peekable();
    known.peek().is_some() && address_of(machine, is_ipv6(&net)).is_ok_and(|hop| known.all(|address| address != hop))
}

fn address_of(machine: &Machine, ipv6: bool) -> Result<IpAddr, &'static str> {
    let interface = machine.primary_interface()?;
    let addresses = interface.ip_configurations.iter().filter_map(|found| found.private_address.as_deref()?.parse().ok());
    let mut fitting = addresses.filter(|address: &IpAddr| address.is_ipv6() == ipv6);
    fitting.next().ok_or("its primary network interface has none")
}

fn is_ipv6(net: &IpNet) -> bool {
    matches!(net, IpNet::V6(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cloud_provider::NodeAddress,
        providers::azure::{instances::fixtures::scale_set_instance, model::MachineIpConfiguration},
    };

    fn machine() -> Machine {
        let mut machine = scale_set_instance("set", 0);
        let at = |address: &str| MachineIpConfiguration { private_address: Some(address.into()), ..Default::default() };
        machine.interfaces[0].ip_configurations = ["10.0.0.4", "fd00::4", "10.0.0.5"].map(at).into();
        machine
    }

    fn route(cidr: &str, addresses: &[&str]) -> Route {
        let internal = |address: &&str| NodeAddress { type_: AddressType::InternalIP, address: (*address).to_owned() };
        Route {
            target_node: "n".into(),
            destination_cidr: cidr.into(),
            target_node_addresses: addresses.iter().map(internal).collect(),
            ..Route::default()
        }
    }

    #[test]
    fn the_next_hop_is_of_the_cidrs_family() {
        for (cidr, hop) in [("10.1.0.0/24", Some("10.0.0.4")), (" fd01::/64 ", Some("fd00::4")), ("nonsense", None)] {
            let wanted = desired_route(&route(cidr, &[]), &machine());
            assert_eq!(wanted.ok().map(|wanted| wanted.next_hop.to_string()).as_deref(), hop, "{cidr}");
        }
        let mut bare = machine();
        bare.interfaces[0].ip_configurations.truncate(1);
        let error = desired_route(&route("fd01::/64", &[]), &bare).unwrap_err();
        assert!(error.contains("no private IPv6 address for fd01::/64"), "{error}");
    }

    #[test]
    fn a_machine_is_outdated_when_its_node_has_other_addresses_of_that_family() {
        for (cidr, addresses, expected) in [
            ("10.1.0.0/24", &["10.0.0.4", "fd00::9"][..], false),
            ("10.1.0.0/24", &["10.0.0.9"], true),
            ("fd01::/64", &["10.0.0.9"], false),
            ("fd01::/64", &["10.0.0.4", "fd00::9"], true),
            ("10.1.0.0/24", &[], false),
            ("nonsense", &["10.0.0.9"], false),
        ] {
            assert_eq!(is_outdated(&route(cidr, addresses), &machine()), expected, "{cidr} {addresses:?}");
        }
    }
}
