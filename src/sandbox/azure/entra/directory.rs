//! Tenants, with their principals and issued tokens.

use std::{collections::BTreeMap, fmt};

use jiff::{SignedDuration, Timestamp};

use super::{Endpoint, Refusal};
use crate::sandbox::azure::topology::uuid;

/// Lifetime of a token.
const LIFETIME: SignedDuration = SignedDuration::from_secs(3_599);

/// Proof of a principal's identity.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    Secret(String),
    /// Certificate in DER encoding.
    Certificate(Vec<u8>),
    /// Service account token of a federated issuer, verbatim.
    FederatedToken(String),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "Secret",
            Self::Certificate(_) => "Certificate",
            Self::FederatedToken(_) => "FederatedToken",
        })
    }
}

/// Principal that can get tokens, in one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub tenant: String,
    pub client_id: String,
    /// ID as an object of the directory.
    pub object_id: String,
    /// Accepted proofs of its identity.
    pub credentials: Vec<Credential>,
}

impl Principal {
    /// Creates a principal without credentials, such as that of a managed identity.
    pub fn new(tenant: &str, client_id: &str) -> Self {
        let object_id = uuid(0, &format!("{tenant}/{client_id}"));
        Self { tenant: tenant.to_owned(), client_id: client_id.to_owned(), object_id, credentials: Vec::new() }
    }

    /// Accepts one of the registered secrets.
    pub(super) fn check_secret(&self, secret: &str) -> Result<(), Refusal> {
        let existing = self.credentials.iter().any(|found| matches!(found, Credential::Secret(text) if text == secret));
        if existing { Ok(()) } else { Err(Refusal::secret(&self.client_id)) }
    }

    pub(super) fn has_federated_token(&self, token: &str) -> bool {
        self.credentials.iter().any(|found| matches!(found, Credential::FederatedToken(text) if text == token))
    }

    pub(super) fn certificates(&self) -> impl Iterator<Item = &[u8]> {
        self.credentials.iter().filter_map(|found| match found {
            Credential::Certificate(der) => Some(der.as_slice()),
            _ => None,
        })
    }

    pub(super) fn has_certificate(&self) -> bool {
        self.certificates().next().is_some()
    }
}

/// A token that was issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Tenant it was issued in.
    pub tenant: String,
    /// ID of the principal as an application.
    pub client_id: String,
    /// ID of the principal as an object of the directory.
    pub object_id: String,
    /// Audience of the token.
    pub audience: String,
    /// Time at which it expires.
    pub expires: Timestamp,
}

/// Validity of the text in an `Authorization` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenState {
    /// Token that is valid now.
    Valid(Token),
    /// Token that was valid before.
    Expired(Token),
    /// Text that is no token of this directory, or a revoked one.
    Unknown,
}

#[derive(Debug, Default)]
pub struct Directory {
    tenants: Vec<String>,
    principals: Vec<Principal>,
    tokens: BTreeMap<String, Token>,
    issued: u64,
    traces: u64,
}

impl Directory {
    /// Registers a tenant without principals.
    pub fn add_tenant(&mut self, tenant: &str) {
        if !self.has_tenant(tenant) {
            self.tenants.push(tenant.to_owned());
        }
    }

    fn has_tenant(&self, tenant: &str) -> bool {
        self.tenants.iter().any(|existing| existing.eq_ignore_ascii_case(tenant))
    }

    /// Adds a credential of a principal, which is created if missing.
    pub fn add_credential(&mut self, tenant: &str, client_id: &str, credential: Credential) {
        self.add_tenant(tenant);
        let existing = |found: &&mut Principal| found.is(tenant, client_id);
        match self.principals.iter_mut().find(existing) {
            Some(principal) => principal.credentials.push(credential),
            None => {
                let principal = Principal::new(tenant, client_id);
                self.principals.push(Principal { credentials: vec![credential], ..principal });
            }
        }
    }

    /// Removes all credentials of an application, in all tenants; its tokens remain valid.
    pub fn remove_credentials(&mut self, client_id: &str) {
        for principal in self.principals.iter_mut().filter(|found| found.client_id.eq_ignore_ascii_case(client_id)) {
            principal.credentials.clear();
        }
    }

    /// Revokes all tokens: ARM no longer accepts them.
    pub fn revoke_tokens(&mut self) {
        self.tokens.clear();
    }

    /// Returns how many tokens were ever issued.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    pub(super) fn principal(&self, endpoint: Endpoint<'_>, client_id: &str) -> Result<&Principal, Refusal> {
        if !self.has_tenant(endpoint.tenant) {
            return Err(Refusal::tenant(endpoint.tenant));
        }
        let found = self.principals.iter().find(|found| found.is(endpoint.tenant, client_id));
        found.ok_or_else(|| Refusal::application(client_id, endpoint.tenant))
    }

    /// Issues a token for `audience`. Returns its text and its lifetime in seconds.
    pub fn issue(&mut self, principal: &Principal, audience: &str, now: Timestamp) -> (String, i64) {
        self.issued += 1;
        let text = format!("sandbox-token-{}-{}", self.issued, uuid(self.issued, &principal.object_id).replace('-', ""));
        let token = Token {
            tenant: principal.tenant.clone(),
            client_id: principal.client_id.clone(),
            object_id: principal.object_id.clone(),
            audience: audience.to_owned(),
            expires: now.checked_add(LIFETIME).unwrap_or(Timestamp::MAX),
        };
        self.tokens.insert(text.clone(), token);
        (text, LIFETIME.as_secs())
    }

    /// Returns the validity of this text at `now`.
    pub fn token(&self, text: &str, now: Timestamp) -> TokenState {
        match self.tokens.get(text) {
            None => TokenState::Unknown,
            Some(token) if token.expires <= now => TokenState::Expired(token.clone()),
            Some(token) => TokenState::Valid(token.clone()),
        }
    }

    /// Returns the reason why a server with these audiences would reject a token, if any.
    ///
    /// A slash at the end of an audience and letter case do not matter.
    pub fn problem(&self, text: &str, audiences: &[&str], now: Timestamp) -> Option<String> {
        let plain = |audience: &str| audience.trim_end_matches('/').to_ascii_lowercase();
        match self.token(text, now) {
            TokenState::Unknown => Some("The access token is invalid.".to_owned()),
            TokenState::Expired(token) => {
                let expired = token.expires;
                Some(format!("The access token expiry UTC time '{expired}' is earlier than current UTC time '{now}'."))
            }
            TokenState::Valid(token) if audiences.iter().any(|audience| plain(audience) == plain(&token.audience)) => None,
            TokenState::Valid(token) => {
                let found = token.audience;
                Some(format!("The access token has been obtained for wrong audience or resource '{found}'."))
            }
        }
    }

    /// Returns a number for the next trace id.
    pub(super) fn next_trace(&mut self) -> u64 {
        self.traces += 1;
        self.traces
    }
}

impl Principal {
    fn is(&self, tenant: &str, client_id: &str) -> bool {
        self.tenant.eq_ignore_ascii_case(tenant) && self.client_id.eq_ignore_ascii_case(client_id)
    }
}
