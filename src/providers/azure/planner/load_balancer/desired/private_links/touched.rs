//! Front ends that a plan of load balancers takes away or changes, with the rules behind them. Pure.
//!
//! In: load balancers before and after. Out: ids of front ends. A private link service that is being written on one of them has to be waited
//! for, since it is known whether it is there when its write has ended; one on another front end has not.

use std::collections::{BTreeSet, HashMap};

use crate::providers::azure::{
    arm::network::{ArmLoadBalancer, FrontendIpConfiguration},
    planner::load_balancer::{
        desired::{
            draft,
            load_balancers::{LoadBalancerPlan, LoadBalancerWrite},
            rules,
        },
        observed::ObservedNetwork,
    },
};

/// Their ids, in lower case.
pub fn touched_frontends(observed: &ObservedNetwork, plan: &LoadBalancerPlan) -> BTreeSet<String> {
    let known = plan.changes.iter().filter_map(|change| Some((observed.load_balancer(&change.id)?, &change.write)));
    let of_document = |(before, write): (&ArmLoadBalancer, &LoadBalancerWrite)| match write {
        LoadBalancerWrite::Put(after) => {
            let changed = missing(draft::frontends(before), draft::frontends(after), |part| part.name.as_deref());
            let rules = missing(draft::rules(before), draft::rules(after), |rule| rule.name.as_deref());
            changed.filter_map(id).chain(rules.map(rules::frontend_key)).collect::<Vec<_>>()
        }
        LoadBalancerWrite::Delete => draft::frontends(before).iter().filter_map(id).collect(),
    };
    known.flat_map(of_document).collect()
}

/// Returns the parts that `after` does not have as they are. Only parts of one name can be equal.
fn missing<'a, T: PartialEq>(before: &'a [T], after: &'a [T], name: fn(&T) -> Option<&str>) -> impl Iterator<Item = &'a T> {
    let mut by_name: HashMap<Option<&str>, Vec<&T>> = HashMap::new();
    after.iter().for_each(|part| by_name.entry(name(part)).or_default().push(part));
    before.iter().filter(move |part| !by_name.get(&name(part)).is_some_and(|parts| parts.contains(part)))
}

fn id(part: &FrontendIpConfiguration) -> Option<String> {
    Some(part.id.as_ref()?.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::providers::azure::{
        arm::ResourceId,
        planner::load_balancer::desired::{
            load_balancers::LoadBalancerChange,
            samples::{load_balancer, network, observed},
        },
    };

    fn balancer(frontends: &[(&str, &str)], rules: &[(&str, &str, i32)]) -> ArmLoadBalancer {
        let id = |name: &str| network(&format!("loadBalancers/lb/frontendIPConfigurations/{name}"));
        let part = |(name, address): &(&str, &str)| json!({"name": name, "id": id(name), "properties": {"privateIPAddress": address}});
        let rule = |(name, frontend, port): &(&str, &str, i32)| json!({"name": name, "properties": {"frontendPort": port, "frontendIPConfiguration": {"id": id(frontend)}}});
        load_balancer(json!({"id": network("loadBalancers/lb"), "name": "lb", "properties": {
            "frontendIPConfigurations": frontends.iter().map(part).collect::<Vec<_>>(),
            "loadBalancingRules": rules.iter().map(rule).collect::<Vec<_>>()}}))
    }

    fn touched(write: LoadBalancerWrite) -> Vec<String> {
        let before = balancer(&[("a", "10.0.0.1"), ("b", "10.0.0.2")], &[("ra", "a", 80), ("rb", "b", 80)]);
        let id = ResourceId::parse(&network("loadBalancers/lb")).unwrap();
        let change = LoadBalancerChange { id, write, reasons: Vec::new(), wave: 1 };
        let plan = LoadBalancerPlan { changes: vec![change], ..LoadBalancerPlan::default() };
        let found = touched_frontends(&observed(vec![before]), &plan);
        found.into_iter().map(|id| id.rsplit('/').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn what_goes_or_changes_counts_and_what_is_added_does_not() {
        let put = |frontends: &[(&str, &str)], rules: &[(&str, &str, i32)]| {
            touched(LoadBalancerWrite::Put(Box::new(balancer(frontends, rules))))
        };
        let (both, rules) = ([("a", "10.0.0.1"), ("b", "10.0.0.2")], [("ra", "a", 80), ("rb", "b", 80)]);
        assert_eq!(put(&both, &rules), [""; 0]);
        assert_eq!(put(&[both[0], both[1], ("c", "")], &[rules[0], rules[1], ("rc", "a", 81)]), [""; 0]);
        assert_eq!(put(&both[..1], &rules[..1]), ["b"]);
        assert_eq!(put(&[both[0], ("b", "10.0.0.9")], &rules), ["b"]);
        assert_eq!(put(&both, &[("ra", "a", 8080), rules[1]]), ["a"]);
        assert_eq!(touched(LoadBalancerWrite::Delete), ["a", "b"]);
    }
}
