//! Room and names for new private link services: the name must be nobody's, and a load balancer has room for so many. Pure.

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

/// Longest name in Azure.
pub(super) const MAX_NAME: usize = 80;

/// The private link services that are new in this plan.
pub(super) struct NewNames {
    /// By load balancer, how many lead to it, new ones and those that stay.
    on_load_balancer: BTreeMap<ResourceId, usize>,
    taken: Vec<ResourceId>,
}

/// The id of the private link service that a spec asks for at a front end when there is none yet.
pub(super) fn wanted_id(link: &PrivateLinkSpec, frontend: &str) -> ResourceId {
    let generated = || generated_name(frontend.rsplit('/').next().unwrap_or_default());
    let name = link.name.clone().unwrap_or_else(generated);
    link.group.resource(api::PRIVATE_LINK_SERVICES.resource_type, &[&name])
}

/// At most as long as Azure allows; upstream leaves a longer one to Azure's refusal.
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

    /// Takes the name and the room for one more, or says why that cannot be. One of ours whose front end is gone gives way.
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

/// Whether no load balancer of ours has the front ends that it leads to. Of others' nothing is known.
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
