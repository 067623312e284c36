//! The commands of the runbooks (`docs/runbooks`) work: against a real API server with kubectl, and a manager of a simulated Azure.
//!
//! `KUBECTL` names kubectl; `.ci/kubectl` provides one and `make test` sets it.

use std::{env, fs, path::Path, process::Command};

use crate::{
    azure::{Azure, initialized},
    control_plane::{ADMIN_TOKEN, ControlPlane},
    objects::Objects,
};

/// First line of the code blocks that run here.
const FENCE: &str = "```sh example cluster";

/// Returns the code blocks of a page with commands.
fn blocks(text: &str) -> Vec<String> {
    let parts = text.split(FENCE).skip(1);
    parts.map(|part| part.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// Runs a code block as a reader would, and returns its output.
fn run(block: &str, kubectl: &Path, kubeconfig: &Path, url: &str) -> Result<String, String> {
    let folder = kubectl.parent().expect("a folder").display().to_string();
    let path = format!("{folder}:{}", env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", block]).env("PATH", path).env("KUBECONFIG", kubeconfig);
    let output = command.env("URL", url).env("TOKEN", ADMIN_TOKEN).output().expect("bash");
    let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
    if output.status.success() { Ok(text) } else { Err(format!("{block}ends with {}: {text}", output.status)) }
}

pub(crate) async fn commands_work(plane: &mut ControlPlane, objects: &Objects) {
    let kubectl = env::var("KUBECTL").expect("KUBECTL is not set: run `make test`, or set it to what .ci/kubectl prints");
    let azure = Azure::start(plane, "runbooks").await;
    let manager = azure.manager_with_only(plane, "runbooks", &["--configure-cloud-routes=false"]).await;
    initialized(&azure, objects).await;
    objects.add_service("web").await;
    manager.until_ready().await;

    let (kubeconfig, url) = (plane.folder().join("admin.kubeconfig"), format!("https://127.0.0.1:{}", manager.port));
    let pages = fs::read_dir("docs/runbooks").expect("runbooks").map(|entry| entry.expect("an entry").path());
    let pages: Vec<_> = pages.filter(|page| !page.ends_with("README.md")).collect();
    let work = move || {
        let mut failures = Vec::new();
        for page in &pages {
            let blocks = blocks(&fs::read_to_string(page).expect("a page"));
            assert!(!blocks.is_empty(), "{} shows no command", page.display());
            let failed = blocks.iter().filter_map(|block| run(block, Path::new(&kubectl), &kubeconfig, &url).err());
            failures.extend(failed.map(|failure| format!("{}: {failure}", page.display())));
        }
        failures
    };
    let failures = tokio::task::spawn_blocking(work).await.expect("the commands run");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    objects.remove_service("web").await;
}
