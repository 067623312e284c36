//! Cache of the metadata service's responses. Concurrent callers share a response or a failure.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use super::{MetadataError, MetadataService, document::ImdsDocuments};

/// Cached access to the service.
pub(super) struct MetadataCache {
    service: MetadataService,
    max_age: Duration,
    /// Lock that is held during a request to the service.
    last: Mutex<LastMetadataRead>,
}

#[derive(Default)]
struct LastMetadataRead {
    /// Last response, with its time.
    documents: Option<Arc<ImdsDocuments>>,
    read_at: Option<Instant>,
    /// Last failure, with its time.
    failed: Option<(Instant, MetadataError)>,
}

impl MetadataCache {
    pub(super) fn new(service: MetadataService, max_age: Duration) -> Self {
        Self { service, max_age, last: Mutex::default() }
    }

    pub(super) async fn documents(&self) -> Result<Arc<ImdsDocuments>, MetadataError> {
        let requested_at = Instant::now();
        let mut last = self.last.lock().await;
        let is_current = last.read_at.is_some_and(|read| read.elapsed() < self.max_age);
        if let Some(documents) = last.documents.as_ref().filter(|_| is_current) {
            return Ok(Arc::clone(documents));
        }
        if let Some((_, error)) = last.failed.as_ref().filter(|(at, _)| *at > requested_at) {
            return Err(error.clone());
        }
        match self.service.documents(last.documents.as_deref()).await {
            Ok(documents) => {
                let documents = Arc::new(documents);
                *last = LastMetadataRead {
                    documents: Some(Arc::clone(&documents)),
                    read_at: Some(Instant::now()),
                    failed: None,
                };
                Ok(documents)
            }
            Err(error) => {
                last.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Marks the cached response as outdated, so that the next caller requests another.
    pub(super) async fn invalidate(&self) {
        self.last.lock().await.read_at = None;
    }
}
