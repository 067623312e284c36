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

/// One that may be asked, as often as one likes.
struct Asked {
    world: World,
    config: ImageCredentialConfig,
    folder: tempfile::TempDir,
}

impl Asked {
    fn new(managed: bool) -> Self {
        let (world, folder) = (world(), tempfile::tempdir().unwrap());
        world.run_on(&node(&world), vec![world.managed_identity(MACHINE, None)]).unwrap();
        let cloud_config = azure_json(&world, &folder, managed);
        let config = ImageCredentialConfig { cloud_config, registry_mirrors: Vec::new(), identity_binding: None };
        Self { world, config, folder }
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

    async fn ask(&self, request: &Value) -> Result<Value, String> {
        let (text, wires) = (request.to_string(), Wires(self.world.clone()));
        let answer = provide_with(&self.config, text.as_bytes(), &BTreeMap::new(), &wires).await;
        let answer = answer.map_err(|error| error.to_string())?;
        Ok(serde_json::from_str(&answer).unwrap())
    }

    /// Who was asked, in order.
    fn hosts(&self) -> Vec<String> {
        self.world.azure().requests().iter().map(|record| record.host.clone()).collect()
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
    for (asked, request, expected) in [
        (Asked::new(true), request(&image, false), refresh(MACHINE, REGISTRY)),
        (Asked::new(true), request(&image, true), refresh(POD_CLIENT, REGISTRY)),
        (Asked::new(false), request(&image, true), refresh(POD_CLIENT, REGISTRY)),
        (Asked::new(true), unrelated, refresh(MACHINE, REGISTRY)),
        (Asked::new(true).bound(POD_CLIENT).mirrored(mirrors), request("mcr.microsoft.com/oss/image", true), mirrored),
        (Asked::new(false), request(&image, false), response(&servers.map(|it| (it, CLIENT_ID, principal.as_str())))),
    ] {
        let is_principal = expected["auth"].get("*.azurecr.us").is_some();
        assert_eq!(asked.ask(&request).await, Ok(expected), "{request}");
        assert_eq!(asked.hosts().is_empty(), is_principal, "the service principal is its own password: {request}");
    }
}

#[tokio::test]
async fn the_identity_binding_pulls() {
    let image = format!("{REGISTRY}/bar/image");
    let mut kubelets = request(&image, true);
    let tenant = world().topology().tenant;
    kubelets["serviceAccountAnnotations"] = json!({"kubernetes.azure.com/acr-tenant-id": tenant});
    assert_eq!(Asked::new(true).bound(POD_CLIENT).ask(&kubelets).await, Ok(refresh(POD_CLIENT, REGISTRY)));
    let refused = Asked::new(true).bound("nobody").ask(&kubelets).await.unwrap_err();
    assert!(refused.contains("--ib-sni-name") && refused.contains("HTTP 400"), "{refused}");
}

#[tokio::test]
async fn other_images_get_an_empty_response_and_no_request() {
    let asked = Asked::new(true).bound(POD_CLIENT);
    for image in ["nginx", "mcr.microsoft.com/x", "evil.example/foo.azurecr.io/x", "foo.azurecr.io.evil.example/x"] {
        // Without a token the identity binding could not be asked, nor has it to be.
        for pod in [true, false] {
            let answer = asked.ask(&request(image, pod)).await.unwrap();
            assert_eq!((&answer["auth"], &answer["cacheDuration"]), (&json!({}), &json!("0s")), "{image}");
        }
    }
    assert_eq!(asked.hosts(), [""; 0]);
}

/// A registry that says what it is told to, and repeats in its refusals what it was sent.
struct Told {
    status: u16,
    challenges: &'static [&'static str],
    exchange: (u16, &'static str),
}

#[async_trait]
impl Endpoint for Told {
    fn serves(&self, host: &str, _: &str) -> bool {
        host.starts_with("told.") || host.ends_with("evil.example")
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

const GOOD: &str = "Bearer realm=\"https://told.azurecr.io/oauth2/token\",service=\"told.azurecr.io\"";

#[tokio::test]
async fn a_registry_that_does_not_behave_gets_nothing() {
    let good = (200, r#"{"refresh_token":"x"}"#);
    for (status, challenges, exchange, told) in [
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
        let asked = Asked::new(true);
        asked.world.azure().add_endpoint(Arc::new(Told { status, challenges, exchange }));
        let error = asked.ask(&request("told.azurecr.io/x", false)).await.unwrap_err();
        assert!(error.starts_with("registry told.azurecr.io: ") && error.contains(told), "{told}: {error}");
        assert!(!error.contains("sandbox-token"), "{error}");
        assert!(!asked.hosts().iter().any(|host| host.contains("evil")), "{told}: {:?}", asked.hosts());
    }
    let asked = Asked::new(true);
    asked.world.azure().add_endpoint(Arc::new(Told { status: 401, challenges: &[GOOD], exchange: good }));
    let answer = asked.ask(&request("told.azurecr.io/x", false)).await;
    assert_eq!(answer, Ok(response(&[("told.azurecr.io", TOKEN_USER, "x")])));
}

/// The host of one region names the realm of the whole registry, and the kubelet finds its login under that host alone.
#[tokio::test]
async fn hosts_of_one_region_get_logins() {
    let (regional, exchange) = ("told.eastus2.geo.azurecr.io", (200, r#"{"refresh_token":"x"}"#));
    let asked = Asked::new(true);
    asked.world.azure().add_endpoint(Arc::new(Told { status: 401, challenges: &[GOOD], exchange }));
    let answer = asked.ask(&request(&format!("{regional}/app:1"), false)).await;
    assert_eq!(answer, Ok(response(&[(regional, TOKEN_USER, "x")])));
    assert!(!asked.hosts().iter().any(|host| host == "told.azurecr.io"), "{:?}", asked.hosts());
    let answer = Asked::new(false).ask(&request(&format!("{regional}/app:1"), false)).await.unwrap();
    assert_eq!(answer["auth"][regional]["username"], CLIENT_ID);
}

#[tokio::test]
async fn who_has_no_token_is_told_without_secrets() {
    let asked = Asked::new(true);
    let image = format!("{REGISTRY}/x");
    let mut other = request(&image, true);
    other["serviceAccountToken"] = json!("pl4nt3d-other");
    let error = asked.ask(&other).await.unwrap_err();
    assert!(error.contains("AADSTS") && error.contains(POD_CLIENT) && !error.contains(MARK), "{error}");
    let mut nowhere = request(&image, true);
    nowhere["serviceAccountAnnotations"]["kubernetes.azure.com/acr-tenant-id"] = json!("nowhere");
    let error = asked.ask(&nowhere).await.unwrap_err();
    assert!(error.contains("AADSTS90002") && !error.contains(MARK), "{error}");
}

#[tokio::test]
async fn a_bad_configuration_is_told_with_its_place() {
    for (text, told) in [
        ("[1]", "expected a map"),
        ("random-config", "expected a map"),
        ("{invalid json", "azure.json"),
        ("useManagedIdentityExtension: maybe", "useManagedIdentityExtension"),
        ("tenantId: t", "neither useManagedIdentityExtension nor"),
        ("aadClientId: c", "neither useManagedIdentityExtension nor"),
        ("useManagedIdentityExtension: true\nresourceManagerEndpoint: 'http://[x'", "resourceManagerEndpoint"),
    ] {
        let asked = Asked::new(true);
        fs::write(&asked.config.cloud_config, text).unwrap();
        let error = asked.ask(&request(&format!("{REGISTRY}/x"), false)).await.unwrap_err();
        assert!(error.contains(told), "{text}: {error}");
    }
    let asked = Asked::new(true);
    fs::remove_file(&asked.config.cloud_config).unwrap();
    let error = asked.ask(&request(&format!("{REGISTRY}/x"), false)).await.unwrap_err();
    assert!(error.contains("azure.json: No such file"), "{error}");
    // A mistake that only the manager minds.
    let asked = Asked::new(true);
    let text = fs::read_to_string(&asked.config.cloud_config).unwrap();
    fs::write(&asked.config.cloud_config, text.replacen('{', "{\"vmCacheTTLInSeconds\": \"x\",", 1)).unwrap();
    assert!(asked.ask(&request(&format!("{REGISTRY}/x"), false)).await.is_ok());
}
