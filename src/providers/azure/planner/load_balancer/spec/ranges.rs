//! Address ranges: parse and aggregate. Pure. Upstream: `pkg/util/iputil`.

use std::net::IpAddr;

use ipnet::IpNet;

/// A range in CIDR notation without host bits; else the text, trimmed.
pub fn parse(text: &str) -> Result<IpNet, &str> {
    let text = text.trim();
    range(text).ok_or(text)
}

fn range(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let bits: u8 = length.parse().ok().filter(|bits: &u8| bits.to_string() == length)?;
    let range = IpNet::new(address.parse::<IpAddr>().ok()?, bits).ok()?;
    (range.trunc() == range).then_some(range)
}

/// The fewest ranges with the same addresses: IPv4 before IPv6, ascending.
pub fn aggregate(ranges: &Vec<IpNet>) -> Vec<IpNet> {
    IpNet::aggregate(ranges)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn texts(ranges: &[IpNet]) -> Vec<String> {
        ranges.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_whole_ranges_are_accepted() {
        for (text, want) in [
            (" 10.0.0.0/8 ", Ok("10.0.0.0/8")),
            ("2001:DB8::/32", Ok("2001:db8::/32")),
            ("0.0.0.0/0", Ok("0.0.0.0/0")),
            ("192.0.2.7/32", Ok("192.0.2.7/32")),
            ("10.0.0.1/8", Err("10.0.0.1/8")),
            ("10.0.0.0", Err("10.0.0.0")),
            ("10.0.0.0/33", Err("10.0.0.0/33")),
            ("10.0.0.0/08", Err("10.0.0.0/08")),
            ("10.0.0.0/+8", Err("10.0.0.0/+8")),
            ("010.0.0.0/8", Err("010.0.0.0/8")),
            ("fe80::%eth0/64", Err("fe80::%eth0/64")),
            (" ", Err("")),
        ] {
            assert_eq!(parse(text).map(|range| range.to_string()), want.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn contained_ranges_go_and_siblings_merge() {
        for (given, want) in [
            (vec!["10.0.0.0/8", "192.168.1.0/24", "192.168.0.0/24"], vec!["10.0.0.0/8", "192.168.0.0/23"]),
            (vec!["0.0.0.0/1", "128.0.0.0/1"], vec!["0.0.0.0/0"]),
            (vec!["10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8"], vec!["10.0.0.0/8"]),
            (vec!["10.0.1.0/24", "10.0.2.0/24"], vec!["10.0.1.0/24", "10.0.2.0/24"]),
            (vec!["2001:db8::/33", "10.0.0.0/8", "2001:db8:8000::/33"], vec!["10.0.0.0/8", "2001:db8::/32"]),
            (vec!["255.255.255.255/32", "255.255.255.254/32"], vec!["255.255.255.254/31"]),
            (vec!["::/0", "0.0.0.0/0", "ffff::/16"], vec!["0.0.0.0/0", "::/0"]),
        ] {
            let given: Vec<IpNet> = given.iter().map(|text| parse(text).unwrap()).collect();
            assert_eq!(texts(&aggregate(&given)), want);
        }
    }

    /// Ranges that are close to each other, so that they touch and contain one another.
    fn near() -> impl Strategy<Value = IpNet> {
        let v4 = (0..64_u32, 24..=32_u8, any::<bool>()).prop_map(|(low, bits, top)| {
            let address = if top { u32::MAX - low } else { 0x0a00_0000 + low };
            IpNet::new(IpAddr::V4(Ipv4Addr::from(address)), bits).unwrap().trunc()
        });
        let v6 = (0..64_u128, 120..=128_u8)
            .prop_map(|(low, bits)| IpNet::new(IpAddr::V6(Ipv6Addr::from(u128::MAX - low)), bits).unwrap().trunc());
        prop_oneof![3 => v4, 1 => v6]
    }

    fn neighbourhood() -> impl Iterator<Item = IpAddr> {
        let v4 =
            (0..=300_u32).flat_map(|i| [0x0a00_0000 - 20 + i, u32::MAX - i]).map(|bits| IpAddr::V4(Ipv4Addr::from(bits)));
        v4.chain((0..=300_u128).map(|i| IpAddr::V6(Ipv6Addr::from(u128::MAX - i))))
    }

    proptest! {
        #[test]
        fn aggregation_keeps_addresses_and_leaves_nothing_to_merge(
            (ranges, shuffled) in prop::collection::vec(near(), 0..12).prop_flat_map(|given| (Just(given.clone()), Just(given).prop_shuffle()))
        ) {
            let aggregated = aggregate(&ranges);
            let within = |ranges: &[IpNet], address: &IpAddr| ranges.iter().any(|range| range.contains(address));
            for address in neighbourhood() {
                prop_assert_eq!(within(&ranges, &address), within(&aggregated, &address), "{}", address);
            }
            for (i, a) in aggregated.iter().enumerate() {
                for b in aggregated.iter().skip(i + 1) {
                    prop_assert!(!a.contains(b) && !b.contains(a) && !a.is_sibling(b), "{} {}", a, b);
                }
            }
            prop_assert_eq!(aggregate(&shuffled), aggregated, "the order does not matter");
        }
    }
}
