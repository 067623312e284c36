//! Tokens through an identity binding: the cluster's API server exchanges a service account token for a token of Entra.
//!
//! In: the address of the API server, the service account token, the application. Out: a token for registries, or a remedy. Only the
//! cluster's certificate authority is trusted. The server is reached at the configured address, and never through a proxy.

use std::{net::IpAddr, sync::Arc, time::Duration};

use azure_core::{credentials::Secret, http::Url};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use tokio::io::AsyncReadExt;

use super::{
    exchange::{form_of, token_in},
    wires::ImageCredentialWires,
};
use crate::{
    cloud_provider::config::IdentityBindingConfig,
    providers::azure::{
        auth::{PinnedHost, safe_line},
        transport::ArmTransport,
    },
};

/// Timeout of the DNS lookup of a name in `--ib-apiserver-ip`.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of the file of certificate authorities, in bytes.
const MAX_AUTHORITIES: u64 = 1 << 20;
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Fetches a token of the application `client_id` for `scope`.
pub(super) async fn token(
    binding: &IdentityBindingConfig,
    wires: &dyn ImageCredentialWires,
    client_id: &str,
    assertion: &Secret,
    scope: &str,
) -> Result<Secret, String> {
    let (url, transport) = open(binding, wires).await?;
    let form = form_of(&[
        ("grant_type", "client_credentials"),
        ("client_assertion_type", ASSERTION_TYPE),
        ("scope", scope),
        ("client_assertion", assertion.secret()),
        ("client_id", client_id),
    ]);
    let request = Request::post(url.as_str()).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let request = request.body(Bytes::from(form)).map_err(|error| error.to_string())?;
    let failed = |text: String| format!("--ib-sni-name {}: {}", binding.sni_name, safe_line(&text, &[assertion.secret()]));
    let response = transport.send(request).await.map_err(|error| failed(error.to_string()))?;
    if response.status() != StatusCode::OK {
        return Err(failed(format!("the token was refused with HTTP {}", response.status())));
    }
    token_in(response.body(), "access_token").ok_or_else(|| failed("the response has no access_token".to_owned()))
}

async fn open(
    binding: &IdentityBindingConfig,
    wires: &dyn ImageCredentialWires,
) -> Result<(Url, Arc<dyn ArmTransport>), String> {
    let bad_name = || format!("--ib-sni-name {}: expected a host name", binding.sni_name);
    let url = Url::parse(&format!("https://{}/", binding.sni_name)).map_err(|_| bad_name())?;
    let name = url.host_str().filter(|_| url.path() == "/" && url.username().is_empty()).ok_or_else(bad_name)?.to_owned();
    let bad_file = |reason: String| format!("--ib-ca-file {}: {reason}", binding.ca_file.display());
    let file = tokio::fs::File::open(&binding.ca_file).await.map_err(|error| bad_file(error.to_string()))?;
    let mut authorities = Vec::new();
    file.take(MAX_AUTHORITIES).read_to_end(&mut authorities).await.map_err(|error| bad_file(error.to_string()))?;
    let host = PinnedHost { name, address: address(&binding.api_server).await?, authorities };
    Ok((url, wires.pinned(&host).map_err(|error| bad_file(error.to_string()))?))
}

async fn address(server: &str) -> Result<IpAddr, String> {
    if let Ok(address) = server.parse() {
        return Ok(address);
    }
    let found = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((server, 443))).await;
    let bad = |reason: String| {
        format!("--ib-apiserver-ip {server}: expected an IP address, or a name that resolves to one: {reason}")
    };
    let mut found = found
        .map_err(|_| bad(format!("no response within {} s", LOOKUP_TIMEOUT.as_secs())))?
        .map_err(|error| bad(error.to_string()))?;
    found.next().map(|found| found.ip()).ok_or_else(|| bad("it resolves to none".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream: `TestParseIdentityBindingsConfig`.
    #[tokio::test]
    async fn the_server_is_an_address_or_a_resolvable_name() {
        for server in ["10.0.0.1", "2001:db8::1"] {
            assert_eq!(address(server).await.map(|found| found.to_string()).as_deref(), Ok(server));
        }
        assert!(address("localhost").await.unwrap().is_loopback());
        for server in ["invalid-hostname.invalid", "999.999.999.999", "https://10.0.0.1", ""] {
            let error = address(server).await.unwrap_err();
            let expected = format!("--ib-apiserver-ip {server}: expected an IP address, or a name that resolves to one: ");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
