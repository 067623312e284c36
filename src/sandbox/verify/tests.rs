//! The table against the simulated Azure, in process and on a paused clock.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    cleanup,
    cloud::VerifiedCloud,
    compare,
    estimate::RunEstimate,
    play::RowVerdict,
    report::RunReport,
    run::{self, RunSettings},
    simulated,
    table::AssumptionTable,
    values::Variables,
    wire::{PREFIX, RunControl, is_in_scope},
};
use crate::{
    providers::azure::config::{AzureConfig, decode},
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::azure::world::World,
};

fn config(simulation: &World) -> AzureConfig {
    decode(&simulation.config().to_string()).config
}

async fn connected(simulation: &World) -> VerifiedCloud {
    let wire = simulation.azure().transport();
    VerifiedCloud::connect(config(simulation), simulated::GROUP, &BTreeMap::new(), wire, Clock::System).await.unwrap()
}

fn settings() -> RunSettings {
    RunSettings { parallel: 8, run: "test".to_owned(), location: "eastus".to_owned() }
}

async fn played(simulation: &World, table: &AssumptionTable, stop: &Shutdown) -> RunReport {
    run::run(&connected(simulation).await, table, &settings(), stop, &|_| ()).await
}

/// Returns the leftovers of runs in the group.
fn remains(simulation: &World) -> Vec<String> {
    let all = simulation.azure().dump().into_iter();
    let ids = all.map(|document| document["id"].as_str().unwrap_or_default().to_owned());
    ids.filter(|id| id.contains(PREFIX)).collect()
}

#[tokio::test(start_paused = true)]
async fn every_belief_holds_on_the_simulated_azure() {
    let simulation = simulated::build_world(Clock::System).unwrap();
    let table = AssumptionTable::built_in().unwrap();
    let report = played(&simulation, &table, &Shutdown::new()).await;
    let text = report.markdown();
    let end = text.find("## Beliefs that hold").unwrap_or(text.len());
    assert_eq!(
        (report.exit_code(), table.rows.len()),
        (0, report.count(|verdict| *verdict == RowVerdict::Holds)),
        "{}",
        &text[..end]
    );
    assert!(table.rows.len() >= 200);
    assert_eq!(remains(&simulation), Vec::<String>::new());
    assert_eq!(simulation.azure().read_only_sent(), Vec::<String>::new());
}

const PLANTED_ROWS: &str = "
- id: planted
  belief: A public IP is created at once.
  source: {guess: It is planted.}
  steps:
  - put: public-ip
    expect: {status: 200, headers: {azure-asyncoperation: '<absent>'}, fields: {properties.provisioningState: Succeeded}}
- id: impossible
  belief: A load balancer exists before its public IP.
  source: {guess: It is planted.}
  given: [load-balancer]
  steps:
  - get: load-balancer
";

#[tokio::test(start_paused = true)]
async fn a_wrong_belief_and_an_unplayable_row_are_reported() {
    let simulation = simulated::build_world(Clock::System).unwrap();
    let table = AssumptionTable::of_file(PLANTED_ROWS).unwrap();
    let report = played(&simulation, &table, &Shutdown::new()).await;
    let text = report.markdown();
    assert_eq!(
        (report.exit_code(), report.summary().as_str()),
        (1, "0 of 2 beliefs hold, 1 are wrong, 1 could not be played")
    );
    for part in [
        "status: expected `200`, found `201`",
        "expected `Succeeded`, found `Updating`",
        "x-ms-request-id",
        "given load-balancer",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let differences = report.json()["rows"][0]["differences"].as_array().map(Vec::len);
    assert_eq!(differences, Some(3), "{:#}", report.json());
    let unplayable = AssumptionTable::of_file(PLANTED_ROWS).unwrap().select(&["impossible".to_owned()], &[]);
    assert_eq!(played(&simulation, &unplayable, &Shutdown::new()).await.exit_code(), 2);
    assert_eq!(remains(&simulation), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_interruption_after_any_request_leaves_nothing() {
    let simulation = simulated::build_world(Clock::System).unwrap();
    let cloud = connected(&simulation).await;
    let table = AssumptionTable::built_in().unwrap();
    let (mut interrupted, stop) = (0, Shutdown::new());
    for row in &table.rows {
        for last in 1.. {
            let control = RunControl::new(&stop, Some(last));
            let prefix = format!("{PREFIX}{last}-");
            let (verdict, cleaned) = run::play_row(&cloud, &table, row, control.clone(), prefix, "eastus").await;
            assert_eq!((cleaned, remains(&simulation)), (Ok(()), Vec::new()), "{} after {last} requests", row.id);
            if control.sent() < last || verdict != RowVerdict::Interrupted {
                break;
            }
            interrupted += 1;
        }
    }
    assert!(interrupted > 800, "only {interrupted} interruptions");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_run_reports_what_it_did_not_play() {
    let simulation = simulated::build_world(Clock::System).unwrap();
    let stop = Shutdown::new();
    stop.begin();
    let report = played(&simulation, &AssumptionTable::built_in().unwrap(), &stop).await;
    assert_eq!(report.exit_code(), 130);
    assert_eq!(report.count(|verdict| *verdict == RowVerdict::Interrupted), report.rows.len());
}

#[tokio::test(start_paused = true)]
async fn leftovers_of_a_killed_run_are_found_and_deleted() {
    let simulation = simulated::build_world(Clock::System).unwrap();
    let cloud = connected(&simulation).await;
    let group = cloud.group.as_str();
    let named = |kind: &str, name: &str| json!({"id": format!("{group}/providers/Microsoft.Network/{kind}/{name}"), "location": "eastus"});
    for document in
        [named("publicIPAddresses", "ccmv-old-1-ip"), named("routeTables", "CCMV-old-2-rt"), named("routeTables", "mine")]
    {
        simulation.azure().put_document(document).unwrap();
    }
    let found = cleanup::find(&cloud, PREFIX).await.unwrap();
    assert_eq!(found.iter().map(|id| id.name().to_owned()).collect::<Vec<_>>(), ["ccmv-old-1-ip", "CCMV-old-2-rt"]);
    cleanup::delete(&cloud, &found).await.unwrap();
    assert_eq!(
        simulation.azure().documents_of("Microsoft.Network/routeTables").len(),
        2,
        "that of the user and that of the cluster"
    );
}

#[tokio::test(start_paused = true)]
async fn groups_of_the_cluster_are_refused() {
    let simulation = simulated::build_world(Clock::System).unwrap();
    let config = config(&simulation);
    for (group, part) in [("", "--resource-group is required"), ("RG-TEST", "is a group of the cluster")] {
        let wire = simulation.azure().transport();
        let refused = VerifiedCloud::connect(config.clone(), group, &BTreeMap::new(), wire, Clock::System).await;
        let text = refused.err().unwrap_or_default();
        assert!(text.contains(part), "{group}: {text}");
    }
}

#[test]
fn writes_outside_of_the_run_are_out_of_scope() {
    let group = "/subscriptions/s/resourceGroups/g";
    let in_scope =
        |method: http::Method, path: &str| is_in_scope(&method, &format!("/subscriptions/s{path}"), group, "ccmv-1-");
    let own = "/resourcegroups/G/providers/Microsoft.Network/publicIPAddresses/CCMV-1-ip";
    for (path, expected) in [
        (own, true),
        ("/resourceGroups/g/providers/Microsoft.Network/loadBalancers/ccmv-1-lb/backendAddressPools/pool", true),
        ("/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/other", false),
        ("/resourceGroups/g2/providers/Microsoft.Network/publicIPAddresses/ccmv-1-ip", false),
        ("/resourceGroups/g", false),
        ("/providers/Microsoft.Network/publicIPAddresses/ccmv-1-ip", false),
    ] {
        for method in [http::Method::PUT, http::Method::PATCH, http::Method::POST, http::Method::DELETE] {
            assert_eq!(in_scope(method, path), expected, "{path}");
        }
        assert!(in_scope(http::Method::GET, path), "{path}");
    }
}

#[test]
fn tables_with_errors_are_refused() {
    let row = |fields: &str| format!("- {{id: a, belief: b., source: {{guess: c}}, {fields}}}");
    for (text, part) in [
        (row("steps: [{get: a, put: b}]"), "exactly one of"),
        (row("steps: [{put: nothing}]"), "neither a body nor a document"),
        (row("given: [nothing], steps: []"), "documents.yaml has no \"nothing\""),
        (row("needs: [luck], steps: []"), "unknown need"),
        (row("steps: [], color: red"), "unknown field"),
        (format!("{0}\n{0}", row("steps: []")), "another row has this id"),
    ] {
        let error = AssumptionTable::of_file(&text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn placeholders_and_repetitions_expand() {
    let variables = Variables::default().with("p", "x-");
    let value =
        json!({"name": "{p}a", "list": [{"$repeat": 2, "$item": {"port": "{#n+100}", "ip": "10.{hi}.{lo}.1"}}, "{p}"]});
    let expected = json!({"name": "x-a", "list": [{"port": 101, "ip": "10.0.1.1"}, {"port": 102, "ip": "10.0.2.1"}, "x-"]});
    assert_eq!(variables.expand(&value), Ok(expected));
    for invalid in ["{unset}", "{p"] {
        assert!(variables.text(invalid).is_err(), "{invalid}");
    }
}

#[test]
fn rules_of_comparison_hold() {
    for (rule, found, expected) in [
        (json!("<present>"), json!(0), true),
        (json!("<present>"), Value::Null, false),
        (json!("<absent>"), Value::Null, true),
        (json!("<like> a*c"), json!("abc"), true),
        (json!("<like> a*c"), json!("abd"), false),
        (json!("<not> a"), json!("b"), true),
        (json!("<one-of> a|b"), json!("b"), true),
        (json!("<count> 2"), json!([1, 2]), true),
        (json!("<count> 2"), Value::Null, false),
        (json!("<id> /A/b"), json!("/a/B"), true),
        (json!("<has-id> /A"), json!([{"id": "/a"}]), true),
        (json!("<lacks-id> /A"), json!([{"id": "/a"}]), false),
        (json!("<lacks-id> /A"), Value::Null, true),
        (json!("<has-name> a"), json!([{"name": "b"}]), false),
        (json!("a"), json!("A"), false),
        (json!(4), json!(4), true),
    ] {
        assert_eq!(compare::holds(&rule, &found), Ok(expected), "{rule} {found}");
    }
    assert!(compare::holds(&json!("<often> 2"), &Value::Null).is_err());
}

#[test]
fn an_estimate_grows_with_the_rows() {
    let all = AssumptionTable::built_in().unwrap();
    let whole = RunEstimate::of(&all, 4);
    let few = RunEstimate::of(&all.select(&["routes".to_owned()], &[]), 4);
    assert!(
        whole.seconds > few.seconds && whole.dollars > few.dollars && whole.requests > few.requests,
        "{whole:?} {few:?}"
    );
    assert!(whole.seconds < 3600.0 && whole.dollars < 2.0, "{}", whole.text());
}
