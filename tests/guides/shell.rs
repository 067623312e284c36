//! Runs the commands of a page in a folder of its own.
//!
//! In: the blocks of one page, in order. Out: an error for each block that fails. The folder has the manifests and the built program in
//! the same places as a clone. `$HOME/.kube/config` leads to an in-memory API server. `bin/` next to this file has the replacements of
//! `make` and of the program.

use std::{
    env, fs,
    net::TcpListener,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use cloud_controller_manager::{
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::api_server::ApiServer,
};
use tempfile::TempDir;

use crate::guides::blocks::{Block, root};

/// Folder and API server for the commands of one page. Dropping it ends the API server.
pub(crate) struct Shell {
    folder: TempDir,
    stop: Shutdown,
    _runtime: tokio::runtime::Runtime,
}

impl Shell {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // As in a clone, so that `..` of a folder that the page creates contains the manifests.
        symlink(root().join("manifests"), folder.path().join("manifests")).unwrap();
        fs::create_dir_all(folder.path().join("target/release")).unwrap();
        let program = "cloud-controller-manager";
        symlink(bin().join(program), folder.path().join("target/release").join(program)).unwrap();
        let (runtime, stop) = (tokio::runtime::Runtime::new().unwrap(), Shutdown::new());
        serve(&runtime, &stop, folder.path());
        Self { folder, stop, _runtime: runtime }
    }

    /// Writes the file of a block, or runs its commands. Returns an error if they fail or print other lines.
    pub(crate) fn take(&self, block: &Block) -> Result<(), String> {
        if let Some(file) = block.file() {
            return fs::write(self.folder.path().join(file), &block.text).map_err(|error| error.to_string());
        }
        match block.language.as_str() {
            "console" => transcript(&block.text).iter().try_for_each(|(command, expected)| self.compare(command, expected)),
            _ => {
                let output = self.run(&block.text);
                if output.status.success() { Ok(()) } else { Err(format!("{}: {}", output.status, printed(&output))) }
            }
        }
    }

    fn compare(&self, command: &str, expected: &[&str]) -> Result<(), String> {
        let text = printed(&self.run(command));
        let lines: Vec<_> = text.lines().collect();
        let fits = lines.len() == expected.len() && lines.iter().zip(expected).all(|(line, like)| is_like(line, like));
        if fits { Ok(()) } else { Err(format!("{command} prints:\n{text}")) }
    }

    fn run(&self, script: &str) -> Output {
        let path = env::var("PATH").unwrap();
        // A command that hangs ends with status 124.
        let mut bash = Command::new("timeout");
        bash.args(["60", "bash", "-euo", "pipefail", "-c", script])
            .current_dir(self.folder.path())
            .env_remove("KUBERNETES_SERVICE_HOST");
        bash.env("PATH", format!("{}:{path}", bin().display())).env("REAL_PATH", path).env("HOME", self.folder.path());
        bash.env("ROOT", root()).env("CCM", env!("CARGO_BIN_EXE_cloud-controller-manager"));
        bash.output().unwrap()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

fn bin() -> std::path::PathBuf {
    root().join("tests/guides/bin")
}

fn serve(runtime: &tokio::runtime::Runtime, stop: &Shutdown, home: &Path) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    fs::create_dir_all(home.join(".kube")).unwrap();
    ApiServer::write_kubeconfig(&home.join(".kube/config"), &url, None).unwrap();
    let (server, stop) = (ApiServer::new(Clock::System), stop.clone());
    runtime.spawn(async move { server.serve(tokio::net::TcpListener::from_std(listener).unwrap(), stop).await });
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Returns the commands with the lines that each must print.
fn transcript(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push((command, Vec::new())),
            (None, Some((_, expected))) => expected.push(line),
            (None, None) => panic!("a console block begins with a command: {line}"),
        }
    }
    found
}

/// Returns `true` if `line` matches `like`, in which `…` matches any text.
pub(crate) fn is_like(line: &str, like: &str) -> bool {
    let mut rest = line;
    let mut parts = like.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(after) = rest.strip_prefix(first) else { return false };
    rest = after;
    let parts: Vec<_> = parts.collect();
    for part in &parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.is_empty() || parts.last().is_some_and(|last| last.is_empty())
}
