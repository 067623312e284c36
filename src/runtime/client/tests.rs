mod reloads;

use std::io::Write;

use axum::{Router, routing::any};
use k8s_openapi::api::core::v1::Node;
use kube::Api;

use super::*;

fn settings(kubeconfig: Option<PathBuf>, master: Option<&str>) -> KubeClientConfig {
    let user_agent_base = "ccm/v1 (linux/amd64) kubernetes/abc".to_owned();
    let master = master.map(str::to_owned);
    KubeClientConfig { kubeconfig, master, qps: 20.0, burst: 30, limit_unless_fair: false, user_agent_base }
}

fn metrics() -> Arc<Metrics> {
    Arc::new(Metrics::new().unwrap())
}

/// Clients of the server at this address.
async fn clients_of(host: &str, metrics: &Arc<Metrics>) -> KubeClients {
    KubeClients::load(settings(None, Some(&format!("http://{host}"))), Arc::clone(metrics)).await.unwrap()
}

/// A folder with a kubeconfig and the files that it names.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Writes a client certificate and its key.
    fn write_certificate(&self, (certificate, key): &(String, String)) {
        self.write("client.crt", certificate);
        self.write("client.key", key);
    }

    /// Writes a credential plugin that runs these lines. Answers the user of a kubeconfig who has it.
    fn write_plugin(&self, script: &str) -> String {
        use std::os::unix::fs::PermissionsExt;

        let plugin = self.path("plugin");
        self.write("plugin", &format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
        format!("exec: {{apiVersion: {EXEC}, command: '{}', interactiveMode: Never}}", plugin.display())
    }

    async fn clients(&self, kubeconfig: &str) -> KubeClients {
        self.write("kubeconfig", kubeconfig);
        KubeClients::load(settings(Some(self.path("kubeconfig")), None), metrics()).await.unwrap()
    }
}

const EXEC: &str = "client.authentication.k8s.io/v1";
/// User of a kubeconfig, with a certificate in a file.
const WITH_CERTIFICATE: &str = "client-certificate: client.crt, client-key: client.key";

/// Advances the time by more than the interval between reads of the files.
async fn reload_interval() {
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    tokio::time::resume();
}

async fn error(settings: KubeClientConfig) -> String {
    KubeClients::load(settings, metrics()).await.err().unwrap().to_string()
}

#[tokio::test]
async fn errors_name_the_flag_and_the_file() {
    let missing = error(settings(Some("/nowhere/kubeconfig".into()), None)).await;
    assert!(missing.starts_with("--kubeconfig /nowhere/kubeconfig: "), "{missing}");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"clusters: 7").unwrap();
    let invalid = error(settings(Some(file.path().into()), None)).await;
    assert!(invalid.starts_with(&format!("--kubeconfig {}: ", file.path().display())), "{invalid}");
    let master = error(settings(None, Some("not a url"))).await;
    assert!(master.starts_with("--master \"not a url\": "), "{master}");
}

#[tokio::test]
async fn an_unreachable_server_is_reported_with_the_cause() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let clients = clients_of(&address.to_string(), &metrics()).await;
    let error = Api::<Node>::all(clients.for_component("c").unwrap()).get("n").await.unwrap_err();
    let text = with_causes(&error);
    assert!(text.contains("Connection refused"), "{text}");
    assert_eq!(text.matches("client error (Connect)").count(), 1, "{text}");
}

#[tokio::test]
async fn the_master_flag_replaces_the_server() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'https://a:1'}}]\n\
                contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n";
    file.write_all(text.as_bytes()).unwrap();
    for (master, expected) in [(None, "https://a:1/"), (Some("https://b:2"), "https://b:2/")] {
        let clients = KubeClients::load(settings(Some(file.path().into()), master), metrics()).await.unwrap();
        assert_eq!(clients.cluster_url().to_string(), expected);
    }
}

/// Serves `router` on loopback, and returns the address.
async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = hyper_util::service::TowerToHyperService::new(router.clone());
            let io = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
        }
    });
    host
}

/// Starts a server that rejects every request with `code`, and reports the value of `header` of each.
async fn refuse(code: http::StatusCode, header: http::HeaderName) -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let (report, reported) = tokio::sync::mpsc::unbounded_channel();
    let router = Router::new().fallback(any(move |headers: http::HeaderMap| {
        report.send(headers[&header].to_str().unwrap().to_owned()).unwrap();
        async move { code }
    }));
    (serve(router).await, reported)
}

#[tokio::test]
async fn concurrent_requests_are_limited() {
    let (arrived, mut waiting) = crate::runtime::watch::channel(0_usize);
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let permits = Arc::clone(&go);
    let router = Router::new().fallback(any(move || {
        arrived.send_modify(|count| *count += 1);
        let permits = Arc::clone(&permits);
        async move {
            permits.acquire().await.unwrap().forget();
            http::StatusCode::NOT_FOUND
        }
    }));
    let host = serve(router).await;
    let unlimited = KubeClientConfig { qps: 0.0, ..settings(None, Some(&format!("http://{host}"))) };
    let nodes = Api::<Node>::all(KubeClients::load(unlimited, metrics()).await.unwrap().for_component("c").unwrap());
    let all = futures::future::join_all((0..1000).map(|_| nodes.get("n")));
    let one_by_one = async {
        for completed in 0..=1000 - MAX_CONCURRENT_REQUESTS {
            waiting.wait_for(|count| *count >= MAX_CONCURRENT_REQUESTS + completed).await.unwrap();
            assert_eq!(*waiting.borrow(), MAX_CONCURRENT_REQUESTS + completed);
            go.add_permits(1);
        }
        go.add_permits(MAX_CONCURRENT_REQUESTS);
    };
    let (results, ()) = tokio::join!(all, one_by_one);
    assert!(results.iter().all(Result::is_err));
}

#[tokio::test]
async fn requests_name_the_component_and_are_not_retried() {
    let (host, mut seen) = refuse(http::StatusCode::SERVICE_UNAVAILABLE, USER_AGENT).await;
    let metrics = metrics();
    let clients = clients_of(&host, &metrics).await;
    for (client, agent) in [
        (clients.for_component("node-controller").unwrap(), "ccm/v1 (linux/amd64) kubernetes/abc/node-controller"),
        (clients.for_watches().unwrap(), "ccm/v1 (linux/amd64) kubernetes/abc/shared-informers"),
    ] {
        Api::<Node>::all(client).get("n").await.unwrap_err();
        assert_eq!(seen.recv().await.unwrap(), agent);
    }
    assert!(seen.try_recv().is_err(), "no request is repeated");
    let counted = metrics.rest_client_requests_total.with_label_values(&["503", "GET", &host]).get();
    assert_eq!(counted, 2.0);
}

#[tokio::test]
async fn reviews_wait_for_no_rate_limit() {
    let host = serve(Router::new().fallback(any(|| async { http::StatusCode::NOT_FOUND }))).await;
    let (metrics, one_request) =
        (metrics(), KubeClientConfig { qps: 0.001, burst: 1, ..settings(None, Some(&format!("http://{host}"))) });
    let clients = KubeClients::load(one_request, Arc::clone(&metrics)).await.unwrap();
    let nodes = Api::<Node>::all(clients.for_reviews().unwrap());
    for number in 0..10 {
        let result = tokio::time::timeout(std::time::Duration::from_secs(10), nodes.get("n")).await;
        assert!(result.is_ok(), "request {number} waits");
    }
    assert_eq!(metrics.rest_client_requests_total.with_label_values(&["404", "GET", &host]).get(), 10.0);
}

/// Certificate authority, and a server that requires its client certificates and reports their serial numbers.
mod mutual_tls {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SerialNumber};
    use std::sync::atomic::Ordering::SeqCst;

    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    use tokio::sync::mpsc;

    use super::*;

    pub(super) struct Authority {
        issuer: Issuer<'static, KeyPair>,
        pub(super) pem: String,
    }

    impl Authority {
        pub(super) fn new() -> Self {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            let pem = params.self_signed(&key).unwrap().pem();
            Self { issuer: Issuer::new(params, key), pem }
        }

        /// Returns a certificate with the serial number `number`, and its key.
        pub(super) fn issue(&self, number: u8) -> (String, String) {
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.serial_number = Some(SerialNumber::from(vec![number]));
            let key = KeyPair::generate().unwrap();
            (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
        }
    }

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    /// Serves HTTP/2 on loopback. Returns the port, and a receiver of the certificate number and HTTP version of each
    /// request.
    ///
    /// The first connection sends `responses` responses, and then stops without being closed.
    pub(super) async fn serve(
        authority: &Authority,
        responses: usize,
    ) -> (u16, mpsc::UnboundedReceiver<(u8, http::Version)>) {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(der(&authority.pem)).unwrap();
        let clients = rustls::server::WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let (certificate, key) = authority.issue(1);
        let mut config = rustls::ServerConfig::builder()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![der(&certificate)], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (report, reported) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut responses = Some(responses);
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let Ok(stream) = acceptor.accept(socket).await else { continue };
                let peer = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
                let number = x509_parser::parse_x509_certificate(&peer).unwrap().1.raw_serial()[0];
                let report = report.clone();
                let remaining = std::sync::atomic::AtomicUsize::new(responses.take().unwrap_or(usize::MAX));
                let service = hyper::service::service_fn(move |request: http::Request<Incoming>| {
                    let is_dead = remaining.load(SeqCst) == 0;
                    remaining.fetch_sub(usize::from(!is_dead), SeqCst);
                    let _ = report.send((number, request.version()));
                    async move {
                        if is_dead {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty()))
                    }
                });
                let builder = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
                tokio::spawn(async move {
                    builder.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await.map_err(drop)
                });
            }
        });
        (port, reported)
    }
}

/// Returns a kubeconfig with this user, whose certificate authorities are in `ca.crt`.
fn kubeconfig(port: u16, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://localhost:{port}', certificate-authority: ca.crt}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    )
}

/// Returns a kubeconfig with this user for a server without TLS.
fn plain_kubeconfig(host: impl std::fmt::Display, user: &str) -> String {
    kubeconfig(1, user).replace("https://localhost:1', certificate-authority: ca.crt", &format!("http://{host}'"))
}

async fn succeeds(client: &Client) -> bool {
    let response = client.request_text(http::Request::get("/").body(Vec::new()).unwrap());
    tokio::time::timeout(std::time::Duration::from_secs(1), response).await.is_ok_and(|result| result.is_ok())
}

/// The next request on a dead connection is lost; the election's request after it is not.
#[tokio::test]
async fn a_dead_connection_costs_the_election_one_request() {
    use mutual_tls::{Authority, serve};
    let (authority, files) = (Authority::new(), Files::new());
    let (port, mut seen) = serve(&authority, 1).await;
    files.write("ca.crt", &authority.pem);
    files.write_certificate(&authority.issue(7));
    let clients = files.clients(&kubeconfig(port, WITH_CERTIFICATE)).await;
    let client = clients.for_election().unwrap();
    assert_eq!([succeeds(&client).await, succeeds(&client).await, succeeds(&client).await], [true, false, true]);
    assert_eq!(seen.recv().await.unwrap(), (7, http::Version::HTTP_11));
}

/// The plugin fails after the start, but the authorities are replaced.
#[tokio::test]
async fn new_authorities_keep_the_certificate_of_a_plugin() {
    use mutual_tls::{Authority, serve};
    let (authority, files) = (Authority::new(), Files::new());
    let (port, mut seen) = serve(&authority, usize::MAX).await;
    let (certificate, key) = authority.issue(7);
    let status = serde_json::json!({"clientCertificateData": certificate, "clientKeyData": key});
    let credential = serde_json::json!({"apiVersion": EXEC, "kind": "ExecCredential", "status": status});
    files.write("credential", &credential.to_string());
    files.write("ca.crt", &authority.pem);
    let exec = files.write_plugin(&format!("exec cat '{}'", files.path("credential").display()));
    let clients = files.clients(&kubeconfig(port, &exec)).await;
    let client = clients.for_component("c").unwrap();
    succeeds(&client).await;
    assert_eq!(seen.recv().await.unwrap().0, 7);

    std::fs::remove_file(files.path("credential")).unwrap();
    files.write("ca.crt", &format!("{}{}", Authority::new().pem, authority.pem));
    reload_interval().await;
    succeeds(&client).await;
    let second_request = tokio::time::timeout(std::time::Duration::from_secs(10), seen.recv()).await;
    assert_eq!(second_request.unwrap().unwrap().0, 7);
}

#[tokio::test]
async fn a_plugin_replaces_its_expired_certificate() {
    use mutual_tls::{Authority, serve};
    let (authority, files) = (Authority::new(), Files::new());
    let (port, mut seen) = serve(&authority, usize::MAX).await;
    let provide = |number, expires: &str| {
        let (certificate, key) = authority.issue(number);
        let status = serde_json::json!({
            "clientCertificateData": certificate, "clientKeyData": key, "expirationTimestamp": expires,
        });
        files.write("credential", &serde_json::json!({"apiVersion": EXEC, "status": status}).to_string());
    };
    files.write("ca.crt", &authority.pem);
    let exec = files.write_plugin(&format!("exec cat '{}'", files.path("credential").display()));
    provide(7, "2020-01-01T00:00:00Z");
    let clients = files.clients(&kubeconfig(port, &exec)).await;
    for client in [clients.for_component("c").unwrap(), clients.for_election().unwrap()] {
        for (number, expires) in [(7, "2020-01-01T00:00:00Z"), (8, "2999-01-01T00:00:00Z")] {
            provide(number, expires);
            let _ = client.request_text(http::Request::get("/").body(Vec::new()).unwrap()).await;
            assert_eq!(seen.recv().await.unwrap().0, number);
        }
    }
}

#[tokio::test]
async fn a_write_without_leadership_after_a_plugin_run_is_not_sent() {
    use crate::runtime::leader_election::LeadershipState;
    let (seen, mut writes) = tokio::sync::mpsc::unbounded_channel();
    let router = Router::new().fallback(any(move || {
        seen.send(()).unwrap();
        async { http::StatusCode::NOT_FOUND }
    }));
    let (host, files) = (serve(router).await, Files::new());
    let credential = format!(r#"{{"apiVersion": "{EXEC}", "status": {{"token": "t"}}}}"#);
    let exec = files.write_plugin(&format!("touch {:?}\nsleep 1\necho '{credential}'", files.path("runs")));
    let clients = files.clients(&plain_kubeconfig(&host, &exec)).await;
    let (state, leadership) = Leadership::channel();
    state.send_replace(LeadershipState::Leading {
        until: (tokio::time::Instant::now() + std::time::Duration::from_secs(60)).into(),
    });
    let nodes = Api::<Node>::all(clients.for_writer("c", leadership).unwrap());
    let write = tokio::spawn(async move { nodes.delete("n", &kube::api::DeleteParams::default()).await });
    while !files.path("runs").exists() {
        tokio::task::yield_now().await;
    }
    state.send_replace(LeadershipState::Standby);
    write.await.unwrap().map(drop).unwrap_err();
    assert!(writes.try_recv().is_err());
}

#[tokio::test]
async fn a_renewed_client_certificate_is_used_without_a_restart() {
    use mutual_tls::{Authority, serve};
    let (authority, files) = (Authority::new(), Files::new());
    let (port, mut seen) = serve(&authority, usize::MAX).await;
    files.write("ca.crt", &authority.pem);
    files.write_certificate(&authority.issue(7));
    let clients = files.clients(&kubeconfig(port, WITH_CERTIFICATE)).await;
    let client = clients.for_component("c").unwrap();
    let mut serial_and_version = async || {
        let _ = client.request_text(http::Request::get("/").body(Vec::new()).unwrap()).await;
        seen.recv().await.unwrap()
    };
    assert_eq!(serial_and_version().await, (7, http::Version::HTTP_2));
    files.write_certificate(&authority.issue(8));
    assert_eq!(serial_and_version().await.0, 7, "files are not read for each request");
    reload_interval().await;
    assert_eq!(serial_and_version().await.0, 8, "no new request uses the old connection");
}

#[tokio::test]
async fn a_request_without_response_fails() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let clients = clients_of(&address.to_string(), &metrics()).await;
    for client in [clients.for_component("c").unwrap(), clients.for_election().unwrap()] {
        let nodes = Api::<Node>::all(client);
        let request = tokio::spawn(async move { nodes.get("n").await });
        let (_connection, _) = listener.accept().await.unwrap();
        tokio::time::pause();
        let error = with_causes(&request.await.unwrap().unwrap_err());
        tokio::time::resume();
        assert!(error.contains("no response from the API server within 30s"), "{error}");
    }
}
