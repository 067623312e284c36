//! Checks of a provider for the commands `doctor`, `orphans`, `check-config` and `support-bundle`. Plain data and one trait,
//! which only reads.
//!
//! In: the manager's configuration and the cluster's objects. Out: findings, each with a remedy, and resources without an
//! owner. A failed read is a finding of its own kind and never looks like the absence of a problem.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Service};
use serde::Serialize;

use super::config::ProviderConfig;
use crate::runtime::{client::list_all, text};

/// Longest text of a finding, in characters.
const LONGEST: usize = 600;
/// Seconds by which clocks may differ: tokens and certificates are refused that are further off than a few minutes.
const CLOCK_TOLERANCE: i64 = 60;

/// A row of a table of checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiagnosticCheck {
    /// Name in the output: words with dashes.
    pub id: &'static str,
    /// Subject of the check.
    pub examines: &'static str,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// Healthy: nothing needs attention.
    Ok,
    /// Works, but needs attention.
    Warning,
    /// Broken: the subject does not work.
    Problem,
    /// Could not be checked.
    Unknown,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiagnosticFinding {
    /// The check, by its id.
    pub check: &'static str,
    /// Severity of the finding.
    pub state: FindingState,
    /// Description: one line without control characters.
    pub text: String,
    /// Remedy; empty if none is needed.
    pub remedy: String,
}

impl DiagnosticFinding {
    /// Creates a finding without a problem.
    pub fn ok(check: &'static str, text: impl AsRef<str>) -> Self {
        Self::new(check, FindingState::Ok, text.as_ref(), "")
    }

    /// Creates a finding that needs attention.
    pub fn warning(check: &'static str, text: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(check, FindingState::Warning, text.as_ref(), remedy.as_ref())
    }

    /// Creates a finding of something that does not work.
    pub fn problem(check: &'static str, text: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(check, FindingState::Problem, text.as_ref(), remedy.as_ref())
    }

    /// Creates a finding of something that could not be checked, for this reason.
    pub fn unknown(check: &'static str, reason: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(check, FindingState::Unknown, reason.as_ref(), remedy.as_ref())
    }

    /// Creates a finding about the clock of this machine, which is `ahead` of the server's by so many seconds; `None`: no answer
    /// of the server has a date.
    pub fn clock(check: &'static str, server: &str, ahead: Option<i64>) -> Self {
        let Some(seconds) = ahead else {
            return Self::unknown(check, format!("no answer of {server} has a date"), "compare the clock with another one");
        };
        if seconds.abs() <= CLOCK_TOLERANCE {
            return Self::ok(check, format!("this machine and {server} agree"));
        }
        let way = if seconds > 0 { "ahead of" } else { "behind" };
        let remedy = "synchronize the clocks (NTP, chrony): tokens and certificates are refused otherwise";
        Self::problem(check, format!("this machine is {} s {way} {server}", seconds.abs()), remedy)
    }

    fn new(check: &'static str, state: FindingState, text: &str, remedy: &str) -> Self {
        Self { check, state, text: one_line(text), remedy: one_line(remedy) }
    }
}

/// Returns the first `count` of `names`, and the number of the others.
pub fn first_of(names: &[String], count: usize) -> String {
    let list = names.iter().take(count).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(count) {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}

/// Returns `text` on one line, without control characters, truncated to the limit of a finding.
pub fn one_line(text: &str) -> String {
    text::condense(text, LONGEST)
}

/// Input of the checks.
pub struct DiagnosticRequest {
    /// Configuration of the manager.
    pub config: ProviderConfig,
    /// `--configure-cloud-routes`: whether pods need routes.
    pub routes: bool,
    /// For reading the configuration from a Secret; `None`: the API server cannot be reached.
    pub client: Option<kube::Client>,
    /// The cluster's Nodes, or why they could not be read.
    pub nodes: Result<Vec<Node>, String>,
    /// Services of the cluster, or the reason why they could not be read.
    pub services: Result<Vec<Service>, String>,
}

impl DiagnosticRequest {
    /// Returns the earlier Services and the current ones, or the reason why either could not be read.
    ///
    /// A caller that has read the cloud in between does not report a resource as orphaned that one of them has created or
    /// removed meanwhile.
    pub async fn services_before_and_now(&self) -> Result<Vec<Service>, String> {
        let before = self.services.clone()?;
        match &self.client {
            Some(client) => {
                let now = list_all(&kube::Api::<Service>::all(client.clone())).await?;
                Ok(before.into_iter().chain(now).collect())
            }
            None => Ok(before),
        }
    }
}

/// A resource in the cloud that carries the cluster's marks and belongs to no Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct OrphanedResource {
    /// Kind of the resource: `public_ip`, `frontend`, ….
    pub kind: &'static str,
    /// ID of the resource in the cloud.
    pub id: String,
    /// The lost Service that it belonged to, or what its names begin with; `None`: several, or not known.
    pub service: Option<String>,
    /// Former owners, as far as they can be determined.
    pub services: Vec<String>,
    /// Reason why no Service owns it, and why the manager has not removed it.
    pub reason: String,
    /// Command that removes it.
    pub removal: String,
}

/// Orphans, and failed reads, which may hide more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OrphanReport {
    /// In the order of kinds and ids.
    pub orphans: Vec<OrphanedResource>,
    /// Failed reads, one line each.
    pub unread: Vec<String>,
}

/// Result of all checks of a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Examination {
    /// Findings about the cluster's cloud.
    pub findings: Vec<DiagnosticFinding>,
    /// Resources that no Service owns.
    pub orphans: OrphanReport,
}

/// Result of the command `check-config`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Findings about the configuration, credentials and permissions. With a problem it cannot be used.
    pub findings: Vec<DiagnosticFinding>,
    /// The effective configuration, without secrets; `None` after an error in it.
    pub configuration: Option<String>,
}

/// Diagnostic checks of a provider.
#[async_trait]
pub trait ProviderDiagnostics: Send + Sync {
    /// Returns every check that [`ProviderDiagnostics::examine`] makes. A check without a finding could not be made.
    fn checks(&self) -> &'static [DiagnosticCheck];

    /// Returns `true` if the manager manages this Node.
    fn manages_node(&self, _node: &Node) -> bool {
        true
    }

    /// Returns the rights in the cluster that this provider needs in addition to the manager's own.
    ///
    /// Each has a scope (`"cluster"`, or a namespace), API group, resource, object name (`"*"`: any) and verbs.
    fn rights(&self) -> &'static [(&'static str, &'static str, &'static str, &'static str, &'static [&'static str])] {
        &[]
    }

    /// Makes all checks, and searches for resources that no Service owns.
    async fn examine(&self, request: &DiagnosticRequest) -> Examination;

    /// Checks the configuration; with `is_online`, also the credentials and permissions. `is_strict`: warnings about the
    /// configuration are problems.
    async fn check(&self, request: &DiagnosticRequest, is_online: bool, is_strict: bool) -> CheckReport;

    /// Returns the secrets of the configuration, so that callers can redact them.
    async fn secrets(&self, _request: &DiagnosticRequest) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_one_bounded_line_without_control_characters() {
        let found = DiagnosticFinding::problem("x", format!("a\u{1b}[31m\n b {}", "c".repeat(2 * LONGEST)), "do\n this");
        assert!(found.text.starts_with("a [31m b ccc") && found.text.ends_with('…'), "{found:?}");
        assert_eq!((found.text.chars().count(), found.remedy.as_str()), (LONGEST + 1, "do this"));
    }
}
