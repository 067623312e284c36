//! The built program on the API server of the sandbox, and requests to it: over new connections, from any loopback address.

use std::{
    env, fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cloud_controller_manager::{
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{api_server::ApiServer, reviews::User},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::any_server::connector;

/// Time limit for the start of the program on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// Number of attempts to find a port, because another process may take a free port before the program listens on it.
const PORTS: usize = 5;
/// Valid token of a user without access to any page, like that of every pod.
pub(crate) const TENANT_TOKEN: &str = "token-of-a-tenant";

/// Secure port from the perspective of a client.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    http1: TlsConnector,
    http2: TlsConnector,
    delivered: Arc<AtomicUsize>,
}

impl Target {
    fn new(address: SocketAddr) -> Self {
        Self { address, http1: connector("http/1.1"), http2: connector("h2"), delivered: Arc::default() }
    }

    /// Returns the same port with its own count.
    pub(crate) fn with_own_count(&self) -> Self {
        Self { delivered: Arc::default(), ..self.clone() }
    }

    /// Counts an attack whose data has reached the port.
    pub(crate) fn count(&self) {
        self.delivered.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of counted attacks.
    pub(crate) fn delivered(&self) -> usize {
        self.delivered.load(Ordering::SeqCst)
    }

    pub(crate) async fn tcp(&self, source: Ipv4Addr) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    pub(crate) async fn http1(&self, source: Ipv4Addr) -> io::Result<TlsStream<TcpStream>> {
        self.http1.connect("localhost".try_into().unwrap(), self.tcp(source).await?).await
    }

    pub(crate) async fn http2(&self, source: Ipv4Addr) -> io::Result<TlsStream<TcpStream>> {
        self.http2.connect("localhost".try_into().unwrap(), self.tcp(source).await?).await
    }

    /// Sends a GET request over a new connection and returns the whole response.
    pub(crate) async fn get(&self, source: Ipv4Addr, path: &str, token: Option<&str>) -> io::Result<String> {
        let mut stream = self.http1(source).await?;
        let authorization = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nhost: ccm\r\nconnection: close\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        let read = stream.read_to_string(&mut response).await;
        if response.is_empty() { read.map(|_| response) } else { Ok(response) }
    }
}

/// Running program.
pub(crate) struct Program {
    pub(crate) target: Target,
    pub(crate) server: ApiServer,
    child: Child,
    folder: tempfile::TempDir,
    stop: Shutdown,
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

impl Program {
    /// Starts the program and waits until it is ready. Only `admin` may read its pages. `tenant` has the rights that the default roles of a
    /// cluster grant to every ServiceAccount.
    pub(crate) async fn start() -> Self {
        let (server, stop, folder) = (ApiServer::new(Clock::System), Shutdown::new(), tempfile::tempdir().unwrap());
        server.authorize(Box::new(|spec| {
            let path = spec["nonResourceAttributes"]["path"].as_str().unwrap_or_default();
            spec["user"] == "admin" || (spec["user"] == "tenant" && path.starts_with("/api"))
        }));
        server.add_token(TENANT_TOKEN, User { name: "tenant".to_owned(), groups: Vec::new() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        ApiServer::write_kubeconfig(&kubeconfig, &format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        let (serving, until) = (server.clone(), stop.clone());
        tokio::spawn(async move { serving.serve(listener, until).await });
        let address = free_port().await;
        let child = spawn(folder.path(), address, &[]);
        let mut program = Self { target: Target::new(address), server, child, folder, stop };
        for _ in 1..PORTS {
            if program.ready().await {
                return program;
            }
            let address = free_port().await;
            program.child = spawn(program.folder.path(), address, &[]);
            program.target = Target::new(address);
        }
        assert!(program.ready().await, "ended on each of {PORTS} ports:\n{}", program.log());
        program
    }

    /// Adds `token` for the user `admin`.
    pub(crate) fn add_admin(&self, token: &str) {
        self.server.add_token(token, User { name: "admin".to_owned(), groups: Vec::new() });
    }

    /// Waits until the program is ready. Returns `false` if it has exited.
    async fn ready(&mut self) -> bool {
        let (target, child) = (&self.target, &mut self.child);
        let wait_until_ready = async {
            loop {
                if child.try_wait().unwrap().is_some() {
                    return false;
                }
                if target.get(Ipv4Addr::LOCALHOST, "/readyz", None).await.is_ok_and(|response| is_ok(&response)) {
                    return true;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        let ready = timeout(SOON, wait_until_ready).await;
        ready.unwrap_or_else(|_| panic!("never ready:\n{}", self.log()))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Returns a field of `/proc/PID/status` in KiB: `VmRSS` is the resident memory, `VmHWM` its maximum.
    pub(crate) fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

async fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// Environment variable with the path of the shipped program, which replaces the built one. All of its resident memory counts.
const SHIPPED: &str = "CCM_BINARY";

fn binary() -> String {
    env::var(SHIPPED).unwrap_or_else(|_| env!("CARGO_BIN_EXE_cloud-controller-manager").to_owned())
}

/// Returns `true` if the program under test is the shipped one.
pub(crate) fn is_shipped() -> bool {
    env::var_os(SHIPPED).is_some()
}

/// Starts the program with the kubeconfig in this folder, and writes its log there.
pub(crate) fn spawn(folder: &Path, address: SocketAddr, more: &[String]) -> Child {
    let log = fs::File::create(folder.join("log")).unwrap();
    Command::new(binary())
        .env_remove("KUBERNETES_SERVICE_HOST")
        .args(["--cloud-provider=fake", "--configure-cloud-routes=false"])
        .args(more)
        .arg(format!("--bind-address={}", address.ip()))
        .arg(format!("--secure-port={}", address.port()))
        .arg(format!("--kubeconfig={}", folder.join("kubeconfig").display()))
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

pub(crate) fn is_ok(response: &str) -> bool {
    response.starts_with("HTTP/1.1 200 ")
}

/// Returns the duration of a `/livez` request over a new connection, or an error without a valid response within `limit`.
pub(crate) async fn probe(target: &Target, source: Ipv4Addr, limit: Duration) -> Result<Duration, String> {
    let start = Instant::now();
    match timeout(limit, target.get(source, "/livez", None)).await {
        Ok(Ok(response)) if is_ok(&response) => Ok(start.elapsed()),
        Ok(Ok(response)) => Err(format!("{source}: {:?}", response.lines().next())),
        Ok(Err(error)) => Err(format!("{source}: {error}")),
        Err(_) => Err(format!("{source}: no response within {} ms", limit.as_millis())),
    }
}
