//! Names and capacity for new private link services. A name must be unused, and a load balancer accepts a limited number of private link
//! services. Pure.

use std::collections::BTreeMap;

use super::{
    context::{LinkRequest, PrivateLinkInput},
    deletions,
    types::{PrivateLinkDeletion, PrivateLinkNotice, PrivateLinkPlan},
};
use crate::providers::azure::{
    model::{ResourceId, api, network::PrivateLinkService},
    planner::load_balancer::{
        annotations::{PLS_CREATE, PLS_NAME},
        desired::draft,
        spec::{PrivateLinkSpec, ServiceRefusal},
    },
};

/// Largest number of characters of a name in Azure.
pub(super) const MAX_NAME: usize = 80;

/// Names and numbers of the private link services that the plan creates.
pub(super) struct NewNames {
    /// Number of observed and new private link services, by load balancer. Private link services that the plan deletes still count.
    on_load_balancer: BTreeMap<ResourceId, usize>,
    taken: Vec<ResourceId>,
}

/// Returns the id that a private link service gets if the plan creates it for this spec and frontend.
pub(super) fn wanted_id(link: &PrivateLinkSpec, frontend: &str) -> ResourceId {
    let generated = || generated_name(frontend.rsplit('/').next().unwrap_or_default());
    let name = link.name.clone().unwrap_or_else(generated);
    link.group.resource(api::PRIVATE_LINK_SERVICES.resource_type, &[&name])
}

/// Returns a name of at most [`MAX_NAME`] characters. Upstream does not shorten the name, and Azure rejects a longer one.
fn generated_name(frontend: &str) -> String {
    let mut name: String = format!("pls-{frontend}").chars().take(MAX_NAME).collect();
    if !name.ends_with(|c: char| c == '_' || c.is_ascii_alphanumeric()) {
        name.pop();
        name.push('_');
    }
    name
}

impl NewNames {
    pub(super) fn new(input: &PrivateLinkInput<'_>) -> Self {
        let mut on_load_balancer = BTreeMap::new();
        for balancer in input.observed.private_links.services.iter().flat_map(PrivateLinkService::load_balancers) {
            *on_load_balancer.entry(balancer).or_default() += 1;
        }
        Self { on_load_balancer, taken: Vec::new() }
    }

    /// Reserves the name and the capacity for a new private link service, or refuses the Service.
    ///
    /// If an orphan of this cluster has the name, the plan deletes it.
    pub(super) fn take(
        &mut self,
        input: &PrivateLinkInput<'_>,
        (request, frontend): (LinkRequest<'_>, &str),
        plan: &mut PrivateLinkPlan,
    ) -> Result<ResourceId, ServiceRefusal> {
        let id = wanted_id(request.link, frontend);
        let goes = |id: &ResourceId, deletions: &[PrivateLinkDeletion]| deletions.iter().any(|gone| gone.id == *id);
        let holder = input.observed.private_links.services.iter().find(|link| link.is(&id));
        match holder.filter(|_| !goes(&id, &plan.deletions)) {
            Some(holder) if input.is_ours(holder) && is_orphan(input, holder) => {
                let reason = "its front end is gone, and another one needs its name".to_owned();
                plan.deletions.extend(deletions::deletion(holder, reason, vec![request.spec.identity.clone()]));
            }
            Some(holder) => {
                plan.notices.push((request.spec.identity.clone(), PrivateLinkNotice::NameTaken(id.clone())));
                return Err(name_taken(&id, &input.maker(holder)));
            }
            None if self.taken.contains(&id) => return Err(name_taken(&id, "another Service")),
            None => {}
        }
        self.take_room(frontend, &plan.deletions, input.settings.private_links_per_load_balancer)?;
        self.taken.push(id.clone());
        Ok(id)
    }

    fn take_room(&mut self, frontend: &str, deletions: &[PrivateLinkDeletion], most: usize) -> Result<(), ServiceRefusal> {
        let Some(balancer) = ResourceId::parse(frontend).ok().and_then(|id| id.parent()) else { return Ok(()) };
        let going = deletions.iter().flat_map(|gone| gone.document.load_balancers()).filter(|one| *one == balancer).count();
        let count = self.on_load_balancer.entry(balancer.clone()).or_default();
        if count.saturating_sub(going) >= most {
            let message = format!(
                "load balancer {} would have more than {most} private link services (maximumPrivateLinkServiceCount): let Services share a \
                 frontend, or raise the field if Azure allows your subscription more",
                balancer.name()
            );
            return Err(ServiceRefusal { field: PLS_CREATE.key.to_owned(), message });
        }
        *count += 1;
        Ok(())
    }
}

fn name_taken(id: &ResourceId, holder: &str) -> ServiceRefusal {
    let message = format!("private link service {id} exists, and {holder} made it: choose another name");
    ServiceRefusal { field: PLS_NAME.key.to_owned(), message }
}

/// Returns `true` if no load balancer of this program has a frontend of the private link service.
///
/// Frontends in other resource groups are not read, so they count as existing.
fn is_orphan(input: &PrivateLinkInput<'_>, link: &PrivateLinkService) -> bool {
    let is_gone = |frontend: &str| {
        let balancer = ResourceId::parse(frontend).ok().and_then(|id| id.parent());
        let is_in_group = balancer.is_some_and(|id| id.parent().as_ref() == Some(&input.settings.load_balancer_group));
        let known = input.observed.load_balancers.iter().flat_map(draft::frontends);
        let is_there = known.filter_map(|part| part.id.as_deref()).any(|id| link.leads_to(id));
        is_in_group && !is_there
    };
    link.frontends().all(is_gone)
}
