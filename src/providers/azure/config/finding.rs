//! Findings about a configuration, in words for its author.

use std::fmt;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingSeverity {
    /// The configuration cannot be used.
    Error,
    /// Part of the configuration has no effect or is probably unintended.
    Warning,
}

/// Finding about a field. Never contains a value of the configuration that may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFinding {
    /// Severity of the finding.
    pub severity: FindingSeverity,
    /// Path of the field, such as `multipleStandardLoadBalancerConfigurations[1].name`; empty: the whole text.
    pub field: String,
    /// Line in the text, from 1, if the finding is about one.
    pub line: Option<u64>,
    /// Description of the problem, and of the accepted values.
    pub message: String,
}

impl ConfigFinding {
    /// Creates an error about a field.
    pub fn error(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: FindingSeverity::Error, field: field.into(), line: None, message: message.into() }
    }

    /// Creates a warning about a field.
    pub fn warning(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: FindingSeverity::Warning, ..Self::error(field, message) }
    }

    /// Returns the finding with a line of the text.
    #[must_use]
    pub fn at(self, line: u64) -> Self {
        Self { line: Some(line), ..self }
    }
}

/// `error: vmType (line 3): expected string`.
impl fmt::Display for ConfigFinding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            FindingSeverity::Error => "error",
            FindingSeverity::Warning => "warning",
        };
        let field = if self.field.is_empty() { "configuration" } else { &self.field };
        write!(formatter, "{severity}: {field}")?;
        if let Some(line) = self.line {
            write!(formatter, " (line {line})")?;
        }
        write!(formatter, ": {}", self.message)
    }
}

/// Turns every warning into an error, for strict mode.
pub fn promote_warnings(findings: &mut [ConfigFinding]) {
    for finding in findings {
        finding.severity = FindingSeverity::Error;
    }
}

/// Returns `true` if one of them is an error.
pub fn has_errors(findings: &[ConfigFinding]) -> bool {
    findings.iter().any(|finding| finding.severity == FindingSeverity::Error)
}

/// Collector of the findings.
#[derive(Default)]
pub(super) struct FindingCollector(pub(super) Vec<ConfigFinding>);

impl FindingCollector {
    pub(super) fn error_if(&mut self, is_wrong: bool, field: &str, message: &str) {
        self.push_if(is_wrong, FindingSeverity::Error, field, message);
    }

    pub(super) fn warn_if(&mut self, is_odd: bool, field: &str, message: &str) {
        self.push_if(is_odd, FindingSeverity::Warning, field, message);
    }

    fn push_if(&mut self, applies: bool, severity: FindingSeverity, field: &str, message: &str) {
        if applies {
            self.0.push(ConfigFinding { severity, ..ConfigFinding::error(field, message) });
        }
    }
}
