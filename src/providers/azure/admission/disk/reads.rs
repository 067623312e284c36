//! Limits on the reads of disks, which unauthenticated callers can cause.
//!
//! In: the ID of a disk, and a function that reads it. Out: its labels, from a short-lived cache if it was read recently, or a fixed
//! text if it cannot be read. The cache and the number of concurrent reads are bounded.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::model::ResourceId,
};

type DiskLabels = BTreeMap<String, String>;

/// Maximum number of concurrent reads of ARM.
const MAX_CONCURRENT_READS: usize = 2;
/// Time for which the labels of a disk are cached. Disks do not move.
const LIFETIME: Duration = Duration::from_secs(5 * 60);
/// Time for which a failed read of a disk is cached.
const FAILURE_LIFETIME: Duration = Duration::from_secs(30);
/// Maximum number of cached disks.
const MAX_CACHED: usize = 256;

/// Concurrent reads, and the cache of their results.
pub(super) struct DiskReads {
    running: Semaphore,
    cache: Mutex<BTreeMap<String, DiskRead>>,
}

/// Cached result of a read.
struct DiskRead {
    at: Instant,
    /// Labels of the disk; `None` if it could not be read.
    labels: Option<DiskLabels>,
}

impl DiskRead {
    fn is_current(&self) -> bool {
        let lifetime = if self.labels.is_some() { LIFETIME } else { FAILURE_LIFETIME };
        self.at.elapsed() < lifetime
    }
}

impl Default for DiskReads {
    fn default() -> Self {
        Self { running: Semaphore::new(MAX_CONCURRENT_READS), cache: Mutex::default() }
    }
}

impl DiskReads {
    /// Returns the labels of a disk, from the cache or from `read`.
    pub(super) async fn labels<E: Display>(
        &self,
        id: &ResourceId,
        read: impl AsyncFnOnce() -> Result<DiskLabels, E>,
    ) -> CloudResult<DiskLabels> {
        let key = id.as_str().to_lowercase();
        let unreadable =
            || CloudError::failed("the disk cannot be read; the log of the cloud controller manager contains the reason");
        if let Some(labels) = self.cached(&key) {
            return labels.ok_or_else(unreadable);
        }
        let _permit = self.running.acquire().await.map_err(|_| unreadable())?;
        // Another caller may have read it meanwhile.
        if let Some(labels) = self.cached(&key) {
            return labels.ok_or_else(unreadable);
        }
        let labels =
            read().await.map_err(|error| tracing::warn!(disk = id.as_str(), %error, "pv-labeler cannot read a disk"));
        let labels = labels.ok();
        self.store(key, labels.clone());
        labels.ok_or_else(unreadable)
    }

    fn cached(&self, key: &str) -> Option<Option<DiskLabels>> {
        let cache = self.cache.lock();
        cache.get(key).filter(|read| read.is_current()).map(|read| read.labels.clone())
    }

    fn store(&self, key: String, labels: Option<DiskLabels>) {
        let mut cache = self.cache.lock();
        cache.retain(|_, read| read.is_current());
        if cache.len() >= MAX_CACHED {
            let oldest = cache.iter().min_by_key(|(_, read)| read.at).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| cache.remove(&oldest));
        }
        cache.insert(key, DiskRead { at: Instant::now(), labels });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::future::{join_all, poll_immediate};

    use super::*;

    fn id(name: &str) -> ResourceId {
        ResourceId::group_of("s", "rg").resource("Microsoft.Compute/disks", &[name])
    }

    fn found() -> Result<DiskLabels, String> {
        Ok(DiskLabels::from([("region".to_owned(), "eastus".to_owned())]))
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_is_read_once_in_five_minutes() {
        let (reads, read_count) = (DiskReads::default(), Cell::new(0));
        let labels = async |name: &str| {
            let read = async || {
                read_count.set(read_count.get() + 1);
                found()
            };
            assert_eq!(reads.labels(&id(name), read).await.unwrap(), found().unwrap());
            read_count.get()
        };
        assert_eq!((labels("d").await, labels("D").await, labels("e").await), (1, 1, 2));
        tokio::time::advance(LIFETIME).await;
        assert_eq!((labels("d").await, labels("d").await), (3, 3));
        for number in 0..2 * MAX_CACHED {
            labels(&number.to_string()).await;
        }
        assert_eq!(reads.cache.lock().len(), MAX_CACHED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_disk_is_read_once_in_half_a_minute() {
        let (reads, read_count) = (DiskReads::default(), Cell::new(0));
        let missing = async || {
            read_count.set(read_count.get() + 1);
            Err::<DiskLabels, _>("ResourceNotFound")
        };
        for _ in 0..995 {
            assert!(reads.labels(&id("d"), missing).await.is_err());
        }
        assert_eq!(read_count.get(), 1);
        tokio::time::advance(FAILURE_LIFETIME).await;
        assert_eq!((reads.labels(&id("d"), async || found()).await, read_count.get()), (Ok(found().unwrap()), 1));
    }

    #[tokio::test]
    async fn at_most_two_disks_are_read_concurrently() {
        let (reads, running) = (DiskReads::default(), Cell::new(0));
        let ids: Vec<ResourceId> = (0..5).map(|number| id(&number.to_string())).collect();
        let hang = async || {
            running.set(running.get() + 1);
            std::future::pending::<Result<DiskLabels, String>>().await
        };
        let all = join_all(ids.iter().map(|id| reads.labels(id, hang)));
        assert!(poll_immediate(all).await.is_none());
        assert_eq!(running.get(), MAX_CONCURRENT_READS);
        assert!(reads.labels(&ids[0], async || found()).await.is_ok(), "a cancelled caller holds no permit");
    }

    #[tokio::test]
    async fn arms_error_message_is_not_returned() {
        let failed = async || Err::<DiskLabels, _>("AuthorizationFailed: client 5ec2e7 of tenant t");
        let error = DiskReads::default().labels(&id("d"), failed).await.unwrap_err().to_string();
        assert!(error.contains("cannot be read") && !error.contains("5ec2e7"), "{error}");
    }
}
