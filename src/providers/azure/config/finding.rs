//! What is strange or wrong about a configuration, in words for its author.

use std::fmt;

/// Whether a finding keeps the program from using the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingSeverity {
    /// The configuration cannot be used.
    Error,
    /// Part of it has no effect or is probably not meant.
    Warning,
}

/// One finding. Never holds a value of the configuration that may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFinding {
    /// How bad it is.
    pub severity: FindingSeverity,
    /// Path of the field, such as `multipleStandardLoadBalancerConfigurations[1].name`; empty: the whole text.
    pub field: String,
    /// Line in the text, from 1, where one is to blame.
    pub line: Option<u64>,
    /// What is wrong and what would be right.
    pub message: String,
}

impl ConfigFinding {
    /// An error about a field.
    pub fn error(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: FindingSeverity::Error, field: field.into(), line: None, message: message.into() }
    }

    /// A warning about a field.
    pub fn warning(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: FindingSeverity::Warning, ..Self::error(field, message) }
    }

    /// The same finding at a line of the text.
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

/// Strict mode: every warning is an error.
pub fn promote_warnings(findings: &mut [ConfigFinding]) {
    for finding in findings {
        finding.severity = FindingSeverity::Error;
    }
}

/// Whether one of them is an error.
pub fn has_errors(findings: &[ConfigFinding]) -> bool {
    findings.iter().any(|finding| finding.severity == FindingSeverity::Error)
}

/// Findings so far.
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
