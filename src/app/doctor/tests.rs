//! Faults planted in the sandbox's cluster, and the finding about each: check, state, text and remedy.

use http::{HeaderValue, Request, Response, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822, tz::TimeZone};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kube::{Api, Client, api::PostParams, client::Body};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tower::BoxError;

use super::*;
use crate::{
    cli::{self, CliCommand},
    cloud_provider::diagnostics::{
        CheckReport, DiagnosticCheck, DiagnosticFinding,
        FindingState::{self, Ok as Fine, Problem, Unknown, Warning},
    },
    sandbox::api_server::ApiServer,
};

const NOW: &str = "2026-01-01T00:10:00Z";
const JUST_RENEWED: &str = "2026-01-01T00:09:55.000000Z";
const OURS: &str = "registry.example/cloud-controller-manager:0.1";
const GO: &str = "mcr.microsoft.com/oss/v2/kubernetes/azure-cloud-controller-manager:v1.36.5";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn options(more: &str) -> DiagnoseOptions {
    let words = format!("ccm doctor{more}");
    match cli::parse(words.split(' ').map(Into::into), &["azure"], &["azure"]) {
        Ok(CliCommand::Examine(options)) => *options,
        other => panic!("{other:?}"),
    }
}

async fn create<K>(api: Api<K>, object: Value)
where
    K: kube::Resource + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn lease(client: &Client, holder: &str, renewed: &str) {
    let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed});
    let object = json!({"metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"}, "spec": spec});
    create::<Lease>(Api::namespaced(client.clone(), "kube-system"), object).await;
}

async fn pod(client: &Client, name: &str, image: &str) {
    let spec = json!({"nodeName": "n", "containers": [{"name": "cloud-controller-manager", "image": image}]});
    let object = json!({"metadata": {"name": name, "namespace": "kube-system"}, "spec": spec});
    create::<Pod>(Api::namespaced(client.clone(), "kube-system"), object).await;
}

async fn node(client: &Client, name: &str, spec: Value) {
    create::<Node>(Api::all(client.clone()), json!({"metadata": {"name": name}, "spec": spec})).await;
}

/// Returns a client whose server reports a time that is `offset` seconds later.
fn dated(client: Client, offset: i64) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let mut response: Response<Body> = client.send(request).await.map_err(BoxError::from)?;
            let date = rfc2822::to_string(&(now() + SignedDuration::from_secs(offset)).to_zoned(TimeZone::UTC))?;
            response.headers_mut().insert(DATE, HeaderValue::from_str(&date)?);
            Ok::<_, BoxError>(response)
        }
    });
    Client::new(service, "default")
}

async fn examined(client: &Client, options: &DiagnoseOptions) -> Vec<DiagnosticFinding> {
    examine_with(Ok(dated(client.clone(), 0)), None, options, now()).await.findings
}

/// Asserts that there is a finding of this check and state that contains these texts.
fn assert_found(findings: &[DiagnosticFinding], (check, state, text, remedy): (&str, FindingState, &str, &str)) {
    let matches =
        |finding: &&DiagnosticFinding| finding.check == check && finding.state == state && finding.text.contains(text);
    let found = findings.iter().find(matches);
    assert!(
        found.is_some_and(|finding| finding.remedy.contains(remedy)),
        "{check} {state:?} {text:?} {remedy:?}: {findings:#?}"
    );
}

#[tokio::test]
async fn a_healthy_cluster_has_only_ok_findings() {
    let server = ApiServer::new(Clock::System);
    let client = server.client();
    lease(&client, "ccm-1_x", JUST_RENEWED).await;
    pod(&client, "ccm-1", OURS).await;
    node(&client, "a", json!({"providerID": "azure:///a"})).await;
    let findings = examined(&client, &options("")).await;
    assert!(findings.iter().all(|finding| finding.state == Fine && finding.remedy.is_empty()), "{findings:#?}");
    assert_eq!((findings.len(), print::code(&findings)), (7, 0));
}

#[tokio::test]
async fn holder_of_the_lease_is_reported() {
    let cases = [
        ("ccm-1_x", JUST_RENEWED, GO, (checks::LEASE, Warning, "the Go cloud-controller-manager", "migration guide")),
        ("other_x", JUST_RENEWED, OURS, (checks::LEASE, Warning, "other_x leads, but is not a manager's pod", "--dry-run")),
        ("n_x", JUST_RENEWED, OURS, (checks::LEASE, Fine, "n_x leads", "")),
        ("ccm-1_x", "2026-01-01T00:08:00.000000Z", OURS, (checks::LEASE, Problem, "last renewed it 120 s ago", "start one")),
        ("", JUST_RENEWED, OURS, (checks::LEASE, Problem, "has no holder", "start one")),
    ];
    for (holder, renewed, image, expected) in cases {
        let server = ApiServer::new(Clock::System);
        let client = server.client();
        lease(&client, holder, renewed).await;
        pod(&client, "ccm-1", image).await;
        assert_found(&examined(&client, &options("")).await, expected);
    }
    let server = ApiServer::new(Clock::System);
    let findings = examined(&server.client(), &options("")).await;
    assert_found(
        &findings,
        (checks::LEASE, Problem, "no leader: lease kube-system/cloud-controller-manager does not exist", "start one"),
    );
}

#[tokio::test]
async fn incompatible_nodes_and_versions_are_reported() {
    let server = ApiServer::new(Clock::System);
    let client = server.client();
    pod(&client, "ccm-1", OURS).await;
    pod(&client, "ccm-2", GO).await;
    let taint = json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]);
    node(&client, "new", json!({"taints": taint})).await;
    let findings = examined(&client, &options("")).await;
    for expected in [
        (checks::PROVIDER_IDS, Problem, "1 of 1 Nodes have no provider id: new", "run `status node/NAME`"),
        (checks::INITIALIZED, Problem, "1 Nodes wait for their initialization: new; no manager leads", "start a manager"),
        (checks::VERSIONS, Warning, "managers run different images", "finish the rollout"),
    ] {
        assert_found(&findings, expected);
    }
    assert_eq!(print::code(&findings), 2);
    node(&client, "bare", json!({})).await;
    let command =
        "run `kubectl taint node NAME node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule` for bare, and";
    let lacking = (checks::PROVIDER_IDS, Problem, "2 of 2 Nodes have no provider id: bare, new", command);
    assert_found(&examined(&client, &options("")).await, lacking);
    node(&client, "other", json!({"providerID": "aws:///b"})).await;
    let findings = examined(&client, &options("")).await;
    assert_found(
        &findings,
        (checks::PROVIDER_IDS, Problem, "1 Nodes belong to another cloud: other", "delete the Node object"),
    );
    lease(&client, "ccm-1_x", JUST_RENEWED).await;
    let findings = examined(&client, &options("")).await;
    let waits = findings.iter().find(|finding| finding.check == checks::INITIALIZED).unwrap();
    assert!(!waits.text.contains("no manager leads"), "{waits:?}");
}

#[tokio::test]
async fn missing_rights_are_problems_of_the_managers_account() {
    let server = ApiServer::new(Clock::System);
    server.authorize(Box::new(|spec| {
        let attributes = &spec["resourceAttributes"];
        attributes["subresource"] != "status" && (attributes["resource"] != "leases" || attributes["namespace"] == "other")
    }));
    let mine = examined(&server.client(), &options("")).await;
    assert_found(&mine, (checks::RIGHTS, Warning, "you may not patch services/status", "--service-account"));
    assert_found(
        &mine,
        (checks::RIGHTS, Warning, "get leases.coordination.k8s.io \"cloud-controller-manager\" in kube-system", ""),
    );
    let options = options(" --service-account=ns/me --leader-elect-resource-namespace=other");
    let theirs = examined(&server.client(), &options).await;
    let patch = "ServiceAccount ns/me may not patch nodes/status in the cluster";
    assert_found(&theirs, (checks::RIGHTS, Problem, patch, "manifests/rbac.yaml"));
    let about_rights = theirs.iter().filter(|finding| finding.check == checks::RIGHTS);
    assert_eq!(about_rights.count(), 2, "the lease has another name: {theirs:#?}");
}

#[tokio::test]
async fn a_clock_that_is_off_by_ten_minutes_is_reported() {
    let server = ApiServer::new(Clock::System);
    for (offset, text) in [(600, "600 s behind the API server"), (-600, "600 s ahead of the API server")] {
        let findings = examine_with(Ok(dated(server.client(), offset)), None, &options(""), now()).await.findings;
        assert_found(&findings, (checks::CLOCK, Problem, text, "NTP"));
    }
}

/// Provider that returns no findings.
struct Silent;

#[async_trait::async_trait]
impl ProviderDiagnostics for Silent {
    fn checks(&self) -> &'static [DiagnosticCheck] {
        &[DiagnosticCheck { id: "silent", examines: "nothing" }]
    }

    async fn examine(&self, _: &DiagnosticRequest) -> Examination {
        Examination::default()
    }

    async fn check(&self, _: &DiagnosticRequest, _: bool, _: bool) -> CheckReport {
        CheckReport::default()
    }
}

#[tokio::test]
async fn failed_checks_are_unknown_and_not_ok() {
    let nowhere = Err("connection refused".to_owned());
    let findings = examine_with(nowhere, Some(Arc::new(Silent)), &options(""), now()).await.findings;
    assert_found(&findings, (checks::API_SERVER, Problem, "connection refused", "--kubeconfig"));
    assert!(
        findings.iter().skip(1).all(|finding| finding.state == Unknown && finding.text.contains("fix")),
        "{findings:#?}"
    );
    assert_eq!((findings.len(), findings.last().unwrap().check), (8, "silent"));
}
