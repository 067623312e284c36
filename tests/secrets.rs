//! Nothing that the program shows has a secret in it: not its log at the highest level, not a page it serves, not an
//! Event, a Node or a Service.
//!
//! The built binary runs with `--cloud-provider=azure` on the simulated Azure, over TLS. Secrets are planted wherever the program
//! is given one, all with the word [`MARK`]; tokens of the simulator have [`TOKEN`]. Then things go well, and then everything that
//! was sent comes back in errors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

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

/// In every planted secret and nowhere else.
const MARK: &str = "pl4nt3d";
/// In every token that the simulator issues.
const TOKEN: &str = "sandbox-token-";
/// What the tester shows at the secure port, and the program to the API server.
const ADMIN_TOKEN: &str = "pl4nt3d-admin-token";
const KUBE_TOKEN: &str = "pl4nt3d-kube-token";
/// For any condition, on a machine that may be busy.
const SOON: Duration = Duration::from_secs(60);
/// Time for six refusals: after each, ARM is asked again with back-off, and a refused token is replaced once a minute at most.
const SIX_REFUSALS: Duration = Duration::from_secs(240);
/// Everything that is served.
const PAGES: &str =
    "/metrics /statusz / /configz /flagz /healthz?verbose /livez?verbose /readyz?verbose /planz?service=default/web";

/// A secret for `place`.
fn planted(place: &str) -> String {
    format!("{MARK}-{place}")
}

/// A service whose errors repeat what they were sent.
struct Echo {
    /// Which paths it has: those of ARM, or all.
    everything: bool,
    /// Where it is, for `/metadata/endpoints`.
    url: watch::Sender<String>,
    /// How often it has repeated something with a secret in it; `None`: it is off.
    heard: watch::Sender<Option<usize>>,
}

impl Echo {
    fn new(everything: bool) -> Arc<Self> {
        let heard = everything.then_some(0);
        Arc::new(Self { everything, url: watch::Sender::default(), heard: watch::Sender::new(heard) })
    }

    async fn heard(&self, times: usize) {
        let mut heard = self.heard.subscribe();
        let enough = heard.wait_for(|heard| heard.is_some_and(|heard| heard >= times));
        timeout(SIX_REFUSALS, enough).await.expect("requests with secrets").unwrap();
    }

    /// Errors of all classes, in turn.
    fn refuse(&self, secrets: &str) -> Response<Bytes> {
        let mut number = 0;
        if secrets.contains(MARK) || secrets.contains(TOKEN) {
            self.heard.send_modify(|heard| *heard = heard.map(|heard| heard + 1));
            number = self.heard.borrow().unwrap_or_default();
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
        self.heard.borrow().is_some()
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

/// A cluster's API server behind TLS, and a folder.
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

    /// Until the node has a provider id.
    async fn initialized(&self, node: &str) {
        let has_id = |server: &ApiServer| {
            let found = server.get::<Node>("", node).and_then(|node| node.spec?.provider_id);
            found.is_some()
        };
        timeout(SOON, self.server.wait_until(has_id)).await.expect("the node is initialized");
    }

    /// Starts the program. Secrets besides those of `config` may be in `environment`.
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

    /// What is in the cluster for everybody to read.
    fn objects(&self) -> String {
        let server = &self.server;
        serde_json::to_string(&(server.list::<Event>(), server.list::<Node>(), server.list::<Service>())).unwrap()
    }
}

/// Puts a secret into every secret field that has none.
fn plant(config: &mut Value) {
    for field in FIELDS.iter().filter(|field| field.secret) {
        let value = config[field.name].as_str().unwrap_or_default();
        if !value.contains(MARK) {
            config[field.name] = planted(field.name).into();
        }
    }
}

/// A running program, and what it has written so far.
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

    /// Every page.
    async fn pages(&self) -> String {
        let client = reqwest::Client::builder().danger_accept_invalid_certs(true).no_proxy().build().unwrap();
        let mut all = String::new();
        for page in PAGES.split_whitespace() {
            let asked = client.get(format!("https://127.0.0.1:{}{page}", self.port)).bearer_auth(ADMIN_TOKEN).send();
            let answer = timeout(SOON, asked).await.unwrap().unwrap();
            let (status, headers, text) = (answer.status(), answer.headers().clone(), answer.text().await.unwrap());
            assert!(matches!(status.as_u16(), 200 | 422 | 500 | 502..=504), "{page}: {status} {text}");
            all += &format!("{page} {headers:?}\n{text}\n");
        }
        all
    }

    /// Ends it with SIGTERM; answers everything it wrote.
    async fn end(mut self) -> String {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").arg(pid).status().await.unwrap().success());
        timeout(SOON, self.child.wait()).await.expect("it ends").unwrap();
        // The sender goes when both streams have ended.
        while self.log.changed().await.is_ok() {}
        self.log.borrow().clone()
    }
}

/// Fails with the line that shows a secret.
fn assert_clean(what: &str, text: &str, secrets: &[&str]) {
    assert!(!text.is_empty(), "{what} is empty");
    for line in text.lines() {
        let shown = secrets.iter().find(|secret| line.contains(**secret));
        assert!(shown.is_none(), "{what} shows {shown:?}: {line}");
    }
}

/// Gathers, ends and searches.
async fn shows_nothing(cluster: &Cluster, manager: Manager) {
    let pages = manager.pages().await;
    let log = manager.end().await;
    let secrets = [MARK, TOKEN];
    assert_clean("a page", &pages, &secrets);
    assert_clean("the cluster", &cluster.objects(), &secrets);
    assert!(log.contains("echo") || log.contains("cannot fetch a token"), "the log says nothing of a refusal: {log}");
    assert_clean("the log", &log, &secrets);
    cluster.stop.begin();
}

async fn world(cluster: &Cluster) -> World {
    let serving = Serving { ca_file: Some(cluster.path("ca.pem")), shutdown: cluster.stop.clone(), ..Serving::default() };
    let start = Start { serving: Some(serving), ..Start::default() };
    let topology = Topology::new().pool(Pool::new(PoolKind::Uniform, "pool", 1));
    let world = start_world(topology, start).await.unwrap();
    let tenant = world.topology().tenant;
    world.with_directory(|directory| {
        directory.remove_credentials(CLIENT_ID);
        directory.add_credential(&tenant, CLIENT_ID, Credential::Secret(planted("aadClientSecret")));
        directory.add_credential(&tenant, CLIENT_ID, Credential::FederatedToken(planted("service-account")));
    });
    world
}

fn with(mut config: Value, fields: &Value) -> Value {
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    config
}

/// Nodes are initialized; then ARM refuses everything and repeats the token, of which each 401 costs one.
async fn succeeds_and_is_refused(
    config: impl Fn(&World) -> Value,
    environment: impl Fn(&Cluster) -> Vec<(&'static str, String)>,
) {
    let cluster = Cluster::start().await;
    let world = world(&cluster).await;
    let echo = Echo::new(false);
    world.azure().add_endpoint(Arc::<Echo>::clone(&echo));
    let node = cluster.server.create::<Node>(&world.uninitialized_nodes()[0]).metadata.name.unwrap();
    let manager = cluster.run(config(&world), &cluster.path("ca.pem"), &environment(&cluster)).await;
    cluster.initialized(&node).await;
    assert!(world.with_directory(|directory| directory.issued()) > 0);

    echo.heard.send_replace(Some(0));
    for name in world.scale_out("pool", 1).unwrap() {
        cluster.server.create::<Node>(&world.uninitialized_node(&name).unwrap());
    }
    echo.heard(6).await;
    shows_nothing(&cluster, manager).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_secret_and_its_tokens_are_not_shown() {
    let config = |world: &World| with(world.config(), &json!({"aadClientSecret": planted("aadClientSecret")}));
    succeeds_and_is_refused(config, |_| Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_federated_token_is_not_shown() {
    let config = |world: &World| with(world.config(), &json!({"aadClientId": CLIENT_ID}));
    succeeds_and_is_refused(config, |cluster| {
        let file = cluster.path("token");
        fs::write(&file, planted("service-account")).unwrap();
        vec![
            ("AZURE_FEDERATED_TOKEN_FILE", file.display().to_string()),
            ("AZURE_CLIENT_SECRET", planted("environment")),
            // Nobody is there: neither the API server nor ARM, both on this machine, may be asked through it.
            ("HTTPS_PROXY", format!("http://proxy:{}@127.0.0.1:9", planted("proxy"))),
        ]
    })
    .await;
}

/// A login that refuses whatever it is sent, and repeats it.
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
    echo.heard(3).await;
    shows_nothing(&cluster, manager).await;
}
