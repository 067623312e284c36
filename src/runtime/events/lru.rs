//! Map that evicts the least recently used entry. In: keys and values. Out: at most `capacity` of them.
//!
//! It stores 64-bit hashes rather than keys, because keys here are long texts and are never returned. Two keys with one hash
//! would be taken for the same; with thousands of keys that is one chance in a million million.

use std::{
    collections::{BTreeMap, HashMap},
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
    /// Hashes by last use.
    used: BTreeMap<u64, u64>,
    keys: PhantomData<fn(&K)>,
}

impl<K: Hash, V> LruMap<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        let (values, used) = (HashMap::new(), BTreeMap::new());
        Self { capacity, clock: 0, hasher: RandomState::new(), values, used, keys: PhantomData }
    }

    /// Returns the value at `key`, and marks it as used; `None` if it is missing.
    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        let hash = self.hasher.hash_one(key);
        let (used, value) = self.values.get_mut(&hash)?;
        self.used.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.used.insert(self.clock, hash);
        Some(value)
    }

    /// Puts `value` at `key`.
    pub(super) fn put(&mut self, key: &K, value: V) {
        let hash = self.hasher.hash_one(key);
        self.clock += 1;
        if let Some((used, _)) = self.values.insert(hash, (self.clock, value)) {
            self.used.remove(&used);
        }
        self.used.insert(self.clock, hash);
        while self.values.len() > self.capacity {
            let Some((_, oldest)) = self.used.pop_first() else { return };
            self.values.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut lru = LruMap::new(2);
        lru.put(&"a", 1);
        lru.put(&"b", 2);
        assert_eq!(lru.get(&"a"), Some(&mut 1));
        lru.put(&"c", 3);
        assert_eq!(lru.get(&"b"), None);
        lru.put(&"a", 4);
        lru.put(&"d", 5);
        assert_eq!((lru.get(&"a").copied(), lru.get(&"c").copied(), lru.get(&"d").copied()), (Some(4), None, Some(5)));
        assert_eq!((lru.values.len(), lru.used.len()), (2, 2));
    }
}
