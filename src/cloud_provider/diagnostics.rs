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
/// Largest accepted difference of clocks, in seconds. Tokens and certificates are refused at a few minutes.
const CLOCK_TOLERANCE: i64 = 60;

/// Row of a table of checks.
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
    /// Healthy state that needs no attention.
    Ok,
    /// Working state that needs attention.
    Warning,
    /// Failure: the subject does not work.
    Problem,
    /// Undetermined state, because the check failed.
    Unknown,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiagnosticFinding {
    /// ID of the check.
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

    /// Creates a finding about a subject that does not work.
    pub fn problem(check: &'static str, text: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(check, FindingState::Problem, text.as_ref(), remedy.as_ref())
    }

    /// Creates a finding about a check that failed, with the reason.
    pub fn undetermined(check: &'static str, reason: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(check, FindingState::Unknown, reason.as_ref(), remedy.as_ref())
    }

    /// Creates a finding about the clock of this machine, which is `ahead` seconds ahead of the server.
    ///
    /// `None`: no response of the server had a date.
    pub fn clock(check: &'static str, server: &str, ahead: Option<i64>) -> Self {
        let Some(seconds) = ahead else {
            return Self::undetermined(
                check,
                format!("no response of {server} has a date"),
                "compare the clock with another clock",
            );
        };
        if seconds.abs() <= CLOCK_TOLERANCE {
            return Self::ok(check, format!("this machine and {server} agree"));
        }
        let direction = if seconds > 0 { "ahead of" } else { "behind" };
        let remedy = "synchronize the clocks (NTP, chrony): tokens and certificates are refused otherwise";
        Self::problem(check, format!("this machine is {} s {direction} {server}", seconds.abs()), remedy)
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
    /// Client to read the configuration from a Secret; `None`: the API server is unreachable.
    pub client: Option<kube::Client>,
    /// Nodes of the cluster, or the reason why they could not be read.
    pub nodes: Result<Vec<Node>, String>,
    /// Services of the cluster, or the reason why they could not be read.
    pub services: Result<Vec<Service>, String>,
}

impl DiagnosticRequest {
    /// Returns the earlier Services and the current Services, or the reason why either could not be read.
    ///
    /// A caller that reads the cloud in between considers both. So it does not report a resource as orphaned if its Service
    /// was created or deleted meanwhile.
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

/// Resource in the cloud that is tagged or named for the cluster, and belongs to no Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct OrphanedResource {
    /// Kind of the resource: `public_ip`, `frontend`, ….
    pub kind: &'static str,
    /// ID of the resource in the cloud.
    pub id: String,
    /// Deleted Service that owned the resource, or the common prefix of such names; `None`: several Services, or unknown.
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
    /// Orphans in the order of their kinds and IDs.
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
    /// Findings about the configuration, credentials and permissions. With a problem, the configuration is not usable.
    pub findings: Vec<DiagnosticFinding>,
    /// The effective configuration, without secrets; `None` after an error in it.
    pub configuration: Option<String>,
}

/// Diagnostic checks of a provider.
#[async_trait]
pub trait ProviderDiagnostics: Send + Sync {
    /// Returns all checks of [`ProviderDiagnostics::examine`]. A check without a finding is reported as not done.
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

    /// Runs all checks, and searches for resources that no Service owns. It only reads.
    async fn examine(&self, request: &DiagnosticRequest) -> Examination;

    /// Checks the configuration and, with `is_online`, the credentials and permissions.
    ///
    /// With `is_strict`, warnings about the configuration are problems.
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
