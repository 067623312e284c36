//! A map that forgets what was used longest ago. In: keys and values. Out: at most `capacity` of them.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Lru<K, V> {
    capacity: usize,
    clock: u64,
    values: HashMap<K, (u64, V)>,
    /// Keys by last use.
    used: BTreeMap<u64, K>,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    /// An empty map.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, clock: 0, values: HashMap::new(), used: BTreeMap::new() }
    }

    /// The value at `key`, which counts as used; `None` if it is not there.
    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        let (used, value) = self.values.get_mut(key)?;
        self.used.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.used.insert(self.clock, key.clone());
        Some(value)
    }

    /// Puts `value` at `key`.
    pub(super) fn put(&mut self, key: K, value: V) {
        self.clock += 1;
        if let Some((used, _)) = self.values.insert(key.clone(), (self.clock, value)) {
            self.used.remove(&used);
        }
        self.used.insert(self.clock, key);
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
        let mut lru = Lru::new(2);
        lru.put("a", 1);
        lru.put("b", 2);
        assert_eq!(lru.get(&"a"), Some(&mut 1));
        lru.put("c", 3);
        assert_eq!(lru.get(&"b"), None);
        lru.put("a", 4);
        lru.put("d", 5);
        assert_eq!((lru.get(&"a").copied(), lru.get(&"c").copied(), lru.get(&"d").copied()), (Some(4), None, Some(5)));
        assert_eq!((lru.values.len(), lru.used.len()), (2, 2));
    }
}
