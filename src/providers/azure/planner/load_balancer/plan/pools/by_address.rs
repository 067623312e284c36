//! Backend pools that list addresses, including pools that network interfaces list until their migration. Pure.
//!
//! No change empties a pool before other members are certain to join. Upstream: `pkg/provider/azure_loadbalancer_backendpool.go`
//! (`backendPoolTypeNodeIP`, `isBackendPoolPreConfigured` and related functions).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;

use super::{
    super::{
        super::{
            desired::pool_members::{
                PoolNode,
                node_ip::{PoolUpdate, keep_members},
            },
            observed::ObservedNetwork,
            pools::{
                located,
                managed_pool::ManagedPool,
                member_updates::LeaveReason,
                node_placement::{NodePlacement, place_nodes},
                nodes::{machine_query, pool_node},
            },
            settings::LoadBalancerSettings,
        },
        waiting::WaitingFor,
    },
    INCOMPLETE_RESYNC, PoolChange, PoolPlanner,
};
use crate::providers::azure::{
    model::{LookupError, ResourceId, network::BackendAddressPool},
    node,
};

/// Delay until a Node whose machine could not be located is checked again.
const UNLOCATED_RESYNC: Duration = Duration::from_secs(60);

/// Interval of the checks of Nodes that are stand-ins for an entry's own Nodes. Stand-ins leave after the own Nodes have been ready
/// members for this time.
const STAND_IN_RESYNC: Duration = Duration::from_secs(60);

/// Pools, and the Nodes whose addresses they list.
#[derive(Debug, Clone, PartialEq)]
pub struct AddressPools {
    pools: Vec<ManagedPool>,
    placement: NodePlacement,
    /// Nodes that join the pools.
    joining: Vec<PoolNode>,
    /// Nodes that remain in the pools where they are members.
    staying: Vec<PoolNode>,
    /// Whether addresses of unknown Nodes remain, because the list of Nodes may be incomplete.
    may_lack_nodes: bool,
}

impl AddressPools {
    /// Returns the change of a pool whose current content is `document`; `None` if no change is needed, or if interfaces must leave the
    /// pool first.
    pub(super) fn of_pool(
        &self,
        id: &ResourceId,
        document: &BackendAddressPool,
        settings: &LoadBalancerSettings,
    ) -> Option<PoolChange> {
        let pool = self.pools.iter().find(|pool| pool.id == *id)?;
        match self.placement.update(pool, document, (&self.joining, &self.staying), settings) {
            PoolUpdate::Changed(mut changed) => {
                // The removal of members is planned again with the complete list of Nodes.
                if self.may_lack_nodes && !keep_members(document, &mut changed) {
                    return None;
                }
                let change = PoolChange::of_pool(id.clone(), document, *changed);
                Some(change.because(self.placement.reason(&pool.scope)))
            }
            PoolUpdate::Unchanged | PoolUpdate::HasInterfaces | PoolUpdate::WouldBeEmpty => None,
        }
    }

    pub(super) fn members_of(&self, id: &ResourceId) -> usize {
        self.pools.iter().find(|pool| pool.id == *id).map_or(0, |pool| pool.members.len())
    }
}

impl PoolPlanner<'_> {
    pub(super) fn by_address(&mut self, observed: &ObservedNetwork, mut pools: Vec<ManagedPool>, hosts: &[Arc<Node>]) {
        let joining = self.located_nodes(hosts);
        let staying = self.input.all_nodes.iter().map(|node| pool_node(node, self.settings)).collect();
        let mut placement = place_nodes(observed, self.input.deleting, &joining, self.settings);
        self.plan.ready_entries.keep_recent(&mut placement, self.input.now, STAND_IN_RESYNC);
        self.plan.waiting.extend(placement.unplaced.iter().cloned().map(WaitingFor::Entry));
        let unlocated = joining.iter().any(|node| node.is_unlocated).then_some(UNLOCATED_RESYNC);
        let standing_in = placement.has_stand_ins().then_some(STAND_IN_RESYNC);
        let may_lack_nodes = self.input.reads.may_lack_nodes;
        let incomplete = may_lack_nodes.then_some(INCOMPLETE_RESYNC);
        self.plan.resync_after = unlocated.into_iter().chain(standing_in).chain(incomplete).min();
        pools.retain(|pool| pool.members.is_empty() || pool.will_have_members(&joining, self.settings));
        self.migrate(&pools);
        self.fill(AddressPools { pools, placement, joining, staying, may_lack_nodes });
    }

    /// Plans that interfaces leave the pools that they list, so that these pools can list addresses.
    fn migrate(&mut self, pools: &[ManagedPool]) {
        let mut by_load_balancer: BTreeMap<&ResourceId, Vec<String>> = BTreeMap::new();
        for pool in pools.iter().filter(|pool| !pool.members.is_empty()) {
            by_load_balancer.entry(&pool.load_balancer).or_default().push(pool.id.name().to_owned());
            self.plan.rechecked.insert(pool.id.clone());
        }
        if self.input.migrate_api {
            let migrations = by_load_balancer.into_iter().map(|(id, names)| PoolChange::of_migration(id.clone(), names));
            self.plan.changes.extend(migrations);
        }
        self.evict(pools, &LeaveReason::ByAddress);
    }

    fn fill(&mut self, addresses: AddressPools) {
        for pool in &addresses.pools {
            let mut document = pool.document.clone();
            if let (false, Some(properties)) = (pool.members.is_empty(), &mut document.properties) {
                properties.backend_ip_configurations = None;
            }
            self.plan.changes.extend(addresses.of_pool(&pool.id, &document, self.settings));
        }
        self.plan.addresses = Some(addresses);
    }

    /// Returns the Nodes with the VM sets of their machines, if the placement needs the VM sets. A Node whose machine cannot be located
    /// fails no Service.
    fn located_nodes(&mut self, nodes: &[Arc<Node>]) -> Vec<PoolNode> {
        let settings = self.settings;
        let mut located_nodes: Vec<PoolNode> = nodes.iter().map(|node| pool_node(node, settings)).collect();
        for (node, known) in nodes.iter().zip(&mut located_nodes) {
            let query = machine_query(node);
            // A Node with the provider id of another cloud has no machine in Azure that could be found by name.
            let has_machine = query.id.is_some() || node::provider_id(node).is_none();
            if !settings.has_entries() || known.vm_set.is_some() || !known.belongs(settings) || !has_machine {
                continue;
            }
            match self.machine(&query) {
                Some(Ok(machine)) => known.vm_set = located::vm_set(machine).map(|set| set.name().to_owned()),
                // A machine that no list shows has no VM set.
                Some(Err(LookupError::NotListed(_))) | None => {}
                Some(Err(error)) => {
                    known.is_unlocated = true;
                    self.plan.waiting.insert(WaitingFor::Machine(query.node_name, error.to_string()));
                }
            }
        }
        located_nodes
    }
}
