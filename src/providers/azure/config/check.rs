//! Offline part of `check-config`. Pure.

use std::cmp::Reverse;

use super::{
    decode::DecodedConfig,
    environment::EnvironmentOverrides,
    fields::AzureConfig,
    finding::{ConfigFinding, FindingSeverity, has_errors, promote_warnings},
    merge::{ConfigTexts, merge},
};

/// Result of checking a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigReport {
    /// Errors first, else in the order of the text.
    pub findings: Vec<ConfigFinding>,
    /// Effective configuration; `None` after an error.
    pub config: Option<AzureConfig>,
}

/// Checks the texts as the program does at startup. `is_strict`: warnings are errors.
pub fn offline_report(texts: &ConfigTexts, environment: &EnvironmentOverrides, is_strict: bool) -> ConfigReport {
    let (findings, config) = match merge(texts, environment, is_strict) {
        Ok(DecodedConfig { config, findings }) => (findings, Some(config)),
        Err(findings) => (findings, None),
    };
    ConfigReport { findings, config }.with_findings(Vec::new(), is_strict)
}

impl ConfigReport {
    /// Adds other findings to the report.
    #[must_use]
    pub fn with_findings(mut self, mut more: Vec<ConfigFinding>, is_strict: bool) -> Self {
        if is_strict {
            promote_warnings(&mut more);
        }
        if has_errors(&more) {
            self.config = None;
        }
        self.findings.extend(more);
        self.findings.sort_by_key(|finding| Reverse(finding.severity == FindingSeverity::Error));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "subscriptionId: s\nresourceGroup: rg\nlocation: l\naadClientSecret: hunter2\ntenantId: t\naadClientId: c\n";

    #[test]
    fn errors_come_first_and_the_configuration_not_at_all() {
        let text = format!("unheardOf: 1\n{GOOD}vmCacheTTLInSeconds: x\n");
        let report =
            offline_report(&ConfigTexts { file: Some(text), secret: None }, &EnvironmentOverrides::default(), false);
        assert_eq!(
            report.findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "error: vmCacheTTLInSeconds (line 8): expected whole number of seconds",
                "warning: unheardOf (line 1): unknown field, ignored",
            ]
        );
        assert_eq!(report.config, None);
    }
}
