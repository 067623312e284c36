//! Tokens for an application registered in Entra (or AD FS), through azure_identity.
//!
//! In: the application and its proof (secret, certificate, projected token). Out: a token, or a remedy. A credential of
//! azure_identity is used for one fetch only: its cache would keep a token that ARM has rejected, and fail callers when a refresh fails.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use azure_core::{
    cloud::{CloudConfiguration, CustomConfiguration},
    credentials::{AccessToken, Secret, TokenCredential},
    http::{ClientMethodOptions, ClientOptions, RetryOptions, Transport as AzureTransport, Url},
};
use azure_identity::{
    ClientAssertion, ClientAssertionCredential, ClientAssertionCredentialOptions, ClientSecretCredential,
    ClientSecretCredentialOptions,
};
use parking_lot::Mutex;

use super::{
    AuthError,
    assertion::{AssertionClaims, assertion},
    certificate::{CertificateSigner, SignatureAlgorithm},
    credential_config::EntraApplication,
    identity_answer::{TokenRequestContext, explain},
    identity_http::IdentityHttpClient,
    token::{BearerToken, TokenFetcher},
};
use crate::{providers::azure::transport::ArmTransport, runtime::clock::Clock};

/// Proof of an application's identity.
#[derive(Debug, Clone)]
pub(super) enum ClientCredential {
    Secret(Secret),
    /// Certificate that has been read.
    Certificate(Arc<CertificateSigner>),
    /// Path of a projected token, which is read at each fetch.
    TokenFile(PathBuf),
    /// Service account token that the caller supplied.
    Assertion(Secret),
}

/// Authority that issues the applications' tokens.
#[derive(Clone)]
pub(super) struct TokenAuthority {
    /// Base URL, with a slash at the end.
    pub(super) login_endpoint: String,
    /// Whether the authority is AD FS instead of Entra.
    pub(super) adfs: bool,
    pub(super) transport: Arc<dyn ArmTransport>,
    pub(super) clock: Clock,
}

/// Application that fetches tokens.
#[derive(Clone)]
pub(super) struct ServicePrincipal {
    pub(super) authority: TokenAuthority,
    pub(super) application: EntraApplication,
    pub(super) credential: ClientCredential,
}

/// Assertion that was created before, for azure_identity.
#[derive(Debug)]
struct StaticAssertion(Secret);

#[async_trait]
impl ClientAssertion for StaticAssertion {
    async fn secret(&self, _: Option<ClientMethodOptions<'_>>) -> azure_core::Result<String> {
        Ok(self.0.secret().to_owned())
    }
}

impl ServicePrincipal {
    fn endpoint(&self) -> String {
        let login = Url::parse(&self.authority.login_endpoint);
        let host = login.map(|url| url.origin().ascii_serialization()).unwrap_or_default();
        let version = if self.authority.adfs { "" } else { "v2.0/" };
        format!("{host}/{}/oauth2/{version}token", self.application.tenant)
    }

    fn field(&self) -> &'static str {
        match self.credential {
            ClientCredential::Secret(_) => "aadClientId and aadClientSecret",
            ClientCredential::Certificate(_) => "aadClientId and aadClientCertPath",
            ClientCredential::TokenFile(_) => "aadClientId and aadFederatedTokenFile",
            ClientCredential::Assertion(_) => "the annotations of the service account",
        }
    }

    fn options(&self, http_client: &Arc<IdentityHttpClient>) -> ClientOptions {
        let mut custom = CustomConfiguration::default();
        custom.authority_host.clone_from(&self.authority.login_endpoint);
        ClientOptions {
            retry: RetryOptions::none(),
            transport: Some(AzureTransport::new(Arc::<IdentityHttpClient>::clone(http_client))),
            cloud: Some(Arc::new(CloudConfiguration::Custom(custom))),
            ..ClientOptions::default()
        }
    }

    /// Returns the secret to send: the secret itself, a new assertion, or the projected token.
    async fn secret_to_send(&self) -> Result<Secret, AuthError> {
        match &self.credential {
            ClientCredential::Secret(secret) | ClientCredential::Assertion(secret) => Ok(secret.clone()),
            ClientCredential::Certificate(signer) => self.signed(signer),
            ClientCredential::TokenFile(path) => read_token_file(path).await,
        }
    }

    fn signed(&self, signer: &CertificateSigner) -> Result<Secret, AuthError> {
        let signature = if self.authority.adfs { SignatureAlgorithm::Rs256 } else { SignatureAlgorithm::Ps256 };
        let claims = AssertionClaims {
            client_id: &self.application.client_id,
            audience: &self.endpoint(),
            now: self.authority.clock.wall().as_second(),
            id: &uuid::Uuid::new_v4().to_string(),
        };
        let signed = assertion(signer, signature, claims);
        signed.map(Secret::new).map_err(|reason| AuthError::configuration("aadClientCertPath", reason))
    }

    async fn request_token(
        &self,
        http_client: &Arc<IdentityHttpClient>,
        proof: &Secret,
        scope: &str,
    ) -> azure_core::Result<AccessToken> {
        let EntraApplication { tenant, client_id } = self.application.clone();
        let client_options = self.options(http_client);
        if matches!(self.credential, ClientCredential::Secret(_)) {
            let options = ClientSecretCredentialOptions { client_options };
            let credential = ClientSecretCredential::new(&tenant, client_id, proof.clone(), Some(options))?;
            return credential.get_token(&[scope], None).await;
        }
        let options = ClientAssertionCredentialOptions { client_options };
        let credential = ClientAssertionCredential::new(tenant, client_id, StaticAssertion(proof.clone()), Some(options))?;
        credential.get_token(&[scope], None).await
    }

    fn token(&self, response: &AccessToken) -> Option<BearerToken> {
        // azure_identity computes the expiry from the machine's clock, not from ours.
        let seconds = response.expires_on.unix_timestamp() - Clock::System.wall().as_second();
        let lifetime = Duration::from_secs(u64::try_from(seconds).ok()?);
        BearerToken::new(&response.token, self.authority.clock.now(), lifetime)
    }

    fn failure(&self, http_client: &IdentityHttpClient, proof: &Secret, error: Option<&azure_core::Error>) -> AuthError {
        let Some(result) = http_client.last_response() else {
            let reason = error.map(ToString::to_string).unwrap_or_default();
            return AuthError::configuration(
                "tenantId and aadClientId",
                super::error::safe_line(&reason, &[proof.secret()]),
            );
        };
        let identity = format!("application {} in tenant {}", self.application.client_id, self.application.tenant);
        let context = TokenRequestContext {
            identity: &identity,
            endpoint: &self.endpoint(),
            secrets: &[proof.secret()],
            field: self.field(),
        };
        explain(&result, context)
    }
}

#[async_trait]
impl TokenFetcher for ServicePrincipal {
    async fn fetch(&self, scope: &str) -> Result<BearerToken, AuthError> {
        let proof = self.secret_to_send().await?;
        let http_client = Arc::new(IdentityHttpClient::new(Arc::clone(&self.authority.transport), self.authority.adfs));
        match self.request_token(&http_client, &proof, scope).await {
            Ok(response) => self.token(&response).ok_or_else(|| self.failure(&http_client, &proof, None)),
            Err(error) => Err(self.failure(&http_client, &proof, Some(&error))),
        }
    }
}

async fn read_token_file(path: &PathBuf) -> Result<Secret, AuthError> {
    let field = "aadFederatedTokenFile";
    let read = tokio::fs::read_to_string(path).await;
    let text = read.map_err(|error| AuthError::configuration(field, format!("{}: {error}", path.display())))?;
    match text.trim() {
        "" => Err(AuthError::configuration(field, format!("{}: it is empty", path.display()))),
        token => Ok(Secret::new(token.to_owned())),
    }
}

/// Service principal whose certificate is read again at each fetch, so that it can be rotated in place.
///
/// While the file is unreadable, the last good certificate is used.
pub(super) struct CertificateFilePrincipal {
    authority: TokenAuthority,
    application: EntraApplication,
    path: PathBuf,
    password: Secret,
    last: Mutex<Arc<CertificateSigner>>,
}

impl CertificateFilePrincipal {
    /// Reads the file for the first time.
    pub(super) async fn open(
        authority: TokenAuthority,
        application: EntraApplication,
        path: PathBuf,
        password: Secret,
    ) -> Result<Self, AuthError> {
        let last = Mutex::new(read_certificate(&path, &password).await?);
        Ok(Self { authority, application, path, password, last })
    }

    async fn signer(&self) -> Arc<CertificateSigner> {
        let read = read_certificate(&self.path, &self.password).await;
        let mut last = self.last.lock();
        match read {
            Ok(signer) => *last = signer,
            Err(error) => tracing::warn!(%error, "certificate reload failed, previous certificate kept"),
        }
        Arc::clone(&last)
    }
}

async fn read_certificate(path: &PathBuf, password: &Secret) -> Result<Arc<CertificateSigner>, AuthError> {
    let bad = |reason: String| AuthError::configuration("aadClientCertPath", format!("{}: {reason}", path.display()));
    let file = tokio::fs::read(path).await.map_err(|error| bad(error.to_string()))?;
    CertificateSigner::read(&file, password.secret()).map(Arc::new).map_err(bad)
}

#[async_trait]
impl TokenFetcher for CertificateFilePrincipal {
    async fn fetch(&self, scope: &str) -> Result<BearerToken, AuthError> {
        let credential = ClientCredential::Certificate(self.signer().await);
        let principal =
            ServicePrincipal { authority: self.authority.clone(), application: self.application.clone(), credential };
        principal.fetch(scope).await
    }

    fn certificate_expires(&self) -> Option<i64> {
        self.last.lock().expires()
    }
}
