//! In process: every mode and every refusal.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use cloud_controller_manager::{
    cloud_provider::registry::{IdentityBindingConfig, ImageCredentialConfig},
    providers::azure::{
        acr::{ImageCredentialWires, provide_with},
        auth::{AuthError, PinnedHost},
        transport::ArmTransport,
    },
    sandbox::azure::{Endpoint, registry::password},
};
use http::{Request, Response};

use super::*;

struct Wires(World);

impl ImageCredentialWires for Wires {
    fn cloud(&self) -> Arc<dyn ArmTransport> {
        self.0.azure().transport()
    }

    fn pinned(&self, host: &PinnedHost) -> Result<Arc<dyn ArmTransport>, AuthError> {
        assert_eq!((host.name.as_str(), host.address.to_string().as_str()), (BINDING, "10.0.0.1"));
        assert_eq!(host.authorities, b"authorities");
        Ok(self.0.azure().transport())
    }
}

/// Credential provider with its configuration and cloud.
struct Provider {
    simulation: World,
    config: ImageCredentialConfig,
    folder: tempfile::TempDir,
}

impl Provider {
    fn new(managed: bool) -> Self {
        let (simulation, folder) = (simulated_cloud(), tempfile::tempdir().unwrap());
        simulation.run_on(&node(&simulation), vec![simulation.managed_identity(MACHINE, None)]).unwrap();
        let cloud_config = azure_json(&simulation, &folder, managed);
        let config = ImageCredentialConfig { cloud_config, registry_mirrors: Vec::new(), identity_binding: None };
        Self { simulation, config, folder }
    }

    fn bound(mut self, client: &str) -> Self {
        let ca_file = self.folder.path().join("ca.crt");
        fs::write(&ca_file, "authorities").unwrap();
        self.config.identity_binding = Some(IdentityBindingConfig {
            sni_name: BINDING.to_owned(),
            api_server: "10.0.0.1".to_owned(),
            default_client_id: client.to_owned(),
            default_tenant_id: String::new(),
            ca_file,
        });
        self
    }

    fn mirrored(mut self, mirrors: &[&str]) -> Self {
        self.config.registry_mirrors = mirrors.iter().map(|mirror| (*mirror).to_owned()).collect();
        self
    }

    async fn provide(&self, request: &Value) -> Result<Value, String> {
        let (text, wires) = (request.to_string(), Wires(self.simulation.clone()));
        let result = provide_with(&self.config, text.as_bytes(), &BTreeMap::new(), &wires).await;
        let output = result.map_err(|error| error.to_string())?;
        Ok(serde_json::from_str(&output).unwrap())
    }

    /// Returns the hosts of the requests, in order.
    fn hosts(&self) -> Vec<String> {
        self.simulation.azure().requests().iter().map(|record| record.host.clone()).collect()
    }
}

fn refresh(client: &str, host: &str) -> Value {
    response(&[(host, TOKEN_USER, &password(client, host))])
}

#[tokio::test]
async fn images_are_pulled_in_every_mode() {
    let (image, principal) = (format!("{REGISTRY}/bar/image:version"), format!("{CLIENT_SECRET}-{MARK}"));
    let mirror = password(MACHINE, MIRROR);
    let mirrored = response(&[(MIRROR, TOKEN_USER, &mirror), ("mcr.microsoft.com", TOKEN_USER, &mirror)]);
    let servers = ["*.azurecr.io", "*.azurecr.cn", "*.azurecr.de", "*.azurecr.us", REGISTRY];
    let mut unrelated = request(&image, true);
    unrelated["serviceAccountAnnotations"] = json!({});
    let mirrors = &["mcr.microsoft.com:abc.azurecr.io", "malformed"];
    for (provider, request, expected) in [
        (Provider::new(true), request(&image, false), refresh(MACHINE, REGISTRY)),
        (Provider::new(true), request(&image, true), refresh(POD_CLIENT, REGISTRY)),
        (Provider::new(false), request(&image, true), refresh(POD_CLIENT, REGISTRY)),
        (Provider::new(true), unrelated, refresh(MACHINE, REGISTRY)),
        (Provider::new(true).bound(POD_CLIENT).mirrored(mirrors), request("mcr.microsoft.com/oss/image", true), mirrored),
        (Provider::new(false), request(&image, false), response(&servers.map(|it| (it, CLIENT_ID, principal.as_str())))),
    ] {
        let is_principal = expected["auth"].get("*.azurecr.us").is_some();
        assert_eq!(provider.provide(&request).await, Ok(expected), "{request}");
        assert_eq!(provider.hosts().is_empty(), is_principal, "the service principal is its own password: {request}");
    }
}

#[tokio::test]
async fn the_identity_binding_provides_credentials() {
    let image = format!("{REGISTRY}/bar/image");
    let mut kubelets = request(&image, true);
    let tenant = simulated_cloud().topology().tenant;
    kubelets["serviceAccountAnnotations"] = json!({"kubernetes.azure.com/acr-tenant-id": tenant});
    assert_eq!(Provider::new(true).bound(POD_CLIENT).provide(&kubelets).await, Ok(refresh(POD_CLIENT, REGISTRY)));
    let refused = Provider::new(true).bound("another-client").provide(&kubelets).await.unwrap_err();
    assert!(refused.contains("--ib-sni-name") && refused.contains("HTTP 400"), "{refused}");
}

#[tokio::test]
async fn other_images_get_an_empty_response_and_no_request() {
    let provider = Provider::new(true).bound(POD_CLIENT);
    for image in ["nginx", "mcr.microsoft.com/x", "evil.example/foo.azurecr.io/x", "foo.azurecr.io.evil.example/x"] {
        // Without a token, the provider cannot use the identity binding. These images do not need it.
        for pod in [true, false] {
            let result = provider.provide(&request(image, pod)).await.unwrap();
            assert_eq!((&result["auth"], &result["cacheDuration"]), (&json!({}), &json!("0s")), "{image}");
        }
    }
    assert_eq!(provider.hosts(), [""; 0]);
}

/// Registry with prepared responses. Its refusals repeat the access token of the request.
struct ScriptedRegistry {
    status: u16,
    challenges: &'static [&'static str],
    exchange: (u16, &'static str),
}

#[async_trait]
impl Endpoint for ScriptedRegistry {
    fn serves(&self, host: &str, _: &str) -> bool {
        host.starts_with("scripted.") || host.ends_with("evil.example")
    }

    async fn respond(&self, request: Request<Bytes>) -> Response<Bytes> {
        if request.uri().path() == "/v2/" {
            let mut response = Response::builder().status(self.status);
            for challenge in self.challenges {
                response = response.header("www-authenticate", *challenge);
            }
            return response.body(Bytes::new()).unwrap();
        }
        let sent = String::from_utf8_lossy(request.body()).into_owned();
        let token = sent.split('&').find_map(|field| field.strip_prefix("access_token=")).unwrap().to_owned();
        let body = self.exchange.1.replace("TOKEN", &token);
        Response::builder().status(self.exchange.0).body(body.into()).unwrap()
    }
}

const GOOD: &str = "Bearer realm=\"https://scripted.azurecr.io/oauth2/token\",service=\"scripted.azurecr.io\"";

#[tokio::test]
async fn a_misbehaving_registry_gets_no_token() {
    let good = (200, r#"{"refresh_token":"x"}"#);
    for (status, challenges, exchange, expected) in [
        (200, &[GOOD][..], good, "HTTP 200"),
        (302, &[GOOD], good, "HTTP 302"),
        (403, &[GOOD], good, "HTTP 403"),
        (401, &[], good, "0 challenges"),
        (401, &["Bearer realm=\"https://evil.example/\",service=\"x\""], good, "a realm at https://evil.example"),
        (401, &[GOOD], (401, r#"{"errors":[{"code":"UNAUTHORIZED","message":"no TOKEN here"}]}"#), "UNAUTHORIZED: no"),
        (401, &[GOOD], (404, ""), "HTTP 404"),
        (401, &[GOOD], (500, "<html>TOKEN"), "HTTP 500"),
        (401, &[GOOD], (302, ""), "HTTP 302"),
        (401, &[GOOD], (200, "<html>TOKEN"), "without a refresh_token"),
        (401, &[GOOD], (200, r#"{"refresh_token":""}"#), "without a refresh_token"),
    ] {
        let provider = Provider::new(true);
        provider.simulation.azure().add_endpoint(Arc::new(ScriptedRegistry { status, challenges, exchange }));
        let error = provider.provide(&request("scripted.azurecr.io/x", false)).await.unwrap_err();
        assert!(error.starts_with("registry scripted.azurecr.io: ") && error.contains(expected), "{expected}: {error}");
        assert!(!error.contains("sandbox-token"), "{error}");
        assert!(!provider.hosts().iter().any(|host| host.contains("evil")), "{expected}: {:?}", provider.hosts());
    }
    let provider = Provider::new(true);
    provider.simulation.azure().add_endpoint(Arc::new(ScriptedRegistry {
        status: 401,
        challenges: &[GOOD],
        exchange: good,
    }));
    let result = provider.provide(&request("scripted.azurecr.io/x", false)).await;
    assert_eq!(result, Ok(response(&[("scripted.azurecr.io", TOKEN_USER, "x")])));
}

/// The host of a region names the realm of the whole registry. The kubelet looks up its login only by the host of the region.
#[tokio::test]
async fn hosts_of_one_region_get_logins() {
    let (regional, exchange) = ("scripted.eastus2.geo.azurecr.io", (200, r#"{"refresh_token":"x"}"#));
    let provider = Provider::new(true);
    provider.simulation.azure().add_endpoint(Arc::new(ScriptedRegistry { status: 401, challenges: &[GOOD], exchange }));
    let result = provider.provide(&request(&format!("{regional}/app:1"), false)).await;
    assert_eq!(result, Ok(response(&[(regional, TOKEN_USER, "x")])));
    assert!(!provider.hosts().iter().any(|host| host == "scripted.azurecr.io"), "{:?}", provider.hosts());
    let result = Provider::new(false).provide(&request(&format!("{regional}/app:1"), false)).await.unwrap();
    assert_eq!(result["auth"][regional]["username"], CLIENT_ID);
}

#[tokio::test]
async fn rejected_tokens_are_reported_without_secrets() {
    let provider = Provider::new(true);
    let image = format!("{REGISTRY}/x");
    let mut other = request(&image, true);
    other["serviceAccountToken"] = json!("pl4nt3d-other");
    let error = provider.provide(&other).await.unwrap_err();
    assert!(error.contains("AADSTS") && error.contains(POD_CLIENT) && !error.contains(MARK), "{error}");
    let mut nowhere = request(&image, true);
    nowhere["serviceAccountAnnotations"]["kubernetes.azure.com/acr-tenant-id"] = json!("nowhere");
    let error = provider.provide(&nowhere).await.unwrap_err();
    assert!(error.contains("AADSTS90002") && !error.contains(MARK), "{error}");
}

#[tokio::test]
async fn configuration_errors_name_the_file_or_field() {
    for (text, expected) in [
        ("[1]", "expected a map"),
        ("random-config", "expected a map"),
        ("{invalid json", "azure.json"),
        ("useManagedIdentityExtension: maybe", "useManagedIdentityExtension"),
        ("tenantId: t", "neither useManagedIdentityExtension nor"),
        ("aadClientId: c", "neither useManagedIdentityExtension nor"),
        ("useManagedIdentityExtension: true\nresourceManagerEndpoint: 'http://[x'", "resourceManagerEndpoint"),
    ] {
        let provider = Provider::new(true);
        fs::write(&provider.config.cloud_config, text).unwrap();
        let error = provider.provide(&request(&format!("{REGISTRY}/x"), false)).await.unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let provider = Provider::new(true);
    fs::remove_file(&provider.config.cloud_config).unwrap();
    let error = provider.provide(&request(&format!("{REGISTRY}/x"), false)).await.unwrap_err();
    assert!(error.contains("azure.json: No such file"), "{error}");
    // An invalid value that only the manager reads.
    let provider = Provider::new(true);
    let text = fs::read_to_string(&provider.config.cloud_config).unwrap();
    fs::write(&provider.config.cloud_config, text.replacen('{', "{\"vmCacheTTLInSeconds\": \"x\",", 1)).unwrap();
    assert!(provider.provide(&request(&format!("{REGISTRY}/x"), false)).await.is_ok());
}
