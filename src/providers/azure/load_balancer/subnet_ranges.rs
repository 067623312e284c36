//! Address ranges of the subnets of the cluster's virtual network: no Service publishes an address in them.
//!
//! In: the ARM client of the network subscription. Out: the ranges with the names of their subnets, read when a Service
//! names a private address and cached for half an hour.

use std::time::Duration;

use ipnet::IpNet;
use tokio::{sync::Mutex, time::Instant};

use crate::providers::azure::planner::load_balancer::settings::LoadBalancerSettings;
use crate::{
    providers::azure::{
        arm::{ArmClient, Urgency},
        model::{ArmResult, ResourceId, api, network::Subnet},
    },
    runtime::clock::Clock,
};

/// Time in which a list is valid.
const LIST_TTL: Duration = Duration::from_secs(1800);
/// Time in which a failed list is not repeated.
const FAILURE_TTL: Duration = Duration::from_secs(30);

/// Reader and cache of the ranges.
pub(super) struct SubnetRanges {
    client: ArmClient,
    network: ResourceId,
    clock: Clock,
    cached: Mutex<Option<CachedRanges>>,
}

struct CachedRanges {
    ranges: ArmResult<Vec<(IpNet, String)>>,
    until: Instant,
}

impl SubnetRanges {
    /// Creates a reader with an empty cache. `client` is that of the network subscription.
    pub(super) fn new(client: ArmClient, settings: &LoadBalancerSettings, clock: Clock) -> Self {
        Self { client, network: settings.virtual_network.clone(), clock, cached: Mutex::default() }
    }

    /// Returns the ranges. Only one request is in flight at a time.
    ///
    /// After a failure, the previous list is used, and the next request is sent 30 s later at the earliest.
    pub(super) async fn ranges(&self, urgency: Urgency) -> ArmResult<Vec<(IpNet, String)>> {
        let mut cached = self.cached.lock().await;
        if let Some(known) = cached.as_ref().filter(|known| self.clock.now() < known.until) {
            return known.ranges.clone();
        }
        let path = format!("{}/subnets", self.network);
        let subnets = self.client.with_urgency(urgency).list::<Subnet>(&api::SUBNETS, &path, &[]).await;
        let ttl = if subnets.is_ok() { LIST_TTL } else { FAILURE_TTL };
        let before = cached.take().and_then(|known| known.ranges.ok());
        let ranges = match (subnets, before) {
            (Ok(subnets), _) => Ok(subnets.iter().flat_map(ranges_of).collect()),
            (Err(error), Some(before)) => {
                tracing::warn!(%error, "cannot list the subnets of the virtual network; previous list kept");
                Ok(before)
            }
            (Err(error), None) => Err(error),
        };
        *cached = Some(CachedRanges { ranges: ranges.clone(), until: self.clock.now() + ttl });
        ranges
    }
}

fn ranges_of(subnet: &Subnet) -> impl Iterator<Item = (IpNet, String)> {
    let name = format!("subnet {}", subnet.name.as_deref().unwrap_or_default());
    subnet.ranges().into_iter().map(move |range| (range, name.clone()))
}
