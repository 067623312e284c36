//! Monitors, scraper, alerts and dashboards.

use std::fs;

use serde_json::{Value, json};

use crate::chart::{
    objects::{find, folder, parse, read, rendered, selects},
    programs::manager,
};

const NAME: &str = "cloud-controller-manager";
const ALERTS: &str = "cloud-controller-manager-alerts";
const SCRAPER: &str = "cloud-controller-manager-scraper";

/// Checks that a monitor selects these labels, and reaches the port of the pods with a token that may only read metrics.
fn check_scraping(objects: &[Value], monitor: &Value, endpoints: &str, labels: &Value) {
    assert!(selects(&monitor["spec"]["selector"]["matchLabels"], labels), "{labels}");
    assert_eq!(labels[monitor["spec"]["jobLabel"].as_str().unwrap()], NAME, "the job that alerts select");
    let endpoint = &monitor["spec"][endpoints][0];
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

/// Checks the objects of the case `monitoring`.
pub(crate) fn check(objects: &[Value]) {
    let monitor = find(objects, "ServiceMonitor", NAME);
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    let service = find(objects, "Service", "cloud-controller-manager-metrics");
    check_scraping(objects, monitor, "endpoints", &service["metadata"]["labels"]);
    let deployment = find(objects, "Deployment", NAME);
    assert_eq!(service["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"]);

    let rules = &find(objects, "PrometheusRule", ALERTS)["spec"];
    let file = read(&folder("../../manifests/chart/files/alerts.yaml"));
    let mut expected = parse(&file).remove(0);
    for alert in alerts_mut(&mut expected) {
        let link = format!("https://runbooks.example.com/ccm/{}", page(alert["alert"].as_str().unwrap()));
        let annotations = alert["annotations"].as_object_mut().unwrap();
        annotations.remove("runbook").unwrap();
        annotations.insert("runbook_url".to_owned(), link.into());
    }
    assert_eq!(rules, &expected, "the file of alerts with links instead of texts");
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

/// Returns the file name of an alert's runbook. Panics if there is none.
fn page(alert: &str) -> String {
    let title = format!("# {}\n", alert.strip_prefix("CloudControllerManager").unwrap());
    let pages = fs::read_dir(folder("../../docs/runbooks")).unwrap().map(|entry| entry.unwrap().path());
    let page = pages.into_iter().find(|page| read(page).starts_with(&title)).unwrap_or_else(|| panic!("no page of {alert}"));
    page.file_name().unwrap().to_str().unwrap().to_owned()
}

fn alerts_mut(rules: &mut Value) -> Vec<&mut Value> {
    let groups = rules["groups"].as_array_mut().unwrap().iter_mut();
    groups.flat_map(|group| group["rules"].as_array_mut().unwrap()).collect()
}

/// Checks the case `monitoring-fleet`: all rules and dashboards use the cluster label and the selector of the values.
pub(crate) fn check_selector(objects: &[Value]) {
    let rules = alerts(&find(objects, "PrometheusRule", ALERTS)["spec"]);
    for (alert, shipped) in rules.iter().zip(alerts_of_the_file()) {
        let expected = expression(&shipped).replace("(cluster", "(k8s_cluster");
        assert_eq!(expression(alert), expected.replace(r#"job="cloud-controller-manager""#, r#"job="ccm",tenant=~"a|b""#));
        let summary = alert["annotations"]["summary"].as_str().unwrap();
        assert!(summary.ends_with("{{ with $labels.k8s_cluster }} in cluster {{ . }}{{ end }}"), "{summary}");
        assert!(alert["annotations"]["runbook"].as_str().unwrap().starts_with("Meaning\n"), "the text without a link");
    }
    for name in ["operator", "developer"] {
        let map = find(objects, "ConfigMap", &format!("cloud-controller-manager-dashboard-{name}"));
        let text = map["data"][format!("{name}.json")].as_str().unwrap();
        for (part, replaced) in
            [("cluster=~", "k8s_cluster=~"), ("(cluster", "(k8s_cluster"), ("{{cluster}}", "{{k8s_cluster}}")]
        {
            let all = text.matches(part).count();
            let replaced_count = if part == "cluster=~" { text.matches(replaced).count() } else { 0 };
            assert_eq!(all, replaced_count, "{name}: {part}");
            assert!(text.matches(replaced).count() > 20, "{name}: {replaced}");
        }
        assert!(text.contains(r#""name": "cluster""#) && text.contains(", k8s_cluster)"), "{name}: the variable");
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

/// Checks that flag, right and alerts have the same Lease.
pub(crate) fn check_lease(objects: &[Value], lease: &str) {
    let rules = alerts(&find(objects, "PrometheusRule", ALERTS)["spec"]);
    let of_leader: Vec<&str> = rules.iter().map(expression).filter(|text| text.contains(ELECTS)).collect();
    assert_eq!((of_leader.len(), rules.len()), (2, alerts_of_the_file().len()));
    for text in of_leader {
        let selected = format!("{ELECTS}{{job=\"cloud-controller-manager\",name={lease:?}}}");
        assert_eq!(text.matches(ELECTS).count(), text.matches(&selected).count(), "{text}");
    }
    assert_eq!(manager(objects).leader_election.resource_name, lease);
    let role = find(objects, "Role", "system:cloud-controller-manager:leader-election");
    let named: Vec<&Value> = role["rules"].as_array().unwrap().iter().map(|rule| &rule["resourceNames"]).collect();
    let locker = json!(["aks-managed-resource-locker"]);
    let records = json!(["cloud-controller-manager-security-rules"]);
    assert_eq!(named, [&Value::Null, &json!([lease]), &locker, &Value::Null, &records]);
}

/// Checks that all alerts exist, except those about the leader.
pub(crate) fn check_no_election(objects: &[Value]) {
    let map = find(objects, "ConfigMap", ALERTS);
    let text = map["data"]["cloud-controller-manager.yaml"].as_str().unwrap();
    // The rendered results have no empty lines, but runbooks have.
    let without_runbook = |mut alert: Value| {
        assert!(alert["annotations"].as_object_mut().unwrap().remove("runbook").is_some(), "{alert}");
        alert
    };
    let expected = alerts_of_the_file().into_iter().filter(|alert| !expression(alert).contains(ELECTS));
    let expected: Vec<Value> = expected.map(without_runbook).collect();
    assert_eq!(alerts(&parse(text)[0]).into_iter().map(without_runbook).collect::<Vec<_>>(), expected);
}

#[test]
fn a_pod_monitor_needs_no_service() {
    let objects = rendered("additions");
    let monitor = find(&objects, "PodMonitor", NAME);
    assert!(objects.iter().all(|object| object["kind"] != "Service"));
    let deployment = find(&objects, "Deployment", NAME);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    check_scraping(&objects, monitor, "podMetricsEndpoints", labels);
    let binding = find(&objects, "ClusterRoleBinding", SCRAPER);
    assert_eq!(binding["subjects"][1]["name"], "prometheus");
}

#[test]
fn monitoring_and_webhooks_are_off_by_default() {
    let objects = rendered("minimal");
    assert!(manager(&objects).webhooks.is_none());
    for object in &objects {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let is_option = object["apiVersion"] == "monitoring.coreos.com/v1" || kind.ends_with("WebhookConfiguration");
        assert!(!is_option && kind != "Service" && name != SCRAPER, "{kind} {name}");
    }
}
