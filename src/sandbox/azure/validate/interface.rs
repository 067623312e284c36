//! Private addresses of interfaces and frontends: in the subnet, not reserved, not taken.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use serde_json::Value;

use super::{Candidate, sku, text};
use crate::sandbox::azure::{complete, refusal::Refusal, shape};

pub(super) fn check(candidate: Candidate<'_>) -> Result<(), Refusal> {
    check_addresses(candidate, "ipConfigurations")?;
    sku::check_interfaces(candidate)
}

/// Checks the static private addresses in a list of a document, and that none is there twice.
pub(super) fn check_addresses(candidate: Candidate<'_>, list: &str) -> Result<(), Refusal> {
    let mut own = BTreeMap::new();
    for part in shape::parts(candidate.body, list) {
        let properties = &part["properties"];
        let Some(subnet) = properties["subnet"]["id"].as_str() else { continue };
        let Some(address) = properties["privateIPAddress"].as_str() else { continue };
        let id = text(part, "id");
        let address: IpAddr = address
            .parse()
            .map_err(|_| Refusal::invalid("InvalidIPAddressFormat", format!("`{address}` of {id} is no IP address.")))?;
        if let Some(other) = own.insert((subnet.to_ascii_lowercase(), address), id) {
            return Err(allocated(id, address, other));
        }
        if text(properties, "privateIPAllocationMethod").eq_ignore_ascii_case("Static")
            && !is_unchanged(candidate, list, part)
        {
            check_static(candidate, (id, subnet), address)?;
        }
    }
    Ok(())
}

/// Returns `true` if the part had this address in this subnet before: it was checked then.
fn is_unchanged(candidate: Candidate<'_>, list: &str, part: &Value) -> bool {
    let previous = candidate.old.and_then(|old| shape::part(old, list, text(part, "name")));
    previous.is_some_and(|previous| {
        let same = |field: &str| previous["properties"][field] == part["properties"][field];
        same("privateIPAddress") && same("subnet")
    })
}

fn check_static(candidate: Candidate<'_>, (id, subnet): (&str, &str), address: IpAddr) -> Result<(), Refusal> {
    let nets = complete::prefixes_of(candidate.store, subnet);
    let Some(net) = nets.iter().find(|net| net.contains(&address)) else {
        let ranges: Vec<String> = nets.iter().map(ToString::to_string).collect();
        let message = format!(
            "Private static IP address {address} of {id} does not belong to the range of subnet prefix {}.",
            ranges.join(",")
        );
        return Err(Refusal::invalid("PrivateIPAddressNotInSubnet", message));
    };
    if is_reserved(net, address) {
        let message = format!("Private static IP address {address} falls within reserved IP range of subnet prefix {net}.");
        return Err(Refusal::invalid("PrivateIPAddressInReservedRange", message));
    }
    if complete::taken_in(candidate.store, subnet, &candidate.id.key()).contains(&address) {
        return Err(allocated(id, address, subnet));
    }
    Ok(())
}

/// Returns `true` for the first four addresses and the last one of a subnet, which are Azure's.
fn is_reserved(net: &IpNet, address: IpAddr) -> bool {
    let first = match (net.network(), address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => u32::from(address) - u32::from(network) < 4,
        (IpAddr::V6(network), IpAddr::V6(address)) => u128::from(address) - u128::from(network) < 4,
        _ => false,
    };
    first || net.broadcast() == address
}

fn allocated(id: &str, address: IpAddr, other: &str) -> Refusal {
    let message =
        format!("IP configuration {id} is using the private IP address {address} which is already allocated in {other}.");
    Refusal::invalid("PrivateIPAddressIsAllocated", message)
}
