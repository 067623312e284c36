//! Dashboards: every panel has queries that parse and use existing metrics and labels, and no panels overlap.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::monitoring::{path, promtool::promtool, query::missing_names, read};

const NAMES: [&str; 2] = ["operator", "developer"];
/// Units of Grafana that the dashboards use.
const UNITS: [&str; 6] = ["none", "s", "ops", "reqps", "percentunit", "bytes"];
/// Rows that both dashboards together must contain.
const ROWS: [&str; 8] =
    ["Overview", "Services", "Nodes", "Azure Resource Manager", "Queues", "API server", "Secure port", "Process"];
const COLUMNS: u64 = 24;

fn dashboard(name: &str) -> Value {
    serde_json::from_str(&read(&format!("manifests/chart/files/dashboards/{name}.json"))).unwrap()
}

fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row")
}

/// Returns queries as Prometheus receives them, with their legends.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let variables =
        |query: &str| query.replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$lease", "any");
    let of_panel = |panel: &Value| {
        let targets = panel["targets"].as_array().unwrap().clone();
        targets
            .into_iter()
            .map(|target| (variables(target["expr"].as_str().unwrap()), target["legendFormat"].as_str().unwrap().to_owned()))
    };
    panels(dashboard).flat_map(of_panel).collect()
}

#[test]
fn every_query_parses_and_uses_existing_names() {
    for name in NAMES {
        let queries = queries(&dashboard(name));
        assert!(queries.len() > 20);
        let rules =
            queries.iter().enumerate().map(|(index, (query, _))| json!({"record": format!("query:{index}"), "expr": query}));
        let file = tempfile::NamedTempFile::new().unwrap();
        let groups = json!({"groups": [{"name": name, "rules": rules.collect::<Vec<_>>()}]});
        std::fs::write(file.path(), groups.to_string()).unwrap();
        let (is_right, output) = promtool(&["check", "rules", file.path().to_str().unwrap()], &path(""), "");
        assert!(is_right, "{name}: {output}");
        let missing: Vec<String> = queries.iter().flat_map(|(query, legend)| missing_names(query, legend)).collect();
        assert_eq!(missing, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn panels_are_complete_and_do_not_overlap() {
    for name in NAMES {
        let dashboard = dashboard(name);
        let all = dashboard["panels"].as_array().unwrap();
        let ids: BTreeSet<u64> = all.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), all.len(), "{name}: an id twice");
        let mut covered = BTreeSet::new();
        for panel in all {
            let title = panel["title"].as_str().unwrap();
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
            assert!(w > 0 && h > 0 && x + w <= COLUMNS, "{name}: {title}");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(covered.insert(cell), "{name}: {title} overlaps another panel");
            }
        }
        for panel in panels(&dashboard) {
            let title = panel["title"].as_str().unwrap();
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}: {title}");
            let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap();
            assert!(UNITS.contains(&unit), "{name}: {title}: {unit}");
            let targets = panel["targets"].as_array().unwrap();
            let letters: BTreeSet<_> = targets.iter().map(|target| target["refId"].as_str().unwrap()).collect();
            assert!(!targets.is_empty() && letters.len() == targets.len(), "{name}: {title}");
            assert!(targets.iter().all(|target| target["datasource"]["uid"] == "${datasource}"), "{name}: {title}");
        }
    }
}

/// A cluster may have another Lease, or two.
#[test]
fn queries_use_the_selected_lease() {
    let mut lease_queries = 0;
    for name in NAMES {
        let dashboard = dashboard(name);
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let lease = variables.iter().find(|variable| variable["name"] == "lease");
        for query in panels(&dashboard).flat_map(|panel| panel["targets"].as_array().unwrap()) {
            let query = query["expr"].as_str().unwrap();
            assert!(!query.contains("cloud-controller-manager"), "{name}: {query}");
            if query.contains("leader_election_master_status") {
                assert!(query.contains("name=\"$lease\"") && lease.is_some(), "{name}: {query}");
                lease_queries += 1;
            }
        }
        if let Some(lease) = lease {
            assert_eq!(lease["query"]["query"], "label_values(leader_election_master_status{job=~\"$job\"}, name)");
            assert_eq!(lease["current"]["value"], "cloud-controller-manager");
        }
    }
    assert_eq!(lease_queries, 2);
}

/// Selector of each query: one program in the selected clusters.
const SELECTOR: &str = r#"{cluster=~"$cluster",namespace=~"$namespace",job=~"$job",instance=~"$instance""#;

#[test]
fn every_query_selects_the_program_and_separates_clusters() {
    for name in NAMES {
        let dashboard = dashboard(name);
        for target in panels(&dashboard).flat_map(|panel| panel["targets"].as_array().unwrap()) {
            let (query, legend) = (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
            assert_eq!(query.matches(SELECTOR).count(), query.matches('{').count(), "{name}: {query}");
            let aggregations =
                ["sum", "max", "min", "count"].map(|word| query.matches(&format!("{word} by (cluster")).count());
            assert_eq!(aggregations.iter().sum::<usize>(), query.matches(" by (").count(), "{name}: {query}");
            assert!(query.matches(" by (").count() > 0 || !query.contains("sum("), "{name}: {query}");
            assert!(legend.contains("{{cluster}}"), "{name}: {query}: {legend}");
        }
    }
}

#[test]
fn dashboards_can_be_chosen_by_cluster_job_and_replica() {
    let mut uids = BTreeSet::new();
    let mut rows = BTreeSet::new();
    for name in NAMES {
        let dashboard = dashboard(name);
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let named = |name: &str| variables.iter().find(|variable| variable["name"] == name).unwrap().clone();
        assert_eq!(named("datasource")["query"], "prometheus");
        for (variable, all) in
            [("job", Value::Null), ("cluster", ".*".into()), ("namespace", ".*".into()), ("instance", ".*".into())]
        {
            let query = named(variable)["query"]["query"].as_str().unwrap().to_owned();
            let metric = query.trim_start_matches("label_values(").split(['{', ',']).next().unwrap();
            // Only this program has the metric, so all jobs belong to it.
            assert!(metric.starts_with("cloud_controller_manager_"), "{query}");
            assert_eq!(missing_names(metric, ""), Vec::<String>::new());
            assert!(query.ends_with(&format!(", {variable})")), "{query}");
            assert_eq!(named(variable)["allValue"], all, "{variable}: only the job is limited to existing values");
        }
        assert!(uids.insert(dashboard["uid"].as_str().unwrap().to_owned()) && dashboard["schemaVersion"].is_u64());
        let titles = dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] == "row");
        rows.extend(titles.map(|row| row["title"].as_str().unwrap().to_owned()));
    }
    assert!(ROWS.iter().all(|row| rows.contains(*row)), "{rows:?}");
}
