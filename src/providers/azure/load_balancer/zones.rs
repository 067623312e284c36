//! Zones of the region, for new public IPs and front ends.
//!
//! In: the ARM client of the network subscription. Out: the zones in ARM's order, read when they are asked for and kept for half an hour.
//! Upstream: `pkg/provider/azure_zones.go` (read every 30 minutes) and `pkg/azclient/providerclient/custom.go`.

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

/// How long an answer holds. Upstream: `consts.ZoneFetchingInterval`.
const ZONES_TTL: Duration = Duration::from_secs(1800);
/// How long an old answer holds after a failure.
const FAILURE_TTL: Duration = Duration::from_secs(60);
/// The resource provider, and its resource type, whose zones count.
const PROVIDER: &str = "Microsoft.Compute";
const RESOURCE_TYPE: &str = "virtualMachines";

/// Tells the zones of the configured region.
pub struct RegionZones {
    client: ArmClient,
    location: String,
    provider: ResourceId,
    /// Whether the region can have zones at all.
    may_have_zones: bool,
    clock: Clock,
    cached: Mutex<Option<CachedZones>>,
}

struct CachedZones {
    zones: Vec<String>,
    until: Instant,
}

/// What ARM says of a resource provider. The fields that count.
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
    /// Nothing is sent yet. `client` is that of the network subscription. Azure Stack has no zones, nor has an edge zone.
    pub fn new(client: ArmClient, settings: &LoadBalancerSettings, azure_stack: bool, clock: Clock) -> Self {
        let provider = ResourceId::subscription_of(settings.group.subscription()).resource(PROVIDER, &[]);
        let may_have_zones = !azure_stack && settings.extended_location.is_none();
        Self { client, location: settings.location.clone(), provider, may_have_zones, clock, cached: Mutex::default() }
    }

    /// The zones; empty when the region has none. One request at a time; when it fails, what was known before stays in use.
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

/// The zones of `location`, empty when it has none; `None` when the answer says nothing about zones.
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
