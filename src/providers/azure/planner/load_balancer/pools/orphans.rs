//! Members of pools whose machines no Node claims. Pure: the caller passes the time.
//!
//! In: the member resources of Nodes and of pools, and the sets of their machines. Out: the members that must leave. A
//! member whose Node was observed and is deleted leaves at once. A member that never had a Node while this process ran may
//! be a machine that starts: new instances begin in the pools, and may need them to reach the Internet. Such a member has
//! [`ORPHAN_GRACE_PERIOD`]. Another owner may also have added a machine outside of the cluster. Its member remains unless
//! machines of Nodes are in the same scale set or availability set. Upstream handles only the first case, from memory:
//! `azure.go`, `updateNodeCaches`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

/// Time that a machine may be in a pool without a Node.
pub const ORPHAN_GRACE_PERIOD: Duration = Duration::from_secs(3600);

/// Owners of member resources, as far as they are located.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolMemberOwners {
    /// Names of Nodes by key of their member resource.
    pub by_resource: BTreeMap<String, String>,
    /// Names of Nodes whose member resource cannot be determined now.
    pub unlocated_nodes: BTreeSet<String>,
}

impl PoolMemberOwners {
    /// Returns `true` if each of these member resources belongs to a Node.
    pub fn cover(&self, members: &BTreeSet<String>) -> bool {
        members.iter().all(|member| self.by_resource.contains_key(member))
    }
}

/// Returns the members in a scale set or availability set that also has the machine of a Node. `sets` has the keys of sets
/// by key of the member resource.
pub fn members_of_node_sets(
    members: &BTreeSet<String>,
    known: &BTreeMap<String, String>,
    sets: &BTreeMap<String, String>,
) -> BTreeSet<String> {
    let of_nodes: BTreeSet<&String> = known.keys().filter_map(|key| sets.get(key)).collect();
    let is_one = |key: &&String| sets.get(*key).is_some_and(|set| of_nodes.contains(set));
    members.iter().filter(is_one).cloned().collect()
}

/// Remembered owners of pool members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrphanedPoolMembers {
    /// Names of Nodes by key of the member resource: current owners, and last owners of resources that are still in a pool.
    last_owner: BTreeMap<String, String>,
    /// Times at which members without any owner so far were first observed, by key.
    ownerless_since: BTreeMap<String, Instant>,
}

impl OrphanedPoolMembers {
    /// Returns the members that must leave now, and the delay until the next one must leave.
    ///
    /// The map has the name of the last owner by key of the member resource; the name is empty without owner. `companions`
    /// are members that may leave although they never had a Node.
    pub fn update(
        &mut self,
        claims: PoolMemberOwners,
        members: &BTreeSet<String>,
        companions: &BTreeSet<String>,
        now: Instant,
    ) -> (BTreeMap<String, String>, Option<Duration>) {
        let PoolMemberOwners { by_resource: known, unlocated_nodes: unknown } = claims;
        let free: BTreeSet<&String> = members.iter().filter(|key| !known.contains_key(*key)).collect();
        let had = std::mem::take(&mut self.last_owner).into_iter().filter(|(key, _)| free.contains(key));
        let (doubtful, mut leaving): (BTreeMap<_, _>, BTreeMap<_, _>) = had.partition(|(_, node)| unknown.contains(node));
        let strangers = free.into_iter().filter(|key| companions.contains(*key));
        let strangers = strangers.filter(|key| !doubtful.contains_key(*key) && !leaving.contains_key(*key));
        // A Node that is not located may own any member, so the grace period starts again.
        let before = if unknown.is_empty() { std::mem::take(&mut self.ownerless_since) } else { BTreeMap::new() };
        self.ownerless_since = strangers.map(|key| (key.clone(), before.get(key).copied().unwrap_or(now))).collect();
        self.last_owner = known.into_iter().chain(doubtful).chain(leaving.clone()).collect();
        let left = |since: &Instant| (*since + ORPHAN_GRACE_PERIOD).saturating_duration_since(now);
        leaving.extend(
            self.ownerless_since
                .iter()
                .filter(|(_, since)| left(since).is_zero())
                .map(|(key, _)| (key.clone(), String::new())),
        );
        (leaving, self.ownerless_since.values().map(left).filter(|left| !left.is_zero()).min())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claims(known: &[(&str, &str)], unknown: &[&str]) -> PoolMemberOwners {
        let known = known.iter().map(|(key, node)| ((*key).to_owned(), (*node).to_owned())).collect();
        PoolMemberOwners { by_resource: known, unlocated_nodes: unknown.iter().map(|name| (*name).to_owned()).collect() }
    }

    fn keys(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn who_had_a_node_leaves_at_once_and_others_have_time() {
        let (mut unclaimed, start) = (OrphanedPoolMembers::default(), Instant::now());
        let mut look = |claims: PoolMemberOwners, after: Duration| {
            let (leaving, next) =
                unclaimed.update(claims, &keys(&["a", "b", "jump", "new"]), &keys(&["a", "b", "new"]), start + after);
            (leaving.into_keys().collect::<BTreeSet<_>>(), next)
        };
        let (both, minute) = (claims(&[("a", "na"), ("b", "nb")], &[]), Duration::from_secs(60));
        assert_eq!(look(both.clone(), Duration::ZERO), (keys(&[]), Some(ORPHAN_GRACE_PERIOD)));
        let unlocated = look(claims(&[("b", "nb")], &["na"]), minute);
        assert_eq!(unlocated, (keys(&[]), Some(ORPHAN_GRACE_PERIOD)), "nobody knows where it is");
        assert_eq!(look(claims(&[("b", "nb")], &[]), 2 * minute).0, keys(&["a"]));
        assert_eq!(look(claims(&[("b", "nb")], &[]), 3 * minute).0, keys(&["a"]), "until it has left");
        assert_eq!(look(both.clone(), 4 * minute).0, keys(&[]), "its Node came back");
        assert_eq!(look(both, minute + ORPHAN_GRACE_PERIOD).0, keys(&["new"]));
        assert_eq!(look(claims(&[("new", "n"), ("a", "na"), ("b", "nb")], &[]), 2 * ORPHAN_GRACE_PERIOD), (keys(&[]), None));
    }

    #[test]
    fn companions_are_in_a_set_with_nodes() {
        let of = |pairs: &[(&str, &str)]| claims(pairs, &[]).by_resource;
        let sets = of(&[("a", "s"), ("b", "s"), ("c", "t"), ("d", "t")]);
        let (members, nodes) = (keys(&["a", "b", "c", "alone"]), of(&[("a", "na"), ("alone2", "n")]));
        assert_eq!(members_of_node_sets(&members, &nodes, &sets), keys(&["a", "b"]));
    }

    proptest! {
        /// Checks that in the end exactly the members leave that no Node claims, whatever the history.
        #[test]
        fn the_end_does_not_depend_on_the_way(
            steps in prop::collection::vec((0_u8..16, 0_u8..16, 0_u8..16, 0_u64..5_000), 0..12),
            claimed in 0_u8..16,
            members in 0_u8..16,
        ) {
            let names = ["a", "b", "c", "d"];
            let chosen = |bits: u8| (0..4).filter(move |bit| bits & (1 << bit) != 0).map(|bit| names[bit]);
            let claims_of = |bits: u8, unknown: u8| {
                let known: Vec<_> = chosen(bits & !unknown).map(|name| (name, name)).collect();
                claims(&known, &chosen(bits & unknown).collect::<Vec<_>>())
            };
            let (mut unclaimed, mut now) = (OrphanedPoolMembers::default(), Instant::now());
            for (claimed, unknown, members, seconds) in steps {
                let has_left = |key: &str| chosen(claimed).any(|name| name == key);
                let (leaving, _) = unclaimed.update(claims_of(claimed, unknown), &keys(&chosen(members).collect::<Vec<_>>()), &keys(&names), now);
                prop_assert!(!leaving.keys().any(|key| has_left(key)), "a Node's machine is evicted");
                now += Duration::from_secs(seconds);
            }
            let members = keys(&chosen(members).collect::<Vec<_>>());
            let expected: BTreeSet<_> = members.difference(&keys(&chosen(claimed).collect::<Vec<_>>())).cloned().collect();
            let (leaving, next) = unclaimed.update(claims_of(claimed, 0), &members, &members, now);
            prop_assert!(leaving.keys().all(|key| expected.contains(key)));
            let (leaving, next) = match next {
                Some(after) => unclaimed.update(claims_of(claimed, 0), &members, &members, now + after.max(ORPHAN_GRACE_PERIOD)),
                None => (leaving, next),
            };
            prop_assert_eq!((leaving.into_keys().collect::<BTreeSet<_>>(), next), (expected, None));
        }
    }
}
