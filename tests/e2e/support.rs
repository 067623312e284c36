//! Waiting for conditions, and running managers.

use std::{
    env, fs,
    future::Future,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::LazyLock,
    time::Duration,
};

use tokio::time::{Instant, interval};

use crate::control_plane::{ControlPlane, Process, free_port};

/// Waits until `holds`; fails with `what` after `limit`. Conditions of other processes can only be asked for, so this asks often.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, limit: Duration, mut holds: impl FnMut() -> F) {
    let deadline = Instant::now() + limit;
    let mut ticks = interval(Duration::from_millis(50));
    while Instant::now() < deadline {
        ticks.tick().await;
        if tokio::time::timeout_at(deadline, holds()).await.unwrap_or(false) {
            return;
        }
    }
    panic!("not within {limit:?}: {what}");
}

/// Time for anything that should happen soon, on a machine that may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(45);

/// A manager process.
pub(crate) struct Manager {
    process: Process,
    host: String,
    /// Its secure port.
    pub(crate) port: u16,
    log: PathBuf,
}

impl Manager {
    /// Starts the built binary as ServiceAccount `name` with the fake provider on `cloud` and further flags.
    pub(crate) async fn start(plane: &ControlPlane, name: &str, cloud: &Path, flags: &[&str]) -> Self {
        let kubeconfig = plane.manager_kubeconfig(name).await;
        Self::start_with(plane, name, &kubeconfig, cloud, flags)
    }

    /// The same with a kubeconfig at hand.
    pub(crate) fn start_with(plane: &ControlPlane, name: &str, kubeconfig: &Path, cloud: &Path, flags: &[&str]) -> Self {
        Self::of(plane, name, "fake", kubeconfig, cloud, flags, &[])
    }

    /// The same with the azure provider. `cloud`: the configuration, and the certificate authority, which alone it trusts.
    pub(crate) fn start_azure(
        plane: &ControlPlane,
        name: &str,
        kubeconfig: &Path,
        cloud: (&Path, &Path),
        flags: &[&str],
    ) -> Self {
        Self::of(plane, name, "azure", kubeconfig, cloud.0, flags, &[("SSL_CERT_FILE", cloud.1)])
    }

    fn of(
        plane: &ControlPlane,
        name: &str,
        provider: &str,
        kubeconfig: &Path,
        cloud: &Path,
        flags: &[&str],
        environment: &[(&str, &Path)],
    ) -> Self {
        let given = |name: &str| flags.iter().rev().find_map(|flag| flag.strip_prefix(name));
        let host = given("--bind-address=").unwrap_or("127.0.0.1").to_owned();
        let port = given("--secure-port=").map_or_else(free_port, |port| port.parse().expect("a port"));
        let log = plane.folder().join(format!("{name}-{port}.log"));
        let file = || fs::OpenOptions::new().create(true).append(true).open(&log).expect("log");
        let mut command = Command::new(binary());
        command
            .envs(environment.iter().copied())
            .arg(format!("--cloud-provider={provider}"))
            .args(["--bind-address=127.0.0.1", "--v=4"])
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--cloud-config={}", cloud.display()))
            .arg(format!("--secure-port={port}"))
            .args(flags);
        let child = command.stdout(file()).stderr(file()).spawn().expect("the manager starts");
        Self { process: Process(child), host, port, log }
    }

    /// The address of its secure port.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let status = Command::new("kill").arg(self.process.0.id().to_string()).status().expect("kill runs");
        assert!(status.success(), "kill failed");
    }

    /// Sends SIGTERM and waits for an orderly end.
    pub(crate) async fn stop(mut self) {
        self.terminate();
        assert!(self.ended(SOON).await.success(), "{}", self.log_text());
    }

    /// Sends SIGKILL and reaps it.
    pub(crate) fn kill(mut self) {
        self.process.0.kill().expect("kill");
        self.process.0.wait().expect("wait");
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        let mut ticks = interval(Duration::from_millis(10));
        while Instant::now() < deadline {
            if let Some(status) = self.process.0.try_wait().expect("wait") {
                return status;
            }
            ticks.tick().await;
        }
        panic!("the manager did not end within {limit:?}\n{}", self.log_text());
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.process.0.try_wait().expect("wait").is_none()
    }

    pub(crate) async fn is_ready(&self) -> bool {
        self.get("/readyz", None).await.is_some_and(|(status, _)| status == 200)
    }

    pub(crate) async fn until_ready(&self) {
        eventually("the manager is ready", SOON, async || self.is_ready().await).await;
    }

    /// GET of a path on its secure port: status and body. `None` when it does not answer.
    pub(crate) async fn get(&self, path: &str, token: Option<&str>) -> Option<(u16, String)> {
        let client = reqwest::Client::builder().danger_accept_invalid_certs(true).no_proxy().build().expect("client");
        let mut request = client.get(format!("https://{}:{}{path}", self.host, self.port));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.text().await.ok()?))
    }

    /// Its secure port.
    pub(crate) fn url(&self) -> String {
        format!("https://{}:{}", self.host, self.port)
    }

    /// What it logged.
    pub(crate) fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// Names another program to test than the one that is built with the tests: `make shipped` names that of the image.
const SHIPPED: &str = "CCM_BINARY";

/// Path of the program under test.
pub(crate) fn binary() -> &'static str {
    static PATH: LazyLock<String> =
        LazyLock::new(|| env::var(SHIPPED).unwrap_or_else(|_| env!("CARGO_BIN_EXE_cloud-controller-manager").to_owned()));
    &PATH
}

/// Whether that is the program of the image.
pub(crate) fn is_shipped() -> bool {
    env::var_os(SHIPPED).is_some()
}
