//! Input that every step of planning load balancers reads. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::Arc,
};

use super::{
    plan_index::PlanIndex,
    types::{PublicIpAssignment, RequestIdx, ServiceRequest},
};
use crate::providers::azure::{
    config::LoadBalancerSku,
    model::{ResourceId, document::SubResource, network::PublicIpAddress},
    planner::load_balancer::{
        naming,
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceIdentity, ServiceSpec},
    },
};

pub(super) struct PlanContext<'a> {
    pub(super) index: &'a PlanIndex<'a>,
    pub(super) observed: &'a ObservedNetwork,
    pub(super) settings: &'a LoadBalancerSettings,
    /// Desired public IP of each external Service, by family.
    pub(super) public_ips: &'a PublicIpAssignment,
}

impl<'a> PlanContext<'a> {
    pub(super) fn new(
        index: &'a PlanIndex<'a>,
        settings: &'a LoadBalancerSettings,
        public_ips: &'a PublicIpAssignment,
    ) -> Self {
        Self { index, observed: index.observed(), settings, public_ips }
    }

    /// Returns `true` if the configured SKU is Standard.
    pub(super) fn is_standard(&self) -> bool {
        self.settings.sku == LoadBalancerSku::Standard
    }

    /// Returns the desired public IP of the Service, which may not exist yet.
    pub(super) fn public_ip(&self, identity: &ServiceIdentity, family: IpFamily) -> Option<&'a ResourceId> {
        self.public_ips.get(&(identity.clone(), family))
    }

    /// Returns the existing public IP to which `reference` refers.
    pub(super) fn find_public_ip(&self, reference: &SubResource) -> Option<&'a PublicIpAddress> {
        self.index.public_ip(reference.id.as_deref()?)
    }
}

/// Index of Services by the prefix of the names of their parts. `T` identifies a Service.
pub(super) struct NameOwners<T = RequestIdx> {
    /// Prefix and Service, by the prefix in lower case.
    prefixes: BTreeMap<String, (String, T)>,
}

impl NameOwners {
    /// Indexes the Services of requests, each by the position of its request.
    pub(super) fn of_requests<'a>(identities: impl Iterator<Item = &'a ServiceIdentity>) -> Self {
        Self::new(identities.enumerate().map(|(place, identity)| (identity, RequestIdx(place))))
    }
}

impl<T: Copy> NameOwners<T> {
    pub(super) fn new<'a>(services: impl Iterator<Item = (&'a ServiceIdentity, T)>) -> Self {
        let keyed = |(identity, service): (&ServiceIdentity, T)| {
            (identity.name_prefix.to_ascii_lowercase(), (identity.name_prefix.clone(), service))
        };
        Self { prefixes: services.map(keyed).collect() }
    }

    fn find(&self, name: &str) -> Option<&(String, T)> {
        let name = name.to_ascii_lowercase();
        let upto = (Bound::Unbounded, Bound::Included(name.as_str()));
        let (base, owner) = self.prefixes.range::<str, _>(upto).next_back()?;
        name.starts_with(base).then_some(owner)
    }

    /// Returns the owner of the rule or probe `name`, whose case is ignored.
    pub(super) fn of_rule(&self, name: &str) -> Option<T> {
        self.find(name).map(|(_, service)| *service)
    }

    /// Returns the owner of the frontend `name`. The case of the prefix must match, unlike for rules.
    pub(super) fn of_frontend(&self, name: &str) -> Option<T> {
        self.find(name).filter(|(base, _)| name.starts_with(base)).map(|(_, service)| *service)
    }
}

/// Services of the cluster, with or without a request.
///
/// A Service of another manager matters only where a change would remove one of its parts.
pub(super) struct KnownServices<'a> {
    /// Services of this manager, each with its requested or last spec; `None` for a deletion without a spec.
    pub(super) owners: NameOwners<Option<&'a ServiceSpec>>,
    /// Services of other managers. Their parts remain on their load balancers.
    pub(super) of_others: NameOwners<&'a ServiceSpec>,
    /// Services with their own backend pools, by the name of the pool.
    own_pools: HashMap<String, Vec<&'a ServiceIdentity>>,
}

impl<'a> KnownServices<'a> {
    /// Indexes the Services of `requests`, and `others`, which have no request.
    pub(super) fn new(requests: &[&'a ServiceRequest], others: &'a [Arc<ServiceSpec>]) -> Self {
        let asking = requests.iter().map(|request| (request.identity(), request.spec().map(Arc::as_ref)));
        let (of_others, others): (Vec<_>, Vec<_>) = others.iter().map(Arc::as_ref).partition(|spec| spec.is_others);
        let owners = asking.chain(others.into_iter().map(|spec| (&spec.identity, Some(spec))));
        let of_others = of_others.into_iter().map(|spec| (&spec.identity, spec));
        let (owners, of_others) = (NameOwners::new(owners), NameOwners::new(of_others));
        let mut own_pools: HashMap<String, Vec<&ServiceIdentity>> = HashMap::new();
        let specs = owners.prefixes.values().filter_map(|(_, spec): &(_, Option<&'a ServiceSpec>)| *spec);
        for spec in specs.filter(|spec| spec.own_pool) {
            let names = spec.families.iter().map(|family| naming::own_pool(&spec.identity, *family));
            names.for_each(|name| own_pools.entry(name).or_default().push(&spec.identity));
        }
        Self { owners, of_others, own_pools }
    }

    /// Returns `true` if the frontend belongs to an existing Service of any manager.
    pub(super) fn has_frontend(&self, name: &str) -> bool {
        self.owners.of_frontend(name).is_some() || self.of_others.of_frontend(name).is_some()
    }

    /// Returns `true` if the requested or last spec of another Service has its own pool with this name.
    pub(super) fn has_other_with_pool(&self, service: &ServiceIdentity, pool: &str) -> bool {
        self.own_pools.get(pool).into_iter().flatten().any(|holder| *holder != service)
    }

    /// Returns the requested or last spec of the Service that owns the rule `name`.
    pub(super) fn of_rule(&self, name: &str) -> Option<&'a ServiceSpec> {
        self.owners.of_rule(name).flatten()
    }
}

/// Returns `true` if `name` begins like the names that the controller generates: `a` and hexadecimal digits of a UID.
pub(super) fn is_generated_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next() == Some(b'a')
        && name.len() >= naming::NAME_PREFIX_LENGTH
        && letters.take(naming::NAME_PREFIX_LENGTH - 1).all(|c| c.is_ascii_hexdigit())
}

/// Returns the spec of a Service that needs a load balancer; `None` for a deletion.
pub(super) fn ensured_spec(request: &ServiceRequest) -> Option<&ServiceSpec> {
    match request {
        ServiceRequest::Ensure(spec) => Some(spec),
        ServiceRequest::Delete(..) => None,
    }
}
