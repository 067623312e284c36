//! Limits: of rules and frontends by SKU, of rules on one network interface, of entries in a security group, of private link
//! services on one load balancer.
//!
//! Recorded: the code and text for frontends (colemickens/azure-kubernetes-status#6), the text for interfaces
//! (MicrosoftDocs/azure-docs#47423), the code for pools of addresses. The other codes end as Azure's codes of limits do.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Candidate, load_balancer::is_standard, private_link_service::balancers_of, security_group, text};
use crate::{
    providers::azure::model::ResourceId,
    sandbox::azure::{limits::LoadBalancerLimits, references::made_by, refusal::Refusal, shape, store::Store},
};

const LOAD_BALANCERS: &str = "microsoft.network/loadbalancers";
const INTERFACES: &str = "microsoft.network/networkinterfaces";
const INSTANCES: &str = "microsoft.compute/virtualmachinescalesets/virtualmachines";
const INSTANCE_INTERFACES: &str = "microsoft.compute/virtualmachinescalesets/virtualmachines/networkinterfaces";
const SECURITY_GROUPS: &str = "microsoft.network/networksecuritygroups";
const SERVICES: &str = "microsoft.network/privatelinkservices";

pub(super) fn check(candidate: Candidate<'_>, limits: &LoadBalancerLimits) -> Result<(), Refusal> {
    match candidate.id.resource_type().to_ascii_lowercase().as_str() {
        LOAD_BALANCERS => {
            check_parts(candidate, limits)?;
            check_interfaces(candidate, limits)
        }
        INTERFACES | INSTANCES | INSTANCE_INTERFACES => check_interfaces(candidate, limits),
        SECURITY_GROUPS => security_group::check_lists(candidate, limits.security_group_addresses),
        SERVICES => check_services(candidate, limits),
        _ => Ok(()),
    }
}

fn check_parts(candidate: Candidate<'_>, limits: &LoadBalancerLimits) -> Result<(), Refusal> {
    let most = limits.of_sku(is_standard(candidate.body));
    let count = |list: &str| shape::parts(candidate.body, list).count();
    if count("frontendIPConfigurations") > most.frontends {
        let message = format!("A load balancer cannot have more than {} FrontendIPConfigurations.", most.frontends);
        return Err(Refusal::invalid("LoadBalancerFrontendIPConfigurationCountLimitReached", message));
    }
    let rules: usize = ["loadBalancingRules", "inboundNatRules", "outboundRules"].iter().map(|list| count(list)).sum();
    if rules > most.rules {
        let message = format!("Load balancer {} has {rules} rules; no more than {} are allowed.", candidate.id, most.rules);
        return Err(Refusal::invalid("LoadBalancingRuleCountLimitReached", message));
    }
    Ok(())
}

/// Checks that no interface to which this write adds rules exceeds the limit. Interfaces that already exceed it do not block
/// other writes.
fn check_interfaces(candidate: Candidate<'_>, limits: &LoadBalancerLimits) -> Result<(), Refusal> {
    let Some(most) = limits.rules_per_interface else { return Ok(()) };
    let key = candidate.id.key();
    let before = rule_load(candidate.store, None);
    let after = rule_load(candidate.store, Some((&key, candidate.body)));
    let grown = |owner: &str, count: usize| before.get(owner).is_none_or(|before| *before < count);
    match after.iter().find(|(owner, count)| **count > most && grown(owner, **count)) {
        Some((owner, _)) => {
            let message =
                format!("IpConfiguration {owner} cannot have more than {most} NAT or load balancing rules combined.");
            Err(Refusal::invalid("LoadBalancingRulesPerNetworkInterfaceCountLimitReached", message))
        }
        None => Ok(()),
    }
}

/// Key and body of the document that is being written.
type Changed<'a> = Option<(&'a str, &'a Value)>;

/// Returns how many rules reach each interface, by the key of the instance or interface; by address without one. `changed`
/// replaces the document of its key.
fn rule_load(store: &Store, changed: Changed<'_>) -> BTreeMap<String, usize> {
    let balancers = balancers(store, changed);
    let rules = rules_by_pool(&balancers);
    let mut load = BTreeMap::new();
    for (pool, count) in &rules {
        members(store, pool, changed).into_iter().for_each(|owner| *load.entry(owner).or_default() += count);
    }
    let mut owners = None;
    for pool in balancers.values().flat_map(|body| shape::parts(body, "backendAddressPools")) {
        let Some(count) = rules.get(&text(pool, "id").to_ascii_lowercase()) else { continue };
        for address in shape::parts(pool, "loadBalancerBackendAddresses") {
            let Some(address) = address["properties"]["ipAddress"].as_str() else { continue };
            let owners = owners.get_or_insert_with(|| owners_of_addresses(store));
            let owner = owners.get(address).cloned().unwrap_or_else(|| address.to_owned());
            *load.entry(owner).or_default() += count;
        }
    }
    load
}

fn balancers<'a>(store: &'a Store, changed: Changed<'a>) -> BTreeMap<&'a str, &'a Value> {
    let stored = store.of_type(LOAD_BALANCERS).map(|(key, document)| (key.as_str(), &*document.body));
    let mut found: BTreeMap<&str, &Value> = stored.collect();
    let is_balancer = |key: &str| ResourceId::parse(key).is_ok_and(|id| id.is_type("Microsoft.Network/loadBalancers"));
    found.extend(changed.filter(|(key, _)| is_balancer(key)));
    found
}

fn rules_by_pool(balancers: &BTreeMap<&str, &Value>) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for rule in balancers.values().flat_map(|body| shape::parts(body, "loadBalancingRules")) {
        let many = rule["properties"]["backendAddressPools"].as_array().into_iter().flatten();
        let pools: BTreeSet<String> = many
            .chain([&rule["properties"]["backendAddressPool"]])
            .filter_map(|pool| pool["id"].as_str().map(str::to_ascii_lowercase))
            .collect();
        pools.into_iter().for_each(|pool| *found.entry(pool).or_default() += 1);
    }
    found
}

/// Returns the owners of the IP configurations in a pool, each as often as it has one.
fn members(store: &Store, pool: &str, changed: Changed<'_>) -> Vec<String> {
    let writes = changed.map(|(key, _)| owner(key)).unwrap_or_default();
    let mut found: Vec<String> = store
        .referrers(pool)
        .filter(|referrer| is_interface(&referrer.document))
        .map(|referrer| owner(&referrer.document))
        .filter(|owner| *owner != writes)
        .collect();
    let (key, body) = changed.unwrap_or(("", &Value::Null));
    if !key.is_empty() && kind(key) != LOAD_BALANCERS {
        found.extend(made_by(key, body).into_iter().filter(|(target, _)| target == pool).map(|_| owner(key)));
    }
    found
}

fn kind(key: &str) -> String {
    ResourceId::parse(key).map(|id| id.resource_type().to_ascii_lowercase()).unwrap_or_default()
}

fn is_interface(key: &str) -> bool {
    matches!(kind(key).as_str(), INTERFACES | INSTANCE_INTERFACES)
}

/// Returns the instance of a scale set that an interface is of, or else the interface.
fn owner(key: &str) -> String {
    let interface = ResourceId::parse(key).ok().filter(|_| kind(key) == INSTANCE_INTERFACES);
    interface.and_then(|id| id.parent()).map_or_else(|| key.to_owned(), |instance| instance.key())
}

fn owners_of_addresses(store: &Store) -> BTreeMap<String, String> {
    let interfaces = [INTERFACES, INSTANCE_INTERFACES].into_iter().flat_map(|kind| store.of_type(kind));
    interfaces
        .flat_map(|(key, document)| shape::parts(&document.body, "ipConfigurations").map(move |part| (key, part)))
        .filter_map(|(key, part)| Some((part["properties"]["privateIPAddress"].as_str()?.to_owned(), owner(key))))
        .collect()
}

fn check_services(candidate: Candidate<'_>, limits: &LoadBalancerLimits) -> Result<(), Refusal> {
    let key = candidate.id.key();
    for balancer in balancers_of(candidate.body) {
        let others: BTreeSet<&str> = candidate
            .store
            .of_type(SERVICES)
            .filter(|(other, document)| **other != key && balancers_of(&document.body).contains(&balancer))
            .map(|(other, _)| other.as_str())
            .collect();
        if limits.private_link_services.is_some_and(|most| others.len() >= most) {
            let message = format!("Load balancer {balancer} has {} private link services already.", others.len());
            return Err(Refusal::invalid("PrivateLinkServicesPerLoadBalancerCountLimitReached", message));
        }
    }
    Ok(())
}
