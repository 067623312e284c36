//! Parts of Azure's documents that are tagged or named for the cluster and belong to no existing Service. Pure.
//!
//! In: the documents, every Service of the cluster of any type, and addresses of Nodes. Out: an [`OwnerlessPart`] each. The rules of the
//! planner decide about ownership: tags of public IPs and private link services, and names of all other parts. The manager plans only for
//! existing Services, so it never changes these parts.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    super::{
        naming,
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceIdentity},
    },
    context::{NameOwners, is_generated_name},
    draft,
    ownership_tags::{OWNER_TAG, is_clusters, tag},
    probes, public_ips,
    rules::reference_key,
    security_rules,
};
use crate::providers::azure::model::{
    ResourceId,
    document::SubResource,
    network::{ArmLoadBalancer, PrivateLinkService, PublicIpAddress},
    spelling,
};

/// Part of the cluster that no existing Service owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerlessPart {
    pub kind: OwnerlessKind,
    pub id: String,
    /// Services that the part names. None of them exists.
    pub services: Vec<String>,
}

/// Kind of a part, in the order in which parts can be removed: a part comes before the parts that it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerlessKind {
    PrivateLinkService,
    LoadBalancingRule,
    Probe,
    FrontEnd,
    BackendPool,
    LoadBalancer,
    SecurityRule,
    PublicIp,
}

/// Documents, Services and settings that decide about ownership.
pub struct OwnershipInput<'a> {
    pub observed: &'a ObservedNetwork,
    /// Load balancers that belong to the cluster.
    pub managed: Vec<&'a ArmLoadBalancer>,
    /// Every Service of the cluster, of any type.
    pub services: &'a [ServiceIdentity],
    /// Addresses at which Nodes and Services can be reached.
    pub addresses: &'a BTreeSet<IpAddr>,
    pub settings: &'a LoadBalancerSettings,
}

/// Returns all parts without an owner, in the order in which they can be removed.
pub fn ownerless(input: &OwnershipInput<'_>) -> Vec<OwnerlessPart> {
    let owners = NameOwners::new(input.services.iter().map(|service| (service, ())));
    let balancers = input.managed.iter().flat_map(|document| of_load_balancer(document, &owners, input));
    let mut parts: Vec<OwnerlessPart> = balancers
        .chain(security_rules_of_nobody(input, &owners))
        .chain(private_links(input, &owners))
        .chain(public_ips_of_nobody(input, &owners))
        .collect();
    parts.sort_by(|one, other| (one.kind, &one.id).cmp(&(other.kind, &other.id)));
    parts
}

fn exists(services: &[ServiceIdentity], key: &str) -> bool {
    services.iter().any(|service| spelling::same_name(&service.key, key))
}

/// Returns a part that names no Service.
fn unnamed_part(kind: OwnerlessKind, id: &ResourceId) -> OwnerlessPart {
    OwnerlessPart { kind, id: id.as_str().to_owned(), services: Vec::new() }
}

/// Returns `true` if the name was generated for a Service that does not exist.
fn is_orphaned(name: &str, owners: &NameOwners<()>) -> bool {
    is_generated_name(name) && owners.of_rule(name).is_none()
}

fn of_load_balancer(document: &ArmLoadBalancer, owners: &NameOwners<()>, input: &OwnershipInput<'_>) -> Vec<OwnerlessPart> {
    let Some(id) = document.id.as_deref().and_then(|id| ResourceId::parse(id).ok()) else { return Vec::new() };
    let part = |kind, list: &str, name: &str| unnamed_part(kind, &id.child(list, name));
    let is_nobodys = |name: &str| is_orphaned(name, owners);
    let names = draft::rules(document).iter().filter_map(|rule| rule.name.as_deref());
    let rules =
        names.filter(|name| is_nobodys(name)).map(|name| part(OwnerlessKind::LoadBalancingRule, "loadBalancingRules", name));
    let remaining = draft::rules(document).iter().filter(|rule| !is_nobodys(rule.name.as_deref().unwrap_or_default()));
    let probed = probes::probe_references(remaining);
    let probes = draft::probes(document).iter().filter_map(|probe| probe.name.as_deref());
    let probes = probes.filter(|name| is_nobodys(name) && !probed.contains(&name.to_ascii_lowercase()));
    let probes = probes.map(|name| part(OwnerlessKind::Probe, "probes", name));
    let names = draft::frontends(document).iter().filter_map(|frontend| frontend.name.as_deref());
    let unused = names.filter(|name| is_nobodys(name) && !has_other_users(document, owners, name));
    let frontends = unused.map(|name| part(OwnerlessKind::FrontEnd, "frontendIPConfigurations", name));
    let pools = unused_pools(document, input.services, input.settings);
    let pools = pools.into_iter().map(|name| part(OwnerlessKind::BackendPool, "backendAddressPools", &name));
    let balancer = is_empty(document, input.settings).then(|| unnamed_part(OwnerlessKind::LoadBalancer, &id));
    rules.chain(probes).chain(frontends).chain(pools).chain(balancer).collect()
}

/// Returns `true` if the load balancer is the cluster's by its name and has no frontend, so that no traffic can pass through it.
///
/// Basic load balancers can be called after any scale set or availability set. Of these, only those with the cluster's own name count.
fn is_empty(document: &ArmLoadBalancer, settings: &LoadBalancerSettings) -> bool {
    let (external, _) = naming::split_load_balancer(document.name.as_deref().unwrap_or_default());
    let is_own = [settings.cluster.as_str(), settings.primary_name()].iter().any(|own| spelling::same_name(own, external));
    (is_own || settings.has_entry(external)) && draft::frontends(document).is_empty() && draft::rules(document).is_empty()
}

/// Returns `true` if the frontend has a user other than the rules of missing Services, for example a rule of an existing Service.
fn has_other_users(document: &ArmLoadBalancer, owners: &NameOwners<()>, frontend: &str) -> bool {
    let end = format!("/frontendipconfigurations/{}", frontend.to_ascii_lowercase());
    let uses = draft::frontend_uses(document);
    let mut users = uses.iter().filter(|(id, _)| id.to_ascii_lowercase().ends_with(&end)).map(|(_, user)| user);
    users.any(|user| !user.is_rule() || !is_orphaned(&user.name, owners))
}

/// Returns the unused pools of single Services that do not exist. Only where there are several load balancers do Services own pools.
///
/// A name does not prove ownership, so pools that a rule leads to are omitted.
fn unused_pools(document: &ArmLoadBalancer, services: &[ServiceIdentity], settings: &LoadBalancerSettings) -> Vec<String> {
    if !settings.has_entries() {
        return Vec::new();
    }
    let Some(properties) = &document.properties else { return Vec::new() };
    let own: BTreeSet<String> =
        services.iter().flat_map(|service| IpFamily::ALL.map(|family| naming::own_pool(service, family))).collect();
    let rules = draft::rules(document).iter().filter_map(|rule| rule.properties.as_ref());
    let mut used: BTreeSet<String> = rules.map(|rule| reference_key(rule.backend_address_pool.as_ref())).collect();
    let outbound = properties.outbound_rules.iter().flatten().filter_map(|rule| rule.properties.as_ref());
    used.extend(outbound.map(|rule| reference_key(rule.backend_address_pool.as_ref())));
    let is_used = |name: &str| used.iter().any(|id| id.ends_with(&format!("/{}", name.to_ascii_lowercase())));
    let names = draft::pools(document).iter().filter_map(|pool| pool.name.clone());
    names.filter(|name| !settings.shares_pool(name) && !own.contains(&name.to_lowercase()) && !is_used(name)).collect()
}

/// Returns the rules that lead only to addresses that no part of the cluster has.
fn security_rules_of_nobody(input: &OwnershipInput<'_>, owners: &NameOwners<()>) -> Vec<OwnerlessPart> {
    let observed = input.observed;
    let Some(group) = &observed.security_group else { return Vec::new() };
    let Some(id) = group.id.as_deref().and_then(|id| ResourceId::parse(id).ok()) else { return Vec::new() };
    let mut known = input.addresses.clone();
    let owned = observed.public_ips.iter().filter(|pip| !is_of_nobody(pip, input, owners));
    known.extend(owned.filter_map(public_ips::address_of));
    let frontends = observed.load_balancers.iter().flat_map(draft::frontends);
    let kept = frontends.filter(|part| !is_orphaned(part.name.as_deref().unwrap_or_default(), owners));
    let private = kept.filter_map(|part| part.properties.as_ref()?.private_ip_address.as_deref()?.parse().ok());
    known.extend(private.collect::<Vec<IpAddr>>());
    let stale = security_rules::managed_rules(group).into_iter().filter(|(_, to)| !to.is_empty() && to.is_disjoint(&known));
    stale.map(|(name, _)| unnamed_part(OwnerlessKind::SecurityRule, &id.child("securityRules", &name))).collect()
}

/// Returns the private link services whose owner does not exist.
///
/// A private link service in front of a frontend of an existing Service carries the traffic of that Service. It is omitted, whatever its
/// tag contains.
fn private_links(input: &OwnershipInput<'_>, owners: &NameOwners<()>) -> Vec<OwnerlessPart> {
    let is_used = |link: &PrivateLinkService| {
        let mut names = link.frontends().filter_map(|id| id.rsplit('/').next());
        names.any(|name| !is_orphaned(name, owners))
    };
    let links = input.observed.private_links.services.iter();
    let clusters = links.filter(|link| is_clusters(link.tags.as_ref(), input.settings) && !is_used(link));
    let part = |link: &PrivateLinkService| {
        let owner =
            tag(link.tags.as_ref(), OWNER_TAG).filter(|owner| !owner.is_empty() && !exists(input.services, owner))?;
        let (kind, services) = (OwnerlessKind::PrivateLinkService, vec![owner.to_owned()]);
        Some(OwnerlessPart { kind, id: link.id.clone()?, services })
    };
    clusters.filter_map(part).collect()
}

/// Returns `true` if the public IP lists only Services that do not exist, and serves no existing Service.
fn is_of_nobody(pip: &PublicIpAddress, input: &OwnershipInput<'_>, owners: &NameOwners<()>) -> bool {
    let listed = public_ips::services_of_clusters(pip, &input.settings.cluster);
    !listed.is_empty() && !listed.iter().any(|key| exists(input.services, key)) && !has_rules(pip, input.observed, owners)
}

/// Returns `true` if a rule of a Service uses the frontend of the public IP. The tag of the public IP may have no room for that Service.
fn has_rules(pip: &PublicIpAddress, observed: &ObservedNetwork, owners: &NameOwners<()>) -> bool {
    let reference = pip.properties.as_ref().and_then(|properties| properties.ip_configuration.as_ref());
    let Some(frontend) = reference.and_then(SubResource::resource_id) else { return false };
    let mut uses = observed.load_balancers.iter().flat_map(draft::frontend_uses);
    uses.any(|(id, user)| id == frontend.key() && user.is_rule() && owners.of_rule(&user.name).is_some())
}

fn public_ips_of_nobody(input: &OwnershipInput<'_>, owners: &NameOwners<()>) -> Vec<OwnerlessPart> {
    let gone = input.observed.public_ips.iter().filter(|pip| is_of_nobody(pip, input, owners));
    let part = |pip: &PublicIpAddress| {
        let services = public_ips::services_of_clusters(pip, &input.settings.cluster);
        let services = services.into_iter().map(str::to_owned).collect();
        Some(OwnerlessPart { kind: OwnerlessKind::PublicIp, id: pip.id.clone()?, services })
    };
    gone.filter_map(part).collect()
}

#[cfg(test)]
mod tests;
