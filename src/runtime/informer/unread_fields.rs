//! Which parts of an object nobody reads, so that they go before it is decoded.
//!
//! In: names of fields, and which labels and annotations are read. Out: what `json_filter` leaves out.

use std::sync::Arc;

/// Whether a label or an annotation is read.
type ReadsKey = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// What becomes of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnotationUse {
    /// Kept; of a longer value, the first byte beyond this length is kept, too, so that its reader still finds it too long.
    Read {
        /// Longest accepted value, in bytes.
        longest: usize,
    },
    /// Kept if it is among the first [`MAX_SAMPLED_ANNOTATIONS`] of its object: only its key matters, for advice.
    Sampled,
    /// Only [`super::UNREAD_ANNOTATIONS`] keeps a trace of it.
    Unread,
}

/// How many [`AnnotationUse::Sampled`] annotations an object keeps.
pub const MAX_SAMPLED_ANNOTATIONS: usize = 10;

type AnnotationUses = Arc<dyn Fn(&str) -> AnnotationUse + Send + Sync>;

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
    /// Which annotations stay, with a digest of the others.
    pub(super) annotation_uses: Option<AnnotationUses>,
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

    /// And all annotations that are not kept, with [`super::UNREAD_ANNOTATIONS`] in their place.
    pub fn annotations_by_use(self, use_of: impl Fn(&str) -> AnnotationUse + Send + Sync + 'static) -> Self {
        Self { annotation_uses: Some(Arc::new(use_of)), ..self }
    }

    /// And all labels that are not read.
    pub fn labels_but(self, reads: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { labels: Some(Arc::new(reads)), ..self }
    }
}
