//! Networks of clients, for their shares, and the number of permits that each of them holds.
//!
//! In: the two addresses of a connection. Out: a [`PeerNetwork`], and a [`NetworkSemaphore`] with limits per network and in
//! total.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;

/// Prefix length of an IPv6 network. The holder of one address usually controls all addresses of the network.
const IPV6_PREFIX: u32 = 64;

/// Network of clients: an IPv4 address or an IPv6 /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PeerNetwork {
    address: IpAddr,
    /// Whether source and destination address are equal, which no other host can achieve.
    ///
    /// That is true for probes of kubelet if the program uses the network of the host.
    pub(super) same_host: bool,
}

impl PeerNetwork {
    /// Returns the network of a connection from `remote` to `local`.
    pub(super) fn of(remote: IpAddr, local: IpAddr) -> Self {
        let (remote, local) = (remote.to_canonical(), local.to_canonical());
        Self { address: network(remote), same_host: remote == local }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            IpAddr::V6(Ipv6Addr::from_bits(bits >> (128 - IPV6_PREFIX) << (128 - IPV6_PREFIX)))
        }
    }
}

/// Limits of concurrent permits.
#[derive(Debug, Clone, Copy)]
pub(super) struct NetworkLimits {
    /// Limit of all networks together.
    pub(super) total: usize,
    /// Limit of one network.
    pub(super) per_network: usize,
    /// Permits beyond `total` for networks without a permit, so that few networks with many permits cannot block others.
    pub(super) new_networks: usize,
}

impl NetworkLimits {
    /// Returns the maximum number of permits of all networks.
    pub(super) fn max_held(self) -> usize {
        self.total + self.new_networks
    }
}

/// Semaphore with equal and bounded shares. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct NetworkSemaphore {
    limits: NetworkLimits,
    acquired: Arc<Mutex<BTreeMap<PeerNetwork, usize>>>,
}

impl NetworkSemaphore {
    pub(super) fn new(limits: NetworkLimits) -> Self {
        Self { limits, acquired: Arc::default() }
    }

    /// Acquires a permit for `peer` within the limits, or returns `None`. The permit is released on drop.
    pub(super) fn try_acquire(&self, peer: PeerNetwork) -> Option<NetworkPermit> {
        let mut acquired = self.acquired.lock();
        let own = acquired.get(&peer).copied().unwrap_or(0);
        let room = if own == 0 { self.limits.max_held() } else { self.limits.total };
        if own >= self.limits.per_network || acquired.values().sum::<usize>() >= room {
            return None;
        }
        acquired.insert(peer, own + 1);
        Some(NetworkPermit { peer, acquired: Arc::clone(&self.acquired) })
    }
}

#[derive(Debug)]
pub(super) struct NetworkPermit {
    peer: PeerNetwork,
    acquired: Arc<Mutex<BTreeMap<PeerNetwork, usize>>>,
}

impl Drop for NetworkPermit {
    fn drop(&mut self) {
        let mut acquired = self.acquired.lock();
        match acquired.get_mut(&self.peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                acquired.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(remote: &str) -> PeerNetwork {
        PeerNetwork::of(remote.parse().unwrap(), "10.0.0.1".parse().unwrap())
    }

    #[test]
    fn addresses_are_grouped_by_network() {
        let rows = [
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.8", false),
            ("::ffff:10.0.0.7", "10.0.0.7", true),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ];
        for (first, second, same) in rows {
            assert_eq!(peer(first) == peer(second), same, "{first} {second}");
        }
        assert!(peer("10.0.0.1").same_host && peer("::ffff:10.0.0.1").same_host);
        assert!(!peer("10.0.0.2").same_host);
    }

    #[test]
    fn a_network_gets_at_most_its_share() {
        let shares = NetworkSemaphore::new(NetworkLimits { total: 3, per_network: 2, new_networks: 0 });
        let (a, b, c) = (peer("10.0.0.7"), peer("10.0.0.8"), peer("10.0.0.9"));
        let acquired = [shares.try_acquire(a), shares.try_acquire(a)];
        assert!(acquired.iter().all(Option::is_some));
        assert!(shares.try_acquire(a).is_none(), "its share is used");
        let other = shares.try_acquire(b);
        assert!(other.is_some());
        assert!(shares.try_acquire(c).is_none(), "all permits are used");
        drop(acquired);
        assert!(shares.try_acquire(c).is_some());
        drop(other);
        assert!(shares.acquired.lock().is_empty(), "no network is stored");
    }

    #[test]
    fn new_networks_get_permits_of_a_reserve() {
        let shares = NetworkSemaphore::new(NetworkLimits { total: 4, per_network: 2, new_networks: 1 });
        let (a, b, c, d) = (peer("10.0.0.7"), peer("10.0.0.8"), peer("10.0.0.9"), peer("10.0.0.10"));
        let acquired = [shares.try_acquire(a), shares.try_acquire(a), shares.try_acquire(b), shares.try_acquire(b)];
        assert!(acquired.iter().all(Option::is_some));
        let first = shares.try_acquire(c);
        assert!(first.is_some());
        assert!(shares.try_acquire(c).is_none(), "only the first permit");
        assert!(shares.try_acquire(d).is_none(), "the reserve is bounded");
        drop(first);
        assert!(shares.try_acquire(d).is_some());
    }
}
