//! Load balancers that planning may change, and the basic load balancer of a Service. `targets` assigns Standard ones. Pure.
//!
//! In: the observed state, and a Service. Out: drafts; the name of a load balancer, or a refusal.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `getServiceLoadBalancer`, and `azure_loadbalancer_repo.go`; unlike upstream,
//! `loadBalancerName` is a managed name, and parts of a Service are found on any load balancer of the group.

use std::collections::BTreeSet;

use super::{
    context::{NameOwners, PlanContext},
    draft::{self, LoadBalancerDraft},
    types::RuleCounts,
};
use crate::providers::azure::{
    config::{LoadBalancerSku, VmType},
    model::{
        ResourceId,
        document::ArmSku,
        network::{ArmLoadBalancer, PublicIpAddress},
        spelling,
    },
    planner::load_balancer::{
        annotations::MODE,
        naming,
        settings::LoadBalancerSettings,
        spec::{ServiceRefusal, ServiceSpec, refusal},
    },
};

const AUTO: &str = "__auto__";

/// Returns the name of a load balancer, which is empty if ARM sent none.
fn name(document: &ArmLoadBalancer) -> &str {
    document.name.as_deref().unwrap_or_default()
}

/// Returns the id that belongs to a load balancer called `name`.
pub(super) fn id(context: &PlanContext<'_>, name: &str) -> ResourceId {
    context.settings.load_balancer_group.resource("Microsoft.Network/loadBalancers", &[name])
}

/// Returns `true` if the controller may delete a load balancer with this name.
fn is_ours(settings: &LoadBalancerSettings, name: &str) -> bool {
    settings.manages(naming::split_load_balancer(name).0)
}

/// Returns `true` if a basic load balancer remains from before the cluster switched to Standard ones. The controller deletes it.
pub(super) fn is_leftover(settings: &LoadBalancerSettings, document: &ArmLoadBalancer) -> bool {
    settings.sku == LoadBalancerSku::Standard && document.is_basic() && is_ours(settings, name(document))
}

/// Returns `true` if the load balancer uses the public IP.
pub(super) fn uses(document: &ArmLoadBalancer, pip: &PublicIpAddress) -> bool {
    let reference = pip.properties.as_ref().and_then(|properties| properties.ip_configuration.as_ref());
    let user = reference.and_then(|reference| reference.id.as_deref()).unwrap_or_default().to_ascii_lowercase();
    document.id.as_deref().is_some_and(|id| user.starts_with(&format!("{}/", id.to_ascii_lowercase())))
}

/// Returns `true` if the public IP would lose its address with the load balancer: Azure releases a dynamic address that has no user.
pub(super) fn lends_address(document: &ArmLoadBalancer, pip: &PublicIpAddress) -> bool {
    let method = pip.properties.as_ref().and_then(|properties| properties.public_ip_allocation_method.as_deref());
    spelling::is_word(method, "Dynamic") && uses(document, pip)
}

/// Returns the load balancers that planning may change: managed ones, and those on which names show parts of a Service.
///
/// Basic load balancers are selected by the parts of the requested Services. Standard load balancers may have had another name before, so
/// they are selected by the parts of all Services.
pub(super) fn drafts<'a, T: Copy>(
    context: &PlanContext<'a>,
    owners: &NameOwners,
    known: &NameOwners<T>,
) -> Vec<LoadBalancerDraft<'a>> {
    let are_all = context.is_standard();
    let has_frontend =
        |name: &str| if are_all { known.of_frontend(name).is_some() } else { owners.of_frontend(name).is_some() };
    let has_rule = |name: &str| if are_all { known.of_rule(name).is_some() } else { owners.of_rule(name).is_some() };
    let is_touched = |document: &ArmLoadBalancer| {
        draft::frontends(document).iter().any(|part| part.name.as_deref().is_some_and(has_frontend))
            || draft::rules(document).iter().any(|part| part.name.as_deref().is_some_and(has_rule))
            || draft::probes(document).iter().any(|part| part.name.as_deref().is_some_and(has_rule))
    };
    let documents = context.observed.load_balancers.iter().filter(|document| !is_leftover(context.settings, document));
    let documents = documents.filter(|document| is_ours(context.settings, name(document)) || is_touched(document));
    documents.map(|document| existing(context, document)).collect()
}

fn existing<'a>(context: &PlanContext<'a>, document: &'a ArmLoadBalancer) -> LoadBalancerDraft<'a> {
    let (external, internal) = naming::split_load_balancer(name(document));
    LoadBalancerDraft {
        id: document_id(context, document),
        internal,
        external_name: external.to_owned(),
        is_ours: is_ours(context.settings, name(document)),
        is_former: !is_ours(context.settings, name(document)),
        moved_pools: BTreeSet::new(),
        before: Some(document),
        after: document.clone(),
        reasons: Vec::new(),
    }
}

/// Returns the id of an existing load balancer. An id that ARM does not send, or that is not valid, is derived from the name.
pub(super) fn document_id(context: &PlanContext<'_>, document: &ArmLoadBalancer) -> ResourceId {
    let own = document.id.as_deref().and_then(|id| ResourceId::parse(id).ok());
    own.unwrap_or_else(|| id(context, name(document)))
}

/// Creates the draft of a load balancer that does not exist yet.
pub(super) fn new<'a>(context: &PlanContext<'a>, external: &str, internal: bool) -> LoadBalancerDraft<'a> {
    let settings = context.settings;
    let name = naming::load_balancer(external, internal);
    let sku = if context.is_standard() { "Standard" } else { "Basic" };
    let after = ArmLoadBalancer {
        name: Some(name.clone()),
        location: Some(settings.location.clone()),
        extended_location: settings.edge_zone(),
        sku: Some(ArmSku { name: Some(sku.to_owned()), ..ArmSku::default() }),
        ..ArmLoadBalancer::default()
    };
    let reasons = vec![format!("create load balancer {name}")];
    let external_name = external.to_owned();
    LoadBalancerDraft {
        id: id(context, &name),
        internal,
        external_name,
        is_ours: true,
        is_former: false,
        moved_pools: BTreeSet::new(),
        before: None,
        after,
        reasons,
    }
}

/// Returns the external name of the basic load balancer for the Service. `current` is the external name of the load balancer of the same
/// kind that has the Service now.
pub(super) fn basic_name(
    context: &PlanContext<'_>,
    spec: &ServiceSpec,
    current: Option<&str>,
    load: &RuleCounts,
) -> Result<String, ServiceRefusal> {
    let mode = spec.mode.as_deref().map(str::trim).filter(|mode| !mode.is_empty());
    match (mode, current) {
        (None, Some(current)) => Ok(current.to_owned()),
        (Some(mode), Some(current)) if spelling::same_word(mode, AUTO) => Ok(current.to_owned()),
        (None, None) => with_room(context, spec, &[context.settings.primary_name().to_owned()], current, load),
        (Some(mode), None) if spelling::same_word(mode, AUTO) => {
            let candidates: Vec<_> = context.observed.vm_sets.iter().map(|set| of_vm_set(context, set)).collect();
            with_room(context, spec, &candidates, current, load)
        }
        (Some(mode), current) => with_room(context, spec, &[named(context, mode)?], current, load),
    }
}

fn of_vm_set(context: &PlanContext<'_>, set: &str) -> String {
    if spelling::same_name(set, &context.settings.primary_vm_set) {
        return context.settings.primary_name().to_owned();
    }
    if context.settings.vm_type == VmType::Standard { set.to_lowercase() } else { set.to_owned() }
}

fn named(context: &PlanContext<'_>, mode: &str) -> Result<String, ServiceRefusal> {
    let sets = &context.observed.vm_sets;
    let known = sets.iter().chain([&context.settings.primary_vm_set]).find(|set| spelling::same_name(set, mode));
    known.map(|set| of_vm_set(context, set)).ok_or_else(|| {
        let sets = sets.join(", ");
        refusal(
            MODE.key,
            format!("there is no scale set or availability set {mode}; there are {sets}, and {AUTO} picks one"),
        )
    })
}

/// Returns the first candidate that does not exist yet, or else the first with the fewest rules.
fn with_room(
    context: &PlanContext<'_>,
    spec: &ServiceSpec,
    candidates: &[String],
    current: Option<&str>,
    load: &RuleCounts,
) -> Result<String, ServiceRefusal> {
    let rules = |name: &String| load.get(&(name.to_lowercase(), spec.internal)).copied();
    let free =
        candidates.iter().find(|name| rules(name).is_none()).or_else(|| candidates.iter().min_by_key(|name| rules(name)));
    let Some(name) = free else {
        return Err(refusal(MODE.key, "the cluster has no scale set or availability set"));
    };
    let most = usize::try_from(context.settings.maximum_rules).unwrap_or_default();
    let is_there = current.is_some_and(|current| spelling::same_name(current, name));
    match rules(name) {
        Some(count) if count >= most && !is_there => {
            let message = format!("load balancer {name} has {count} rules, and maximumLoadBalancerRuleCount is {most}");
            Err(refusal(MODE.key, message))
        }
        _ => Ok(name.clone()),
    }
}
