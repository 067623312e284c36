//! The secure port as a client sees it: a real TLS server on loopback, and an API server made of a function that reviews tokens
//! and access with a memory of its own.
#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

#[path = "support/any_server.rs"]
mod any_server;

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};

use cloud_controller_manager::{
    metrics::Metrics,
    runtime::{clock::Clock, shutdown::Shutdown},
    serving::{
        DryRunError, DryRunScope, HealthChecks, HealthEndpointSet, SecureServingConfig, ServingDeps, SniCertKey,
        TlsMinVersion, serve,
    },
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use reqwest::Client;
use serde_json::{Value, json};

/// What the API server knows and what it was asked.
#[derive(Default)]
struct ApiServer {
    tokens: Mutex<HashMap<String, String>>,
    readers: Mutex<Vec<String>>,
    config_map: Mutex<Option<BTreeMap<String, String>>>,
    config_map_forbidden: Mutex<bool>,
    failing_reviews: AtomicUsize,
    /// Whether reviews of callers without a name are never answered.
    silent_to_anonymous: AtomicBool,
    /// Whether reviews of unknown tokens are never answered, and how many of them wait.
    silent_to_junk: AtomicBool,
    junk: AtomicUsize,
    token_reviews: AtomicUsize,
    access_reviews: AtomicUsize,
}

impl ApiServer {
    fn client(self: &Arc<Self>) -> kube::Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let question: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (code, answer) = match path.as_str() {
            "/apis/authentication.k8s.io/v1/tokenreviews" => {
                let answer = self.review_token(question);
                if answer.1["status"]["authenticated"] == false && self.silent_to_junk.load(Ordering::SeqCst) {
                    self.junk.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                }
                answer
            }
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                let answer = self.review_access(question);
                if answer.1["spec"]["user"] == "system:anonymous" && self.silent_to_anonymous.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                answer
            }
            "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication" => self.authorities(),
            other => (404, failure(404, other)),
        };
        Response::builder().status(code).body(Body::from(serde_json::to_vec(&answer).unwrap())).unwrap()
    }

    fn review_token(&self, mut review: Value) -> (u16, Value) {
        self.token_reviews.fetch_add(1, Ordering::SeqCst);
        if self.failing_reviews.load(Ordering::SeqCst) > 0 {
            self.failing_reviews.fetch_sub(1, Ordering::SeqCst);
            return (503, failure(503, "etcd has no leader"));
        }
        let user = self.tokens.lock().unwrap().get(review["spec"]["token"].as_str().unwrap()).cloned();
        review["status"] = match user {
            Some(name) => json!({ "authenticated": true, "user": { "username": name, "groups": ["dev"] } }),
            None => json!({ "authenticated": false, "error": "unknown token" }),
        };
        (201, review)
    }

    fn review_access(&self, mut review: Value) -> (u16, Value) {
        self.access_reviews.fetch_add(1, Ordering::SeqCst);
        let spec = &review["spec"];
        assert!(spec["nonResourceAttributes"]["path"].as_str().unwrap().starts_with('/'));
        let allowed = self.readers.lock().unwrap().contains(&spec["user"].as_str().unwrap().to_owned());
        review["status"] = json!({ "allowed": allowed, "reason": "by the list" });
        (201, review)
    }

    fn authorities(&self) -> (u16, Value) {
        if *self.config_map_forbidden.lock().unwrap() {
            return (403, failure(403, "cannot get resource"));
        }
        match &*self.config_map.lock().unwrap() {
            None => (404, failure(404, "not found")),
            Some(data) => (
                200,
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                        "metadata": { "name": "extension-apiserver-authentication", "namespace": "kube-system" } }),
            ),
        }
    }
}

fn failure(code: u16, message: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code, "metadata": {} })
}

/// A running secure port.
struct Served {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    health: HealthChecks,
    verbosity: Arc<AtomicU8>,
    shutdown: Shutdown,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

fn config() -> SecureServingConfig {
    SecureServingConfig {
        bind_address: [127, 0, 0, 1].into(),
        port: 0,
        reload_interval: Duration::from_millis(20),
        ..Default::default()
    }
}

fn parts(api: Option<&Arc<ApiServer>>, verbosity: &Arc<AtomicU8>) -> ServingDeps {
    let metrics = Arc::new(Metrics::new().unwrap());
    let (gauges, verbosity) = (Arc::clone(&metrics), Arc::clone(verbosity));
    ServingDeps {
        metrics,
        health: HealthChecks::new(),
        client: api.map(ApiServer::client),
        configz: json!({ "kind": "CloudControllerManagerConfiguration" }),
        flagz: vec![("controllers".to_owned(), "*".to_owned())],
        status: Arc::new(|| json!({ "version": "v0.1.0", "controllers": { "service": "waiting for the lease" } })),
        planner: Some(Arc::new(|scope| Box::pin(planned(scope)))),
        before_metrics: Arc::new(move || gauges.workqueue_depth.with_label_values(&["service"]).set(42.0)),
        set_verbosity: Arc::new(move |level| verbosity.store(level, Ordering::SeqCst)),
        clock: Clock::System,
    }
}

async fn planned(scope: DryRunScope) -> Result<String, DryRunError> {
    let service = match scope {
        DryRunScope::Service(service) => service,
        DryRunScope::Cluster { kind, after } => return Ok(format!("all {kind:?} {after:?}")),
    };
    match service.as_str() {
        "default/web" => Ok("put a load balancer\nput a rule\n".to_owned()),
        _ => Err(DryRunError { code: 404, reason: format!("there is no Service {service}") }),
    }
}

async fn start(config: SecureServingConfig, api: Option<&Arc<ApiServer>>) -> Served {
    let verbosity = Arc::new(AtomicU8::new(0));
    let parts = parts(api, &verbosity);
    let (metrics, health, shutdown) = (Arc::clone(&parts.metrics), parts.health.clone(), Shutdown::new());
    let address = serve(config, parts, shutdown.clone()).await.unwrap();
    Served { address, metrics, health, verbosity, shutdown }
}

async fn error(config: SecureServingConfig) -> String {
    let parts = parts(None, &Arc::default());
    serve(config, parts, Shutdown::new()).await.unwrap_err().to_string()
}

fn client() -> Client {
    reqwest::ClientBuilder::new().danger_accept_invalid_certs(true).build().unwrap()
}

impl Served {
    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    async fn get(&self, path: &str) -> (u16, String) {
        fetch(client().get(self.url(path))).await
    }

    async fn get_as(&self, token: &str, path: &str) -> (u16, String) {
        fetch(client().get(self.url(path)).bearer_auth(token)).await
    }
}

async fn fetch(request: reqwest::RequestBuilder) -> (u16, String) {
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// Repeats `probe` until it says yes; a wait with a limit, for what happens in the background.
async fn eventually<F: Future<Output = bool>>(what: &str, probe: impl Fn() -> F) {
    let repeated = async {
        while !probe().await {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), repeated).await.is_ok(), "never: {what}");
}

/// A CA that signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn params(common_name: &str, organization: Option<&str>, names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    organization.into_iter().for_each(|name| params.distinguished_name.push(DnType::OrganizationName, name));
    params
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = params(name, None, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A client that shows a certificate.
    fn client(&self, name: &str, organization: Option<&str>) -> Client {
        let key = KeyPair::generate().unwrap();
        let mut params = params(name, organization, &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem() + &key.serialize_pem();
        let identity = reqwest::Identity::from_pem(pem.as_bytes()).unwrap();
        reqwest::ClientBuilder::new().danger_accept_invalid_certs(true).identity(identity).build().unwrap()
    }

    fn write_server(&self, directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let cert = params(name, None, &[name]).signed_by(&key, &self.issuer).unwrap().pem();
        let (cert_file, key_file) = (directory.join("tls.crt"), directory.join("tls.key"));
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(&cert_file, cert).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        (cert_file, key_file)
    }
}

/// A client that trusts one CA and looks every name up at one address.
fn trusting(authority: &Authority, name: &str, address: SocketAddr) -> Client {
    let root = reqwest::Certificate::from_pem(authority.pem.as_bytes()).unwrap();
    reqwest::ClientBuilder::new().tls_certs_only([root]).resolve(name, address).build().unwrap()
}

fn reader(name: &str) -> Arc<ApiServer> {
    let api = ApiServer::default();
    api.tokens.lock().unwrap().insert(format!("token-of-{name}"), name.to_owned());
    api.readers.lock().unwrap().push(name.to_owned());
    Arc::new(api)
}

#[tokio::test]
async fn anonymous_gets_health_only() {
    let served = start(config(), Some(&Arc::new(ApiServer::default()))).await;
    eventually("the lookup", || async { served.get("/readyz").await.0 == 200 }).await;
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(served.get(path).await, (200, "ok".to_owned()), "{path}");
    }
    for path in ["/metrics", "/configz", "/flagz", "/statusz", "/planz", "/readyz/ping", "/nonsense"] {
        let (code, body) = served.get(path).await;
        let status: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(code, 403, "{path}");
        assert_eq!((status["kind"].as_str(), status["code"].as_u64()), (Some("Status"), Some(403)));
        let message = format!("forbidden: User \"system:anonymous\" cannot get path \"{path}\": by the list");
        assert_eq!(status["message"], message);
    }
}

#[tokio::test]
async fn without_an_api_server_only_health_is_served_and_tokens_are_wrong() {
    let served = start(config(), None).await;
    assert_eq!(served.get("/readyz").await.0, 200);
    assert_eq!(served.get("/metrics").await.0, 403);
    assert_eq!(served.get_as("any", "/healthz").await.0, 401);
}

#[tokio::test]
async fn a_token_is_reviewed_once_and_its_user_may_read_what_the_api_server_allows() {
    let api = reader("ann");
    api.tokens.lock().unwrap().insert("token-of-bob".to_owned(), "bob".to_owned());
    let served = start(config(), Some(&api)).await;
    for _ in 0..3 {
        let (code, body) = served.get_as("token-of-ann", "/metrics").await;
        assert_eq!(code, 200);
        assert!(body.contains("workqueue_depth{name=\"service\"} 42"), "gauges are refreshed first");
    }
    assert_eq!((api.token_reviews.load(Ordering::SeqCst), api.access_reviews.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(served.get_as("token-of-bob", "/metrics").await.0, 403);
    let (code, body) = served.get_as("stolen", "/healthz").await;
    assert_eq!((code, serde_json::from_str::<Value>(&body).unwrap()["reason"].as_str()), (401, Some("Unauthorized")));
    let text = served.metrics.render().unwrap();
    for line in [
        "authentication_attempts{result=\"success\"} 4",
        "authentication_attempts{result=\"error\"} 1",
        "authorization_attempts_total{result=\"allowed\"} 3",
        "authorization_attempts_total{result=\"no-opinion\"} 1",
        "apiserver_delegated_authn_request_total{code=\"201\"} 3",
        "apiserver_delegated_authz_request_total{code=\"201\"} 2",
        "authenticated_user_requests{username=\"other\"} 4",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn a_failing_review_is_repeated() {
    let api = reader("ann");
    api.failing_reviews.store(1, Ordering::SeqCst);
    let served = start(config(), Some(&api)).await;
    assert_eq!(served.get_as("token-of-ann", "/metrics").await.0, 200);
    assert_eq!(api.token_reviews.load(Ordering::SeqCst), 2);
    assert!(served.metrics.render().unwrap().contains("apiserver_delegated_authn_request_total{code=\"503\"} 1"));
}

#[tokio::test]
async fn client_certificates_name_user_and_groups_and_the_ca_may_change() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let api = reader("ann");
    *api.config_map.lock().unwrap() = Some(BTreeMap::from([("client-ca-file".to_owned(), first.pem.clone())]));
    let served = start(config(), Some(&api)).await;
    eventually("the lookup", || async { served.get("/readyz").await.0 == 200 }).await;
    let url = served.url("/metrics");
    assert_eq!(fetch(first.client("ann", None).get(&url)).await.0, 200);
    assert_eq!(fetch(first.client("bob", None).get(&url)).await.0, 403);
    assert_eq!(fetch(first.client("admin", Some("system:masters")).get(&url)).await.0, 200);
    assert_eq!(fetch(second.client("admin", Some("system:masters")).get(&url)).await.0, 401);
    let bearer = second.client("x", None).get(&url).bearer_auth("token-of-ann");
    assert_eq!(fetch(bearer).await.0, 200, "a good token counts although the certificate is not trusted");

    *api.config_map.lock().unwrap() = Some(BTreeMap::from([("client-ca-file".to_owned(), second.pem.clone())]));
    let rotated = second.client("ann", None);
    eventually("the new CA", || async { fetch(rotated.get(&url)).await.0 == 200 }).await;
    assert_eq!(fetch(first.client("ann", None).get(&url)).await.0, 401);
}

#[tokio::test]
async fn a_front_proxy_may_name_the_user_and_others_may_not() {
    let (proxies, clients) = (Authority::new("proxies"), Authority::new("clients"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("proxy-ca.crt");
    std::fs::write(&file, &proxies.pem).unwrap();
    let client_ca = directory.path().join("client-ca.crt");
    std::fs::write(&client_ca, &clients.pem).unwrap();
    let mut config = config();
    config.authentication.requestheader_client_ca_file = Some(file);
    config.authentication.requestheader.allowed_names = vec!["aggregator".to_owned()];
    config.authentication.client_ca_file = Some(client_ca);
    let served = start(config, Some(&reader("ann"))).await;
    let ask = |client: Client, user: &'static str, group: &'static str| {
        let request = client.get(served.url("/metrics"));
        fetch(request.header("X-Remote-User", user).header("X-Remote-Group", group))
    };
    assert_eq!(ask(proxies.client("aggregator", None), "ann", "dev").await.0, 200);
    assert_eq!(ask(proxies.client("aggregator", None), "bob", "dev").await.0, 403);
    assert_eq!(ask(proxies.client("aggregator", None), "bob", "system:masters").await.0, 200);
    assert_eq!(ask(proxies.client("impostor", None), "ann", "system:masters").await.0, 401);
    assert_eq!(ask(clients.client("bob", None), "ann", "system:masters").await.0, 403, "headers of a client do not count");
    assert_eq!(ask(client(), "ann", "system:masters").await.0, 403);
}

#[tokio::test]
async fn a_failing_lookup_is_shown_and_mended() {
    let api = reader("ann");
    *api.config_map_forbidden.lock().unwrap() = true;
    let served = start(config(), Some(&api)).await;
    eventually("the reason", || async {
        let (code, body) = served.get_as("token-of-ann", "/readyz?verbose").await;
        code == 500 && body.contains("forbidden to get configmaps in namespace kube-system")
    })
    .await;
    let (code, body) = served.get("/readyz").await;
    assert_eq!(
        (code, body.as_str()),
        (500, "[-]extension-apiserver-authentication failed: reason withheld\nreadyz check failed\n")
    );
    assert_eq!(served.get("/livez").await.0, 200, "a restart would not help");
    *api.config_map_forbidden.lock().unwrap() = false;
    eventually("readiness", || async { served.get("/readyz").await.0 == 200 }).await;

    *api.config_map_forbidden.lock().unwrap() = true;
    let mut tolerant = config();
    tolerant.authentication.tolerate_lookup_failure = true;
    let served = start(tolerant, Some(&api)).await;
    assert_eq!(served.get("/readyz").await.0, 200);
}

#[tokio::test]
async fn failing_checks_are_seen_by_probes_and_explained_to_users() {
    let served = start(config(), Some(&reader("ann"))).await;
    eventually("the lookup", || async { served.get("/readyz").await.0 == 200 }).await;
    served.health.add("leaderElection", HealthEndpointSet::ALL, || Ok(()));
    served.health.add("service-lb-controller", HealthEndpointSet::ALL, || Err("no sync for 10 min".to_owned()));
    let (code, body) = served.get("/healthz").await;
    let withheld = "[+]leaderElection ok\n[-]service-lb-controller failed: reason withheld\nhealthz check failed\n";
    assert_eq!((code, body.as_str()), (500, withheld));
    assert!(served.get_as("token-of-ann", "/healthz").await.1.contains("failed: no sync for 10 min"));
    assert_eq!(served.get("/healthz?exclude=service-lb-controller").await, (200, "ok".to_owned()));
    assert_eq!(served.get_as("token-of-ann", "/livez/leaderElection").await, (200, "ok".to_owned()));
    assert_eq!(served.get_as("token-of-ann", "/livez/service-lb-controller").await.0, 500);
    assert_eq!(served.get_as("token-of-ann", "/livez/nonsense").await.0, 404);
    let (_, slis) = served.get_as("token-of-ann", "/metrics/slis").await;
    assert!(slis.contains("kubernetes_healthcheck{name=\"service-lb-controller\",type=\"healthz\"} 0"), "{slis}");
    assert!(!slis.contains("workqueue"));
}

#[tokio::test]
async fn pages_that_are_switched_off_do_not_exist() {
    let off = SecureServingConfig { profiling: false, flagz: false, statusz: false, ..config() };
    let served = start(off, Some(&reader("ann"))).await;
    for path in ["/flagz", "/statusz", "/debug/flags/v", "/debug/pprof/"] {
        assert_eq!(served.get_as("token-of-ann", path).await.0, 404, "{path}");
    }
    assert_eq!(served.get_as("token-of-ann", "/metrics").await.0, 200);
}

#[tokio::test]
async fn what_is_malformed_is_refused_before_anybody_is_asked() {
    let api = reader("ann");
    let served = start(config(), Some(&api)).await;
    let long = "a".repeat(300);
    let rows = [
        ("PROPFIND", "/metrics".to_owned(), 405),
        ("TRACE", "/healthz".to_owned(), 405),
        ("GET", format!("/{long}"), 414),
        ("GET", format!("/healthz?exclude={}", long.repeat(10)), 414),
        ("GET", "/a[b]".to_owned(), 400),
    ];
    for (method, path, expected) in rows {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = client().request(method, served.url(&path)).bearer_auth("token-of-ann");
        let response = request.send().await.unwrap();
        let allow = response.headers().get("allow").cloned();
        let status: Value = response.json().await.unwrap();
        assert_eq!(status["code"], expected, "{path}");
        assert!(status["message"].as_str().unwrap().len() < 128, "{status}");
        assert_eq!(allow.is_some(), expected == 405);
    }
    assert_eq!((api.token_reviews.load(Ordering::SeqCst), api.access_reviews.load(Ordering::SeqCst)), (0, 0));
    let token = "t".repeat(17 * 1024);
    assert_eq!(served.get_as(&token, "/healthz").await.0, 401);
    assert_eq!(api.token_reviews.load(Ordering::SeqCst), 0, "a token without bound is not reviewed");
    let text = served.metrics.render().unwrap();
    assert!(text.contains("cloud_controller_manager_serving_requests_refused_total{reason=\"malformed\"} 5"), "{text}");
}

/// A connection for raw HTTP/1.1.
type Raw = tokio_rustls::client::TlsStream<tokio::net::TcpStream>;

async fn connect(address: SocketAddr) -> std::io::Result<Raw> {
    let stream = tokio::net::TcpStream::connect(address).await?;
    any_server::connector("http/1.1").connect("localhost".try_into().unwrap(), stream).await
}

/// The head of the next answer; empty if the connection has ended.
async fn head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match tokio::io::AsyncReadExt::read_u8(stream).await {
            Ok(byte) => head.push(byte),
            Err(_) => return String::new(),
        }
    }
    String::from_utf8(head).unwrap()
}

/// The status of a HEAD request; `None` if the connection has ended.
async fn status_on(stream: &mut Raw, path: &str, token: &str) -> Option<u16> {
    let request = format!("HEAD {path} HTTP/1.1\r\nhost: ccm\r\nauthorization: Bearer {token}\r\n\r\n");
    // A connection that has ended is seen when the answer is read.
    let _ = tokio::io::AsyncWriteExt::write_all(stream, request.as_bytes()).await;
    let answered = tokio::time::timeout(Duration::from_secs(30), head(stream)).await.unwrap();
    answered.split(' ').nth(1).map(|status| status.parse().unwrap())
}

#[tokio::test]
async fn a_head_has_64_kib_at_most() {
    let served = start(config(), None).await;
    for (length, expected) in [(10_000, 200), (60_000, 200), (140_000, 431), (1_000_000, 431)] {
        let filler = "a".repeat(length);
        // The answer is read while the head is sent: whoever goes on sending may see a reset after it.
        let (mut reader, mut writer) = tokio::io::split(connect(served.address).await.unwrap());
        let request = format!("HEAD /healthz HTTP/1.1\r\nhost: ccm\r\nx-filler: {filler}\r\n\r\n");
        let sent = tokio::io::AsyncWriteExt::write_all(&mut writer, request.as_bytes());
        let (_, answered) = tokio::join!(sent, head(&mut reader));
        assert!(answered.starts_with(&format!("HTTP/1.1 {expected} ")), "{length}: {answered:?}");
        match client().get(served.url("/healthz")).header("x-filler", filler).send().await {
            Ok(answer) => assert_eq!(answer.status(), expected, "{length}"),
            // HTTP/2 has an error of its own for a head in very many frames, which ends the connection.
            Err(error) => {
                let error = format!("{error:?}");
                assert!(length == 1_000_000 && error.contains("ENHANCE_YOUR_CALM"), "{length}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn callers_without_a_name_do_not_hold_up_those_with_one() {
    let api = reader("ann");
    api.silent_to_anonymous.store(true, Ordering::SeqCst);
    let served = start(config(), Some(&api)).await;
    let anonymous = client();
    let ask = |number: usize| anonymous.get(served.url(&format!("/{number}"))).send();
    let waiting: Vec<_> = (0..8).map(|number| tokio::spawn(ask(number))).collect();
    eventually("reviews", || async { api.access_reviews.load(Ordering::SeqCst) == 8 }).await;
    for number in 100..500 {
        let refused = tokio::time::timeout(Duration::from_secs(5), ask(number)).await.expect("an answer at once").unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers()["retry-after"], "1");
    }
    assert_eq!(api.access_reviews.load(Ordering::SeqCst), 8);
    assert_eq!(served.get("/livez").await.0, 200);
    assert_eq!(served.get_as("token-of-ann", "/metrics").await.0, 200);
    api.silent_to_anonymous.store(false, Ordering::SeqCst);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    eventually("room again", || async { served.get("/metrics").await.0 == 403 }).await;
}

/// A client that comes from an address of its own.
fn client_from(source: [u8; 4]) -> Client {
    let builder = reqwest::ClientBuilder::new().danger_accept_invalid_certs(true);
    builder.local_address(IpAddr::from(source)).build().unwrap()
}

#[tokio::test]
async fn junk_tokens_take_no_reviews_from_those_who_may_read_pages() {
    let api = reader("ann");
    api.tokens.lock().unwrap().insert("token-of-bob".to_owned(), "bob".to_owned());
    api.silent_to_junk.store(true, Ordering::SeqCst);
    let mut config = config();
    config.authentication.token_cache_ttl = Duration::from_millis(1);
    let served = start(config, Some(&api)).await;
    assert_eq!(served.get_as("token-of-ann", "/metrics").await.0, 200, "her network is familiar from now on");

    let junk = |source: u8| {
        let (client, url) = (client_from([127, 0, 0, source]), served.url("/metrics"));
        (0..16).map(move |number| tokio::spawn(client.get(&url).bearer_auth(format!("junk-{source}-{number}")).send()))
    };
    let mut waiting: Vec<_> = (11..15).flat_map(junk).collect();
    eventually("reviews", || async { api.junk.load(Ordering::SeqCst) == 16 }).await;
    assert_eq!(served.get_as("token-of-ann", "/metrics").await.0, 200, "from a familiar network");
    let elsewhere = client_from([127, 0, 0, 20]).get(served.url("/metrics")).bearer_auth("token-of-ann");
    assert_eq!(fetch(elsewhere).await.0, 200, "from one that was never seen");
    assert_eq!(api.junk.load(Ordering::SeqCst), 16, "junk beyond that asks nobody");

    waiting.extend(junk(1));
    eventually("reviews", || async { api.junk.load(Ordering::SeqCst) == 32 }).await;
    assert_eq!(served.get_as("token-of-bob", "/metrics").await.0, 429, "whom nobody knows");
    assert_eq!(served.get_as("token-of-ann", "/metrics").await.0, 200, "who was known a moment ago");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn only_who_may_read_a_page_keeps_a_place() {
    let api = reader("ann");
    api.tokens.lock().unwrap().insert("token-of-bob".to_owned(), "bob".to_owned());
    let served = start(config(), Some(&api)).await;
    let rows = [
        ("/metrics", "token-of-ann", 200),
        ("/livez", "token-of-ann", 200),
        ("/api/v1", "token-of-ann", 404),
        ("/livez", "token-of-bob", 200),
        ("/metrics", "token-of-bob", 403),
    ];
    let mut open = Vec::new();
    for (path, token, expected) in rows {
        let mut stream = connect(served.address).await.unwrap();
        assert_eq!(status_on(&mut stream, path, token).await, Some(expected), "{path} {token}");
        open.push(stream);
    }
    // So many that all who do not keep their places have to give way.
    let mut crowd = Vec::new();
    let admitted = async {
        while crowd.len() < 24 + 24 {
            match connect(served.address).await {
                Ok(stream) => crowd.push(stream),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), admitted).await.is_ok(), "newcomers are refused");
    let mut statuses = Vec::new();
    for (stream, (path, token, _)) in open.iter_mut().zip(rows) {
        statuses.push(status_on(stream, path, token).await);
    }
    assert_eq!(statuses, [Some(200), None, None, None, None]);
}

#[tokio::test]
async fn one_peer_gets_few_connections_and_leaves_the_others_theirs() {
    let served = start(config(), None).await;
    let mut open = Vec::new();
    for _ in 0..30 {
        open.extend(tokio::net::TcpStream::connect(served.address).await);
    }
    // Which of them are closed depends on whether a second passes meanwhile, their number does not.
    let still_open = || {
        let is_open = |stream: &&tokio::net::TcpStream| matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        open.iter().filter(is_open).count()
    };
    eventually("no more than the share stay open", || async { still_open() <= 24 }).await;
    assert_eq!(fetch(client_from([127, 0, 0, 2]).get(served.url("/livez"))).await.0, 200);
    assert_eq!(still_open(), 24, "another network takes nothing from them");
    let served_in_place = || async { client().get(served.url("/livez")).send().await.is_ok() };
    eventually("a newer connection gets the place of a silent one", served_in_place).await;
    eventually("which is closed", || async { still_open() < 24 }).await;
    let text = served.metrics.render().unwrap();
    assert!(text.contains("cloud_controller_manager_serving_connections_refused_total{reason=\"replaced\"}"), "{text}");
}

#[tokio::test]
async fn pages_and_methods() {
    let served = start(config(), Some(&reader("ann"))).await;
    let rows = [
        ("/configz", 200, "{\"cloudcontrollermanager.config.k8s.io\":{\"kind\":\"CloudControllerManagerConfiguration\"}}"),
        ("/flagz", 200, "cloud-controller-manager flags\n\ncontrollers=*\n"),
        ("/statusz?format=json", 200, "{\"controllers\":{\"service\":\"waiting for the lease\"},\"version\":\"v0.1.0\"}"),
        ("/planz?service=default/web", 200, "put a load balancer\nput a rule\n"),
        ("/planz?service=default%2Fweb", 200, "put a load balancer\nput a rule\n"),
        ("/planz?service=default/none", 404, "there is no Service default/none\n"),
        ("/planz", 200, "all None None\n"),
        ("/planz?kind=routes", 200, "all Some(Routes) None\n"),
        ("/planz?kind=nodes", 200, "all Some(Nodes) None\n"),
        ("/planz?kind=services&after=default/web", 200, "all Some(Services) Some(\"default/web\")\n"),
        ("/planz?kind=pods", 400, "say which kind: /planz?kind=nodes, routes or services\n"),
        ("/planz?after=web", 400, "say which Service: /planz?service=NAMESPACE/NAME\n"),
        ("/planz?service=", 400, "say which Service: /planz?service=NAMESPACE/NAME\n"),
        ("/planz?service=web", 400, "say which Service: /planz?service=NAMESPACE/NAME\n"),
        ("/planz?service=a/b/c", 400, "say which Service: /planz?service=NAMESPACE/NAME\n"),
        ("/nonsense", 404, "404 page not found\n"),
        ("/debug/flags/v", 406, "unsupported HTTP method; PUT a number to set the log verbosity\n"),
    ];
    for (path, code, body) in rows {
        assert_eq!(served.get_as("token-of-ann", path).await, (code, body.to_owned()), "{path}");
    }
    assert!(served.get_as("token-of-ann", "/statusz").await.1.contains("  service: waiting for the lease\n"));
    assert!(served.get_as("token-of-ann", "/metrics/v2").await.1.contains("workqueue_depth"));
    for path in ["/debug/pprof/", "/debug/pprof/heap"] {
        assert_eq!(served.get_as("token-of-ann", path).await.0, 501, "{path}");
    }
    for path in ["/metrics", "/healthz", "/configz", "/statusz", "/flagz", "/planz?service=default/web"] {
        let request = client().post(served.url(path)).bearer_auth("token-of-ann");
        assert_eq!(request.send().await.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
    let response = client().get(served.url("/metrics")).bearer_auth("token-of-ann").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
}

#[tokio::test]
async fn the_verbosity_is_set_by_put() {
    let served = start(config(), Some(&reader("ann"))).await;
    let put = |body: &'static str| {
        let request = client().request(Method::PUT, served.url("/debug/flags/v"));
        fetch(request.bearer_auth("token-of-ann").body(body))
    };
    assert_eq!(put("5").await, (200, "successfully set log verbosity to 5\n".to_owned()));
    for bad in ["", "high", "256", "-1"] {
        assert_eq!(put(bad).await.0, 400, "{bad}");
    }
    assert_eq!(served.verbosity.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn http2_unless_disabled() {
    for (disable_http2, version) in [(false, http::Version::HTTP_2), (true, http::Version::HTTP_11)] {
        let served = start(SecureServingConfig { disable_http2, ..config() }, None).await;
        let response = client().get(served.url("/healthz")).send().await.unwrap();
        assert_eq!((response.status(), response.version()), (StatusCode::OK, version));
    }
}

#[tokio::test]
async fn certificates_are_replaced_by_swapping_a_directory_and_bad_ones_are_not_taken() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let directory = tempfile::tempdir().unwrap();
    old.write_server(&directory.path().join("1"), "ccm.test");
    new.write_server(&directory.path().join("2"), "ccm.test");
    std::fs::create_dir(directory.path().join("bad")).unwrap();
    let link = |target: &str| {
        let next = directory.path().join("next");
        std::os::unix::fs::symlink(target, &next).unwrap();
        std::fs::rename(next, directory.path().join("current")).unwrap();
    };
    link("1");
    let current = directory.path().join("current");
    let config = SecureServingConfig {
        tls_cert_file: Some(current.join("tls.crt")),
        tls_private_key_file: Some(current.join("tls.key")),
        ..config()
    };
    let served = start(config, None).await;
    let url = format!("https://ccm.test:{}/healthz", served.address.port());
    let reaches = |authority: &Authority| {
        let request = trusting(authority, "ccm.test", served.address).get(&url);
        async move { request.send().await.is_ok() }
    };
    assert!(reaches(&old).await && !reaches(&new).await);
    link("bad");
    for _ in 0..20 {
        assert!(reaches(&old).await, "the old pair stays");
    }
    link("2");
    eventually("the new certificate", || reaches(&new)).await;
    assert!(!reaches(&old).await);
}

#[tokio::test]
async fn the_name_asked_for_chooses_the_certificate() {
    let authority = Authority::new("sni");
    let directory = tempfile::tempdir().unwrap();
    let (cert_file, key_file) = authority.write_server(directory.path(), "named.test");
    let sni = SniCertKey { cert_file, key_file, patterns: Vec::new() };
    let served = start(SecureServingConfig { tls_sni_cert_key: vec![sni], ..config() }, None).await;
    let reaches = async |name: &str| {
        let url = format!("https://{name}:{}/healthz", served.address.port());
        trusting(&authority, name, served.address).get(url).send().await.is_ok()
    };
    assert!(reaches("named.test").await);
    assert!(!reaches("other.test").await);
}

#[tokio::test]
async fn old_tls_versions_are_refused() {
    let served = start(SecureServingConfig { tls_min_version: TlsMinVersion::Tls13, ..config() }, None).await;
    let limited = |version| {
        let builder = reqwest::ClientBuilder::new().danger_accept_invalid_certs(true).tls_version_max(version);
        builder.build().unwrap().get(served.url("/healthz")).send()
    };
    assert!(limited(reqwest::tls::Version::TLS_1_3).await.is_ok());
    assert!(limited(reqwest::tls::Version::TLS_1_2).await.is_err());
}

#[tokio::test]
async fn bad_files_name_the_flag_and_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let (good, _) = Authority::new("a").write_server(&directory.path().join("a"), "a.test");
    let (_, key) = Authority::new("b").write_server(&directory.path().join("b"), "b.test");
    let empty = directory.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let with_files = |cert: &Path, key: &Path| SecureServingConfig {
        tls_cert_file: Some(cert.to_owned()),
        tls_private_key_file: Some(key.to_owned()),
        ..config()
    };
    let mut ca = config();
    ca.authentication.client_ca_file = Some(empty.clone());
    let mut proxy = config();
    proxy.authentication.requestheader_client_ca_file = Some(directory.path().join("absent"));
    let sni = SniCertKey { cert_file: empty.clone(), key_file: key.clone(), patterns: Vec::new() };
    let rows = [
        (with_files(&directory.path().join("absent"), &key), "--tls-cert-file: cannot read", "absent"),
        (with_files(&empty, &key), "--tls-cert-file: ", "empty"),
        (with_files(&good, &key), "--tls-cert-file: ", "cannot be used together"),
        (ca, "--client-ca-file: ", "no CERTIFICATE block"),
        (proxy, "--requestheader-client-ca-file: ", "absent: cannot read"),
        (SecureServingConfig { tls_sni_cert_key: vec![sni], ..config() }, "--tls-sni-cert-key: ", "empty"),
        (
            SecureServingConfig { tls_cipher_suites: vec!["NULL".to_owned()], ..config() },
            "--tls-cipher-suites: ",
            "accepted: ",
        ),
        (SecureServingConfig { cert_dir: Some(empty.join("below-a-file")), ..config() }, "--cert-dir: ", "cannot write"),
    ];
    for (config, flag, detail) in rows {
        let error = error(config).await;
        assert!(error.starts_with(flag) && error.contains(detail), "{error}");
    }
}

#[tokio::test]
async fn a_stalled_handshake_holds_nobody_up_and_shutdown_ends_everything() {
    let served = start(config(), None).await;
    let stalled = tokio::net::TcpStream::connect(served.address).await.unwrap();
    let kept = client();
    assert_eq!(fetch(kept.get(served.url("/healthz"))).await.0, 200);
    served.shutdown.begin();
    assert!(served.shutdown.drain(Duration::from_secs(5)).await, "open connections are closed");
    assert!(kept.get(served.url("/healthz")).send().await.is_err());
    drop(stalled);
}
