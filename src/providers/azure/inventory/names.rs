//! Names of nodes, and their machines. Pure.
//!
//! An instance of a uniform scale set is named after the set's prefix and its own number in base 36, six characters wide.
//! Upstream: `pkg/provider/azure_vmss_cache.go`, `pkg/provider/azure_vmss.go` (`extractScaleSetNameByProviderID` and
//! neighbors).

use crate::providers::azure::model::spelling;

/// Width of the number.
const WIDTH: usize = 6;

/// Returns the instance number in the name of a Node, if it belongs to the scale set with this prefix. Ignores letter case:
/// Windows reports its name in capitals.
pub(super) fn instance_number(node_name: &str, prefix: &str) -> Option<u64> {
    let (found, number) = node_name.split_at_checked(node_name.len().checked_sub(WIDTH)?)?;
    let is_instance = spelling::same_name(found, prefix) && number.bytes().all(|byte| byte.is_ascii_alphanumeric());
    u64::from_str_radix(number, 36).ok().filter(|_| is_instance)
}

/// Returns `true` if the scale set with this prefix may have given the name. For flexible sets this is only a hint which set
/// to read first.
pub(super) fn has_prefix(node_name: &str, prefix: &str) -> bool {
    let at = node_name.len().saturating_sub(WIDTH);
    node_name.get(..at).is_some_and(|found| !found.is_empty() && spelling::same_name(found, prefix))
}

/// Returns a name as a key.
pub(super) fn key(name: &str) -> Box<str> {
    name.to_ascii_lowercase().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_instances() {
        let table: &[(&str, &str, Option<u64>)] = &[
            ("aks-pool-vmss000000", "aks-pool-vmss", Some(0)),
            ("aks-pool-vmss00000A", "AKS-pool-VMSS", Some(10)),
            ("aks-pool-vmss0000zz", "aks-pool-vmss", Some(1295)),
            ("AKSWIN00001Z", "akswin", Some(71)),
            ("aks-pool-vmss000000", "aks-pool", None),
            ("aks000000", "aks000", None),
            ("aks-pool-vmss-00000", "aks-pool-vmss", None),
            ("aks-pool-vmss+00001", "aks-pool-vmss", None),
            ("000001", "", Some(1)),
            ("00001", "", None),
            ("", "", None),
            ("ä00001", "", None),
            ("knoten-ü00001", "knoten-", None),
        ];
        for (name, prefix, expected) in table {
            assert_eq!(instance_number(name, prefix), *expected, "{name} of {prefix}");
        }
    }

    #[test]
    fn of_two_sets_only_the_one_with_the_whole_prefix_matches() {
        let name = "pool1000abc";
        let matching: Vec<_> =
            ["pool", "pool1", "pool10"].into_iter().filter(|it| instance_number(name, it).is_some()).collect();
        assert_eq!(matching, ["pool1"]);
    }
}
