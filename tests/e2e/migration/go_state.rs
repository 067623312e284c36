//! A cluster with Services that the Go program serves: a golden case on a real API server and a simulated Azure.
//!
//! Input: a recorded state. Output: its Nodes and Services in the cluster, and its documents in Azure. The API server assigns new UIDs,
//! and Go names resources after them: in the documents, they replace the recorded UIDs.

use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::{
    azure::Azure,
    case::{Case, Outcome},
    corpus::case,
    objects::Objects,
};

/// Five Services that share security rules.
const CASE: &str = "azure-lb/nsg-shared-rules";
/// Length of the UID in Go's resource names: `a` and the start of the UID without dashes.
const UID_LETTERS: usize = 31;
/// Fields of the recorded configuration that select the endpoints of Azure.
const ENDPOINT_FIELDS: [&str; 1] = ["cloud"];

/// Creates the objects and documents, and returns the names of the Services.
pub(super) async fn create(azure: &Azure, objects: &Objects) -> Vec<String> {
    let case = case(CASE);
    for node in &case.nodes {
        create_node(objects, node).await;
    }
    let (step, mut names, mut uids) = (&case.steps[0], Vec::new(), Vec::new());
    for (key, recorded) in &step.services {
        let created = create_service(objects, recorded, &step.outcomes[key]).await;
        uids.push([recorded, &created].map(|service| short_uid(service.metadata.uid.as_deref().expect("a UID"))));
        names.push(created.metadata.name.expect("a name"));
    }
    let documents: Vec<&Value> = step.after.values().collect();
    let text = serde_json::to_string(&documents).expect("JSON");
    let text = uids.iter().fold(text, |text, [recorded, created]| text.replace(recorded, created));
    azure.simulation.azure().load(serde_json::from_str(&text).expect("documents")).expect("they are documents");
    azure.configure(&configuration(case));
    names
}

fn configuration(case: &Case) -> Value {
    let fields = case.config.as_object().expect("fields").clone();
    Value::Object(fields.into_iter().filter(|(name, _)| !ENDPOINT_FIELDS.contains(&name.as_str())).collect())
}

fn short_uid(uid: &str) -> String {
    uid.chars().filter(|letter| *letter != '-').take(UID_LETTERS).collect()
}

async fn create_node(objects: &Objects, node: &Node) {
    let name = node.metadata.name.clone().expect("a name");
    objects.nodes.create(&PostParams::default(), node).await.expect("node");
    let status = json!({"status": node.status});
    objects.nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.expect("node status");
    objects.set_ready(&name, "True").await;
}

/// Creates a Service with the addresses and the finalizer of Go. The API server assigns the cluster IPs.
async fn create_service(objects: &Objects, recorded: &Service, outcome: &Outcome) -> Service {
    let mut service = recorded.clone();
    service.metadata.uid = None;
    service.metadata.finalizers = Some(outcome.finalizers.clone());
    if let Some(spec) = &mut service.spec {
        (spec.cluster_ip, spec.cluster_ips) = (None, None);
    }
    let created = objects.services.create(&PostParams::default(), &service).await.expect("service");
    let status = json!({"status": {"loadBalancer": {"ingress": outcome.load_balancer.ingress}}});
    let name = created.metadata.name.as_deref().expect("a name");
    objects.services.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("service status")
}
