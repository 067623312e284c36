//! Replacing a Go program as the guide says: the manager of the recipe beside one that has the flags of Azure's Helm chart. There is
//! one Lease, so one of them writes; and it is handed over in both directions.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    azure::{Azure, initialised},
    control_plane::ControlPlane,
    objects::Objects,
    scenarios::{is_ready, leads, terms},
    shipped,
    support::{Manager, SOON, eventually},
};

/// What the Helm chart of Azure's Go program gives it, with routes off.
const RUNNING: &[&str] = &[
    "--allocate-node-cidrs=false",
    "--cluster-name=kubernetes",
    "--configure-cloud-routes=false",
    "--leader-elect=true",
    "--route-reconciliation-period=10s",
    "--secure-port=10268",
];

/// The flags that the recipe gives ours; the file is the test's own.
fn recipe() -> Vec<String> {
    let deployment = shipped::deployment(&["azure", "beside-go"]);
    let flags = deployment.pointer("/spec/template/spec/containers/0/args").and_then(|args| args.as_array());
    let flags = flags.expect("flags").iter().map(|flag| flag.as_str().expect("a flag").to_owned());
    flags.filter(|flag| !flag.starts_with("--cloud-config=")).collect()
}

/// An address of this machine that no other test listens on: ports are those of the recipe.
fn host() -> String {
    let process = std::process::id();
    format!("--bind-address=127.78.{}.{}", process / 250 % 250 + 1, process % 250 + 1)
}

async fn served(objects: &Objects, name: &str) {
    objects.create_service(name).await;
    objects.until_service_has_address(name).await;
}

/// What the guide says to do when no Go pod is left, which keeps the lease when it ends.
async fn free_lease(plane: &ControlPlane) {
    let leases: Api<Lease> = Api::namespaced(plane.admin().await, "kube-system");
    let free = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
    leases.patch("cloud-controller-manager", &PatchParams::default(), &free).await.expect("the lease");
}

async fn stands_by(manager: &mut Manager) {
    eventually("the one that waits is ready", SOON, async || is_ready(manager).await).await;
    assert!(manager.is_running(), "it ended\n{}", manager.log_text());
    assert!(!leads(manager).await, "both lead");
}

/// There and back.
pub(crate) async fn there_and_back(plane: &mut ControlPlane) {
    let (host, recipe) = (host(), recipe());
    let running = [RUNNING, &[&host]].concat();
    let next: Vec<&str> = recipe.iter().map(String::as_str).chain([host.as_str()]).collect();
    let objects = Objects::new(&plane.admin().await);
    let azure = Azure::start(plane, "replacement").await;

    let first = azure.manager_with_only(plane, "go-before", &running).await;
    initialised(&azure, &objects).await;
    served(&objects, "one").await;
    let mut ours = azure.manager_with_only(plane, "ours-next", &next).await;
    stands_by(&mut ours).await;
    served(&objects, "two").await;
    assert!(leads(&first).await && !leads(&ours).await, "the one that runs goes on");

    first.kill();
    free_lease(plane).await;
    eventually("ours leads", SOON, async || leads(&ours).await).await;
    served(&objects, "three").await;

    let mut back = azure.manager_with_only(plane, "go-after", &running).await;
    stands_by(&mut back).await;
    served(&objects, "four").await;
    ours.terminate();
    assert!(ours.ended(SOON).await.success(), "{}", ours.log_text());
    eventually("the other one leads again", SOON, async || leads(&back).await).await;
    served(&objects, "five").await;
    let writers = ["go-before", "ours-next", "go-after"];
    assert_eq!(terms(plane, &writers), writers, "writes of two programs interleave");
    for name in ["one", "two", "three", "four", "five"] {
        objects.delete_service(name).await;
        objects.until_service_is_gone(name).await;
    }
}
