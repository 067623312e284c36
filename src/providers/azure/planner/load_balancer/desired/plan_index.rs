//! Observed documents by id, address and owning Service, so that no step of a plan iterates over all of them for each Service. Pure.
//!
//! In: [`ObservedNetwork`]. Out: [`PlanIndex`], which the steps of one plan share. Each part is built when it is first needed, in one pass
//! over the documents, so that a plan pays only for the lookups that it makes.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use super::{
    draft::{self, FrontendUse},
    frontend_address::{FrontendAddress, frontend_address},
    public_ip_ownership as ownership,
};
use crate::providers::azure::{
    model::{
        ResourceId,
        network::{ArmLoadBalancer, FrontendIpConfiguration, LoadBalancingRule, PublicIpAddress},
        spelling,
    },
    planner::load_balancer::{naming, observed::ObservedNetwork, spec::ServiceIdentity},
};

/// Position of a frontend or rule: the position of its load balancer in ARM's order, and its own position there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartPosition {
    pub(super) load_balancer: usize,
    part: usize,
}

/// Lookup tables over one version of the observed documents. Each is built when it is first needed. Ids and names are keys in lower case.
#[derive(Debug, Default)]
pub struct IndexTables {
    public_ips_by_id: OnceLock<HashMap<String, usize>>,
    public_ips_by_address: OnceLock<HashMap<IpAddr, Vec<usize>>>,
    public_ips_by_service: OnceLock<HashMap<String, Vec<usize>>>,
    /// Pairs that are sorted by name in its original letter case, because the prefix of a frontend's owner is compared with case.
    frontends_by_name: OnceLock<Vec<(String, PartPosition)>>,
    frontends_by_address: OnceLock<HashMap<FrontendAddress, Vec<PartPosition>>>,
    frontends_by_id: OnceLock<HashMap<String, PartPosition>>,
    uses_by_frontend: OnceLock<HashMap<String, Vec<FrontendUse>>>,
    /// Pairs that are sorted by name in lower case.
    rules_by_name: OnceLock<Vec<(String, PartPosition)>>,
}

/// Index of the observed documents. Positions are those of [`ObservedNetwork`].
pub struct PlanIndex<'a> {
    observed: &'a ObservedNetwork,
    /// Whether lookups iterate over the documents: for a single Service, that is cheaper than building a table.
    is_of_one_service: bool,
    tables: Arc<IndexTables>,
}

impl<'a> PlanIndex<'a> {
    /// Creates an index of which no table is built yet.
    pub fn new(observed: &'a ObservedNetwork) -> Self {
        Self::with_tables(observed, Arc::default())
    }

    /// Creates an index that shares `tables` with other indexes of the same version of the documents.
    pub fn with_tables(observed: &'a ObservedNetwork, tables: Arc<IndexTables>) -> Self {
        Self { observed, is_of_one_service: false, tables }
    }

    /// Creates an index for the lookups of a single Service.
    pub fn of_one_service(observed: &'a ObservedNetwork) -> Self {
        Self { is_of_one_service: true, ..Self::new(observed) }
    }

    /// Returns the documents that are indexed.
    pub fn observed(&self) -> &'a ObservedNetwork {
        self.observed
    }

    /// Returns the public IP with this id; the last one if several have it.
    pub(super) fn public_ip(&self, id: &str) -> Option<&'a PublicIpAddress> {
        if self.is_of_one_service {
            let has_id = |ip: &&PublicIpAddress| ip.id.as_deref().is_some_and(|own| spelling::same_id(own, id));
            return self.observed.public_ips.iter().rfind(has_id);
        }
        let build = || {
            let public_ips = self.observed.public_ips.iter().enumerate();
            public_ips.filter_map(|(position, ip)| Some((ip.id.as_deref()?.to_ascii_lowercase(), position))).collect()
        };
        let position = self.tables.public_ips_by_id.get_or_init(build).get(&id.to_ascii_lowercase())?;
        self.observed.public_ips.get(*position)
    }

    /// Returns the public IPs with this address, in ARM's order.
    pub(super) fn public_ips_at(&self, address: IpAddr) -> Vec<&'a PublicIpAddress> {
        if self.is_of_one_service {
            let public_ips = self.observed.public_ips.iter();
            return public_ips.filter(|ip| ownership::address(ip) == Some(address)).collect();
        }
        let build = || grouped(self.observed.public_ips.iter().map(|ip| ownership::address(ip).into_iter().collect()));
        self.public_ips_among(self.tables.public_ips_by_address.get_or_init(build).get(&address))
    }

    /// Returns the public IPs that list the Service, whichever cluster made them, in ARM's order.
    pub(super) fn public_ips_listing(&self, service: &str) -> Vec<&'a PublicIpAddress> {
        let key = service.to_ascii_lowercase();
        if self.is_of_one_service {
            let public_ips = self.observed.public_ips.iter();
            return public_ips.filter(|ip| listed_services(ip).contains(&key)).collect();
        }
        let build = || grouped(self.observed.public_ips.iter().map(listed_services));
        self.public_ips_among(self.tables.public_ips_by_service.get_or_init(build).get(&key))
    }

    fn public_ips_among(&self, positions: Option<&Vec<usize>>) -> Vec<&'a PublicIpAddress> {
        positions.into_iter().flatten().filter_map(|position| self.observed.public_ips.get(*position)).collect()
    }

    /// Returns the frontend at a position, with its load balancer.
    pub(super) fn frontend(&self, at: PartPosition) -> Option<(&'a ArmLoadBalancer, &'a FrontendIpConfiguration)> {
        let document = self.observed.load_balancers.get(at.load_balancer)?;
        Some((document, draft::frontends(document).get(at.part)?))
    }

    /// Returns the frontends that belong to the Service by their names.
    pub(super) fn frontends_of(&self, service: &ServiceIdentity) -> Vec<PartPosition> {
        let name = |frontend: &FrontendIpConfiguration| frontend.name.clone().unwrap_or_default();
        let all = || positions(self.observed, draft::frontends);
        if self.is_of_one_service {
            let is_own =
                |part: &FrontendIpConfiguration| naming::owns_frontend(service, part.name.as_deref().unwrap_or_default());
            return all().filter(|(_, frontend)| is_own(frontend)).map(|(position, _)| position).collect();
        }
        let build = || sorted(all().map(|(position, frontend)| (name(frontend), position)));
        with_prefix(self.tables.frontends_by_name.get_or_init(build), &service.name_prefix).collect()
    }

    /// Returns the frontends with this address, in ARM's order.
    pub(super) fn frontends_at(&self, address: &FrontendAddress) -> Vec<PartPosition> {
        let addresses = positions(self.observed, draft::frontends)
            .filter_map(|(position, frontend)| Some((frontend_address(frontend)?, position)));
        if self.is_of_one_service {
            return addresses.filter(|(own, _)| own == address).map(|(_, position)| position).collect();
        }
        let build = || {
            let mut found: HashMap<_, Vec<_>> = HashMap::new();
            addresses.for_each(|(address, position)| found.entry(address).or_default().push(position));
            found
        };
        self.tables.frontends_by_address.get_or_init(build).get(address).cloned().unwrap_or_default()
    }

    /// Returns the frontend with this id.
    pub(super) fn frontend_with(&self, id: &ResourceId) -> Option<&'a FrontendIpConfiguration> {
        let build = || {
            let frontends = positions(self.observed, draft::frontends);
            frontends
                .filter_map(|(position, frontend)| Some((frontend.id.as_ref()?.to_ascii_lowercase(), position)))
                .collect()
        };
        let position = self.tables.frontends_by_id.get_or_init(build).get(&id.key())?;
        self.frontend(*position).map(|(_, frontend)| frontend)
    }

    /// Returns the users of the frontend with this id.
    pub(super) fn uses_of(&self, id: &ResourceId) -> &[FrontendUse] {
        let build = || self.observed.load_balancers.iter().flat_map(draft::uses_by_frontend).collect();
        self.tables.uses_by_frontend.get_or_init(build).get(&id.key()).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the rules that belong to the Service by their names, ordered by name.
    pub(super) fn rules_of(&self, service: &ServiceIdentity) -> impl Iterator<Item = &'a LoadBalancingRule> {
        let named = |(position, rule): (_, &LoadBalancingRule)| Some((rule.name.as_ref()?.to_ascii_lowercase(), position));
        let build = || sorted(positions(self.observed, draft::rules).filter_map(named));
        let prefix = service.name_prefix.to_ascii_lowercase();
        let own: Vec<PartPosition> = with_prefix(self.tables.rules_by_name.get_or_init(build), &prefix).collect();
        own.into_iter().filter_map(|at| draft::rules(self.observed.load_balancers.get(at.load_balancer)?).get(at.part))
    }

    /// Returns `true` if names show frontends or rules of the Service on some load balancer.
    pub fn has_parts_of(&self, service: &ServiceIdentity) -> bool {
        !self.frontends_of(service).is_empty() || self.rules_of(service).next().is_some()
    }
}

/// Returns the keys of the Services that a public IP lists.
fn listed_services(public_ip: &PublicIpAddress) -> Vec<String> {
    ownership::services(public_ip).into_iter().map(str::to_ascii_lowercase).collect()
}

fn sorted(names: impl Iterator<Item = (String, PartPosition)>) -> Vec<(String, PartPosition)> {
    let mut sorted: Vec<_> = names.collect();
    sorted.sort();
    sorted
}

/// Returns the positions of the names that begin with `prefix`, which are next to each other in a sorted list.
fn with_prefix(sorted: &[(String, PartPosition)], prefix: &str) -> impl Iterator<Item = PartPosition> {
    let first = sorted.partition_point(|(name, _)| name.as_str() < prefix);
    let following = sorted.get(first..).unwrap_or_default().iter();
    following.take_while(move |(name, _)| name.starts_with(prefix)).map(|(_, position)| *position)
}

/// Returns positions by key, from one list of keys for each position. A key that a list has several times counts once.
fn grouped<K: Eq + std::hash::Hash>(keys: impl Iterator<Item = Vec<K>>) -> HashMap<K, Vec<usize>> {
    let mut found: HashMap<K, Vec<usize>> = HashMap::new();
    for (position, key) in keys.enumerate().flat_map(|(position, keys)| keys.into_iter().map(move |key| (position, key))) {
        let positions = found.entry(key).or_default();
        if positions.last() != Some(&position) {
            positions.push(position);
        }
    }
    found
}

/// Returns all parts of one kind, each with its position.
fn positions<'a, T: 'a>(
    observed: &'a ObservedNetwork,
    parts: impl Fn(&'a ArmLoadBalancer) -> &'a [T],
) -> impl Iterator<Item = (PartPosition, &'a T)> {
    let documents = observed.load_balancers.iter().enumerate();
    documents.flat_map(move |(load_balancer, document)| {
        parts(document).iter().enumerate().map(move |(part, it)| (PartPosition { load_balancer, part }, it))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::providers::azure::planner::load_balancer::{
        desired::{public_ips::public_ip_addresses_of, samples::*},
        spec::ServiceSpec,
    };

    fn public_ip_of(name: &str, address: Option<&str>, services: &str) -> PublicIpAddress {
        let id = public_ip(name).as_str().replace("RG", "rg");
        let tags = json!({"k8s-azure-service": services});
        serde_json::from_value(json!({"id": id, "tags": tags, "properties": {"ipAddress": address}})).unwrap()
    }

    /// Returns the documents of three Services on two external load balancers and an internal one. One frontend is shared, and one has no
    /// address yet.
    fn cluster() -> ObservedNetwork {
        let name = |service: &str, end: &str| format!("{}{end}", service_identity(service).name_prefix);
        let public = |name: String, ip: &str| json!({"name": name, "id": network(&format!("x/{name}")), "properties": {"publicIPAddress": {"id": public_ip(ip).as_str()}}});
        let private =
            |name: String, address: Option<&str>| json!({"name": name, "properties": {"privateIPAddress": address}});
        let rule =
            |name: String| json!({"name": name, "properties": {"frontendPort": 80, "backendPort": 80, "protocol": "Tcp"}});
        let on = |balancer: &str, frontends: Vec<Value>, rules: Vec<Value>| {
            let properties = json!({"frontendIPConfigurations": frontends, "loadBalancingRules": rules});
            let id = network(&format!("loadBalancers/{balancer}"));
            load_balancer(json!({"id": id, "name": balancer, "properties": properties}))
        };
        let first =
            vec![public("theirs".into(), "theirs"), public(name("web", "-IPv6"), "six"), public(name("web", ""), "web")];
        let second =
            vec![public(name("api", ""), "api"), public(name("web", "-old"), "old"), public(name("new", ""), "new")];
        let inside = vec![private(name("web", ""), Some("10.0.0.7")), private(name("api", "-apps"), None)];
        let rules = vec![rule(name("web", "-TCP-80").to_uppercase()), rule(name("api", "-TCP-80")), rule("theirs".into())];
        let mut there =
            observed(vec![on("lb1", first, rules), on("lb2", second, vec![]), on("lb1-internal", inside, vec![])]);
        let ips = [
            ("web", Some("20.0.0.1"), "default/WEB, default/api"),
            ("six", Some("2603::1"), ""),
            ("api", Some("20.0.0.2"), "default/api"),
        ];
        let more =
            [("old", Some("20.0.0.3"), "default/web,default/web"), ("new", None, ""), ("theirs", Some("20.0.0.4"), "")];
        there.public_ips =
            ips.into_iter().chain(more).map(|(name, address, tag)| public_ip_of(name, address, tag)).collect();
        there
    }

    fn service_identity(name: &str) -> ServiceIdentity {
        service(name).identity
    }

    #[test]
    fn the_index_finds_what_a_walk_over_all_documents_finds() {
        let (there, settings) = (cluster(), settings());
        let (index, walk) = (PlanIndex::new(&there), PlanIndex::of_one_service(&there));
        let guest = pinned("20.0.0.2", service("guest"));
        let specs = ["web", "api", "new", "none"].map(service).into_iter().chain(["web", "api", "none"].map(internal));
        for spec in specs.chain([guest, pinned("10.0.0.7", internal("guest")), pinned("20.0.0.9", service("lost"))]) {
            let found = |index: &PlanIndex<'_>| {
                let of = |spec: &ServiceSpec| public_ip_addresses_of(index, &spec.identity.key.to_uppercase(), &settings);
                (index.frontend_addresses(&spec, &settings), index.pending_addresses(&spec, &settings), of(&spec))
            };
            assert_eq!(found(&index), found(&walk), "{}", spec.identity.key);
        }
        let addresses = |spec: &ServiceSpec| index.frontend_addresses(spec, &settings).len();
        let specs = [service("web"), service("new"), internal("web"), internal("api")];
        assert_eq!(specs.each_ref().map(addresses), [1, 0, 1, 0]);
        assert_eq!(addresses(&pinned("20.0.0.2", service("guest"))), 1);
        assert_eq!(public_ip_addresses_of(&index, "default/web", &settings).len(), 2);
        assert_eq!(["web", "api", "new"].map(|name| index.rules_of(&service_identity(name)).count()), [1, 1, 0]);
        let old = index.public_ip(&public_ip("old").as_str().to_uppercase()).unwrap();
        assert_eq!(old.id, there.public_ips[3].id);
    }
}
