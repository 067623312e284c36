//! Map that evicts the least recently used entry. In: keys and values. Out: at most `capacity` of them.
//!
//! It stores 64-bit hashes rather than keys, because keys here are long texts and are never returned. Two keys with
//! one hash are treated as equal; with thousands of keys, the chance is one in 10¹².

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    marker::PhantomData,
};

#[derive(Debug)]
pub(super) struct LruMap<K, V> {
    capacity: usize,
    clock: u64,
    hasher: RandomState,
    /// Values by hash, each with its last use.
    values: HashMap<u64, (u64, V)>,
    keys: PhantomData<fn(&K)>,
}

impl<K: Hash, V> LruMap<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, clock: 0, hasher: RandomState::new(), values: HashMap::new(), keys: PhantomData }
    }

    /// Returns the value at `key`, and marks it as used; `None` if it is missing.
    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        let (used, value) = self.values.get_mut(&self.hasher.hash_one(key))?;
        self.clock += 1;
        *used = self.clock;
        Some(value)
    }

    /// Stores `value` at `key`, and evicts an entry if the map is full.
    pub(super) fn put(&mut self, key: &K, value: V) {
        self.clock += 1;
        self.values.insert(self.hasher.hash_one(key), (self.clock, value));
        if self.values.len() > self.capacity {
            // A linear search is sufficient: events are rare, and most processes never reach the capacity.
            let oldest = self.values.iter().min_by_key(|(_, (used, _))| *used).map(|(hash, _)| *hash);
            if let Some(hash) = oldest {
                self.values.remove(&hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted() {
        let mut lru = LruMap::new(2);
        lru.put(&"a", 1);
        lru.put(&"b", 2);
        assert_eq!(lru.get(&"a"), Some(&mut 1));
        lru.put(&"c", 3);
        assert_eq!(lru.get(&"b"), None);
        lru.put(&"a", 4);
        lru.put(&"d", 5);
        assert_eq!((lru.get(&"a").copied(), lru.get(&"c").copied(), lru.get(&"d").copied()), (Some(4), None, Some(5)));
        assert_eq!(lru.values.len(), 2);
    }
}
