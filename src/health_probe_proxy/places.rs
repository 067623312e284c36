//! How many connections there may be: in all, and from one client. A connection without a place is closed unread. However many clients
//! there are, Azure's probes have places of their own.
//!
//! In: addresses of clients. Out: a [`ProbePlace`] that a connection holds while it is open, or `None`.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Open connections in all. Azure probes each Node every few seconds, over one connection at a time for each probe.
pub(super) const MOST: usize = 128;
/// Those of one client, and those that are kept for Azure.
pub(super) const MOST_OF_ONE: usize = 32;
/// Where Azure's probes come from, in every region. Source: Microsoft's "What is IP address 168.63.129.16?".
const AZURE: IpAddr = IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16));
/// The same for IPv6, on every machine's own link. Source: azure-container-networking, `defaultV6HostGw`.
const AZURE_IPV6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x1234, 0x5678, 0x9abc);

/// Who has connections, and how many.
#[derive(Clone, Default)]
pub(super) struct ProbePlaces {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A connection's place, until it is dropped.
pub(super) struct ProbePlace {
    places: ProbePlaces,
    client: IpAddr,
}

impl ProbePlaces {
    /// A place for whoever has this address, if there is one.
    pub(super) fn take(&self, address: IpAddr) -> Option<ProbePlace> {
        let client = client_of(address);
        let mut taken = self.taken();
        let own = taken.get(&client).copied().unwrap_or_default();
        let others = taken.iter().filter(|(client, _)| **client != AZURE).map(|(_, count)| count);
        let is_full = client != AZURE && others.sum::<usize>() >= MOST - MOST_OF_ONE;
        if is_full || own >= MOST_OF_ONE {
            return None;
        }
        taken.insert(client, own + 1);
        drop(taken);
        Some(ProbePlace { places: self.clone(), client })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who has an address: one machine has a whole network of 64 bits in IPv6.
fn client_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(AZURE_IPV6) => AZURE,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

impl Drop for ProbePlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        match taken.get_mut(&self.client) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.remove(&self.client)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    #[test]
    fn one_client_cannot_take_all_places() {
        let places = ProbePlaces::default();
        let mut held: Vec<_> = (0..MOST_OF_ONE).map(|_| places.take(client(1)).unwrap()).collect();
        assert!(places.take(client(1)).is_none());
        assert!(places.take(client(2)).is_some());
        held.pop();
        assert!(places.take(client(1)).is_some());
        drop(held);
        assert!(places.taken().is_empty());
    }

    #[test]
    fn there_are_only_so_many_places_and_azure_has_its_own() {
        let places = ProbePlaces::default();
        let others = MOST - MOST_OF_ONE;
        let held: Vec<_> = (0..others).map(|number| places.take(client(u8::try_from(number).unwrap())).unwrap()).collect();
        assert!(places.take(client(200)).is_none());
        let probes: Vec<_> = (0..MOST_OF_ONE).map(|_| places.take(AZURE).unwrap()).collect();
        assert!(places.take(AZURE).is_none() && places.take(AZURE_IPV6.into()).is_none());
        drop(held);
        assert!(places.take(client(200)).is_some());
        drop(probes);
        assert!(places.taken().is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let places = ProbePlaces::default();
        let take = |network: u16, host: u16| places.take(Ipv6Addr::new(0xfd00, 0, 0, network, 0, 0, 0, host).into());
        let held: Vec<_> = (0..MOST_OF_ONE).map(|host| take(1, u16::try_from(host).unwrap()).unwrap()).collect();
        assert!(take(1, 100).is_none() && take(2, 0).is_some());
        drop(held);
        assert!(places.taken().is_empty());
    }
}
