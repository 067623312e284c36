//! Limits on the number of connections, in total and per client. A connection without a slot is closed unread. Azure's
//! probes have reserved slots.
//!
//! In: addresses of clients. Out: a [`ProbeSlot`] for each connection while it is open, or `None`.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;

/// Maximum number of open connections. Azure probes each Node every few seconds, over one connection at a time for each probe.
pub(super) const MAX_CONNECTIONS: usize = 128;
/// Maximum number of connections of one client, and the number that is reserved for Azure.
pub(super) const MAX_PER_CLIENT: usize = 32;
/// Address that Azure's probes come from, in every region. Source: Microsoft's "What is IP address 168.63.129.16?".
const AZURE: IpAddr = IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16));
/// IPv6 address of Azure's probes, on every machine's own link. Source: azure-container-networking, `defaultV6HostGw`.
const AZURE_IPV6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x1234, 0x5678, 0x9abc);

/// Number of connections of each client.
#[derive(Clone, Default)]
pub(super) struct ProbeSlots {
    slots_by_client: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// Slot of a connection, released on drop.
pub(super) struct ProbeSlot {
    table: ProbeSlots,
    client: IpAddr,
}

impl ProbeSlots {
    /// Acquires a slot for a client with this address, if one is free.
    pub(super) fn acquire(&self, address: IpAddr) -> Option<ProbeSlot> {
        let client = client_of(address);
        let mut slots_by_client = self.slots_by_client.lock();
        let own = slots_by_client.get(&client).copied().unwrap_or_default();
        let others = slots_by_client.iter().filter(|(client, _)| **client != AZURE).map(|(_, count)| count);
        let is_full = client != AZURE && others.sum::<usize>() >= MAX_CONNECTIONS - MAX_PER_CLIENT;
        if is_full || own >= MAX_PER_CLIENT {
            return None;
        }
        slots_by_client.insert(client, own + 1);
        drop(slots_by_client);
        Some(ProbeSlot { table: self.clone(), client })
    }
}

/// Returns the client of an address. In IPv6 it is the network of 64 bits, because one machine may use all of its addresses.
fn client_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(AZURE_IPV6) => AZURE,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

impl Drop for ProbeSlot {
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
    fn a_client_cannot_acquire_all_slots() {
        let table = ProbeSlots::default();
        let mut acquired: Vec<_> = (0..MAX_PER_CLIENT).map(|_| table.acquire(client(1)).unwrap()).collect();
        assert!(table.acquire(client(1)).is_none());
        assert!(table.acquire(client(2)).is_some());
        acquired.pop();
        assert!(table.acquire(client(1)).is_some());
        drop(acquired);
        assert!(table.slots_by_client.lock().is_empty());
    }

    #[test]
    fn slots_are_limited_and_azure_has_reserved_ones() {
        let table = ProbeSlots::default();
        let others = MAX_CONNECTIONS - MAX_PER_CLIENT;
        let acquired: Vec<_> =
            (0..others).map(|number| table.acquire(client(u8::try_from(number).unwrap())).unwrap()).collect();
        assert!(table.acquire(client(200)).is_none());
        let probes: Vec<_> = (0..MAX_PER_CLIENT).map(|_| table.acquire(AZURE).unwrap()).collect();
        assert!(table.acquire(AZURE).is_none() && table.acquire(AZURE_IPV6.into()).is_none());
        drop(acquired);
        assert!(table.acquire(client(200)).is_some());
        drop(probes);
        assert!(table.slots_by_client.lock().is_empty());
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let table = ProbeSlots::default();
        let take = |network: u16, host: u16| table.acquire(Ipv6Addr::new(0xfd00, 0, 0, network, 0, 0, 0, host).into());
        let acquired: Vec<_> = (0..MAX_PER_CLIENT).map(|host| take(1, u16::try_from(host).unwrap()).unwrap()).collect();
        assert!(take(1, 100).is_none() && take(2, 0).is_some());
        drop(acquired);
        assert!(table.slots_by_client.lock().is_empty());
    }
}
