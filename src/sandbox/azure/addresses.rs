//! Allocation of addresses: one counter for public ones, the lowest free one of a subnet or prefix for the others. Pure.
//!
//! Public addresses: `20.0.0.n`, `2603:1030:c02::n` and prefixes `52.0.n.0/len` of one counter n = 1, 2, …

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net};
use serde_json::Value;

/// Azure keeps the first addresses of a subnet for itself.
const FIRST_IN_SUBNET: usize = 4;
/// Maximum number of addresses of a subnet that are searched.
const MAX_SEARCHED: usize = 200_000;

/// Counter of the allocated public addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    issued: u32,
}

impl Counters {
    fn next(&mut self) -> u32 {
        self.issued += 1;
        self.issued
    }

    /// Returns a new public IPv4 address.
    pub fn ipv4(&mut self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(u32::from(Ipv4Addr::new(20, 0, 0, 0)) + self.next()))
    }

    /// Returns a new public IPv6 address.
    pub fn ipv6(&mut self) -> IpAddr {
        let last = u128::from(Ipv6Addr::new(0x2603, 0x1030, 0xc02, 0, 0, 0, 0, 0));
        IpAddr::V6(Ipv6Addr::from(last + u128::from(self.next())))
    }

    /// Returns a new prefix of `length` bits; `None` for a length that does not fit.
    pub fn prefix(&mut self, length: u8) -> Option<IpNet> {
        let start = u32::from(Ipv4Addr::new(52, 0, 0, 0)) + (self.next() << 8);
        Ipv4Net::new(Ipv4Addr::from(start), length).ok().map(IpNet::V4)
    }

    /// Counts on from the public address or prefix of a document, so that it is not allocated again.
    pub fn observe(&mut self, document: &Value) {
        let properties = &document["properties"];
        let seen = [ordinal(&properties["ipAddress"]), prefix_ordinal(&properties["ipPrefix"])];
        self.issued = seen.into_iter().flatten().fold(self.issued, u32::max);
    }
}

fn ordinal(address: &Value) -> Option<u32> {
    match address.as_str()?.parse().ok()? {
        IpAddr::V4(address) => {
            let offset = u32::from(address).checked_sub(u32::from(Ipv4Addr::new(20, 0, 0, 0)))?;
            (offset < 1 << 20).then_some(offset)
        }
        IpAddr::V6(address) => {
            let base = u128::from(Ipv6Addr::new(0x2603, 0x1030, 0xc02, 0, 0, 0, 0, 0));
            u32::try_from(u128::from(address).checked_sub(base)?).ok().filter(|offset| *offset < 1 << 20)
        }
    }
}

fn prefix_ordinal(prefix: &Value) -> Option<u32> {
    let IpNet::V4(net) = prefix.as_str()?.parse().ok()? else { return None };
    let [first, second, third, _] = net.addr().octets();
    (first == 52).then(|| u32::from(second) << 8 | u32::from(third))
}

/// Returns the lowest free address of a subnet.
pub fn lowest_in_subnet(subnet: &IpNet, used: &BTreeSet<IpAddr>) -> Option<IpAddr> {
    nth_addresses(subnet).skip(FIRST_IN_SUBNET).find(|address| !used.contains(address))
}

/// Returns the lowest free address of a public prefix.
pub fn lowest_in_prefix(prefix: &IpNet, used: &BTreeSet<IpAddr>) -> Option<IpAddr> {
    nth_addresses(prefix).find(|address| !used.contains(address))
}

fn nth_addresses(net: &IpNet) -> Box<dyn Iterator<Item = IpAddr> + '_> {
    match net {
        IpNet::V4(net) => {
            let (first, last) = (u32::from(net.network()), u32::from(net.broadcast()));
            Box::new((first..=last).take(MAX_SEARCHED).map(|bits| IpAddr::V4(Ipv4Addr::from(bits))))
        }
        IpNet::V6(net) => {
            let (first, last) = (u128::from(net.network()), u128::from(net.broadcast()));
            Box::new((first..=last).take(MAX_SEARCHED).map(|bits| IpAddr::V6(Ipv6Addr::from(bits))))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn public_addresses_share_a_counter() {
        let mut counters = Counters::default();
        assert_eq!(counters.ipv4().to_string(), "20.0.0.1");
        assert_eq!(counters.ipv6().to_string(), "2603:1030:c02::2");
        assert_eq!(counters.prefix(28).map(|net| net.to_string()).as_deref(), Some("52.0.3.0/28"));
        counters.observe(&json!({"properties": {"ipAddress": "20.0.0.9"}}));
        counters.observe(&json!({"properties": {"ipPrefix": "52.0.4.0/28"}}));
        assert_eq!(counters.ipv4().to_string(), "20.0.0.10");
    }
}
