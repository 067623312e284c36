//! Files of the bundle, before they are redacted.
//!
//! In: a manager's configuration. Out: a text for each file, or the reason why it is missing. Nothing is redacted here, and nothing is
//! written.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Container, Event, Pod},
};
use kube::{Api, Client, Resource, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::secrets;
use crate::{
    app::{check_config, doctor, orphans, plan::page::NO_REPORT, status_command},
    cli::{NAME, SupportBundleOptions, VERSION, platform},
    cloud_provider::{Registry, diagnostics::Examination},
    runtime::client::with_causes,
};

/// Maximum number of pages of a kind.
const MAX_PAGES: usize = 20;
/// Number of objects per page.
const PAGE: u32 = 500;

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

/// Environment variables that affect connections.
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

/// Name of a file, and its text or the reason why it is missing.
pub(super) type GatheredFile = (&'static str, Result<String, String>);

/// Files, and secrets that must be removed from them.
pub(super) struct GatheredFacts {
    pub(super) files: Vec<GatheredFile>,
    pub(super) secrets: Vec<String>,
}

pub(super) async fn everything(registry: &Registry, options: &SupportBundleOptions) -> GatheredFacts {
    let diagnose = &options.diagnose;
    let client = doctor::client(&diagnose.manager.kube_api, "support-bundle").await.map_err(|error| error.to_string());
    let environment: Vec<(String, String)> = std::env::vars().collect();
    gather(registry, options, client, &environment, doctor::examine(registry, diagnose).await).await
}

/// Gathers the facts with this client and environment. `examination` has doctor's findings.
pub(super) async fn gather(
    registry: &Registry,
    options: &SupportBundleOptions,
    client: Result<Client, String>,
    environment: &[(String, String)],
    examination: Examination,
) -> GatheredFacts {
    let manager = &options.diagnose.manager;
    let Examination { findings, orphans } = examination;
    let request = doctor::request(&manager.cloud, client.clone().ok(), doctor::ClusterFacts::unread("not requested"));
    let mut secrets = secrets::secret_values(options, environment);
    let configuration = match registry.diagnostics(&manager.cloud.provider) {
        Some(provider) => {
            secrets.extend(provider.secrets(&request).await);
            Ok(check_config::text(&provider.check(&request, false, false).await))
        }
        None => Err("the cloud provider does not show its configuration".to_owned()),
    };
    let variables = environment.iter().filter(|(name, _)| VARIABLES.contains(&name.as_str()));
    let mut files: Vec<GatheredFile> = vec![
        ("version.txt", Ok(format!("{NAME} {VERSION} {}\n", platform()))),
        ("flags.txt", Ok(lines(&manager.flagz()))),
        ("environment.txt", Ok(lines(variables))),
        ("configuration.txt", configuration),
        ("doctor.txt", Ok(doctor::print::text(&findings))),
        ("doctor.json", Ok(doctor::print::json(&findings))),
        ("orphans.json", Ok(orphans::shown(&orphans, true))),
    ];
    let pages = status_command::pages(client.as_ref().ok(), &options.status, &PAGES.map(|(_, page)| page)).await;
    files.extend(PAGES.iter().map(|(name, _)| *name).zip(pages.into_iter().map(or_no_report)));
    let namespace = &options.status.lease.0;
    match &client {
        Ok(client) => {
            let (leases, pods) = (Api::namespaced(client.clone(), namespace), Api::namespaced(client.clone(), namespace));
            files.extend(listed::<Lease>("leases.json", &leases, bare).await);
            files.extend(listed("pods.json", &pods, manager_pod).await);
            files.extend(listed::<Event>("events.json", &Api::all(client.clone()), bare).await);
        }
        Err(reason) => files.extend(["leases.json", "pods.json", "events.json"].map(|name| (name, Err(reason.clone())))),
    }
    GatheredFacts { files, secrets }
}

/// Accepts a page of a manager without `--dry-run`, which has no report.
fn or_no_report(page: Result<String, String>) -> Result<String, String> {
    page.or_else(|reason| if reason.contains(NO_REPORT) { Ok(format!("{NO_REPORT}\n")) } else { Err(reason) })
}

fn lines<'a>(pairs: impl IntoIterator<Item = &'a (String, String)>) -> String {
    pairs.into_iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// Lists objects page by page, so that only the shown fields are in memory.
///
/// Returns a file, and the reason if it is incomplete. The pages before a failure are kept.
async fn listed<K>(name: &'static str, api: &Api<K>, show: impl Fn(&K) -> Option<Value>) -> Vec<GatheredFile>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let (mut shown, mut count, mut page) = (Vec::new(), 0, ListParams::default().limit(PAGE));
    let mut omission = None;
    for number in 1..=MAX_PAGES {
        let listed = match api.list(&page).await {
            Ok(listed) => listed,
            Err(error) if number == 1 => return vec![(name, Err(with_causes(&error)))],
            Err(error) => {
                omission = Some(format!("all after the first {count} are omitted: {}", with_causes(&error)));
                break;
            }
        };
        count += listed.items.len();
        shown.extend(listed.items.iter().filter_map(&show));
        match listed.metadata.continue_.filter(|next| !next.is_empty()) {
            None => break,
            Some(next) if number < MAX_PAGES => page = page.continue_token(&next),
            Some(_) => omission = Some(format!("only the first {count} were read; all others are omitted")),
        }
    }
    let file = (name, Ok(format!("{:#}\n", json!(shown))));
    [file].into_iter().chain(omission.map(|reason| (name, Err(reason)))).collect()
}

/// Returns the object without fields that only the API server needs, and without copies of whole objects.
fn bare<K: Serialize>(object: &K) -> Option<Value> {
    let mut shown = json!(object);
    if let Some(metadata) = shown.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    Some(shown)
}

/// Returns the versions and restarts of a manager's pod.
fn manager_pod(pod: &Pod) -> Option<Value> {
    let containers = || pod.spec.iter().flat_map(|spec| &spec.containers);
    let is_manager = |container: &Container| {
        container.name.contains("cloud-controller-manager") || container.name.contains("cloud-node-manager")
    };
    let shown = |container: &Container| json!({"name": container.name, "image": container.image, "command": container.command, "args": container.args});
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    containers().any(is_manager).then(|| {
        let containers: Vec<_> = containers().map(shown).collect();
        json!({"name": pod.metadata.name, "node": node, "containers": containers, "status": pod.status})
    })
}
