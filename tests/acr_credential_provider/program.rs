//! The built program as the kubelet runs it: a request on stdin, the cloud behind a proxy, everything over TLS.

use std::{
    env,
    io::Write,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::symlink,
    process::{Command, Output, Stdio},
    sync::Arc,
};

use cloud_controller_manager::{
    runtime::shutdown::Shutdown,
    sandbox::{azure::registry::password, serve::Certificates},
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use super::*;

/// A cloud on sockets: TLS under every name it has, the metadata service on plain HTTP, and the proxy that leads to the former.
struct Cloud {
    world: World,
    folder: tempfile::TempDir,
    address: SocketAddr,
    proxy: SocketAddr,
    metadata: SocketAddr,
    /// Hosts that the proxy was asked for.
    asked: Arc<Mutex<Vec<String>>>,
    shutdown: Shutdown,
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

impl Cloud {
    async fn start() -> Self {
        let (world, folder, shutdown) = (world(), tempfile::tempdir().unwrap(), Shutdown::new());
        let certificates = Certificates::for_names(&[REGISTRY, MIRROR, BINDING, "login.microsoftonline.com"]).unwrap();
        fs::write(folder.path().join("ca.crt"), &certificates.ca).unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let address = world.azure().serve_with(any, &certificates, &shutdown).await.unwrap().address;
        let machine = world.machine_metadata(&node(&world), vec![world.managed_identity(MACHINE, None)]).unwrap();
        let metadata = machine.serve_plain(any, &shutdown).await.unwrap();
        let (asked, listener) = (Arc::default(), TcpListener::bind(any).await.unwrap());
        let proxy = listener.local_addr().unwrap();
        shutdown.spawn(forward(listener, address, Arc::clone(&asked)));
        Self { world, folder, address, proxy, metadata, asked, shutdown }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs the program under its own name.
    async fn run(&self, flags: &[&str], managed: bool, request: &Value) -> Output {
        let program = self.folder.path().join("acr-credential-provider");
        if !program.exists() {
            symlink(binary(), &program).unwrap();
        }
        let mut command = Command::new(&program);
        command.args(flags).arg(azure_json(&self.world, &self.folder, managed)).env_clear();
        let proxy = format!("http://{}", self.proxy);
        let metadata = format!("http://{}", self.metadata);
        let (authorities, empty) = (self.path("ca.crt"), self.path("none"));
        command.envs([
            ("HTTPS_PROXY", proxy.as_str()),
            ("IMDS_ENDPOINT", &metadata),
            ("SSL_CERT_FILE", &authorities),
            ("SSL_CERT_DIR", &empty),
        ]);
        let request = request.to_string();
        tokio::task::spawn_blocking(move || with_stdin(command, request.as_bytes())).await.unwrap()
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

/// A proxy that leads every host to `address`.
async fn forward(listener: TcpListener, address: SocketAddr, asked: Arc<Mutex<Vec<String>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let asked = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            asked.lock().push(line.split_whitespace().nth(1).unwrap_or_default().to_owned());
            while line.trim() != "" {
                line.clear();
                stream.read_line(&mut line).await.unwrap();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut server = TcpStream::connect(address).await.unwrap();
            // Whoever has read its answer hangs up.
            let _ = copy_bidirectional(&mut stream, &mut server).await;
        });
    }
}

fn binary() -> String {
    env::var("CCM_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_cloud-controller-manager").to_owned())
}

fn with_stdin(mut command: Command, request: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A program that refuses its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(request);
    child.wait_with_output().unwrap()
}

/// The answer; nothing else is on stdout, and stderr has no secret.
fn answered(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(!errors.contains(MARK) && !errors.contains("sandbox-token"), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// One line of what is wrong; nothing is on stdout.
fn refused(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{errors}");
    assert!(!errors.contains(MARK) && !errors.contains("sandbox-token"), "{errors}");
    errors
}

fn refresh(client: &str, host: &str) -> Value {
    response(&[(host, TOKEN_USER, &password(client, host))])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubelet_is_answered_in_every_mode() {
    let cloud = Cloud::start().await;
    let image = format!("{REGISTRY}/bar/image:version");
    let login = "login.microsoftonline.com:443";
    let registry = format!("{REGISTRY}:443");
    // The machine's own identity; the highest verbosity shows no secret.
    let output = cloud.run(&["-v=10"], true, &request(&image, false)).await;
    assert_eq!(answered(&output), refresh(MACHINE, REGISTRY));
    assert_eq!(cloud.asked(), [registry.as_str()]);
    let requests = cloud.world.azure().requests();
    let requests: Vec<_> = requests.iter().map(|request| format!("{} {}", request.method, request.path)).collect();
    assert_eq!(requests, ["GET /v2/", "POST /oauth2/exchange"], "one for each token");
    // The Pod's service account.
    let output = cloud.run(&["-v=10"], true, &request(&image, true)).await;
    assert_eq!(answered(&output), refresh(POD_CLIENT, REGISTRY));
    assert_eq!(cloud.asked()[1..], [login, &registry]);
    // A mirror is the machine's.
    let output = cloud.run(&["-r", "mcr.microsoft.com:abc.azurecr.io"], true, &request("mcr.microsoft.com/x", true)).await;
    let secret = password(MACHINE, MIRROR);
    assert_eq!(answered(&output), response(&[(MIRROR, TOKEN_USER, &secret), ("mcr.microsoft.com", TOKEN_USER, &secret)]));
    // The service principal; nobody is asked.
    let asked = cloud.asked().len();
    let output = cloud.run(&[], false, &request(&image, false)).await;
    let logins = answered(&output);
    assert_eq!(logins["auth"]["*.azurecr.io"]["password"], json!(format!("{CLIENT_SECRET}-{MARK}")));
    assert_eq!(cloud.asked().len(), asked);
    let agents = cloud.world.azure().requests();
    let agents = agents.iter().filter(|record| record.host.contains("azurecr")).map(|record| record.user_agent.as_str());
    assert!(agents.clone().count() > 0 && agents.clone().all(|agent| agent == "kubernetes-credentialprovider-acr"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_identity_binding_is_reached_at_its_address_without_proxy() {
    let cloud = Cloud::start().await;
    let (port, authorities) = (cloud.address.port(), cloud.path("ca.crt"));
    let (name, file) = (format!("--ib-sni-name={BINDING}:{port}"), format!("--ib-ca-file={authorities}"));
    let client = format!("--ib-default-client-id={POD_CLIENT}");
    let mut kubelets = request(&format!("{REGISTRY}/x"), true);
    kubelets["serviceAccountAnnotations"] = json!({});
    let flags = [name.as_str(), &file, &client, "--ib-apiserver-ip=127.0.0.1"];
    assert_eq!(answered(&cloud.run(&flags, true, &kubelets).await), refresh(POD_CLIENT, REGISTRY));
    assert_eq!(cloud.asked(), [format!("{REGISTRY}:443")], "only the registry is behind the proxy");
    // A name that has an address does, too; another name than the certificate's does not, nor another authority.
    let flags = [name.as_str(), &file, &client, "--ib-apiserver-ip=localhost"];
    answered(&cloud.run(&flags, true, &kubelets).await);
    fs::write(cloud.folder.path().join("other.crt"), Certificates::generate().unwrap().ca).unwrap();
    let other = format!("--ib-sni-name=other.example:{port}");
    let strange = format!("--ib-ca-file={}", cloud.path("other.crt"));
    let missing = format!("--ib-ca-file={}", cloud.path("missing"));
    for (name, file, parts) in [
        (&other, &file, ["other.example", "certificate"]),
        (&name, &strange, ["certificate", ""]),
        (&name, &missing, ["--ib-ca-file", "No such file"]),
    ] {
        let told = refused(&cloud.run(&[name, file, &client, "--ib-apiserver-ip=127.0.0.1"], true, &kubelets).await);
        assert!(parts.iter().all(|part| told.contains(part)), "{name} {file}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_one_line_on_stderr() {
    let cloud = Cloud::start().await;
    let image = format!("{REGISTRY}/x");
    let mut old = request(&image, true);
    old["apiVersion"] = json!("credentialprovider.kubelet.k8s.io/v1beta1");
    let mut other = request(&image, true);
    other["serviceAccountToken"] = json!("pl4nt3d-other");
    let long = request(&"x".repeat(2 << 20), true);
    for (flags, request, told) in [
        (&[][..], &json!("pl4nt3d"), "request: no CredentialProviderRequest in JSON"),
        (&[], &old, "v1beta1\" is not supported"),
        (&[], &request("", true), "image: want"),
        (&[], &long, "request: more than 1048576 bytes"),
        (&[], &other, "AADSTS"),
        (&["second.json"], &request(&image, false), "unexpected argument"),
        (&["--ib-sni-name=x"], &request(&image, true), "--ib-sni-name: needs --ib-apiserver-ip"),
    ] {
        let errors = refused(&cloud.run(flags, true, request).await);
        let told_lines: Vec<_> = errors.lines().filter(|line| line.contains(told)).collect();
        assert!(!told_lines.is_empty() && errors.lines().count() <= 2, "{told}: {errors}");
    }
    // A server that nobody vouches for.
    fs::write(cloud.folder.path().join("ca.crt"), Certificates::generate().unwrap().ca).unwrap();
    let told = refused(&cloud.run(&[], true, &request(&image, false)).await);
    assert!(told.contains(REGISTRY) && told.contains("certificate"), "{told}");
}
