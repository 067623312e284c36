//! Data-plane user-assigned identity: a file that another component renews, with a certificate of the identity.
//!
//! In: the file. Out: tokens. The file is read at each fetch. Its certificate replaces the current one only if `not_before` is later;
//! an unreadable file changes nothing. Upstream: `msi-dataplane`'s `UserAssignedIdentityCredential`.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use azure_core::base64;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;

use super::{
    AuthError,
    certificate::CertificateSigner,
    credential_config::EntraApplication,
    entra::{ClientCredential, ServicePrincipal, TokenAuthority},
    token::{BearerToken, TokenFetcher},
};

const FIELD: &str = "aadMSIDataPlaneIdentityPath";

#[derive(Deserialize)]
struct DataPlaneDocument {
    client_id: String,
    client_secret: String,
    tenant_id: String,
    authentication_endpoint: String,
    not_before: Timestamp,
}

/// Credential that the file contains.
#[derive(Debug, Clone)]
struct DataPlaneCredential {
    application: EntraApplication,
    login_endpoint: String,
    signer: Arc<CertificateSigner>,
    not_before: Timestamp,
}

impl DataPlaneCredential {
    /// Parses the document. The error names the key, not its value.
    fn parse(text: &str) -> Result<Self, String> {
        let document: DataPlaneDocument = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("not the JSON of a data-plane identity (client_id, client_secret, tenant_id, authentication_endpoint, not_before), line {line} column {column}")
        })?;
        let missing = [
            ("client_id", &document.client_id),
            ("tenant_id", &document.tenant_id),
            ("authentication_endpoint", &document.authentication_endpoint),
        ];
        if let Some((key, _)) = missing.into_iter().find(|(_, value)| value.is_empty()) {
            return Err(format!("{key} is empty"));
        }
        let file = base64::decode(&document.client_secret).map_err(|_| "client_secret is not base64".to_owned())?;
        let signer = CertificateSigner::read(&file, "").map_err(|reason| format!("client_secret: {reason}"))?;
        let login_endpoint = format!("{}/", document.authentication_endpoint.trim_end_matches('/'));
        if !login_endpoint.starts_with("https://") {
            return Err("authentication_endpoint is not an https URL".to_owned());
        }
        let application = EntraApplication { tenant: document.tenant_id, client_id: document.client_id };
        Ok(Self { application, login_endpoint, signer: Arc::new(signer), not_before: document.not_before })
    }
}

/// Identity that follows its file.
pub(super) struct DataPlaneIdentity {
    authority: TokenAuthority,
    path: PathBuf,
    current: Mutex<DataPlaneCredential>,
}

impl DataPlaneIdentity {
    /// Reads the file for the first time.
    pub(super) async fn open(authority: TokenAuthority, path: PathBuf) -> Result<Self, AuthError> {
        let current = Mutex::new(load(&path).await?);
        Ok(Self { authority, path, current })
    }

    async fn newest(&self) -> DataPlaneCredential {
        let read = load(&self.path).await;
        let mut current = self.current.lock();
        match read {
            Ok(found) if found.not_before > current.not_before => *current = found,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "identity reload failed, previous identity kept"),
        }
        current.clone()
    }
}

async fn load(path: &PathBuf) -> Result<DataPlaneCredential, AuthError> {
    let bad = |reason: String| AuthError::configuration(FIELD, format!("{}: {reason}", path.display()));
    let text = tokio::fs::read_to_string(path).await.map_err(|error| bad(error.to_string()))?;
    DataPlaneCredential::parse(&text).map_err(bad)
}

#[async_trait]
impl TokenFetcher for DataPlaneIdentity {
    async fn fetch(&self, scope: &str) -> Result<BearerToken, AuthError> {
        let DataPlaneCredential { application, login_endpoint, signer, .. } = self.newest().await;
        let authority = TokenAuthority { login_endpoint, ..self.authority.clone() };
        ServicePrincipal { authority, application, credential: ClientCredential::Certificate(signer) }.fetch(scope).await
    }
}

#[cfg(all(test, feature = "pfx"))]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::providers::azure::auth::tests::certificates::make;

    #[test]
    fn errors_name_the_key_and_never_the_value() {
        let pfx = base64::encode(make("").pfx);
        let good = json!({
            "client_id": "c", "client_secret": pfx, "tenant_id": "t", "not_before": "2026-01-01T00:00:00Z",
            "authentication_endpoint": "https://login.microsoftonline.com/", "object_id": "o", "renew_after": null,
        });
        let parsed = DataPlaneCredential::parse(&good.to_string()).unwrap();
        assert_eq!(parsed.login_endpoint, "https://login.microsoftonline.com/");
        for (key, value, named) in [
            ("client_id", "", "client_id"),
            ("client_secret", "planted!", "client_secret is not base64"),
            ("client_secret", "cGxhbnRlZA==", "client_secret: neither"),
            ("authentication_endpoint", "http://login", "https"),
            ("not_before", "planted", "not_before"),
        ] {
            let mut document = good.clone();
            document[key] = json!(value);
            let error = DataPlaneCredential::parse(&document.to_string()).unwrap_err();
            assert!(error.contains(named) && !error.contains("planted"), "{error}");
        }
    }
}
