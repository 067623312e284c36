//! `make e2e-azure`: the Service and Node scenarios on a cluster that a kubeconfig names, on the Azure that an `azure.json` names.
//!
//! `shadow` runs next to the cloud-controller-manager of the cluster and writes nothing. `class` creates Services of a load-balancer class
//! of its own in a namespace of its own, and removes both at the end.

use std::{
    collections::BTreeSet,
    env,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use cloud_controller_manager::{
    cloud_provider::InstancesV2,
    metrics::Metrics,
    node::provider_id,
    providers::azure::{
        arm::{Budget, BudgetSettings},
        auth::ReqwestTransport,
        config::{AzureConfig, EnvironmentOverrides},
        config_source::{ConfigLoader, ConfigSource},
        session::{Session, SessionDeps},
        transport::ReadOnlyTransport,
    },
    runtime::{clock::Clock, leader_election::Leadership, store::InformerStore},
};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    azure::{Azure, initialized},
    control_plane::{self, ControlPlane, Process, free_port},
    objects::{Objects, UNINITIALIZED, has_taint, label},
    support::{SOON, binary, eventually},
};

/// Environment variable with the kubeconfig of the cluster. If it is set, the suite consists of the scenarios of this file.
pub(crate) const KUBECONFIG: &str = "E2E_AZURE_KUBECONFIG";
const CONFIG: &str = "E2E_AZURE_CONFIG";
const MODE: &str = "E2E_AZURE_MODE";
/// Environment variable with the flags of the manager of the cluster, separated by spaces.
const FLAGS: &str = "E2E_AZURE_FLAGS";

/// Time limit for load balancers of a real Azure.
const LATER: Duration = Duration::from_secs(600);

pub(crate) type OwnScenario = for<'a> fn(&'a OwnCluster) -> futures::future::BoxFuture<'a, ()>;

const SHADOW: &[(&str, OwnScenario)] = &[
    ("shadow::nodes", |cluster| shadow_nodes(cluster).boxed()),
    ("shadow::services", |cluster| shadow_services(cluster).boxed()),
];
const CLASS: &[(&str, OwnScenario)] = &[("own_class::services", |cluster| own_class(cluster).boxed())];

/// Returns the scenarios of the mode in the environment.
pub(crate) fn scenarios() -> &'static [(&'static str, OwnScenario)] {
    match env::var(MODE).as_deref() {
        Ok("class") => CLASS,
        Ok("shadow") | Err(_) => SHADOW,
        Ok(other) => panic!("{MODE}={other}: expected shadow or class"),
    }
}

/// Existing cluster.
pub(crate) struct OwnCluster {
    kubeconfig: PathBuf,
    config: PathBuf,
    flags: Vec<String>,
}

impl OwnCluster {
    /// Returns the cluster that the environment names.
    pub(crate) fn from_environment() -> Self {
        let path = |name: &str| PathBuf::from(env::var_os(name).unwrap_or_else(|| panic!("{name} is not set")));
        let flags = env::var(FLAGS).unwrap_or_default();
        let flags = flags.split_whitespace().map(str::to_owned).collect();
        Self { kubeconfig: path(KUBECONFIG), config: path(CONFIG), flags }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(words).arg(format!("--kubeconfig={}", self.kubeconfig.display()));
        command.arg(format!("--cloud-config={}", self.config.display())).args(&self.flags);
        command
    }

    /// Runs a command of the program, and returns its exit code and output.
    fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        let output = self.command(words).stdin(Stdio::null()).output().expect("the command runs");
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        (output.status.code(), text)
    }

    async fn client(&self) -> Client {
        control_plane::client(&self.kubeconfig).await
    }

    /// Opens a session of the provider as a shadow manager does: it sends only reads.
    async fn session(&self) -> Session {
        let environment = env::vars().collect::<std::collections::BTreeMap<_, _>>();
        let loader = ConfigLoader {
            source: ConfigSource { file: Some(self.config.clone()), secret: None },
            client: None,
            environment: EnvironmentOverrides::of(environment.clone()),
            is_strict: false,
        };
        let config: Arc<AzureConfig> = Arc::new(loader.load().await.expect("azure.json").config);
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        let (_standby, leadership) = Leadership::channel();
        let deps = SessionDeps {
            transport: Arc::new(ReadOnlyTransport(Arc::new(ReqwestTransport::new(&environment).expect("a transport")))),
            environment,
            budget: Budget::new(BudgetSettings::from(config.as_ref()), Arc::clone(&metrics), Clock::System),
            leadership: leadership.clone(),
            route_leadership: leadership,
            metrics,
            clock: Clock::System,
            nodes: InformerStore::default(),
        };
        Session::open(config, &deps).await.expect("a session")
    }
}

/// Each initialized Node has the labels, addresses and provider ID that this program would write.
async fn shadow_nodes(cluster: &OwnCluster) {
    let nodes: Api<Node> = Api::all(cluster.client().await);
    let all = nodes.list(&Default::default()).await.expect("nodes").items;
    let initialized: Vec<Arc<Node>> = all.into_iter().filter(|node| !has_taint(node, UNINITIALIZED)).map(Arc::new).collect();
    assert!(!initialized.is_empty(), "the cluster has no initialized Node");
    let session = cluster.session().await;
    let results = session.instances.instance_metadata_batch(&initialized).await;
    let mut differences = Vec::new();
    for (node, result) in initialized.iter().zip(results) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let metadata = match result {
            Ok(Some(metadata)) => metadata,
            Ok(None) => continue,
            Err(error) => {
                differences.push(format!("{name}: {error}"));
                continue;
            }
        };
        let mut compare = |field: &str, cluster: Option<&str>, ours: &str| {
            if cluster.unwrap_or_default() != ours {
                differences.push(format!("{name}: {field} is {cluster:?}, this program has {ours:?}"));
            }
        };
        compare("providerID", provider_id(node), &metadata.provider_id);
        compare("zone", label(node, "topology.kubernetes.io/zone"), &metadata.zone);
        compare("region", label(node, "topology.kubernetes.io/region"), &metadata.region);
        compare("instance type", label(node, "node.kubernetes.io/instance-type"), &metadata.instance_type);
        let status = node.status.as_ref().and_then(|status| status.addresses.clone()).unwrap_or_default();
        let addresses: BTreeSet<String> = status.iter().map(|entry| format!("{} {}", entry.type_, entry.address)).collect();
        for address in &metadata.node_addresses {
            let text = format!("{} {}", address.type_, address.address);
            if !addresses.contains(&text) {
                differences.push(format!("{name}: the address {text} is missing; the Node has {addresses:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// A manager with this configuration would write nothing, according to `plan` and to the report of a shadow manager.
async fn shadow_services(cluster: &OwnCluster) {
    let (code, text) = cluster.run(&["plan", "--all", "--report"]);
    assert_eq!(
        code,
        Some(0),
        "the plan is not empty; nothing was written\n{text}\n{}",
        cluster.run(&["plan", "--all", "--diff"]).1
    );
    let port = free_port();
    let mut command = cluster.command(&["--cloud-provider=azure", "--dry-run=true", "--bind-address=127.0.0.1"]);
    command.arg(format!("--secure-port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut shadow = Process(command.spawn().expect("the shadow manager starts"));
    let client = reqwest::Client::builder().danger_accept_invalid_certs(true).no_proxy().build().expect("client");
    eventually("the shadow manager is ready", LATER, async || {
        let response = client.get(format!("https://127.0.0.1:{port}/readyz")).send().await;
        response.is_ok_and(|response| response.status().is_success())
    })
    .await;
    assert!(shadow.0.try_wait().expect("wait").is_none(), "the shadow manager ended");
}

const INTERNAL: &str = "service.beta.kubernetes.io/azure-load-balancer-internal";

/// Creates, changes and deletes Services of a class of its own.
async fn own_class(cluster: &OwnCluster) {
    let client = cluster.client().await;
    let name = format!("ccm-e2e-{}", std::process::id());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
    namespaces.create(&PostParams::default(), &namespace).await.expect("the namespace");
    let services: Api<Service> = Api::namespaced(client, &name);
    let class = format!("e2e.example.com/{name}");
    let mut command = cluster.command(&["--cloud-provider=azure", "--controllers=service", "--bind-address=127.0.0.1"]);
    command
        .args([format!("--load-balancer-class={class}"), format!("--secure-port={}", free_port())])
        .arg("--serve-services-without-class=false")
        .arg(format!("--leader-elect-resource-name={name}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let manager = Process(command.spawn().expect("the manager starts"));
    let ended = AssertUnwindSafe(create_and_change_services(&services, &class)).catch_unwind().await;
    // Also after a failure: deleting the Services deletes their Azure resources.
    remove_services(&services).await;
    drop(manager);
    namespaces.delete(&name, &DeleteParams::default()).await.ok();
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

async fn create_and_change_services(services: &Api<Service>, class: &str) {
    for (name, annotations) in [("public", json!({})), ("internal", json!({INTERNAL: "true"}))] {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": class, "selector": {"app": name},
                     "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
        }))
        .expect("a Service");
        let created = services.create(&PostParams::default(), &service).await.expect("the Service");
        let stored_class = created.spec.and_then(|spec| spec.load_balancer_class);
        assert_eq!(
            stored_class.as_deref(),
            Some(class),
            "the API server drops loadBalancerClass: Kubernetes 1.24 or newer is needed"
        );
    }
    let address = async |name: &str| {
        let service = services.get(name).await.ok()?;
        let ingress = service.status?.load_balancer?.ingress?;
        ingress.into_iter().next()?.ip
    };
    for name in ["public", "internal"] {
        eventually(&format!("{name} has an address"), LATER, async || address(name).await.is_some()).await;
    }
    let private = |address: Option<String>| {
        let address = address.and_then(|address| address.parse::<std::net::Ipv4Addr>().ok());
        address.is_some_and(|address| address.is_private())
    };
    assert!(private(address("internal").await), "the internal Service has a public address");
    let patch = Patch::Merge(json!({"metadata": {"annotations": {INTERNAL: "true"}}}));
    services.patch("public", &PatchParams::default(), &patch).await.expect("the patch");
    eventually("the public Service becomes internal", LATER, async || private(address("public").await)).await;
}

async fn remove_services(services: &Api<Service>) {
    for name in ["public", "internal"] {
        services.delete(name, &DeleteParams::default()).await.ok();
    }
    for name in ["public", "internal"] {
        let condition = format!("{name} is gone");
        let deletion =
            eventually(&condition, LATER, async || services.get_opt(name).await.is_ok_and(|service| service.is_none()));
        if AssertUnwindSafe(deletion).catch_unwind().await.is_err() {
            eprintln!("Service {name} still exists, with its Azure resources: read its events");
        }
    }
}

/// Runs `make e2e-azure` in both modes, as a process of its own, on a cluster that has a manager.
pub(crate) async fn both_modes(plane: &mut ControlPlane, objects: &Objects) {
    let azure = Azure::start(plane, "own-cluster").await;
    let incumbent = azure.manager_with_only(plane, "incumbent", &["--configure-cloud-routes=false"]).await;
    initialized(&azure, objects).await;
    objects.add_service("web").await;
    let kubeconfig = plane.folder().join("admin.kubeconfig");
    let written = azure.writes();
    let (code, text) = target(&azure, &kubeconfig, "shadow").await;
    assert_eq!(azure.writes(), written, "the shadow wrote to Azure");
    assert!(code && text.contains("shadow::nodes") && text.contains("2 passed"), "{text}\n{}", incumbent.log_text());

    if plane.is_real() && !plane.serves("discovery.k8s.io/v1").await {
        // Kubernetes 1.20 has no classes.
        let (code, text) = target(&azure, &kubeconfig, "class").await;
        assert!(!code && text.contains("Kubernetes 1.24 or newer is needed"), "{text}");
        return;
    }
    let balancers = azure.simulation.azure().documents_of("Microsoft.Network/loadBalancers").len();
    let (code, text) = target(&azure, &kubeconfig, "class").await;
    assert!(code && text.contains("1 passed"), "{text}");
    assert_eq!(
        azure.simulation.azure().documents_of("Microsoft.Network/loadBalancers").len(),
        balancers,
        "the class mode left a load balancer"
    );
    assert!(!objects.ingress("web").await.is_empty(), "the Service of the cluster was touched");
}

async fn target(azure: &Azure, kubeconfig: &Path, mode: &str) -> (bool, String) {
    let mut command = tokio::process::Command::new(env::current_exe().expect("the suite"));
    command.env(KUBECONFIG, kubeconfig).env(CONFIG, &azure.config).env(MODE, mode).env("SSL_CERT_FILE", &azure.ca_file);
    command.env(FLAGS, "--configure-cloud-routes=false").kill_on_drop(true);
    let output = tokio::time::timeout(SOON * 4, command.output()).await.expect("the suite ends in time").expect("it runs");
    (
        output.status.success(),
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat(),
    )
}
