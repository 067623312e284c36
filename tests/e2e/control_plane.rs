//! The two clusters the suite runs on: a real kube-apiserver with etcd from `KUBEBUILDER_ASSETS`, and the in-memory one.
//!
//! Both provide an administrator's client, kubeconfigs for managers with exactly the rights of `manifests/rbac.yaml`, and kubeconfigs for
//! node managers with the rights of `manifests/cloud-node-manager/rbac.yaml`. The shipped admission policy restricts node managers to
//! their own Node if the API server has that API.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use cloud_controller_manager::runtime::yaml;
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Container, Namespace, Pod, PodSpec, ServiceAccount},
    rbac::v1::{ClusterRoleBinding, RoleBinding, Subject},
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{GroupVersionKind, discovery::ApiResource},
};
use serde_json::Value;

use crate::support::eventually;

/// Environment variable with the directory of `etcd` and `kube-apiserver`.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// Child process. Dropping it kills it.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a port that was just free.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// Returns the directory with `etcd` and `kube-apiserver`. Panics with a remedy if there is none.
fn assets() -> PathBuf {
    let Some(folder) = std::env::var_os(ASSETS).map(PathBuf::from) else {
        panic!(
            "{ASSETS} is not set: run `make test`, or set it to a directory with etcd and kube-apiserver (.ci/envtest makes one)"
        );
    };
    for binary in ["etcd", "kube-apiserver"] {
        assert!(folder.join(binary).is_file(), "{ASSETS}={} has no {binary}: .ci/envtest makes one", folder.display());
    }
    folder
}

/// A running cluster.
pub(crate) struct ControlPlane {
    kind: Kind,
    folder: tempfile::TempDir,
    url: String,
    ca: Option<String>,
}

enum Kind {
    Real(Box<Real>),
    Sandbox,
}

struct Real {
    assets: PathBuf,
    port: u16,
    etcd_port: u16,
    apiserver: Option<Process>,
    _etcd: Process,
}

/// Token of the administrator.
pub(crate) const ADMIN_TOKEN: &str = "admin-token";

impl ControlPlane {
    /// Starts etcd and kube-apiserver and applies the shipped RBAC.
    pub(crate) async fn real() -> Self {
        let this = Self::real_and_empty().await;
        this.apply_shipped_rbac().await;
        this
    }

    /// Starts etcd and kube-apiserver without the shipped RBAC.
    pub(crate) async fn real_and_empty() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let assets = assets();
        let ca = write_certificates(folder.path());
        fs::write(folder.path().join("tokens.csv"), format!("{ADMIN_TOKEN},admin,admin,system:masters\n")).expect("tokens");
        fs::write(folder.path().join("audit.yaml"), AUDIT_POLICY).expect("audit policy");
        let (port, etcd_port) = (free_port(), free_port());
        let etcd = start_etcd(&assets, folder.path(), etcd_port);
        let mut real = Real { assets, port, etcd_port, apiserver: None, _etcd: etcd };
        real.start(folder.path());
        let url = format!("https://127.0.0.1:{port}");
        let this = Self { kind: Kind::Real(Box::new(real)), folder, url, ca: Some(ca) };
        this.ready().await;
        this
    }

    /// Serves the in-memory API server on loopback.
    pub(crate) async fn sandbox() -> Self {
        use cloud_controller_manager::{
            runtime::{clock::Clock, shutdown::Shutdown},
            sandbox::{api_server::ApiServer, reviews::User},
        };
        let server = ApiServer::new(Clock::System);
        server.add_token(ADMIN_TOKEN, User { name: "admin".into(), groups: vec!["system:masters".into()] });
        server.authorize(Box::new(|review| review["user"] != "system:anonymous"));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let stop = Shutdown::new();
        tokio::spawn(async move { server.serve(listener, stop).await.expect("the sandbox serves") });
        let folder = tempfile::tempdir().expect("a temporary folder");
        let this = Self { kind: Kind::Sandbox, folder, url, ca: None };
        this.ready().await;
        this
    }

    /// Returns `true` for a real kube-apiserver.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self.kind, Kind::Real(_))
    }

    /// Returns host and port of the API server.
    pub(crate) fn address(&self) -> String {
        self.url.split("://").last().unwrap_or_default().to_owned()
    }

    /// Returns the folder for files of scenarios.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a client with all rights.
    pub(crate) async fn admin(&self) -> Client {
        client(&self.write_kubeconfig("admin", ADMIN_TOKEN)).await
    }

    /// Writes a kubeconfig for a manager under its own ServiceAccount `name`, with the rights of the shipped manifests.
    pub(crate) async fn manager_kubeconfig(&self, name: &str) -> PathBuf {
        let token = match &self.kind {
            Kind::Real(_) => self.token_of(name).await,
            Kind::Sandbox => ADMIN_TOKEN.to_owned(),
        };
        self.write_kubeconfig(name, &token)
    }

    /// Writes a kubeconfig for a ServiceAccount without rights. Only on a real API server.
    pub(crate) async fn powerless_kubeconfig(&self, name: &str) -> PathBuf {
        self.write_kubeconfig(name, &self.request_token(name, None).await)
    }

    /// Stops kube-apiserver, as a crash would.
    pub(crate) fn stop_apiserver(&mut self) {
        if let Kind::Real(real) = &mut self.kind {
            real.apiserver = None;
        }
    }

    /// Starts kube-apiserver again on the same port and waits until it is ready.
    pub(crate) async fn start_apiserver(&mut self) {
        let folder = self.folder.path().to_owned();
        if let Kind::Real(real) = &mut self.kind {
            real.start(&folder);
        }
        self.ready().await;
    }

    /// Returns the writes in the audit log of kube-apiserver, in order: user and request.
    pub(crate) fn audited_writes(&self) -> Vec<(String, String)> {
        let log = fs::read_to_string(self.folder.path().join("audit.log")).unwrap_or_default();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        lines
            .map(|line| (text(&line["user"]["username"]), format!("{} {}", text(&line["verb"]), text(&line["requestURI"]))))
            .collect()
    }

    async fn ready(&self) {
        let admin = self.admin().await;
        eventually("the API server is ready", Duration::from_secs(90), async || {
            admin.request_text(http::Request::get("/readyz").body(Vec::new()).expect("request")).await.is_ok()
        })
        .await;
        let namespaces: Api<Namespace> = Api::all(admin);
        eventually("kube-system exists", Duration::from_secs(60), async || {
            let namespace = Namespace { metadata: meta("kube-system"), ..Namespace::default() };
            let created = namespaces.create(&PostParams::default(), &namespace).await;
            created.is_ok() || namespaces.get("kube-system").await.is_ok()
        })
        .await;
    }

    fn write_kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{name}.kubeconfig"));
        let ca = self.ca.as_ref().map(|_| format!("certificate-authority: {}/ca.crt", self.folder.path().display()));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: e2e\ncontexts: [{{name: e2e, context: {{cluster: e2e, user: e2e}}}}]\n\
             clusters:\n- name: e2e\n  cluster:\n    server: {}\n    {}\nusers: [{{name: e2e, user: {{token: \"{token}\"}}}}]\n",
            self.url,
            ca.unwrap_or_default()
        );
        fs::write(&path, text).expect("kubeconfig");
        path
    }

    /// Writes a kubeconfig for the node manager of `node`: for the shipped ServiceAccount with exactly its rights, with the token of a pod
    /// of the DaemonSet on that Node. The pod object exists, but no kubelet runs it.
    pub(crate) async fn node_manager_kubeconfig(&self, node: &str) -> PathBuf {
        let token = match &self.kind {
            Kind::Real(_) => {
                let pod = self.node_manager_pod(node).await;
                self.request_token(NODE_MANAGER, Some(reference(&pod))).await
            }
            Kind::Sandbox => ADMIN_TOKEN.to_owned(),
        };
        self.write_kubeconfig(&format!("{NODE_MANAGER}-{node}"), &token)
    }

    async fn node_manager_pod(&self, node: &str) -> Pod {
        let pods: Api<Pod> = Api::namespaced(self.admin().await, NAMESPACE);
        let name = format!("{NODE_MANAGER}-{node}");
        let spec = PodSpec {
            node_name: Some(node.to_owned()),
            service_account_name: Some(NODE_MANAGER.to_owned()),
            // No controller creates the token Secret that Kubernetes 1.20 would mount.
            automount_service_account_token: Some(false),
            containers: vec![Container { name: NODE_MANAGER.into(), image: Some("none".into()), ..Container::default() }],
            ..PodSpec::default()
        };
        let pod = Pod { metadata: meta(&name), spec: Some(spec), ..Pod::default() };
        let at_once = DeleteParams::default().grace_period(0);
        eventually(&format!("pod {name} is recreated"), Duration::from_secs(30), async || {
            drop(pods.delete(&name, &at_once).await);
            pods.create(&PostParams::default(), &pod).await.is_ok()
        })
        .await;
        pods.get(&name).await.expect("the pod")
    }

    /// Returns `true` if the API server can restrict a token to its Node: Kubernetes 1.30 and newer.
    pub(crate) async fn has_admission_policies(&self) -> bool {
        let group = self.admin().await.list_api_group_resources("admissionregistration.k8s.io/v1").await;
        let resources = group.map(|group| group.resources).unwrap_or_default();
        resources.iter().any(|resource| resource.name == "validatingadmissionpolicies")
    }

    /// Returns `true` if the API server serves this group and version.
    pub(crate) async fn serves(&self, group_version: &str) -> bool {
        self.admin().await.list_api_group_resources(group_version).await.is_ok_and(|group| !group.resources.is_empty())
    }

    async fn apply_shipped_rbac(&self) {
        for file in ["manifests/rbac.yaml", "manifests/cloud-node-manager/rbac.yaml"] {
            self.apply_file(file).await;
        }
        if self.has_admission_policies().await {
            self.apply_file("manifests/cloud-node-manager/admission/policy.yaml").await;
            self.apply_file("manifests/azure/admission/policy.yaml").await;
        } else {
            eprintln!(
                "this API server has no ValidatingAdmissionPolicy (Kubernetes 1.30): node managers are not restricted to their Node"
            );
        }
    }

    /// Applies every object of a file, as `kubectl apply` does.
    pub(crate) async fn apply_file(&self, file: &str) {
        let admin = self.admin().await;
        let text = fs::read_to_string(file).expect(file);
        for object in yaml::documents::<DynamicObject>(&text).expect("objects") {
            let types = object.types.clone().expect("apiVersion and kind");
            let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
            let api: Api<DynamicObject> = match &object.metadata.namespace {
                Some(namespace) => Api::namespaced_with(admin.clone(), namespace, &resource),
                None => Api::all_with(admin.clone(), &resource),
            };
            let name = object.metadata.name.clone().expect("a name");
            let params = PatchParams::apply("e2e").force();
            // The API server creates the bootstrap roles of the bindings shortly after it is ready.
            eventually(&format!("{} {name} is applied", types.kind), Duration::from_secs(30), async || {
                api.patch(&name, &params, &Patch::Apply(&object)).await.is_ok()
            })
            .await;
        }
    }

    /// Adds ServiceAccount `name` to every binding of the shipped ServiceAccount.
    async fn bind(&self, admin: &Client, name: &str) {
        const SHIPPED: &str = "cloud-controller-manager";
        let also = |subjects: &mut Option<Vec<Subject>>| {
            let subjects = subjects.get_or_insert_default();
            let shipped = subjects.iter().any(|subject| subject.name == SHIPPED);
            let add = shipped && !subjects.iter().any(|subject| subject.name == name);
            if add {
                let namespace = Some("kube-system".to_owned());
                subjects.push(Subject { kind: "ServiceAccount".into(), name: name.into(), namespace, api_group: None });
            }
            add
        };
        let cluster: Api<ClusterRoleBinding> = Api::all(admin.clone());
        for mut binding in cluster.list(&Default::default()).await.expect("bindings") {
            if also(&mut binding.subjects) {
                let name = binding.metadata.name.clone().expect("name");
                cluster.replace(&name, &PostParams::default(), &binding).await.expect("binding");
            }
        }
        let namespaced: Api<RoleBinding> = Api::namespaced(admin.clone(), "kube-system");
        for mut binding in namespaced.list(&Default::default()).await.expect("bindings") {
            if also(&mut binding.subjects) {
                let name = binding.metadata.name.clone().expect("name");
                namespaced.replace(&name, &PostParams::default(), &binding).await.expect("binding");
            }
        }
    }

    /// Returns a token of ServiceAccount `name` with the bindings of the shipped ServiceAccount.
    async fn token_of(&self, name: &str) -> String {
        let admin = self.admin().await;
        self.bind(&admin, name).await;
        self.request_token(name, None).await
    }

    async fn request_token(&self, name: &str, bound_object_ref: Option<BoundObjectReference>) -> String {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin().await, NAMESPACE);
        if accounts.get_opt(name).await.expect("service account").is_none() {
            let account = ServiceAccount { metadata: meta(name), ..ServiceAccount::default() };
            accounts.create(&PostParams::default(), &account).await.expect("service account");
        }
        let spec = TokenRequestSpec { bound_object_ref, ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let response = accounts.create_token_request(name, &PostParams::default(), &request).await.expect("token");
        response.status.and_then(|status| status.token).expect("a token")
    }
}

const NAMESPACE: &str = "kube-system";
/// ServiceAccount of `manifests/cloud-node-manager`.
pub(crate) const NODE_MANAGER: &str = "cloud-node-manager";

fn reference(pod: &Pod) -> BoundObjectReference {
    BoundObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
    }
}

const ISSUER: &str = "https://kubernetes.default.svc";

/// Audit policy that records the user and the path of every write.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n\
    - level: Metadata\n  verbs: [create, update, patch, delete]\n- level: None\n";

fn meta(name: &str) -> kube::core::ObjectMeta {
    kube::core::ObjectMeta { name: Some(name.to_owned()), ..Default::default() }
}

/// Creates a client from a kubeconfig.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let parsed = kube::config::Kubeconfig::read_from(kubeconfig).expect("kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(parsed, &Default::default()).await.expect("config");
    Client::try_from(config).expect("client")
}

/// Writes a CA, a serving certificate and a service account key to `folder`. Returns the CA.
fn write_certificates(folder: &Path) -> String {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let ca_key = KeyPair::generate().expect("key");
    let mut ca = CertificateParams::new(Vec::new()).expect("parameters");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key).expect("CA");
    let issuer = Issuer::new(ca, &ca_key);
    let key = KeyPair::generate().expect("key");
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let certificate = CertificateParams::new(names).expect("parameters").signed_by(&key, &issuer).expect("certificate");
    let write = |name: &str, text: String| fs::write(folder.join(name), text).expect("file");
    write("ca.crt", ca_certificate.pem());
    write("server.crt", certificate.pem());
    write("server.key", key.serialize_pem());
    let accounts = KeyPair::generate().expect("key");
    write("sa.key", accounts.serialize_pem());
    write("sa.pub", accounts.public_key_pem());
    ca_certificate.pem()
}

fn log_file(folder: &Path, name: &str) -> (Stdio, Stdio) {
    let open = || fs::OpenOptions::new().create(true).append(true).open(folder.join(name)).expect("log file").into();
    (open(), open())
}

fn start_etcd(assets: &Path, folder: &Path, port: u16) -> Process {
    let (out, err) = log_file(folder, "etcd.log");
    let url = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{}", free_port());
    let mut command = Command::new(assets.join("etcd"));
    command.arg("--data-dir").arg(folder.join("etcd")).args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
    command.args(["--listen-peer-urls", &peer, "--unsafe-no-fsync"]);
    Process(command.stdout(out).stderr(err).spawn().expect("etcd starts"))
}

impl Real {
    fn start(&mut self, folder: &Path) {
        let (out, err) = log_file(folder, "kube-apiserver.log");
        let path = |name: &str| folder.join(name).display().to_string();
        let mut command = Command::new(self.assets.join("kube-apiserver"));
        command.args([
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--secure-port={}", self.port),
            "--bind-address=127.0.0.1".into(),
            format!("--cert-dir={}", path("apiserver")),
            format!("--tls-cert-file={}", path("server.crt")),
            format!("--tls-private-key-file={}", path("server.key")),
            format!("--client-ca-file={}", path("ca.crt")),
            format!("--requestheader-client-ca-file={}", path("ca.crt")),
            // Newer API servers require this flag if both certificate authorities are the same.
            "--requestheader-allowed-names=front-proxy-client".into(),
            format!("--token-auth-file={}", path("tokens.csv")),
            "--authorization-mode=RBAC".into(),
            "--service-cluster-ip-range=10.0.0.0/16".into(),
            format!("--service-account-issuer={ISSUER}"),
            format!("--service-account-key-file={}", path("sa.pub")),
            format!("--service-account-signing-key-file={}", path("sa.key")),
            format!("--audit-policy-file={}", path("audit.yaml")),
            format!("--audit-log-path={}", path("audit.log")),
        ]);
        self.apiserver = Some(Process(command.stdout(out).stderr(err).spawn().expect("kube-apiserver starts")));
    }
}
