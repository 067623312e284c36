//! Which parts of an object nobody reads, so that they go before it is decoded.
//!
//! In: names of fields, and which labels and annotations are read. Out: what `json_filter` leaves out.

use std::sync::Arc;

/// Whether a label or an annotation is read.
type ReadsKey = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// What an object loses on its way in, besides `metadata.managedFields`. The default is nothing.
#[derive(Clone, Default)]
pub struct UnreadFields {
    /// Of `status`.
    pub(super) status: &'static [&'static str],
    /// Of each of `status.conditions`.
    pub(super) condition: &'static [&'static str],
    /// Which annotations and labels stay: all without.
    pub(super) annotations: Option<ReadsKey>,
    pub(super) labels: Option<ReadsKey>,
}

impl UnreadFields {
    /// These fields of `status`, and of each of its conditions. Optional ones: an object has to decode without them.
    pub fn new(status: &'static [&'static str], condition: &'static [&'static str]) -> Self {
        Self { status, condition, ..Self::default() }
    }

    /// And all annotations that are not read.
    pub fn annotations_but(self, reads: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { annotations: Some(Arc::new(reads)), ..self }
    }

    /// And all labels that are not read.
    pub fn labels_but(self, reads: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { labels: Some(Arc::new(reads)), ..self }
    }
}
