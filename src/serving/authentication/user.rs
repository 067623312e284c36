//! A caller, and why there is none. Pure.

use std::collections::BTreeMap;

use crate::serving::review_cache::ByteSize;

pub(super) const ANONYMOUS: &str = "system:anonymous";

pub(super) const UNAUTHENTICATED: &str = "system:unauthenticated";

pub(super) const AUTHENTICATED: &str = "system:authenticated";

/// A caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestUser {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl RequestUser {
    pub(super) fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Default::default() }
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// Everyone who is known is in `system:authenticated`; a proxy may also pass on that someone is not known.
    pub(super) fn with_authenticated_group(mut self) -> Self {
        let grouped = self.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
        if !grouped && !self.is_anonymous() {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

impl ByteSize for RequestUser {
    fn size(&self) -> usize {
        let texts = self.groups.iter().chain(self.extra.keys()).chain(self.extra.values().flatten());
        let each = |text: &String| text.len() + size_of::<String>();
        each(&self.name) + each(&self.uid) + texts.map(each).sum::<usize>()
    }
}

/// Why a request has no user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthenticationError {
    /// A credential was presented that is wrong, or that nobody could check.
    #[error("{0}")]
    Rejected(String),
    /// Too many credentials are being checked; the caller should come again.
    #[error("too many requests wait for a TokenReview")]
    TooMany,
}

impl From<String> for AuthenticationError {
    fn from(error: String) -> Self {
        Self::Rejected(error)
    }
}

/// What one way of authentication says: someone, or that it does not apply; an error is a credential that does not count.
pub(super) type AuthenticationResult = Result<Option<RequestUser>, AuthenticationError>;

impl ByteSize for AuthenticationResult {
    fn size(&self) -> usize {
        match self {
            Ok(user) => user.as_ref().map_or(0, RequestUser::size),
            Err(AuthenticationError::Rejected(error)) => error.len(),
            Err(AuthenticationError::TooMany) => 0,
        }
    }
}
