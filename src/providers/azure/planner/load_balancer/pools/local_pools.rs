//! Owners of backend pools that Services have for themselves, where there are several load balancers. Pure.
//!
//! In: Services with such pools, and the Nodes that have endpoints of each. Out: for a pool of a load balancer, the Service
//! and the family it is for. The name alone proves nothing, because two Services may have the same name for a pool: every
//! rule that leads to the pool must belong to that Service, too.
//! Upstream: `pkg/provider/azure_local_services.go`.

use std::collections::{BTreeMap, BTreeSet};

use super::endpoint_nodes::EndpointNodes;
use crate::providers::azure::{
    model::ResourceId,
    planner::load_balancer::{
        desired::RulesByPool,
        naming,
        spec::{IpFamily, ServiceIdentity, ServiceSpec},
    },
};

/// The pool of a Service for one of its families.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPool {
    /// Service that has the pool for itself.
    pub service: ServiceIdentity,
    /// IP family of its members.
    pub family: IpFamily,
    /// Nodes that may be in the pool if they may be behind load balancers at all.
    pub nodes: EndpointNodes,
}

/// Pools that Services have for themselves.
#[derive(Debug, Clone, Default)]
pub struct LocalPools {
    /// Pools by name in lower case. Two Services may have the same name for a pool.
    by_name: BTreeMap<String, Vec<LocalPool>>,
}

/// Returns the keys of the Services that have pools for themselves.
pub fn local_services<'a>(services: impl IntoIterator<Item = &'a ServiceSpec>) -> BTreeSet<String> {
    services.into_iter().filter(|spec| spec.own_pool).map(|spec| spec.identity.key.clone()).collect()
}

impl LocalPools {
    /// Returns the pools of `services`. `nodes` has the Nodes by key of the Service; a Service that is missing there gets no
    /// pools, so that existing ones remain unchanged.
    pub fn new<'a>(services: impl IntoIterator<Item = &'a ServiceSpec>, nodes: &BTreeMap<String, EndpointNodes>) -> Self {
        let mut pools = Self::default();
        for spec in services.into_iter().filter(|spec| spec.own_pool) {
            let Some(nodes) = nodes.get(&spec.identity.key) else { continue };
            for family in &spec.families {
                let pool = LocalPool { service: spec.identity.clone(), family: *family, nodes: nodes.clone() };
                pools.by_name.entry(naming::own_pool(&spec.identity, *family)).or_default().push(pool);
            }
        }
        pools
    }

    /// Returns `true` without any pool.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the Service and family of the pool with this id, or `None` if it has no single owner.
    pub fn find(&self, pool: &ResourceId, rules: &RulesByPool<'_>) -> Option<&LocalPool> {
        let candidates = self.by_name.get(&pool.name().to_lowercase())?;
        let names = rules.leading_to(pool).iter().map(|rule| rule.name.as_deref().unwrap_or_default());
        let is_theirs = |local: &&LocalPool| names.clone().all(|name| naming::owns_rule(&local.service, name));
        let mut fitting = candidates.iter().filter(is_theirs);
        let first = fitting.next();
        // Without rules that lead to the pool, several Services may have this name for it.
        first.filter(|_| fitting.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::providers::azure::{
        model::network::ArmLoadBalancer,
        planner::load_balancer::desired::samples::{load_balancer, network, service},
    };

    fn pool(name: &str) -> ResourceId {
        ResourceId::parse(&network(&format!("loadBalancers/lb2/backendAddressPools/{name}"))).unwrap()
    }

    fn document(rules: &[(&str, &str)]) -> ArmLoadBalancer {
        let rule = |(name, pool_name): &(&str, &str)| json!({"name": name, "properties": {"backendAddressPool": {"id": pool(pool_name).as_str().to_uppercase()}}});
        let rules: Vec<Value> = rules.iter().map(rule).collect();
        load_balancer(json!({"name": "lb2", "properties": {"loadBalancingRules": rules}}))
    }

    #[test]
    fn a_pool_is_its_services_by_name_and_by_rules() {
        let web = ServiceSpec { own_pool: true, families: vec![IpFamily::V4, IpFamily::V6], ..service("web") };
        let odd = ServiceSpec { own_pool: true, ..service("web-ipv6") };
        let nodes = |name: &str| EndpointNodes::of([name]);
        let known = BTreeMap::from([(web.identity.key.clone(), nodes("n1")), (odd.identity.key.clone(), nodes("n2"))]);
        let shared = service("cluster");
        assert_eq!(local_services([&web, &odd, &shared]).len(), 2);
        let pools = LocalPools::new([&web, &odd, &shared], &known);
        let found = |name: &str, rules: &[(&str, &str)]| {
            let document = document(rules);
            let found = pools.find(&pool(name), &RulesByPool::of(&document))?;
            Some((found.service.key.clone(), found.family, found.nodes.contains("n1")))
        };
        let rule_of = |spec: &ServiceSpec| format!("{}-TCP-80", spec.identity.name_prefix);
        let (of_web, of_odd) = (rule_of(&web), rule_of(&odd));
        let webs = |family| Some(("default/web".to_owned(), family, true));
        assert_eq!(found("default-web", &[(&of_web, "default-web")]), webs(IpFamily::V4));
        assert_eq!(found("default-web", &[]), webs(IpFamily::V4), "no rule leads to it yet");
        assert_eq!(found("default-web", &[("theirs", "default-web")]), None);
        // The Service whose rules lead to the pool determines the family, not the suffix of the name.
        assert_eq!(found("default-web-ipv6", &[(&of_web, "default-web-ipv6")]), webs(IpFamily::V6));
        let odds = Some(("default/web-ipv6".to_owned(), IpFamily::V4, false));
        assert_eq!(found("Default-Web-IPv6", &[(&of_odd, "default-web-ipv6")]), odds);
        assert_eq!(found("default-web-ipv6", &[]), None, "it may be either's");
        assert_eq!(found("kubernetes", &[]), None);
    }

    #[test]
    fn pools_of_a_service_of_whom_nothing_is_known_are_left_alone() {
        let web = ServiceSpec { own_pool: true, ..service("web") };
        assert!(LocalPools::new([&web], &BTreeMap::new()).is_empty());
    }
}
