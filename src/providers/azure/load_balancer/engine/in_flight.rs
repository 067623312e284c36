//! What writes in flight occupy, so that others wait for them or go on without them.

use std::collections::{BTreeMap, BTreeSet};

use crate::runtime::watched::Watched;

/// Keys of documents or parts of documents, by the write that occupies them.
#[derive(Default)]
pub(super) struct InFlight {
    occupied: Watched<Occupied>,
}

#[derive(Default)]
struct Occupied {
    next: u64,
    keys: BTreeMap<u64, BTreeSet<String>>,
}

/// Key of everything.
pub(super) const ALL: &str = "*";

impl Occupied {
    fn has(&self, key: &str) -> bool {
        self.keys.values().any(|keys| keys.contains(key) || keys.contains(ALL) || (key == ALL && !keys.is_empty()))
    }

    fn add(&mut self, keys: BTreeSet<String>) -> u64 {
        self.next += 1;
        self.keys.insert(self.next, keys);
        self.next
    }
}

/// A write in flight. Dropping it frees what it occupies.
pub(super) struct Occupation<'a> {
    all: &'a InFlight,
    number: u64,
}

impl Drop for Occupation<'_> {
    fn drop(&mut self) {
        self.all.occupied.update(|occupied| occupied.keys.remove(&self.number));
    }
}

impl InFlight {
    /// Occupies `keys`, also if other writes do.
    pub(super) fn begin(&self, keys: BTreeSet<String>) -> Occupation<'_> {
        Occupation { all: self, number: self.occupied.update(|occupied| occupied.add(keys)) }
    }

    /// Occupies those of `keys` that are free. Returns the others, too.
    pub(super) fn occupy(&self, keys: BTreeSet<String>) -> (Occupation<'_>, BTreeSet<String>) {
        self.occupied.update(|occupied| {
            let (busy, free) = keys.into_iter().partition(|key| occupied.has(key));
            (Occupation { all: self, number: occupied.add(free) }, busy)
        })
    }

    /// Returns whether one of `keys` is occupied.
    pub(super) fn has_any(&self, keys: &BTreeSet<String>) -> bool {
        self.occupied.read(|occupied| keys.iter().any(|key| occupied.has(key)))
    }

    /// Waits until all of `keys` are free.
    pub(super) async fn freed(&self, keys: &BTreeSet<String>) {
        self.occupied.until(|occupied| !keys.iter().any(|key| occupied.has(key))).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn occupied_keys_are_free_when_their_write_has_ended() {
        let all = InFlight::default();
        let keys = |keys: &[&str]| -> BTreeSet<String> { keys.iter().map(|key| (*key).to_owned()).collect() };
        let (first, busy) = all.occupy(keys(&["a", "b"]));
        assert_eq!(busy, keys(&[]));
        let (second, busy) = all.occupy(keys(&["b", "c"]));
        assert_eq!(busy, keys(&["b"]));
        assert!(all.has_any(&keys(&["c", "d"])) && !all.has_any(&keys(&["d"])));
        let (awaited, any) = (keys(&["b"]), keys(&["b", "c"]));
        let mut waits = Box::pin(all.freed(&awaited));
        assert_eq!((&mut waits).now_or_never(), None);
        drop(second);
        assert_eq!((&mut waits).now_or_never(), None, "the first write has it");
        assert_eq!(all.occupy(keys(&[ALL])).1, keys(&[ALL]), "something is occupied");
        drop(first);
        assert_eq!(waits.now_or_never(), Some(()));
        assert!(!all.has_any(&any));
        let (_everything, busy) = all.occupy(keys(&[ALL]));
        assert!(busy.is_empty() && all.has_any(&any));
    }
}
