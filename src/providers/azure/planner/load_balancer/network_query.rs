//! What callers ask of the observer: which documents a look needs, how old they may be, and which are doubtful. Pure.

use std::{collections::BTreeSet, time::Duration};

use super::settings::LoadBalancerSettings;
use crate::providers::azure::{
    config::AzureConfig,
    model::{ApiType, ArmError, ArmErrorClass, ResourceId, api, spelling},
};

/// What one look needs beside the load balancers, the public IPs of the cluster's group and the security group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkQuery {
    /// Resource groups whose public IPs are looked at.
    pub public_ip_groups: BTreeSet<ResourceId>,
    /// Resource groups whose private link services are looked at.
    pub private_link_groups: BTreeSet<ResourceId>,
    /// Names of subnets of the configured virtual network, in any letter case.
    pub subnets: BTreeSet<String>,
    /// Load balancers, public IPs and private link services, the latter two of groups that are looked at, that somebody who asks may have. When a list lacks one it is
    /// read by itself.
    pub expected: BTreeSet<NetworkCacheKey>,
}

impl NetworkQuery {
    /// Adds what another query needs.
    pub fn extend(&mut self, other: &Self) {
        self.public_ip_groups.extend(other.public_ip_groups.iter().cloned());
        self.private_link_groups.extend(other.private_link_groups.iter().cloned());
        self.subnets.extend(other.subnets.iter().cloned());
        self.expected.extend(other.expected.iter().cloned());
    }

    /// Returns the reads of the lists of groups, including the public IPs of `own_group`, in the order in which they are read.
    pub fn list_keys<'a>(&'a self, own_group: Option<&'a ResourceId>) -> impl Iterator<Item = NetworkCacheKey> + use<'a> {
        let groups: BTreeSet<&ResourceId> = self.public_ip_groups.iter().chain(own_group).collect();
        let public_ips = groups.into_iter().cloned().map(NetworkCacheKey::PublicIps);
        public_ips.chain(self.private_link_groups.iter().cloned().map(NetworkCacheKey::PrivateLinks))
    }

    /// The reads of what is named here.
    pub fn named_keys(&self) -> Vec<NetworkCacheKey> {
        let subnets = self.subnets.iter().cloned().map(|name| NetworkCacheKey::Subnet(name).normalized());
        self.list_keys(None).chain(subnets).collect()
    }

    /// Does without what a read of `what` shows. Whether that was named here.
    pub fn remove(&mut self, what: &NetworkCacheKey) -> bool {
        // Every look needs the load balancers.
        if !matches!(what, NetworkCacheKey::LoadBalancers | NetworkCacheKey::LoadBalancer(_)) {
            self.expected.retain(|expected| !what.covers(expected));
        }
        match what {
            NetworkCacheKey::PublicIps(group) => self.public_ip_groups.remove(group),
            NetworkCacheKey::PrivateLinks(group) => self.private_link_groups.remove(group),
            NetworkCacheKey::PublicIp(_) | NetworkCacheKey::PrivateLink(_) => {
                what.list().is_some_and(|list| self.remove(&list))
            }
            NetworkCacheKey::Subnet(name) => {
                let before = self.subnets.len();
                self.subnets.retain(|known| !spelling::same_name(known, name));
                self.subnets.len() < before
            }
            NetworkCacheKey::LoadBalancers | NetworkCacheKey::LoadBalancer(_) | NetworkCacheKey::SecurityGroup => false,
        }
    }
}

/// How old what is known may be. Zero: every look reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLifetimes {
    /// The list of load balancers.
    pub load_balancers: Duration,
    /// Lists of public IPs.
    pub public_ips: Duration,
    /// Lists of private link services.
    pub private_links: Duration,
    pub security_group: Duration,
    /// Subnets. Upstream reads a subnet whenever it looks at one; here it is believed as long as the load balancers that refer to it.
    pub subnets: Duration,
}

impl CacheLifetimes {
    /// Those of the configuration.
    pub fn from_config(config: &AzureConfig) -> Self {
        let ttl = |ttl: Duration| if config.disable_api_call_cache { Duration::ZERO } else { ttl };
        Self {
            load_balancers: ttl(config.load_balancer_cache_ttl),
            public_ips: ttl(config.public_ip_cache_ttl),
            private_links: ttl(config.pls_cache_ttl),
            security_group: ttl(config.nsg_cache_ttl),
            subnets: ttl(config.load_balancer_cache_ttl),
        }
    }

    /// Returns how old the documents that a read of `key` shows may be.
    pub fn of(&self, key: &NetworkCacheKey) -> Duration {
        match key {
            NetworkCacheKey::LoadBalancers | NetworkCacheKey::LoadBalancer(_) => self.load_balancers,
            NetworkCacheKey::PublicIps(_) | NetworkCacheKey::PublicIp(_) => self.public_ips,
            NetworkCacheKey::PrivateLinks(_) | NetworkCacheKey::PrivateLink(_) => self.private_links,
            NetworkCacheKey::SecurityGroup => self.security_group,
            NetworkCacheKey::Subnet(_) => self.subnets,
        }
    }
}

/// Something that only some Services name, and that could not be read.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkReadFailure {
    pub key: NetworkCacheKey,
    pub error: ArmError,
    /// Whether that is because ARM says of its resource group that it does not exist.
    pub group_missing: bool,
    /// How long it is not read again because it does not exist; `None`: something else is wrong.
    pub missing_for: Option<Duration>,
}

/// Whether ARM will say the same for a while.
pub fn is_lasting(error: &ArmError) -> bool {
    matches!(error.class, ArmErrorClass::Forbidden | ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound)
}

/// What one request can read, and so what can be doubted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetworkCacheKey {
    /// All load balancers of the load balancers' group.
    LoadBalancers,
    /// One of them.
    LoadBalancer(ResourceId),
    /// All public IPs of a resource group.
    PublicIps(ResourceId),
    /// One public IP.
    PublicIp(ResourceId),
    /// All private link services of a resource group.
    PrivateLinks(ResourceId),
    /// One private link service.
    PrivateLink(ResourceId),
    SecurityGroup,
    /// A subnet of the configured virtual network, by name.
    Subnet(String),
}

impl NetworkCacheKey {
    /// The same in the one spelling: names of subnets in lower case.
    pub fn normalized(self) -> Self {
        match self {
            NetworkCacheKey::Subnet(name) => NetworkCacheKey::Subnet(name.to_ascii_lowercase()),
            other => other,
        }
    }

    /// Returns the type of the documents that a read of this shows.
    pub fn api_type(&self) -> &'static ApiType {
        match self {
            NetworkCacheKey::LoadBalancers | NetworkCacheKey::LoadBalancer(_) => &api::LOAD_BALANCERS,
            NetworkCacheKey::PublicIps(_) | NetworkCacheKey::PublicIp(_) => &api::PUBLIC_IPS,
            NetworkCacheKey::PrivateLinks(_) | NetworkCacheKey::PrivateLink(_) => &api::PRIVATE_LINK_SERVICES,
            NetworkCacheKey::SecurityGroup => &api::SECURITY_GROUPS,
            NetworkCacheKey::Subnet(_) => &api::SUBNETS,
        }
    }

    /// Returns the resource group whose documents a read of this lists, if one of several groups is meant.
    pub fn listed_group(&self) -> Option<&ResourceId> {
        match self {
            NetworkCacheKey::PublicIps(group) | NetworkCacheKey::PrivateLinks(group) => Some(group),
            _ => None,
        }
    }

    /// Returns `true` if the documents are in the subscription of the machines, rather than in that of the network.
    pub fn is_in_machines_subscription(&self) -> bool {
        matches!(self, NetworkCacheKey::PrivateLinks(_) | NetworkCacheKey::PrivateLink(_))
    }

    /// Returns `true` if only some Services name it. The cluster's own group and subnet have to exist.
    pub fn is_service_specific(&self, settings: &LoadBalancerSettings) -> bool {
        match self {
            NetworkCacheKey::PublicIps(group) => *group != settings.group,
            NetworkCacheKey::PrivateLinks(_) => true,
            NetworkCacheKey::Subnet(name) => !spelling::same_name(name, &settings.subnet),
            _ => false,
        }
    }

    /// Returns `true` if only some Services name what a read of this shows, or the list that has it.
    pub fn is_named(&self, settings: &LoadBalancerSettings) -> bool {
        match self.list().as_ref().unwrap_or(self) {
            NetworkCacheKey::PrivateLinks(group) => *group != settings.private_link_group,
            other => other.is_service_specific(settings),
        }
    }

    /// The one document of a list that a read of this shows.
    pub fn single_id(&self) -> Option<&ResourceId> {
        match self {
            NetworkCacheKey::LoadBalancer(id) | NetworkCacheKey::PublicIp(id) | NetworkCacheKey::PrivateLink(id) => Some(id),
            _ => None,
        }
    }

    /// Returns the read of the list that has this single document.
    pub fn list(&self) -> Option<NetworkCacheKey> {
        match self {
            NetworkCacheKey::LoadBalancer(_) => Some(NetworkCacheKey::LoadBalancers),
            NetworkCacheKey::PublicIp(id) => id.parent().map(NetworkCacheKey::PublicIps),
            NetworkCacheKey::PrivateLink(id) => id.parent().map(NetworkCacheKey::PrivateLinks),
            _ => None,
        }
    }

    /// Whether a read of this shows the other, too.
    pub fn covers(&self, other: &NetworkCacheKey) -> bool {
        self == other || other.list().as_ref() == Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_come_from_the_configuration() {
        let config = AzureConfig { nsg_cache_ttl: Duration::from_secs(7), ..AzureConfig::default() };
        let lifetimes = CacheLifetimes::from_config(&config);
        assert_eq!((lifetimes.load_balancers.as_secs(), lifetimes.public_ips.as_secs()), (120, 120));
        assert_eq!((lifetimes.security_group.as_secs(), lifetimes.subnets.as_secs()), (7, 120));
        let none = CacheLifetimes::from_config(&AzureConfig { disable_api_call_cache: true, ..config });
        let all = [none.load_balancers, none.public_ips, none.security_group, none.subnets];
        assert_eq!(all, [Duration::ZERO; 4]);
    }

    #[test]
    fn lists_cover_their_members() {
        let group = |name: &str| ResourceId::group_of("s", name);
        let ip = |name: &str| NetworkCacheKey::PublicIp(group(name).resource("Microsoft.Network/publicIPAddresses", &["a"]));
        for (read, key, covers) in [
            (NetworkCacheKey::PublicIps(group("RG")), ip("rg"), true),
            (NetworkCacheKey::PublicIps(group("other")), ip("rg"), false),
            (ip("rg"), ip("RG"), true),
            (ip("rg"), NetworkCacheKey::PublicIps(group("rg")), false),
            (NetworkCacheKey::LoadBalancers, NetworkCacheKey::LoadBalancer(group("rg")), true),
            (NetworkCacheKey::LoadBalancers, NetworkCacheKey::SecurityGroup, false),
            (NetworkCacheKey::Subnet("a".into()), NetworkCacheKey::Subnet("A".into()).normalized(), true),
        ] {
            assert_eq!(read.covers(&key), covers, "{read:?} {key:?}");
        }
    }
}
