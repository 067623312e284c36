//! Networks that a caller with permission to read a page used recently.
//!
//! In: networks, and times. Out: whether a network is authorized. A token alone does not authorize a network, because every
//! pod has one.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::peer_network::PeerNetwork;

/// Time for which a network remains authorized. Scrapers send a request at least every few minutes.
const AUTHORIZED_FOR: Duration = Duration::from_secs(15 * 60);
/// Maximum number of networks. Authorized callers use few networks; the least recently seen one is evicted first.
const MAX_NETWORKS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct AuthorizedNetworks(Mutex<BTreeMap<PeerNetwork, Instant>>);

impl AuthorizedNetworks {
    /// Records that a caller from `peer` may read a page that is not public.
    pub(super) fn add(&self, peer: PeerNetwork, now: Instant) {
        let mut seen = self.0.lock();
        seen.insert(peer, now);
        if seen.len() > MAX_NETWORKS
            && let Some(oldest) = seen.iter().min_by_key(|(_, at)| **at).map(|(peer, _)| *peer)
        {
            seen.remove(&oldest);
        }
    }

    /// Returns `true` if an authorized caller from `peer` was recorded shortly before `now`.
    pub(super) fn contains(&self, peer: PeerNetwork, now: Instant) -> bool {
        self.0.lock().get(&peer).is_some_and(|at| now.duration_since(*at) < AUTHORIZED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u8) -> PeerNetwork {
        PeerNetwork::of([10, 0, 0, number].into(), [10, 0, 1, 1].into())
    }

    #[test]
    fn networks_are_familiar_for_a_while() {
        let (networks, start) = (AuthorizedNetworks::default(), Instant::now());
        networks.add(peer(1), start);
        let rows = [(1, 0, true), (1, 899, true), (1, 900, false), (2, 0, false)];
        for (number, seconds, expected) in rows {
            assert_eq!(
                networks.contains(peer(number), start + Duration::from_secs(seconds)),
                expected,
                "{number} {seconds}"
            );
        }
    }

    #[test]
    fn few_are_remembered_and_the_latest_of_them() {
        let (networks, start) = (AuthorizedNetworks::default(), Instant::now());
        for number in 0..100 {
            networks.add(peer(number), start + Duration::from_secs(number.into()));
        }
        let now = start + Duration::from_secs(100);
        let familiar: Vec<_> = (0..100).filter(|number| networks.contains(peer(*number), now)).collect();
        assert_eq!(familiar, (36..100).collect::<Vec<_>>());
    }
}
