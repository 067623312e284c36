//! What has to hold of a document when ARM carries out a write of it. Pure.
//!
//! In: what the caller knows of the document. Out: the request header. A create is conditional on absence, a change on the version that
//! it was planned on, so that neither a list that lacks a document nor a writer in between makes this program overwrite anything.
//! Upstream sends `If-Match` for load balancers, public IPs, security groups, route tables and scale sets, and creates without a
//! condition.

use http::{HeaderName, header};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition<'a> {
    /// There is no such document: `If-None-Match: *`.
    Absent,
    /// Document of this version: `If-Match` with ARM's etag, which may be weak (`W/"…"`).
    Version(&'a str),
    /// Document in any version: `If-Match: *`. For documents that were read and came without an etag.
    Exists,
    /// Anything. For documents of which ARM gives no version, and for actions.
    Unconditional,
}

impl<'a> Precondition<'a> {
    /// Requires that a document which was read is unchanged. Never treats it as new, whatever its etag.
    pub fn unchanged(etag: Option<&'a str>) -> Self {
        match etag.filter(|etag| !etag.is_empty()) {
            Some(etag) => Precondition::Version(etag),
            None => Precondition::Exists,
        }
    }

    /// Requires the version for kinds that have an etag in some API versions only, and without a documented `If-Match: *`:
    /// those of compute, and network interfaces.
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
    fn what_was_read_is_never_created_anew() {
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
