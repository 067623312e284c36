//! The live metrics of a manager of a simulated Azure: promtool accepts those that are not Go's, and the gauges match the state.

use std::{collections::BTreeMap, path::Path};

use cloud_controller_manager::runtime::clock::Clock;

use crate::{control_plane::ADMIN_TOKEN, promtool::promtool, support::Manager};

/// Prefixes of metrics that Go does not have.
const OWN: [&str; 2] = ["cloud_controller_manager_", "azure_arm_budget_"];

/// Returns the metrics text, and its series with their values.
pub(crate) async fn scrape(manager: &Manager) -> (String, BTreeMap<String, f64>) {
    let (status, text) = manager.get("/metrics", Some(ADMIN_TOKEN)).await.expect("a response");
    assert_eq!(status, 200, "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let series = lines
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    let series = series.collect();
    (text, series)
}

/// Checks with promtool the metrics that Go does not have. Metrics of Go keep their names, labels and help texts, even if promtool objects.
pub(crate) fn lint(text: &str) {
    let (_, output) = promtool(&["check", "metrics"], Path::new("."), text);
    assert!(!output.contains("error while linting"), "{output}");
    let about_own: Vec<&str> = output.lines().filter(|line| OWN.iter().any(|prefix| line.starts_with(prefix))).collect();
    assert_eq!(about_own, Vec::<&str>::new());
}

/// Checks the metrics of an idle leader that serves `services` Services.
pub(crate) async fn check_settled(manager: &Manager, services: f64) {
    let (text, series) = scrape(manager).await;
    lint(&text);
    let of = |name: &str| *series.get(name).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    assert_eq!(of("cloud_controller_manager_services{reason=\"Ready\",stage=\"settled\"}"), services);
    assert_eq!(
        of("cloud_controller_manager_services{reason=\"Failed\",stage=\"blocked\"}"),
        0.0,
        "there although none has failed"
    );
    assert_eq!(of("cloud_controller_manager_oldest_unsettled_service_seconds"), 0.0);
    assert_eq!(of("cloud_controller_manager_uninitialized_nodes"), 0.0);
    assert_eq!(of("cloud_controller_manager_azure_configuration_refused"), 0.0);
    assert!(of("cloud_controller_manager_azure_inventory_age_seconds") < 600.0);
    let now = Clock::System.wall().as_duration().as_secs_f64();
    assert!(of("cloud_controller_manager_azure_token_expiration_timestamp_seconds{use=\"compute\"}") > now);
    assert!(of("cloud_controller_manager_serving_certificate_expiration_timestamp_seconds") > now + 300.0 * 86400.0);
    assert_eq!(of("cloud_controller_manager_node_deletions_refused_total{reason=\"mass_deletion\"}"), 0.0);
    assert_eq!(of("cloud_controller_manager_reconcile_panics_total{name=\"service\"}"), 0.0);
    let failed = "cloud_controller_manager_provider_call_errors_total{call=\"update_load_balancer\",provider=\"azure\",reason=\"failed\"}";
    assert_eq!(of(failed), 0.0);
}
