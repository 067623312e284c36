//! Private link services, planned for the front ends that there will be. Pure. Upstream: `pkg/provider/azure_privatelinkservice.go`.
//!
//! In: what there is, the requests, and what becomes of load balancers. Out: a [`PrivateLinkPlan`]. A private link service belongs to
//! its front end by the front end's id, to a cluster and a Service by tags; nothing else is remembered of it.
//!
//! Azure lets no front end go while a private link service leads to it: those go before the load balancer is written, with their
//! connections. The others are written when it has been. One that stops sending the proxy header is written first, too: until then its
//! Service's new health probe would meet the header.

mod deletions;
mod document;
mod names;
pub mod reads;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use self::{names::NewNames, write::FrontendLink};
use super::{
    ServiceRequest,
    context::{NameOwners, ensured_spec},
    draft::{self},
    load_balancers::{LoadBalancerPlan, LoadBalancerWrite},
};
use crate::providers::azure::{
    arm::{
        ResourceId,
        document::Tags,
        network::{ArmLoadBalancer, LoadBalancingRule},
        private_link::PrivateLinkService,
        spelling,
    },
    planner::load_balancer::{
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, PrivateLinkSpec, ServiceIdentity, ServiceRefusal, ServiceSpec},
    },
};

/// Tags that say whose a private link service is.
const CLUSTER_TAG: &str = "k8s-azure-cluster-name";
const OWNER_TAG: &str = "k8s-azure-owner-service";
/// Most private link services of a load balancer.
pub const MOST_PER_LOAD_BALANCER: usize = 8;

/// A private link service that is made or changed.
#[derive(Debug, Clone, PartialEq)]
pub struct PrivateLinkChange {
    pub id: ResourceId,
    /// As it will be; with the etag of the version that it changes, if it is not new.
    pub document: PrivateLinkService,
    /// Whether it is written before load balancers are.
    pub is_first: bool,
    /// The subnet whose policies are in the way.
    pub policies_of: Option<ResourceId>,
    pub reasons: Vec<String>,
    /// The Services that ask for it.
    pub services: Vec<ServiceIdentity>,
}

/// A subnet that lets private link services in from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetPolicyChange {
    pub id: ResourceId,
    pub reasons: Vec<String>,
    /// The Services that ask for private link services there.
    pub services: Vec<ServiceIdentity>,
}

/// A private link service that goes, with its connections.
#[derive(Debug, Clone, PartialEq)]
pub struct PrivateLinkDeletion {
    pub id: ResourceId,
    /// As ARM sent it.
    pub document: PrivateLinkService,
    pub reasons: Vec<String>,
    /// The Services whose front end it is.
    pub services: Vec<ServiceIdentity>,
}

impl PrivateLinkDeletion {
    /// How many private endpoints lose their connection.
    pub fn approved_connections(&self) -> usize {
        self.document.connections().iter().filter(|connection| connection.is_approved()).count()
    }
}

/// Something about a private link service that its Service's user should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrivateLinkNotice {
    /// It stays although nobody asks for it any more.
    LeftBehind(ResourceId),
    /// Another one has the name.
    NameTaken(ResourceId),
}

impl fmt::Display for PrivateLinkNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeftBehind(id) => {
                write!(f, "keep {id}: nobody asks for it any more, and to delete it would cut connections")
            }
            Self::NameTaken(id) => write!(f, "keep {id}: it leads to another front end, and its name is asked for"),
        }
    }
}

/// What becomes of private link services.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PrivateLinkPlan {
    pub deletions: Vec<PrivateLinkDeletion>,
    pub subnets: Vec<SubnetPolicyChange>,
    pub writes: Vec<PrivateLinkChange>,
    /// What to tell, and about which Service.
    pub notices: Vec<(ServiceIdentity, PrivateLinkNotice)>,
}

impl PrivateLinkPlan {
    /// Whether something has to be done before load balancers are written.
    pub fn comes_first(&self) -> bool {
        !self.deletions.is_empty() || self.writes.iter().any(|change| change.is_first)
    }

    pub fn is_empty(&self) -> bool {
        self.deletions.is_empty() && self.writes.is_empty()
    }
}

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

/// Plans. Who is refused gets nothing, and has to be left out of the next try.
pub fn plan_private_links(input: &PrivateLinkInput<'_>) -> (PrivateLinkPlan, PrivateLinkRefusals) {
    let asks = input.requests.iter().filter_map(ensured_spec).any(|spec| spec.private_link.is_some());
    if !asks && input.observed.private_links.services.is_empty() {
        return Default::default();
    }
    let (mut plan, mut refused) = deletions::plan(input);
    let links = frontend_links(input);
    let mut names = NewNames::new(input);
    let mut writes = Vec::new();
    for (frontend, requests) in links.values() {
        let link = FrontendLink { input, frontend, requests, sharers: input.sharers(frontend) };
        writes.extend(link.plan(&mut plan, &mut names, &mut refused));
    }
    plan.subnets = subnets(&writes);
    plan.writes = writes;
    plan.notices.extend(left_behind(input, &plan.deletions));
    (plan, refused)
}

/// Who asks for a private link service, by the front end that it leads to: ids in lower case, and as they are spelled.
fn frontend_links<'a>(input: &PrivateLinkInput<'a>) -> BTreeMap<String, (&'a str, Vec<LinkRequest<'a>>)> {
    let mut links: BTreeMap<String, (&'a str, Vec<LinkRequest<'a>>)> = BTreeMap::new();
    for spec in input.requests.iter().filter_map(ensured_spec) {
        let Some(link) = spec.private_link.as_ref() else { continue };
        let Some(frontend) = input.frontend_of(&spec.identity) else { continue };
        let (_, requests) = links.entry(frontend.to_ascii_lowercase()).or_insert((frontend, Vec::new()));
        requests.push(LinkRequest { spec, link });
    }
    links.values_mut().for_each(|(_, requests)| requests.sort_by(|a, b| a.spec.identity.cmp(&b.spec.identity)));
    links
}

/// One write of each subnet, for all who need it.
fn subnets(writes: &[PrivateLinkChange]) -> Vec<SubnetPolicyChange> {
    let mut services: BTreeMap<&ResourceId, BTreeSet<&ServiceIdentity>> = BTreeMap::new();
    for change in writes {
        if let Some(subnet) = &change.policies_of {
            services.entry(subnet).or_default().extend(&change.services);
        }
    }
    let change = |(id, services): (&ResourceId, BTreeSet<&ServiceIdentity>)| SubnetPolicyChange {
        id: id.clone(),
        reasons: vec!["disable the network policies that keep private link services out".to_owned()],
        services: services.into_iter().cloned().collect(),
    };
    services.into_iter().map(change).collect()
}

/// Private link services of Services that ask for none any more: to delete them would cut off whoever is connected.
fn left_behind(
    input: &PrivateLinkInput<'_>,
    deletions: &[PrivateLinkDeletion],
) -> Vec<(ServiceIdentity, PrivateLinkNotice)> {
    let silent = input.requests.iter().filter_map(ensured_spec).filter(|spec| spec.private_link.is_none());
    let left = silent.filter_map(|spec| {
        let known = input.link_at(input.frontend_of(&spec.identity)?, deletions)?;
        let is_own =
            input.is_ours(known) && owner(known).is_some_and(|owner| spelling::same_name(owner, &spec.identity.key));
        let id = ResourceId::parse(known.id.as_deref()?).ok().filter(|_| is_own)?;
        Some((spec.identity.clone(), PrivateLinkNotice::LeftBehind(id)))
    });
    left.collect()
}

/// The Service that decides about a private link service.
fn owner(link: &PrivateLinkService) -> Option<&str> {
    tag(link.tags.as_ref(), OWNER_TAG)
}

fn tag<'a>(tags: Option<&'a Tags>, key: &str) -> Option<&'a str> {
    tags?.iter().find(|(known, _)| spelling::same_name(known, key)).and_then(|(_, value)| value.as_deref())
}

impl<'a> PrivateLinkInput<'a> {
    /// The IPv4 front end that a Service will have.
    fn frontend_of(&self, who: &ServiceIdentity) -> Option<&'a str> {
        let placed = self.load_balancers.services.get(who)?.as_ref().ok()?;
        placed.frontends.iter().find(|(family, _)| *family == IpFamily::V4).map(|(_, id)| id.as_str())
    }

    /// The private link service that leads to a front end and stays.
    fn link_at(&self, frontend: &str, deletions: &[PrivateLinkDeletion]) -> Option<&'a PrivateLinkService> {
        let stays = |link: &&PrivateLinkService| !deletions.iter().any(|gone| link.is(&gone.id));
        self.observed.private_links.services.iter().filter(|link| link.leads_to(frontend)).find(stays)
    }

    /// Whether this cluster made it.
    fn is_ours(&self, link: &PrivateLinkService) -> bool {
        tag(link.tags.as_ref(), CLUSTER_TAG).is_some_and(|cluster| spelling::same_name(cluster, &self.settings.cluster))
    }

    /// Whose it is, for messages.
    fn maker(&self, link: &PrivateLinkService) -> String {
        match tag(link.tags.as_ref(), CLUSTER_TAG) {
            Some(_) if self.is_ours(link) => format!("Service {}", owner(link).unwrap_or("nobody")),
            Some(cluster) => format!("cluster {cluster}"),
            None => "no cluster".to_owned(),
        }
    }

    /// A load balancer as it will be.
    fn balancer_after(&self, id: &ResourceId) -> Option<&'a ArmLoadBalancer> {
        match self.load_balancers.changes.iter().find(|change| change.id == *id).map(|change| &change.write) {
            Some(LoadBalancerWrite::Put(document)) => Some(document),
            Some(LoadBalancerWrite::Delete) => None,
            None => self.observed.load_balancer(id),
        }
    }

    /// The Services that use a front end when all is written.
    fn sharers(&self, frontend: &str) -> BTreeSet<&'a str> {
        let requests = self.requests;
        let asking = requests.iter().map(ServiceRequest::identity);
        let known = asking.chain(self.others.iter().map(|spec| &spec.identity));
        let owners = NameOwners::new(known.map(|who| (who, who)));
        let balancer = ResourceId::parse(frontend).ok().and_then(|id| self.balancer_after(&id.parent()?));
        let leads_here = |rule: &&LoadBalancingRule| {
            let reference = rule.properties.as_ref().and_then(|it| it.frontend_ip_configuration.as_ref()?.id.as_deref());
            reference.is_some_and(|id| spelling::same_id(id, frontend))
        };
        let rules = balancer.map(draft::rules).unwrap_or_default().iter().filter(leads_here);
        let by_rule = rules.filter_map(|rule| owners.of_rule(rule.name.as_deref()?)).map(|who| who.key.as_str());
        let placed = requests.iter().filter_map(ensured_spec).map(|spec| &spec.identity);
        let placed = placed.filter(|who| self.frontend_of(who).is_some_and(|id| spelling::same_id(id, frontend)));
        by_rule.chain(placed.map(|who| who.key.as_str())).collect()
    }
}

#[cfg(test)]
mod tests;
