//! Order in which load balancers are written: a load balancer takes an address only after its former holder has released it. Pure.
//!
//! In: the addresses on each load balancer before and after. Out: a wave for each, or the load balancers that take addresses of each other
//! in a cycle and therefore must release them first.

use std::{collections::BTreeSet, net::IpAddr};

use super::frontends::FrontendAddress;

/// Addresses on a load balancer before and after a plan.
#[derive(Debug, Clone, Default)]
pub(super) struct AddressChange {
    pub(super) before: BTreeSet<FrontendAddress>,
    pub(super) after: BTreeSet<FrontendAddress>,
    /// Whether the load balancer is written.
    pub(super) is_written: bool,
}

impl AddressChange {
    /// Returns the addresses that this load balancer takes from `other`: it did not have them before, and `other` did.
    pub(super) fn taken_from<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a FrontendAddress> {
        self.after.iter().filter(|address| !self.before.contains(*address) && other.before.contains(*address))
    }

    fn takes_from(&self, other: &Self) -> bool {
        self.taken_from(other).next().is_some()
    }
}

/// Returns `true` if a load balancer takes a private address from another one, or one of `former`, the addresses that Services had.
///
/// A load balancer may have released these in an earlier write. Until another one has them, Azure assigns them to any resource that
/// requests an address.
pub(super) fn moves_private(changes: &[AddressChange], former: &BTreeSet<IpAddr>) -> bool {
    let is_private = |address: &FrontendAddress| matches!(address, FrontendAddress::Private(_));
    let takes = |taker: &AddressChange, giver: &AddressChange| taker.taken_from(giver).any(is_private);
    let regains = |taker: &AddressChange| {
        let new = taker.after.iter().filter(|address| !taker.before.contains(*address));
        new.into_iter().any(|address| matches!(address, FrontendAddress::Private(address) if former.contains(address)))
    };
    changes.iter().any(|taker| regains(taker) || changes.iter().any(|giver| giver.is_written && takes(taker, giver)))
}

/// Wave of a load balancer that takes no address from another one.
const FIRST: u8 = 1;

/// Returns the wave of each load balancer.
///
/// # Errors
///
/// Fails with the load balancers that wait for each other in a cycle, and those that wait for them.
pub(super) fn waves(changes: &[AddressChange]) -> Result<Vec<u8>, BTreeSet<usize>> {
    let givers = |taker: usize| -> Vec<usize> {
        let is_giver =
            |other: &usize| *other != taker && changes[*other].is_written && changes[taker].takes_from(&changes[*other]);
        (0..changes.len()).filter(is_giver).collect()
    };
    let givers: Vec<Vec<usize>> = (0..changes.len()).map(givers).collect();
    let mut waves: Vec<Option<u8>> = vec![None; changes.len()];
    for _ in 0..changes.len() {
        for place in 0..changes.len() {
            let known: Option<Vec<u8>> = givers[place].iter().map(|giver| waves[*giver]).collect();
            waves[place] = known.map(|known| known.into_iter().max().map_or(FIRST, |last| last.saturating_add(1)));
        }
    }
    let circle: BTreeSet<usize> = (0..waves.len()).filter(|place| waves[*place].is_none()).collect();
    if circle.is_empty() { Ok(waves.into_iter().flatten().collect()) } else { Err(circle) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(before: &[&str], after: &[&str]) -> AddressChange {
        let set = |names: &[&str]| names.iter().map(|name| FrontendAddress::Public((*name).to_owned())).collect();
        AddressChange { before: set(before), after: set(after), is_written: true }
    }

    #[test]
    fn who_takes_comes_after_who_gives() {
        let chain = [change(&["b"], &["a"]), change(&["a"], &[]), change(&[], &["b"]), change(&["x"], &["x", "new"])];
        assert_eq!(waves(&chain), Ok(vec![2, 1, 3, 1]));
        let idle = AddressChange { is_written: false, ..change(&["a"], &["a"]) };
        assert_eq!(waves(&[idle, change(&[], &["a"])]), Ok(vec![1, 1]), "it will be refused");
    }

    #[test]
    fn a_private_address_moves_from_a_load_balancer_or_from_nowhere() {
        let private = |address: &str| FrontendAddress::Private(address.parse().unwrap());
        let set = |addresses: &[&str]| addresses.iter().map(|address| private(address)).collect();
        let change =
            |before: &[&str], after: &[&str]| AddressChange { before: set(before), after: set(after), is_written: true };
        let former = BTreeSet::from(["10.0.0.4".parse().unwrap()]);
        assert!(moves_private(&[change(&["10.0.0.4"], &[]), change(&[], &["10.0.0.4"])], &BTreeSet::new()));
        assert!(moves_private(&[change(&[], &["10.0.0.4"])], &former), "it was given back in an earlier write");
        assert!(!moves_private(&[change(&[], &["10.0.0.5"])], &former), "new and pinned");
        assert!(!moves_private(&[change(&["10.0.0.4"], &["10.0.0.4"])], &former), "it is where it was");
    }

    #[test]
    fn a_circle_is_told_with_those_who_wait_for_it() {
        let swap = [change(&["a"], &["b"]), change(&["b", "c"], &["a"]), change(&[], &["c"]), change(&[], &[])];
        assert_eq!(waves(&swap), Err(BTreeSet::from([0, 1, 2])));
    }
}
