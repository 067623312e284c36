//! Answers remembered for a while, bounded in number.
//!
//! In: keys, values, and how long each may be used. Out: values that are not yet stale. Keys never hold a secret: callers hash.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// More entries than callers of a secure port ever are; upstream's caches hold 4,096 too.
const CAPACITY: usize = 4096;

#[derive(Debug)]
pub(super) struct Cache<K, V> {
    entries: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    pub(super) fn new() -> Self {
        Self { entries: Mutex::new(HashMap::new()) }
    }

    /// The value of `key`, unless it is unknown or stale at `now`.
    pub(super) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).filter(|(stale, _)| now < *stale).map(|(_, value)| value.clone())
    }

    /// Remembers `value` for `ttl`. When full, stale entries make room; if none is stale, all do.
    pub(super) fn insert(&self, key: K, value: V, now: Instant, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= CAPACITY {
            entries.retain(|_, (stale, _)| now < *stale);
        }
        if entries.len() >= CAPACITY {
            entries.clear();
        }
        entries.insert(key, (now + ttl, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_used_until_its_time_is_over() {
        let cache = Cache::new();
        let start = Instant::now();
        cache.insert("a", 1, start, Duration::from_secs(10));
        cache.insert("never", 1, start, Duration::ZERO);
        let rows = [("a", 0, Some(1)), ("a", 9, Some(1)), ("a", 10, None), ("b", 0, None), ("never", 0, None)];
        for (key, seconds, expected) in rows {
            assert_eq!(cache.get(&key, start + Duration::from_secs(seconds)), expected, "{key} after {seconds}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_is_bounded() {
        let cache = Cache::new();
        let now = Instant::now();
        for key in 0..3 * CAPACITY {
            cache.insert(key, (), now, Duration::from_secs(1));
        }
        assert!(cache.entries.lock().unwrap().len() <= CAPACITY);
        assert_eq!(cache.get(&(3 * CAPACITY - 1), now), Some(()));
    }
}
