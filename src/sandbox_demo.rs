//! `make demo`: the real manager on the in-memory API server and a cloud that exists only here, in one process.
//!
//! In: the demo's own few flags. Out: progress on the terminal, a kubeconfig for the user's kubectl, and an exit code: it stays up
//! until Ctrl-C, or with `--exit-when-ready` ends with 0 once everything has converged (1 when it does not within `--timeout`).

mod clouds;
pub mod in_process;

use std::{
    collections::BTreeSet,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::Parser;
use k8s_openapi::api::core::v1::{Event, Node, Service};
use tokio::time::Instant;

use self::{
    clouds::{AzureFiles, Cloud, CloudName},
    in_process::InProcess,
};
use crate::{
    app::manager::{self, ManagerDeps, ManagerOutcome},
    cli,
    metrics::Metrics,
    node::well_known::TAINT_UNINITIALIZED,
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{api_server::ApiServer, objects},
};

/// A Service for the user to try; `kubectl create service` speaks protobuf, which the in-memory API server does not.
const SERVICE: &str = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"mine"},"spec":{"type":"LoadBalancer","ports":[{"port":80}]}}"#;

/// Runs the whole manager on an in-memory cluster and cloud.
#[derive(Debug, Parser)]
#[command(name = "cloud-controller-manager demo")]
struct Arguments {
    /// The cloud: the fake one, or a simulated Azure.
    #[arg(long, value_enum, default_value_t = CloudName::Fake)]
    cloud_provider: CloudName,
    /// Nodes that register themselves.
    #[arg(long, default_value_t = 3)]
    nodes: u32,
    /// Services of type LoadBalancer that a user creates.
    #[arg(long, default_value_t = 3)]
    services: u32,
    /// Port of the API server on loopback; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Path that the kubeconfig for kubectl is written to.
    #[arg(long, default_value = ".kubeconfig")]
    kubeconfig: PathBuf,
    /// Path that the configuration of the azure provider is written to.
    #[arg(long, default_value = ".azure.json")]
    azure_json: PathBuf,
    /// Path that the certificate authority of the simulated Azure is written to.
    #[arg(long, default_value = ".azure-ca.pem")]
    azure_ca: PathBuf,
    /// End with 0 once everything has converged.
    #[arg(long)]
    exit_when_ready: bool,
    /// Seconds that everything may take to converge.
    #[arg(long, default_value_t = 60)]
    timeout: u64,
}

/// Runs the demo with the arguments after `demo`.
pub async fn run(arguments: impl IntoIterator<Item = std::ffi::OsString>, stop: Shutdown) -> ExitCode {
    let program = std::ffi::OsString::from("demo");
    let arguments = match Arguments::try_parse_from(std::iter::once(program).chain(arguments)) {
        Ok(arguments) => arguments,
        Err(error) => {
            let help = !error.use_stderr();
            let _ = error.print();
            return if help { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    };
    match demo(&arguments, stop).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say(&format!("demo: {problem}"));
            ExitCode::FAILURE
        }
    }
}

async fn demo(arguments: &Arguments, stop: Shutdown) -> Result<(), String> {
    let started = Instant::now();
    let server = ApiServer::new(Clock::System);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", arguments.port)).await;
    let listener = listener.map_err(|error| format!("--port={}: cannot listen: {error}", arguments.port))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    write_kubeconfig(&arguments.kubeconfig, &format!("http://{address}"))?;
    stop.spawn({
        let (server, stop) = (server.clone(), stop.clone());
        async move { server.serve(listener, stop).await }
    });
    let files = AzureFiles { config: &arguments.azure_json, authority: &arguments.azure_ca };
    let cloud = clouds::make(arguments.cloud_provider, arguments.nodes, files, &stop).await?;
    let azure_hint = (arguments.cloud_provider == CloudName::Azure).then(|| dry_run_hint(arguments, cloud.cluster_cidr));
    populate(&server, arguments, &cloud);
    let goal = Goal::of(arguments, &cloud);
    say(&format!(
        "in-memory cluster at http://{address} on {}: {} nodes and {} services",
        cloud.name, goal.nodes, goal.services
    ));

    let work = stop.child();
    let manager = start_manager(&server, cloud, work.clone())?;
    let progress = tokio::spawn(report(server.clone(), started, stop.clone()));
    let limit = Duration::from_secs(arguments.timeout);
    let converged = tokio::select! {
        biased;
        converged = tokio::time::timeout(limit, server.wait_until(|server| goal.is_reached(server))) => converged.is_ok(),
        () = stop.begun() => true,
    };
    let outcome = goal.summary(&server, converged, started);
    say(&outcome);
    if converged && !arguments.exit_when_ready && !stop.has_begun() {
        say(&hint(&arguments.kubeconfig, goal.services > 0));
        azure_hint.iter().for_each(|azure_hint| say(azure_hint));
        stop.begun().await;
    }
    work.begin();
    let ended = manager.await.map_err(|error| error.to_string())?;
    stop.begin();
    let _ = progress.await;
    match ended {
        Ok(ManagerOutcome::Stopped) if converged => Ok(()),
        Ok(ManagerOutcome::Stopped) => Err(format!("not converged within {limit:?}")),
        Ok(other) => Err(format!("the manager ended: {other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

fn write_kubeconfig(path: &Path, url: &str) -> Result<(), String> {
    ApiServer::write_kubeconfig(path, url, None).map_err(|error| format!("--kubeconfig={}: {error}", path.display()))
}

/// Creates the objects that kubelets and a user would have created.
fn populate(server: &ApiServer, arguments: &Arguments, cloud: &Cloud) {
    for node in &cloud.nodes {
        server.create::<Node>(node);
    }
    for index in 0..arguments.services {
        server.create::<Service>(&objects::load_balancer_service("default", &format!("demo-service-{index}")));
    }
}

type Running = tokio::task::JoinHandle<Result<ManagerOutcome, manager::ManagerStartError>>;

fn start_manager(server: &ApiServer, cloud: Cloud, work: Shutdown) -> Result<Running, String> {
    let flags = [
        "cloud-controller-manager".to_owned(),
        format!("--cloud-provider={}", cloud.name),
        format!("--cluster-cidr={}", cloud.cluster_cidr),
        "--secure-port=0".to_owned(),
    ];
    let command = cli::parse(flags.iter().map(std::ffi::OsString::from), &[cloud.name], &[]);
    let cli::CliCommand::Run(config) = command.map_err(|error| error.to_string())? else {
        return Err("the demo's own flags ask for help".to_owned());
    };
    let parts = ManagerDeps {
        config: *config,
        clients: Arc::new(InProcess(server.clone())),
        provider: cloud.provider,
        metrics: Arc::new(Metrics::new().map_err(|error| error.to_string())?),
        clock: Clock::System,
        set_verbosity: Arc::new(|_| ()),
    };
    Ok(tokio::spawn(async move { manager::run(parts, &work).await }))
}

fn is_initialized(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let tainted = spec.and_then(|spec| spec.taints.as_ref()).is_some_and(|t| t.iter().any(|t| t.key == TAINT_UNINITIALIZED));
    !tainted && spec.is_some_and(|spec| spec.provider_id.is_some())
}

fn has_route(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "NetworkUnavailable" && c.status == "False"))
}

fn address(service: &Service) -> Option<String> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    ingress.first().and_then(|entry| entry.ip.clone())
}

/// Counts the initialized nodes, the nodes with a route, and the Services with an address.
fn progress(server: &ApiServer) -> (usize, usize, usize) {
    let nodes = server.list::<Node>();
    let services = server.list::<Service>();
    let initialized = nodes.iter().filter(|node| is_initialized(node)).count();
    let routed = nodes.iter().filter(|node| has_route(node)).count();
    (initialized, routed, services.iter().filter(|service| address(service).is_some()).count())
}

/// Goal that the demo waits for.
struct Goal {
    nodes: usize,
    routes: usize,
    services: usize,
}

impl Goal {
    fn of(arguments: &Arguments, cloud: &Cloud) -> Self {
        let (nodes, services) = (cloud.nodes.len(), arguments.services as usize);
        Self { nodes, routes: nodes, services }
    }

    fn is_reached(&self, server: &ApiServer) -> bool {
        progress(server) == (self.nodes, self.routes, self.services)
    }

    fn summary(&self, server: &ApiServer, converged: bool, started: Instant) -> String {
        let (initialized, routed, served) = progress(server);
        let verdict = if converged { "converged" } else { "NOT converged" };
        format!(
            "{verdict} after {:.1} s: {initialized}/{} nodes initialized, {routed}/{} nodes routed, {served}/{} services with an address",
            started.elapsed().as_secs_f64(),
            self.nodes,
            self.routes,
            self.services,
        )
    }
}

/// Prints every event when it is written.
async fn report(server: ApiServer, started: Instant, stop: Shutdown) {
    let mut seen = BTreeSet::new();
    loop {
        let printed = seen.len();
        tokio::select! {
            biased;
            () = stop.begun() => return,
            () = server.wait_until(|server| server.list::<Event>().len() > printed) => {}
        }
        for event in server.list::<Event>() {
            if seen.insert(event.metadata.name.clone()) {
                let about = event.involved_object;
                say(&format!(
                    "{:6.1} s  {:<8} {}/{}: {}",
                    started.elapsed().as_secs_f64(),
                    event.type_.unwrap_or_default(),
                    about.kind.unwrap_or_default(),
                    about.name.unwrap_or_default(),
                    event.message.unwrap_or_default()
                ));
            }
        }
    }
}

fn hint(kubeconfig: &Path, with_services: bool) -> String {
    let path = kubeconfig.display();
    let services = format!(
        "  kubectl describe service demo-service-0\n  kubectl delete service demo-service-0\n  \
         echo '{SERVICE}' | kubectl apply -f -\n"
    );
    format!(
        "look around with your own kubectl, end with Ctrl-C:\n\
         \n  export KUBECONFIG={path}\n  kubectl get nodes,services\n{}",
        if with_services { services.as_str() } else { "  kubectl describe nodes\n" }
    )
}

/// Returns a hint about a second process next to the manager of the demo.
fn dry_run_hint(arguments: &Arguments, cluster_cidr: &str) -> String {
    let Arguments { kubeconfig, azure_json, azure_ca, .. } = arguments;
    let program = std::env::args().next().unwrap_or_else(|| "cloud-controller-manager".to_owned());
    let flags = format!("--cloud-config={} --kubeconfig={}", azure_json.display(), kubeconfig.display());
    format!(
        "see what another manager would write here: once, or as a shadow manager; it may only read:\n\
         \n  export SSL_CERT_FILE={}\n  {program} plan --all --report {flags} --cluster-cidr={cluster_cidr}\n  \
         {program} --dry-run {flags} --cluster-cidr={cluster_cidr} --secure-port=10288\n  \
         curl --insecure https://127.0.0.1:10288/reportz\n",
        azure_ca.display()
    )
}

fn say(line: &str) {
    // A closed terminal is not an error.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
