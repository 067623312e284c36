//! Parts of an object without a reader, which are removed before it is decoded.
//!
//! In: names of fields, and predicates for labels and annotations. Out: the rules of `json_filter`.

use std::sync::Arc;

/// Predicate for the keys of labels or annotations that are read.
type ReadsKey = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Use of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnotationUse {
    /// Read value. Of a longer value, one byte more than accepted is kept, so that its reader detects that it is too long.
    Read {
        /// Longest accepted value, in bytes.
        longest: usize,
    },
    /// Read list of items between commas, of which long items are truncated.
    ///
    /// Of a list with too many items, one comma more than accepted is kept, so that its reader detects that it is too long.
    ReadList {
        /// Longest accepted value, in bytes.
        longest: usize,
        /// Largest accepted number of items.
        most: usize,
    },
    /// Annotation whose key is reported to users. Only the first [`MAX_SAMPLED_ANNOTATIONS`] of an object are kept.
    Sampled,
    /// Unread annotation, which only the digest in [`super::UNREAD_ANNOTATIONS`] covers.
    Unread,
}

/// Number of [`AnnotationUse::Sampled`] annotations that an object retains.
pub const MAX_SAMPLED_ANNOTATIONS: usize = 10;

type AnnotationUses = Arc<dyn Fn(&str) -> AnnotationUse + Send + Sync>;

/// Fields that are removed from objects before they are decoded, in addition to `metadata.managedFields`. By default none.
#[derive(Clone, Default)]
pub struct UnreadFields {
    /// Fields of `status` to remove.
    pub(super) status: &'static [&'static str],
    /// Fields of each item of `status.conditions` to remove.
    pub(super) condition: &'static [&'static str],
    pub(super) metadata: &'static [&'static str],
    pub(super) spec: &'static [&'static str],
    /// Lists of `spec`, each with the number of items to retain.
    pub(super) spec_lists: Vec<(&'static str, usize)>,
    /// Predicate for the annotations to retain; `None` retains all.
    pub(super) annotations: Option<ReadsKey>,
    pub(super) labels: Option<ReadsKey>,
    /// Uses of annotations, with a digest of the removed ones.
    pub(super) annotation_uses: Option<AnnotationUses>,
}

impl UnreadFields {
    /// Removes these fields of `status`, and of each of its conditions. They must be optional: an object must decode without
    /// them.
    pub fn new(status: &'static [&'static str], condition: &'static [&'static str]) -> Self {
        Self { status, condition, ..Self::default() }
    }

    /// Removes these fields of `metadata` and `spec`, which must be optional.
    pub fn metadata_and_spec(self, metadata: &'static [&'static str], spec: &'static [&'static str]) -> Self {
        Self { metadata, spec, ..self }
    }

    /// Cuts each of these lists of `spec` to its first items, as many as given.
    pub fn spec_lists(self, spec_lists: Vec<(&'static str, usize)>) -> Self {
        Self { spec_lists, ..self }
    }

    /// Removes all annotations that are not read.
    pub fn annotations_but(self, reads: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { annotations: Some(Arc::new(reads)), ..self }
    }

    /// Removes all annotations that are not retained, with [`super::UNREAD_ANNOTATIONS`] in their place.
    pub fn annotations_by_use(self, use_of: impl Fn(&str) -> AnnotationUse + Send + Sync + 'static) -> Self {
        Self { annotation_uses: Some(Arc::new(use_of)), ..self }
    }

    /// Removes all labels that are not read.
    pub fn labels_but(self, reads: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { labels: Some(Arc::new(reads)), ..self }
    }
}
