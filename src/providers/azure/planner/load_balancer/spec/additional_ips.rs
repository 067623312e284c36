//! Additional addresses (`azure-additional-public-ips`) that a Service may have. Pure.
//!
//! In: addresses, and those that the cluster uses. Out: the conflict that prevents an address. The addresses become part of the Service's
//! status, which Nodes trust (the class of CVE-2020-8554), and of security rules. So addresses that the cluster or its network uses are
//! skipped separately, and the Service gets the others. Upstream copies all of them.

use std::{collections::HashMap, net::IpAddr};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;

use super::{
    ServiceRefusal, ServiceSpec,
    addresses::{self, can_be_served},
    ranges,
    reader::SpecReader,
    reason,
};
use crate::providers::azure::planner::load_balancer::annotations::{ADDITIONAL_PUBLIC_IPS, excerpts};

/// Additional addresses that the operator allows (`allowedAdditionalPublicIPs`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdditionalIpPolicy {
    Any,
    /// Addresses in these ranges; without ranges, none.
    Within(Vec<IpNet>),
}

impl AdditionalIpPolicy {
    /// Parses `any`, `none`, or ranges between commas; an empty text means `any`. The error is the part that is invalid.
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

/// Holder of private addresses while ranges are missing.
const UNKNOWN: &str = "subnets that are not known";

/// Addresses that the cluster and its network use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterAddresses {
    /// Single addresses, each with the object that has it.
    pub owners: HashMap<IpAddr, String>,
    /// Addresses in the status of Services that this process has not synchronized yet, each with its Service, which may only claim it.
    pub unsettled: HashMap<IpAddr, String>,
    /// Ranges, each with its name.
    pub ranges: Vec<(IpNet, String)>,
    /// Reason for missing ranges: while there is one, every private address may be in use.
    pub unknown: Option<String>,
}

impl ClusterAddresses {
    /// Returns the holder of the address; `None`: a Service may have the address.
    pub fn holder(&self, address: IpAddr) -> Option<String> {
        let in_range = || self.ranges.iter().find(|(range, _)| range.contains(&address));
        let of_range = || in_range().map(|(range, name)| format!("{name} ({range})"));
        let unknown = || (self.unknown.is_some() && !addresses::is_public(address)).then(|| UNKNOWN.to_owned());
        self.owners.get(&address).cloned().or_else(of_range).or_else(unknown)
    }

    /// Returns the holder that prevents the Service from having the address.
    ///
    /// A Service keeps an address of its status while ranges are missing, and while another Service may only claim the address.
    pub fn obstacle(&self, spec: &ServiceSpec, address: IpAddr) -> Option<String> {
        let holder = self.holder(address).filter(|holder| holder != UNKNOWN);
        let doubtful = || self.holder(address).or_else(|| self.unsettled.get(&address).cloned());
        holder.or_else(|| doubtful().filter(|_| !spec.status_addresses.contains(&address)))
    }
}

/// Returns the addresses of the annotation. Addresses that no Service can have, or that the operator does not allow, are omitted with a
/// warning.
pub(super) fn additional(reading: &mut SpecReader<'_>, allowed: &AdditionalIpPolicy) -> Vec<IpAddr> {
    let addresses = reading.get(&ADDITIONAL_PUBLIC_IPS).unwrap_or_default();
    let (usable, special): (Vec<IpAddr>, Vec<IpAddr>) = addresses.into_iter().partition(|address| can_be_served(*address));
    let (granted, forbidden): (Vec<_>, Vec<_>) = usable.into_iter().partition(|address| allowed.allows(*address));
    for (addresses, expected) in [
        (&special, "addresses that are not loopback, link-local, multicast, reserved, or Azure's platform's"),
        (&forbidden, "addresses that allowedAdditionalPublicIPs of the provider's configuration allows"),
    ] {
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        if !texts.is_empty() {
            let found = excerpts(texts.iter().map(String::as_str));
            let message = format!("left out: expected {expected}, found {found}");
            reading.warn(reason::IGNORED_CONFIGURATION, ADDITIONAL_PUBLIC_IPS.key, message);
        }
    }
    granted
}

/// Returns `true` if an additional address may be private, so that the ranges of the cluster's network must be known.
pub fn has_private_additional_ips(spec: &ServiceSpec) -> bool {
    spec.additional_ips.iter().any(|address| !addresses::is_public(*address))
}

/// Returns the addresses that a Service names in `azure-additional-public-ips`, accepted or not: its status proves no frontend at them.
pub fn annotated_additional_ips(service: &Service) -> impl Iterator<Item = IpAddr> {
    /// Largest number of read addresses. More than is accepted, so that a long list cannot hide an address.
    const MOST: usize = 1_000;
    let text = service.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ADDITIONAL_PUBLIC_IPS.key));
    text.into_iter().flat_map(|text| text.split(',').take(MOST)).filter_map(|item| addresses::parse(item.trim()))
}

/// Returns a refusal with the additional addresses that the Service does not get, because the cluster or its network uses them.
pub fn additional_ip_conflict(spec: &ServiceSpec, cluster: &ClusterAddresses) -> Option<ServiceRefusal> {
    let taken =
        spec.additional_ips.iter().filter_map(|address| Some(format!("{address} of {}", cluster.obstacle(spec, *address)?)));
    let taken: Vec<String> = taken.collect();
    let found = excerpts(taken.iter().map(String::as_str));
    let is_unknown = taken.iter().any(|address| address.ends_with(UNKNOWN));
    let reason = cluster.unknown.as_ref().filter(|_| is_unknown).map(|reason| format!("; {reason}")).unwrap_or_default();
    let message = format!("expected addresses that nothing else in the cluster uses, found {found}{reason}");
    (!taken.is_empty()).then(|| ServiceRefusal { field: ADDITIONAL_PUBLIC_IPS.key.to_owned(), message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::planner::load_balancer::{
        settings::LoadBalancerSettings,
        spec::{
            parse_service,
            tests::{accepted, service, settings},
            warnings,
        },
    };

    const ADDITIONAL: &str = "azure-additional-public-ips";

    /// Returns the additional addresses of a Service, and its warnings.
    fn read(text: &str, allowed: &str) -> (Vec<String>, String) {
        let settings =
            LoadBalancerSettings { additional_public_ips: AdditionalIpPolicy::parse(allowed).unwrap(), ..settings() };
        let service = service(&[(ADDITIONAL, text)], serde_json::json!({}));
        let spec = parse_service(&service, &settings).unwrap();
        let all = warnings(&service, &settings).into_iter();
        let all: Vec<String> = all.map(|warning| format!("{} {}", warning.reason, warning.message)).collect();
        (spec.additional_ips.iter().map(ToString::to_string).collect(), all.join("; "))
    }

    #[test]
    fn addresses_that_no_service_can_have_are_left_out_one_by_one() {
        for served in ["20.0.0.9", "2603:1030:c02::1", "10.20.0.1", "192.168.0.1", "100.64.0.1", "fd00::9", "203.0.113.1"] {
            assert_eq!(read(served, "any"), (vec![served.to_owned()], String::new()));
        }
        let special_v4 = "127.0.0.1 169.254.169.254 168.63.129.16 224.0.0.1 0.0.0.0 255.255.255.255 240.0.0.1".split(' ');
        for special in special_v4.chain(["::", "::1", "fe80::1", "ff02::1", "::ffff:127.0.0.1"]) {
            let (served, warnings) = read(&format!("{special},10.20.0.1"), "any");
            assert_eq!(served, ["10.20.0.1"], "{special}");
            let reason = "IgnoredConfiguration left out: expected addresses that are not loopback";
            assert!(warnings.starts_with(reason), "{warnings}");
        }
    }

    #[test]
    fn the_configuration_says_which_additional_addresses_are_allowed() {
        for (text, allowed, served) in [
            ("20.0.0.9", "20.0.0.0/24, 2603::/16", &["20.0.0.9"][..]),
            ("8.8.8.8,20.0.0.9", "20.0.0.0/24", &["20.0.0.9"]),
            ("20.0.0.9", "none", &[]),
            ("10.0.0.4", "10.0.0.0/8", &["10.0.0.4"]),
        ] {
            let (found, warnings) = read(text, allowed);
            assert_eq!(found, served, "{text}, {allowed}");
            let is_reported = warnings.contains("allowedAdditionalPublicIPs");
            assert_eq!(is_reported, served.len() < text.split(',').count(), "{warnings}");
        }
        assert_eq!(AdditionalIpPolicy::parse("20.0.0.0/24,x"), Err("x"));
    }

    #[test]
    fn addresses_of_the_cluster_belong_to_it() {
        let range = |text: &str, name: &str| (text.parse().unwrap(), name.to_owned());
        let cluster = ClusterAddresses {
            owners: [("20.0.0.9".parse().unwrap(), "Node n1".to_owned())].into(),
            ranges: vec![
                range("10.244.0.0/16", "--cluster-cidr"),
                range("10.0.0.0/16", "--service-cluster-ip-range"),
                range("10.224.0.0/16", "subnet nodes"),
                range("fd00::/64", "subnet nodes"),
            ],
            unknown: None,
            ..ClusterAddresses::default()
        };
        let blind = ClusterAddresses { unknown: Some("why".to_owned()), ..cluster.clone() };
        for (address, holder, holder_if_unknown) in [
            ("20.0.0.9", Some("Node n1"), Some("Node n1")),
            ("20.0.0.10", None, None),
            ("10.244.3.4", Some("--cluster-cidr (10.244.0.0/16)"), Some("--cluster-cidr (10.244.0.0/16)")),
            ("10.0.0.1", Some("--service-cluster-ip-range (10.0.0.0/16)"), Some("--service-cluster-ip-range (10.0.0.0/16)")),
            ("10.224.0.7", Some("subnet nodes (10.224.0.0/16)"), Some("subnet nodes (10.224.0.0/16)")),
            ("fd00::7", Some("subnet nodes (fd00::/64)"), Some("subnet nodes (fd00::/64)")),
            ("10.20.0.1", None, Some(UNKNOWN)),
            ("192.168.0.1", None, Some(UNKNOWN)),
            ("2603::1", None, None),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(cluster.holder(address).as_deref(), holder, "{address}");
            assert_eq!(blind.holder(address).as_deref(), holder_if_unknown, "{address}");
        }
        let spec = accepted(&[(ADDITIONAL, "20.0.0.9,20.0.0.10")], serde_json::json!({}));
        assert_eq!(additional_ip_conflict(&spec, &ClusterAddresses::default()), None);
        let refusal = additional_ip_conflict(&spec, &cluster).unwrap();
        assert!(refusal.field.ends_with(ADDITIONAL) && refusal.message.contains("20.0.0.9 of Node n1"), "{refusal}");
    }
}
