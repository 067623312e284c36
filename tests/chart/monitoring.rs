//! Monitors, scraper and what Prometheus and Grafana read.

use serde_json::{Value, json};

use crate::{
    objects::{find, folder, parse, read, rendered},
    programs::manager,
};

const NAME: &str = "cloud-controller-manager";
const SCRAPER: &str = "cloud-controller-manager-scraper";

/// A monitor reaches the port of the pods with a token that may read the metrics and nothing else.
fn check_scraping(objects: &[Value], endpoint: &Value) {
    assert_eq!((&endpoint["scheme"], &endpoint["port"]), (&"https".into(), &"https".into()));
    assert_eq!(endpoint["authorization"]["credentials"], json!({"name": SCRAPER, "key": "token"}));
    let secret = find(objects, "Secret", SCRAPER);
    assert_eq!(secret["type"], "kubernetes.io/service-account-token");
    assert_eq!(secret["metadata"]["annotations"]["kubernetes.io/service-account.name"], SCRAPER);
    find(objects, "ServiceAccount", SCRAPER);
    let rules = json!([{"nonResourceURLs": ["/metrics", "/metrics/slis"], "verbs": ["get"]}]);
    assert_eq!(find(objects, "ClusterRole", SCRAPER)["rules"], rules);
    let binding = find(objects, "ClusterRoleBinding", SCRAPER);
    assert_eq!((&binding["roleRef"]["name"], &binding["subjects"][0]["name"]), (&SCRAPER.into(), &SCRAPER.into()));
}

/// Everything of the case `monitoring`.
pub(crate) fn check(objects: &[Value]) {
    let monitor = find(objects, "ServiceMonitor", NAME);
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    check_scraping(objects, &monitor["spec"]["endpoints"][0]);
    let service = find(objects, "Service", "cloud-controller-manager-metrics");
    let labels = service["metadata"]["labels"].as_object().unwrap();
    for (key, value) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(labels.get(key), Some(value), "the monitor selects the Service");
    }
    let deployment = find(objects, "Deployment", NAME);
    assert_eq!(service["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"]);

    let rules = &find(objects, "PrometheusRule", "cloud-controller-manager-alerts")["spec"];
    let file = read(&folder("../../manifests/chart/files/alerts.yaml"));
    let published = file.replace("docs/runbooks/", "https://runbooks.example.com/ccm/");
    assert_eq!(rules, &parse(&published)[0], "the file of alerts as it is");
    for name in ["operator", "developer"] {
        let map = find(objects, "ConfigMap", &format!("cloud-controller-manager-dashboard-{name}"));
        let text = map["data"][format!("{name}.json")].as_str().unwrap();
        let file = read(&folder("../../manifests/chart/files/dashboards").join(format!("{name}.json")));
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(read(text), read(&file));
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
        assert_eq!(map["metadata"]["annotations"]["grafana_folder"], "Kubernetes");
    }
}

const ELECTS: &str = "leader_election_master_status";

fn alerts(rules: &Value) -> Vec<Value> {
    rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn expression(alert: &Value) -> &str {
    alert["expr"].as_str().unwrap()
}

fn alerts_of_the_file() -> Vec<Value> {
    alerts(&parse(&read(&folder("../../manifests/chart/files/alerts.yaml")))[0])
}

/// Flag, right and alerts have the same Lease.
pub(crate) fn check_lease(objects: &[Value], lease: &str) {
    let rules = alerts(&find(objects, "PrometheusRule", "cloud-controller-manager-alerts")["spec"]);
    let of_leader: Vec<&str> = rules.iter().map(expression).filter(|text| text.contains(ELECTS)).collect();
    assert_eq!((of_leader.len(), rules.len()), (2, alerts_of_the_file().len()));
    for text in of_leader {
        assert!(text.contains(&format!("{ELECTS}{{name={lease:?}}}")), "{text}");
    }
    assert_eq!(manager(objects).leader_election.resource_name, lease);
    let role = find(objects, "Role", "system:cloud-controller-manager:leader-election");
    let named: Vec<&Value> = role["rules"].as_array().unwrap().iter().map(|rule| &rule["resourceNames"]).collect();
    let locker = json!(["aks-managed-resource-locker"]);
    let records = json!(["cloud-controller-manager-security-rules"]);
    assert_eq!(named, [&Value::Null, &json!([lease]), &locker, &Value::Null, &records]);
}

/// All alerts but those about the leader.
pub(crate) fn check_no_election(objects: &[Value]) {
    let map = find(objects, "ConfigMap", "cloud-controller-manager-alerts");
    let text = map["data"]["cloud-controller-manager.yaml"].as_str().unwrap();
    let mut expected = alerts_of_the_file();
    expected.retain(|alert| !expression(alert).contains(ELECTS));
    assert_eq!(alerts(&parse(text)[0]), expected);
}

#[test]
fn a_pod_monitor_needs_no_service() {
    let objects = rendered("additions");
    let monitor = find(&objects, "PodMonitor", NAME);
    check_scraping(&objects, &monitor["spec"]["podMetricsEndpoints"][0]);
    assert!(objects.iter().all(|object| object["kind"] != "Service"));
    let deployment = find(&objects, "Deployment", NAME);
    assert_eq!(monitor["spec"]["selector"], deployment["spec"]["selector"]);
    let binding = find(&objects, "ClusterRoleBinding", SCRAPER);
    assert_eq!(binding["subjects"][1]["name"], "prometheus");
}

#[test]
fn nothing_of_it_is_installed_unless_asked_for() {
    for object in rendered("minimal") {
        let name = object["metadata"]["name"].as_str().unwrap();
        assert!(name != SCRAPER && object["apiVersion"] != "monitoring.coreos.com/v1", "{name}");
    }
}
