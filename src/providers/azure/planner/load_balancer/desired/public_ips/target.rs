//! Public IP that each Service must have. Pure.
//!
//! In: a spec and the observed public IPs. Out: one [`PublicIpTarget`] for each family of an external Service, or a refusal.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `determinePublicIPName`, which treats the addresses in the status as pinned. This module
//! does not: frontends and public IPs come from one decision, so the public IP in use remains the target until the user's request changes.

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    super::{frontend_address::FrontendAddress, public_ip_ownership as ownership},
    upgrade::{self, SkuUpgrade},
};
use crate::providers::azure::{
    model::{
        ResourceId,
        network::{ArmLoadBalancer, PublicIpAddress},
        spelling,
    },
    planner::load_balancer::{
        annotations::{IPV4, IPV6, PIP_NAME, PIP_NAME_IPV6},
        desired::{placement, plan_index::PlanIndex},
        naming,
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceRefusal, ServiceSpec, refusal},
    },
};

const KIND: &str = "Microsoft.Network/publicIPAddresses";

/// Public IP for one family of a Service.
#[derive(Debug, Clone)]
pub(super) struct PublicIpTarget<'a> {
    /// Resource ID, in the spelling of ARM if the public IP exists.
    pub id: ResourceId,
    /// Observed document; `None` if the public IP does not exist.
    pub existing: Option<&'a PublicIpAddress>,
    /// Whether the user selects it by name or by address.
    pub selected: bool,
}

/// Public IP for one family of a Service, or the reason why it cannot have one.
type TargetResult<'a> = Result<PublicIpTarget<'a>, ServiceRefusal>;

pub(super) struct PublicIpIndex<'a> {
    /// Documents as received from ARM.
    pub observed: &'a ObservedNetwork,
    pub settings: &'a LoadBalancerSettings,
    pub documents: PlanIndex<'a>,
    /// Basic load balancers that remain although the cluster now has standard ones.
    pub leftovers: Vec<&'a ArmLoadBalancer>,
}

impl<'a> PublicIpIndex<'a> {
    pub(super) fn new(observed: &'a ObservedNetwork, settings: &'a LoadBalancerSettings) -> Self {
        let is_leftover = |document: &&ArmLoadBalancer| placement::is_leftover(settings, document);
        let leftovers = observed.load_balancers.iter().filter(is_leftover).collect();
        Self { observed, settings, documents: PlanIndex::new(observed), leftovers }
    }

    /// Returns all public IPs that have a valid resource ID, ordered by it.
    pub(super) fn public_ips(&self) -> BTreeMap<ResourceId, &'a PublicIpAddress> {
        self.observed.public_ips.iter().filter_map(with_id).collect()
    }

    fn find(&self, id: &ResourceId) -> Option<(ResourceId, &'a PublicIpAddress)> {
        with_id(self.documents.public_ip(id.as_str())?)
    }

    fn with_address(&self, address: IpAddr, group: &ResourceId) -> Option<(ResourceId, &'a PublicIpAddress)> {
        let found = self.documents.public_ips_at(address).into_iter().filter_map(with_id);
        found.filter(|(id, _)| id.parent().as_ref() == Some(group)).min_by(|(one, _), (other, _)| one.cmp(other))
    }
}

/// Returns the public IP with its parsed ID; `None` if it has no valid resource ID.
fn with_id(pip: &PublicIpAddress) -> Option<(ResourceId, &PublicIpAddress)> {
    Some((ResourceId::parse(pip.id.as_deref()?).ok()?, pip))
}

/// Returns the public IP for each family of the Service; none if the Service is internal.
pub(super) fn targets<'a>(
    spec: &ServiceSpec,
    index: &PublicIpIndex<'a>,
) -> Result<BTreeMap<IpFamily, PublicIpTarget<'a>>, ServiceRefusal> {
    let families = spec.families.iter().filter(|_| !spec.internal);
    families
        .map(|family| target(spec, *family, index).and_then(|target| usable(target, index)).map(|target| (*family, target)))
        .collect()
}

/// Refuses a target of the basic SKU if another user prevents its upgrade to the standard SKU.
///
/// Standard load balancers cannot use a public IP of the basic SKU.
fn usable<'a>(target: PublicIpTarget<'a>, index: &PublicIpIndex<'a>) -> TargetResult<'a> {
    let upgrade = target.existing.map(|pip| upgrade::of(pip, index.observed, index.settings));
    let Some(SkuUpgrade::Blocked(user)) = upgrade else { return Ok(target) };
    let name = target.id.name();
    let message = format!(
        "public IP `{name}` is of the basic SKU, which standard load balancers do not take, and `{user}` uses it; take it from there, \
         or upgrade it to the standard SKU"
    );
    Err(refusal("public IP", message))
}

fn target<'a>(spec: &ServiceSpec, family: IpFamily, index: &PublicIpIndex<'a>) -> TargetResult<'a> {
    if let Some(name) = spec.public_ip.name.get(family) {
        return named(spec, family, name, index);
    }
    match spec.pinned.get(family) {
        Some(address) if spec.public_ip.prefix.get(family).is_none() => pinned(spec, family, *address, index),
        _ => generated(spec, family, index),
    }
}

fn named<'a>(spec: &ServiceSpec, family: IpFamily, name: &str, index: &PublicIpIndex<'a>) -> TargetResult<'a> {
    let group = &spec.public_ip.group;
    let refuse = |message| refusal(annotation_for(family, PIP_NAME.key, PIP_NAME_IPV6.key), message);
    let (id, pip) = index.find(&group.resource(KIND, &[name])).ok_or_else(|| {
        let group = group.name();
        refuse(format!("resource group `{group}` has no public IP `{name}`; create it, or name one that exists"))
    })?;
    if ownership::family(pip) != family {
        let other = ownership::family(pip);
        return Err(refuse(format!("public IP `{name}` is of {other}; name one of {family}")));
    }
    permit(spec, pip, &id, index).map_err(refuse)?;
    Ok(PublicIpTarget { id, existing: Some(pip), selected: true })
}

/// Returns an error if namespaces are enforced and the Service may not select the public IP.
///
/// A Service may select a public IP with a tag that allows its namespace, and one that was created for a Service in its namespace.
fn permit(spec: &ServiceSpec, pip: &PublicIpAddress, id: &ResourceId, index: &PublicIpIndex<'_>) -> Result<(), String> {
    let namespace_of = |key: &str| key.split_once('/').map(|(namespace, _)| namespace.to_lowercase());
    let namespace = namespace_of(&spec.identity.key).unwrap_or_default();
    let listed = ownership::tag(pip.tags.as_ref(), ownership::ALLOWED_NAMESPACES_TAG_KEYS).unwrap_or_default();
    let is_allowed =
        listed.split(',').map(str::trim).any(|allowed| allowed == "*" || spelling::same_name(allowed, &namespace));
    let first = ownership::services(pip).first().and_then(|key| namespace_of(key));
    let is_own = ownership::owner(pip, &index.settings.cluster) == ownership::PublicIpOwner::Cluster
        && first.as_ref() == Some(&namespace);
    if !index.settings.namespaces_are_enforced || is_allowed || is_own {
        return Ok(());
    }
    let (name, tag) = (id.name(), ownership::ALLOWED_NAMESPACES_TAG_KEYS[0]);
    Err(format!(
        "public IP `{name}` is not for namespace `{namespace}`; its owner can allow that with the tag `{tag}`, a list of namespaces between commas or `*`"
    ))
}

fn annotation_for(family: IpFamily, v4: &'static str, v6: &'static str) -> &'static str {
    if family == IpFamily::V4 { v4 } else { v6 }
}

fn pinned<'a>(spec: &ServiceSpec, family: IpFamily, address: IpAddr, index: &PublicIpIndex<'a>) -> TargetResult<'a> {
    let group = &spec.public_ip.group;
    let refuse = |message| refusal(annotation_for(family, IPV4.key, IPV6.key), message);
    let (id, pip) = index.with_address(address, group).ok_or_else(|| {
        refuse(format!(
            "resource group `{}` has no public IP with the address {address}, which this annotation or `spec.loadBalancerIP` asks \
             for; create one there, ask for an address that exists, or make the Service internal if the address is a private one",
            group.name()
        ))
    })?;
    permit(spec, pip, &id, index).map_err(refuse)?;
    Ok(PublicIpTarget { id, existing: Some(pip), selected: true })
}

/// Returns the public IP under the generated name of the family, existing or not.
///
/// When a Service changes between single stack and dual stack, the generated names of its families change. The Service then keeps the
/// public IP under the former name of the family, because a new public IP would have another address.
fn generated<'a>(spec: &ServiceSpec, family: IpFamily, index: &PublicIpIndex<'a>) -> TargetResult<'a> {
    let (cluster, prefix) = (&index.settings.cluster, spec.public_ip.prefix.get(family).as_deref());
    let prefix = prefix.and_then(|id| id.rsplit('/').next());
    let name = |family, dual| naming::public_ip(cluster, &spec.identity, prefix, family, dual);
    let (usual, plain) = (name(family, spec.is_dual_stack()), name(IpFamily::V4, false));
    let names = [usual, plain, naming::public_ip_of_family(cluster, &spec.identity, prefix, family)];
    let ids = names.map(|name| spec.public_ip.group.resource(KIND, &[&name]));
    let fits = |pip: &PublicIpAddress| ownership::family(pip) == family;
    let is_own = |pip: &PublicIpAddress| ownership::position(pip, &spec.identity.key).is_some();
    let known =
        |(position, id): (usize, &ResourceId)| index.find(id).filter(|(_, pip)| fits(pip) && (position == 0 || is_own(pip)));
    if let Some((id, pip)) = ids.iter().enumerate().find_map(known) {
        return Ok(PublicIpTarget { id, existing: Some(pip), selected: false });
    }
    let [usual, _, other] = ids;
    let free = [usual, other].into_iter().find(|id| index.find(id).is_none()).ok_or_else(|| {
        let message =
            format!("the public IPs for {family} exist and are of another family; remove the tags of one, or delete it");
        refusal("spec.ipFamilies", message)
    })?;
    // ARM keeps a public IP that a frontend refers to: a list without it is wrong, and creating it would overwrite it.
    if !index.documents.frontends_at(&FrontendAddress::Public(free.key())).is_empty() {
        let message = format!(
            "a front end refers to `{free}`, but the list of public IPs has no such one; check the permission to read it"
        );
        return Err(refusal("public IP", message));
    }
    Ok(PublicIpTarget { id: free, existing: None, selected: false })
}
