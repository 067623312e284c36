//! Addresses that the user pins. Pure. Upstream: `pkg/provider/azure_loadbalancer.go`, `pkg/util/iputil`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use super::{
    IpFamily, PerFamily,
    reader::{SpecReader, refusal},
};
use crate::providers::azure::planner::load_balancer::annotations::{INTERNAL, IPV4, IPV6, excerpt};

/// Address of Azure's platform services, the same in every virtual network.
const PLATFORM: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
/// Ranges of this network, protocol assignments, benchmarks and reserved addresses. Documentation ranges are not included.
const RESERVED: [Ipv4Net; 4] = [
    Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 8),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 0, 0), 24),
    Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 15),
    Ipv4Net::new_assert(Ipv4Addr::new(240, 0, 0, 0), 4),
];
/// Global unicast addresses. Others are link-local, site-local, translated, or unassigned.
const GLOBAL: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Private addresses of IPv6 (RFC 4193).
const UNIQUE_LOCAL: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7);
/// Shared addresses of carriers (RFC 6598), which are not public.
const CARRIER_GRADE_NAT: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10);
const SPEC_ADDRESS: &str = "spec.loadBalancerIP";

/// Requirements that a pinned address must meet.
pub(super) struct PinRequirement {
    /// Whether a private address is accepted: the Service is internal, or the cloud is an Azure Stack, whose operator chooses public
    /// addresses.
    pub(super) accepts_private: bool,
    /// Families whose frontend the address determines. An invalid address without effect is a warning instead of a refusal.
    pub(super) effective: PerFamily<bool>,
}

fn report(reading: &mut SpecReader<'_>, field: &str, message: &str, decides: bool) {
    if decides { reading.refuse(refusal(field, message)) } else { reading.without_effect(field, message) }
}

/// Returns the pinned addresses: those of annotations, else `spec.loadBalancerIP` for its family.
pub(super) fn pinned(
    reading: &mut SpecReader<'_>,
    from_spec: Option<&str>,
    wanted: &PinRequirement,
) -> PerFamily<Option<IpAddr>> {
    let from_spec = from_spec.map(str::trim).filter(|text| !text.is_empty());
    let annotated = (reading.get_if(wanted.effective.v4, &IPV4), reading.get_if(wanted.effective.v6, &IPV6));
    let parsed: Option<IpAddr> = from_spec.and_then(parse);
    if let (Some(text), None, (None, None)) = (from_spec, parsed, annotated) {
        let message = format!("invalid LoadBalancer IP \"{}\"; expected an IP address", excerpt(text));
        report(reading, SPEC_ADDRESS, &message, wanted.effective.v4 || wanted.effective.v6);
    }
    let mut pin = |family: IpFamily, key: &str, text: Option<&str>| -> Option<IpAddr> {
        let of_spec = from_spec.filter(|_| parsed.is_some_and(|address| IpFamily::of(address) == family));
        let (field, text) = text.map(|text| (key, text)).or(of_spec.map(|text| (SPEC_ADDRESS, text)))?;
        let checked = check(text, family, wanted.accepts_private);
        checked.map_err(|message| report(reading, field, &message, *wanted.effective.get(family))).ok()
    };
    PerFamily { v4: pin(IpFamily::V4, IPV4.key, annotated.0), v6: pin(IpFamily::V6, IPV6.key, annotated.1) }
}

pub(super) fn parse(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(|address: IpAddr| address.to_canonical())
}

fn check(text: &str, family: IpFamily, accepts_private: bool) -> Result<IpAddr, String> {
    let address = parse(text).filter(|address| IpFamily::of(*address) == family);
    let Some(address) = address else {
        return Err(format!("invalid LoadBalancer IP \"{}\"; expected an {family} address", excerpt(text)));
    };
    if accepts_private || is_public(address) {
        return Ok(address);
    }
    Err(format!(
        "cannot use non-public LoadBalancer IP \"{}\"; an external Service needs the address of a public IP, an internal one \
         the annotation `{}` with the value `true`",
        excerpt(text),
        INTERNAL.key
    ))
}

/// Returns `true` if an address can be that of a public IP, except on Azure Stack.
pub fn is_public(address: IpAddr) -> bool {
    let is_private = match address {
        IpAddr::V4(v4) => v4.is_private() || CARRIER_GRADE_NAT.contains(&v4),
        IpAddr::V6(v6) => UNIQUE_LOCAL.contains(&v6),
    };
    can_be_served(address) && !is_private
}

/// Returns `true` if a Service can have the address: it is not loopback, link-local, multicast, reserved, or of Azure's platform.
pub(super) fn can_be_served(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let is_special = v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || v4 == PLATFORM;
            !is_special && !RESERVED.iter().any(|range| range.contains(&v4))
        }
        IpAddr::V6(v6) => GLOBAL.contains(&v6) || UNIQUE_LOCAL.contains(&v6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_azure_never_gives_out_are_not_public() {
        let v4 = "0.0.0.0 255.255.255.255 127.0.0.1 224.0.0.1 169.254.1.1 10.0.0.1 172.16.0.1 192.168.0.1 100.64.0.1 \
                  100.127.255.255 168.63.129.16 0.1.2.3 192.0.0.8 198.19.0.1 240.0.0.1";
        let v6 = ":: ::1 ff02::1 fe80::1 fd00::1 ::ffff:10.0.0.1 fec0::1 64:ff9b::a00:4";
        for text in v4.split(' ').chain(v6.split(' ')) {
            assert!(!is_public(parse(text).unwrap()), "{text}");
        }
        for text in ["20.0.0.1", "172.32.0.1", "100.128.0.1", "168.63.129.17", "2603:1030:c02::1", "::ffff:20.0.0.1"] {
            assert!(is_public(parse(text).unwrap()), "{text}");
        }
    }
}
