//! Documents to write so that pools have other members, with the reasons for people. Pure.

use std::collections::BTreeSet;

use super::super::super::{
    desired::{LAST_CHANGE_FAILED, pool_members::node_ip_configuration::PoolMembershipPatch},
    pools::member_updates::{LeaveReason, PoolMemberUpdate},
};
use crate::providers::azure::model::{
    ResourceId,
    network::{BackendAddress, BackendAddressPool},
};

/// Content of a write that changes the members of pools.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolChangeKind {
    /// Conversion of interfaces into addresses by ARM, in these pools (by name) of a load balancer: `POST migrateToIpBased`.
    Migration(Vec<String>),
    /// Model of a scale set, which new instances follow.
    Model(PoolMembershipPatch),
    /// Pools of an instance or of a network interface.
    Member(Box<PoolMemberUpdate>),
    /// Backend pool with the addresses that it lists.
    Pool(Box<BackendAddressPool>),
}

impl PoolChangeKind {
    /// Returns `true` if both changes have the same result. Documents of pools may have different versions.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pool(document), Self::Pool(other)) => listed(document) == listed(other),
            _ => self == other,
        }
    }
}

/// Change of one document.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolChange {
    pub id: ResourceId,
    pub kind: PoolChangeKind,
    /// Reasons for people, one line each.
    pub reasons: Vec<String>,
}

/// Returns the pools as `<load balancer>/<pool>`, separated by commas.
fn names(pools: &[ResourceId]) -> String {
    let name = |pool: &ResourceId| {
        format!("{}/{}", pool.parent().map(|parent| parent.name().to_owned()).unwrap_or_default(), pool.name())
    };
    pools.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Largest number of entries of a pool that one sentence names. A pool may have thousands.
const MAX_NAMED: usize = 10;

/// Returns the first names, and the number of omitted names.
fn first_names(names: &[&str]) -> String {
    let named = names[..names.len().min(MAX_NAMED)].join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

impl PoolChange {
    /// Returns the migration of pools of a load balancer to addresses.
    pub fn of_migration(load_balancer: ResourceId, pools: Vec<String>) -> Self {
        let reason = format!("pools {} list addresses from now on", pools.join(", "));
        Self::new(load_balancer, PoolChangeKind::Migration(pools), vec![reason])
    }

    /// Returns the write of a scale set's model. `why`: reason why new instances leave pools, if they do.
    pub fn of_model(id: ResourceId, patch: PoolMembershipPatch, why: &LeaveReason) -> Self {
        let joins = (!patch.join.is_empty()).then(|| format!("new instances begin in {}", names(&patch.join)));
        let leaves = (!patch.leave.is_empty()).then(|| format!("new instances leave {}: {why}", names(&patch.leave)));
        let reasons = joins.into_iter().chain(leaves).collect();
        Self::new(id, PoolChangeKind::Model(patch), reasons)
    }

    /// Returns the write of an instance or an interface.
    pub fn of_member(update: PoolMemberUpdate) -> Self {
        let machine = if update.node.is_empty() { "its machine".to_owned() } else { format!("Node {}", update.node) };
        let PoolMembershipPatch { join, leave, .. } = &update.patch;
        let joins = (!join.is_empty()).then(|| format!("{machine} joins {}", names(join)));
        let leaves = (!leave.is_empty()).then(|| format!("{machine} leaves {}: {}", names(leave), update.leave_reason));
        let reasons = joins.into_iter().chain(leaves).collect();
        Self::new(update.resource.id().clone(), PoolChangeKind::Member(Box::new(update)), reasons)
    }

    /// Returns the write of a pool whose entries differ from those of `before`.
    pub fn of_pool(id: ResourceId, before: &BackendAddressPool, document: BackendAddressPool) -> Self {
        let (before, after) = (listed(before), listed(&document));
        let of = |names: &BTreeSet<String>, others: &BTreeSet<String>, verb: &str| {
            let names: Vec<&str> = names.difference(others).map(String::as_str).collect();
            (!names.is_empty()).then(|| format!("{} {verb}", first_names(&names)))
        };
        let mut reasons: Vec<String> =
            of(&after, &before, "joins").into_iter().chain(of(&before, &after, "leaves")).collect();
        if reasons.is_empty() {
            reasons.push("its entries are put in order".to_owned());
        }
        Self::new(id, PoolChangeKind::Pool(Box::new(document)), reasons)
    }

    /// Returns the change without the parts that leave or write these pools; `None` if no part remains.
    pub fn without(&self, pools: &BTreeSet<ResourceId>) -> Option<Self> {
        let trimmed = |patch: &PoolMembershipPatch| {
            let leave: Vec<_> = patch.leave.iter().filter(|pool| !pools.contains(pool)).cloned().collect();
            let is_left = patch.last_write_failed || !leave.is_empty() || !patch.join.is_empty();
            is_left.then(|| PoolMembershipPatch { leave, ..patch.clone() })
        };
        let kind = match &self.kind {
            PoolChangeKind::Migration(_) => self.kind.clone(),
            PoolChangeKind::Model(patch) => PoolChangeKind::Model(trimmed(patch)?),
            PoolChangeKind::Member(update) => {
                let patch = trimmed(&update.patch)?;
                PoolChangeKind::Member(Box::new(PoolMemberUpdate { patch, ..update.as_ref().clone() }))
            }
            PoolChangeKind::Pool(_) => (!pools.contains(&self.id)).then(|| self.kind.clone())?,
        };
        Some(Self { kind, ..self.clone() })
    }

    /// Returns the name of the Node whose machine changes, or the id of the document.
    pub fn name(&self) -> &str {
        match &self.kind {
            PoolChangeKind::Member(update) if !update.node.is_empty() => &update.node,
            _ => self.id.as_str(),
        }
    }

    /// Returns `true` if the change removes a machine that no Node claims.
    pub(super) fn is_of_orphan(&self) -> bool {
        matches!(&self.kind, PoolChangeKind::Member(update) if update.leave_reason == LeaveReason::Orphan)
    }

    fn patch(&self) -> Option<&PoolMembershipPatch> {
        match &self.kind {
            PoolChangeKind::Model(patch) => Some(patch),
            PoolChangeKind::Member(update) => Some(&update.patch),
            PoolChangeKind::Pool(_) | PoolChangeKind::Migration(_) => None,
        }
    }

    /// Returns `true` if `pool` has members after this write.
    pub fn fills(&self, pool: &ResourceId) -> bool {
        match &self.kind {
            PoolChangeKind::Member(update) => update.patch.join.contains(pool),
            PoolChangeKind::Pool(_) => self.id == *pool,
            PoolChangeKind::Migration(names) => {
                pool.parent().as_ref() == Some(&self.id) && names.iter().any(|name| name == pool.name())
            }
            PoolChangeKind::Model(_) => false,
        }
    }

    /// Returns the load balancers whose pools this change fills.
    pub fn load_balancers(&self) -> Vec<ResourceId> {
        match &self.kind {
            PoolChangeKind::Member(update) => update.patch.join.iter().filter_map(ResourceId::parent).collect(),
            PoolChangeKind::Pool(_) => self.id.parent().into_iter().collect(),
            PoolChangeKind::Migration(_) => vec![self.id.clone()],
            PoolChangeKind::Model(_) => Vec::new(),
        }
    }

    /// Returns `true` if the change adds machines to `pool`, now or later.
    pub(super) fn joins(&self, pool: &ResourceId) -> bool {
        self.fills(pool) || self.patch().is_some_and(|patch| patch.join.contains(pool))
    }

    /// Returns `true` if the change removes machines from `pool`, now or later.
    pub(super) fn leaves(&self, pool: &ResourceId) -> bool {
        self.patch().is_some_and(|patch| patch.leave.contains(pool))
    }

    /// Returns the change with an additional reason, if there is one.
    #[must_use]
    pub fn because(mut self, why: Option<String>) -> Self {
        self.reasons.extend(why);
        self
    }

    /// Returns a change. Without a reason, the change repeats a write that ARM has not carried out.
    fn new(id: ResourceId, kind: PoolChangeKind, mut reasons: Vec<String>) -> Self {
        if reasons.is_empty() {
            reasons.push(LAST_CHANGE_FAILED.to_owned());
        }
        Self { id, kind, reasons }
    }
}

/// Returns the entries of a pool as operators identify them: name and address.
fn listed(pool: &BackendAddressPool) -> BTreeSet<String> {
    let entries = pool.properties.iter().flat_map(|properties| properties.load_balancer_backend_addresses.iter().flatten());
    let of_entry = |entry: &BackendAddress| {
        let address = entry.properties.as_ref()?.ip_address.clone()?;
        Some(entry.name.as_ref().map_or(address.clone(), |name| format!("{name} ({address})")))
    };
    entries.filter_map(of_entry).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sentence_about_a_pool_names_the_first_entries_and_counts_the_rest() {
        let pool = |addresses: u8| -> BackendAddressPool {
            let entry = |last: u8| json!({"properties": {"ipAddress": format!("10.0.0.{}", 100 + last)}});
            let entries: Vec<_> = (0..addresses).map(entry).collect();
            serde_json::from_value(json!({"properties": {"loadBalancerBackendAddresses": entries}})).unwrap()
        };
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/l/backendAddressPools/p";
        let reasons =
            |before, after| PoolChange::of_pool(ResourceId::parse(id).unwrap(), &pool(before), pool(after)).reasons;
        let first: Vec<String> = (100..110).map(|last| format!("10.0.0.{last}")).collect();
        assert_eq!(reasons(0, 10), [format!("{} joins", first.join(", "))]);
        assert_eq!(reasons(0, 13), [format!("{} and 3 more joins", first.join(", "))]);
        assert_eq!(reasons(15, 14), ["10.0.0.114 leaves"]);
    }

    #[test]
    fn a_pool_that_was_not_migrated_keeps_its_members() {
        let balancer = |name: &str| {
            let id = format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/{name}");
            ResourceId::parse(&id).unwrap()
        };
        let pool = |name: &str| balancer(name).child("backendAddressPools", "kubernetes");
        let set = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/v";
        let leaves = |names: &[&str], last_write_failed| {
            let leave = names.iter().map(|name| pool(name)).collect();
            let patch = PoolMembershipPatch { leave, last_write_failed, ..PoolMembershipPatch::default() };
            PoolChange::of_model(ResourceId::parse(set).unwrap(), patch, &LeaveReason::ByAddress)
        };
        let failed = BTreeSet::from([pool("a")]);
        let left = |change: PoolChange| change.without(&failed).map(|change| change.kind);
        assert_eq!(left(leaves(&["a", "b"], false)), Some(leaves(&["b"], false).kind));
        assert_eq!(left(leaves(&["a"], false)), None);
        assert_eq!(left(leaves(&["a"], true)), Some(leaves(&[], true).kind), "its last write failed");
        let written = |pool| PoolChange::of_pool(pool, &BackendAddressPool::default(), BackendAddressPool::default());
        assert_eq!((left(written(pool("a"))), left(written(pool("b"))).is_some()), (None, true));
        let other = balancer("a").child("backendAddressPools", "kubernetes-IPv6");
        assert!(left(written(other)).is_some(), "no interface listed it");
    }
}
