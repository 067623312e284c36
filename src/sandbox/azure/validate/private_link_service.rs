//! Private link services: the targets of their traffic, their addresses, the policies of their subnets, their connections.
//!
//! Known from Azure: the codes for network policies, for connections that exist, and (in [`super::load_balancer`]) for a load balancer
//! with a private link service. Of the other refusals only the fact is documented ("What is Azure Private Link service?",
//! limitations); their codes are made up.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Candidate, interface, load_balancer::is_standard, same, text};
use crate::{
    providers::azure::model::ResourceId,
    sandbox::azure::{private_link, refusal::Refusal, shape, store::Store},
};

const KIND: &str = "microsoft.network/privatelinkservices";
const FRONTENDS: &str = "loadBalancerFrontendIpConfigurations";
const ADDRESSES: &str = "ipConfigurations";
/// Maximum number of NAT addresses. Upstream: documented limit.
const MAX_ADDRESSES: usize = 8;

pub(super) fn check(candidate: Candidate<'_>) -> Result<(), Refusal> {
    check_frontends(candidate)?;
    check_addresses(candidate)?;
    shape::parts(candidate.body, ADDRESSES).try_for_each(|part| check_policy(candidate, part))?;
    interface::check_addresses(candidate, ADDRESSES)
}

/// Returns the IDs, lower-case, of the frontends that traffic is sent to.
fn frontends(body: &Value) -> BTreeSet<String> {
    let listed = shape::parts(body, FRONTENDS).filter_map(|frontend| frontend["id"].as_str());
    listed.map(str::to_ascii_lowercase).collect()
}

/// Returns the keys of the load balancers of those frontends.
pub(super) fn balancers_of(body: &Value) -> BTreeSet<String> {
    let ids = frontends(body).into_iter().filter_map(|frontend| ResourceId::parse(&frontend).ok());
    ids.filter_map(|frontend| frontend.parent()).map(|balancer| balancer.key()).collect()
}

fn check_frontends(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let (id, desired) = (candidate.id, frontends(candidate.body));
    let refuse = |code: &str, reason: String| Err(Refusal::invalid(code, format!("Private link service {id}: {reason}")));
    if desired.is_empty() && candidate.body["properties"]["destinationIPAddress"].is_null() {
        return refuse("PrivateLinkServiceMustHaveLoadBalancerFrontendIpConfiguration", "no frontend is named.".to_owned());
    }
    if candidate.old.is_some_and(|old| frontends(old) != desired) {
        return refuse("PrivateLinkServiceLoadBalancerCannotBeChanged", "its frontends cannot be changed.".to_owned());
    }
    let basic = |key: &String| candidate.store.get(key).is_some_and(|balancer| !is_standard(&balancer.body));
    if let Some(balancer) = balancers_of(candidate.body).iter().find(|key| basic(key)) {
        let reason = format!("load balancer {balancer} is not of SKU Standard.");
        return refuse("PrivateLinkServiceRequiresStandardLoadBalancer", reason);
    }
    let key = id.key();
    let user = |frontend: &String| users(candidate.store, frontend).into_iter().find(|other| *other != key);
    match desired.iter().find_map(|frontend| Some((frontend, user(frontend)?))) {
        Some((frontend, other)) => {
            let reason = format!("frontend {frontend} is used by private link service {other}.");
            refuse("LoadBalancerFrontendIpConfigurationInUseByPrivateLinkService", reason)
        }
        None => Ok(()),
    }
}

/// Returns the private link services that refer to `id`.
fn users(store: &Store, id: &str) -> BTreeSet<String> {
    let is_service = |key: &str| store.get(key).is_some_and(|document| document.kind == KIND);
    store.referrers(id).map(|referrer| referrer.document.clone()).filter(|key| is_service(key)).collect()
}

fn check_addresses(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let id = candidate.id;
    let refuse = |code: &str, reason: String| Err(Refusal::invalid(code, format!("Private link service {id}: {reason}")));
    let parts: Vec<&Value> = shape::parts(candidate.body, ADDRESSES).map(|part| &part["properties"]).collect();
    if !(1..=MAX_ADDRESSES).contains(&parts.len()) {
        let reason = format!("{} IP configurations; 1 to {MAX_ADDRESSES} are allowed.", parts.len());
        return refuse("PrivateLinkServiceIpConfigurationCountInvalid", reason);
    }
    let primary = parts.iter().filter(|part| part["primary"] == true).count();
    if primary != 1 {
        let reason = format!("{primary} primary IP configurations; exactly one is required.");
        return refuse("PrivateLinkServiceMustHaveOnePrimaryIpConfiguration", reason);
    }
    if parts.iter().any(|part| part["subnet"]["id"].is_null()) {
        return refuse("SubnetRequired", "each IP configuration needs a subnet.".to_owned());
    }
    if parts.iter().any(|part| text(part, "privateIPAddressVersion").eq_ignore_ascii_case("IPv6")) {
        return refuse("PrivateLinkServiceIPv6NotSupported", "its addresses must be IPv4.".to_owned());
    }
    Ok(())
}

fn check_policy(candidate: Candidate<'_>, part: &Value) -> Result<(), Refusal> {
    let id = text(&part["properties"]["subnet"], "id");
    let subnet = ResourceId::parse(id).ok().and_then(|id| {
        let network = candidate.store.get(id.parent()?.as_str())?;
        shape::part(&network.body, "subnets", id.name())
    });
    if subnet.is_none_or(is_disabled) { Ok(()) } else { Err(policy_refusal(id, candidate.id.as_str())) }
}

fn is_disabled(subnet: &Value) -> bool {
    text(&subnet["properties"], "privateLinkServiceNetworkPolicies").eq_ignore_ascii_case("Disabled")
}

fn policy_refusal(subnet: &str, service: &str) -> Refusal {
    let message = format!(
        "Private link service network policies cannot be enabled on private link service subnet {subnet} used by {service}."
    );
    Refusal::invalid("PrivateLinkServiceNetworkPoliciesCannotBeEnabledOnPrivateLinkServiceSubnet", message)
}

/// Checks that the policies of a virtual network's subnets remain disabled while a private link service uses them.
pub(super) fn check_subnets(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let enabled = shape::parts(candidate.body, "subnets").filter(|subnet| !is_disabled(subnet));
    let used = enabled.map(|subnet| text(subnet, "id")).find_map(|id| Some((id, users(candidate.store, id).pop_first()?)));
    used.map_or(Ok(()), |(subnet, service)| Err(policy_refusal(subnet, &service)))
}

/// Checks that no connections remain: they must be deleted first.
pub(super) fn check_deletion(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let connections = private_link::connections(candidate.store, candidate.id.as_str());
    let Some(connection) = connections.first() else { return Ok(()) };
    let message = format!(
        "Private link service {} cannot be deleted since it has private endpoint connection {}.",
        candidate.id,
        text(connection, "id")
    );
    Err(Refusal::invalid("PrivateLinkServiceWithPrivateEndpointConnectionsCannotBeDeleted", message))
}

/// Returns the private link service that uses a frontend, if any. Such a frontend must not be dropped.
pub(super) fn user_of_frontend(candidate: Candidate<'_>, frontend: &str) -> Option<String> {
    users(candidate.store, frontend).pop_first()
}

/// Checks that private endpoints refer to an existing private link service, by its ID or its alias.
pub(super) fn check_endpoint(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let mut requested = private_link::requested_services(candidate.body);
    let missing = requested.find(|service| {
        let is_old =
            candidate.old.is_some_and(|old| private_link::requested_services(old).any(|other| same(other, service)));
        !is_old && private_link::find(candidate.store, service.as_str().unwrap_or_default()).is_none()
    });
    match missing {
        Some(service) => Err(Refusal::dangling(candidate.id.as_str(), service.as_str().unwrap_or_default())),
        None => Ok(()),
    }
}
