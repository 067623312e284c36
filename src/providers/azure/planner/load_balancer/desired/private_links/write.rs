//! Private link service of one frontend: the choice of its owner, and the write that it needs. Pure.
//!
//! Services that share a frontend share its private link service. The Service that created it is the owner and sets its options. The
//! other Services may only request that it exists. When the owner does not use the frontend anymore, the private link service is an
//! orphan. It keeps its fields and its tags, so that the owner can return. Only annotations of one other Service change it: of the
//! Service that owns the frontend or, if that Service is deleted, of the first Service that has any. Upstream refuses these annotations.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    context::{LinkRequest, PrivateLinkInput, PrivateLinkRefusals, owner},
    document::{self, LinkDraft},
    heir,
    names::NewNames,
    types::{PrivateLinkChange, PrivateLinkPlan},
};
use crate::providers::azure::{
    model::{
        ResourceId,
        network::{PrivateLinkService, Subnet},
        spelling,
    },
    planner::load_balancer::{
        annotations::{PLS_ADDRESSES, PLS_CREATE, PLS_NAME, PLS_RESOURCE_GROUP, PLS_SUBNET},
        desired::frontends,
        spec::{PrivateLinkSpec, ServiceIdentity, ServiceRefusal, refusal},
    },
};

/// Frontend for which Services request a private link service.
pub(super) struct FrontendLink<'l, 'a> {
    pub(super) input: &'l PrivateLinkInput<'a>,
    /// Id of the frontend.
    pub(super) frontend: &'a str,
    /// Requests in the order of their Services.
    pub(super) requests: &'l [LinkRequest<'a>],
    /// Keys of all Services that use the frontend.
    pub(super) sharers: BTreeSet<&'a str>,
}

impl<'a> FrontendLink<'_, 'a> {
    /// Plans the write of the private link service, if one is needed, and adds the refused Services to `refused`.
    pub(super) fn plan(
        &self,
        plan: &mut PrivateLinkPlan,
        names: &mut NewNames,
        refused: &mut PrivateLinkRefusals,
    ) -> Option<PrivateLinkChange> {
        let known = self.input.link_at(self.frontend, &plan.deletions);
        let foreign = known.filter(|known| !self.input.is_ours(known)).map(|known| self.foreign(known));
        if let Some(refusal) = foreign.or_else(|| self.guest_refusal(known)) {
            refused.extend(self.requests.iter().map(|request| (request.spec.identity.clone(), refusal.clone())));
            return None;
        }
        let tagged = known.and_then(owner).filter(|key| self.sharers.iter().any(|sharer| spelling::same_name(sharer, key)));
        let owner = self.owner(tagged);
        refused.extend(self.refused_guests(tagged, owner));
        let owner = owner?;
        let written = match known {
            Some(known) if tagged.is_none() => self.adopt(known, owner),
            Some(known) => self.change(known, owner),
            None => names.take(self.input, (owner, self.frontend), plan).and_then(|id| self.create(id, owner)),
        };
        written.unwrap_or_else(|refusal| {
            refused.insert(owner.spec.identity.clone(), refusal);
            None
        })
    }

    /// Returns the refusal of all requests if the Service that owns the frontend does not request a private link service.
    ///
    /// A private link service publishes all ports of a frontend, so only that Service may add one.
    fn guest_refusal(&self, known: Option<&PrivateLinkService>) -> Option<ServiceRefusal> {
        let owner = self.input.owner_of(self.frontend).filter(|_| known.is_none())?;
        let frontend = self.frontend.rsplit('/').next().unwrap_or_default();
        let message = format!(
            "frontend {frontend} belongs to Service {}, which has no private link service: set the annotation there, or use another address",
            owner.key
        );
        let is_requested = self.requests.iter().any(|request| request.spec.identity == *owner);
        (!is_requested).then(|| ServiceRefusal { field: PLS_CREATE.key.to_owned(), message })
    }

    /// Returns the request that sets the options: the request of the tagged owner or, without a tag, of the Service that owns the
    /// frontend.
    ///
    /// If that Service is deleted, the first request with options counts. `None` if the owner does not request a private link service.
    fn owner(&self, tagged: Option<&str>) -> Option<LinkRequest<'a>> {
        let mut requests = self.requests.iter();
        let found = match (tagged, self.input.owner_of(self.frontend)) {
            (Some(key), _) => requests.find(|request| spelling::same_name(&request.spec.identity.key, key)),
            (None, Some(owner)) => requests.find(|request| request.spec.identity == *owner),
            (None, None) => requests.min_by_key(|request| request.link.owners_only.is_empty()),
        };
        found.copied()
    }

    /// Refuses the Services that do not own the private link service and have options for it.
    fn refused_guests(&self, tagged: Option<&str>, owner: Option<LinkRequest<'_>>) -> PrivateLinkRefusals {
        let own = owner.map(|owner| owner.spec.identity.key.as_str());
        let frontend_owner = || self.input.owner_of(self.frontend).map(|owner| owner.key.as_str());
        let tagged = own.or(tagged).or_else(frontend_owner).unwrap_or_default();
        let guests = self.requests.iter().filter(|request| own != Some(request.spec.identity.key.as_str()));
        let refused = |request: &LinkRequest<'_>| {
            let message = format!(
                "the private link service of this front end belongs to Service {tagged}: only that one may say how it shall be; keep \
                 `{}` alone here",
                PLS_CREATE.key
            );
            Some((request.spec.identity.clone(), refusal(*request.link.owners_only.first()?, message)))
        };
        guests.filter_map(refused).collect()
    }

    fn foreign(&self, known: &PrivateLinkService) -> ServiceRefusal {
        let (id, maker) = (known.id.as_deref().unwrap_or_default(), self.input.maker(known));
        let message = format!("private link service {id}, which {maker} made, leads to the front end: delete it first");
        ServiceRefusal { field: PLS_CREATE.key.to_owned(), message }
    }

    fn create(&self, id: ResourceId, owner: LinkRequest<'_>) -> Result<Option<PrivateLinkChange>, ServiceRefusal> {
        let draft = document::new(&id, self.frontend, self.input.settings);
        self.complete(id, draft, owner).map(Some)
    }

    fn change(
        &self,
        known: &PrivateLinkService,
        owner: LinkRequest<'_>,
    ) -> Result<Option<PrivateLinkChange>, ServiceRefusal> {
        let Some(id) = known.id.as_deref().and_then(|id| ResourceId::parse(id).ok()) else { return Ok(None) };
        check_identity(&id, owner.link)?;
        let change = self.complete(id, document::known(known), owner)?;
        Ok(Some(change).filter(|change| !change.reasons.is_empty()))
    }

    /// Changes an orphan as far as the heir's annotations request it.
    fn adopt(&self, known: &PrivateLinkService, heir: LinkRequest<'_>) -> Result<Option<PrivateLinkChange>, ServiceRefusal> {
        let Some(id) = known.id.as_deref().and_then(|id| ResourceId::parse(id).ok()) else { return Ok(None) };
        check_identity(&id, heir.link)?;
        let own_subnet = heir::gives(heir.link, PLS_SUBNET.key).then(|| self.subnet(heir)).transpose()?;
        let subnet = own_subnet.map(|subnet| frontends::subnet_id(subnet, self.input.settings));
        let mut draft = document::known(known);
        let proxies = draft.is_proxying();
        heir::apply(&mut draft, &id, heir.link, subnet.as_ref());
        let policies_of = own_subnet.filter(|subnet| !subnet.allows_private_links()).and(subnet);
        let change = self.finish(id, draft, proxies, policies_of);
        Ok(Some(change).filter(|change| !change.reasons.is_empty()))
    }

    fn complete(
        &self,
        id: ResourceId,
        mut draft: LinkDraft,
        owner: LinkRequest<'_>,
    ) -> Result<PrivateLinkChange, ServiceRefusal> {
        let subnet = self.subnet(owner)?;
        let subnet_id = frontends::subnet_id(subnet, self.input.settings);
        let proxies = draft.is_proxying();
        draft.set_addresses(&id, owner.link, &subnet_id);
        draft.set_options(owner.link);
        draft.set_tags(&owner.spec.identity.key, self.input.settings);
        Ok(self.finish(id, draft, proxies, (!subnet.allows_private_links()).then_some(subnet_id)))
    }

    fn finish(&self, id: ResourceId, draft: LinkDraft, proxies: bool, policies_of: Option<ResourceId>) -> PrivateLinkChange {
        PrivateLinkChange {
            policies_of,
            is_first: proxies && !draft.is_proxying() && self.is_balancer_written(),
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

    /// Returns the subnet of the addresses. Refuses a missing subnet, and fixed addresses outside the subnet.
    fn subnet(&self, owner: LinkRequest<'_>) -> Result<&'a Subnet, ServiceRefusal> {
        let settings = self.input.settings;
        let (field, name) = match &owner.link.subnet {
            Some((key, name)) => (*key, name.as_str()),
            None => ("subnetName", settings.subnet.as_str()),
        };
        let network = settings.virtual_network.name();
        let missing = || refusal(field, format!("virtual network {network} has no subnet {name}"));
        let subnet = self.input.observed.subnets.get(&name.to_lowercase()).ok_or_else(missing)?;
        let is_outside = |address: &IpAddr| frontends::has_ranges(subnet) && !frontends::is_in(subnet, *address);
        match owner.link.addresses.iter().map(|address| IpAddr::V4(*address)).find(is_outside) {
            Some(address) => Err(refusal(PLS_ADDRESSES.key, format!("{address} is not in subnet {name}"))),
            None => Ok(subnet),
        }
    }
}

/// Refuses annotations with another name or resource group, because Azure can change neither. Another default group in the configuration
/// is ignored.
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
