//! Queries of callers to the observer: the documents that an observation needs, their largest age, and the invalidated ones.
//! Pure.

use std::{collections::BTreeSet, time::Duration};

use super::settings::LoadBalancerSettings;
use crate::providers::azure::{
    config::AzureConfig,
    model::{ApiType, ArmError, ArmErrorClass, ResourceId, api, spelling},
};

/// Documents that one observation needs in addition to the load balancers, the public IPs of the cluster's group and the
/// security group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkQuery {
    /// Resource groups whose public IPs are listed.
    pub public_ip_groups: BTreeSet<ResourceId>,
    /// Resource groups whose private link services are listed.
    pub private_link_groups: BTreeSet<ResourceId>,
    /// Names of subnets of the configured virtual network, in any letter case.
    pub subnets: BTreeSet<String>,
    /// Load balancers, and public IPs and private link services of listed groups, that a requesting Service may have. A
    /// document that its list lacks is read directly.
    pub expected: BTreeSet<NetworkCacheKey>,
}

impl NetworkQuery {
    /// Adds the documents that another query needs.
    pub fn extend(&mut self, other: &Self) {
        self.public_ip_groups.extend(other.public_ip_groups.iter().cloned());
        self.private_link_groups.extend(other.private_link_groups.iter().cloned());
        self.subnets.extend(other.subnets.iter().cloned());
        self.expected.extend(other.expected.iter().cloned());
    }

    /// Returns the reads of the lists of groups, including the public IPs of `own_group`, in the order in which they are
    /// read.
    pub fn list_keys<'a>(&'a self, own_group: Option<&'a ResourceId>) -> impl Iterator<Item = NetworkCacheKey> + use<'a> {
        let groups: BTreeSet<&ResourceId> = self.public_ip_groups.iter().chain(own_group).collect();
        let public_ips = groups.into_iter().cloned().map(NetworkCacheKey::PublicIps);
        public_ips.chain(self.private_link_groups.iter().cloned().map(NetworkCacheKey::PrivateLinks))
    }

    /// Returns the reads of the groups and subnets that the query names.
    pub fn named_keys(&self) -> Vec<NetworkCacheKey> {
        let subnets = self.subnets.iter().cloned().map(|name| NetworkCacheKey::Subnet(name).normalized());
        self.list_keys(None).chain(subnets).collect()
    }

    /// Removes the documents that a read returns from the query. Returns `true` if the query named that read.
    pub fn remove(&mut self, what: &NetworkCacheKey) -> bool {
        // Every observation needs the load balancers, so they remain expected.
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

/// Largest ages of cached documents. With zero, every observation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLifetimes {
    pub load_balancers: Duration,
    pub public_ips: Duration,
    pub private_links: Duration,
    pub security_group: Duration,
    /// Upstream reads a subnet at each use. Here a cached subnet is used as long as the load balancers that refer to it.
    pub subnets: Duration,
}

impl CacheLifetimes {
    /// Returns the lifetimes of the configuration; all are zero if it disables the cache.
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

    /// Returns the largest age of the documents that a read of `key` returns.
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

/// Failed read of documents that only some Services name.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkReadFailure {
    pub key: NetworkCacheKey,
    pub error: ArmError,
    /// Whether the read failed because ARM reports that the resource group does not exist.
    pub group_missing: bool,
    /// Time for which it is not read again because it does not exist; `None` for other errors.
    pub missing_for: Option<Duration>,
}

/// Returns `true` for errors that ARM will repeat for a while.
pub fn is_lasting(error: &ArmError) -> bool {
    matches!(error.class, ArmErrorClass::Forbidden | ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound)
}

/// Unit that one request reads and that can be invalidated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetworkCacheKey {
    /// List of the load balancers in their resource group.
    LoadBalancers,
    /// Load balancer of that group.
    LoadBalancer(ResourceId),
    /// List of the public IPs of a resource group.
    PublicIps(ResourceId),
    PublicIp(ResourceId),
    /// List of the private link services of a resource group.
    PrivateLinks(ResourceId),
    PrivateLink(ResourceId),
    SecurityGroup,
    /// A subnet of the configured virtual network, by name.
    Subnet(String),
}

impl NetworkCacheKey {
    /// Returns the key in its canonical spelling, with names of subnets in lower case.
    pub fn normalized(self) -> Self {
        match self {
            NetworkCacheKey::Subnet(name) => NetworkCacheKey::Subnet(name.to_ascii_lowercase()),
            other => other,
        }
    }

    /// Returns the type of the documents that a read of this key returns.
    pub fn api_type(&self) -> &'static ApiType {
        match self {
            NetworkCacheKey::LoadBalancers | NetworkCacheKey::LoadBalancer(_) => &api::LOAD_BALANCERS,
            NetworkCacheKey::PublicIps(_) | NetworkCacheKey::PublicIp(_) => &api::PUBLIC_IPS,
            NetworkCacheKey::PrivateLinks(_) | NetworkCacheKey::PrivateLink(_) => &api::PRIVATE_LINK_SERVICES,
            NetworkCacheKey::SecurityGroup => &api::SECURITY_GROUPS,
            NetworkCacheKey::Subnet(_) => &api::SUBNETS,
        }
    }

    /// Returns the resource group whose documents a read of this key lists, or `None` if the key has no choice of groups.
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

    /// Returns `true` if only some Services name the documents. The cluster's own group and subnet must exist.
    pub fn is_service_specific(&self, settings: &LoadBalancerSettings) -> bool {
        match self {
            NetworkCacheKey::PublicIps(group) => *group != settings.group,
            NetworkCacheKey::PrivateLinks(_) => true,
            NetworkCacheKey::Subnet(name) => !spelling::same_name(name, &settings.subnet),
            _ => false,
        }
    }

    /// Returns `true` if only some Services name the documents of this key, or the list that contains them.
    pub fn is_named(&self, settings: &LoadBalancerSettings) -> bool {
        match self.list().as_ref().unwrap_or(self) {
            NetworkCacheKey::PrivateLinks(group) => *group != settings.private_link_group,
            other => other.is_service_specific(settings),
        }
    }

    /// Returns the id of the single document that a read of this key returns, or `None` for lists.
    pub fn single_id(&self) -> Option<&ResourceId> {
        match self {
            NetworkCacheKey::LoadBalancer(id) | NetworkCacheKey::PublicIp(id) | NetworkCacheKey::PrivateLink(id) => Some(id),
            _ => None,
        }
    }

    /// Returns the key of the list that contains this single document.
    pub fn list(&self) -> Option<NetworkCacheKey> {
        match self {
            NetworkCacheKey::LoadBalancer(_) => Some(NetworkCacheKey::LoadBalancers),
            NetworkCacheKey::PublicIp(id) => id.parent().map(NetworkCacheKey::PublicIps),
            NetworkCacheKey::PrivateLink(id) => id.parent().map(NetworkCacheKey::PrivateLinks),
            _ => None,
        }
    }

    /// Returns `true` if a read of this key also returns the documents of the other.
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
