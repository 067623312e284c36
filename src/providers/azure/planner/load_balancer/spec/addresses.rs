//! Addresses that the user pins, adds, or already sees. Pure. Upstream: `pkg/provider/azure_loadbalancer.go`, `pkg/util/iputil`.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use k8s_openapi::api::core::v1::Service;

use super::{
    IpFamily, PerFamily, ServiceRefusal, ServiceSpec, ranges,
    reader::{SpecReader, refusal},
};
use crate::providers::azure::planner::load_balancer::annotations::{
    ADDITIONAL_PUBLIC_IPS, INTERNAL, IPV4, IPV6, excerpt, excerpts,
};

/// Address of Azure's platform services, the same in every virtual network.
const PLATFORM: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
/// Shared by carriers (RFC 6598); not public.
const CARRIER_GRADE_NAT: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10);
/// What else nobody has on the Internet: this network, protocol assignments, benchmarks, reserved. Documentation's addresses are left
/// out, since nobody is harmed who claims them.
const RESERVED: [Ipv4Net; 4] = [
    Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 8),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 0, 0), 24),
    Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 15),
    Ipv4Net::new_assert(Ipv4Addr::new(240, 0, 0, 0), 4),
];
/// Global unicast addresses: whatever is outside is a link's, a site's, a translator's, or nobody's.
const GLOBAL: Ipv6Net = Ipv6Net::new_assert(std::net::Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

const SPEC_ADDRESS: &str = "spec.loadBalancerIP";

/// What a pinned address has to be.
pub(super) struct PinRequirement {
    /// Whether the Service is internal: then the address need not be public.
    pub(super) internal: bool,
    /// Whether the address decides about the front end of a family: an address that decides nothing is no reason to refuse.
    pub(super) effective: PerFamily<bool>,
}

fn report(reading: &mut SpecReader<'_>, field: &str, message: &str, decides: bool) {
    if decides { reading.refuse(refusal(field, message)) } else { reading.without_effect(field, message) }
}

/// The pinned addresses: annotations, else `spec.loadBalancerIP` for its family.
pub(super) fn pinned(
    reading: &mut SpecReader<'_>,
    from_spec: Option<&str>,
    wanted: &PinRequirement,
) -> PerFamily<Option<IpAddr>> {
    let mut pinned = PerFamily::default();
    let from_spec = from_spec.map(str::trim).filter(|text| !text.is_empty());
    let annotated = (reading.get_if(wanted.effective.v4, &IPV4), reading.get_if(wanted.effective.v6, &IPV6));
    let parsed: Option<IpAddr> = from_spec.and_then(parse);
    if let (Some(text), None, (None, None)) = (from_spec, parsed, annotated) {
        let message = format!("invalid LoadBalancer IP \"{}\"; expected an IP address", excerpt(text));
        report(reading, SPEC_ADDRESS, &message, wanted.effective.v4 || wanted.effective.v6);
    }
    for (family, key, text) in [(IpFamily::V4, IPV4.key, annotated.0), (IpFamily::V6, IPV6.key, annotated.1)] {
        let of_spec = from_spec.filter(|_| parsed.is_some_and(|address| IpFamily::of(address) == family));
        let Some((field, text)) = text.map(|text| (key, text)).or(of_spec.map(|text| (SPEC_ADDRESS, text))) else {
            continue;
        };
        match check(text, family, wanted.internal) {
            Ok(address) => *slot(&mut pinned, family) = Some(address),
            Err(message) => report(reading, field, &message, *wanted.effective.get(family)),
        }
    }
    pinned
}

fn slot<T>(values: &mut PerFamily<T>, family: IpFamily) -> &mut T {
    match family {
        IpFamily::V4 => &mut values.v4,
        IpFamily::V6 => &mut values.v6,
    }
}

fn parse(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(|address: IpAddr| address.to_canonical())
}

fn check(text: &str, family: IpFamily, internal: bool) -> Result<IpAddr, String> {
    let address = parse(text).filter(|address| IpFamily::of(*address) == family);
    let Some(address) = address else {
        return Err(format!("invalid LoadBalancer IP \"{}\"; expected an {family} address", excerpt(text)));
    };
    if internal || is_public(address) {
        return Ok(address);
    }
    Err(format!(
        "cannot use non-public LoadBalancer IP \"{}\"; an external Service needs the address of a public IP, an internal one \
         the annotation `{}` with the value `true`",
        excerpt(text),
        INTERNAL.key
    ))
}

/// Which addresses `azure-additional-public-ips` may name: a field of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdditionalIpPolicy {
    Any,
    /// Public ones in these ranges; without ranges none.
    Within(Vec<IpNet>),
}

impl AdditionalIpPolicy {
    /// Reads `any`, `none`, or ranges between commas. The error is the part that is none of them.
    pub fn parse(text: &str) -> Result<Self, &str> {
        match text.trim() {
            "" | "any" => Ok(AdditionalIpPolicy::Any),
            "none" => Ok(AdditionalIpPolicy::Within(Vec::new())),
            text => text.split(',').map(ranges::parse).collect::<Result<_, _>>().map(AdditionalIpPolicy::Within),
        }
    }

    fn allows(&self, address: IpAddr) -> bool {
        match self {
            AdditionalIpPolicy::Any => true,
            AdditionalIpPolicy::Within(ranges) => ranges.iter().any(|range| range.contains(&address)),
        }
    }
}

/// `azure-additional-public-ips`: they get into the status, where the cluster believes them, and into security rules.
pub(super) fn additional(reading: &mut SpecReader<'_>, allowed: &AdditionalIpPolicy) -> Vec<IpAddr> {
    let key = &ADDITIONAL_PUBLIC_IPS;
    let addresses = reading.get(key).unwrap_or_default();
    let count = addresses.len();
    let (public, others): (Vec<IpAddr>, Vec<IpAddr>) = addresses.into_iter().partition(|address| is_public(*address));
    let (granted, forbidden): (Vec<_>, Vec<_>) = public.into_iter().partition(|address| allowed.allows(*address));
    for (addresses, expected) in [
        (&others, "public addresses, which may come from the Internet"),
        (&forbidden, "addresses that allowedAdditionalPublicIPs of the provider's configuration allows"),
    ] {
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        if !texts.is_empty() {
            let found = excerpts(texts.iter().map(String::as_str));
            reading.refuse(refusal(key.key, format!("expected {expected}, found {found}")));
        }
    }
    if granted.len() == count { granted } else { Vec::new() }
}

/// What a Service names in `azure-additional-public-ips`, accepted or not: its status proves no front end at these addresses.
pub fn annotated_additional_ips(service: &Service) -> impl Iterator<Item = IpAddr> {
    /// More than is accepted, so that nobody hides one address behind many.
    const MOST: usize = 1_000;
    let text = service.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ADDITIONAL_PUBLIC_IPS.key));
    text.into_iter().flat_map(|text| text.split(',').take(MOST)).filter_map(|item| parse(item.trim()))
}

/// Which additional addresses the Service does not get: they are Nodes', or lead to another Service. `owner`: who has an address.
pub fn additional_ip_conflict(spec: &ServiceSpec, owner: impl Fn(IpAddr) -> Option<String>) -> Option<ServiceRefusal> {
    let taken = spec.additional_ips.iter().filter_map(|address| Some(format!("{address} of {}", owner(*address)?)));
    let taken: Vec<String> = taken.collect();
    let found = excerpts(taken.iter().map(String::as_str));
    let message = || format!("expected addresses that nothing else in the cluster uses, found {found}");
    (!taken.is_empty()).then(|| refusal(ADDITIONAL_PUBLIC_IPS.key, message()))
}

/// Whether an address can be that of a public IP.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let is_special =
                v4.is_broadcast() || v4.is_loopback() || v4.is_multicast() || v4.is_link_local() || v4.is_private();
            !is_special
                && !CARRIER_GRADE_NAT.contains(&v4)
                && v4 != PLATFORM
                && !RESERVED.iter().any(|range| range.contains(&v4))
        }
        IpAddr::V6(v6) => GLOBAL.contains(&v6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::planner::load_balancer::{
        settings::LoadBalancerSettings,
        spec::{
            parse_leniently, parse_service,
            tests::{accepted, service, settings},
        },
    };

    #[test]
    fn addresses_that_azure_never_gives_out_are_not_public() {
        for text in [
            "0.0.0.0",
            "255.255.255.255",
            "127.0.0.1",
            "224.0.0.1",
            "169.254.1.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "ff02::1",
            "fe80::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "0.1.2.3",
            "192.0.0.8",
            "198.19.0.1",
            "240.0.0.1",
            "fec0::1",
            "64:ff9b::a00:4",
        ] {
            assert!(!is_public(parse(text).unwrap()), "{text}");
        }
        for text in ["20.0.0.1", "172.32.0.1", "100.128.0.1", "168.63.129.17", "2603:1030:c02::1", "::ffff:20.0.0.1"] {
            assert!(is_public(parse(text).unwrap()), "{text}");
        }
    }

    const ADDITIONAL: &str = "azure-additional-public-ips";

    fn refused_with(text: &str, allowed: &str) -> Vec<String> {
        let settings =
            LoadBalancerSettings { additional_public_ips: AdditionalIpPolicy::parse(allowed).unwrap(), ..settings() };
        let service = service(&[(ADDITIONAL, text)], serde_json::json!({}));
        let refusals = parse_service(&service, &settings).err().unwrap_or_default();
        assert!(refusals.is_empty() || parse_leniently(&service, &settings).additional_ips.is_empty());
        refusals.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn additional_addresses_are_public() {
        assert_eq!(refused_with("20.0.0.9,2603:1030:c02::1", "any"), Vec::<String>::new());
        for text in [
            "10.0.0.4,10.0.0.1,8.8.8.8",
            "127.0.0.1",
            "169.254.169.254",
            "168.63.129.16",
            "::1",
            "::ffff:10.0.0.4",
            "224.0.0.1",
        ] {
            let found = refused_with(text, "any");
            assert!(found.len() == 1 && found[0].contains("expected public addresses"), "{text}: {found:?}");
        }
        assert!(refused_with("10.0.0.4,10.0.0.1,8.8.8.8", "any")[0].ends_with("found `10.0.0.4`, `10.0.0.1`"));
    }

    #[test]
    fn the_configuration_says_which_additional_addresses_are_allowed() {
        assert_eq!(refused_with("20.0.0.9", "20.0.0.0/24, 2603::/16"), Vec::<String>::new());
        for (text, allowed) in [("8.8.8.8", "20.0.0.0/24"), ("20.0.0.9", "none"), ("10.0.0.4", "10.0.0.0/8")] {
            assert_eq!(refused_with(text, allowed).len(), 1, "{text}, {allowed}");
        }
        assert_eq!(AdditionalIpPolicy::parse("20.0.0.0/24,x"), Err("x"));
    }

    #[test]
    fn what_somebody_else_has_cannot_be_claimed() {
        let spec = accepted(&[(ADDITIONAL, "20.0.0.9,20.0.0.10")], serde_json::json!({}));
        assert_eq!(additional_ip_conflict(&spec, |_| None), None);
        let owner = |address: IpAddr| (address.to_string() == "20.0.0.9").then(|| "Node `n1`".to_owned());
        let refusal = additional_ip_conflict(&spec, owner).unwrap();
        assert!(refusal.field.ends_with(ADDITIONAL) && refusal.message.contains("20.0.0.9 of Node `n1`"), "{refusal}");
    }
}
