//! `check-config`: prints doctor's findings about the provider's configuration, credentials and permissions.
//!
//! In: the options of the command. Out: a report on stdout and an exit code: 0 if the configuration can be used, 1 if not.

use std::process::ExitCode;

use serde_json::json;

use super::{
    app_error::AppError,
    doctor::{self, ClusterFacts},
    process::{on_runtime, print},
};
use crate::{
    cli::{self, CheckConfigOptions},
    cloud_provider::{
        Registry,
        diagnostics::{CheckReport, DiagnosticFinding, FindingState},
    },
};

pub(super) fn run(registry: &Registry, options: &CheckConfigOptions) -> Result<ExitCode, AppError> {
    let report = on_runtime(async |_| check(registry, options).await)??;
    let has_passed = lines(&report, "error").is_empty();
    let text = if options.json { json(&report) } else { text(&report) };
    Ok(print(&text, if has_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

async fn check(registry: &Registry, options: &CheckConfigOptions) -> Result<CheckReport, AppError> {
    let provider = registry.diagnostics(&options.cloud.provider).ok_or("this provider has no check of its configuration")?;
    let client = match &options.cloud.config.cloud_config_secret {
        None => None,
        Some(_) => Some(doctor::client(&options.kube_api, cli::CHECK_CONFIG).await?),
    };
    let request = doctor::request(&options.cloud, client, ClusterFacts::unread("not requested"));
    Ok(provider.check(&request, options.online, options.strict).await)
}

/// Returns the first word of a finding's line.
fn mark(state: FindingState) -> &'static str {
    match state {
        FindingState::Ok => "ok",
        FindingState::Warning | FindingState::Unknown => "warning",
        FindingState::Problem => "error",
    }
}

fn line(finding: &DiagnosticFinding) -> String {
    let DiagnosticFinding { text, remedy, .. } = finding;
    if remedy.is_empty() { text.clone() } else { format!("{text}; {remedy}") }
}

/// Returns the lines that begin with `word`, without that word.
fn lines(report: &CheckReport, word: &str) -> Vec<String> {
    report.findings.iter().filter(|finding| mark(finding.state) == word).map(line).collect()
}

/// Returns the report as text. The last line counts the errors, so that they are visible after a long report.
pub(super) fn text(report: &CheckReport) -> String {
    let findings = report.findings.iter().map(|finding| format!("{}: {}\n", mark(finding.state), line(finding)));
    let [errors, warnings] = ["error", "warning"].map(|word| lines(report, word).len());
    let verdict = if errors == 0 { "the configuration can be used" } else { "the configuration cannot be used as it is" };
    let (errors, warnings) = (count(errors, "error"), count(warnings, "warning"));
    let configuration = report.configuration.as_deref().unwrap_or_default();
    format!("{}{configuration}{errors}, {warnings}: {verdict}\n", findings.collect::<String>())
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn json(report: &CheckReport) -> String {
    let [errors, warnings] = ["error", "warning"].map(|word| lines(report, word));
    format!("{:#}", json!({"passed": errors.is_empty(), "errors": errors, "warnings": warnings}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_in_text_and_listed_in_json() {
        let findings = vec![
            DiagnosticFinding::warning("x", "a", ""),
            DiagnosticFinding::ok("x", "b"),
            DiagnosticFinding::problem("x", "c", ""),
            DiagnosticFinding::problem("x", "d", "do"),
            DiagnosticFinding::undetermined("x", "e", "grant"),
        ];
        let report = CheckReport { findings, configuration: Some("effective\n".to_owned()) };
        let expected = "warning: a\nok: b\nerror: c\nerror: d; do\nwarning: e; grant\neffective\n\
                        2 errors, 2 warnings: the configuration cannot be used as it is\n";
        assert_eq!(text(&report), expected);
        let value: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
        assert_eq!(value, json!({"passed": false, "errors": ["c", "d; do"], "warnings": ["a", "e; grant"]}));
        let sound = CheckReport { findings: vec![DiagnosticFinding::ok("x", "b")], configuration: None };
        assert!(text(&sound).ends_with("0 errors, 0 warnings: the configuration can be used\n"));
        assert!(json(&sound).contains("\"passed\": true"));
    }
}
