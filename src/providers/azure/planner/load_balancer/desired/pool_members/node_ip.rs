//! Backend pool that lists the addresses of Nodes. Pure.
//!
//! In: the pool in its load balancer, all Nodes of the cluster, the settings. Out: a [`PoolUpdate`] with the desired pool, or the reason
//! not to change it.
//! Upstream: `pkg/provider/azure_loadbalancer_backendpool.go`, `EnsureHostsInPool` and `ReconcileBackendPools` of the node-IP type.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::PoolNode;
use crate::providers::azure::{
    model::{
        document::SubResource,
        network::{BackendAddress, BackendAddressPool, BackendAddressProperties},
    },
    planner::load_balancer::{naming, settings::LoadBalancerSettings, spec::IpFamily},
};

/// Update of one pool.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolUpdate {
    Unchanged,
    /// Pool to write instead of the observed one.
    Changed(Box<BackendAddressPool>),
    /// Pool that network interfaces list. They must leave it first.
    HasInterfaces,
    /// Pool with members to which no Node belongs. No member is removed because an empty pool would stop all traffic.
    WouldBeEmpty,
}

/// Plans the pool with the addresses of the `joining` Nodes that belong to it. Existing entries remain unchanged, whatever their names.
///
/// Nodes of `staying` that belong to the pool remain if they are members, and do not join: the connections of a Node that will be removed
/// soon can end normally.
///
/// `own_family` is the family of a pool that only one Service uses. The name of such a pool does not show its family, and the pool may
/// become empty with the last endpoint.
pub fn pool<'a>(
    pool: &BackendAddressPool,
    own_family: Option<IpFamily>,
    joining: impl IntoIterator<Item = &'a PoolNode>,
    staying: impl IntoIterator<Item = &'a PoolNode>,
    settings: &LoadBalancerSettings,
) -> PoolUpdate {
    let family = own_family.unwrap_or_else(|| naming::pool_family(pool.name.as_deref().unwrap_or_default()));
    let belongs = |node: &PoolNode| node.belongs(settings);
    let joining = by_address(joining, family, belongs);
    let staying = by_address(staying, family, |node| belongs(node) || node.is_foreign);
    let properties = pool.properties.clone().unwrap_or_default();
    if properties.backend_ip_configurations.as_ref().is_some_and(|list| !list.is_empty()) {
        return PoolUpdate::HasInterfaces;
    }
    let existing = properties.load_balancer_backend_addresses.unwrap_or_default();
    let was_empty = existing.iter().all(|entry| address(entry).is_none());
    let mut entries = joined(existing, &joining, &staying);
    if entries.is_empty() && (was_empty || own_family.is_none()) {
        return if was_empty { PoolUpdate::Unchanged } else { PoolUpdate::WouldBeEmpty };
    }
    let mut changed = pool.clone();
    let target = changed.properties.get_or_insert_default();
    if target.virtual_network.is_none() {
        target.virtual_network =
            Some(take_virtual_network(&mut entries).unwrap_or_else(|| SubResource::to(&settings.virtual_network)));
    }
    target.load_balancer_backend_addresses = Some(entries);
    if changed == *pool { PoolUpdate::Unchanged } else { PoolUpdate::Changed(Box::new(changed)) }
}

fn by_address<'a>(
    nodes: impl IntoIterator<Item = &'a PoolNode>,
    family: IpFamily,
    belongs: impl Fn(&PoolNode) -> bool,
) -> BTreeMap<IpAddr, &'a str> {
    let belonging = nodes.into_iter().filter(|node| belongs(node));
    belonging.filter_map(|node| Some((node.address(family)?, node.name.as_str()))).collect()
}

/// Adds the members of `before` that `after` lacks. Returns `true` if `after` has members that `before` lacks.
pub fn keep_members(before: &BackendAddressPool, after: &mut BackendAddressPool) -> bool {
    let entries = |pool: &BackendAddressPool| -> Vec<BackendAddress> {
        let properties = pool.properties.iter();
        properties.flat_map(|properties| properties.load_balancer_backend_addresses.iter().flatten()).cloned().collect()
    };
    let addresses = |entries: &[BackendAddress]| entries.iter().filter_map(address).collect::<BTreeSet<IpAddr>>();
    let mut members = entries(after);
    let (old, new) = (addresses(&entries(before)), addresses(&members));
    let lost = entries(before).into_iter().filter(|entry| address(entry).is_some_and(|lost| !new.contains(&lost)));
    members.extend(lost);
    after.properties.get_or_insert_default().load_balancer_backend_addresses = Some(members);
    !new.is_subset(&old)
}

fn address(entry: &BackendAddress) -> Option<IpAddr> {
    entry.properties.as_ref()?.ip_address.as_deref()?.parse().ok()
}

/// Returns each entry once whose address is desired or may remain, followed by new entries in the order of names.
fn joined(
    mut entries: Vec<BackendAddress>,
    wanted: &BTreeMap<IpAddr, &str>,
    staying: &BTreeMap<IpAddr, &str>,
) -> Vec<BackendAddress> {
    let mut known = BTreeSet::new();
    let may_stay = |address: &IpAddr| wanted.contains_key(address) || staying.contains_key(address);
    entries.retain(|entry| address(entry).is_some_and(|address| may_stay(&address) && known.insert(address)));
    let mut new: Vec<_> = wanted.iter().filter(|(address, _)| !known.contains(*address)).collect();
    new.sort_by_key(|(_, name)| **name);
    entries.extend(new.into_iter().map(|(address, name)| BackendAddress {
        name: Some(naming::pool_member(name)),
        properties: Some(BackendAddressProperties {
            ip_address: Some(address.to_string()),
            ..BackendAddressProperties::default()
        }),
        ..BackendAddress::default()
    }));
    entries
}

/// Removes the virtual network from the entries, where old versions have put it, and returns it.
fn take_virtual_network(entries: &mut [BackendAddress]) -> Option<SubResource> {
    let networks = entries.iter_mut().filter_map(|entry| entry.properties.as_mut()?.virtual_network.take());
    networks.collect::<Vec<_>>().into_iter().next()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::providers::azure::{config::BackendPoolType, planner::load_balancer::desired::samples};

    fn settings() -> LoadBalancerSettings {
        LoadBalancerSettings { pool_type: BackendPoolType::NodeIp, ..samples::settings() }
    }

    fn entry(name: &str, address: &str) -> Value {
        json!({"name": name, "properties": {"ipAddress": address}})
    }

    fn node(name: &str, addresses: &[&str]) -> PoolNode {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        PoolNode { name: name.to_owned(), addresses, ..PoolNode::default() }
    }

    fn of(name: &str, properties: &Value) -> BackendAddressPool {
        serde_json::from_value(json!({"name": name, "properties": properties, "unknown": 1})).unwrap()
    }

    /// Plans a pool that all Services share.
    fn pool(
        before: &BackendAddressPool,
        joining: &[PoolNode],
        staying: &[PoolNode],
        settings: &LoadBalancerSettings,
    ) -> PoolUpdate {
        super::pool(before, None, joining, staying, settings)
    }

    fn after(before: &BackendAddressPool, nodes: &[PoolNode]) -> Value {
        match pool(before, nodes, nodes, &settings()) {
            PoolUpdate::Changed(after) => {
                assert_eq!(pool(&after, nodes, nodes, &settings()), PoolUpdate::Unchanged, "twice");
                serde_json::to_value(after.properties).unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nodes_join_with_the_address_of_the_pools_family_and_others_leave() {
        let nodes = [node("n2", &["10.0.0.5"]), node("n1", &["fd00::1", "10.0.0.4", "10.0.0.9"]), node("none", &[])];
        let document = after(&of("kubernetes", &json!({})), &nodes);
        let network = json!({"id": samples::network("virtualNetworks/vnet")});
        let members = [entry("n1", "10.0.0.4"), entry("n2", "10.0.0.5")];
        assert_eq!(document, json!({"virtualNetwork": network, "loadBalancerBackendAddresses": members}));
        let six = after(&of("kubernetes-IPv6", &json!({})), &nodes);
        assert_eq!(six["loadBalancerBackendAddresses"], json!([entry("n1", "fd00::1")]));
        let long = after(&of("kubernetes", &json!({})), &[node(&"n".repeat(253), &["10.0.0.4"])]);
        let name = long["loadBalancerBackendAddresses"][0]["name"].as_str().map(str::len);
        assert_eq!(name, Some(80), "Azure accepts no longer name");
        let mut renamed = entry("renamed", "10.0.0.5");
        renamed["properties"]["adminState"] = json!("Up");
        let listed = |members: Value| json!({"virtualNetwork": {"id": "/x"}, "loadBalancerBackendAddresses": members});
        let old = listed(json!([{"name": "", "properties": {}}, entry("gone", "10.0.0.99"), renamed]));
        assert_eq!(after(&of("kubernetes", &old), &nodes), listed(json!([renamed, entry("n1", "10.0.0.4")])));
    }

    #[test]
    fn the_virtual_network_moves_up_to_the_pool() {
        let mut member = entry("n1", "10.0.0.4");
        member["properties"]["virtualNetwork"] = json!({"id": "/x"});
        let old = of("kubernetes", &json!({"loadBalancerBackendAddresses": [member]}));
        let document = after(&old, &[node("n1", &["10.0.0.4"])]);
        assert_eq!(
            document,
            json!({"virtualNetwork": {"id": "/x"}, "loadBalancerBackendAddresses": [entry("n1", "10.0.0.4")]})
        );
    }

    #[test]
    fn a_pool_with_members_is_never_emptied() {
        let full = of("kubernetes", &json!({"loadBalancerBackendAddresses": [{"properties": {"ipAddress": "10.0.0.4"}}]}));
        let excluded = PoolNode { excluded: true, ..node("n1", &["10.0.0.4"]) };
        for nodes in [vec![], vec![excluded.clone()], vec![node("n1", &["fd00::1"])]] {
            assert_eq!(pool(&full, &nodes, &nodes, &settings()), PoolUpdate::WouldBeEmpty, "{nodes:?}");
        }
        assert_eq!(pool(&of("kubernetes", &json!({})), &[excluded], &[], &settings()), PoolUpdate::Unchanged);
        let listed = of("kubernetes", &json!({"backendIPConfigurations": [{"id": "/x"}]}));
        assert_eq!(pool(&listed, &[node("n1", &["10.0.0.4"])], &[], &settings()), PoolUpdate::HasInterfaces);
    }

    proptest! {
        /// Nodes are added, removed, excluded and drained in any order. Only the last step decides which members the pool has.
        #[test]
        fn the_pool_ends_with_those_who_belong_now(steps in prop::collection::vec((0_u8..64, 0_u8..64, 0_u8..64), 1..10)) {
            let nodes = |there: u8, excluded: u8| -> Vec<PoolNode> {
                let has = |bits: u8, index: u8| bits & (1 << index) != 0;
                let one = |index| PoolNode { excluded: has(excluded, index), ..node(&format!("n{index}"), &[&format!("10.0.0.{index}")]) };
                (0..6).filter(|index| has(there, *index)).map(one).collect()
            };
            let mut current = of("kubernetes", &json!({}));
            let mut expected = BTreeSet::new();
            let belonging = |nodes: &[PoolNode]| -> BTreeSet<IpAddr> {
                nodes.iter().filter(|node| !node.excluded).flat_map(|node| node.addresses.clone()).collect()
            };
            for (there, excluded, going) in steps {
                let (joining, staying) = (nodes(there & !going, excluded), nodes(there, excluded));
                let stay: BTreeSet<IpAddr> = expected.intersection(&belonging(&staying)).copied().collect();
                let now: BTreeSet<IpAddr> = stay.union(&belonging(&joining)).copied().collect();
                // A pool with members never becomes empty.
                expected = if now.is_empty() { expected } else { now };
                if let PoolUpdate::Changed(changed) = pool(&current, &joining, &staying, &settings()) {
                    current = *changed;
                }
                let listed = current.properties.iter().flat_map(|properties| properties.load_balancer_backend_addresses.iter().flatten());
                prop_assert_eq!(&listed.filter_map(address).collect::<BTreeSet<_>>(), &expected);
            }
        }
    }

    #[test]
    fn a_pool_of_one_service_lists_its_nodes_alone_and_may_be_empty() {
        let (one, two) = (node("n1", &["10.0.0.4"]), node("n2", &["10.0.0.5", "fd00::5"]));
        let full = of("default-web-ipv6", &json!({"loadBalancerBackendAddresses": [entry("n1", "10.0.0.4")]}));
        let update = |joining: Vec<&PoolNode>, staying: Vec<&PoolNode>, family| {
            super::pool(&full, Some(family), joining, staying, &settings())
        };
        let listed = |update: PoolUpdate| match update {
            PoolUpdate::Changed(pool) => {
                let entries = pool.properties.unwrap().load_balancer_backend_addresses.unwrap();
                entries.iter().filter_map(address).map(|address| address.to_string()).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(listed(update(vec![&two], vec![&two], IpFamily::V4)), ["10.0.0.5"]);
        assert_eq!(listed(update(vec![&two], vec![&two], IpFamily::V6)), ["fd00::5"]);
        assert_eq!(listed(update(vec![&two], vec![&one, &two], IpFamily::V4)), ["10.0.0.4", "10.0.0.5"], "it drains");
        assert_eq!(listed(update(Vec::new(), Vec::new(), IpFamily::V4)), [""; 0]);
    }

    #[test]
    fn a_node_of_another_cloud_stays_and_does_not_join() {
        let before = json!([entry("n1", "10.0.0.4"), entry("n2", "10.0.0.5")]);
        let full = of("kubernetes", &json!({"virtualNetwork": {"id": "/x"}, "loadBalancerBackendAddresses": before}));
        let foreign = |name: &str, address: &str| PoolNode { unmanaged: true, is_foreign: true, ..node(name, &[address]) };
        let nodes = [node("n1", &["10.0.0.4"]), foreign("n2", "10.0.0.5"), foreign("n3", "10.0.0.6")];
        assert_eq!(pool(&full, &nodes, &nodes, &settings()), PoolUpdate::Unchanged);
    }
}
