//! Entra, AD FS, IMDS, App Service, Key Vault and ARM's metadata in memory, behind one [`ArmTransport`].

use std::collections::BTreeMap;

use async_trait::async_trait;
use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256};
use azure_core::http::Url;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value as Json, json};

use super::certificates::verified;
use crate::{
    providers::azure::transport::{ArmTransport, ArmTransportError},
    sandbox::azure::entra::pairs,
};

type Pairs = BTreeMap<String, String>;

/// Proof of an application that Entra accepts.
pub(super) enum Registered {
    Secret(&'static str),
    /// Certificate as DER.
    Certificate(Vec<u8>),
    Federated(String),
}

#[derive(Default)]
pub(super) struct State {
    /// Accepted proofs by tenant and client ID.
    pub(super) applications: BTreeMap<(String, String), Registered>,
    /// Identities assigned to the machine, in the form of the query: `client_id=…`; empty for the system-assigned one.
    pub(super) identities: Vec<String>,
    /// Value of the vault's secret.
    pub(super) vault_secret: Json,
    /// Document of `/metadata/endpoints`.
    pub(super) metadata: Json,
    /// `METHOD URL` of every request, without body.
    pub(super) requests: Vec<String>,
    issued: u64,
}

#[derive(Default)]
pub(super) struct Services {
    state: Mutex<State>,
}

impl Services {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn register(&self, tenant: &str, client: &str, registered: Registered) {
        self.state().applications.insert((tenant.to_owned(), client.to_owned()), registered);
    }
}

#[async_trait]
impl ArmTransport for Services {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, ArmTransportError> {
        tokio::task::yield_now().await;
        let mut state = self.state();
        state.requests.push(format!("{} {}", request.method(), request.uri()));
        let url = Url::parse(&request.uri().to_string()).unwrap();
        let (status, body) = state.respond(&url, &request);
        Ok(http::Response::builder().status(status).body(Bytes::from(body.to_string())).unwrap())
    }
}

impl State {
    fn respond(&mut self, url: &Url, request: &http::Request<Bytes>) -> (u16, Json) {
        let (query, form) = (pairs(url.query().unwrap_or_default()), pairs(str::from_utf8(request.body()).unwrap()));
        let path: Vec<&str> = url.path().split('/').skip(1).collect();
        match (url.host_str().unwrap_or_default(), path.as_slice()) {
            (_, [tenant, "oauth2", "v2.0", "token"]) => self.entra(url, tenant, &form, "PS256"),
            (_, ["adfs", "oauth2", "token"]) => self.entra(url, "adfs", &form, "RS256"),
            ("169.254.169.254", ["metadata", "identity", ..]) => {
                assert_eq!(request.headers()["metadata"], "true");
                self.managed(&query)
            }
            (_, ["metadata", "endpoints"]) => (200, self.metadata.clone()),
            (_, [.., "vaults", name]) => {
                (200, json!({"properties": {"vaultUri": format!("https://{name}.vault.azure.net/")}}))
            }
            (host, ["secrets", _]) if host.ends_with("vault.azure.net") => {
                let token = request.headers()["authorization"].to_str().unwrap();
                assert!(token.contains("https://vault.azure.net"), "a token for ARM is not valid for the vault: {token}");
                (200, json!({"value": self.vault_secret.to_string()}))
            }
            _ => (404, json!({"error": {"code": "NotFound", "message": url.path()}})),
        }
    }

    /// Issues a token that contains a unique number, its identity and its audience.
    fn token(&mut self, identity: &str, audience: &str) -> (u16, Json) {
        self.issued += 1;
        let token = format!("planted-token-{}-{identity}-{audience}", self.issued);
        (200, json!({"token_type": "Bearer", "access_token": token, "expires_in": 3600}))
    }

    fn managed(&mut self, query: &Pairs) -> (u16, Json) {
        let names = ["client_id", "object_id", "msi_res_id"];
        let identity = names.iter().find_map(|name| Some(format!("{name}={}", query.get(*name)?))).unwrap_or_default();
        if self.identities.contains(&identity) {
            let (status, mut response) = self.token(&identity, &query["resource"]);
            response["expires_in"] = json!("3600");
            return (status, response);
        }
        (400, json!({"error": "invalid_request", "error_description": "Identity not found"}))
    }

    fn entra(&mut self, url: &Url, tenant: &str, form: &Pairs, algorithm: &str) -> (u16, Json) {
        assert_eq!(form["grant_type"], "client_credentials");
        let refuse = |code: i64, text: &str| {
            let description = format!("AADSTS{code}: {text}\r\nTrace ID: 1\r\n{form:?}");
            (401, json!({"error": "invalid_client", "error_description": description, "error_codes": [code]}))
        };
        let registered = self.applications.get(&(tenant.to_owned(), form["client_id"].clone()));
        let proof = form.get("client_secret").or(form.get("client_assertion")).unwrap();
        let is_accepted = match registered {
            None => return refuse(700_016, "Application was not found in the directory."),
            Some(Registered::Secret(secret)) => proof == secret,
            Some(Registered::Federated(token)) => proof == token,
            Some(Registered::Certificate(certificate)) => assertion_is_good(proof, algorithm, certificate, url, form),
        };
        if is_accepted {
            self.token(&format!("{tenant}/{}", form["client_id"]), &form["scope"])
        } else {
            refuse(7_000_215, proof)
        }
    }
}

fn assertion_is_good(jwt: &str, algorithm: &str, certificate: &[u8], url: &Url, form: &Pairs) -> bool {
    assert_eq!(form["client_assertion_type"], "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    let parameters = if algorithm == "PS256" { &RSA_PSS_2048_8192_SHA256 } else { &RSA_PKCS1_2048_8192_SHA256 };
    let (header, claims, sent) = verified(jwt, parameters);
    assert_eq!((header["alg"].as_str(), claims["aud"].as_str()), (Some(algorithm), Some(url.as_str())));
    assert_eq!(header["x5c"].as_array().map(Vec::len), Some(2), "the whole chain is sent");
    sent == certificate && claims["sub"] == form["client_id"]
}
