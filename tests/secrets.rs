//! The output of the program contains no secret: neither its log at the highest level, nor its pages, nor Events, Nodes or Services.
//!
//! The built binary runs with `--cloud-provider=azure` on the simulated Azure, over TLS. Every secret in its configuration contains
//! [`MARK`], and every token of the simulator contains [`TOKEN`]. Requests first succeed. Then all fail with errors that repeat the
//! request.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests outside test functions")]

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use cloud_controller_manager::{
    providers::azure::config::FIELDS,
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{
        api_server::ApiServer,
        azure::{
            Azure, AzureOptions, Endpoint,
            entra::Credential,
            topology::{Endpoints, Pool, PoolKind, Topology},
            world::{CLIENT_ID, Serving, Start, World, start_world},
        },
        objects,
        reviews::User,
        serve::Certificates,
    },
};
use http::{Request, Response, header};
use k8s_openapi::api::core::v1::{Event, Node, Service};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::TcpListener,
    process::{Child, Command},
    sync::watch,
    time::timeout,
};

/// Part of every planted secret.
const MARK: &str = "pl4nt3d";
/// Part of every token that the simulator issues.
const TOKEN: &str = "sandbox-token-";
/// Token of the test for the secure port.
const ADMIN_TOKEN: &str = "pl4nt3d-admin-token";
/// Token of the program for the API server.
const KUBE_TOKEN: &str = "pl4nt3d-kube-token";
/// Time limit for any condition on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// Time limit for six refusals: requests to ARM are retried with backoff, and a rejected token is replaced at most once a minute.
const SIX_REFUSALS: Duration = Duration::from_secs(240);
/// All pages.
const PAGES: &str =
    "/metrics /statusz / /configz /flagz /healthz?verbose /livez?verbose /readyz?verbose /planz?service=default/web";

/// Returns a secret that names its location.
fn planted(location: &str) -> String {
    format!("{MARK}-{location}")
}

/// Service whose errors repeat the request.
struct Echo {
    /// Whether it serves all paths, or only those of ARM.
    everything: bool,
    /// Its URL, for `/metadata/endpoints`.
    url: watch::Sender<String>,
    /// Number of requests with secrets that it has repeated. `None`: the service is off.
    repeated: watch::Sender<Option<usize>>,
}

impl Echo {
    fn new(everything: bool) -> Arc<Self> {
        let repeated = watch::Sender::new(everything.then_some(0));
        Arc::new(Self { everything, url: watch::Sender::default(), repeated })
    }

    async fn wait_until_repeated(&self, times: usize) {
        let mut repeated = self.repeated.subscribe();
        let enough = repeated.wait_for(|count| count.is_some_and(|count| count >= times));
        timeout(SIX_REFUSALS, enough).await.expect("requests with secrets").unwrap();
    }

    /// Returns errors of all classes in turn.
    fn refuse(&self, secrets: &str) -> Response<Bytes> {
        let mut number = 0;
        if secrets.contains(MARK) || secrets.contains(TOKEN) {
            self.repeated.send_modify(|count| *count = count.map(|count| count + 1));
            number = self.repeated.borrow().unwrap_or_default();
        }
        let status = [401, 403, 400, 409, 500, 404][number % 6];
        let said = format!("I do not like your {secrets}.");
        let body = json!({
            "code": said, "error": {"code": secrets, "message": said, "target": secrets, "details": [{"code": "D", "message": said}]},
            "error_description": said,
        });
        let response = Response::builder().status(status).header("x-ms-request-id", "echo");
        response.header("x-ms-failure-cause", "gateway").body(Bytes::from(body.to_string())).unwrap()
    }
}

#[async_trait]
impl Endpoint for Echo {
    fn serves(&self, _: &str, _: &str) -> bool {
        self.repeated.borrow().is_some()
    }

    async fn respond(&self, request: Request<Bytes>) -> Response<Bytes> {
        if self.everything && request.uri().path().starts_with("/metadata/endpoints") {
            let document = Endpoints::behind(&self.url.borrow()).metadata("AzurePublicCloud");
            return Response::new(Bytes::from(document.to_string()));
        }
        let authorization = request.headers().get(header::AUTHORIZATION);
        let authorization = authorization.and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.refuse(&format!("{authorization} {}", String::from_utf8_lossy(request.body())))
    }
}

/// API server behind TLS, and a folder for files.
struct Cluster {
    server: ApiServer,
    folder: tempfile::TempDir,
    stop: Shutdown,
}

impl Cluster {
    async fn start() -> Self {
        let (server, stop, folder) = (ApiServer::new(Clock::System), Shutdown::new(), tempfile::tempdir().unwrap());
        server.add_token(ADMIN_TOKEN, User { name: "admin".into(), groups: vec!["system:masters".into()] });
        server.create::<Service>(&objects::load_balancer_service("default", "web"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let certificates = Certificates::generate().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        ApiServer::write_kubeconfig(&kubeconfig, &url, Some(&certificates)).unwrap();
        let text = fs::read_to_string(&kubeconfig).unwrap();
        let with_token = text.replace("token: sandbox", &format!("token: {KUBE_TOKEN}"));
        assert_ne!(text, with_token);
        fs::write(&kubeconfig, with_token).unwrap();
        let (serving, until) = (server.clone(), stop.clone());
        tokio::spawn(async move { serving.serve_tls(listener, &certificates, until).await });
        Self { server, folder, stop }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until the node has a provider id.
    async fn initialized(&self, node: &str) {
        let has_id = |server: &ApiServer| {
            let found = server.get::<Node>("", node).and_then(|node| node.spec?.provider_id);
            found.is_some()
        };
        timeout(SOON, self.server.wait_until(has_id)).await.expect("the node is initialized");
    }

    /// Starts the program. `environment` may contain secrets, too.
    async fn run(&self, mut config: Value, ca: &Path, environment: &[(&str, String)]) -> Manager {
        plant(&mut config);
        fs::write(self.path("azure.json"), config.to_string()).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let flag = |name: &str, file: &str| format!("--{name}={}", self.path(file).display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_cloud-controller-manager"));
        command
            .env_clear()
            .env("SSL_CERT_FILE", ca)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .args(["--cloud-provider=azure", "-v=10", "--leader-elect=false", "--configure-cloud-routes=false"])
            .args(["--bind-address=127.0.0.1", "--cluster-name=c", "--enable-dynamic-reloading"])
            .arg(format!("--secure-port={port}"))
            .args([flag("kubeconfig", "kubeconfig"), flag("cloud-config", "azure.json")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Manager::new(command.spawn().unwrap(), port)
    }

    /// Returns the objects that all users of the cluster may read.
    fn objects(&self) -> String {
        let server = &self.server;
        serde_json::to_string(&(server.list::<Event>(), server.list::<Node>(), server.list::<Service>())).unwrap()
    }
}

/// Sets every secret field without a planted secret.
fn plant(config: &mut Value) {
    for field in FIELDS.iter().filter(|field| field.secret) {
        let value = config[field.name].as_str().unwrap_or_default();
        if !value.contains(MARK) {
            config[field.name] = planted(field.name).into();
        }
    }
}

/// Running program and its log.
struct Manager {
    child: Child,
    port: u16,
    log: watch::Receiver<String>,
}

impl Manager {
    fn new(mut child: Child, port: u16) -> Self {
        let (sender, log) = watch::channel(String::new());
        let (out, mut errors) = (child.stdout.take().unwrap(), BufReader::new(child.stderr.take().unwrap()));
        tokio::spawn(async move {
            let mut rest = BufReader::new(out);
            let mut line = Vec::new();
            while errors.read_until(b'\n', &mut line).await.is_ok_and(|length| length > 0) {
                sender.send_modify(|log| log.push_str(&String::from_utf8_lossy(&line)));
                line.clear();
            }
            let mut text = String::new();
            let _ = rest.read_to_string(&mut text).await;
            sender.send_modify(|log| log.push_str(&text));
        });
        Self { child, port, log }
    }

    /// Returns the content of all pages.
    async fn pages(&self) -> String {
        let client = reqwest::Client::builder().danger_accept_invalid_certs(true).no_proxy().build().unwrap();
        let mut all = String::new();
        for page in PAGES.split_whitespace() {
            let request = client.get(format!("https://127.0.0.1:{}{page}", self.port)).bearer_auth(ADMIN_TOKEN).send();
            let response = timeout(SOON, request).await.unwrap().unwrap();
            let (status, headers, text) = (response.status(), response.headers().clone(), response.text().await.unwrap());
            assert!(matches!(status.as_u16(), 200 | 422 | 500 | 502..=504), "{page}: {status} {text}");
            all += &format!("{page} {headers:?}\n{text}\n");
        }
        all
    }

    /// Stops the program with SIGTERM and returns its output.
    async fn end(mut self) -> String {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").arg(pid).status().await.unwrap().success());
        timeout(SOON, self.child.wait()).await.expect("the program ends").unwrap();
        // The sender is dropped when both streams have ended.
        while self.log.changed().await.is_ok() {}
        self.log.borrow().clone()
    }
}

/// Panics with a line that contains a secret.
fn assert_clean(source: &str, text: &str, secrets: &[&str]) {
    assert!(!text.is_empty(), "{source} is empty");
    for line in text.lines() {
        let shown = secrets.iter().find(|secret| line.contains(**secret));
        assert!(shown.is_none(), "{source} shows {shown:?}: {line}");
    }
}

/// Stops the manager, and checks that its pages, its log and the cluster contain no secret.
async fn assert_shows_no_secret(cluster: &Cluster, manager: Manager) {
    let pages = manager.pages().await;
    let log = manager.end().await;
    let secrets = [MARK, TOKEN];
    assert_clean("a page", &pages, &secrets);
    assert_clean("the cluster", &cluster.objects(), &secrets);
    assert!(log.contains("echo") || log.contains("cannot fetch a token"), "the log says nothing of a refusal: {log}");
    assert_clean("the log", &log, &secrets);
    cluster.stop.begin();
}

async fn start_cloud(cluster: &Cluster) -> World {
    let serving = Serving { ca_file: Some(cluster.path("ca.pem")), shutdown: cluster.stop.clone(), ..Serving::default() };
    let start = Start { serving: Some(serving), ..Start::default() };
    let topology = Topology::new().pool(Pool::new(PoolKind::Uniform, "pool", 1));
    let simulation = start_world(topology, start).await.unwrap();
    let tenant = simulation.topology().tenant;
    simulation.with_directory(|directory| {
        directory.remove_credentials(CLIENT_ID);
        directory.add_credential(&tenant, CLIENT_ID, Credential::Secret(planted("aadClientSecret")));
        directory.add_credential(&tenant, CLIENT_ID, Credential::FederatedToken(planted("service-account")));
    });
    simulation
}

fn with(mut config: Value, fields: &Value) -> Value {
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    config
}

/// Initializes a Node. Then ARM refuses all requests and repeats the token. Each 401 replaces the token.
async fn check_success_and_refusals(
    config: impl Fn(&World) -> Value,
    environment: impl Fn(&Cluster) -> Vec<(&'static str, String)>,
) {
    let cluster = Cluster::start().await;
    let simulation = start_cloud(&cluster).await;
    let echo = Echo::new(false);
    simulation.azure().add_endpoint(Arc::<Echo>::clone(&echo));
    let node = cluster.server.create::<Node>(&simulation.uninitialized_nodes()[0]).metadata.name.unwrap();
    let manager = cluster.run(config(&simulation), &cluster.path("ca.pem"), &environment(&cluster)).await;
    cluster.initialized(&node).await;
    assert!(simulation.with_directory(|directory| directory.issued()) > 0);

    echo.repeated.send_replace(Some(0));
    for name in simulation.scale_out("pool", 1).unwrap() {
        cluster.server.create::<Node>(&simulation.uninitialized_node(&name).unwrap());
    }
    echo.wait_until_repeated(6).await;
    assert_shows_no_secret(&cluster, manager).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_secret_and_its_tokens_are_not_shown() {
    let config = |simulation: &World| with(simulation.config(), &json!({"aadClientSecret": planted("aadClientSecret")}));
    check_success_and_refusals(config, |_| Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_federated_token_is_not_shown() {
    let config = |simulation: &World| with(simulation.config(), &json!({"aadClientId": CLIENT_ID}));
    check_success_and_refusals(config, |cluster| {
        let file = cluster.path("token");
        fs::write(&file, planted("service-account")).unwrap();
        vec![
            ("AZURE_FEDERATED_TOKEN_FILE", file.display().to_string()),
            ("AZURE_CLIENT_SECRET", planted("environment")),
            // No proxy listens there: requests to the API server and ARM, both on this host, must not use it.
            ("HTTPS_PROXY", format!("http://proxy:{}@127.0.0.1:9", planted("proxy"))),
        ]
    })
    .await;
}

/// A login endpoint that refuses all requests and repeats them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_the_login_repeats_is_not_shown() {
    let cluster = Cluster::start().await;
    let echo = Echo::new(true);
    let cloud = Azure::new(AzureOptions::default());
    cloud.add_endpoint(Arc::<Echo>::clone(&echo));
    let served = cloud.serve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &cluster.stop).await.unwrap();
    fs::write(cluster.path("ca.pem"), &served.ca_pem).unwrap();
    echo.url.send_replace(served.url.clone());
    let config = json!({
        "tenantId": "t", "subscriptionId": "s", "resourceGroup": "rg", "location": "eastus", "vmType": "vmss",
        "aadClientId": "c", "aadClientSecret": planted("wrong"), "resourceManagerEndpoint": served.url,
    });
    let topology = Topology::new().pools(PoolKind::Uniform, 1, 1);
    cluster.server.create::<Node>(&topology.uninitialized_node(&topology.machines()[0]));
    let manager = cluster.run(config, &cluster.path("ca.pem"), &[]).await;
    echo.wait_until_repeated(3).await;
    assert_shows_no_secret(&cluster, manager).await;
}
