//! What there will be when a part of a plan is written: on clones, without what only ARM can fill in. Pure.
//!
//! In: what there is, and a part of a plan. Out: the documents that the next part is planned on. Public IPs that can go are still there:
//! they are deleted last.

use super::{
    super::{
        desired::load_balancers::LoadBalancerWrite,
        observed::ObservedNetwork,
        pools::{member_resource::key_of_entry, member_updates::PoolMemberUpdate},
    },
    network::NetworkPlan,
    pools::{PoolChangeKind, PoolPlan},
};
use crate::providers::azure::arm::{
    ResourceId,
    document::SubResource,
    network::{ArmLoadBalancer, BackendAddressPool, PublicIpAddress},
};

fn is_id(id: Option<&str>, wanted: &ResourceId) -> bool {
    id.is_some_and(|id| id.eq_ignore_ascii_case(wanted.as_str()))
}

/// With the public IPs and load balancers as they will be.
pub fn after_network(observed: &ObservedNetwork, plan: &NetworkPlan) -> ObservedNetwork {
    let mut after = observed.clone();
    for change in &plan.public_ips.writes {
        let document = PublicIpAddress { id: Some(change.id.as_str().to_owned()), ..change.document.clone() };
        match after.public_ips.iter_mut().find(|known| is_id(known.id.as_deref(), &change.id)) {
            Some(known) => *known = document,
            None => after.public_ips.push(document),
        }
    }
    for change in &plan.load_balancers.changes {
        match &change.write {
            LoadBalancerWrite::Delete => after.load_balancers.retain(|known| !is_id(known.id.as_deref(), &change.id)),
            LoadBalancerWrite::Put(document) => {
                let document = ArmLoadBalancer {
                    id: Some(change.id.as_str().to_owned()),
                    name: document.name.clone().or_else(|| Some(change.id.name().to_owned())),
                    ..document.as_ref().clone()
                };
                match after.load_balancers.iter_mut().find(|known| is_id(known.id.as_deref(), &change.id)) {
                    Some(known) => *known = document,
                    None => after.load_balancers.push(document),
                }
            }
        }
    }
    after
}

/// And with the members of pools as they will be.
pub fn apply_pools(after: &mut ObservedNetwork, plan: &PoolPlan) {
    for change in &plan.changes {
        match &change.kind {
            PoolChangeKind::Pool(document) => {
                if let Some(pool) = find_pool(after, &change.id) {
                    *pool = document.as_ref().clone();
                }
            }
            PoolChangeKind::Member(update) => apply_member(after, update),
            PoolChangeKind::Model => {}
        }
    }
}

fn find_pool<'a>(after: &'a mut ObservedNetwork, id: &ResourceId) -> Option<&'a mut BackendAddressPool> {
    let balancer = id.parent()?;
    let document = after.load_balancers.iter_mut().find(|known| is_id(known.id.as_deref(), &balancer))?;
    let mut pools = document.properties.as_mut()?.backend_address_pools.iter_mut().flatten();
    pools.find(|pool| pool.name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(id.name())))
}

fn apply_member(after: &mut ObservedNetwork, update: &PoolMemberUpdate) {
    let key = update.resource.key();
    for id in &update.patch.leave {
        let Some(properties) = find_pool(after, id).and_then(|pool| pool.properties.as_mut()) else { continue };
        if let Some(entries) = &mut properties.backend_ip_configurations {
            entries.retain(|entry| entry.id.as_deref().and_then(key_of_entry).as_ref() != Some(&key));
        }
    }
    for id in &update.patch.join {
        let Some(pool) = find_pool(after, id) else { continue };
        let entry = SubResource { id: Some(update.resource.ip_configuration()), ..SubResource::default() };
        pool.properties.get_or_insert_default().backend_ip_configurations.get_or_insert_default().push(entry);
    }
}
