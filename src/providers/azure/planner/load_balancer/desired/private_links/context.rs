//! Input of the plan of private link services, with lookups: the owner of a private link service, the Services at its frontend. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::types::PrivateLinkDeletion;
use crate::providers::azure::{
    model::{
        ResourceId,
        network::{ArmLoadBalancer, PrivateLinkService},
        spelling,
    },
    planner::load_balancer::{
        desired::{
            ServiceRequest,
            context::{NameOwners, ensured_spec},
            draft,
            load_balancers::LoadBalancerPlan,
            ownership_tags::{CLUSTER_TAG, OWNER_TAG, is_clusters, tag},
            rules,
        },
        naming,
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, PrivateLinkSpec, ServiceIdentity, ServiceRefusal, ServiceSpec},
    },
};

/// Refusals of requested private link services, by Service.
pub type PrivateLinkRefusals = BTreeMap<ServiceIdentity, ServiceRefusal>;

/// Input of the plan of private link services.
pub struct PrivateLinkInput<'a> {
    pub observed: &'a ObservedNetwork,
    pub requests: &'a [ServiceRequest],
    /// Services that are not planned, but may share frontends.
    pub others: &'a [Arc<ServiceSpec>],
    /// Planned changes of load balancers, and the planned frontends of each Service.
    pub load_balancers: &'a LoadBalancerPlan,
    pub settings: &'a LoadBalancerSettings,
}

/// Service that requests a private link service.
#[derive(Clone, Copy)]
pub(super) struct LinkRequest<'a> {
    pub(super) spec: &'a ServiceSpec,
    pub(super) link: &'a PrivateLinkSpec,
}

/// Returns the key of the Service that owns a private link service, from its tag. The owner's annotations set the options.
pub(super) fn owner(link: &PrivateLinkService) -> Option<&str> {
    tag(link.tags.as_ref(), OWNER_TAG)
}

impl<'a> PrivateLinkInput<'a> {
    /// Returns the id of the IPv4 frontend that the plan gives to a Service. `None` for refused Services, too.
    pub(super) fn frontend_of(&self, who: &ServiceIdentity) -> Option<&'a str> {
        let placed = self.load_balancers.services.get(who)?.as_ref().ok()?;
        placed.frontends.iter().find(|(family, _)| *family == IpFamily::V4).map(|(_, id)| id.as_str())
    }

    /// Returns the private link service that is attached to a frontend and is not in `deletions`.
    pub(super) fn link_at(&self, frontend: &str, deletions: &[PrivateLinkDeletion]) -> Option<&'a PrivateLinkService> {
        let stays = |link: &&PrivateLinkService| !deletions.iter().any(|gone| link.is(&gone.id));
        self.observed.links_to(frontend).find(stays)
    }

    /// Returns `true` if the tags name this cluster.
    pub(super) fn is_ours(&self, link: &PrivateLinkService) -> bool {
        is_clusters(link.tags.as_ref(), self.settings)
    }

    /// Returns the Service or cluster that created a private link service, as text for messages.
    pub(super) fn maker(&self, link: &PrivateLinkService) -> String {
        match tag(link.tags.as_ref(), CLUSTER_TAG) {
            Some(_) if self.is_ours(link) => format!("Service {}", owner(link).unwrap_or("nobody")),
            Some(cluster) => format!("cluster {cluster}"),
            None => "no cluster".to_owned(),
        }
    }

    /// Returns the Service that a frontend is named for, if that Service exists.
    pub(super) fn owner_of(&self, frontend: &str) -> Option<&'a ServiceIdentity> {
        let name = frontend.rsplit('/').next().unwrap_or_default();
        let remaining = self.requests.iter().filter_map(ensured_spec).map(|spec| &spec.identity);
        let mut services = remaining.chain(self.others.iter().map(|spec| &spec.identity));
        services.find(|identity| naming::owns_frontend(identity, name))
    }

    /// Returns the planned document of a load balancer, or the observed document if the plan does not change it. `None` if the plan
    /// deletes it.
    fn balancer_after(&self, id: &ResourceId) -> Option<&'a ArmLoadBalancer> {
        let change = self.load_balancers.changes.iter().find(|change| change.id == *id);
        change.map_or_else(|| self.observed.load_balancer(id), |change| change.write.document())
    }

    /// Returns the keys of the Services that use a frontend after all planned writes.
    pub(super) fn sharers(&self, frontend: &str) -> BTreeSet<&'a str> {
        let requests = self.requests;
        let asking = requests.iter().map(ServiceRequest::identity);
        let known = asking.chain(self.others.iter().map(|spec| &spec.identity));
        let owners = NameOwners::new(known.map(|who| (who, who)));
        let balancer = ResourceId::parse(frontend).ok().and_then(|id| self.balancer_after(&id.parent()?));
        let key = frontend.to_ascii_lowercase();
        let rules = balancer.map(draft::rules).unwrap_or_default().iter().filter(|rule| rules::frontend_key(rule) == key);
        let by_rule = rules.filter_map(|rule| owners.of_rule(rule.name.as_deref()?)).map(|who| who.key.as_str());
        let placed = requests.iter().filter_map(ensured_spec).map(|spec| &spec.identity);
        let placed = placed.filter(|who| self.frontend_of(who).is_some_and(|id| spelling::same_id(id, frontend)));
        by_rule.chain(placed.map(|who| who.key.as_str())).collect()
    }
}
