//! Answers of the metadata service, used for a while. Whoever asks while somebody else asks gets the same answer, or failure.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use super::{MetadataError, MetadataService, document::ImdsDocuments};

/// The service, asked seldom.
pub(super) struct MetadataCache {
    service: MetadataService,
    max_age: Duration,
    /// Held while the service is asked.
    last: Mutex<LastMetadataRead>,
}

#[derive(Default)]
struct LastMetadataRead {
    /// What was answered, and when.
    documents: Option<Arc<ImdsDocuments>>,
    read_at: Option<Instant>,
    /// The newest failure, and when it was told.
    failed: Option<(Instant, MetadataError)>,
}

impl MetadataCache {
    pub(super) fn new(service: MetadataService, max_age: Duration) -> Self {
        Self { service, max_age, last: Mutex::default() }
    }

    pub(super) async fn documents(&self) -> Result<Arc<ImdsDocuments>, MetadataError> {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(documents) = last.documents.as_ref().filter(|_| last.is_fresh(self.max_age)) {
            return Ok(Arc::clone(documents));
        }
        if let Some((_, error)) = last.failed.as_ref().filter(|(at, _)| *at > asked) {
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

    /// The next one who asks gets a new answer.
    pub(super) async fn forget(&self) {
        self.last.lock().await.read_at = None;
    }
}

impl LastMetadataRead {
    fn is_fresh(&self, max_age: Duration) -> bool {
        self.read_at.is_some_and(|read| read.elapsed() < max_age)
    }
}
