//! The live metrics of a manager of a simulated Azure: promtool has nothing against those that are not Go's, and the gauges say what is
//! true.

use std::{collections::BTreeMap, path::Path};

use cloud_controller_manager::runtime::clock::Clock;

use crate::{control_plane::ADMIN_TOKEN, promtool::promtool, support::Manager};

/// What metrics that Go does not have begin with.
const OWN: [&str; 2] = ["cloud_controller_manager_", "azure_arm_budget_"];

/// Series of the scraped text, with their values.
pub(crate) async fn scrape(manager: &Manager) -> (String, BTreeMap<String, f64>) {
    let (status, text) = manager.get("/metrics", Some(ADMIN_TOKEN)).await.expect("an answer");
    assert_eq!(status, 200, "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let series = lines
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    let series = series.collect();
    (text, series)
}

/// Names, labels and help texts are those of Go where Go has the metric, whatever promtool thinks of them.
pub(crate) fn lint(text: &str) {
    let (_, told) = promtool(&["check", "metrics"], Path::new("."), text);
    assert!(!told.contains("error while linting"), "{told}");
    let about_own: Vec<&str> = told.lines().filter(|line| OWN.iter().any(|prefix| line.starts_with(prefix))).collect();
    assert_eq!(about_own, Vec::<&str>::new());
}

/// A leader with nothing to do, and `services` Services that are served.
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
