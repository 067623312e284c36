//! The files of the bundle, before anything is taken out of them.
//!
//! In: a manager's configuration. Out: a text for each file, or why it cannot be had. Nothing is redacted here, and nothing is written.

use std::future::Future;

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Pod},
};
use kube::{Api, Client, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::secrets;
use crate::{
    app::{doctor, dry_run::NO_REPORT, orphans, status_command},
    cli::{DiagnoseOptions, NAME, SupportBundleOptions, VERSION, platform},
    cloud_provider::{Registry, diagnostics::DiagnosticFinding},
    runtime::{client::with_causes, clock::Clock},
};

/// Most objects of a kind.
const MOST_OBJECTS: u32 = 1_000;

/// Pages of a manager, and their files.
const PAGES: [(&str, &str); 8] = [
    ("readyz.txt", "/readyz?verbose"),
    ("statusz.json", "/statusz?format=json"),
    ("reportz.json", "/reportz?format=json"),
    ("planz.txt", "/planz?kind=services"),
    ("planz-nodes.txt", "/planz?kind=nodes"),
    ("flagz.txt", "/flagz"),
    ("configz.json", "/configz"),
    ("metrics.txt", "/metrics"),
];

/// Variables that say how the cloud is reached.
const VARIABLES: [&str; 9] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "KUBECONFIG",
];

/// A file's name, and its text or why there is none.
pub(super) type GatheredFile = (&'static str, Result<String, String>);

/// Files, and secrets that have to be taken out of them.
pub(super) struct GatheredFacts {
    pub(super) files: Vec<GatheredFile>,
    pub(super) secrets: Vec<String>,
}

pub(super) async fn everything(registry: &Registry, options: &SupportBundleOptions) -> GatheredFacts {
    let diagnose = &options.diagnose;
    let client = doctor::client(&diagnose.manager, "support-bundle").await.map_err(|error| error.to_string());
    let environment: Vec<(String, String)> = std::env::vars().collect();
    let findings = doctor::examine(registry, diagnose);
    gather(registry, options, client, &environment, findings).await
}

/// The same with another client and environment. `findings`: those of doctor.
pub(super) async fn gather(
    registry: &Registry,
    options: &SupportBundleOptions,
    client: Result<Client, String>,
    environment: &[(String, String)],
    findings: impl Future<Output = Vec<DiagnosticFinding>>,
) -> GatheredFacts {
    let mut files: Vec<GatheredFile> = vec![
        ("version.txt", Ok(format!("{NAME} {VERSION} {}\n", platform()))),
        ("flags.txt", Ok(lines(&options.diagnose.manager.flagz()))),
        ("environment.txt", Ok(lines(environment.iter().filter(|(name, _)| VARIABLES.contains(&name.as_str()))))),
    ];
    let mut known = secrets::known(options, environment);
    files.push(("configuration.txt", configuration(registry, &options.diagnose, &client, &mut known).await));
    let findings = findings.await;
    files.push(("doctor.txt", Ok(doctor::print::text(&findings))));
    files.push(("doctor.json", Ok(doctor::print::json(&findings))));
    files.push(("orphans.json", Ok(orphans::shown(&orphans::look(registry, &options.diagnose.manager).await, true))));
    let pages = status_command::pages(client.as_ref().ok(), &options.status, &PAGES.map(|(_, page)| page)).await;
    files.extend(PAGES.iter().map(|(name, _)| *name).zip(pages.into_iter().map(or_no_report)));
    let namespace = &options.status.lease.0;
    match &client {
        Ok(client) => {
            files.push(("leases.json", listed::<Lease>(&Api::namespaced(client.clone(), namespace)).await));
            files.push(("pods.json", managers(client, namespace).await));
            files.push(("events.json", listed::<Event>(&Api::all(client.clone())).await));
        }
        Err(reason) => files.extend(["leases.json", "pods.json", "events.json"].map(|name| (name, Err(reason.clone())))),
    }
    GatheredFacts { files, secrets: known }
}

/// Only a shadow manager reports: nothing is missing of another one.
fn or_no_report(page: Result<String, String>) -> Result<String, String> {
    page.or_else(|reason| if reason.contains(NO_REPORT) { Ok(format!("{NO_REPORT}\n")) } else { Err(reason) })
}

fn lines<'a>(pairs: impl IntoIterator<Item = &'a (String, String)>) -> String {
    pairs.into_iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// The provider's configuration; its secrets become known.
async fn configuration(
    registry: &Registry,
    options: &DiagnoseOptions,
    client: &Result<Client, String>,
    known: &mut Vec<String>,
) -> Result<String, String> {
    let manager = &options.manager;
    let provider = registry.diagnostics(&manager.cloud.provider).ok_or("the cloud provider shows no configuration")?;
    let facts = doctor::ClusterFacts::unseen("not asked for");
    let request = doctor::request(manager, client.clone().ok(), facts, Clock::System.wall());
    known.extend(provider.secrets(&request).await);
    provider.configuration(&request).await
}

async fn listed<K>(api: &Api<K>) -> Result<String, String>
where
    K: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let listed = api.list(&ListParams::default().limit(MOST_OBJECTS)).await.map_err(|error| with_causes(&error))?;
    let mut items = json!(listed.items);
    for item in items.as_array_mut().into_iter().flatten() {
        // Fields that only the API server needs, and copies of whole objects.
        let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut) else { continue };
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    Ok(format!("{items:#}\n"))
}

/// Pods of managers: what runs, and how often it started anew.
async fn managers(client: &Client, namespace: &str) -> Result<String, String> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default().limit(MOST_OBJECTS)).await.map_err(|error| with_causes(&error))?;
    let is_manager = |pod: &&Pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.into_iter().any(|container| {
            container.name.contains("cloud-controller-manager") || container.name.contains("cloud-node-manager")
        })
    };
    let shown = pods.items.iter().filter(is_manager).map(|pod| {
        let container = |container: &k8s_openapi::api::core::v1::Container| {
            json!({"name": container.name, "image": container.image, "command": container.command, "args": container.args})
        };
        let containers: Vec<_> = pod.spec.iter().flat_map(|spec| &spec.containers).map(container).collect();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        json!({"name": pod.metadata.name, "node": node, "containers": containers, "status": pod.status})
    });
    Ok(format!("{:#}\n", json!(shown.collect::<Vec<_>>())))
}
