//! What every step of planning load balancers looks at. Pure.

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
    /// The public IP that each Service shall have.
    pub(super) public_ips: &'a PublicIpAssignment,
}

impl<'a> PlanContext<'a> {
    /// From what the planner is given.
    pub(super) fn new(
        index: &'a PlanIndex<'a>,
        settings: &'a LoadBalancerSettings,
        public_ips: &'a PublicIpAssignment,
    ) -> Self {
        Self { index, observed: index.observed(), settings, public_ips }
    }

    /// Whether load balancers are Standard ones.
    pub(super) fn is_standard(&self) -> bool {
        self.settings.sku == LoadBalancerSku::Standard
    }

    /// The public IP that the Service shall have.
    pub(super) fn public_ip(&self, identity: &ServiceIdentity, family: IpFamily) -> Option<&'a ResourceId> {
        self.public_ips.get(&(identity.clone(), family))
    }

    /// A public IP that there is.
    pub(super) fn find_public_ip(&self, reference: &SubResource) -> Option<&'a PublicIpAddress> {
        self.index.public_ip(reference.id.as_deref()?)
    }
}

/// Which Service names say something belongs to; `T` stands for the Service.
pub(super) struct NameOwners<T = RequestIdx> {
    /// Beginnings of names in lower case, and whose they are.
    prefixes: BTreeMap<String, (String, T)>,
}

impl NameOwners {
    /// Of these requests; the answers are their places.
    pub(super) fn of_requests<'a>(identities: impl Iterator<Item = &'a ServiceIdentity>) -> Self {
        Self::new(identities.enumerate().map(|(place, identity)| (identity, RequestIdx(place))))
    }
}

impl<T: Copy> NameOwners<T> {
    /// Of these Services.
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

    /// Whose rule or probe it is.
    pub(super) fn of_rule(&self, name: &str) -> Option<T> {
        self.find(name).map(|(_, service)| *service)
    }

    /// Whose front end it is.
    pub(super) fn of_frontend(&self, name: &str) -> Option<T> {
        self.find(name).filter(|(base, _)| name.starts_with(base)).map(|(_, service)| *service)
    }
}

/// Every Service that there is, whether it asks or not. What another manager made counts only where something would be taken away from it.
pub(super) struct KnownServices<'a> {
    /// Which names say that something belongs to one of them, with what it asks for or asked for last.
    pub(super) owners: NameOwners<Option<&'a ServiceSpec>>,
    /// The same of Services of other managers, which are left where they are.
    pub(super) of_others: NameOwners<&'a ServiceSpec>,
    /// Services that have pools for themselves, by the name of the pool.
    own_pools: HashMap<String, Vec<&'a ServiceIdentity>>,
}

impl<'a> KnownServices<'a> {
    /// Those who ask, and the others.
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

    /// Whether the front end is a Service's that there is.
    pub(super) fn has_frontend(&self, name: &str) -> bool {
        self.owners.of_frontend(name).is_some() || self.of_others.of_frontend(name).is_some()
    }

    /// Returns `true` if another Service has, or had last, a pool for itself with this name.
    pub(super) fn has_other_with_pool(&self, service: &ServiceIdentity, pool: &str) -> bool {
        self.own_pools.get(pool).into_iter().flatten().any(|holder| *holder != service)
    }

    /// The Service whose rule it is.
    pub(super) fn of_rule(&self, name: &str) -> Option<&'a ServiceSpec> {
        self.owners.of_rule(name).flatten()
    }
}

/// Whether a name begins as those that the controller gives.
pub(super) fn is_generated_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next() == Some(b'a')
        && name.len() >= naming::NAME_PREFIX_LENGTH
        && letters.take(naming::NAME_PREFIX_LENGTH - 1).all(|c| c.is_ascii_hexdigit())
}

/// The spec of a Service that shall have a load balancer.
pub(super) fn ensured_spec(request: &ServiceRequest) -> Option<&ServiceSpec> {
    match request {
        ServiceRequest::Ensure(spec) => Some(spec),
        ServiceRequest::Delete(..) => None,
    }
}
