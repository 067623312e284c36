//! Whose a public IP is, as its tags tell. Pure.
//!
//! In: a public IP as ARM sent it. Out: the Services it lists, and whether this cluster may tag and delete it.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `serviceOwnsPublicIP`, `getServiceFromPIPServiceTags`.

use std::net::IpAddr;

use crate::providers::azure::{
    arm::{document::Tags, network::PublicIpAddress},
    load_balancer::spec::Family,
};

/// The Services that use a public IP: the key that is written, then the one of old versions.
pub(super) const SERVICES: [&str; 2] = ["k8s-azure-service", "service"];
/// The cluster.
pub(super) const CLUSTER: [&str; 2] = ["k8s-azure-cluster-name", "kubernetes-cluster-name"];
/// The Service that has set the DNS label.
pub(super) const DNS: [&str; 2] = ["k8s-azure-dns-label-service", "kubernetes-dns-label-service"];

/// Key of the tag with the namespaces whose Services may pick a public IP. Operators set it.
pub(super) const ALLOWED_NAMESPACES: [&str; 2] = ["k8s-azure-allowed-namespaces", "k8s-azure-allowed-namespaces"];

/// Who made a public IP, so who may tag and delete it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// A user: it lists no Service.
    User,
    /// This cluster.
    Cluster,
    /// A cluster of another name. Services that select it are added to its list, and nothing else is done to it.
    OtherCluster,
}

/// The value under the first of `keys` that has one, in any letter case.
pub(super) fn tag<'a>(tags: Option<&'a Tags>, keys: [&str; 2]) -> Option<&'a str> {
    let tags = tags?;
    let value = |key: &str| {
        let mut values = tags.iter().filter(|(known, _)| known.eq_ignore_ascii_case(key)).map(|(_, value)| value.as_deref());
        values.find_map(|value| value)
    };
    keys.into_iter().find_map(value)
}

/// The Services that a public IP lists, in order.
pub(super) fn services(pip: &PublicIpAddress) -> Vec<&str> {
    let list = tag(pip.tags.as_ref(), SERVICES).unwrap_or_default();
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// Where the list of a public IP has the Service.
pub(super) fn position(pip: &PublicIpAddress, service: &str) -> Option<usize> {
    services(pip).iter().position(|name| name.eq_ignore_ascii_case(service))
}

/// Who made it, seen from the cluster of this name.
pub(super) fn maker(pip: &PublicIpAddress, cluster: &str) -> Maker {
    match (services(pip).is_empty(), tag(pip.tags.as_ref(), CLUSTER)) {
        (true, _) => Maker::User,
        (false, Some(name)) if !name.is_empty() && !name.eq_ignore_ascii_case(cluster) => Maker::OtherCluster,
        (false, _) => Maker::Cluster,
    }
}

/// The Service that has set the DNS label.
pub(super) fn dns_owner(pip: &PublicIpAddress) -> Option<&str> {
    tag(pip.tags.as_ref(), DNS).filter(|name| !name.is_empty())
}

/// The family; IPv4 when ARM does not tell.
pub(super) fn family(pip: &PublicIpAddress) -> Family {
    let version = pip.properties.as_ref().and_then(|properties| properties.public_ip_address_version.as_deref());
    if version.is_some_and(|version| version.eq_ignore_ascii_case("IPv6")) { Family::V6 } else { Family::V4 }
}

/// The address, when it has one.
pub(super) fn address(pip: &PublicIpAddress) -> Option<IpAddr> {
    pip.properties.as_ref()?.ip_address.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(pairs: &[(&str, Option<&str>)]) -> PublicIpAddress {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned)));
        PublicIpAddress { tags: Some(pairs.collect()), ..PublicIpAddress::default() }
    }

    #[test]
    fn a_public_ip_belongs_to_the_cluster_when_it_lists_services_and_names_no_other_cluster() {
        for (tags, expected) in [
            (&[][..], Maker::User),
            (&[("owner", Some("me"))], Maker::User),
            (&[("k8s-azure-service", Some(" , ")), ("service", Some("a/b"))], Maker::User),
            (&[("k8s-azure-service", None), ("service", Some("a/b"))], Maker::Cluster),
            (&[("K8S-azure-service", Some("a/b"))], Maker::Cluster),
            (&[("k8s-azure-service", Some("a/b")), ("k8s-azure-cluster-name", Some("KubernetEs"))], Maker::Cluster),
            (&[("k8s-azure-service", Some("a/b")), ("kubernetes-cluster-name", Some("other"))], Maker::OtherCluster),
        ] {
            assert_eq!(maker(&tagged(tags), "kubernetes"), expected, "{tags:?}");
        }
        assert_eq!(maker(&PublicIpAddress::default(), "kubernetes"), Maker::User);
    }

    #[test]
    fn the_list_is_split_at_commas_and_compared_without_case() {
        let pip = tagged(&[("k8s-azure-service", Some("a/b, C/d ,,e/f"))]);
        assert_eq!(services(&pip), ["a/b", "C/d", "e/f"]);
        assert_eq!((position(&pip, "c/D"), position(&pip, "a")), (Some(1), None));
    }
}
