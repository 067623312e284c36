//! Migration as in the README and the guide: shadow, compare, switch, roll back. Their commands run unchanged, on a real API server with
//! kubectl and on a simulated Azure with the documents of the Go program.
//!
//! Two managers lead in turn. One replaces the Go program: it has Go's flags and Lease, does not release the Lease when it ends, and has no
//! service controller, so Go's documents remain unchanged. Deployments become processes of this host (`kubelet`), kustomizations
//! are rendered here (`kustomized`), and a port-forward is a no-op. `KUBECTL` names kubectl; `.ci/kubectl` provides one.

mod go_state;
mod kubelet;
mod kustomized;

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use cloud_controller_manager::sandbox::azure::topology::{Pool, PoolKind, Topology};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, api::PostParams};
use serde_json::json;
use tokio::time::{Instant, interval};

use crate::{
    azure::Azure,
    blocks::{Block, blocks},
    control_plane::{ADMIN_TOKEN, ControlPlane},
    objects::Objects,
    scenarios::{leads, terms},
    support::{Manager, SOON, binary},
};
use kubelet::Kubelet;

const GO: &str = "cloud-controller-manager";
const NEXT: &str = "cloud-controller-manager-next";
const SHADOW: &str = "cloud-controller-manager-shadow";
/// Flags of the Helm chart of Azure's Go program, with routes off and without the service controller, which would change documents.
const GO_FLAGS: [&str; 6] = [
    "--allocate-node-cidrs=false",
    "--cluster-name=kubernetes",
    "--configure-cloud-routes=false",
    "--controllers=*,-service-lb-controller",
    "--leader-elect=true",
    "--secure-port=10268",
];
const CALLS: &str = "cloud_controller_manager_provider_call_duration_seconds_count";
const WORD: &str = "migration";
const READY: &str = "ready to switch: 0 writes planned, 0 leftovers would be removed\n";

/// Returns the text of a page, and its blocks with commands between two lines, in order.
fn commands(page: &str, from: &str, to: &str) -> (String, Vec<Block>) {
    let text = fs::read_to_string(page).expect(page);
    let line =
        |start: &str| text.lines().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{page}: {start}"));
    let (first, last) = (line(from), line(to));
    let shown = blocks(page, &text).into_iter().filter(|block| (first..last).contains(&(block.line - 1)));
    let typed: Vec<Block> = shown.filter(Block::has_commands).collect();
    for block in &typed {
        let runs = !block.is_example() || block.words.iter().any(|word| word == WORD);
        assert!(runs, "{}: no suite runs this block", block.location());
    }
    (text, typed)
}

/// Returns the number of commands in the blocks.
fn count(blocks: &[Block]) -> usize {
    let joined = |block: &Block| block.text.replace("\\\n", " ");
    let of_block = |text: String| {
        let (mut count, mut is_input) = (0, false);
        for line in text.lines() {
            count += usize::from(!is_input);
            is_input = (is_input || line.contains("<<'EOF'")) && line != "EOF";
        }
        count
    };
    blocks.iter().map(|block| of_block(joined(block))).sum()
}

/// Syncs Deployments until `holds` is true.
macro_rules! until {
    ($desk:expr, $condition:expr, $holds:expr) => {{
        let since = Instant::now();
        while !$holds {
            $desk.wait($condition, since).await;
        }
    }};
}

/// Machine of the person who runs the commands.
struct Desk {
    folder: PathBuf,
    kubelet: Kubelet,
    plane: ControlPlane,
}

impl Desk {
    async fn new(plane: ControlPlane, azure: &Azure) -> Self {
        let kubectl =
            env::var("KUBECTL").expect("KUBECTL is not set: run `make test`, or set it to what .ci/kubectl prints");
        let folder = plane.folder().join("desk");
        for part in [".kube", "bin", "target/release", "rendered"] {
            fs::create_dir_all(folder.join(part)).expect("a folder");
        }
        drop(plane.admin().await);
        fs::copy(plane.folder().join("admin.kubeconfig"), folder.join(".kube/config")).expect("a kubeconfig");
        fs::copy(&azure.config, folder.join("azure.json")).expect("azure.json");
        symlink(binary(), folder.join("target/release/cloud-controller-manager")).expect("the program");
        let shim = format!(
            "#!/bin/sh\ncase \" $* \" in\n*\" port-forward \"*) exit 0 ;;\n\
             *\" -k \"*) exec {kubectl} \"$1\" -f \"{}/rendered/${{3%/}}.json\" ;;\nesac\nexec {kubectl} \"$@\"\n",
            folder.display()
        );
        fs::write(folder.join("bin/kubectl"), shim).expect("kubectl");
        fs::set_permissions(folder.join("bin/kubectl"), fs::Permissions::from_mode(0o755)).expect("kubectl");
        let kubelet = Kubelet::new(&plane, (&azure.config, &azure.ca_file), GO).await;
        Self { folder, kubelet, plane }
    }

    /// Syncs Deployments once. Panics with `condition` if the wait has lasted too long.
    async fn wait(&mut self, condition: &str, since: Instant) {
        assert!(since.elapsed() < 2 * SOON, "not within {:?}: {condition}\n{}", 2 * SOON, self.logs());
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.kubelet.sync(&self.plane).await;
    }

    fn logs(&self) -> String {
        let all = [GO, SHADOW, NEXT].into_iter().flat_map(|name| self.kubelet.replicas(name));
        let last = |text: String| text.lines().rev().take(15).map(|line| format!("{line}\n")).collect::<String>();
        all.map(|replica| format!("{}:{}\n{}", replica.host(), replica.port, last(replica.log_text()))).collect()
    }

    /// Runs a block as a reader would while syncing Deployments, and returns its output.
    async fn run(&mut self, block: &Block) -> String {
        let path = format!("{}:{}", self.folder.join("bin").display(), env::var("PATH").unwrap_or_default());
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &block.commands()]).current_dir(&self.folder).env("PATH", path);
        command.env("HOME", &self.folder).env_remove("KUBECONFIG").env("GO_CCM", GO).env("TOKEN", ADMIN_TOKEN);
        command.env("SSL_CERT_FILE", self.kubelet.ca_file());
        let mut work = tokio::task::spawn_blocking(move || command.output().expect("bash"));
        let mut ticks = interval(Duration::from_millis(100));
        let output = loop {
            tokio::select! {
                output = &mut work => break output.expect("the block ends"),
                _ = ticks.tick() => self.kubelet.sync(&self.plane).await,
            }
        };
        let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(output.status.success(), "{} ends with {}: {out}{err}\n{}", block.location(), output.status, self.logs());
        self.render();
        out
    }

    /// Renders the kustomizations in the folder as kubectl does.
    fn render(&self) {
        for entry in fs::read_dir(&self.folder).expect("a folder") {
            let folder = entry.expect("an entry").path();
            let (file, name) = (folder.join("kustomization.yaml"), folder.file_name().expect("a name").to_owned());
            if file.is_file() {
                let list = kustomized::rendered(&file).to_string();
                fs::write(self.folder.join("rendered").join(Path::new(&name).with_extension("json")), list).expect("a list");
            }
        }
    }

    /// Waits until the shadow manager has made a plan.
    async fn until_reported(&mut self) {
        until!(self, "the shadow manager reports", self.has_report().await);
    }

    async fn has_report(&self) -> bool {
        let Some(shadow) = self.kubelet.replicas(SHADOW).first() else { return false };
        shadow.get("/reportz", Some(ADMIN_TOKEN)).await.is_some_and(|(status, _)| status == 200)
    }
}

async fn deploy_go(plane: &ControlPlane) {
    let labels = json!({"component": GO, "tier": "control-plane"});
    let pod = json!({"serviceAccountName": GO, "containers": [{"name": GO, "image": "go:v1", "args": GO_FLAGS}]});
    let deployment = json!({
        "metadata": {"name": GO, "namespace": "kube-system"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    });
    let deployments: Api<Deployment> = Api::namespaced(plane.admin().await, "kube-system");
    let deployment = serde_json::from_value(deployment).expect("a Deployment");
    deployments.create(&PostParams::default(), &deployment).await.expect("a Deployment");
}

async fn any_leads(replicas: &[Manager]) -> bool {
    for replica in replicas {
        if leads(replica).await {
            return true;
        }
    }
    false
}

/// README: five commands to a shadow manager, and two to its report.
async fn try_readme(desk: &mut Desk) {
    let (_, typed) = commands("README.md", "**To see what would change while a Go CCM runs**", "**To replace a Go CCM**");
    let [write, install, read, once] = typed.as_slice() else { panic!("{} blocks", typed.len()) };
    assert_eq!(count(&typed[..2]), 5, "five commands, as README says");
    desk.run(write).await;
    desk.run(install).await;
    assert!(desk.kubelet.replicas(SHADOW)[0].is_ready().await, "rollout status waits for it");
    desk.until_reported().await;
    let report = desk.run(read).await;
    assert!(report.starts_with(READY), "{report}");
    assert!(desk.run(once).await.starts_with(READY), "the report without an image differs");
    let remove = Block { text: "kubectl delete -k shadow-cluster/\n".to_owned(), ..block_like(install) };
    desk.run(&remove).await;
    until!(desk, "the shadow manager is gone", desk.kubelet.replicas(SHADOW).is_empty());
}

fn block_like(other: &Block) -> Block {
    Block { page: other.page.clone(), line: other.line, language: "sh".to_owned(), words: Vec::new(), text: String::new() }
}

/// Makes the first replica the leader, because the guide's port-forward ends there.
async fn until_first_leads(desk: &mut Desk) {
    until!(desk, "a replica leads", any_leads(desk.kubelet.replicas(NEXT)).await);
    if !leads(&desk.kubelet.replicas(NEXT)[0]).await {
        desk.kubelet.delete_pod(NEXT, 1).await;
    }
    until!(desk, "the first replica leads", leads(&desk.kubelet.replicas(NEXT)[0]).await);
}

pub(crate) async fn guide_commands_work(_: &mut ControlPlane) {
    let plane = ControlPlane::real_and_empty().await;
    plane.apply_file("manifests/rbac.yaml").await;
    let objects = Objects::new(&plane.admin().await);
    let azure = Azure::of(&plane, "migration", Topology::new().pool(Pool::new(PoolKind::Uniform, "unused", 1))).await;
    let services = go_state::create(&azure, &objects).await;
    deploy_go(&plane).await;
    let mut desk = Desk::new(plane, &azure).await;
    until!(desk, "the Go program leads", any_leads(desk.kubelet.replicas(GO)).await);

    try_readme(&mut desk).await;
    let (guide, typed) =
        commands("docs/guides/installing.md", "## Replacing a Go cloud-controller-manager", "## Uninstalling");
    for block in &typed {
        let text = block.text.clone();
        if text.contains("/reportz") {
            desk.until_reported().await;
        }
        if text.contains(" status --") {
            until_first_leads(&mut desk).await;
            settled_without_writes(&mut desk, &azure, &services).await;
        }
        let printed = desk.run(block).await;
        if text.contains("plan --all") && !text.contains("--report") {
            assert!(guide.contains(&format!("```text\n{printed}```")), "the guide shows another plan than\n{printed}");
        } else if text.contains("--report") || text.contains("/reportz") {
            assert!(printed.starts_with(READY), "{}: {printed}", block.location());
        } else if text.contains(" scale ") && text.contains("--replicas=0") {
            let deployment = if text.contains("$GO_CCM") { GO } else { NEXT };
            until!(desk, "its pods are gone", desk.kubelet.replicas(deployment).is_empty());
        } else if text.contains("rollout status \"deployment/$GO_CCM\"") {
            assert!(!any_leads(desk.kubelet.replicas(GO)).await, "both lead");
            works(&azure, &objects).await;
        }
    }
    until!(desk, "the Go program leads again", any_leads(desk.kubelet.replicas(GO)).await);
    assert_eq!(terms(&desk.plane, &[GO, NEXT, SHADOW]), [NEXT], "users that changed objects");
    let shadows = desk.plane.audited_writes().into_iter().filter(|(user, _)| user.ends_with(SHADOW));
    let (reviews, others): (Vec<_>, Vec<_>) = shadows.partition(|(_, request)| request.contains("reviews"));
    assert!(others.is_empty() && !reviews.is_empty(), "the shadow manager only creates reviews of its readers: {others:?}");
}

/// Returns the number of `ensure_load_balancer` calls of the manager.
async fn ensured(manager: &Manager) -> usize {
    let (_, text) = manager.get("/metrics", Some(ADMIN_TOKEN)).await.unwrap_or_default();
    let of = |line: &&str| line.starts_with(CALLS) && line.contains("call=\"ensure_load_balancer\"");
    let count = text.lines().find(of).and_then(|line| line.rsplit(' ').next()?.parse().ok());
    count.unwrap_or_default()
}

/// After the switch, the new leader reconciles every Service without a write to Azure.
async fn settled_without_writes(desk: &mut Desk, azure: &Azure, services: &[String]) {
    until!(desk, "every Service has been reconciled", ensured(&desk.kubelet.replicas(NEXT)[0]).await >= services.len());
    assert_eq!(azure.writes(), 0, "{:?}", azure.simulation.azure().requests());
    assert_eq!(terms(&desk.plane, &[GO, NEXT, SHADOW]), Vec::<String>::new(), "nothing has changed in the cluster either");
}

/// Checks that the current leader serves a new Service.
async fn works(azure: &Azure, objects: &Objects) {
    objects.add_service("late").await;
    assert!(azure.writes() > 0);
    objects.remove_service("late").await;
}
