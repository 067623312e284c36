//! Rules about fields and their combinations. Pure. In: a configuration. Out: every problem at once.
//!
//! Errors are values that upstream refuses at startup (`pkg/provider/azure.go`), or accepts and then fails with at every
//! request. Values without effect are warnings.

mod credentials;
mod load_balancers;
mod names;

use super::{
    choices::VmType,
    fields::AzureConfig,
    finding::{ConfigFinding, FindingCollector},
};
use crate::providers::azure::model::names::{MAX_TAGS, is_tag};

pub use credentials::has_credentials;
pub use load_balancers::{missing_cluster_entry, unusable_cluster_name};

/// Checks `config` after [`super::EnvironmentOverrides::apply`].
pub fn validate(config: &AzureConfig) -> Vec<ConfigFinding> {
    let mut findings = FindingCollector(validate_fields(config));
    extended_location(config, &mut findings);
    credentials::check(config, &mut findings);
    machines(config, &mut findings);
    load_balancers::check(config, &mut findings);
    findings.0
}

/// Applies the rules that check one field each, independent of the others.
pub(super) fn validate_fields(config: &AzureConfig) -> Vec<ConfigFinding> {
    let mut findings = FindingCollector::default();
    required(config, &mut findings);
    requests(config, &mut findings);
    tags(config, &mut findings);
    names::check(config, &mut findings);
    load_balancers::check_fields(config, &mut findings);
    findings.0
}

fn required(config: &AzureConfig, findings: &mut FindingCollector) {
    findings.error_if(
        config.subscription_id.is_empty(),
        "subscriptionId",
        "is required: the id of the subscription that holds the machines",
    );
    findings.error_if(
        config.resource_group.is_empty(),
        "resourceGroup",
        "is required: the name of the resource group that holds the machines",
    );
    findings.warn_if(
        config.location.is_empty(),
        "location",
        "is empty: zones are not recognized and nothing can be created without the name of the region, such as westeurope",
    );
}

fn extended_location(config: &AzureConfig, findings: &mut FindingCollector) {
    let halves = config.extended_location_name.is_empty() != config.extended_location_type.is_empty();
    findings.warn_if(
        halves,
        "extendedLocationName",
        "has no effect unless extendedLocationName and extendedLocationType are both set",
    );
}

fn machines(config: &AzureConfig, findings: &mut FindingCollector) {
    let is_vmss = config.vm_type == VmType::Vmss;
    findings.error_if(
        config.disable_availability_set_nodes && !is_vmss,
        "disableAvailabilitySetNodes",
        "can be true only with vmType vmss",
    );
    findings.warn_if(
        config.enable_vmss_flex_nodes && !is_vmss,
        "enableVmssFlexNodes",
        "has an effect only with vmType vmss; for scale sets in flexible mode alone set vmType vmssflex",
    );
    findings.warn_if(
        config.list_vmss_virtual_machines_without_instance_view,
        "listVmssVirtualMachinesWithoutInstanceView",
        "without the instance view the power state and fault domain of machines are unknown until they are read one by one",
    );
}

fn requests(config: &AzureConfig, findings: &mut FindingCollector) {
    findings.error_if(
        !(1..=100).contains(&config.request_share_percent),
        "requestSharePercent",
        &format!("{} is out of range: expected a whole number from 1 to 100", config.request_share_percent),
    );
    let rates = [
        ("cloudProviderRateLimitQPS", config.cloud_provider_rate_limit_qps),
        ("cloudProviderRateLimitBucket", config.cloud_provider_rate_limit_bucket.into()),
        ("cloudProviderRateLimitQPSWrite", config.cloud_provider_rate_limit_qps_write),
        ("cloudProviderRateLimitBucketWrite", config.cloud_provider_rate_limit_bucket_write.into()),
    ];
    for (field, rate) in rates {
        findings.warn_if(rate < 0.0, field, "a limit below 0 counts as none");
    }
    for (client, limit) in &config.rate_limit_entries {
        let lowest = limit.cloud_provider_rate_limit_qps.min(limit.cloud_provider_rate_limit_qps_write);
        let smallest = limit.cloud_provider_rate_limit_bucket.min(limit.cloud_provider_rate_limit_bucket_write);
        findings.warn_if(lowest < 0.0 || smallest < 0, &format!("entries.{client}"), "a limit below 0 counts as none");
    }
    let backoff = [
        ("cloudProviderBackoffRetries", f64::from(config.cloud_provider_backoff_retries), 1.0),
        ("cloudProviderBackoffDuration", f64::from(config.cloud_provider_backoff_duration), 0.0),
        ("cloudProviderBackoffExponent", config.cloud_provider_backoff_exponent, 1.0),
        ("cloudProviderBackoffJitter", config.cloud_provider_backoff_jitter, 0.0),
    ];
    for (field, value, least) in backoff {
        findings.warn_if(value < least, field, &format!("a value below {least} counts as {least}"));
    }
}

/// Warns about entries that upstream drops with a warning (`pkg/provider/azure_utils.go`), and about tags that ARM refuses.
fn tags(config: &AzureConfig, findings: &mut FindingCollector) {
    let is_bad = |entry: &&str| entry.matches('=').count() != 1 || entry.trim_start().starts_with('=');
    let bad = config.tags.split(',').filter(|entry| !entry.trim().is_empty()).filter(is_bad).count();
    findings.warn_if(
        bad > 0,
        "tags",
        &format!(
            "{bad} entries are ignored: expected key=value,key=value with exactly one '=' in each; tagsMap takes any text"
        ),
    );
    let listed = config.tags.split(',').filter(|entry| !is_bad(entry)).filter_map(|entry| entry.split_once('='));
    let mapped = config.tags_map.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let pairs: Vec<_> = listed.chain(mapped).map(|(key, value)| (key.trim(), value.trim())).collect();
    let refused = pairs.iter().filter(|(key, value)| !is_tag(key, value)).count();
    findings.warn_if(
        refused > 0,
        "tags",
        &format!(
            "{refused} tags are ignored: expected keys of at most 512 characters without <>%&\\?/, and values of at most 256"
        ),
    );
    findings.warn_if(
        pairs.len() > MAX_TAGS,
        "tags",
        &format!("{} tags are configured, but Azure accepts {MAX_TAGS} on a resource: remove some", pairs.len()),
    );
}

#[cfg(test)]
mod tests;
