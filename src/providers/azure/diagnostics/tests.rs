//! Faults planted in the simulated cloud, and the finding about each: check, state, text and remedy.

mod check;
mod orphans;

use bytes::Bytes;
use http::header::DATE;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::{checks::*, *};
use crate::{
    cloud_provider::{
        diagnostics::FindingState::{self, Ok as Fine, Problem, Unknown, Warning},
        registry::ProviderConfig,
    },
    providers::azure::transport::ArmTransportError,
    runtime::clock::Clock,
    sandbox::azure::{
        AzureOptions,
        topology::{Login, Pool, PoolKind, Topology},
        world::{CLIENT_ID, CLIENT_SECRET, Serving, World},
    },
};

/// Transport of the simulated cloud with a clock that is off by this duration.
struct DatedTransport(Arc<dyn ArmTransport>, SignedDuration);

#[async_trait]
impl ArmTransport for DatedTransport {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, ArmTransportError> {
        let mut response = self.0.send(request).await?;
        let date =
            jiff::fmt::rfc2822::to_string(&(Clock::System.wall() + self.1).to_zoned(jiff::tz::TimeZone::UTC)).unwrap();
        response.headers_mut().insert(DATE, date.parse().unwrap());
        Ok(response)
    }
}

fn cloud() -> World {
    let topology = Topology::new().pool(Pool::new(PoolKind::Uniform, "uni", 2));
    World::new(topology, AzureOptions::immediate(), Clock::System).unwrap()
}

fn request(config: &Value, folder: &tempfile::TempDir, services: Vec<Value>) -> DiagnosticRequest {
    let path = folder.path().join("azure.json");
    std::fs::write(&path, config.to_string()).unwrap();
    let services = services.into_iter().map(|service| serde_json::from_value(service).unwrap()).collect();
    DiagnosticRequest {
        config: ProviderConfig {
            cloud_config: Some(path),
            cluster_name: "kubernetes".to_owned(),
            ..ProviderConfig::default()
        },
        routes: true,
        client: None,
        nodes: Ok(Vec::new()),
        services: Ok(services),
    }
}

/// Findings about a cloud with this configuration, with clocks that differ by `off` seconds.
async fn examined_at(cloud: &World, config: &Value, services: Vec<Value>, off: i64) -> Vec<DiagnosticFinding> {
    let folder = tempfile::tempdir().unwrap();
    let wire = DatedTransport(cloud.azure().transport(), SignedDuration::from_secs(off));
    let diagnostics = AzureDiagnostics::over(Arc::new(wire), BTreeMap::new());
    let findings = diagnostics.examine(&request(config, &folder, services)).await.findings;
    assert!(!format!("{findings:?}").contains(CLIENT_SECRET), "{findings:#?}");
    assert_eq!(cloud.azure().count(|request| request.method != "GET" && !request.path.ends_with("/token")), 0);
    findings
}

async fn examined(cloud: &World) -> Vec<DiagnosticFinding> {
    examined_at(cloud, &cloud.config(), Vec::new(), 0).await
}

/// Asserts that there is such a finding with such a remedy.
fn assert_found(findings: &[DiagnosticFinding], (check, state, text, remedy): (&str, FindingState, &str, &str)) {
    let is_it =
        |finding: &&DiagnosticFinding| finding.check == check && finding.state == state && finding.text.contains(text);
    let found = findings.iter().find(is_it);
    assert!(
        found.is_some_and(|finding| finding.remedy.contains(remedy)),
        "{check} {state:?} {text:?} {remedy:?}: {findings:#?}"
    );
}

fn with(mut config: Value, key: &str, value: Value) -> Value {
    config[key] = value;
    config
}

#[expect(clippy::needless_pass_by_value, reason = "a value written in place")]
fn service(name: &str, annotations: Value) -> Value {
    json!({"metadata": {"namespace": "default", "name": name, "uid": "6f3c1a52-8d7e-4b90-9a41-2c5d7e8f9a01", "annotations": annotations},
           "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}]}})
}

fn group(cloud: &World) -> String {
    let topology = cloud.topology();
    format!("/subscriptions/{}/resourceGroups/{}", topology.subscription, topology.resource_group)
}

/// A public IP of the cluster that lists this Service.
fn plant_public_ip(cloud: &World, name: &str, service: &str) -> String {
    let id = format!("{}/providers/Microsoft.Network/publicIPAddresses/{name}", group(cloud));
    let tags = json!({"k8s-azure-service": service, "k8s-azure-cluster-name": "kubernetes"});
    let properties = json!({"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"});
    let sku = json!({"name": "Standard"});
    let document = json!({"id": id, "name": name, "location": "eastus", "sku": sku, "tags": tags, "properties": properties});
    cloud.azure().put_document(document).unwrap();
    id
}

#[tokio::test(start_paused = true)]
async fn a_sound_cloud_has_nothing_but_good_findings() {
    let cloud = cloud();
    plant_public_ip(&cloud, "kubernetes-a6f3c1a528d7e4b909a412c5d7e8f9a0", "default/web");
    let findings = examined_at(&cloud, &cloud.config(), vec![service("web", json!({}))], 0).await;
    assert!(findings.iter().all(|finding| finding.state == Fine && finding.remedy.is_empty()), "{findings:#?}");
    let checks: Vec<&str> = findings.iter().map(|finding| finding.check).collect();
    assert!(CHECKS.iter().all(|check| checks.contains(&check.id)), "every check has a finding: {checks:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_name_mismatch_names_the_flag() {
    let cloud = cloud();
    plant_public_ip(&cloud, "kubernetes-a6f3c1a528d7e4b909a412c5d7e8f9a0", "default/web");
    let folder = tempfile::tempdir().unwrap();
    let diagnostics = AzureDiagnostics::over(cloud.azure().transport(), BTreeMap::new());
    let sound = (CLUSTER_NAME, Fine, "no public IP", "");
    let expected_text = "cluster name \"kubernetes\", but --cluster-name is \"prod\"";
    let mismatch = (CLUSTER_NAME, Problem, expected_text, "set --cluster-name=kubernetes");
    for (name, expected) in [("kubernetes", sound), ("prod", mismatch)] {
        let mut request = request(&cloud.config(), &folder, vec![service("web", json!({}))]);
        request.config.cluster_name = name.to_owned();
        assert_found(&diagnostics.examine(&request).await.findings, expected);
    }
    let unrelated = vec![service("other", json!({}))].into_iter().map(|mut service| {
        service["metadata"]["uid"] = json!("00000000-8d7e-4b90-9a41-2c5d7e8f9a01");
        service
    });
    let mut request = request(&cloud.config(), &folder, unrelated.collect());
    request.config.cluster_name = "prod".to_owned();
    assert_found(&diagnostics.examine(&request).await.findings, sound);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_configuration_is_reported_by_field() {
    const UNKNOWN_TENANT: &str = "00000000-0000-0000-0000-00000000dead";
    let cloud = cloud();
    let field = |name: &str, value: &str| with(cloud.config(), name, json!(value));
    let wrong_secret = cloud.config_with(&Login::Secret(CLIENT_ID.to_owned(), "planted".to_owned()));
    for (config, expected) in [
        (field("subnetNam", "x"), (CONFIG, Warning, "did you mean subnetName", "correct subnetNam in azure.json")),
        (field("vmCacheTTLInSeconds", "soon"), (CONFIG, Problem, "whole number", "vmCacheTTLInSeconds")),
        (cloud.config_with(&Login::Nobody), (CREDENTIAL, Problem, "none is configured", "azure.json")),
        (wrong_secret, (CREDENTIAL, Problem, "AADSTS7000215", "aadClientSecret is not a secret of the application")),
        (field("tenantId", UNKNOWN_TENANT), (CREDENTIAL, Problem, "AADSTS90002", "tenantId names no tenant")),
        (field("routeTableName", ""), (ROUTE_TABLE, Problem, "routeTableName is empty", "configure-cloud-routes=false")),
        (field("resourceGroup", "gone"), (READS, Problem, "gone", "resource groups")),
        (field("subnetName", "gone"), (SUBNET, Problem, "subnets/gone does not exist", "subnetName")),
    ] {
        let findings = examined_at(&cloud, &config, Vec::new(), 0).await;
        assert!(!format!("{findings:?}").contains("planted"), "{findings:#?}");
        assert_found(&findings, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn missing_and_unreadable_permissions_are_reported() {
    let [write, read, zones] = [
        "Microsoft.Network/loadBalancers/write",
        "Microsoft.Network/publicIPAddresses/read",
        "Microsoft.Resources/subscriptions/providers/read",
    ];
    for (denied, expected) in [
        (write, (WRITES, Problem, write, "Network Contributor")),
        (read, (READS, Problem, read, "Reader")),
        (zones, (READS, Problem, zones, "Reader")),
        ("*", (READS, Problem, "AuthorizationFailed", "Reader")),
        ("Microsoft.Authorization/permissions/read", (WRITES, Unknown, "does not list grants", "Reader")),
        ("Microsoft.Network/networkSecurityGroups/read", (SECURITY_GROUP, Unknown, "AuthorizationFailed", "Reader")),
        ("Microsoft.Network/locations/usages/read", (QUOTA, Unknown, "AuthorizationFailed", "az network list-usages")),
    ] {
        let cloud = cloud();
        cloud.azure().deny(denied, "");
        assert_found(&examined(&cloud).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn missing_network_resources_are_reported() {
    let topology = cloud().topology();
    let network = |kind: &str, name: &str| format!("/providers/Microsoft.Network/{kind}/{name}");
    for (part, check, remedy) in [
        (network("networkSecurityGroups", &topology.security_group), SECURITY_GROUP, "securityGroupName"),
        (network("routeTables", &topology.route_table), ROUTE_TABLE, "associate it with the nodes' subnet"),
        (network("virtualNetworks", &topology.vnet), SUBNET, "vnetName"),
    ] {
        let cloud = cloud();
        assert!(cloud.azure().delete_document(&format!("{}{part}", group(&cloud))), "{part}");
        assert_found(&examined(&cloud).await, (check, Problem, "does not exist", remedy));
    }
}

#[tokio::test(start_paused = true)]
async fn exhausted_quotas_and_full_load_balancers_are_reported() {
    let cloud = cloud();
    plant_public_ip(&cloud, "one", "default/gone");
    for (limit, state, text) in [(1, Problem, "1 of 1 PublicIPAddresses"), (1000, Fine, "1 of 1000 PublicIPAddresses")] {
        cloud.azure().with_options(|options| options.limits.public_ips = limit);
        assert_found(&examined(&cloud).await, (QUOTA, state, text, if state == Problem { "higher quota" } else { "" }));
    }
    for (count, state, text) in [(1_300, Warning, "nearly full"), (1_500, Problem, "1500 of 1500 rules")] {
        let rule = |number: usize| json!({"name": format!("r{number}"), "properties": {}});
        let rules: Vec<Value> = (0..count).map(rule).collect();
        let id = format!("{}/providers/Microsoft.Network/loadBalancers/kubernetes", group(&cloud));
        let balancer = json!({"id": id, "name": "kubernetes", "location": "eastus", "sku": {"name": "Standard"},
            "properties": {"loadBalancingRules": rules}});
        cloud.azure().put_document(balancer).unwrap();
        assert_found(&examined(&cloud).await, (ROOM, state, text, "multipleStandardLoadBalancerConfigurations"));
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_without_the_name_of_their_machine_are_listed() {
    let (cloud, folder) = (cloud(), tempfile::tempdir().unwrap());
    let by_address = with(cloud.config(), "loadBalancerBackendPoolConfigurationType", json!("nodeIP"));
    let diagnostics = AzureDiagnostics::over(cloud.azure().transport(), BTreeMap::new());
    let examined = async |config: &Value, nodes: &Vec<Node>| {
        let request = DiagnosticRequest { nodes: Ok(nodes.clone()), ..request(config, &folder, Vec::new()) };
        diagnostics.examine(&request).await.findings
    };
    let mut nodes = cloud.nodes();
    assert_found(&examined(&by_address, &nodes).await, (NODE_NAMES, Fine, "2 Nodes, each with", ""));
    nodes[0].metadata.name = Some("renamed".to_owned());
    let expected = (NODE_NAMES, Warning, "1 Nodes are in no backend pool: renamed", "computer name in scale sets");
    assert_found(&examined(&by_address, &nodes).await, expected);
    assert_found(&examined(&cloud.config(), &nodes).await, (NODE_NAMES, Fine, "not of type nodeIP", ""));
}

#[tokio::test(start_paused = true)]
async fn refused_services_and_orphans_are_reported() {
    let cloud = cloud();
    let refused = service("web", json!({"service.beta.kubernetes.io/azure-load-balancer-tcp-idle-timeout": "soon"}));
    plant_public_ip(&cloud, "mine", "default/web");
    plant_public_ip(&cloud, "lost", "default/gone");
    let findings = examined_at(&cloud, &cloud.config(), vec![refused], 0).await;
    assert_found(&findings, (SERVICES, Problem, "default/web: ", "explain ANNOTATION"));
    assert_found(&findings, (ORPHANS, Warning, "1 resources belong to no Service: lost", "run `orphans`"));
}

#[tokio::test(start_paused = true)]
async fn services_that_tenants_should_not_have_are_reported() {
    const ADDITIONAL: &str = "service.beta.kubernetes.io/azure-additional-public-ips";
    let cloud = cloud();
    let mut many = service("many", json!({}));
    let port =
        |number: i32| json!({"name": format!("p{number}"), "port": number, "nodePort": 30_000 + number, "protocol": "TCP"});
    many["spec"]["ports"] = (1..=101).map(port).collect();
    let mut publishing = service("publishing", json!({ADDITIONAL: "10.50.0.10"}));
    publishing["metadata"]["uid"] = json!("00000000-8d7e-4b90-9a41-2c5d7e8f9a01");
    let services = vec![many, publishing];
    let config = |key: &str, value: Value| with(cloud.config(), key, value);
    let refused = "would refuse 1 of 2 Services: default/many: spec.ports: expected at most 100 ports";
    let published = "1 Services publish private additional addresses: default/publishing [10.50.0.10]";
    for (config, expected) in [
        (cloud.config(), (TENANTS, Fine, refused, "")),
        (cloud.config(), (TENANTS, Warning, published, "allowedAdditionalPublicIPs: none")),
        (config("allowedAdditionalPublicIPs", json!("any")), (TENANTS, Fine, published, "")),
        (
            config("multiTenant", json!(true)),
            (TENANTS, Warning, "multiTenant refuses 1 of 2 Services: default/many", "field"),
        ),
        (config("maximumServiceRuleCount", json!(0)), (TENANTS, Fine, "would refuse none of 2 Services", "")),
    ] {
        assert_found(&examined_at(&cloud, &config, services.clone(), 0).await, expected);
    }
    let findings = examined_at(&cloud, &config("multiTenant", json!(true)), services, 0).await;
    assert!(findings.iter().all(|finding| !finding.text.contains("publish")), "{findings:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_off_by_ten_minutes_is_reported() {
    let cloud = cloud();
    // Dates have whole seconds, and a second may begin between the response and the read of the clock.
    for (off, texts) in [(-600, ["600 s ahead of", "601 s ahead of"]), (600, ["600 s behind", "599 s behind"])] {
        let findings = examined_at(&cloud, &cloud.config(), Vec::new(), off).await;
        let clock = findings.iter().find(|finding| finding.check == CLOCK).unwrap();
        let is_reported = clock.state == Problem && texts.iter().any(|text| clock.text.contains(text));
        assert!(is_reported && clock.remedy.contains("NTP"), "{clock:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn orphans_name_their_services_and_what_removes_them() {
    let cloud = cloud();
    let lost = plant_public_ip(&cloud, "lost", "default/gone");
    plant_public_ip(&cloud, "mine", "default/web");
    plant_public_ip(&cloud, "shared", "default/gone,default/web");
    let report = async |services: Result<Vec<Value>, String>| {
        let folder = tempfile::tempdir().unwrap();
        let mut request = request(&cloud.config(), &folder, services.clone().unwrap_or_default());
        if let Err(reason) = services {
            request.services = Err(reason);
        }
        AzureDiagnostics::over(cloud.azure().transport(), BTreeMap::new()).examine(&request).await.orphans
    };
    let found = report(Ok(vec![service("web", json!({}))])).await;
    assert_eq!((found.orphans.len(), found.unread.len()), (1, 0), "{found:#?}");
    assert_eq!(found.orphans[0].removal, format!("az network public-ip delete --ids {lost}"));
    assert!(
        found.orphans[0].services == ["default/gone"] && found.orphans[0].reason.contains("no longer exists"),
        "{found:#?}"
    );
    let unlisted = report(Err("403".to_owned())).await;
    assert!(unlisted.orphans.is_empty() && unlisted.unread == ["Services: 403"], "{unlisted:#?}");
    cloud.azure().deny("Microsoft.Network/publicIPAddresses/read", "");
    let hidden = report(Ok(Vec::new())).await;
    assert!(hidden.orphans.is_empty() && hidden.unread[0].starts_with("public IPs of "), "{hidden:#?}");
}

/// A kubeconfig of another cluster would make orphans of everything that the cluster of `azure.json` has.
#[tokio::test(start_paused = true)]
async fn without_a_node_in_the_configured_group_nothing_is_an_orphan() {
    let cloud = cloud();
    plant_public_ip(&cloud, "lost", "default/gone");
    let ours = format!(
        "azure://{}/providers/Microsoft.Compute/virtualMachines/a",
        group(&cloud).to_uppercase().replace("/SUBSCRIPTIONS/", "/subscriptions/")
    );
    let elsewhere = "azure:///subscriptions/other/resourceGroups/other/providers/Microsoft.Compute/virtualMachines/a";
    let node = |id: &str, labels: Value| -> Node {
        serde_json::from_value(json!({"metadata": {"name": "a", "labels": labels}, "spec": {"providerID": id}})).unwrap()
    };
    let no_labels = json!({});
    let in_its_group = json!({"kubernetes.azure.com/resource-group": "other"});
    for (name, nodes, is_judged) in [
        ("no Nodes", vec![], true),
        ("no machines yet", vec![node("", no_labels.clone())], true),
        ("a Node of the group", vec![node(elsewhere, no_labels.clone()), node(&ours, no_labels.clone())], true),
        ("a Node that names its group", vec![node(elsewhere, in_its_group)], true),
        ("another group", vec![node(elsewhere, no_labels.clone())], false),
        ("another cloud", vec![node("kind://docker/kind/kind-control-plane", no_labels)], false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let request = DiagnosticRequest { nodes: Ok(nodes), ..request(&cloud.config(), &folder, Vec::new()) };
        let report = AzureDiagnostics::over(cloud.azure().transport(), BTreeMap::new()).examine(&request).await.orphans;
        let is_reported =
            report.unread.iter().any(|line| line.contains("this may be another cluster") && line.contains("--kubeconfig"));
        assert_eq!((report.orphans.len(), is_reported), (usize::from(is_judged), !is_judged), "{name}: {report:#?}");
    }
}

/// Uses the real transport, with a host that does not exist and one with another certificate.
#[tokio::test]
async fn unreachable_and_intercepted_endpoints_are_distinguished() {
    let (cloud, folder) = (cloud(), tempfile::tempdir().unwrap());
    let ca_file = folder.path().join("ca.pem");
    cloud.serve(Serving { ca_file: Some(ca_file.clone()), ..Serving::default() }).await.unwrap();
    let over = async |environment: BTreeMap<String, String>, config: Value| {
        let wire = ReqwestTransport::new(&environment).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let request = request(&config, &folder, Vec::new());
        AzureDiagnostics::over(Arc::new(wire), environment).examine(&request).await.findings
    };
    let trusting = BTreeMap::from([("SSL_CERT_FILE".to_owned(), ca_file.display().to_string())]);
    let sound = over(trusting.clone(), cloud.config()).await;
    assert_found(&sound, (TLS, Fine, "trusted", ""));
    assert_found(&sound, (CLOCK, Fine, "agree", ""));
    let intercepted = over(BTreeMap::new(), cloud.config()).await;
    assert_found(&intercepted, (TLS, Problem, "certificate", "inspecting proxy"));
    assert_found(&intercepted, (NETWORK, Fine, "takes connections", ""));
    let nowhere = with(cloud.config(), "resourceManagerEndpoint", json!("https://127.0.0.1:1/"));
    assert_found(&over(trusting.clone(), nowhere).await, (NETWORK, Problem, "no route to 127.0.0.1", "TCP 443"));
    let nameless = with(cloud.config(), "resourceManagerEndpoint", json!("https://arm.invalid/"));
    assert_found(&over(trusting, nameless).await, (NETWORK, Problem, "no route to arm.invalid", "DNS"));
}
