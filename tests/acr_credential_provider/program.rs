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

/// Cloud on sockets: TLS for all its names, the metadata service on plain HTTP, and a proxy to the TLS port.
struct Cloud {
    simulation: World,
    folder: tempfile::TempDir,
    address: SocketAddr,
    proxy: SocketAddr,
    metadata: SocketAddr,
    /// Hosts of the CONNECT requests to the proxy.
    proxied_hosts: Arc<Mutex<Vec<String>>>,
    shutdown: Shutdown,
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

impl Cloud {
    async fn start() -> Self {
        let (simulation, folder, shutdown) = (simulated_cloud(), tempfile::tempdir().unwrap(), Shutdown::new());
        let certificates = Certificates::for_names(&[REGISTRY, MIRROR, BINDING, "login.microsoftonline.com"]).unwrap();
        fs::write(folder.path().join("ca.crt"), &certificates.ca).unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let address = simulation.azure().serve_with(any, &certificates, &shutdown).await.unwrap().address;
        let machine =
            simulation.machine_metadata(&node(&simulation), vec![simulation.managed_identity(MACHINE, None)]).unwrap();
        let metadata = machine.serve_plain(any, &shutdown).await.unwrap();
        let (proxied_hosts, listener) = (Arc::default(), TcpListener::bind(any).await.unwrap());
        let proxy = listener.local_addr().unwrap();
        shutdown.spawn(forward(listener, address, Arc::clone(&proxied_hosts)));
        Self { simulation, folder, address, proxy, metadata, proxied_hosts, shutdown }
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
        command.args(flags).arg(azure_json(&self.simulation, &self.folder, managed)).env_clear();
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

    fn proxied_hosts(&self) -> Vec<String> {
        self.proxied_hosts.lock().clone()
    }
}

/// Runs a proxy that connects every host to `address`.
async fn forward(listener: TcpListener, address: SocketAddr, hosts: Arc<Mutex<Vec<String>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let hosts = Arc::clone(&hosts);
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            hosts.lock().push(line.split_whitespace().nth(1).unwrap_or_default().to_owned());
            while line.trim() != "" {
                line.clear();
                stream.read_line(&mut line).await.unwrap();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut server = TcpStream::connect(address).await.unwrap();
            // The client closes the connection after the response.
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

/// Returns the response. Checks that stdout contains nothing else, and that stderr contains no secret.
fn response_of(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(!errors.contains(MARK) && !errors.contains("sandbox-token"), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Returns the error on stderr. Checks that stdout is empty and that stderr contains no secret.
fn error_of(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{errors}");
    assert!(!errors.contains(MARK) && !errors.contains("sandbox-token"), "{errors}");
    errors
}

fn refresh(client: &str, host: &str) -> Value {
    response(&[(host, TOKEN_USER, &password(client, host))])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubelet_gets_credentials_in_every_mode() {
    let cloud = Cloud::start().await;
    let image = format!("{REGISTRY}/bar/image:version");
    let login = "login.microsoftonline.com:443";
    let registry = format!("{REGISTRY}:443");
    // The machine's own identity; the highest verbosity shows no secret.
    let output = cloud.run(&["-v=10"], true, &request(&image, false)).await;
    assert_eq!(response_of(&output), refresh(MACHINE, REGISTRY));
    assert_eq!(cloud.proxied_hosts(), [registry.as_str()]);
    let requests = cloud.simulation.azure().requests();
    let requests: Vec<_> = requests.iter().map(|request| format!("{} {}", request.method, request.path)).collect();
    assert_eq!(requests, ["GET /v2/", "POST /oauth2/exchange"], "one for each token");
    // The Pod's service account.
    let output = cloud.run(&["-v=10"], true, &request(&image, true)).await;
    assert_eq!(response_of(&output), refresh(POD_CLIENT, REGISTRY));
    assert_eq!(cloud.proxied_hosts()[1..], [login, &registry]);
    // Mirrors use the machine's identity.
    let output = cloud.run(&["-r", "mcr.microsoft.com:abc.azurecr.io"], true, &request("mcr.microsoft.com/x", true)).await;
    let secret = password(MACHINE, MIRROR);
    assert_eq!(response_of(&output), response(&[(MIRROR, TOKEN_USER, &secret), ("mcr.microsoft.com", TOKEN_USER, &secret)]));
    // The service principal needs no request.
    let before = cloud.proxied_hosts().len();
    let output = cloud.run(&[], false, &request(&image, false)).await;
    let logins = response_of(&output);
    assert_eq!(logins["auth"]["*.azurecr.io"]["password"], json!(format!("{CLIENT_SECRET}-{MARK}")));
    assert_eq!(cloud.proxied_hosts().len(), before);
    let agents = cloud.simulation.azure().requests();
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
    assert_eq!(response_of(&cloud.run(&flags, true, &kubelets).await), refresh(POD_CLIENT, REGISTRY));
    assert_eq!(cloud.proxied_hosts(), [format!("{REGISTRY}:443")], "only the registry is behind the proxy");
    // A host name in place of the address works, too. A name that is not in the certificate fails, and so does another authority.
    let flags = [name.as_str(), &file, &client, "--ib-apiserver-ip=localhost"];
    response_of(&cloud.run(&flags, true, &kubelets).await);
    fs::write(cloud.folder.path().join("other.crt"), Certificates::generate().unwrap().ca).unwrap();
    let other = format!("--ib-sni-name=other.example:{port}");
    let other_authority = format!("--ib-ca-file={}", cloud.path("other.crt"));
    let missing = format!("--ib-ca-file={}", cloud.path("missing"));
    for (name, file, parts) in [
        (&other, &file, ["other.example", "certificate"]),
        (&name, &other_authority, ["certificate", ""]),
        (&name, &missing, ["--ib-ca-file", "No such file"]),
    ] {
        let error = error_of(&cloud.run(&[name, file, &client, "--ib-apiserver-ip=127.0.0.1"], true, &kubelets).await);
        assert!(parts.iter().all(|part| error.contains(part)), "{name} {file}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_printed_on_one_line_of_stderr() {
    let cloud = Cloud::start().await;
    let image = format!("{REGISTRY}/x");
    let mut old = request(&image, true);
    old["apiVersion"] = json!("credentialprovider.kubelet.k8s.io/v1beta1");
    let mut other = request(&image, true);
    other["serviceAccountToken"] = json!("pl4nt3d-other");
    let long = request(&"x".repeat(2 << 20), true);
    for (flags, request, expected) in [
        (&[][..], &json!("pl4nt3d"), "request: expected a CredentialProviderRequest in JSON"),
        (&[], &old, "v1beta1\" is not supported"),
        (&[], &request("", true), "image: expected the name"),
        (&[], &long, "request: more than 1048576 bytes"),
        (&[], &other, "AADSTS"),
        (&["second.json"], &request(&image, false), "unexpected argument"),
        (&["--ib-sni-name=x"], &request(&image, true), "--ib-sni-name: needs --ib-apiserver-ip"),
    ] {
        let errors = error_of(&cloud.run(flags, true, request).await);
        let matching: Vec<_> = errors.lines().filter(|line| line.contains(expected)).collect();
        assert!(!matching.is_empty() && errors.lines().count() <= 2, "{expected}: {errors}");
    }
    // A server with a certificate of an unknown authority.
    fs::write(cloud.folder.path().join("ca.crt"), Certificates::generate().unwrap().ca).unwrap();
    let error = error_of(&cloud.run(&[], true, &request(&image, false)).await);
    assert!(error.contains(REGISTRY) && error.contains("certificate"), "{error}");
}
