//! Zones of the region, for new public IPs and frontends.
//!
//! In: the ARM client of the network subscription. Out: the zones in ARM's order, read on request and cached for half an
//! hour. Upstream: `pkg/provider/azure_zones.go` (read every 30 minutes) and `pkg/azclient/providerclient/custom.go`.

use std::time::Duration;

use serde::Deserialize;
use tokio::{sync::Mutex, time::Instant};

use crate::providers::azure::planner::load_balancer::settings::LoadBalancerSettings;
use crate::{
    providers::azure::{
        arm::{ArmClient, Urgency},
        model::{ArmError, ArmErrorClass, ArmResult, ResourceId, api, spelling},
    },
    runtime::clock::Clock,
};

/// Time in which a response is valid. Upstream: `consts.ZoneFetchingInterval`.
const ZONES_TTL: Duration = Duration::from_secs(1800);
/// Time in which an old response is used after a failure.
const FAILURE_TTL: Duration = Duration::from_secs(60);
/// Resource provider and resource type whose zones are read.
const PROVIDER: &str = "Microsoft.Compute";
const RESOURCE_TYPE: &str = "virtualMachines";

/// Reader and cache of the zones of the configured region.
pub struct RegionZones {
    client: ArmClient,
    location: String,
    provider: ResourceId,
    /// Whether the region can have zones: not on Azure Stack, and not in an edge zone.
    may_have_zones: bool,
    clock: Clock,
    cached: Mutex<Option<CachedZones>>,
}

struct CachedZones {
    zones: Vec<String>,
    until: Instant,
}

/// ARM's document about a resource provider, with the fields that are read here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceProviderDocument {
    resource_types: Vec<ProviderResourceType>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProviderResourceType {
    resource_type: String,
    zone_mappings: Option<Vec<ProviderZoneMapping>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProviderZoneMapping {
    location: String,
    zones: Option<Vec<String>>,
}

impl RegionZones {
    /// Creates a reader with an empty cache. `client` is that of the network subscription.
    pub fn new(client: ArmClient, settings: &LoadBalancerSettings, azure_stack: bool, clock: Clock) -> Self {
        let provider = ResourceId::subscription_of(settings.group.subscription()).resource(PROVIDER, &[]);
        let may_have_zones = !azure_stack && settings.extended_location.is_none();
        Self { client, location: settings.location.clone(), provider, may_have_zones, clock, cached: Mutex::default() }
    }

    /// Returns the zones; empty if the region has none. Only one request is in flight at a time; if it fails, the cached
    /// zones are used.
    ///
    /// # Errors
    ///
    /// Fails if the request fails and no zones are cached.
    pub async fn zones(&self, urgency: Urgency) -> ArmResult<Vec<String>> {
        if !self.may_have_zones {
            return Ok(Vec::new());
        }
        let mut known = self.cached.lock().await;
        if let Some(known) = known.as_ref().filter(|known| self.clock.now() < known.until) {
            return Ok(known.zones.clone());
        }
        let (zones, kept) = match (self.read(urgency).await, known.take()) {
            (Ok(zones), _) => (zones, ZONES_TTL),
            (Err(error), Some(old)) => {
                tracing::warn!(%error, "cannot read the zones of the region; previous zones kept");
                (old.zones, FAILURE_TTL)
            }
            (Err(error), None) => return Err(self.read_error(error)),
        };
        *known = Some(CachedZones { zones: zones.clone(), until: self.clock.now() + kept });
        Ok(zones)
    }

    async fn read(&self, urgency: Urgency) -> ArmResult<Vec<String>> {
        let provider: ResourceProviderDocument =
            self.client.with_urgency(urgency).get(&api::PROVIDERS, &self.provider, &[]).await?;
        zones_of(&provider, &self.location).ok_or_else(|| {
            let message = format!("the answer does not have the resource type {PROVIDER}/{RESOURCE_TYPE}");
            ArmError::without_response(ArmErrorClass::MalformedAnswer, format!("GET {}", self.provider), message)
        })
    }

    fn read_error(&self, error: ArmError) -> ArmError {
        let why = "which a new public IP or front end needs, could not be read";
        ArmError { message: format!("the zones of the region {}, {why}: {}", self.location, error.message), ..error }
    }
}

/// Returns the zones of `location`, empty if it has none; `None` if the response does not contain the resource type.
fn zones_of(provider: &ResourceProviderDocument, location: &str) -> Option<Vec<String>> {
    let machines = provider.resource_types.iter().find(|kind| spelling::same_word(&kind.resource_type, RESOURCE_TYPE))?;
    let mut mappings = machines.zone_mappings.iter().flatten();
    let found = mappings.find(|mapping| normalized_location(&mapping.location) == normalized_location(location));
    Some(found.and_then(|mapping| mapping.zones.clone()).unwrap_or_default())
}

/// Returns the name of a location without spaces and in lowercase, for comparisons.
fn normalized_location(location: &str) -> String {
    location.replace(' ', "").to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
