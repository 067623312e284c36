//! Table of open connections, and the admission of new connections. Pure.
//!
//! In: the network of a new connection. Out: the connection is accepted, is refused, or replaces another connection.
//!
//! Rules: connections from this host itself (source address = destination address) have separate slots; all others share
//! [`MAX_CONNECTIONS`]. One network (an IPv4 address, an IPv6 /64) gets [`MAX_PER_NETWORK`]. A caller is *authorized* after
//! a request of the connection was permitted to read a page that is not public; authentication is not enough, because every
//! pod has a token. Of the authorized connections of a network the [`PROTECTED_PER_NETWORK`] with the latest requests are
//! *protected*. All others are evictable: the unauthorized ones first, in the order of their age; then the authorized ones,
//! the longest idle first.
//!
//! 1. A network that has its share replaces the first of its own evictable connections that have been idle for
//!    [`EVICTION_GRACE`]; without one it is refused.
//! 2. When all slots are taken, the network with the most evictable connections loses the first of them: at once if it has
//!    at least two more than the network of the new connection, else the first that has been idle for [`EVICTION_GRACE`].
//!    Without one the new connection is refused.
//! 3. When all slots are protected, the longest idle connection of all is evicted, after [`EVICTION_GRACE`].
//!
//! So a probe displaces many idle connections, many fast connections leave a probe [`EVICTION_GRACE`] for its response, no
//! network can take all slots for good, and no other host can take the slots of a kubelet that probes the network of the
//! host.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use super::peer_network::PeerNetwork;

/// Slots of all other hosts together. A scraper and a kubelet need two; many other clients displace each other in the rest.
pub(super) const MAX_CONNECTIONS: usize = 96;
/// Slots of one network, and of this host itself.
pub(super) const MAX_PER_NETWORK: usize = 24;
/// Authorized connections of one network that are not evicted. A scraper has one or two.
pub(super) const PROTECTED_PER_NETWORK: usize = 4;
/// Time before another connection of the same rank may replace a connection, which is kubelet's default timeout of a probe.
pub(super) const EVICTION_GRACE: Duration = Duration::from_secs(1);

/// Number of a connection in the table.
pub(super) type ConnectionId = u64;

/// Decision about one more connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionAdmission {
    /// Admission to a free slot.
    Admit,
    /// Admission to the slot of that connection, which must be closed.
    Replace(ConnectionId),
    /// Refusal, because the network uses its share.
    NetworkFull,
    /// Refusal, because connections of at least the same rank use all slots.
    Full,
}

#[derive(Debug)]
struct OpenConnection {
    peer: PeerNetwork,
    authorized: bool,
    /// Time when the connection was opened, or of the last request of an authorized caller.
    idle_since: Instant,
}

/// Connection, in the order of eviction.
type EvictionRank = (bool, Instant, ConnectionId);

#[derive(Debug, Default)]
pub(super) struct ConnectionTable {
    open: BTreeMap<ConnectionId, OpenConnection>,
    next: ConnectionId,
}

impl ConnectionTable {
    /// Returns the decision about a new connection from `peer`.
    pub(super) fn admission(&self, peer: PeerNetwork, now: Instant) -> ConnectionAdmission {
        let rivals = || self.open.values().map(|other| other.peer).filter(|other| other.same_host == peer.same_host);
        let own = self.evictable(peer);
        if rivals().filter(|other| *other == peer).count() >= MAX_PER_NETWORK {
            let first = own.iter().find(|connection| past_grace(connection, now));
            return first.map_or(ConnectionAdmission::NetworkFull, replacing);
        }
        let limit = if peer.same_host { MAX_PER_NETWORK } else { MAX_CONNECTIONS };
        if rivals().count() < limit {
            return ConnectionAdmission::Admit;
        }
        let networks: BTreeSet<_> = rivals().collect();
        let queues = networks.into_iter().map(|network| self.evictable(network));
        let heaviest = queues.max_by_key(|queue| (queue.len(), queue.first().copied().map(Reverse))).unwrap_or_default();
        let outweighs = heaviest.len() > own.len() + 1;
        let candidates = if heaviest.is_empty() { self.longest_idle(peer.same_host) } else { heaviest };
        let first = candidates.iter().find(|connection| outweighs || past_grace(connection, now));
        first.map_or(ConnectionAdmission::Full, replacing)
    }

    /// Returns the evictable connections of a network, in the order of eviction.
    fn evictable(&self, peer: PeerNetwork) -> Vec<EvictionRank> {
        let own = self.open.iter().filter(|(_, connection)| connection.peer == peer);
        let mut own: Vec<_> = own.map(eviction_rank).collect();
        own.sort_unstable();
        let is_authenticated = own.iter().filter(|(is_authenticated, ..)| *is_authenticated).count();
        own.truncate(own.len() - is_authenticated.min(PROTECTED_PER_NETWORK));
        own
    }

    /// Returns the longest idle connection, if any.
    fn longest_idle(&self, same_host: bool) -> Vec<EvictionRank> {
        let rivals = self.open.iter().filter(|(_, other)| other.peer.same_host == same_host);
        rivals.map(eviction_rank).min_by_key(|(_, idle_since, id)| (*idle_since, *id)).into_iter().collect()
    }

    pub(super) fn insert(&mut self, peer: PeerNetwork, now: Instant) -> ConnectionId {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, OpenConnection { peer, authorized: false, idle_since: now });
        id
    }

    /// Records that a request of the connection was permitted to read a page that is not public.
    pub(super) fn set_authorized(&mut self, id: ConnectionId, now: Instant) {
        if let Some(connection) = self.open.get_mut(&id) {
            (connection.authorized, connection.idle_since) = (true, now);
        }
    }

    /// Removes a connection that is closed or being closed.
    pub(super) fn remove(&mut self, id: ConnectionId) {
        self.open.remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}

fn eviction_rank((id, connection): (&ConnectionId, &OpenConnection)) -> EvictionRank {
    (connection.authorized, connection.idle_since, *id)
}

fn past_grace((_, idle_since, _): &EvictionRank, now: Instant) -> bool {
    now.duration_since(*idle_since) >= EVICTION_GRACE
}

fn replacing((.., id): &EvictionRank) -> ConnectionAdmission {
    ConnectionAdmission::Replace(*id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u8) -> PeerNetwork {
        PeerNetwork::of([10, 0, 0, number].into(), [10, 0, 0, 1].into())
    }

    fn fill(table: &mut ConnectionTable, numbers: std::ops::Range<u8>, each: usize, now: Instant) {
        for number in numbers {
            (0..each).for_each(|_| _ = table.insert(peer(number), now));
        }
    }

    #[test]
    fn a_network_replaces_its_oldest_after_the_grace_period() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        fill(&mut table, 7..8, MAX_PER_NETWORK - 1, start);
        assert_eq!(table.admission(peer(7), start), ConnectionAdmission::Admit);
        table.insert(peer(7), start);
        assert_eq!(table.admission(peer(7), start), ConnectionAdmission::NetworkFull);
        assert_eq!(table.admission(peer(8), start), ConnectionAdmission::Admit);
        let later = start + EVICTION_GRACE;
        assert_eq!(table.admission(peer(7), later), ConnectionAdmission::Replace(0));
        table.set_authorized(0, start);
        assert_eq!(table.admission(peer(7), later), ConnectionAdmission::Replace(1));
    }

    #[test]
    fn a_network_keeps_its_most_recently_used_connections() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        fill(&mut table, 7..8, MAX_PER_NETWORK, start);
        // The connection that was opened last sent the first request.
        for id in 0..table.next {
            table.set_authorized(id, start + EVICTION_GRACE * u32::try_from(table.next - id).unwrap());
        }
        let mut now = start + EVICTION_GRACE * u32::try_from(table.next + 1).unwrap();
        let protected = ConnectionId::try_from(PROTECTED_PER_NETWORK).unwrap();
        for id in (protected..table.next).rev() {
            assert_eq!(table.admission(peer(7), now), ConnectionAdmission::Replace(id), "the longest idle");
            table.remove(id);
            table.insert(peer(7), now);
        }
        now += EVICTION_GRACE;
        for attempt in 0..100 {
            let ConnectionAdmission::Replace(id) = table.admission(peer(7), now) else { panic!("refused") };
            assert!(id >= protected, "{attempt}: {id} is protected");
            table.remove(id);
            table.insert(peer(7), now);
            now += EVICTION_GRACE;
        }
        assert!((0..protected).all(|id| table.open.contains_key(&id)));
    }

    #[test]
    fn authenticated_clients_do_not_displace_probers() {
        // Pods of a tenant use all connections for authenticated requests, and then for authorized requests.
        for allowed in [false, true] {
            let (mut table, start) = (ConnectionTable::default(), Instant::now());
            fill(&mut table, 10..14, MAX_CONNECTIONS / 4, start);
            if allowed {
                (0..table.next).for_each(|id| table.set_authorized(id, start));
            }
            for prober in [7, 8, 9] {
                let ConnectionAdmission::Replace(id) = table.admission(peer(prober), start) else {
                    panic!("{prober} is refused")
                };
                table.remove(id);
                table.insert(peer(prober), start);
            }
        }
    }

    #[test]
    fn the_longest_idle_of_protected_connections_is_replaced() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        let networks = u8::try_from(MAX_CONNECTIONS / PROTECTED_PER_NETWORK).unwrap();
        fill(&mut table, 100..100 + networks, PROTECTED_PER_NETWORK, start);
        (0..table.next).for_each(|id| table.set_authorized(id, start));
        table.set_authorized(0, start + EVICTION_GRACE);
        assert_eq!(table.admission(peer(7), start), ConnectionAdmission::Full);
        assert_eq!(table.admission(peer(7), start + EVICTION_GRACE), ConnectionAdmission::Replace(1));
        table.remove(1);
        let new_connection = table.insert(peer(7), start + EVICTION_GRACE);
        assert_eq!(table.admission(peer(8), start + EVICTION_GRACE), ConnectionAdmission::Full);
        assert_eq!(
            table.admission(peer(8), start + EVICTION_GRACE * 2),
            ConnectionAdmission::Replace(new_connection),
            "protected connections are kept"
        );
    }

    #[test]
    fn a_light_network_displaces_a_heavy_one_at_once() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        fill(&mut table, 10..14, MAX_CONNECTIONS / 4, start);
        assert_eq!(table.len(), MAX_CONNECTIONS);
        assert_eq!(table.admission(peer(7), start), ConnectionAdmission::Replace(0));
        table.remove(0);
        table.insert(peer(7), start);
        let second = ConnectionId::try_from(MAX_CONNECTIONS / 4).unwrap();
        assert_eq!(
            table.admission(peer(8), start),
            ConnectionAdmission::Replace(second),
            "a connection of the next heavy network"
        );
    }

    #[test]
    fn equal_networks_displace_only_after_the_grace_period() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        fill(&mut table, 100..100 + u8::try_from(MAX_CONNECTIONS).unwrap(), 1, start);
        assert_eq!(table.admission(peer(7), start), ConnectionAdmission::Full);
        assert_eq!(table.admission(peer(7), start + EVICTION_GRACE), ConnectionAdmission::Replace(0));
        (0..table.next).for_each(|id| table.set_authorized(id, start + EVICTION_GRACE));
        assert_eq!(table.admission(peer(7), start + EVICTION_GRACE), ConnectionAdmission::Full);
    }

    #[test]
    fn connections_of_this_host_are_reserved() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        fill(&mut table, 10..14, MAX_CONNECTIONS / 4, start);
        assert_eq!(table.admission(peer(1), start), ConnectionAdmission::Admit);
        fill(&mut table, 1..2, MAX_PER_NETWORK, start);
        assert_eq!(table.admission(peer(1), start), ConnectionAdmission::NetworkFull);
        assert!(matches!(table.admission(peer(1), start + EVICTION_GRACE), ConnectionAdmission::Replace(_)));
    }
}
