//! Users of a public IP that prevent its deletion, in addition to the Services that it lists. Pure.
//!
//! In: a public IP and the load balancers. Out: a user that remains when all listed Services have left. ARM would reject the deletion.

use crate::providers::azure::{
    model::{ResourceId, document::SubResource, network::PublicIpAddress},
    planner::load_balancer::{
        desired::{context::is_generated_name, draft::FrontendUse, plan_index::PlanIndex},
        settings::LoadBalancerSettings,
    },
};

/// Returns a user that prevents the deletion of the public IP, as a message; `None` if there is none.
///
/// A load balancer of the cluster's group that no longer exists is not a user.
pub(super) fn blocking_user(
    pip: &PublicIpAddress,
    index: &PlanIndex<'_>,
    settings: &LoadBalancerSettings,
) -> Option<String> {
    let properties = pip.properties.as_ref()?;
    if let Some(gateway) = properties.nat_gateway.as_ref().and_then(|gateway| gateway.id.as_deref()) {
        return Some(format!("NAT gateway `{gateway}` uses it"));
    }
    let user = properties.ip_configuration.as_ref()?.resource_id()?;
    if !is_in_own_group(&user, settings) {
        return Some(format!("`{user}` uses it"));
    }
    outside_rule(index, &user).map(|what| format!("{what} uses its front end `{user}`"))
}

/// Returns `true` if the user belongs to a load balancer of the cluster's group. If that load balancer was not observed, it no longer
/// exists.
pub(super) fn is_in_own_group(user: &ResourceId, settings: &LoadBalancerSettings) -> bool {
    let balancer = |name: &str| settings.load_balancer_group.resource("Microsoft.Network/loadBalancers", &[name]);
    user.name_of("loadBalancers").is_some_and(|name| user.parent() == Some(balancer(name)))
}

/// Returns the kind of a rule that needs the frontend and belongs to no Service.
fn outside_rule(index: &PlanIndex<'_>, frontend: &ResourceId) -> Option<&'static str> {
    let known = index.frontend_with(frontend)?.properties.as_ref()?;
    let has = |list: &Option<Vec<SubResource>>| list.as_ref().is_some_and(|list| !list.is_empty());
    let uses = index.uses_of(frontend);
    if has(&known.outbound_rules) || uses.iter().any(FrontendUse::is_outbound_rule) {
        return Some("an outbound rule");
    }
    if uses.iter().any(|user| user.is_rule() && !is_generated_name(&user.name)) {
        return Some("a rule that is no Service's");
    }
    (has(&known.inbound_nat_rules) || has(&known.inbound_nat_pools)).then_some("an inbound NAT rule")
}
