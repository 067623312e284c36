//! Tokens for a managed identity: from the instance metadata service (IMDS), or from App Service.
//!
//! In: the environment, the identity, the resource. Out: a request; from its response a token. The protocol is implemented
//! here and not taken from azure_identity 1.0, which has a fixed address for IMDS, retries silently for over a minute, reads
//! the process's environment, and rejects resource IDs on App Service, which upstream accepts. Upstream: the Azure SDK's
//! `managedidentity` (order of the sources, parameter names, API versions).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use azure_core::{credentials::Secret, http::Url};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value as Json;

use super::{
    AuthError,
    credential_config::ManagedIdentityId,
    identity_answer::{TokenRequestContext, explain},
    token::{BearerToken, TokenFetcher},
};
use crate::{providers::azure::transport::ArmTransport, runtime::clock::Clock};

const IMDS: &str = "http://169.254.169.254";

/// Service that issues tokens for managed identities on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ManagedIdentityService {
    /// URL of token requests, without query.
    endpoint: String,
    /// Secret header of App Service, or of services with its protocol; `None` for IMDS.
    header: Option<Secret>,
}

impl ManagedIdentityService {
    /// Returns the instance metadata service at the address `base`.
    fn imds(base: &str) -> Self {
        Self { endpoint: format!("{}/metadata/identity/oauth2/token", base.trim_end_matches('/')), header: None }
    }

    /// Returns the service that the environment selects, in the order of the Azure SDK.
    pub(super) fn detect(environment: &BTreeMap<String, String>) -> Result<Self, AuthError> {
        let read = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        let unsupported = |name: &str, subject: &str| {
            let message = format!("{subject} managed identities are not supported; unset it to use IMDS");
            Err(AuthError::configuration(name, message))
        };
        match (read("IDENTITY_ENDPOINT"), read("IDENTITY_HEADER"), read("MSI_ENDPOINT")) {
            (Some(_), Some(_), _) if read("IDENTITY_SERVER_THUMBPRINT").is_some() => {
                unsupported("IDENTITY_SERVER_THUMBPRINT", "Service Fabric")
            }
            (Some(endpoint), Some(header), _) => {
                Ok(Self { endpoint: endpoint.clone(), header: Some(Secret::new(header.clone())) })
            }
            (Some(_), None, _) if read("IMDS_ENDPOINT").is_some() => unsupported("IDENTITY_ENDPOINT", "Azure Arc"),
            (None, _, Some(_)) if read("MSI_SECRET").is_some() => unsupported("MSI_SECRET", "Azure ML"),
            (None, _, Some(_)) => unsupported("MSI_ENDPOINT", "Cloud Shell"),
            _ => Ok(Self::imds(read("IMDS_ENDPOINT").map_or(IMDS, String::as_str))),
        }
    }

    /// Returns the request for a token for `resource`.
    fn request(&self, identity: &ManagedIdentityId, resource: &str) -> Result<http::Request<Bytes>, AuthError> {
        let (variable, version, resource_id) = match self.header {
            None => ("IMDS_ENDPOINT", "2018-02-01", "msi_res_id"),
            Some(_) => ("IDENTITY_ENDPOINT", "2019-08-01", "mi_res_id"),
        };
        let bad = |reason: String| AuthError::configuration(variable, reason);
        let mut url = Url::parse(&self.endpoint).map_err(|error| bad(format!("not a URL: {error}")))?;
        url.query_pairs_mut().append_pair("api-version", version).append_pair("resource", resource);
        match identity {
            ManagedIdentityId::System => {}
            ManagedIdentityId::Client(id) => drop(url.query_pairs_mut().append_pair("client_id", id)),
            ManagedIdentityId::Resource(id) => drop(url.query_pairs_mut().append_pair(resource_id, id)),
            ManagedIdentityId::Object(id) => drop(url.query_pairs_mut().append_pair("object_id", id)),
        }
        let request = http::Request::get(url.as_str());
        let request = match &self.header {
            None => request.header("metadata", "true"),
            Some(header) => request.header("x-identity-header", header.secret()),
        };
        request.body(Bytes::new()).map_err(|_| bad("cannot be sent".to_owned()))
    }
}

/// Fetcher of tokens for a managed identity.
pub(super) struct ManagedIdentityFetcher {
    pub(super) service: ManagedIdentityService,
    pub(super) identity: ManagedIdentityId,
    pub(super) transport: Arc<dyn ArmTransport>,
    pub(super) clock: Clock,
}

impl ManagedIdentityFetcher {
    fn name(&self) -> String {
        match &self.identity {
            ManagedIdentityId::System => "the system-assigned identity of this machine".to_owned(),
            ManagedIdentityId::Client(id) => format!("the managed identity with client id {id}"),
            ManagedIdentityId::Resource(id) => format!("the managed identity {id}"),
            ManagedIdentityId::Object(id) => format!("the managed identity with object id {id}"),
        }
    }
}

#[async_trait]
impl TokenFetcher for ManagedIdentityFetcher {
    async fn fetch(&self, scope: &str) -> Result<BearerToken, AuthError> {
        let resource = scope.strip_suffix("/.default").unwrap_or(scope);
        let result = self.transport.send(self.service.request(&self.identity, resource)?).await;
        let good = result.as_ref().ok().filter(|response| response.status().is_success());
        let token = good.and_then(|response| read(response.body(), &self.clock));
        token.ok_or_else(|| {
            let ManagedIdentityService { endpoint, header } = &self.service;
            let field = "userAssignedIdentityID: is this identity assigned to the machine?";
            let secrets = header.as_ref().map(Secret::secret);
            let (identity, secrets) = (&self.name(), secrets.as_slice());
            explain(&result, TokenRequestContext { identity, endpoint, secrets, field })
        })
    }
}

#[derive(Deserialize)]
struct ManagedIdentityAnswer {
    access_token: String,
    #[serde(default)]
    expires_on: Json,
    #[serde(default)]
    expires_in: Json,
}

/// Parses a number, which services send as a number or as text.
fn number(value: &Json) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}

fn read(body: &[u8], clock: &Clock) -> Option<BearerToken> {
    let response: ManagedIdentityAnswer = serde_json::from_slice(body).ok()?;
    let until = || Some(number(&response.expires_on)? - clock.wall().as_second());
    let seconds = number(&response.expires_in).or_else(until)?;
    let lifetime = Duration::from_secs(u64::try_from(seconds).ok()?);
    BearerToken::new(&Secret::new(response.access_token), clock.now(), lifetime)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(variables: &[(&str, &str)]) -> Result<ManagedIdentityService, String> {
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ManagedIdentityService::detect(&environment).map_err(|error| error.to_string())
    }

    #[test]
    fn sources_in_the_order_of_the_sdk() {
        assert_eq!(detect(&[]), Ok(ManagedIdentityService::imds(IMDS)));
        let moved = detect(&[("IMDS_ENDPOINT", "http://localhost:1/")]);
        assert_eq!(moved, Ok(ManagedIdentityService::imds("http://localhost:1/")));
        let app = [("IDENTITY_ENDPOINT", "http://e"), ("IDENTITY_HEADER", "planted"), ("MSI_ENDPOINT", "http://m")];
        assert!(detect(&app).unwrap().header.is_some());
        assert!(!format!("{:?}", detect(&app)).contains("planted"));
        let app = [("IDENTITY_ENDPOINT", "e"), ("IDENTITY_HEADER", "h"), ("IDENTITY_SERVER_THUMBPRINT", "t")];
        for (variables, named) in [
            (&app[..], "Service Fabric"),
            (&[("IDENTITY_ENDPOINT", "e"), ("IMDS_ENDPOINT", "i")], "Azure Arc"),
            (&[("MSI_ENDPOINT", "e"), ("MSI_SECRET", "s")], "Azure ML"),
            (&[("MSI_ENDPOINT", "e")], "Cloud Shell"),
        ] {
            let error = detect(variables).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn requests_name_the_identity_in_the_format_of_the_source() {
        let imds = ManagedIdentityService::imds("http://imds/");
        let app = ManagedIdentityService { endpoint: "http://app/token".to_owned(), header: Some(Secret::new("h")) };
        let id = || "a/b".to_owned();
        let imds_url = "http://imds/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Faud%2F";
        let app_url = "http://app/token?api-version=2019-08-01&resource=https%3A%2F%2Faud%2F";
        for (source, identity, header, url) in [
            (&imds, ManagedIdentityId::System, ("metadata", "true"), imds_url.to_owned()),
            (&imds, ManagedIdentityId::Resource(id()), ("metadata", "true"), format!("{imds_url}&msi_res_id=a%2Fb")),
            (&app, ManagedIdentityId::Resource(id()), ("x-identity-header", "h"), format!("{app_url}&mi_res_id=a%2Fb")),
            (&app, ManagedIdentityId::Client(id()), ("x-identity-header", "h"), format!("{app_url}&client_id=a%2Fb")),
        ] {
            let request = source.request(&identity, "https://aud/").unwrap();
            assert_eq!(request.uri().to_string(), url);
            assert_eq!(request.headers()[header.0], header.1);
        }
        let bad = ManagedIdentityService::imds("imds").request(&ManagedIdentityId::System, "x").unwrap_err();
        assert!(bad.is_configuration() && bad.to_string().starts_with("IMDS_ENDPOINT"), "{bad}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_expiry_is_a_time_or_duration_as_text_or_number() {
        let clock = Clock::manual("2030-01-01T00:00:00Z".parse().unwrap());
        let moment = clock.wall().as_second() + 90;
        let rows = [
            (format!(r#"{{"access_token":"t","expires_on":"{moment}"}}"#), Some(90)),
            (format!(r#"{{"access_token":"t","expires_on":{moment}}}"#), Some(90)),
            (format!(r#"{{"access_token":"t","expires_on":"{moment}","expires_in":"60"}}"#), Some(60)),
            (r#"{"access_token":"t"}"#.to_owned(), None),
            (r#"{"access_token":"","expires_in":60}"#.to_owned(), None),
            (r#"{"access_token":"t","expires_in":-60}"#.to_owned(), None),
            ("{}".to_owned(), None),
        ];
        for (body, seconds) in rows {
            let remaining = read(body.as_bytes(), &clock).map(|token| (token.expires() - clock.now()).as_secs());
            assert_eq!(remaining, seconds, "{body}");
        }
    }
}
