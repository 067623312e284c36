//! Secrets planted in all sources of a bundle, and searched for in its files.

use std::{collections::BTreeMap, convert::Infallible};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, ServiceExt};

use super::*;
use crate::{
    cli::{self, CliCommand},
    cloud_provider::diagnostics::{DiagnosticFinding, Examination, OrphanReport},
    runtime::client::client_over_service,
};

/// Secrets that must not be in a bundle: a client secret, tokens, keys, passwords.
const PLANTED: [&str; 7] = [
    "planted-client~secret\"8Q",
    "planted-kubeconfig-token",
    "cGxhbnRlZC1rdWJlY29uZmlnLWtleQ==",
    "planted-url-password",
    "planted-proxy-password",
    "planted-token-file",
    "planted-environment-secret",
];
/// Token that is only recognized by its form.
const WEB_TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJwbGFudGVkIjoiMSJ9.c2lnbmF0dXJl";

fn refused(path: &str) -> (u16, String) {
    let message = format!("{path}: no right for {} {WEB_TOKEN}", PLANTED[1]);
    (403, json!({"kind": "Status", "status": "Failure", "message": message, "reason": "Forbidden", "code": 403}).to_string())
}

/// Returns a client of an API server that shows every secret in every response, and refuses requests for `hidden`.
fn client(hidden: &'static str) -> kube::Client {
    let all = format!(
        "{} {WEB_TOKEN} Bearer planted-bearer-word https://me:planted-url-password@h/?sig=planted-signature",
        PLANTED.join(" ")
    );
    let lease = json!({"metadata": {"name": "cloud-controller-manager"}, "spec":
        {"holderIdentity": "ccm-1_x", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:55.000000Z"}});
    let args = ["--v=2", "--client-secret=planted-in-an-argument", "--x-password", "planted-after-a-flag"];
    let container = json!({"name": "cloud-controller-manager", "args": args, "env": [{"name": "X", "value": PLANTED[0]}]});
    let pod = json!({"metadata": {"name": "ccm-1"}, "spec": {"containers": [container]}});
    let event = json!({"metadata": {"name": "e", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": all}},
        "involvedObject": {}, "message": all, "reason": "SyncFailed"});
    let list = |kind: &str, items: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": items});
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let response = match path.rsplit('/').next().unwrap_or_default() {
            _ if path.ends_with(hidden) => refused(&path),
            "cloud-controller-manager" => (200, lease.to_string()),
            "leases" => (200, list("LeaseList", json!([lease])).to_string()),
            "pods" => (200, list("PodList", json!([pod])).to_string()),
            "events" => (200, list("EventList", json!([event])).to_string()),
            _ => (200, json!({"page": path, "shows": all, "aadClientSecret": PLANTED[0]}).to_string()),
        };
        let response = Response::builder().status(response.0).body(Body::from(response.1.into_bytes())).unwrap();
        async move { Ok::<_, Infallible>(response) }
    });
    client_over_service(service.map_err(BoxError::from), None)
}

/// Returns options whose files contain secrets.
fn options(folder: &Path) -> SupportBundleOptions {
    let file = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let config = json!({"tenantId": "t", "subscriptionId": "s", "resourceGroup": "g", "location": "l", "aadClientId": "c",
        "aadClientSecret": PLANTED[0], "unheardOf": PLANTED[0]});
    let user = json!({"name": "u", "user": {"token": PLANTED[1], "client-key-data": PLANTED[2]}});
    let cluster = json!({"name": "c", "cluster": {"server": "https://127.0.0.1:1", "proxy-url": "http://me:planted-proxy-password@p:1"}});
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [user], "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]});
    let words = format!(
        "ccm support-bundle --cloud-config={} --kubeconfig={} --cluster-name=k --file={}",
        file("azure.json", config.to_string()),
        file("kubeconfig", kubeconfig.to_string()),
        folder.join("bundle.tar.gz").display()
    );
    let token_file = file("token", format!("{}\n", PLANTED[5]));
    match cli::parse(words.split(' ').map(Into::into), &["azure"], &["azure"]) {
        Ok(CliCommand::GatherSupport(mut options)) => {
            let url = cli::StatusUrl {
                url: "https://127.0.0.1:1".parse().unwrap(),
                token_file: Some(token_file.into()),
                authority: None,
                insecure: true,
            };
            (options.status.url, options.status.port) = (Some(url), 10258);
            *options
        }
        other => panic!("{other:?}"),
    }
}

fn environment() -> Vec<(String, String)> {
    let pairs = [
        ("HTTPS_PROXY", "http://me:planted-proxy-password@proxy:3128"),
        ("AZURE_CLIENT_SECRET", PLANTED[6]),
        ("http_proxy", "http://me:planted-url-password@proxy:3128"),
        ("HOME", "/root"),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

async fn bundle(hidden: &'static str, with_url: bool) -> (BTreeMap<String, String>, usize) {
    bundle_of(client(hidden), with_url).await
}

async fn bundle_of(client: kube::Client, with_url: bool) -> (BTreeMap<String, String>, usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    // The token file is read either way; without `with_url`, the pages come from the leader's pod.
    let url = options.status.url.take();
    let mut secret_values = secrets::secret_values(
        &SupportBundleOptions {
            status: cli::StatusOptions { url: url.clone(), ..options.status.clone() },
            ..options.clone()
        },
        &environment(),
    );
    options.status.url = url.filter(|_| with_url);
    let registry = crate::providers::registry();
    let findings = vec![DiagnosticFinding::problem("x", PLANTED.join(" "), format!("password={}", PLANTED[3]))];
    let orphans = OrphanReport { unread: vec![PLANTED.join(" ")], ..OrphanReport::default() };
    let examination = Examination { findings, orphans };
    let gathered = gather::gather(&registry, &options, Ok(client), &environment(), examination).await;
    secret_values.extend(gathered.secrets);
    let (files, missing) = files(gathered.files, &secret_values);
    (files.into_iter().collect(), missing)
}

fn assert_clean(files: &BTreeMap<String, String>) {
    let json = |secret: &str| serde_json::to_string(secret).unwrap().trim_matches('"').to_owned();
    let forms = PLANTED.iter().flat_map(|secret| [(*secret).to_owned(), json(secret)]);
    let more = [WEB_TOKEN, "planted-bearer-word", "planted-signature", "planted-in-an-argument", "planted-after-a-flag"]
        .map(str::to_owned);
    for secret in forms.chain(more) {
        for (name, text) in files {
            assert!(!text.contains(&secret), "{name} shows {secret:?}: {text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bundle_has_all_facts_and_no_secrets() {
    let (files, _) = bundle("nothing-is-hidden", false).await;
    assert_clean(&files);
    let text = |name: &str| files[&format!("{FOLDER}/{name}")].as_str();
    for (name, expected) in [
        ("version.txt", "cloud-controller-manager "),
        ("flags.txt", "cluster-name=k\n"),
        ("environment.txt", "HTTPS_PROXY=http://[redacted]@proxy:3128\n"),
        ("configuration.txt", "\"aadClientSecret\": \"(set)\""),
        ("doctor.txt", "PROBLEM  x"),
        ("doctor.json", "\"problems\": 1"),
        ("orphans.json", "\"complete\": false"),
        ("statusz.json", "proxy/statusz"),
        ("reportz.json", "proxy/reportz"),
        ("planz.txt", "proxy/planz"),
        ("metrics.txt", "proxy/metrics"),
        ("leases.json", "ccm-1_x"),
        ("pods.json", "--v=2"),
        ("events.json", "SyncFailed"),
        ("missing.txt", "nothing\n"),
    ] {
        assert!(text(name).contains(expected), "{name}: {}", text(name));
    }
}

#[tokio::test(start_paused = true)]
async fn missing_files_are_listed_without_secrets() {
    let (files, missing) = bundle("events", true).await;
    assert_clean(&files);
    let list = &files[&format!("{FOLDER}/{MISSING}")];
    assert!(list.contains("events.json: ") && list.contains("no right for [redacted]"), "{list}");
    assert!(list.contains("metrics.txt: https://127.0.0.1:1"), "{list}");
    assert!(missing == list.lines().count() && !files.contains_key(&format!("{FOLDER}/events.json")), "{list}");
}

/// Returns a client of an API server with this many pages of one event each.
///
/// The next page fails if `is_broken`, and is the last one otherwise.
fn paged_client(pages: usize, is_broken: bool) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let number = query.split('&').find_map(|pair| pair.strip_prefix("continue=")?.parse().ok()).unwrap_or(0_usize);
        let next = if number < pages { (number + 1).to_string() } else { String::new() };
        let item = json!({"metadata": {"name": format!("event-{number}")}, "involvedObject": {}});
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"continue": next}, "items": [item]});
        let is_paged = request.uri().path().ends_with("/events");
        let (status, body) = match is_paged {
            true if is_broken && number == pages => refused("events"),
            true => (200, list.to_string()),
            false => (200, json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []}).to_string()),
        };
        let response = Response::builder().status(status).body(Body::from(body.into_bytes())).unwrap();
        async move { Ok::<_, Infallible>(response) }
    });
    client_over_service(service.map_err(BoxError::from), None)
}

#[tokio::test(start_paused = true)]
async fn omitted_objects_of_long_lists_are_reported() {
    for (pages, is_broken, shown, omission) in [
        (2, false, "event-2", None),
        (2, true, "event-1", Some("all after the first 2 are omitted: ")),
        (1_000, false, "event-19", Some("only the first 20 were read; all others are omitted")),
    ] {
        let (files, missing) = bundle_of(paged_client(pages, is_broken), false).await;
        let (events, list) = (&files[&format!("{FOLDER}/events.json")], &files[&format!("{FOLDER}/{MISSING}")]);
        assert!(events.contains("event-0") && events.contains(shown), "{pages}: {events}");
        let line = list.lines().find_map(|line| line.strip_prefix("events.json: "));
        assert!(
            omission.map_or(line.is_none(), |start| line.is_some_and(|line| line.starts_with(start))),
            "{pages}: {list}"
        );
        assert_eq!(missing, list.lines().count(), "{pages}: {list}");
    }
}

#[test]
fn archive_is_private_and_overwrites_no_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar.gz");
    write(&path, b"x").unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(write(&path, b"y").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}
