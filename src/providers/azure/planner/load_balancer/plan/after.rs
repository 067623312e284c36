//! Documents as they will be once a part of a plan is written: clones of the observed ones, without the fields that only ARM sets. Pure.
//!
//! In: the observed state, and a part of a plan. Out: the documents that the next part is planned on. Public IPs that a plan deletes
//! remain in them, because they are deleted last.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    super::{
        desired::load_balancers::LoadBalancerWrite,
        observed::ObservedNetwork,
        pools::{member_resource::key_of_entry, member_updates::PoolMemberUpdate},
    },
    network::NetworkPlan,
    pools::{PoolChangeKind, PoolPlan},
};
use crate::providers::azure::model::{
    ResourceId,
    document::SubResource,
    network::{ArmLoadBalancer, BackendAddressPool, PublicIpAddress},
};

/// Returns `observed` with the public IPs and load balancers that `plan` writes, and without the documents that are deleted before or
/// with them.
pub fn after_network(observed: &ObservedNetwork, plan: &NetworkPlan) -> ObservedNetwork {
    let mut after = observed.clone();
    write_public_ips(&mut after.public_ips, plan);
    plan.remove_deleted(&mut after);
    for change in &plan.load_balancers.changes {
        match &change.write {
            LoadBalancerWrite::Delete => after.load_balancers.retain(|known| !known.is(&change.id)),
            LoadBalancerWrite::Put(document) => {
                let document = ArmLoadBalancer {
                    id: Some(change.id.as_str().to_owned()),
                    name: document.name.clone().or_else(|| Some(change.id.name().to_owned())),
                    ..document.as_ref().clone()
                };
                match after.load_balancers.iter_mut().find(|known| known.is(&change.id)) {
                    Some(known) => *known = document,
                    None => after.load_balancers.push(document),
                }
            }
        }
    }
    after
}

/// Replaces the documents in place and appends new ones.
fn write_public_ips(public_ips: &mut Vec<PublicIpAddress>, plan: &NetworkPlan) {
    if plan.public_ips.writes.is_empty() {
        return;
    }
    let mut writes: HashMap<String, PublicIpAddress> = HashMap::new();
    for change in &plan.public_ips.writes {
        let document = PublicIpAddress { id: Some(change.id.as_str().to_owned()), ..change.document.clone() };
        writes.insert(change.id.key(), document);
    }
    for public_ip in public_ips.iter_mut() {
        let written = public_ip.id.as_deref().and_then(|id| writes.remove(&id.to_ascii_lowercase()));
        written.into_iter().for_each(|document| *public_ip = document);
    }
    public_ips.extend(plan.public_ips.writes.iter().filter_map(|change| writes.remove(&change.id.key())));
}

/// Changes the pools in `after` to the members and addresses that `plan` writes.
pub fn apply_pools(after: &mut ObservedNetwork, plan: &PoolPlan) {
    let mut leaving: BTreeMap<&ResourceId, HashSet<String>> = BTreeMap::new();
    for change in &plan.changes {
        let PoolChangeKind::Member(update) = &change.kind else { continue };
        for pool in &update.patch.leave {
            leaving.entry(pool).or_default().insert(update.resource.key());
        }
    }
    leaving.into_iter().for_each(|(pool, members)| remove_members(after, pool, &members));
    for change in &plan.changes {
        match &change.kind {
            PoolChangeKind::Pool(document) => {
                if let Some(pool) = find_pool(after, &change.id) {
                    *pool = document.as_ref().clone();
                }
            }
            PoolChangeKind::Member(update) => add_member(after, update),
            PoolChangeKind::Model(_) | PoolChangeKind::Migration(_) => {}
        }
    }
}

fn find_pool<'a>(after: &'a mut ObservedNetwork, id: &ResourceId) -> Option<&'a mut BackendAddressPool> {
    let balancer = id.parent()?;
    let document = after.load_balancers.iter_mut().find(|known| known.is(&balancer))?;
    let mut pools = document.properties_mut().backend_address_pools.iter_mut().flatten();
    pools.find(|pool| pool.name_is(id.name()))
}

/// Removes all `members` from a pool in one pass over its entries, because many members may leave at once.
fn remove_members(after: &mut ObservedNetwork, pool: &ResourceId, members: &HashSet<String>) {
    let Some(properties) = find_pool(after, pool).and_then(|pool| pool.properties.as_mut()) else { return };
    if let Some(entries) = &mut properties.backend_ip_configurations {
        entries.retain(|entry| !entry.id.as_deref().and_then(key_of_entry).is_some_and(|key| members.contains(&key)));
    }
}

fn add_member(after: &mut ObservedNetwork, update: &PoolMemberUpdate) {
    for id in &update.patch.join {
        let Some(pool) = find_pool(after, id) else { continue };
        let entry = SubResource { id: Some(update.resource.ip_configuration()), ..SubResource::default() };
        pool.properties.get_or_insert_default().backend_ip_configurations.get_or_insert_default().push(entry);
    }
}
