//! The built program on the sandbox's API server, and how it is asked: over new connections, from any loopback address.

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

/// For the start of the program, on a machine that may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// A free port may be taken before the program listens on it; then another is tried.
const PORTS: usize = 5;
/// Whose token everybody accepts and who may read no page: like every pod's.
pub(crate) const TENANT_TOKEN: &str = "token-of-a-tenant";

/// The secure port, seen by those who connect to it.
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

    /// The same port, with a count of its own.
    pub(crate) fn counted_apart(&self) -> Self {
        Self { delivered: Arc::default(), ..self.clone() }
    }

    /// An attack has brought to the port what it brings.
    pub(crate) fn count(&self) {
        self.delivered.fetch_add(1, Ordering::SeqCst);
    }

    /// How many attacks did.
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

    /// A GET over a connection of its own; the whole answer.
    pub(crate) async fn get(&self, source: Ipv4Addr, path: &str, token: Option<&str>) -> io::Result<String> {
        let mut stream = self.http1(source).await?;
        let authorization = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nhost: ccm\r\nconnection: close\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer).await;
        if answer.is_empty() { read.map(|_| answer) } else { Ok(answer) }
    }
}

/// The running program.
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
    /// Starts it, and waits until it is alive. Only `admin` may read its pages; `tenant` may ask for what every ServiceAccount may
    /// by the cluster's default roles.
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

    /// Makes `token` one of the admin.
    pub(crate) fn add_admin(&self, token: &str) {
        self.server.add_token(token, User { name: "admin".to_owned(), groups: Vec::new() });
    }

    /// Waits until it is; `false`: it has ended.
    async fn ready(&mut self) -> bool {
        let (target, child) = (&self.target, &mut self.child);
        let asked = async {
            loop {
                if child.try_wait().unwrap().is_some() {
                    return false;
                }
                if target.get(Ipv4Addr::LOCALHOST, "/readyz", None).await.is_ok_and(|answer| is_ok(&answer)) {
                    return true;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        let ready = timeout(SOON, asked).await;
        ready.unwrap_or_else(|_| panic!("never ready:\n{}", self.log()))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// A field of `/proc/PID/status`, in KiB: `VmRSS` is what is resident now, `VmHWM` the most that ever was.
    pub(crate) fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

async fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// Names another program to test than the one that is built with the tests: with the one that is shipped all that is resident counts.
const SHIPPED: &str = "CCM_BINARY";

fn binary() -> String {
    env::var(SHIPPED).unwrap_or_else(|_| env!("CARGO_BIN_EXE_cloud-controller-manager").to_owned())
}

/// Whether that is the program that is shipped.
pub(crate) fn is_shipped() -> bool {
    env::var_os(SHIPPED).is_some()
}

/// Starts the program with the kubeconfig in this folder, into which its log goes.
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

pub(crate) fn is_ok(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200 ")
}

/// How long `/livez` took over a new connection, or that it was not answered within `limit`.
pub(crate) async fn probe(target: &Target, source: Ipv4Addr, limit: Duration) -> Result<Duration, String> {
    let start = Instant::now();
    match timeout(limit, target.get(source, "/livez", None)).await {
        Ok(Ok(answer)) if is_ok(&answer) => Ok(start.elapsed()),
        Ok(Ok(answer)) => Err(format!("{source}: {:?}", answer.lines().next())),
        Ok(Err(error)) => Err(format!("{source}: {error}")),
        Err(_) => Err(format!("{source}: no answer within {} ms", limit.as_millis())),
    }
}
