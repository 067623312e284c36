//! Limits the reads of disks that unauthenticated callers can cause.
//!
//! In: the ID of a disk and how to read it. Out: its labels, from a short-lived cache if it was read a moment ago, or one
//! fixed text if it cannot be read. The cache and the number of concurrent reads are bounded.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::model::ResourceId,
};

type DiskLabels = BTreeMap<String, String>;

/// Reads of ARM at once.
const AT_ONCE: usize = 2;
/// For how long a disk is not read again; disks do not move.
const REMEMBERED: Duration = Duration::from_secs(5 * 60);
/// For how long a disk that could not be read is not read again.
const FAILURE_REMEMBERED: Duration = Duration::from_secs(30);
/// Disks that are remembered.
const MOST: usize = 256;

/// The reads that run, and what was read.
pub(super) struct DiskReads {
    running: Semaphore,
    known: Mutex<BTreeMap<String, DiskRead>>,
}

/// Result of a read.
struct DiskRead {
    at: Instant,
    /// `None`: the disk could not be read.
    labels: Option<DiskLabels>,
}

impl DiskRead {
    fn is_current(&self) -> bool {
        let lifetime = if self.labels.is_some() { REMEMBERED } else { FAILURE_REMEMBERED };
        self.at.elapsed() < lifetime
    }
}

impl Default for DiskReads {
    fn default() -> Self {
        Self { running: Semaphore::new(AT_ONCE), known: Mutex::default() }
    }
}

impl DiskReads {
    /// Returns the labels of a disk; `read` is called unless they are cached.
    pub(super) async fn labels<E: Display>(
        &self,
        id: &ResourceId,
        read: impl AsyncFnOnce() -> Result<DiskLabels, E>,
    ) -> CloudResult<DiskLabels> {
        let key = id.as_str().to_lowercase();
        let unreadable = || CloudError::failed("the disk cannot be read; the log of the cloud controller manager says why");
        if let Some(labels) = self.known(&key) {
            return labels.ok_or_else(unreadable);
        }
        let _running = self.running.acquire().await.map_err(|_| unreadable())?;
        // Another caller may have read it meanwhile.
        if let Some(labels) = self.known(&key) {
            return labels.ok_or_else(unreadable);
        }
        let labels =
            read().await.map_err(|error| tracing::warn!(disk = id.as_str(), %error, "pv-labeler cannot read a disk"));
        let labels = labels.ok();
        self.remember(key, labels.clone());
        labels.ok_or_else(unreadable)
    }

    fn known(&self, key: &str) -> Option<Option<DiskLabels>> {
        let existing = self.known.lock();
        existing.get(key).filter(|read| read.is_current()).map(|read| read.labels.clone())
    }

    fn remember(&self, key: String, labels: Option<DiskLabels>) {
        let mut existing = self.known.lock();
        existing.retain(|_, read| read.is_current());
        if existing.len() >= MOST {
            let oldest = existing.iter().min_by_key(|(_, read)| read.at).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| existing.remove(&oldest));
        }
        existing.insert(key, DiskRead { at: Instant::now(), labels });
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
        let (reads, asked) = (DiskReads::default(), Cell::new(0));
        let labels = async |name: &str| {
            let read = async || {
                asked.set(asked.get() + 1);
                found()
            };
            assert_eq!(reads.labels(&id(name), read).await.unwrap(), found().unwrap());
            asked.get()
        };
        assert_eq!((labels("d").await, labels("D").await, labels("e").await), (1, 1, 2));
        tokio::time::advance(REMEMBERED).await;
        assert_eq!((labels("d").await, labels("d").await), (3, 3));
        for number in 0..2 * MOST {
            labels(&number.to_string()).await;
        }
        assert_eq!(reads.known.lock().len(), MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_does_not_exist_is_read_once_in_half_a_minute() {
        let (reads, asked) = (DiskReads::default(), Cell::new(0));
        let missing = async || {
            asked.set(asked.get() + 1);
            Err::<DiskLabels, _>("ResourceNotFound")
        };
        for _ in 0..995 {
            assert!(reads.labels(&id("d"), missing).await.is_err());
        }
        assert_eq!(asked.get(), 1);
        tokio::time::advance(FAILURE_REMEMBERED).await;
        assert_eq!((reads.labels(&id("d"), async || found()).await, asked.get()), (Ok(found().unwrap()), 1));
    }

    #[tokio::test]
    async fn two_disks_are_read_at_once_and_no_more() {
        let (reads, running) = (DiskReads::default(), Cell::new(0));
        let ids: Vec<ResourceId> = (0..5).map(|number| id(&number.to_string())).collect();
        let hang = async || {
            running.set(running.get() + 1);
            std::future::pending::<Result<DiskLabels, String>>().await
        };
        let all = join_all(ids.iter().map(|id| reads.labels(id, hang)));
        assert!(poll_immediate(all).await.is_none());
        assert_eq!(running.get(), AT_ONCE);
        assert!(reads.labels(&ids[0], async || found()).await.is_ok(), "who gave up holds nothing");
    }

    #[tokio::test]
    async fn what_arm_says_of_a_failure_is_not_told() {
        let failed = async || Err::<DiskLabels, _>("AuthorizationFailed: client 5ec2e7 of tenant t");
        let error = DiskReads::default().labels(&id("d"), failed).await.unwrap_err().to_string();
        assert!(error.contains("cannot be read") && !error.contains("5ec2e7"), "{error}");
    }
}
