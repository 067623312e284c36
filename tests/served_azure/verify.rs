//! `make verify-azure` as a user runs it: the program with an `azure.json` and a resource group, against an endpoint behind TLS.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use cloud_controller_manager::{
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{
        azure::world::{Serving, World},
        verify::{simulated, wire::PREFIX},
    },
};

use crate::served_azure::PROGRAM;

/// A served simulation of Azure with the files that the program needs.
struct Endpoint {
    cloud: World,
    folder: tempfile::TempDir,
    url: String,
    stop: Shutdown,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

impl Endpoint {
    async fn serve() -> Self {
        let (folder, stop) = (tempfile::tempdir().unwrap(), Shutdown::new());
        let cloud = simulated::build_world(Clock::System).unwrap();
        let serving = Serving { port: 0, ca_file: Some(folder.path().join("ca.pem")), shutdown: stop.clone() };
        let url = cloud.serve(serving).await.unwrap();
        fs::write(folder.path().join("azure.json"), cloud.config().to_string()).unwrap();
        Self { cloud, folder, url, stop }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(["verify-azure", "--cloud-config=azure.json", "--resource-group=scratch"])
            .args(more)
            .current_dir(self.path())
            .env("SSL_CERT_FILE", self.path().join("ca.pem"))
            .env("IMDS_ENDPOINT", &self.url)
            .stdin(Stdio::null());
        command
    }

    async fn run(&self, more: &[&str]) -> (Option<i32>, String) {
        let mut command = self.command(more);
        let output: Output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn report(&self) -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(self.path().join("azure-assumptions.json")).unwrap()).unwrap()
    }

    /// Returns the ids of resources that runs have left in the group.
    fn remains(&self) -> Vec<String> {
        let all = self.cloud.azure().dump().into_iter();
        let ids = all.map(|document| document["id"].as_str().unwrap_or_default().to_owned());
        ids.filter(|id| id.contains(PREFIX)).collect()
    }

    /// Starts the program and waits until so many writes have arrived.
    async fn started(&self, writes: usize) -> Child {
        self.cloud.azure().clear_requests();
        let child = self.command(&["--yes"]).stderr(Stdio::piped()).spawn().unwrap();
        let sent = || self.cloud.azure().count(|request| request.method == "PUT");
        while sent() < writes {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        child
    }
}

async fn ended(child: Child) -> (Option<i32>, String) {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_table_holds_behind_tls() {
    let endpoint = Endpoint::serve().await;
    let (code, text) = endpoint.run(&[]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("rows, about") && text.contains("US cents") && text.contains("confirm with --yes"), "{text}");
    assert_eq!(endpoint.cloud.azure().count(|request| request.method == "PUT"), 0);

    let (code, text) = endpoint.run(&["--yes", "--parallel=16"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(endpoint.remains(), Vec::<String>::new());
    let markdown = fs::read_to_string(endpoint.path().join("azure-assumptions.md")).unwrap();
    assert!(markdown.contains("0 are wrong, 0 could not be played") && !markdown.contains("sandbox-secret"), "{markdown}");
    assert!(endpoint.report()["rows"].as_array().unwrap().iter().all(|row| row["verdict"] == "holds"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_belief_in_the_table_ends_with_exit_code_1() {
    let endpoint = Endpoint::serve().await;
    let planted = "- id: planted\n  belief: A public IP is created at once.\n  source: {guess: It is planted.}\n  steps:\n  - put: public-ip\n    \
                   expect: {status: 200}\n";
    fs::write(endpoint.path().join("planted.yaml"), planted).unwrap();
    let (code, text) = endpoint.run(&["--yes", "--table=planted.yaml"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("WRONG        planted: status: expected 200, found 201"), "{text}");
    let report = endpoint.report();
    assert_eq!(
        (&report["rows"][0]["verdict"], &report["rows"][0]["differences"][0]["found"]),
        (&"wrong".into(), &"201".into())
    );
    assert_eq!(endpoint.remains(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_leave_nothing_and_a_killed_run_is_cleaned_up() {
    let endpoint = Endpoint::serve().await;
    for (signal, writes) in [("INT", 1), ("TERM", 25)] {
        let child = endpoint.started(writes).await;
        let sent = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let (code, text) = ended(child).await;
        assert_eq!((code, endpoint.remains()), (Some(130), Vec::new()), "{signal}: {text}");
        assert!(text.contains("stopping: what this run created is deleted"), "{text}");
    }
    let mut killed = endpoint.started(20).await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!endpoint.remains().is_empty(), "the killed run has left something");
    let (code, text) = endpoint.run(&["--yes", "--only=routes"]).await;
    assert_eq!((code, endpoint.remains()), (Some(0), Vec::new()), "{text}");
    assert!(text.contains("of an earlier run are deleted first"), "{text}");
}
