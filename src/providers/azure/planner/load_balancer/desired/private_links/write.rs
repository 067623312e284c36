//! The private link service of one front end: who decides about it, and whether it has to be written. Pure.
//!
//! Services that share a front end share its private link service. The Service that made it owns it, and its annotations count; the
//! others may only ask that there is one. When the owner does not use the front end any more, the next by name takes its place; for
//! upstream the private link service is nobody's then, and cannot be changed.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    context::{LinkRequest, PrivateLinkInput, PrivateLinkRefusals, owner},
    document::{self, LinkDraft},
    names::NewNames,
    types::{PrivateLinkChange, PrivateLinkPlan},
};
use crate::providers::azure::{
    arm::{ResourceId, network::Subnet, private_link::PrivateLinkService, spelling},
    planner::load_balancer::{
        annotations::{PLS_ADDRESSES, PLS_CREATE, PLS_NAME, PLS_RESOURCE_GROUP},
        desired::frontends,
        spec::{PrivateLinkSpec, ServiceIdentity, ServiceRefusal},
    },
};

/// A front end for which some Services ask for a private link service.
pub(super) struct FrontendLink<'l, 'a> {
    pub(super) input: &'l PrivateLinkInput<'a>,
    /// The front end's id.
    pub(super) frontend: &'a str,
    /// Who asks, by name.
    pub(super) requests: &'l [LinkRequest<'a>],
    /// Everybody who uses the front end.
    pub(super) sharers: BTreeSet<&'a str>,
}

impl<'a> FrontendLink<'_, 'a> {
    /// The write, if one is due.
    pub(super) fn plan(
        &self,
        plan: &mut PrivateLinkPlan,
        names: &mut NewNames,
        refused: &mut PrivateLinkRefusals,
    ) -> Option<PrivateLinkChange> {
        let known = self.input.link_at(self.frontend, &plan.deletions);
        if let Some(known) = known.filter(|known| !self.input.is_ours(known)) {
            let refusal = self.foreign(known);
            refused.extend(self.requests.iter().map(|request| (request.spec.identity.clone(), refusal.clone())));
            return None;
        }
        let owner = self.owner(known);
        refused.extend(self.refused_guests(known, owner));
        let owner = owner?;
        let written = match known {
            Some(known) => self.change(known, owner),
            None => names.take(self.input, (owner, self.frontend), plan).and_then(|id| self.create(id, owner)),
        };
        written.unwrap_or_else(|refusal| {
            refused.insert(owner.spec.identity.clone(), refusal);
            None
        })
    }

    /// Whose annotations count: the owner's, if it asks. Of a new one, the first that has more to say than that there shall be one.
    fn owner(&self, known: Option<&PrivateLinkService>) -> Option<LinkRequest<'a>> {
        let tagged = known.and_then(owner).filter(|key| self.sharers.iter().any(|sharer| spelling::same_name(sharer, key)));
        match (known, tagged) {
            (_, Some(key)) => {
                self.requests.iter().find(|request| spelling::same_name(&request.spec.identity.key, key)).copied()
            }
            (Some(_), None) => self.requests.first().copied(),
            (None, None) => self.requests.iter().min_by_key(|request| request.link.owners_only.is_none()).copied(),
        }
    }

    /// Those who do not own it and say how it shall be.
    fn refused_guests(&self, known: Option<&PrivateLinkService>, owner: Option<LinkRequest<'_>>) -> PrivateLinkRefusals {
        let own = owner.map(|owner| owner.spec.identity.key.as_str());
        let tagged = own.or_else(|| known.and_then(self::owner)).unwrap_or_default();
        let guests = self.requests.iter().filter(|request| own != Some(request.spec.identity.key.as_str()));
        let refusal = |request: &LinkRequest<'_>| {
            let message = format!(
                "the private link service of this front end belongs to Service {tagged}: only that one may say how it shall be; keep \
                 `{}` alone here",
                PLS_CREATE.key
            );
            Some((request.spec.identity.clone(), ServiceRefusal { field: request.link.owners_only?.to_owned(), message }))
        };
        guests.filter_map(refusal).collect()
    }

    fn foreign(&self, known: &PrivateLinkService) -> ServiceRefusal {
        let (id, maker) = (known.id.as_deref().unwrap_or_default(), self.input.maker(known));
        let message = format!("private link service {id}, which {maker} made, leads to the front end: delete it first");
        ServiceRefusal { field: PLS_CREATE.key.to_owned(), message }
    }

    fn create(&self, id: ResourceId, owner: LinkRequest<'_>) -> Result<Option<PrivateLinkChange>, ServiceRefusal> {
        let subnet = self.subnet(owner)?;
        let draft = document::new(&id, self.frontend, self.input.settings);
        Ok(Some(self.complete(id, draft, owner, subnet)))
    }

    fn change(
        &self,
        known: &PrivateLinkService,
        owner: LinkRequest<'_>,
    ) -> Result<Option<PrivateLinkChange>, ServiceRefusal> {
        let Some(id) = known.id.as_deref().and_then(|id| ResourceId::parse(id).ok()) else { return Ok(None) };
        check_identity(&id, owner.link)?;
        let subnet = self.subnet(owner)?;
        let change = self.complete(id, document::known(known), owner, subnet);
        Ok(Some(change).filter(|change| !change.reasons.is_empty()))
    }

    fn complete(&self, id: ResourceId, mut draft: LinkDraft, owner: LinkRequest<'_>, subnet: &Subnet) -> PrivateLinkChange {
        let subnet_id = document::subnet_id(subnet, self.input.settings);
        let stops_proxying = draft.is_proxying() && !owner.link.proxy_protocol;
        draft.apply(&id, owner, (&subnet_id, subnet), self.input.settings);
        PrivateLinkChange {
            policies_of: (!lets_links_in(subnet)).then_some(subnet_id),
            is_first: stops_proxying && self.is_balancer_written(),
            document: draft.document,
            reasons: draft.reasons,
            services: self.requests.iter().map(|request| request.spec.identity.clone()).collect::<Vec<ServiceIdentity>>(),
            id,
        }
    }

    fn is_balancer_written(&self) -> bool {
        let balancer = ResourceId::parse(self.frontend).ok().and_then(|id| id.parent());
        balancer.is_some_and(|id| self.input.load_balancers.changes.iter().any(|change| change.id == id))
    }

    /// Where its addresses are.
    fn subnet(&self, owner: LinkRequest<'_>) -> Result<&'a Subnet, ServiceRefusal> {
        let settings = self.input.settings;
        let (field, name) = match &owner.link.subnet {
            Some((key, name)) => (*key, name.as_str()),
            None => ("subnetName", settings.subnet.as_str()),
        };
        let network = settings.virtual_network.name();
        let missing = || ServiceRefusal {
            field: field.to_owned(),
            message: format!("virtual network {network} has no subnet {name}"),
        };
        let subnet = self.input.observed.subnets.get(&name.to_lowercase()).ok_or_else(missing)?;
        let is_outside = |address: &IpAddr| frontends::has_ranges(subnet) && !frontends::is_in(subnet, *address);
        match owner.link.addresses.iter().map(|address| IpAddr::V4(*address)).find(is_outside) {
            Some(address) => Err(ServiceRefusal {
                field: PLS_ADDRESSES.key.to_owned(),
                message: format!("{address} is not in subnet {name}"),
            }),
            None => Ok(subnet),
        }
    }
}

/// Neither can be changed. Another group in the configuration leaves it where it is.
fn check_identity(id: &ResourceId, link: &PrivateLinkSpec) -> Result<(), ServiceRefusal> {
    let stays = "which cannot be changed: take the annotation back, or delete the Service and create it again";
    if let Some(name) = link.name.as_deref().filter(|name| !spelling::same_name(name, id.name())) {
        let message = format!("the private link service is called {}, not {name}, {stays}", id.name());
        return Err(ServiceRefusal { field: PLS_NAME.key.to_owned(), message });
    }
    let group = id.resource_group().unwrap_or_default();
    if link.names_group && id.parent().is_some_and(|group| group != link.group) {
        let message = format!("private link service {} is in resource group {group}, {stays}", id.name());
        return Err(ServiceRefusal { field: PLS_RESOURCE_GROUP.key.to_owned(), message });
    }
    Ok(())
}

/// Azure puts no private link service into a subnet with network policies for them, which is the default.
fn lets_links_in(subnet: &Subnet) -> bool {
    let policies = subnet.properties.as_ref().and_then(|it| it.private_link_service_network_policies.as_deref());
    spelling::is_word(policies, "Disabled")
}
