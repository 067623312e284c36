//! Claims of Services on public IPs: the Services that use a public IP, and those that leave it. Pure.
//!
//! In: requests, the other Services, the documents. Out: [`PublicIpClaims`] in an order that does not depend on the order of the requests,
//! with the refused requests.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use super::{
    super::public_ip_ownership::{self as ownership, PublicIpOwner},
    target::{self, PublicIpIndex, PublicIpTarget},
};
use crate::providers::azure::{
    model::{ResourceId, network::PublicIpAddress, spelling},
    planner::load_balancer::{
        desired::{ServiceRequest, context::ensured_spec},
        naming,
        spec::{IpFamily, ServiceIdentity, ServiceRefusal, ServiceSpec},
    },
};

/// Use of one public IP by one Service for one family.
pub(super) struct PublicIpClaim<'a> {
    pub spec: &'a ServiceSpec,
    pub family: IpFamily,
    pub target: PublicIpTarget<'a>,
    /// Whether the Service is one of the requests.
    pub requested: bool,
}

#[derive(Default)]
pub(super) struct PublicIpClaims<'a> {
    all: Vec<PublicIpClaim<'a>>,
    /// Positions in `all` by public IP.
    by_id: HashMap<ResourceId, Vec<usize>>,
    /// Requests by key in lower case. A deleted Service and a new Service of the same name have the same key.
    requests: HashMap<String, Vec<&'a ServiceRequest>>,
    /// Refusals of requests and of other Services. A refusal of another Service affects no request.
    refused: BTreeMap<&'a ServiceIdentity, ServiceRefusal>,
    /// Keys of the refused Services in lower case.
    refused_keys: HashSet<String>,
    identities: Vec<&'a ServiceIdentity>,
}

impl<'a> PublicIpClaims<'a> {
    pub(super) fn new(asks: &'a [ServiceRequest], others: &'a [Arc<ServiceSpec>], index: &PublicIpIndex<'a>) -> Self {
        let mut identities: Vec<_> = asks.iter().map(ServiceRequest::identity).collect();
        identities.sort();
        let asked = asks.iter().filter_map(ensured_spec).map(|spec| (spec, true));
        let is_other = |spec: &&Arc<ServiceSpec>| identities.binary_search(&&spec.identity).is_err();
        let mut specs: Vec<_> = asked.chain(others.iter().filter(is_other).map(|spec| (spec.as_ref(), false))).collect();
        specs.sort_by(|(a, _), (b, _)| a.identity.cmp(&b.identity));
        let mut claims = Self { identities, ..Self::default() };
        for request in asks {
            claims.requests.entry(request.identity().key.to_lowercase()).or_default().push(request);
        }
        for (spec, asked) in specs {
            claims.add(spec, asked, index);
        }
        claims
    }

    fn add(&mut self, spec: &'a ServiceSpec, asked: bool, index: &PublicIpIndex<'a>) {
        match target::targets(spec, index) {
            Err(refusal) => {
                self.refused_keys.insert(spec.identity.key.to_lowercase());
                self.refused.insert(&spec.identity, refusal);
            }
            Ok(targets) => {
                for (family, target) in targets {
                    self.by_id.entry(target.id.clone()).or_default().push(self.all.len());
                    self.all.push(PublicIpClaim { spec, family, target, requested: asked });
                }
            }
        }
    }

    /// Returns `Ok` or the refusal for each request.
    pub(super) fn results(&self) -> BTreeMap<ServiceIdentity, Result<(), ServiceRefusal>> {
        let result = |identity: &&ServiceIdentity| self.refused.get(identity).cloned().map_or(Ok(()), Err);
        self.identities.iter().map(|identity| ((*identity).clone(), result(identity))).collect()
    }

    pub(super) fn is_granted(&self, claim: &PublicIpClaim<'_>) -> bool {
        !self.refused.contains_key(&claim.spec.identity)
    }

    /// Returns the claims that are not refused.
    pub(super) fn granted(&self) -> impl Iterator<Item = &PublicIpClaim<'a>> {
        self.all.iter().filter(|claim| self.is_granted(claim))
    }

    /// Returns the requested Services that are not refused.
    pub(super) fn granted_services(&self) -> impl Iterator<Item = &'a ServiceIdentity> {
        self.identities.iter().copied().filter(|identity| !self.refused.contains_key(identity))
    }

    /// Returns all claims on a public IP. Refused claims are included because they prevent its deletion.
    pub(super) fn claims_on(&self, id: &ResourceId) -> impl Iterator<Item = &PublicIpClaim<'a>> {
        let positions = self.by_id.get(id).map(Vec::as_slice).unwrap_or_default();
        positions.iter().filter_map(|position| self.all.get(*position))
    }

    /// Returns the claims of requests on a public IP that are not refused.
    pub(super) fn requested_claims_on(&self, id: &ResourceId) -> impl Iterator<Item = &PublicIpClaim<'a>> {
        self.claims_on(id).filter(|claim| claim.requested && self.is_granted(claim))
    }

    /// Returns the requests whose Services the public IP lists, or names as owner of its DNS label, although they no longer use it.
    pub(super) fn leaving(
        &self,
        id: &ResourceId,
        pip: &PublicIpAddress,
        index: &PublicIpIndex<'_>,
    ) -> Vec<&'a ServiceRequest> {
        let named = ownership::services(pip).into_iter().chain(ownership::dns_owner(pip));
        let listed = named.filter_map(|name| self.requests.get(&name.to_lowercase())).flatten();
        let mut leaving: Vec<_> = listed.copied().filter(|request| self.leaves(request, id, pip, index)).collect();
        leaving.sort_by_key(|request| request.identity());
        leaving.dedup_by_key(|request| request.identity());
        leaving
    }

    fn leaves(&self, request: &ServiceRequest, id: &ResourceId, pip: &PublicIpAddress, index: &PublicIpIndex<'_>) -> bool {
        let key = &request.identity().key;
        let is_wanted = self.claims_on(id).any(|claim| spelling::same_name(&claim.spec.identity.key, key));
        let is_unclear = self.refused_keys.contains(&key.to_lowercase());
        !is_wanted && !is_unclear && is_proven(request, id, pip, index)
    }
}

/// Returns `true` if the entry in the list of a public IP is proven to be the entry of this Service.
///
/// In the resource groups of the cluster and of the Service, the tags are the proof. In another group, where a cluster of the same name may
/// have its public IPs, the name must match, too. On a public IP of a cluster of another name, the entry may be that cluster's Service of
/// the same name. It belongs to our Service only if it was added behind another entry, and the Service selects or has had the address.
fn is_proven(request: &ServiceRequest, id: &ResourceId, pip: &PublicIpAddress, index: &PublicIpIndex<'_>) -> bool {
    let (identity, spec) = (request.identity(), request.spec());
    if ownership::owner(pip, &index.settings.cluster) == PublicIpOwner::OtherCluster {
        let address = ownership::address(pip);
        let selects = |spec: &ServiceSpec| {
            let names = [&spec.public_ip.name.v4, &spec.public_ip.name.v6].into_iter().flatten();
            let addresses =
                [spec.pinned.v4, spec.pinned.v6].into_iter().flatten().chain(spec.status_addresses.iter().copied());
            names.into_iter().any(|name| spelling::same_name(name, id.name()))
                || addresses.into_iter().any(|a| Some(a) == address)
        };
        return ownership::position(pip, &identity.key) > Some(0) && spec.is_some_and(|spec| selects(spec));
    }
    let group = id.parent();
    let is_own_group = group.as_ref() == Some(&index.settings.group)
        || spec.is_some_and(|spec| group.as_ref() == Some(&spec.public_ip.group));
    let generated = naming::public_ip(&index.settings.cluster, identity, None, IpFamily::V4, false);
    is_own_group || spelling::starts_with(id.name(), &generated)
}
