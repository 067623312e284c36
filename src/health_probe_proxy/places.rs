//! How many connections there may be: in all, and from one address. A connection without a place is closed unread.
//!
//! In: addresses of clients. Out: a [`ProbePlace`] that a connection holds while it is open, or `None`.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Open connections in all. Azure probes each Node every few seconds, over one connection at a time for each probe.
pub(super) const MOST: usize = 128;
/// Those from one address.
pub(super) const MOST_OF_ONE: usize = 32;

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
    /// A place for a client, if there is one.
    pub(super) fn take(&self, client: IpAddr) -> Option<ProbePlace> {
        let mut taken = self.taken();
        let (all, own) = (taken.values().sum::<usize>(), taken.get(&client).copied().unwrap_or_default());
        if all >= MOST || own >= MOST_OF_ONE {
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
    fn there_are_only_so_many_places() {
        let places = ProbePlaces::default();
        let held: Vec<_> = (0..MOST).map(|number| places.take(client(u8::try_from(number).unwrap())).unwrap()).collect();
        assert!(places.take(client(200)).is_none());
        drop(held);
        assert!(places.take(client(200)).is_some());
    }
}
