//! What private link services are planned on, and what it tells of one: whose it is, who uses its front end. Pure.

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

/// Who cannot have what, and why.
pub type PrivateLinkRefusals = BTreeMap<ServiceIdentity, ServiceRefusal>;

/// What private link services are planned on.
pub struct PrivateLinkInput<'a> {
    pub observed: &'a ObservedNetwork,
    pub requests: &'a [ServiceRequest],
    /// The other Services.
    pub others: &'a [Arc<ServiceSpec>],
    /// What becomes of load balancers.
    pub load_balancers: &'a LoadBalancerPlan,
    pub settings: &'a LoadBalancerSettings,
}

/// A Service that asks for a private link service.
#[derive(Clone, Copy)]
pub(super) struct LinkRequest<'a> {
    pub(super) spec: &'a ServiceSpec,
    pub(super) link: &'a PrivateLinkSpec,
}

/// The Service that decides about a private link service.
pub(super) fn owner(link: &PrivateLinkService) -> Option<&str> {
    tag(link.tags.as_ref(), OWNER_TAG)
}

impl<'a> PrivateLinkInput<'a> {
    /// The IPv4 front end that a Service will have.
    pub(super) fn frontend_of(&self, who: &ServiceIdentity) -> Option<&'a str> {
        let placed = self.load_balancers.services.get(who)?.as_ref().ok()?;
        placed.frontends.iter().find(|(family, _)| *family == IpFamily::V4).map(|(_, id)| id.as_str())
    }

    /// The private link service that leads to a front end and stays.
    pub(super) fn link_at(&self, frontend: &str, deletions: &[PrivateLinkDeletion]) -> Option<&'a PrivateLinkService> {
        let stays = |link: &&PrivateLinkService| !deletions.iter().any(|gone| link.is(&gone.id));
        self.observed.links_to(frontend).find(stays)
    }

    /// Whether this cluster made it.
    pub(super) fn is_ours(&self, link: &PrivateLinkService) -> bool {
        is_clusters(link.tags.as_ref(), self.settings)
    }

    /// Whose it is, for messages.
    pub(super) fn maker(&self, link: &PrivateLinkService) -> String {
        match tag(link.tags.as_ref(), CLUSTER_TAG) {
            Some(_) if self.is_ours(link) => format!("Service {}", owner(link).unwrap_or("nobody")),
            Some(cluster) => format!("cluster {cluster}"),
            None => "no cluster".to_owned(),
        }
    }

    /// The Service after which a frontend is named, if it exists.
    pub(super) fn owner_of(&self, frontend: &str) -> Option<&'a ServiceIdentity> {
        let name = frontend.rsplit('/').next().unwrap_or_default();
        let remaining = self.requests.iter().filter_map(ensured_spec).map(|spec| &spec.identity);
        let mut services = remaining.chain(self.others.iter().map(|spec| &spec.identity));
        services.find(|identity| naming::owns_frontend(identity, name))
    }

    /// A load balancer as it will be.
    fn balancer_after(&self, id: &ResourceId) -> Option<&'a ArmLoadBalancer> {
        let change = self.load_balancers.changes.iter().find(|change| change.id == *id);
        change.map_or_else(|| self.observed.load_balancer(id), |change| change.write.document())
    }

    /// The Services that use a front end when all is written.
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
