//! `check-config`: hands the configuration to the provider's own check and prints what it found.
//!
//! In: what to check. Out: a report on stdout and an exit code: 0 when the configuration can be used, 1 when not.

use std::{process::ExitCode, sync::Arc};

use serde_json::json;

use super::process::{fail, on_runtime, print};
use crate::{
    cli::{self, CheckConfigOptions},
    cloud_provider::{
        Registry,
        registry::{CheckReport, CheckRequest},
    },
    metrics::Metrics,
    runtime::client::KubeClients,
};

type CheckConfigError = Box<dyn std::error::Error + Send + Sync>;

pub(super) fn run(registry: &Registry, check: CheckConfigOptions) -> ExitCode {
    let is_json = check.json;
    match on_runtime(|_| report(registry, check)) {
        Ok(Ok(report)) => {
            let text = if is_json { json(&report) } else { with_summary(&report) };
            print(&text, if report.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Ok(Err(error)) => fail(&error),
        Err(error) => fail(&error),
    }
}

/// Texts of the lines of a report that begin with `mark`.
fn lines<'a>(report: &'a CheckReport, mark: &str) -> Vec<&'a str> {
    report.text.lines().filter_map(|line| line.strip_prefix(mark)?.strip_prefix(": ")).collect()
}

/// Returns the report with its errors counted in the last line, however long it is.
fn with_summary(report: &CheckReport) -> String {
    let [errors, warnings] = ["error", "warning"].map(|mark| lines(report, mark).len());
    let verdict = if report.passed { "the configuration can be used" } else { "the configuration cannot be used as it is" };
    let (errors, warnings) = (count(errors, "error"), count(warnings, "warning"));
    format!("{}\n{errors}, {warnings}: {verdict}\n", report.text.trim_end())
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn json(report: &CheckReport) -> String {
    let [errors, warnings] = ["error", "warning"].map(|mark| lines(report, mark));
    format!("{:#}", json!({"passed": report.passed, "errors": errors, "warnings": warnings}))
}

async fn report(registry: &Registry, check: CheckConfigOptions) -> Result<CheckReport, CheckConfigError> {
    let provider = registry.check(&check.cloud.provider).ok_or("this provider has no check of its configuration")?;
    let config = check.cloud.config;
    let client = match &config.cloud_config_secret {
        None => None,
        Some(_) => {
            let clients = KubeClients::load(check.kube_api, Arc::new(Metrics::new()?)).await?;
            Some(clients.for_component(cli::CHECK_CONFIG)?)
        }
    };
    let routes = check.cloud.configure_cloud_routes;
    Ok(provider(CheckRequest { config, routes, client, online: check.online, strict: check.strict }).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_at_the_end_and_listed_for_machines() {
        let text = "warning: a\neffective configuration:\n{}\nok: b\nerror: c\nerror: d\n".to_owned();
        let report = CheckReport { text, passed: false };
        assert!(
            with_summary(&report).ends_with("error: d\n2 errors, 1 warning: the configuration cannot be used as it is\n")
        );
        let value: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
        assert_eq!(value, json!({"passed": false, "errors": ["c", "d"], "warnings": ["a"]}));
    }
}
