//! Documents of the network that must be read before a plan, and the Services that are blocked because a read failed. Pure.
//!
//! In: requests, the reads for this plan, and the failures of reads. Out: [`PlanNeeds`], or the blocked Services ([`BlockedBy`]). A
//! failed read of a resource that only one Service names blocks no other Service. Each round of reads includes the reads of the round
//! before and adds others, so the rounds end.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    super::{
        desired::{ServiceRequest, expected, plan_index::PlanIndex, private_links::reads, status::public_ip_groups},
        network_query::{NetworkCacheKey, NetworkQuery, NetworkReadFailure, is_lasting},
        observed::ObservedNetwork,
        rule_memory::ParsedService,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceIdentity, ServiceSpec},
    },
    pools::PoolNeeds,
    types::{BlockedBy, NetworkReads, Plan, PlanInput, PlanNeeds, PlanScope},
};
use crate::providers::azure::{config::LoadBalancerSku, model::ResourceId};

impl PlanScope<'_> {
    /// Returns `true` if nothing is written before a plan of this scope. Lost documents are searched for only then.
    fn comes_first(self) -> bool {
        matches!(self, Self::Everything | Self::Network | Self::NetworkAndRules)
    }

    fn has_network(self) -> bool {
        self.comes_first() || matches!(self, Self::LoadBalancers)
    }
}

/// Returns the reads that the requests need, judged by the requests and the earlier reads; `None` if none is missing.
pub(super) fn of_requests(input: &PlanInput<'_>) -> Option<PlanNeeds> {
    let reads = input.network;
    if reads.is_complete || matches!(input.scope, PlanScope::Eviction(_)) {
        return None;
    }
    let (mut query, mut refresh) = (query(input), BTreeSet::new());
    if let Some(read) = &reads.query {
        query.public_ip_groups.extend(public_ip_groups(input.observed, input.requests.iter().map(ServiceRequest::identity)));
        let lost = lost_documents(input);
        if !lost.is_empty() {
            refresh.insert(NetworkCacheKey::LoadBalancers);
        }
        query.expected.extend(lost);
        query.extend(read);
        refresh.retain(|key| !reads.refreshed.contains(key));
        if query == *read && refresh.is_empty() {
            return None;
        }
    }
    Some(PlanNeeds { network: Some(query), refresh, pools: PoolNeeds::default() })
}

/// Returns the reads that `plan` shows to be missing; `None` if none is missing.
pub(super) fn of_plan(input: &PlanInput<'_>, plan: &Plan) -> Option<PlanNeeds> {
    let mut needs = PlanNeeds { pools: plan.pools.needs.clone(), ..PlanNeeds::default() };
    if let Some(read) = input.network.query.as_ref().filter(|_| !input.network.is_complete) {
        let groups = groups_in_the_way(input, plan, read);
        needs.refresh = refused_references(input, plan);
        if !groups.is_empty() || !needs.refresh.is_empty() {
            let mut query = read.clone();
            query.private_link_groups.extend(groups);
            needs.network = Some(query);
        }
    }
    (needs != PlanNeeds::default()).then_some(needs)
}

/// Returns the resource groups that were not read and whose private link services may block the removal of frontends.
fn groups_in_the_way(input: &PlanInput<'_>, plan: &Plan, read: &NetworkQuery) -> BTreeSet<ResourceId> {
    let is_standard = input.settings.sku == LoadBalancerSku::Standard;
    if !input.scope.has_network() || !is_standard || !reads::drops_frontends(input.observed, &plan.network.load_balancers) {
        return BTreeSet::new();
    }
    let mut groups = all_private_link_groups(input);
    groups.retain(|group| !input.observed.private_links.groups.contains(group) && !read.private_link_groups.contains(group));
    groups
}

/// Returns the references of refused Services that must be read again, because another component may have created the resources a moment
/// ago.
///
/// Recently denied reads have their own schedule and are not repeated here.
fn refused_references(input: &PlanInput<'_>, plan: &Plan) -> BTreeSet<NetworkCacheKey> {
    if !matches!(input.scope, PlanScope::Network | PlanScope::NetworkAndRules) {
        return BTreeSet::new();
    }
    let refused = input.requests.iter().filter(|request| plan.network.refused.contains_key(request.identity()));
    let mut keys: BTreeSet<NetworkCacheKey> =
        refused.filter_map(ServiceRequest::spec).flat_map(|spec| named_keys(spec, input.settings)).collect();
    keys.retain(|key| !input.network.denied.contains(key) && !input.network.refreshed.contains(key));
    keys
}

/// Returns the cache keys of the resources that the Service names and that another component creates.
pub fn named_keys(spec: &Arc<ServiceSpec>, settings: &LoadBalancerSettings) -> Vec<NetworkCacheKey> {
    let mut keys = link_and_subnet_keys(&ServiceRequest::Ensure(Arc::clone(spec)), settings);
    let is_named = |family: &IpFamily| spec.pinned.get(*family).is_some() || spec.public_ip.name.get(*family).is_some();
    let names_one = !spec.internal && spec.families.iter().any(is_named);
    keys.extend(names_one.then(|| NetworkCacheKey::PublicIps(spec.public_ip.group.clone())));
    keys
}

/// Returns the keys of the private link service's group and of the subnets that the Service of this request names.
fn link_and_subnet_keys(request: &ServiceRequest, settings: &LoadBalancerSettings) -> Vec<NetworkCacheKey> {
    let subnets = subnets(std::slice::from_ref(request), settings).into_iter();
    let link = request.spec().and_then(|spec| spec.private_link.as_ref());
    let group = link.map(|link| NetworkCacheKey::PrivateLinks(link.group.clone()));
    subnets.map(|name| NetworkCacheKey::Subnet(name).normalized()).chain(group).collect()
}

/// Returns the names of the subnets in which the requests need frontends or private link services.
fn subnets(requests: &[ServiceRequest], settings: &LoadBalancerSettings) -> BTreeSet<String> {
    let ensured = requests.iter().filter(|request| matches!(request, ServiceRequest::Ensure(_)));
    let internal_specs = ensured.filter_map(ServiceRequest::spec).filter(|spec| spec.internal);
    let mut subnets = reads::subnets(requests, settings);
    subnets.extend(internal_specs.map(|spec| spec.subnet.clone().unwrap_or_else(|| settings.subnet.clone())));
    subnets
}

/// Returns the documents that may have parts of lost Services, under all names that these documents have with other settings.
fn lost_documents(input: &PlanInput<'_>) -> BTreeSet<NetworkCacheKey> {
    if !input.scope.comes_first() {
        return BTreeSet::new();
    }
    let index = PlanIndex::new(input.observed);
    let lost: Vec<_> = input.requests.iter().filter(|request| is_lost(request, &index)).cloned().collect();
    let (load_balancers, public_ips) = expected::under_other_settings(&lost, &input.observed.vm_sets, input.settings);
    let load_balancers = load_balancers.into_iter().map(NetworkCacheKey::LoadBalancer);
    load_balancers.chain(public_ips.into_iter().map(NetworkCacheKey::PublicIp)).collect()
}

/// Returns `true` if the request deletes a Service that had an address and has no parts on any load balancer.
fn is_lost(request: &ServiceRequest, index: &PlanIndex<'_>) -> bool {
    let goes = matches!(request, ServiceRequest::Delete(_, Some(spec)) if !spec.status_addresses.is_empty());
    goes && !index.has_parts_of(request.identity())
}

/// Returns the specs of the other Services without those of other managers, whose documents are not searched for.
fn own(others: &[ParsedService]) -> impl Iterator<Item = &Arc<ServiceSpec>> {
    others.iter().map(ParsedService::spec).filter(|spec| !spec.is_others)
}

/// Returns the query for the documents that the requests may need.
///
/// A group of public IPs whose last read failed is read only if a request names it, and a subnet only if a request may get a frontend in
/// it. Therefore a failed read blocks no other Service.
fn query(input: &PlanInput<'_>) -> NetworkQuery {
    let PlanInput { requests, others, settings, network: reads, .. } = *input;
    let mut query = NetworkQuery::default();
    let asking = requests.iter().filter_map(ServiceRequest::spec);
    query.public_ip_groups.extend(asking.map(|spec| spec.public_ip.group.clone()));
    for group in own(others).map(|spec| &spec.public_ip.group) {
        let is_new = !query.public_ip_groups.contains(group);
        if is_new && !reads.denied.contains(&NetworkCacheKey::PublicIps(group.clone())) {
            query.public_ip_groups.insert(group.clone());
        }
    }
    query.subnets = subnets(requests, settings);
    let named = reads::asked_groups(requests);
    query.private_link_groups.clone_from(&reads.former_link_groups);
    if !named.is_empty() {
        query.private_link_groups.extend(all_private_link_groups(input));
    }
    query.private_link_groups.extend(named);
    let links = reads::expected_links(requests, settings);
    query.expected.extend(links.into_iter().map(NetworkCacheKey::PrivateLink));
    let load_balancers = expected::load_balancers(requests, own(others), settings);
    query.expected.extend(load_balancers.into_iter().map(NetworkCacheKey::LoadBalancer));
    let public_ips = expected::public_ips(requests, reads.deleting, settings);
    query.expected.extend(public_ips.into_iter().map(NetworkCacheKey::PublicIp));
    query
}

/// Returns all groups that may have a private link service. Groups that cannot be read are omitted; they are read only if a request names
/// them.
fn all_private_link_groups(input: &PlanInput<'_>) -> BTreeSet<ResourceId> {
    let specs = input.requests.iter().filter_map(ServiceRequest::spec).chain(input.others.iter().map(ParsedService::spec));
    let mut groups = reads::all_groups(specs, input.settings);
    groups.extend(input.network.discovered_link_groups.iter().cloned());
    groups.retain(|group| !input.network.denied.contains(&NetworkCacheKey::PrivateLinks(group.clone())));
    groups
}

/// Requests that can be planned, Services that keep what they have, and the reason for each blocked Service among the latter.
type UnblockedRequests<'a> = (Cow<'a, [ServiceRequest]>, Cow<'a, [ParsedService]>, BTreeMap<ServiceIdentity, BlockedBy>);

/// Separates the requests that can be planned from the Services that keep what they have.
///
/// The latter are the other Services, the Services in `held`, and the Services whose references could not be read.
pub(super) fn unblocked<'a>(input: &PlanInput<'a>) -> UnblockedRequests<'a> {
    let PlanInput { requests, others, held, settings, network, .. } = *input;
    let mut blocked = BTreeMap::new();
    if input.scope.has_network() {
        let found = requests.iter().filter_map(|request| {
            Some((request.identity().clone(), network.blocked_by(request, input.observed, settings)?))
        });
        blocked.extend(found);
    }
    if blocked.is_empty() && held.is_empty() {
        return (requests.into(), others.into(), blocked);
    }
    let is_kept = |request: &ServiceRequest| blocked.contains_key(request.identity()) || held.contains(request.identity());
    let (kept, free): (Vec<_>, Vec<_>) = requests.iter().cloned().partition(is_kept);
    let kept = kept.iter().filter_map(ServiceRequest::spec).cloned().map(ParsedService::Valid);
    (free.into(), others.iter().cloned().chain(kept).collect(), blocked)
}

impl NetworkReads {
    /// Returns the reason why nothing can be planned for this request. A deletion is blocked only while a part of the Service may exist.
    fn blocked_by(
        &self,
        request: &ServiceRequest,
        observed: &ObservedNetwork,
        settings: &LoadBalancerSettings,
    ) -> Option<BlockedBy> {
        if let Some(unread) = self.failures_of(request, settings).find(|unread| self.is_blocking(request, unread, settings))
        {
            return Some(BlockedBy::Reference(Box::new(unread.clone())));
        }
        // Public IPs in a group that the Service named before would be left over.
        let former = public_ip_groups(observed, std::iter::once(request.identity()));
        let mut passing = self.failures.iter().filter(|unread| !is_lasting(&unread.error));
        let is_former = |unread: &&NetworkReadFailure| {
            former.iter().any(|group| NetworkCacheKey::PublicIps(group.clone()).covers(&unread.key.clone().normalized()))
        };
        if let Some(unread) = passing.find(is_former) {
            return Some(BlockedBy::Reference(Box::new(unread.clone())));
        }
        let error = self.unread_zones.as_ref()?;
        // Azure cannot change the zones of a frontend later.
        let is_new = matches!(request, ServiceRequest::Ensure(spec) if PlanIndex::of_one_service(observed).status(spec, settings).is_empty());
        is_new.then(|| BlockedBy::Zones(Box::new(error.clone())))
    }

    /// Returns a failed read of a resource that the Service of this request names and that does not block the Service's deletion.
    ///
    /// A part of the Service may be left over there if another process created it.
    pub fn ignorable_failure(
        &self,
        request: &ServiceRequest,
        settings: &LoadBalancerSettings,
    ) -> Option<&NetworkReadFailure> {
        self.failures_of(request, settings)
            .find(|unread| !unread.group_missing && !self.is_blocking(request, unread, settings))
    }

    /// Returns `true` if a failed read blocks this request. A failed read always blocks a Service that is ensured.
    ///
    /// A deletion has nothing to remove in a group that does not exist according to ARM. If reads fail for a lasting reason, this program
    /// could not create anything there either, unless an address or the memory of this process shows that it did. Other errors are
    /// transient, so the deletion waits for them.
    ///
    /// The cluster's own group must exist and be readable, and a process that was killed may have created something in it.
    fn is_blocking(&self, request: &ServiceRequest, unread: &NetworkReadFailure, settings: &LoadBalancerSettings) -> bool {
        let is_served = || request.spec().is_some_and(|spec| !spec.status_addresses.is_empty());
        let is_in_own_group = || NetworkCacheKey::PublicIps(settings.group.clone()).covers(&unread.key);
        let was_tried = || self.public_ip_attempts.contains(request.identity());
        matches!(request, ServiceRequest::Ensure(_))
            || (!unread.group_missing && (!is_lasting(&unread.error) || is_in_own_group() || is_served() || was_tried()))
    }

    fn failures_of(
        &self,
        request: &ServiceRequest,
        settings: &LoadBalancerSettings,
    ) -> impl Iterator<Item = &NetworkReadFailure> {
        let mut named = link_and_subnet_keys(request, settings);
        named.extend(request.spec().map(|spec| NetworkCacheKey::PublicIps(spec.public_ip.group.clone())));
        self.failures.iter().filter(move |unread| {
            let unread = unread.key.clone().normalized();
            named.iter().any(|key| key.covers(&unread))
        })
    }
}
