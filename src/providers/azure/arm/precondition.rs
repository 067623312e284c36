//! Precondition of a write: the state of the document that ARM must find. Pure.
//!
//! In: the document's state that the write was planned on. Out: the request header. A create requires absence, a change the planned
//! version, so that neither an incomplete list nor a concurrent writer makes this program overwrite anything.
//! Upstream sends `If-Match` for load balancers, public IPs, security groups, route tables and scale sets, and creates without a
//! condition.

use http::{HeaderName, header};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition<'a> {
    /// No such document: `If-None-Match: *`.
    Absent,
    /// Document of this version: `If-Match` with ARM's etag, which may be weak (`W/"…"`).
    Version(&'a str),
    /// Document in any version: `If-Match: *`. For documents that were read and came without an etag.
    Exists,
    /// Any state. For documents without a version, and for actions.
    Unconditional,
}

impl<'a> Precondition<'a> {
    /// Requires that a document that was read is unchanged. Without an etag it must still exist.
    pub fn unchanged(etag: Option<&'a str>) -> Self {
        match etag.filter(|etag| !etag.is_empty()) {
            Some(etag) => Precondition::Version(etag),
            None => Precondition::Exists,
        }
    }

    /// Requires the version of kinds with etags in some API versions only, and without a documented `If-Match: *`: those of
    /// compute, and network interfaces.
    ///
    /// Without an etag the write is sent without a condition.
    pub fn unchanged_if_versioned(etag: Option<&'a str>) -> Self {
        match Self::unchanged(etag) {
            Precondition::Exists => Precondition::Unconditional,
            condition => condition,
        }
    }

    pub(super) fn header(self) -> Option<(HeaderName, String)> {
        match self {
            Precondition::Absent => Some((header::IF_NONE_MATCH, "*".to_owned())),
            Precondition::Version(etag) => Some((header::IF_MATCH, etag.to_owned())),
            Precondition::Exists => Some((header::IF_MATCH, "*".to_owned())),
            Precondition::Unconditional => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_was_read_is_never_recreated() {
        let sent = |condition: Precondition<'_>| {
            condition.header().map_or_else(String::new, |(name, value)| format!("{name}: {value}"))
        };
        for (etag, strict, lenient) in [
            (Some("\"1\""), "if-match: \"1\"", "if-match: \"1\""),
            (Some("W/\"1\""), "if-match: W/\"1\"", "if-match: W/\"1\""),
            (Some(""), "if-match: *", ""),
            (None, "if-match: *", ""),
        ] {
            assert_eq!(sent(Precondition::unchanged(etag)), strict, "{etag:?}");
            assert_eq!(sent(Precondition::unchanged_if_versioned(etag)), lenient, "{etag:?}");
        }
        assert_eq!(sent(Precondition::Absent), "if-none-match: *");
        assert_eq!(sent(Precondition::Unconditional), "");
    }
}
