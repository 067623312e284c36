//! File and Secret to one configuration. Pure. Upstream: `pkg/azclient/configloader`.

use std::collections::BTreeSet;

use super::{
    choices::CloudConfigType,
    decode::{DecodedConfig, decode, decode_over},
    environment::EnvironmentOverrides,
    fields::AzureConfig,
    finding::{ConfigFinding, FindingSeverity, has_errors, promote_warnings},
    validate::{validate, validate_fields},
};

/// Texts as read. May hold secrets and therefore have no `Debug`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ConfigTexts {
    /// Content of the file.
    pub file: Option<String>,
    /// Content of the Secret's key.
    pub secret: Option<String>,
}

/// Returns the sources to read, by `cloudConfigType` in the file: without a file always the Secret.
pub fn sources_to_read(file: Option<&str>) -> CloudConfigType {
    file.map_or(CloudConfigType::Secret, |text| decode(text).config.cloud_config_type)
}

/// Decodes the texts, the Secret over the file; overrides by the environment; checks. The error holds every finding, with
/// `is_strict` every warning as an error.
pub fn merge(
    texts: &ConfigTexts,
    environment: &EnvironmentOverrides,
    is_strict: bool,
) -> Result<DecodedConfig, Vec<ConfigFinding>> {
    let DecodedConfig { config, mut findings } = decode_both(texts);
    let config = environment.apply(config);
    findings.extend(broken_rules(&config, &findings));
    if is_strict {
        promote_warnings(&mut findings);
    }
    if has_errors(&findings) { Err(findings) } else { Ok(DecodedConfig { config, findings }) }
}

/// Returns the findings of the rules.
///
/// After an error of the decoder, only rules about one other field apply: those about several would judge a default in place
/// of the value that could not be read.
fn broken_rules(config: &AzureConfig, decoded: &[ConfigFinding]) -> Vec<ConfigFinding> {
    let errors = decoded.iter().filter(|finding| finding.severity == FindingSeverity::Error);
    let unread: BTreeSet<&str> = errors.map(|error| error.field.split(['.', '[']).next().unwrap_or_default()).collect();
    if unread.is_empty() {
        return validate(config);
    }
    if unread.contains("") {
        // The text as a whole could not be read, so that every field has its default.
        return Vec::new();
    }
    validate_fields(config).into_iter().filter(|finding| !unread.contains(finding.field.as_str())).collect()
}

fn decode_both(texts: &ConfigTexts) -> DecodedConfig {
    let Some(secret) = &texts.secret else { return decode(texts.file.as_deref().unwrap_or_default()) };
    let Some(file) = &texts.file else { return decode(secret) };
    let from_file = decode(file);
    match from_file.config.cloud_config_type {
        CloudConfigType::File => from_file,
        CloudConfigType::Secret => {
            let base = AzureConfig { cloud_config_type: CloudConfigType::Secret, ..AzureConfig::default() };
            decode_over(base, secret)
        }
        CloudConfigType::Merge => {
            let mut both = decode_over(from_file.config, secret);
            for finding in &mut both.findings {
                finding.message += " (in the Secret)";
            }
            both.findings.splice(0..0, from_file.findings);
            both
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "subscriptionId: s\nresourceGroup: RG\nlocation: file\nuseManagedIdentityExtension: true\n";

    fn merged(file: Option<&str>, secret: Option<&str>) -> Result<DecodedConfig, Vec<ConfigFinding>> {
        let texts = ConfigTexts { file: file.map(str::to_owned), secret: secret.map(str::to_owned) };
        merge(&texts, &EnvironmentOverrides::default(), false)
    }

    fn location(file: Option<&str>, secret: Option<&str>) -> String {
        merged(file, secret).unwrap().config.location
    }

    #[test]
    fn the_type_in_the_file_decides_what_counts() {
        let secret = FILE.replace("file", "secret");
        for (kind, expected) in [("file", "file"), ("Merge", "secret"), ("", "secret"), ("SECRET", "secret")] {
            assert_eq!(location(Some(&format!("{FILE}cloudConfigType: '{kind}'")), Some(&secret)), expected, "{kind}");
        }
        assert_eq!(location(None, Some(&secret)), "secret");
        assert_eq!(location(Some(&format!("{FILE}cloudConfigType: secret")), None), "file");
    }

    #[test]
    fn merge_keeps_fields_of_the_file_and_type_secret_drops_them() {
        assert_eq!(location(Some(FILE), Some("vmType: standard")), "file");
        let alone = merged(Some(&format!("{FILE}cloudConfigType: secret")), Some("vmType: standard")).unwrap_err();
        assert!(alone.iter().any(|finding| finding.field == "subscriptionId"), "{alone:?}");
    }

    #[test]
    fn the_environment_and_lower_case_hold_for_every_source() {
        let environment = EnvironmentOverrides::of([("AZURE_TENANT_ID".to_owned(), "t".to_owned())]);
        for (file, secret) in [(Some(FILE), None), (None, Some(FILE)), (Some(FILE), Some("vmType: vmss"))] {
            let texts = ConfigTexts { file: file.map(str::to_owned), secret: secret.map(str::to_owned) };
            let config = merge(&texts, &environment, false).unwrap().config;
            assert_eq!((config.resource_group.as_str(), config.tenant_id.as_str()), ("rg", "t"));
        }
    }

    #[test]
    fn findings_say_which_source_is_to_blame() {
        let found = merged(Some(&format!("{FILE}vmTipe: a")), Some("location: [a]")).unwrap_err();
        let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "warning: vmTipe (line 5): unknown field, ignored; did you mean vmType?",
                "error: location (line 1): expected string (in the Secret)"
            ]
        );
    }

    #[test]
    fn type_errors_hide_only_rules_that_need_the_value() {
        let wrong_type = "vmType: [a]\nmaximumServiceRuleCount: x\n";
        let rules = "requestSharePercent: 101\nmaximumServiceSourceRangeCount: -1\nenableVmssFlexNodes: true\n";
        let found = merged(Some(&format!("{FILE}{wrong_type}{rules}")), None).unwrap_err();
        let fields: Vec<_> = found.iter().map(|finding| finding.field.as_str()).collect();
        assert_eq!(
            fields,
            ["vmType", "maximumServiceRuleCount", "requestSharePercent", "maximumServiceSourceRangeCount"],
            "{found:?}"
        );
        let found = merged(Some("subscriptionId: [a]"), None).unwrap_err();
        let fields: Vec<_> = found.iter().map(|finding| finding.field.as_str()).collect();
        assert_eq!(fields, ["subscriptionId", "resourceGroup", "location"], "{found:?}");
        assert_eq!(merged(Some("a: [b"), None).unwrap_err().len(), 1, "nothing is known of any field");
    }
}
