//! Where a route leads: pure.
//!
//! In: a route to create and the machine of its Node. Out: what is to stand in the table. Upstream: `pkg/provider/azure_routes.go`,
//! `CreateRoute` (`findFirstIPByFamily`).

use std::net::IpAddr;

use ipnet::IpNet;

use super::{names::route_name, plan::WantedRoute};
use crate::{
    cloud_provider::{AddressType, Route},
    providers::azure::{instances::describe, inventory::Machine},
};

/// The route for the table: its next hop is the first private address of the CIDR's family at the machine's primary interface.
pub(super) fn wanted(route: &Route, machine: &Machine) -> Result<WantedRoute, String> {
    let cidr = route.destination_cidr.trim();
    let net: IpNet = cidr.parse().map_err(|_| format!("{cidr:?} of node {:?} is no CIDR", route.target_node))?;
    let family = if is_ipv6(&net) { "IPv6" } else { "IPv4" };
    let missing = |what: &str| format!("{} has no private {family} address for {cidr}: {what}", machine.id);
    let next_hop = address_of(machine, is_ipv6(&net)).map_err(missing)?;
    Ok(WantedRoute { name: route_name(&route.target_node, cidr), prefix: cidr.to_owned(), next_hop })
}

/// Whether `machine` may have been read before its address changed: the Node has addresses of the CIDR's family, and what the
/// route would lead to is none of them.
pub(super) fn is_outdated(route: &Route, machine: &Machine) -> bool {
    let Ok(net) = route.destination_cidr.trim().parse::<IpNet>() else { return false };
    let internal = route.target_node_addresses.iter().filter(|address| address.type_ == AddressType::InternalIP);
    let known = internal.filter_map(|address| address.address.parse::<IpAddr>().ok());
    let mut known = known.filter(|address| address.is_ipv6() == is_ipv6(&net)).peekable();
    known.peek().is_some() && address_of(machine, is_ipv6(&net)).is_ok_and(|hop| known.all(|address| address != hop))
}

fn address_of(machine: &Machine, ipv6: bool) -> Result<IpAddr, &'static str> {
    let interface = describe::primary_interface(machine)?;
    let addresses = interface.ip_configurations.iter().filter_map(|found| found.private_address.as_deref()?.parse().ok());
    let mut fitting = addresses.filter(|address: &IpAddr| address.is_ipv6() == ipv6);
    fitting.next().ok_or("its primary network interface has none")
}

fn is_ipv6(net: &IpNet) -> bool {
    matches!(net, IpNet::V6(_))
}
