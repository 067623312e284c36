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

/// Polls `holds` until it returns `true`. Panics with `condition` after `limit`.
pub(crate) async fn eventually<F: Future<Output = bool>>(condition: &str, limit: Duration, mut holds: impl FnMut() -> F) {
    let deadline = Instant::now() + limit;
    let mut ticks = interval(Duration::from_millis(50));
    while Instant::now() < deadline {
        ticks.tick().await;
        if tokio::time::timeout_at(deadline, holds()).await.unwrap_or(false) {
            return;
        }
    }
    panic!("not within {limit:?}: {condition}");
}

/// Time limit for what happens soon, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(45);

/// Process of a manager.
pub(crate) struct Manager {
    process: Process,
    host: String,
    /// Secure port.
    pub(crate) port: u16,
    log: PathBuf,
}

impl Manager {
    /// Starts the built binary as ServiceAccount `name` with the fake provider on `cloud` and further flags.
    pub(crate) async fn start(plane: &ControlPlane, name: &str, cloud: &Path, flags: &[&str]) -> Self {
        let kubeconfig = plane.manager_kubeconfig(name).await;
        Self::start_with(plane, name, &kubeconfig, cloud, flags)
    }

    /// Starts the built binary with the fake provider and an existing kubeconfig.
    pub(crate) fn start_with(plane: &ControlPlane, name: &str, kubeconfig: &Path, cloud: &Path, flags: &[&str]) -> Self {
        Self::of(plane, name, "fake", kubeconfig, cloud, flags, &[])
    }

    /// Starts the built binary with the azure provider. `cloud` names the configuration file and the only trusted certificate authority.
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
        let flag_value = |name: &str| flags.iter().rev().find_map(|flag| flag.strip_prefix(name));
        let host = flag_value("--bind-address=").unwrap_or("127.0.0.1").to_owned();
        let port = flag_value("--secure-port=").map_or_else(free_port, |port| port.parse().expect("a port"));
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

    /// Returns the bind address of the secure port.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let status = Command::new("kill").arg(self.process.0.id().to_string()).status().expect("kill runs");
        assert!(status.success(), "kill failed");
    }

    /// Sends SIGTERM and waits for exit code 0.
    pub(crate) async fn stop(mut self) {
        self.terminate();
        assert!(self.ended(SOON).await.success(), "{}", self.log_text());
    }

    /// Sends SIGKILL and waits for the exit.
    pub(crate) fn kill(mut self) {
        self.process.0.kill().expect("kill");
        self.process.0.wait().expect("wait");
    }

    /// Waits for the exit of the process.
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

    /// Returns `true` if the process has not exited.
    pub(crate) fn is_running(&mut self) -> bool {
        self.process.0.try_wait().expect("wait").is_none()
    }

    pub(crate) async fn is_ready(&self) -> bool {
        self.get("/readyz", None).await.is_some_and(|(status, _)| status == 200)
    }

    pub(crate) async fn until_ready(&self) {
        eventually("the manager is ready", SOON, async || self.is_ready().await).await;
    }

    /// Sends a GET request to the secure port and returns status and body, or `None` without a response.
    pub(crate) async fn get(&self, path: &str, token: Option<&str>) -> Option<(u16, String)> {
        let client = reqwest::Client::builder().danger_accept_invalid_certs(true).no_proxy().build().expect("client");
        let mut request = client.get(format!("https://{}:{}{path}", self.host, self.port));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        Some((status, response.text().await.ok()?))
    }

    /// Returns the URL of the secure port.
    pub(crate) fn url(&self) -> String {
        format!("https://{}:{}", self.host, self.port)
    }

    /// Returns the log of the process.
    pub(crate) fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// Environment variable with the path of the program under test. `make shipped` sets it to the program of the image.
const SHIPPED: &str = "CCM_BINARY";

/// Returns the path of the program under test.
pub(crate) fn binary() -> &'static str {
    static PATH: LazyLock<String> =
        LazyLock::new(|| env::var(SHIPPED).unwrap_or_else(|_| env!("CARGO_BIN_EXE_cloud-controller-manager").to_owned()));
    &PATH
}

/// Returns `true` if the program under test is that of the image.
pub(crate) fn is_shipped() -> bool {
    env::var_os(SHIPPED).is_some()
}
