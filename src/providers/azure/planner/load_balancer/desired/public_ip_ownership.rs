//! Ownership of a public IP, according to its tags. Pure.
//!
//! In: a public IP as ARM sent it. Out: the Services it lists, and whether this cluster may tag and delete it.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `serviceOwnsPublicIP`, `getServiceFromPIPServiceTags`.

use std::net::IpAddr;

use crate::providers::azure::{
    model::{document::Tags, network::PublicIpAddress, spelling},
    planner::load_balancer::spec::IpFamily,
};

/// Keys of the tag with the Services that use a public IP: the key that is written, then the key of old versions.
pub(super) const SERVICES_TAG_KEYS: [&str; 2] = ["k8s-azure-service", "service"];
pub(super) const CLUSTER_TAG_KEYS: [&str; 2] = ["k8s-azure-cluster-name", "kubernetes-cluster-name"];
/// Keys of the tag with the Service that set the DNS label.
pub(super) const DNS_TAG_KEYS: [&str; 2] = ["k8s-azure-dns-label-service", "kubernetes-dns-label-service"];

/// Key of the tag with the namespaces whose Services may pick a public IP. Operators set it.
pub(super) const ALLOWED_NAMESPACES_TAG_KEYS: [&str; 2] = ["k8s-azure-allowed-namespaces", "k8s-azure-allowed-namespaces"];

/// Creator of a public IP. Only the creator may tag and delete it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PublicIpOwner {
    /// A user. The public IP lists no Service.
    User,
    Cluster,
    /// A cluster of another name. Services that select the public IP are added to its list, and nothing else of it is changed.
    OtherCluster,
}

/// Returns the value of the first of `keys` that has one. Keys are compared without case.
pub(super) fn tag<'a>(tags: Option<&'a Tags>, keys: [&str; 2]) -> Option<&'a str> {
    let tags = tags?;
    let value = |key: &str| {
        let mut values = tags.iter().filter(|(known, _)| spelling::same_name(known, key)).map(|(_, value)| value.as_deref());
        values.find_map(|value| value)
    };
    keys.into_iter().find_map(value)
}

/// Returns the Services that a public IP lists, in order.
pub(super) fn services(pip: &PublicIpAddress) -> Vec<&str> {
    let list = tag(pip.tags.as_ref(), SERVICES_TAG_KEYS).unwrap_or_default();
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// Returns the index of the Service in the list of a public IP.
pub(super) fn position(pip: &PublicIpAddress, service: &str) -> Option<usize> {
    services(pip).iter().position(|name| spelling::same_name(name, service))
}

/// Returns the creator of the public IP from the view of the cluster called `cluster`.
pub(super) fn owner(pip: &PublicIpAddress, cluster: &str) -> PublicIpOwner {
    match (services(pip).is_empty(), tag(pip.tags.as_ref(), CLUSTER_TAG_KEYS)) {
        (true, _) => PublicIpOwner::User,
        (false, Some(name)) if !name.is_empty() && !spelling::same_name(name, cluster) => PublicIpOwner::OtherCluster,
        (false, _) => PublicIpOwner::Cluster,
    }
}

/// Returns the Service that set the DNS label.
pub(super) fn dns_owner(pip: &PublicIpAddress) -> Option<&str> {
    tag(pip.tags.as_ref(), DNS_TAG_KEYS).filter(|name| !name.is_empty())
}

/// Returns the IP family, which is IPv4 if ARM sends none.
pub(super) fn family(pip: &PublicIpAddress) -> IpFamily {
    let version = pip.properties.as_ref().and_then(|properties| properties.public_ip_address_version.as_deref());
    if spelling::is_word(version, "IPv6") { IpFamily::V6 } else { IpFamily::V4 }
}

/// Returns the address; `None` if the public IP has no valid one.
pub fn address(pip: &PublicIpAddress) -> Option<IpAddr> {
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
            (&[][..], PublicIpOwner::User),
            (&[("owner", Some("me"))], PublicIpOwner::User),
            (&[("k8s-azure-service", Some(" , ")), ("service", Some("a/b"))], PublicIpOwner::User),
            (&[("k8s-azure-service", None), ("service", Some("a/b"))], PublicIpOwner::Cluster),
            (&[("K8S-azure-service", Some("a/b"))], PublicIpOwner::Cluster),
            (&[("k8s-azure-service", Some("a/b")), ("k8s-azure-cluster-name", Some("KubernetEs"))], PublicIpOwner::Cluster),
            (&[("k8s-azure-service", Some("a/b")), ("kubernetes-cluster-name", Some("other"))], PublicIpOwner::OtherCluster),
        ] {
            assert_eq!(owner(&tagged(tags), "kubernetes"), expected, "{tags:?}");
        }
        assert_eq!(owner(&PublicIpAddress::default(), "kubernetes"), PublicIpOwner::User);
    }

    #[test]
    fn the_list_is_split_at_commas_and_compared_without_case() {
        let pip = tagged(&[("k8s-azure-service", Some("a/b, C/d ,,e/f"))]);
        assert_eq!(services(&pip), ["a/b", "C/d", "e/f"]);
        assert_eq!((position(&pip, "c/D"), position(&pip, "a")), (Some(1), None));
    }
}
