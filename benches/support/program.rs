//! The built program in a process of its own, with the flags of `manifests/deployment.yaml`, and the resources that it uses.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Environment variable that names the program of the image. Its memory and times are asserted; those of other builds are only printed.
const SHIPPED: &str = "CCM_BINARY";
/// Whether this is the build of the tests, which only measures counts: a quarter of the objects suffices for them.
pub(crate) const COUNTS_ONLY: bool = cfg!(debug_assertions);
/// Unit of processor time in `/proc/*/stat` on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns `true` if the program of the image is measured.
pub(crate) fn is_shipped() -> bool {
    std::env::var_os(SHIPPED).is_some()
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Returns the last lines of the log in a folder.
pub(crate) fn log_tail(folder: &Path) -> String {
    let text = fs::read_to_string(folder.join("log")).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

pub(crate) struct Program(Child);

impl Program {
    /// Starts the program with the kubeconfig and the cloud configuration in a folder, and writes its log there.
    pub(crate) fn start(folder: &Path, config: &str, port: u16, flags: &[&str], variables: &[(&str, PathBuf)]) -> Self {
        let binary = std::env::var_os(SHIPPED).unwrap_or_else(|| env!("CARGO_BIN_EXE_cloud-controller-manager").into());
        let child = Command::new(binary)
            // As in the image.
            .env("MALLOC_ARENA_MAX", "1")
            .envs(variables.iter().cloned())
            .arg(format!("--kubeconfig={}", folder.join("kubeconfig").display()))
            .arg(format!("--cloud-config={}", folder.join(config).display()))
            .arg(format!("--secure-port={port}"))
            .args(["--bind-address=127.0.0.1", "--configure-cloud-routes=false", "--v=2"])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log")).expect("a log"))
            .spawn()
            .expect("the program starts");
        Self(child)
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).unwrap_or_default()
    }

    /// Returns the processor time so far, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = self.proc("stat");
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
    }

    /// Returns a field of `/proc/*/status`, in MiB.
    pub(crate) fn mib(&self, field: &str) -> f64 {
        let status = self.proc("status");
        let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(f64::MAX) / 1024.0
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn terminate(mut self) {
        let status = Command::new("kill").arg(self.0.id().to_string()).status().expect("kill runs");
        assert!(status.success(), "kill failed");
        let status = self.0.wait().expect("the program ends");
        assert!(status.success(), "the program ended with {status}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program runs until here only if something failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
