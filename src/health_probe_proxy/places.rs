//! Limits of connections: in all, and from one client. A connection without a slot is closed unread. Azure's probes have
//! slots of their own.
//!
//! In: addresses of clients. Out: a [`ProbePlace`] that a connection holds while it is open, or `None`.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;

/// Open connections in all. Azure probes each Node every few seconds, over one connection at a time for each probe.
pub(super) const MOST: usize = 128;
/// Slots of one client, and those that are reserved for Azure.
pub(super) const MOST_OF_ONE: usize = 32;
/// Address that Azure's probes come from, in every region. Source: Microsoft's "What is IP address 168.63.129.16?".
const AZURE: IpAddr = IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16));
/// IPv6 address of Azure's probes, on every machine's own link. Source: azure-container-networking, `defaultV6HostGw`.
const AZURE_IPV6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x1234, 0x5678, 0x9abc);

/// Number of connections of each client.
#[derive(Clone, Default)]
pub(super) struct ProbePlaces {
    slots_by_client: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A connection's place, until it is dropped.
pub(super) struct ProbePlace {
    table: ProbePlaces,
    client: IpAddr,
}

impl ProbePlaces {
    /// Acquires a slot for a client with this address, if there is one.
    pub(super) fn take(&self, address: IpAddr) -> Option<ProbePlace> {
        let client = client_of(address);
        let mut slots_by_client = self.slots_by_client.lock();
        let own = slots_by_client.get(&client).copied().unwrap_or_default();
        let others = slots_by_client.iter().filter(|(client, _)| **client != AZURE).map(|(_, count)| count);
        let is_full = client != AZURE && others.sum::<usize>() >= MOST - MOST_OF_ONE;
        if is_full || own >= MOST_OF_ONE {
            return None;
        }
        slots_by_client.insert(client, own + 1);
        drop(slots_by_client);
        Some(ProbePlace { table: self.clone(), client })
    }
}

/// Returns the client of an address: one machine has a whole network of 64 bits in IPv6.
fn client_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(AZURE_IPV6) => AZURE,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

impl Drop for ProbePlace {
    fn drop(&mut self) {
        let mut slots_by_client = self.table.slots_by_client.lock();
        match slots_by_client.get_mut(&self.client) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(slots_by_client.remove(&self.client)),
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
        let table = ProbePlaces::default();
        let mut held: Vec<_> = (0..MOST_OF_ONE).map(|_| table.take(client(1)).unwrap()).collect();
        assert!(table.take(client(1)).is_none());
        assert!(table.take(client(2)).is_some());
        held.pop();
        assert!(table.take(client(1)).is_some());
        drop(held);
        assert!(table.slots_by_client.lock().is_empty());
    }

    #[test]
    fn there_are_only_so_many_places_and_azure_has_its_own() {
        let table = ProbePlaces::default();
        let others = MOST - MOST_OF_ONE;
        let held: Vec<_> = (0..others).map(|number| table.take(client(u8::try_from(number).unwrap())).unwrap()).collect();
        assert!(table.take(client(200)).is_none());
        let probes: Vec<_> = (0..MOST_OF_ONE).map(|_| table.take(AZURE).unwrap()).collect();
        assert!(table.take(AZURE).is_none() && table.take(AZURE_IPV6.into()).is_none());
        drop(held);
        assert!(table.take(client(200)).is_some());
        drop(probes);
        assert!(table.slots_by_client.lock().is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let table = ProbePlaces::default();
        let take = |network: u16, host: u16| table.take(Ipv6Addr::new(0xfd00, 0, 0, network, 0, 0, 0, host).into());
        let held: Vec<_> = (0..MOST_OF_ONE).map(|host| take(1, u16::try_from(host).unwrap()).unwrap()).collect();
        assert!(take(1, 100).is_none() && take(2, 0).is_some());
        drop(held);
        assert!(table.slots_by_client.lock().is_empty());
    }
}
