//! Parts of Azure's documents that carry the cluster's marks and belong to no Service that exists. Pure.
//!
//! In: the documents, every Service of the cluster whatever its type, and addresses of Nodes. Out: an [`OwnerlessPart`] each. Whose a part is
//! the planner's own rules say: tags of public IPs and private link services, names of everything else. The manager plans for Services that
//! exist, so it never touches these parts.

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
    private_link_tags::{OWNER_TAG, is_clusters, tag},
    public_ips,
    rules::reference_key,
    security_rules,
};
use crate::providers::azure::arm::{
    ResourceId,
    document::SubResource,
    network::{ArmLoadBalancer, PublicIpAddress},
    private_link::PrivateLinkService,
    spelling,
};

/// A part without an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerlessPart {
    pub kind: OwnerlessKind,
    pub id: String,
    /// The Services that it names; none of them exists.
    pub services: Vec<String>,
}

/// What it is, in the order in which it can be removed: what uses another part comes before that part.
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

/// What decides.
pub struct OwnershipInput<'a> {
    pub observed: &'a ObservedNetwork,
    /// Those of the load balancers that are the cluster's.
    pub managed: Vec<&'a ArmLoadBalancer>,
    /// Every Service of the cluster.
    pub services: &'a [ServiceIdentity],
    /// Where Nodes and Services can be reached.
    pub addresses: &'a BTreeSet<IpAddr>,
    pub settings: &'a LoadBalancerSettings,
}

/// Everything that belongs to nobody, in the order in which it can be removed.
pub fn ownerless(input: &OwnershipInput<'_>) -> Vec<OwnerlessPart> {
    let OwnershipInput { observed, managed, services, addresses, settings } = input;
    let owners = NameOwners::new(services.iter().map(|service| (service, ())));
    let mut parts: Vec<OwnerlessPart> = managed
        .iter()
        .flat_map(|document| of_load_balancer(document, &owners, services, settings))
        .chain(security_rules_of_nobody(observed, services, addresses, settings))
        .chain(private_links(observed, services, &owners, settings))
        .chain(public_ips_of_nobody(observed, services, &owners, settings))
        .collect();
    parts.sort_by(|one, other| (one.kind, &one.id).cmp(&(other.kind, &other.id)));
    parts
}

fn is_shared_pool(name: &str, settings: &LoadBalancerSettings) -> bool {
    let shared = [IpFamily::V4, IpFamily::V6].map(|family| naming::pool(&settings.cluster, family));
    shared.iter().any(|known| spelling::same_name(known, name))
}

fn exists(services: &[ServiceIdentity], key: &str) -> bool {
    services.iter().any(|service| spelling::same_name(&service.key, key))
}

fn of_load_balancer(
    document: &ArmLoadBalancer,
    owners: &NameOwners<()>,
    services: &[ServiceIdentity],
    settings: &LoadBalancerSettings,
) -> Vec<OwnerlessPart> {
    let Some(id) = document.id.as_deref().and_then(|id| ResourceId::parse(id).ok()) else { return Vec::new() };
    let part = |kind, list: &str, name: &str| OwnerlessPart {
        kind,
        id: id.child(list, name).as_str().to_owned(),
        services: Vec::new(),
    };
    let is_nobodys = |name: &str| is_generated_name(name) && owners.of_rule(name).is_none();
    let names = draft::rules(document).iter().filter_map(|rule| rule.name.as_deref());
    let rules =
        names.filter(|name| is_nobodys(name)).map(|name| part(OwnerlessKind::LoadBalancingRule, "loadBalancingRules", name));
    let probes = draft::probes(document).iter().filter_map(|probe| probe.name.as_deref());
    let probes = probes.filter(|name| is_nobodys(name) && !is_probed(document, owners, name));
    let probes = probes.map(|name| part(OwnerlessKind::Probe, "probes", name));
    let names = draft::frontends(document).iter().filter_map(|frontend| frontend.name.as_deref());
    let unused = names.filter(|name| is_nobodys(name) && !has_other_users(document, owners, name));
    let frontends = unused.map(|name| part(OwnerlessKind::FrontEnd, "frontendIPConfigurations", name));
    let pools = unused_pools(document, services, settings);
    let pools = pools.into_iter().map(|name| part(OwnerlessKind::BackendPool, "backendAddressPools", &name));
    let balancer = is_empty(document, settings).then(|| OwnerlessPart {
        kind: OwnerlessKind::LoadBalancer,
        id: id.as_str().to_owned(),
        services: Vec::new(),
    });
    rules.chain(probes).chain(frontends).chain(pools).chain(balancer).collect()
}

/// Whether it is one of the cluster's by its name and has no front end, so that nothing can be reached through it. Basic load balancers are
/// called after any set of machines: of these, only those of the cluster's own name count.
fn is_empty(document: &ArmLoadBalancer, settings: &LoadBalancerSettings) -> bool {
    let (external, _) = naming::split_load_balancer(document.name.as_deref().unwrap_or_default());
    let is_own = [settings.cluster.as_str(), settings.primary_name()].iter().any(|own| spelling::same_name(own, external));
    (is_own || settings.has_entry(external)) && draft::frontends(document).is_empty() && draft::rules(document).is_empty()
}

/// Whether a rule that remains uses the probe.
fn is_probed(document: &ArmLoadBalancer, owners: &NameOwners<()>, probe: &str) -> bool {
    let end = format!("/probes/{}", probe.to_ascii_lowercase());
    let remains = |name: &str| !is_generated_name(name) || owners.of_rule(name).is_some();
    let mut rules = draft::rules(document).iter().filter(|rule| remains(rule.name.as_deref().unwrap_or_default()));
    rules.any(|rule| {
        let properties = rule.properties.as_ref();
        properties.is_some_and(|properties| reference_key(properties.probe.as_ref()).ends_with(&end))
    })
}

/// Whether something uses the front end that is not of a Service that is gone: rules of Services that exist, and of others.
fn has_other_users(document: &ArmLoadBalancer, owners: &NameOwners<()>, frontend: &str) -> bool {
    let end = format!("/frontendipconfigurations/{}", frontend.to_ascii_lowercase());
    let uses = draft::frontend_uses(document);
    let mut users = uses.iter().filter(|(id, _)| id.to_ascii_lowercase().ends_with(&end)).map(|(_, user)| user);
    users.any(|user| !user.is_rule() || !is_generated_name(&user.name) || owners.of_rule(&user.name).is_some())
}

/// Among several load balancers, Services have pools for themselves. A name proves no ownership, so one that a rule leads to is left out.
fn unused_pools(document: &ArmLoadBalancer, services: &[ServiceIdentity], settings: &LoadBalancerSettings) -> Vec<String> {
    if !settings.has_entries() {
        return Vec::new();
    }
    let Some(properties) = &document.properties else { return Vec::new() };
    let families = [IpFamily::V4, IpFamily::V6];
    let own: BTreeSet<String> =
        services.iter().flat_map(|service| families.map(|family| naming::own_pool(service, family))).collect();
    let rules = draft::rules(document).iter().filter_map(|rule| rule.properties.as_ref());
    let mut used: BTreeSet<String> = rules.map(|rule| reference_key(rule.backend_address_pool.as_ref())).collect();
    let outbound = properties.outbound_rules.iter().flatten().filter_map(|rule| rule.properties.as_ref());
    used.extend(outbound.map(|rule| reference_key(rule.backend_address_pool.as_ref())));
    let is_used = |name: &str| used.iter().any(|id| id.ends_with(&format!("/{}", name.to_ascii_lowercase())));
    let names = properties.backend_address_pools.iter().flatten().filter_map(|pool| pool.name.clone());
    names.filter(|name| !is_shared_pool(name, settings) && !own.contains(&name.to_lowercase()) && !is_used(name)).collect()
}

/// Rules that lead only to addresses that nothing of the cluster has.
fn security_rules_of_nobody(
    observed: &ObservedNetwork,
    services: &[ServiceIdentity],
    addresses: &BTreeSet<IpAddr>,
    settings: &LoadBalancerSettings,
) -> Vec<OwnerlessPart> {
    let Some(group) = &observed.security_group else { return Vec::new() };
    let Some(id) = group.id.as_deref().and_then(|id| ResourceId::parse(id).ok()) else { return Vec::new() };
    let owners = NameOwners::new(services.iter().map(|service| (service, ())));
    let mut known = addresses.clone();
    known.extend(
        observed
            .public_ips
            .iter()
            .filter(|pip| !is_of_nobody(pip, observed, services, &owners, settings))
            .filter_map(public_ips::address_of),
    );
    let frontends = observed.load_balancers.iter().flat_map(draft::frontends);
    let kept = frontends.filter(|part| {
        let name = part.name.as_deref().unwrap_or_default();
        !is_generated_name(name) || owners.of_rule(name).is_some()
    });
    let private = kept.filter_map(|part| part.properties.as_ref()?.private_ip_address.as_deref()?.parse().ok());
    known.extend(private.collect::<Vec<IpAddr>>());
    let stale = security_rules::managed_rules(group).into_iter().filter(|(_, to)| !to.is_empty() && to.is_disjoint(&known));
    let part = |(name, _): (String, _)| OwnerlessPart {
        kind: OwnerlessKind::SecurityRule,
        id: id.child("securityRules", &name).as_str().to_owned(),
        services: Vec::new(),
    };
    stale.map(part).collect()
}

/// Private link services whose owner does not exist. One in front of a frontend of a Service that exists carries its traffic, whatever its tag says.
fn private_links(
    observed: &ObservedNetwork,
    services: &[ServiceIdentity],
    owners: &NameOwners<()>,
    settings: &LoadBalancerSettings,
) -> Vec<OwnerlessPart> {
    let is_used = |link: &PrivateLinkService| {
        let mut names = link.frontends().filter_map(|id| id.rsplit('/').next());
        names.any(|name| !is_generated_name(name) || owners.of_rule(name).is_some())
    };
    let clusters = observed.private_links.services.iter().filter(|link| is_clusters(link, settings) && !is_used(link));
    let part = |link: &PrivateLinkService| {
        let owner = tag(link.tags.as_ref(), OWNER_TAG).filter(|owner| !owner.is_empty() && !exists(services, owner))?;
        let (kind, services) = (OwnerlessKind::PrivateLinkService, vec![owner.to_owned()]);
        Some(OwnerlessPart { kind, id: link.id.clone()?, services })
    };
    clusters.filter_map(part).collect()
}

/// Returns `true` if the public IP lists only Services that do not exist, and serves no other one.
fn is_of_nobody(
    pip: &PublicIpAddress,
    observed: &ObservedNetwork,
    services: &[ServiceIdentity],
    owners: &NameOwners<()>,
    settings: &LoadBalancerSettings,
) -> bool {
    let listed = public_ips::services_of_clusters(pip, &settings.cluster);
    !listed.is_empty() && !listed.iter().any(|key| exists(services, key)) && !has_rules(pip, observed, owners)
}

/// Returns `true` if a rule of a Service uses the frontend of the public IP, whose tag may have no room for the Service.
fn has_rules(pip: &PublicIpAddress, observed: &ObservedNetwork, owners: &NameOwners<()>) -> bool {
    let reference = pip.properties.as_ref().and_then(|properties| properties.ip_configuration.as_ref());
    let Some(frontend) = reference.and_then(SubResource::resource_id) else { return false };
    let mut uses = observed.load_balancers.iter().flat_map(draft::frontend_uses);
    uses.any(|(id, user)| id == frontend.key() && user.is_rule() && owners.of_rule(&user.name).is_some())
}

fn public_ips_of_nobody(
    observed: &ObservedNetwork,
    services: &[ServiceIdentity],
    owners: &NameOwners<()>,
    settings: &LoadBalancerSettings,
) -> Vec<OwnerlessPart> {
    let gone = observed.public_ips.iter().filter(|pip| is_of_nobody(pip, observed, services, owners, settings));
    let part = |pip: &PublicIpAddress| {
        let services = public_ips::services_of_clusters(pip, &settings.cluster);
        let services = services.into_iter().map(str::to_owned).collect();
        Some(OwnerlessPart { kind: OwnerlessKind::PublicIp, id: pip.id.clone()?, services })
    };
    gone.filter_map(part).collect()
}

#[cfg(test)]
mod tests;
