//! Route tables: destinations and next hops, limits.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use serde_json::Value;

use super::{Candidate, text};
use crate::sandbox::azure::{refusal::Refusal, shape};

/// Most routes of a table. Upstream: documented limit.
const MAX_ROUTES: usize = 400;

pub(super) fn check(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let routes: Vec<&Value> = shape::parts(candidate.body, "routes").collect();
    if routes.len() > MAX_ROUTES {
        let message = format!("Route table {} cannot have more than {MAX_ROUTES} routes.", candidate.id);
        return Err(Refusal::invalid("RouteCountLimitReached", message));
    }
    let mut seen = BTreeMap::new();
    for route in routes {
        check_route(route)?;
        let prefix = text(&route["properties"], "addressPrefix").to_ascii_lowercase();
        if let Some(other) = seen.insert(prefix, text(route, "name")) {
            let message = format!(
                "Route {other} conflicts with route {}. Routes cannot have the same AddressPrefix.",
                text(route, "name")
            );
            return Err(Refusal::invalid("RouteConflict", message));
        }
    }
    Ok(())
}

fn check_route(route: &Value) -> Result<(), Refusal> {
    let (id, properties) = (text(route, "id"), &route["properties"]);
    let prefix = text(properties, "addressPrefix");
    // A service tag is a name without a slash.
    if prefix.is_empty() || prefix.contains('/') && prefix.parse::<IpNet>().is_err() {
        return Err(Refusal::invalid(
            "InvalidAddressPrefixFormat",
            format!("Address prefix {prefix} of resource {id} is not formatted correctly."),
        ));
    }
    let hop = text(properties, "nextHopIpAddress");
    let appliance = text(properties, "nextHopType").eq_ignore_ascii_case("VirtualAppliance");
    if appliance && hop.parse::<IpAddr>().is_err() {
        return Err(Refusal::invalid(
            "RouteNextHopIpAddressInvalid",
            format!("Route {id} needs a nextHopIpAddress; it has `{hop}`."),
        ));
    }
    Ok(())
}
