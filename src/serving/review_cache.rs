//! Cache of reviews, bounded in age, number and size.
//!
//! In: a request, its result, and the time for which it may be used. Out: results that are not yet stale. Requests are
//! stored as salted hashes only, so that neither secrets nor long texts remain. If the cache is full, the oldest results are
//! evicted.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use aws_lc_rs::digest::{Context, SHA256};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum number of results, which is more than the callers of a secure port need.
const ENTRIES: usize = 1024;
/// Maximum size of a result, in bytes. Larger results are not cached.
const ENTRY_SIZE: usize = 16 * 1024;
/// Time for which a stale result is available if no new review is possible.
const STALE_GRACE: Duration = Duration::from_secs(60);
/// Maximum size of all results, in bytes.
const TOTAL_SIZE: usize = 1024 * 1024;

/// Salted SHA-256 of a request.
pub(super) type ReviewCacheKey = [u8; 32];

/// Approximate number of bytes of a result.
pub(super) trait ByteSize {
    fn size(&self) -> usize;
}

#[derive(Debug)]
pub(super) struct ReviewCache<V> {
    salt: [u8; 32],
    entries: Mutex<ReviewCacheEntries<V>>,
}

#[derive(Debug)]
struct ReviewCacheEntries<V> {
    by_key: HashMap<ReviewCacheKey, CachedReview<V>>,
    /// Keys in the order of their age.
    order: VecDeque<ReviewCacheKey>,
    size: usize,
}

#[derive(Debug)]
struct CachedReview<V> {
    value: V,
    size: usize,
    expires_at: Instant,
}

impl<V: Clone + ByteSize> ReviewCache<V> {
    pub(super) fn new() -> Self {
        let remembered = ReviewCacheEntries { by_key: HashMap::new(), order: VecDeque::new(), size: 0 };
        Self { salt: rand::random(), entries: Mutex::new(remembered) }
    }

    /// Returns the key of a request. The salt prevents callers from preparing a collision with another caller's request.
    pub(super) fn key(&self, question: &[u8]) -> ReviewCacheKey {
        let mut context = Context::new(&SHA256);
        context.update(&self.salt);
        context.update(question);
        let mut key = ReviewCacheKey::default();
        key.copy_from_slice(context.finish().as_ref());
        key
    }

    /// Returns the result, unless it is missing or stale at `now`.
    pub(super) fn get(&self, key: &ReviewCacheKey, now: Instant) -> Option<V> {
        self.get_within(key, now, Duration::ZERO)
    }

    /// Returns the result, including one that is stale for up to a minute, for callers without a new review.
    pub(super) fn get_stale(&self, key: &ReviewCacheKey, now: Instant) -> Option<V> {
        self.get_within(key, now, STALE_GRACE)
    }

    fn get_within(&self, key: &ReviewCacheKey, now: Instant, late: Duration) -> Option<V> {
        let remembered = self.entries.lock();
        remembered.by_key.get(key).filter(|entry| now < entry.expires_at + late).map(|entry| entry.value.clone())
    }

    /// Caches `value` for `ttl`, unless it is too large.
    pub(super) fn insert(&self, key: ReviewCacheKey, value: V, now: Instant, ttl: Duration) {
        let size = value.size() + size_of::<(ReviewCacheKey, ReviewCacheKey, CachedReview<V>)>();
        let mut remembered = self.entries.lock();
        remembered.forget(&key);
        if ttl.is_zero() || size > ENTRY_SIZE {
            return;
        }
        remembered.make_room(size, now);
        remembered.size += size;
        remembered.order.push_back(key);
        remembered.by_key.insert(key, CachedReview { value, size, expires_at: now + ttl });
    }

    /// Removes a result that is no longer valid.
    pub(super) fn forget(&self, key: &ReviewCacheKey) {
        self.entries.lock().forget(key);
    }
}

impl<V> ReviewCacheEntries<V> {
    /// Evicts the oldest results that are no longer available, and then as many as necessary for `size` bytes.
    fn make_room(&mut self, size: usize, now: Instant) {
        while let Some(oldest) = self.order.front() {
            let is_stale = self.by_key.get(oldest).is_none_or(|entry| entry.expires_at + STALE_GRACE <= now);
            let is_full = self.order.len() >= ENTRIES || self.size + size > TOTAL_SIZE;
            if !is_stale && !is_full {
                return;
            }
            if let Some(removed) = self.order.pop_front().and_then(|key| self.by_key.remove(&key)) {
                self.size -= removed.size;
            }
        }
    }

    fn forget(&mut self, key: &ReviewCacheKey) {
        if let Some(removed) = self.by_key.remove(key) {
            self.size -= removed.size;
            self.order.retain(|other| other != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ByteSize for usize {
        fn size(&self) -> usize {
            *self
        }
    }

    fn lengths(cache: &ReviewCache<usize>) -> (usize, usize, usize) {
        let remembered = cache.entries.lock();
        (remembered.by_key.len(), remembered.order.len(), remembered.size)
    }

    #[test]
    fn a_result_is_used_until_it_expires() {
        let cache = ReviewCache::new();
        let start = Instant::now();
        let (a, b, never) = (cache.key(b"a"), cache.key(b"b"), cache.key(b"never"));
        cache.insert(a, 1, start, Duration::from_secs(10));
        cache.insert(never, 1, start, Duration::ZERO);
        let rows = [(a, 0, Some(1)), (a, 9, Some(1)), (a, 10, None), (b, 0, None), (never, 0, None)];
        for (key, seconds, expected) in rows {
            assert_eq!(cache.get(&key, start + Duration::from_secs(seconds)), expected, "after {seconds}");
        }
        let rows = [(a, 0, Some(1)), (a, 69, Some(1)), (a, 70, None), (b, 0, None), (never, 0, None)];
        for (key, seconds, expected) in rows {
            assert_eq!(cache.get_stale(&key, start + Duration::from_secs(seconds)), expected, "stale, after {seconds}");
        }
        cache.insert(b, 1, start + Duration::from_secs(70), Duration::from_secs(10));
        assert_eq!(lengths(&cache).0, 1, "long-expired results are evicted");
    }

    #[test]
    fn the_oldest_results_are_evicted() {
        let (cache, now, ttl) = (ReviewCache::new(), Instant::now(), Duration::from_secs(1));
        let key = |number: usize| cache.key(&number.to_be_bytes());
        for number in 0..ENTRIES + 10 {
            cache.insert(key(number), 1, now, ttl);
        }
        assert_eq!((lengths(&cache).0, lengths(&cache).1), (ENTRIES, ENTRIES));
        let rows = [(0, None), (9, None), (10, Some(1)), (ENTRIES + 9, Some(1))];
        for (number, expected) in rows {
            assert_eq!(cache.get(&key(number), now), expected, "{number}");
        }
    }

    #[test]
    fn sizes_of_entries_and_of_the_cache_are_bounded() {
        let (cache, now, ttl) = (ReviewCache::new(), Instant::now(), Duration::from_secs(1));
        let key = |number: usize| cache.key(&number.to_be_bytes());
        cache.insert(key(0), ENTRY_SIZE, now, ttl);
        assert_eq!(cache.get(&key(0), now), None, "too large");
        for number in 1..200 {
            cache.insert(key(number), ENTRY_SIZE / 2, now, ttl);
            assert!(lengths(&cache).2 <= TOTAL_SIZE);
        }
        assert_eq!(cache.get(&key(1), now), None);
        assert_eq!(cache.get(&key(199), now), Some(ENTRY_SIZE / 2));
    }

    #[test]
    fn equal_requests_have_one_entry() {
        let (cache, now, ttl) = (ReviewCache::new(), Instant::now(), Duration::from_secs(1));
        (0..100).for_each(|value| cache.insert(cache.key(b"a"), value, now, ttl));
        assert_eq!((lengths(&cache).0, lengths(&cache).1), (1, 1));
        assert_eq!(cache.get(&cache.key(b"a"), now), Some(99));
        cache.insert(cache.key(b"a"), 100, now, Duration::ZERO);
        assert_eq!(cache.get_stale(&cache.key(b"a"), now), None, "an older result does not outlive a newer one");
        assert_ne!(cache.key(b"a"), ReviewCache::<usize>::new().key(b"a"), "salted");
    }
}
