//! What a provider examines for the commands `doctor`, `orphans` and `support-bundle`. Plain data and one trait; all of it only reads.
//!
//! In: the manager's configuration and the cluster's objects. Out: findings, each with what to do about it, and resources that nobody owns.
//! What could not be looked at is a finding of its own kind and never looks like the absence of a problem.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Service};
use serde::Serialize;

use super::config::ProviderConfig;
use crate::runtime::client::list_all;

/// Longest text of a finding, in characters.
const LONGEST: usize = 600;

/// A row of a table of checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiagnosticCheck {
    /// Its name in the output: words with dashes.
    pub id: &'static str,
    /// What it looks at.
    pub examines: &'static str,
}

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// As it has to be.
    Ok,
    /// It works, and somebody should look.
    Warning,
    /// It does not work.
    Problem,
    /// It could not be looked at.
    Unknown,
}

/// What a check has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiagnosticFinding {
    /// The check, by its id.
    pub check: &'static str,
    /// How it stands.
    pub state: FindingState,
    /// What was found: one line without control characters.
    pub text: String,
    /// What to do; empty when nothing.
    pub remedy: String,
}

impl DiagnosticFinding {
    /// As it has to be.
    pub fn ok(check: &'static str, text: impl AsRef<str>) -> Self {
        Self::new(check, FindingState::Ok, text.as_ref(), "")
    }

    /// Somebody should look.
    pub fn warning(check: &'static str, text: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(check, FindingState::Warning, text.as_ref(), remedy.as_ref())
    }

    /// It does not work.
    pub fn problem(check: &'static str, text: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(check, FindingState::Problem, text.as_ref(), remedy.as_ref())
    }

    /// It could not be looked at, for this reason.
    pub fn unknown(check: &'static str, reason: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(check, FindingState::Unknown, reason.as_ref(), remedy.as_ref())
    }

    fn new(check: &'static str, state: FindingState, text: &str, remedy: &str) -> Self {
        Self { check, state, text: one_line(text), remedy: one_line(remedy) }
    }
}

/// Without what a terminal would obey, on one line, and not too long.
pub fn one_line(text: &str) -> String {
    let words: Vec<&str> =
        text.split(|one: char| one.is_whitespace() || one.is_control()).filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// What is examined.
pub struct DiagnosticRequest {
    /// The manager's configuration.
    pub config: ProviderConfig,
    /// `--configure-cloud-routes`: whether pods need routes.
    pub routes: bool,
    /// For reading the configuration from a Secret; `None`: the API server cannot be reached.
    pub client: Option<kube::Client>,
    /// The cluster's Nodes, or why they could not be read.
    pub nodes: Result<Vec<Node>, String>,
    /// All Services of the cluster, or why they could not be read.
    pub services: Result<Vec<Service>, String>,
}

impl DiagnosticRequest {
    /// The Services from before and those of this moment, or why either could not be read. Whoever has read the cloud in between takes nothing
    /// for an orphan that one of them has made or removed meanwhile.
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
    /// `public_ip`, `frontend`, ….
    pub kind: &'static str,
    /// Its id in the cloud.
    pub id: String,
    /// The lost Service that it belonged to, or what its names begin with; `None`: several, or not known.
    pub service: Option<String>,
    /// Whose it was, as far as that can be told.
    pub services: Vec<String>,
    /// Why it belongs to nobody, and why the manager has not removed it.
    pub reason: String,
    /// What removes it: a command.
    pub removal: String,
}

/// All such resources, and what could not be read: resources may be hidden there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OrphanReport {
    /// In the order of kinds and ids.
    pub orphans: Vec<OrphanedResource>,
    /// One line each.
    pub unread: Vec<String>,
}

/// What a provider can say for the commands that look for faults.
#[async_trait]
pub trait ProviderDiagnostics: Send + Sync {
    /// Every check that [`ProviderDiagnostics::examine`] makes. One without a finding could not be made.
    fn checks(&self) -> &'static [DiagnosticCheck];

    /// Whether the manager looks after this Node.
    fn manages_node(&self, node: &Node) -> bool {
        let _ = node;
        true
    }

    /// Rights in the cluster that this provider needs beside the manager's own: where (`cluster`, or a namespace), API group, resource,
    /// object name (`*`: any), verbs.
    fn rights(&self) -> &'static [(&'static str, &'static str, &'static str, &'static str, &'static [&'static str])] {
        &[]
    }

    /// Makes all checks.
    async fn examine(&self, request: &DiagnosticRequest) -> Vec<DiagnosticFinding>;

    /// Looks for resources that belong to nobody.
    async fn orphans(&self, request: &DiagnosticRequest) -> OrphanReport;

    /// The configuration as it counts, without secrets; or why it cannot be shown.
    async fn configuration(&self, request: &DiagnosticRequest) -> Result<String, String>;

    /// Secrets of the configuration, so that they can be taken out of whatever else is shown.
    async fn secrets(&self, request: &DiagnosticRequest) -> Vec<String> {
        let _ = request;
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
