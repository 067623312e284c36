//! Callers, and the reasons why a request has none. Pure.

use std::collections::BTreeMap;

use crate::serving::review_cache::ByteSize;

pub(super) const ANONYMOUS: &str = "system:anonymous";

pub(super) const UNAUTHENTICATED: &str = "system:unauthenticated";

pub(super) const AUTHENTICATED: &str = "system:authenticated";

/// Authenticated or anonymous caller.
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

    /// Adds `system:authenticated` to every authenticated user; a proxy may also name an anonymous user.
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

/// Reason why a request has no user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthenticationError {
    /// Credential that is invalid or could not be checked.
    #[error("{0}")]
    Rejected(String),
    /// Refusal, because too many credentials are being checked. The caller may retry.
    #[error("too many requests wait for a TokenReview")]
    TooMany,
}

impl From<String> for AuthenticationError {
    fn from(error: String) -> Self {
        Self::Rejected(error)
    }
}

/// Result of one authenticator: a user, or none if it does not apply; an error is an invalid credential.
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
