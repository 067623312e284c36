//! Which connections are open, and the rule for one more. Pure.
//!
//! In: where the next connection comes from. Out: it is taken, it is refused, or it takes the place of another.
//!
//! The rule. Connections from this host itself (source address = destination address) have places of their own; all others share
//! [`PLACES`]. One network (an IPv4 address, an IPv6 /64) gets [`PLACES_EACH`]. A caller is *known* once a request of the
//! connection has been authenticated; a connection of a known caller is never closed for another's sake.
//!
//! 1. A network that has its share replaces the oldest of its own connections that is not known and older than [`GRACE`];
//!    without one it is refused.
//! 2. When all places are taken, the network with the most unknown connections gives up the oldest of them: at once if it has
//!    at least two more than the network of the newcomer, else if it is older than [`GRACE`]. Without one the newcomer is refused.
//!
//! So a crowd that holds connections open is displaced by a probe, a crowd that comes fast leaves a probe [`GRACE`] to be
//! answered, and nothing outside this host can take the places of a kubelet that probes the network of the host.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::peer_network::PeerNetwork;

/// For other hosts, all together. A scraper and a kubelet need two; the rest is for crowds to displace each other.
pub(super) const PLACES: usize = 96;
/// For one network, and for this host itself.
pub(super) const PLACES_EACH: usize = 24;
/// kubelet's default time for a probe: a connection has as long to ask before one of the same standing takes its place.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// Names a connection in the table.
pub(super) type ConnectionId = u64;

/// What becomes of one more connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// There is a place.
    Free,
    /// There is one if that connection is closed.
    InPlaceOf(ConnectionId),
    /// Its network has its share.
    PeerHasItsShare,
    /// All places are taken by those with no less right to them.
    AllTaken,
}

#[derive(Debug)]
struct OpenConnection {
    peer: PeerNetwork,
    since: Instant,
    known: bool,
}

/// The open connections.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable {
    open: BTreeMap<ConnectionId, OpenConnection>,
    next: ConnectionId,
}

impl ConnectionTable {
    /// Applies the rule to a connection from `peer`.
    pub(super) fn admission(&self, peer: PeerNetwork, now: Instant) -> Admission {
        let rivals = || self.open.iter().filter(|(_, other)| other.peer.is_same_host() == peer.is_same_host());
        if rivals().filter(|(_, other)| other.peer == peer).count() >= PLACES_EACH {
            let own = self.oldest_unknown(peer);
            return own.filter(|(_, since)| past_grace(*since, now)).map_or(Admission::PeerHasItsShare, in_place);
        }
        let places = if peer.is_same_host() { PLACES_EACH } else { PLACES };
        if rivals().count() < places {
            return Admission::Free;
        }
        let heaviest = rivals().filter(|(_, other)| !other.known).max_by_key(|(id, other)| {
            // Of equals the one whose connection is the oldest; ids grow with time.
            (self.unknown(other.peer), Reverse(**id))
        });
        let Some((_, heaviest)) = heaviest else { return Admission::AllTaken };
        let outweighs = self.unknown(heaviest.peer) > self.unknown(peer) + 1;
        let victim = self.oldest_unknown(heaviest.peer).filter(|(_, since)| outweighs || past_grace(*since, now));
        victim.map_or(Admission::AllTaken, in_place)
    }

    fn unknown(&self, peer: PeerNetwork) -> usize {
        self.open.values().filter(|connection| connection.peer == peer && !connection.known).count()
    }

    fn oldest_unknown(&self, peer: PeerNetwork) -> Option<(ConnectionId, Instant)> {
        let (id, oldest) = self.open.iter().find(|(_, connection)| connection.peer == peer && !connection.known)?;
        Some((*id, oldest.since))
    }

    /// Adds a connection.
    pub(super) fn insert(&mut self, peer: PeerNetwork, now: Instant) -> ConnectionId {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, OpenConnection { peer, since: now, known: false });
        id
    }

    /// A request of the connection was authenticated.
    pub(super) fn set_known(&mut self, id: ConnectionId) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.known = true;
        }
    }

    /// The connection is closed, or will be soon.
    pub(super) fn remove(&mut self, id: ConnectionId) {
        self.open.remove(&id);
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}

fn past_grace(since: Instant, now: Instant) -> bool {
    now.duration_since(since) >= GRACE
}

fn in_place((id, _): (ConnectionId, Instant)) -> Admission {
    Admission::InPlaceOf(id)
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
    fn a_network_replaces_its_own_oldest_after_the_grace() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        fill(&mut table, 7..8, PLACES_EACH - 1, start);
        assert_eq!(table.admission(peer(7), start), Admission::Free);
        table.insert(peer(7), start);
        assert_eq!(table.admission(peer(7), start), Admission::PeerHasItsShare);
        assert_eq!(table.admission(peer(8), start), Admission::Free);
        let later = start + GRACE;
        assert_eq!(table.admission(peer(7), later), Admission::InPlaceOf(0));
        table.set_known(0);
        assert_eq!(table.admission(peer(7), later), Admission::InPlaceOf(1));
        (0..table.next).for_each(|id| table.set_known(id));
        assert_eq!(table.admission(peer(7), later), Admission::PeerHasItsShare);
    }

    #[test]
    fn a_light_network_displaces_a_heavy_one_at_once() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        fill(&mut table, 10..14, PLACES / 4, start);
        assert_eq!(table.len(), PLACES);
        assert_eq!(table.admission(peer(7), start), Admission::InPlaceOf(0));
        table.remove(0);
        table.insert(peer(7), start);
        let second = ConnectionId::try_from(PLACES / 4).unwrap();
        assert_eq!(table.admission(peer(8), start), Admission::InPlaceOf(second), "from the next of the heavy ones");
    }

    #[test]
    fn equals_displace_each_other_only_after_the_grace() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        fill(&mut table, 100..100 + u8::try_from(PLACES).unwrap(), 1, start);
        assert_eq!(table.admission(peer(7), start), Admission::AllTaken);
        assert_eq!(table.admission(peer(7), start + GRACE), Admission::InPlaceOf(0));
        (0..table.next).for_each(|id| table.set_known(id));
        assert_eq!(table.admission(peer(7), start + GRACE), Admission::AllTaken);
    }

    #[test]
    fn this_host_has_places_of_its_own() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        fill(&mut table, 10..14, PLACES / 4, start);
        assert_eq!(table.admission(peer(1), start), Admission::Free);
        fill(&mut table, 1..2, PLACES_EACH, start);
        assert_eq!(table.admission(peer(1), start), Admission::PeerHasItsShare);
        assert!(matches!(table.admission(peer(1), start + GRACE), Admission::InPlaceOf(_)));
    }
}
