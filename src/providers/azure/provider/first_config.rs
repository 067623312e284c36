//! The configuration that a provider starts with. In: the file of `--cloud-config`. Out: the configuration, or an error that names the file.

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use crate::{
    cloud_provider::{CloudError, CloudResult, registry::ProviderConfig},
    providers::azure::{
        config::{self, AzureConfig, ConfigTexts, DecodedConfig, EnvironmentOverrides},
        config_source::{ConfigLoadError, ConfigSource},
    },
};

/// Returns the source of the configuration.
pub(in crate::providers::azure) fn source(settings: &ProviderConfig) -> ConfigSource {
    ConfigSource { file: settings.cloud_config.clone(), secret: settings.cloud_config_secret.clone() }
}

/// Returns the environment of the process, without variables that are not UTF-8.
pub(in crate::providers::azure) fn environment() -> BTreeMap<String, String> {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).collect()
}

/// Checks that a list of load balancers has one with the name of the cluster.
pub(super) fn require_cluster_entry(config: &AzureConfig, settings: &ProviderConfig) -> CloudResult<()> {
    let missing = config::missing_cluster_entry(config, &settings.cluster_name);
    missing.map_or(Ok(()), |finding| Err(CloudError::invalid(finding.to_string())))
}

pub(super) fn load_to_cloud_error(error: &ConfigLoadError) -> CloudError {
    match error {
        ConfigLoadError::Unavailable(_) => CloudError::failed(error.to_string()),
        ConfigLoadError::Unusable(_) | ConfigLoadError::Invalid(_) => CloudError::invalid(error.to_string()),
    }
}

pub(super) fn read_file(path: &Path, environment: &BTreeMap<String, String>) -> CloudResult<AzureConfig> {
    let invalid = |problem: String| CloudError::invalid(format!("--cloud-config {}: {problem}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| invalid(error.to_string()))?;
    let texts = ConfigTexts { file: Some(text), secret: None };
    let loaded = config::merge(&texts, &EnvironmentOverrides::of(environment.clone()), false);
    let loaded = loaded.map_err(|findings| invalid(ConfigLoadError::Invalid(findings).to_string()))?;
    Ok(log_findings(loaded))
}

/// Returns the configuration after logging its findings.
pub(super) fn log_findings(loaded: DecodedConfig) -> AzureConfig {
    for finding in &loaded.findings {
        tracing::warn!(%finding, "provider configuration warning");
    }
    loaded.config
}

/// Returns `faultDomainLabel` in `--cloud-config`. An unreadable file is not an error: upstream ignores it.
pub(in crate::providers::azure) fn has_fault_domain_label(cloud_config: Option<&Path>) -> bool {
    let Some(path) = cloud_config else { return false };
    match std::fs::read_to_string(path) {
        Ok(text) => config::decode(&text).config.fault_domain_label,
        Err(error) => {
            tracing::warn!(file = %path.display(), %error, "cannot read --cloud-config: faultDomainLabel is false");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_domain_label_is_read_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("azure.json");
        assert!(!has_fault_domain_label(None));
        assert!(!has_fault_domain_label(Some(&path)), "it does not exist");
        for (text, expected) in [("{}", false), (r#"{"faultDomainLabel": true}"#, true), ("not: [a", false)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(has_fault_domain_label(Some(&path)), expected, "{text}");
        }
    }
}
