//! The built program on the sandbox's API server, and how it is asked: over new connections, from any loopback address.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use cloud_controller_manager::{
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{api_server::ApiServer, reviews::User},
};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// For the start of the program, on a machine that may be busy.
const SOON: Duration = Duration::from_secs(60);

/// Does not look at the certificate: the secure port signs its own.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn connector(protocol: &str) -> TlsConnector {
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer))
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// The secure port, seen by those who connect to it.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    http1: TlsConnector,
    http2: TlsConnector,
}

impl Target {
    fn new(address: SocketAddr) -> Self {
        Self { address, http1: connector("http/1.1"), http2: connector("h2") }
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
    /// Starts it, and waits until it is alive. Only `admin` may read its pages.
    pub(crate) async fn start() -> Self {
        let (server, stop, folder) = (ApiServer::new(Clock::System), Shutdown::new(), tempfile::tempdir().unwrap());
        server.authorize(Box::new(|spec| spec["user"] == "admin"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        ApiServer::write_kubeconfig(&kubeconfig, &format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        let (serving, until) = (server.clone(), stop.clone());
        tokio::spawn(async move { serving.serve(listener, until).await });
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_cloud-controller-manager"))
            .env_remove("KUBERNETES_SERVICE_HOST")
            .args(["--cloud-provider=fake", "--configure-cloud-routes=false", "--bind-address=127.0.0.1"])
            .args([format!("--secure-port={}", address.port()), format!("--kubeconfig={}", kubeconfig.display())])
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let program = Self { target: Target::new(address), server, child, folder, stop };
        program.ready().await;
        program
    }

    /// Makes `token` one of the admin.
    pub(crate) fn add_admin(&self, token: &str) {
        self.server.add_token(token, User { name: "admin".to_owned(), groups: Vec::new() });
    }

    async fn ready(&self) {
        let asked = async {
            while !self.target.get(Ipv4Addr::LOCALHOST, "/readyz", None).await.is_ok_and(|answer| is_ok(&answer)) {
                sleep(Duration::from_millis(50)).await;
            }
        };
        assert!(timeout(SOON, asked).await.is_ok(), "never ready:\n{}", self.log());
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
