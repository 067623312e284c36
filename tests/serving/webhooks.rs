//! The webhook port on sockets: names and certificates, over HTTP/1.1 and HTTP/2.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use cloud_controller_manager::{
    metrics::Metrics,
    runtime::{
        admission::{AdmissionAnswer, AdmissionRequest, AdmissionWebhook},
        clock::Clock,
        shutdown::Shutdown,
    },
    serving::{SecureServingConfig, ServedWebhooks, WebhookServiceName, WebhookServingConfig, serve_webhooks},
};
use serde_json::{Value, json};

use crate::serving::{
    authority::{Authority, trusting},
    port::{config, eventually},
};

struct Counting;

#[async_trait]
impl AdmissionWebhook for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn path(&self) -> &'static str {
        "/count"
    }

    async fn review(&self, request: &AdmissionRequest) -> Result<AdmissionAnswer, String> {
        let object: Value = request.object.read().unwrap_or_default();
        let length = object["data"].as_str().map_or(0, str::len);
        Ok(AdmissionAnswer::allowed().with_warnings([length.to_string()]))
    }
}

fn webhook_config(secure: SecureServingConfig) -> WebhookServingConfig {
    let service = WebhookServiceName { namespace: "kube-system".to_owned(), name: "hooks".to_owned() };
    let secure = SecureServingConfig { own_names: vec![service.host()], ..secure };
    WebhookServingConfig { names: vec!["*".to_owned()], secure, service, configurations: Vec::new() }
}

async fn serve(secure: SecureServingConfig, shutdown: &Shutdown) -> Result<ServedWebhooks, String> {
    let metrics = Arc::new(Metrics::new().unwrap());
    let served = serve_webhooks(&webhook_config(secure), vec![Arc::new(Counting)], metrics, Clock::System, shutdown).await;
    served.map_err(|error| error.to_string())
}

/// Returns a builder for clients that trust only this authority, and resolve the name to the address.
fn trusting_pem(pem: &str, name: &str, address: SocketAddr) -> reqwest::ClientBuilder {
    let authority = reqwest::Certificate::from_pem(pem.as_bytes()).unwrap();
    reqwest::ClientBuilder::new().tls_certs_only([authority]).resolve(name, address)
}

fn review(data: &str) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u-1", "object": {"data": data}}})
}

#[tokio::test]
async fn the_generated_certificate_is_valid_for_the_service() {
    let shutdown = Shutdown::new();
    let served = serve(config(), &shutdown).await.unwrap();
    let authority = served.own_authority().unwrap();
    assert_eq!(authority.matches("BEGIN CERTIFICATE").count(), 1);
    let url = format!("https://hooks.kube-system.svc:{}/count", served.address.port());
    for client in [
        trusting_pem(&authority, "hooks.kube-system.svc", served.address).http1_only(),
        trusting_pem(&authority, "hooks.kube-system.svc", served.address).http2_prior_knowledge(),
    ] {
        let client = client.build().unwrap();
        for length in [0, 1 << 20, (3 << 20) - 200] {
            let response = client.post(&url).json(&review(&"x".repeat(length))).send().await.unwrap();
            assert_eq!(response.status(), 200);
            let review_response: Value = response.json().await.unwrap();
            assert_eq!(
                (&review_response["response"]["uid"], &review_response["response"]["warnings"]),
                (&json!("u-1"), &json!([length.to_string()]))
            );
        }
        let too_long = client.post(&url).json(&review(&"x".repeat(3 << 20))).send().await;
        // The connection may be closed while the client still sends.
        assert!(too_long.is_err() || too_long.is_ok_and(|response| response.status() == 413));
    }
    let other = trusting_pem(&authority, "other.svc", served.address).build().unwrap();
    let other = other.post(format!("https://other.svc:{}/count", served.address.port())).json(&review("")).send().await;
    assert!(other.is_err(), "a name that is not in the certificate");
    shutdown.begin();
}

#[tokio::test]
async fn certificate_files_are_reloaded_without_an_own_authority() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let directory = tempfile::tempdir().unwrap();
    let (cert, key) = old.write_server(directory.path(), "hooks.test");
    let secure = SecureServingConfig {
        tls_cert_file: Some(cert),
        tls_private_key_file: Some(key),
        reload_interval: Duration::from_millis(20),
        ..config()
    };
    let shutdown = Shutdown::new();
    let served = serve(secure, &shutdown).await.unwrap();
    assert_eq!(served.own_authority(), None);
    let reaches = |authority: &Authority| {
        let url = format!("https://hooks.test:{}/count", served.address.port());
        let request = trusting(authority, "hooks.test", served.address).post(url).json(&review(""));
        async move { request.send().await.is_ok_and(|response| response.status() == 200) }
    };
    assert!(reaches(&old).await && !reaches(&new).await);
    new.write_server(directory.path(), "hooks.test");
    eventually("the new certificate", || reaches(&new)).await;
    assert!(!reaches(&old).await);
    shutdown.begin();
}

#[tokio::test]
async fn a_directory_is_filled_under_the_webhooks_name() {
    let directory = tempfile::tempdir().unwrap();
    let name = "cloud-controller-manager-webhook";
    let secure = || SecureServingConfig { cert_dir: Some(directory.path().to_owned()), pair_name: name, ..config() };
    let shutdown = Shutdown::new();
    let first = serve(secure(), &shutdown).await.unwrap().own_authority();
    assert!(directory.path().join(format!("{name}.crt")).exists());
    assert_eq!(serve(secure(), &shutdown).await.unwrap().own_authority(), first, "the pair is kept");
    shutdown.begin();
}

#[tokio::test]
async fn errors_name_the_webhooks_flags() {
    let shutdown = Shutdown::new();
    let first = serve(config(), &shutdown).await.unwrap();
    let port_in_use = SecureServingConfig { port: first.address.port(), ..config() };
    let error = serve(port_in_use, &shutdown).await.err().unwrap();
    assert!(error.starts_with("--webhook-bind-address, --webhook-secure-port: cannot listen on 127.0.0.1:"), "{error}");
    let missing = SecureServingConfig {
        tls_cert_file: Some("/missing.crt".into()),
        tls_private_key_file: Some("/missing.key".into()),
        ..config()
    };
    let error = serve(missing, &shutdown).await.err().unwrap();
    assert!(error.starts_with("--webhook-tls-cert-file: cannot read /missing.crt"), "{error}");
    shutdown.begin();
}
