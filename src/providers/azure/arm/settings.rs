//! Settings of requests to ARM: endpoint, user agent, timeouts. Plain data with checked construction. Pure.

use std::{collections::BTreeSet, time::Duration};

use reqwest::Url;

use super::url;
use crate::{providers::azure::config::AzureConfig, runtime::build_version::VERSION};

/// Settings of the ARM client.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmSettings {
    /// Base URL of the resource manager, e.g. `https://management.azure.com/`.
    pub endpoint: Url,
    /// Whether requests use the API versions of Azure Stack.
    pub azure_stack: bool,
    /// Value of the header `User-Agent`.
    pub user_agent: String,
    pub backoff: ArmBackoff,
    pub timeouts: ArmTimeouts,
    pub polling: PollingPace,
    /// Resource groups of the configuration, in lower case. Only these become labels of metrics; with `None`, all do.
    pub labeled_groups: Option<BTreeSet<String>>,
    /// Subscriptions that become labels of metrics, in lower case; with `None`, all do.
    pub labeled_subscriptions: Option<BTreeSet<String>>,
}

/// Attempts of one request, and the delays between them. Throttled requests wait at the budget instead.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArmBackoff {
    /// Maximum number of attempts, including the first; at least 1.
    pub attempts: u32,
    /// Delay before the second attempt.
    pub first: Duration,
    /// Growth from one delay to the next.
    pub factor: f64,
    /// Maximum random part added to a delay: 0.2 adds up to a fifth.
    pub jitter: f64,
    /// Longest delay, including one that ARM requests; a longer one ends the attempts.
    pub longest: Duration,
}

impl Default for ArmBackoff {
    fn default() -> Self {
        Self { attempts: 4, first: Duration::from_millis(500), factor: 2.0, jitter: 0.2, longest: Duration::from_secs(30) }
    }
}

/// Time limits. A caller may set another deadline with [`super::ArmClient::with_deadline`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArmTimeouts {
    /// Time from sending one request to the end of its response.
    pub response: Duration,
    /// Time of a read, or of a page of a list, with all attempts and waits.
    pub read: Duration,
    /// Time of a write with all attempts, its operation and the final read.
    pub operation: Duration,
}

impl Default for ArmTimeouts {
    fn default() -> Self {
        Self { response: Duration::from_secs(60), read: Duration::from_secs(180), operation: Duration::from_secs(900) }
    }
}

/// Pace of the polls of a long-running operation. Go polls every 5 s; most operations on a load balancer end sooner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PollingPace {
    /// Delay before the first poll, unless ARM requests more.
    pub first: Duration,
    /// Growth from one pause to the next.
    pub factor: f64,
    /// Longest pause, unless ARM requests more.
    pub longest: Duration,
    /// Longest delay that ARM's `Retry-After` may request.
    pub max_retry_after: Duration,
    /// Minimum delay for a `Retry-After`; zero without `enableMinimumRetryAfter`.
    pub min_retry_after: Duration,
}

impl Default for PollingPace {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            factor: 1.5,
            longest: Duration::from_secs(10),
            max_retry_after: Duration::from_secs(60),
            min_retry_after: Duration::ZERO,
        }
    }
}

/// Returns the resource groups that the configuration names, in lower case.
pub fn configured_groups(config: &AzureConfig) -> BTreeSet<String> {
    let named = config.resource_groups().into_iter().map(|(_, group)| group);
    let allowed = config.allowed_public_ip_resource_groups.split(',').map(str::trim);
    let all = named.chain(allowed);
    all.filter(|group| !group.is_empty()).map(str::to_lowercase).collect()
}

/// Returns the subscriptions that the configuration names, in lower case. Nodes may name further ones.
pub(super) fn subscriptions(config: &AzureConfig) -> BTreeSet<String> {
    let named = [&config.subscription_id, &config.network_resource_subscription_id];
    named.into_iter().filter(|id| !id.is_empty()).map(|id| id.to_lowercase()).collect()
}

/// Delay before the second attempt in Go, below which `enableMinimumRetryAfter` ignores `Retry-After`.
const MINIMUM_RETRY_AFTER: Duration = Duration::from_secs(5);

impl ArmBackoff {
    /// Returns the defaults, which `cloudProviderBackoff` and related fields can only lower. At least one attempt remains.
    fn configured(config: &AzureConfig) -> Self {
        let defaults = Self::default();
        if !config.cloud_provider_backoff {
            return defaults;
        }
        let seconds = u64::try_from(config.cloud_provider_backoff_duration).unwrap_or_default();
        Self {
            attempts: defaults.attempts.min(u32::try_from(config.cloud_provider_backoff_retries).unwrap_or(1)).max(1),
            first: defaults.first.min(Duration::from_secs(seconds)),
            factor: defaults.factor.min(config.cloud_provider_backoff_exponent).max(1.0),
            jitter: defaults.jitter.min(config.cloud_provider_backoff_jitter).max(0.0),
            ..defaults
        }
    }
}

impl ArmSettings {
    /// Returns the settings of `config` for the resource manager at `endpoint`.
    ///
    /// # Errors
    ///
    /// Fails like [`ArmSettings::new`].
    pub fn configured(config: &AzureConfig, endpoint: &str, azure_stack: bool) -> Result<Self, String> {
        let default = || format!("kubernetes-cloudprovider/{VERSION}");
        let named = Some(config.user_agent.clone()).filter(|agent| !agent.is_empty());
        let mut settings = Self::new(endpoint, named.unwrap_or_else(default))?;
        settings.azure_stack = azure_stack;
        settings.labeled_groups = Some(configured_groups(config));
        settings.labeled_subscriptions = Some(subscriptions(config));
        settings.backoff = ArmBackoff::configured(config);
        if config.enable_minimum_retry_after {
            settings.polling.min_retry_after = MINIMUM_RETRY_AFTER;
        }
        Ok(settings)
    }

    /// Returns the defaults for the resource manager at `endpoint`.
    ///
    /// # Errors
    ///
    /// Fails if `endpoint` is not an HTTPS URL, because every request carries a token. HTTP is accepted on loopback addresses only.
    pub fn new(endpoint: &str, user_agent: impl Into<String>) -> Result<Self, String> {
        Ok(Self {
            endpoint: url::endpoint(endpoint)?,
            azure_stack: false,
            user_agent: user_agent.into(),
            backoff: ArmBackoff::default(),
            timeouts: ArmTimeouts::default(),
            polling: PollingPace::default(),
            labeled_groups: None,
            labeled_subscriptions: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_followed() {
        let plain = ArmSettings::configured(&AzureConfig::default(), "https://arm.example", false).unwrap();
        assert_eq!((plain.backoff, plain.polling), (ArmBackoff::default(), PollingPace::default()));
        assert!(plain.user_agent.starts_with("kubernetes-cloudprovider/v"), "{}", plain.user_agent);
        let config = AzureConfig {
            user_agent: "mine".into(),
            cloud_provider_backoff: true,
            cloud_provider_backoff_retries: 2,
            enable_minimum_retry_after: true,
            ..AzureConfig::default()
        };
        let settings = ArmSettings::configured(&config, "https://arm.example", true).unwrap();
        assert_eq!((settings.user_agent.as_str(), settings.azure_stack, settings.backoff.attempts), ("mine", true, 2));
        assert_eq!((settings.backoff.factor, settings.polling.min_retry_after), (1.5, MINIMUM_RETRY_AFTER));
        for (retries, seconds, exponent, jitter, expected) in [
            (6, 300, 9.0, 1.0, (4, 500, 2.0, 0.2)),
            (0, 0, 0.0, -1.0, (1, 0, 1.0, 0.0)),
            (-3, -1, 1.5, 0.1, (1, 0, 1.5, 0.1)),
        ] {
            let config = AzureConfig {
                cloud_provider_backoff_retries: retries,
                cloud_provider_backoff_duration: seconds,
                cloud_provider_backoff_exponent: exponent,
                cloud_provider_backoff_jitter: jitter,
                ..config.clone()
            };
            let ArmBackoff { attempts, first, factor, jitter, .. } = ArmBackoff::configured(&config);
            assert_eq!((attempts, first.as_millis(), factor, jitter), expected, "the fields only lower the defaults");
        }
    }
}
