//! A plan as text: one sentence for each document, each Service that is refused and each thing that is waited for.
//!
//! In: a [`PlannedChange`], or a whole [`Plan`] in the order in which it is written. Out: the sentence. The stages print what they are about
//! to write, for the log and the status page; [`super::writes`] has the same reasons for the plan that pages and commands print.

use std::{collections::BTreeSet, fmt, iter};

use super::{
    super::{
        desired::{
            load_balancers::{LoadBalancerChange, LoadBalancerWrite},
            private_links::{
                PrivateLinkChange, PrivateLinkDeletion, PrivateLinkNotice, PrivateLinkPlan, SubnetPolicyChange,
            },
            public_ips::{PublicIpChange, PublicIpRelease},
            security_rules::SecurityRulePlan,
        },
        spec::{ServiceIdentity, ServiceRefusal},
    },
    Plan,
    network::NetworkPlan,
    pools::{PoolChange, PoolChangeKind},
    waiting::WaitingFor,
};
use crate::providers::azure::model::{ApiType, ResourceId, api, network::ArmLoadBalancer};

/// How many Services a sentence names.
const NAMED: usize = 3;

/// One entry of a plan.
#[derive(Clone, Copy)]
pub enum PlannedChange<'a> {
    /// A public IP is written.
    PublicIp(&'a PublicIpChange),
    /// A load balancer is written or deleted, for these Services.
    LoadBalancer(&'a LoadBalancerChange, &'a BTreeSet<ServiceIdentity>),
    /// The same, when what comes before has been written; with the document as it will be by then.
    LaterLoadBalancer(&'a LoadBalancerChange, &'a BTreeSet<ServiceIdentity>, Option<&'a ArmLoadBalancer>),
    /// A pool, or what lists it, is written.
    Pool(&'a PoolChange),
    /// The security group is written.
    SecurityGroup(&'a SecurityRulePlan),
    /// A private link service is deleted, before load balancers are written.
    DeletePrivateLink(&'a PrivateLinkDeletion),
    /// A subnet lets private link services in.
    Subnet(&'a SubnetPolicyChange),
    /// A private link service is written.
    PrivateLink(&'a PrivateLinkChange),
    /// A private link service stays that nobody asks for, or has a name that somebody asks for.
    PrivateLinkNotice(&'a ServiceIdentity, &'a PrivateLinkNotice),
    /// A public IP is deleted.
    Release(&'a PublicIpRelease),
    /// A public IP stays that could go.
    Retained(&'a PublicIpRelease),
    /// A Service gets nothing new.
    Refused(&'a ServiceIdentity, &'a ServiceRefusal),
    /// Something is planned when more is known.
    Waiting(&'a WaitingFor),
}

/// Document of an entry of a plan that concerns one document alone.
pub struct PlannedDocument<'a> {
    /// Type of the document.
    pub kind: &'static ApiType,
    /// What becomes of it: `put`, `delete` or `keep`.
    pub verb: &'static str,
    pub id: &'a ResourceId,
    pub reasons: &'a [String],
    /// Services for which it is written, deleted or kept.
    pub services: &'a [ServiceIdentity],
}

impl<'a> PlannedChange<'a> {
    /// Whether Azure is sent something.
    pub fn is_written(&self) -> bool {
        !matches!(self, Self::PrivateLinkNotice(..) | Self::Retained(_) | Self::Refused(..) | Self::Waiting(_))
    }

    /// Returns the document of this entry; `None`: it is about parts of a load balancer, rules of all Services, or no document.
    pub fn document(&self) -> Option<PlannedDocument<'a>> {
        let (kind, verb, id, reasons, services) = match *self {
            Self::PublicIp(it) => (&api::PUBLIC_IPS, "put", &it.id, &it.reasons, &it.services),
            Self::Release(it) => (&api::PUBLIC_IPS, "delete", &it.id, &it.reasons, &it.services),
            Self::Retained(it) => (&api::PUBLIC_IPS, "keep", &it.id, &it.reasons, &it.services),
            Self::Subnet(it) => (&api::SUBNETS, "put", &it.id, &it.reasons, &it.services),
            Self::PrivateLink(it) => (&api::PRIVATE_LINK_SERVICES, "put", &it.id, &it.reasons, &it.services),
            Self::DeletePrivateLink(it) => (&api::PRIVATE_LINK_SERVICES, "delete", &it.id, &it.reasons, &it.services),
            _ => return None,
        };
        Some(PlannedDocument { kind, verb, id, reasons, services })
    }
}

impl fmt::Display for PlannedChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::LoadBalancer(change, causes) => load_balancer(f, "", change, causes),
            Self::LaterLoadBalancer(change, causes, _) => load_balancer(f, "then: ", change, causes),
            Self::Pool(change) => {
                let verb = match change.kind {
                    PoolChangeKind::Migration(_) => "post migrateToIpBased to",
                    PoolChangeKind::Model(_) => "put model of",
                    PoolChangeKind::Member(_) | PoolChangeKind::Pool(_) => "put",
                };
                sentence(f, verb, &change.id, &change.reasons, [])?;
                f.write_str(FOR_NODES)
            }
            Self::SecurityGroup(rules) => {
                let id = rules.document.as_ref().and_then(|group| group.id.as_deref()).unwrap_or("security group");
                sentence(f, "put", &id, &rules.reasons, &rules.causes)?;
                f.write_str(if rules.causes.is_empty() { FOR_NODES } else { "" })
            }
            Self::PrivateLinkNotice(who, notice) => write!(f, "{notice} (for {})", who.key),
            Self::Refused(who, refusal) => write!(f, "refuse {}: {refusal}", who.key),
            Self::Waiting(waiting) => write!(f, "later: {waiting}"),
            _ => self.document().map_or(Ok(()), |it| sentence(f, it.verb, it.id, it.reasons, it.services)),
        }
    }
}

fn load_balancer(
    f: &mut fmt::Formatter<'_>,
    when: &str,
    change: &LoadBalancerChange,
    causes: &BTreeSet<ServiceIdentity>,
) -> fmt::Result {
    let verb = if matches!(change.write, LoadBalancerWrite::Delete) { "delete" } else { "put" };
    f.write_str(when)?;
    sentence(f, verb, &change.id, &change.reasons, causes)
}

static NOBODY: BTreeSet<ServiceIdentity> = BTreeSet::new();
/// What no Service causes.
const FOR_NODES: &str = " (for Nodes)";

/// What is done to what, why, and for whom: ` (for default/web)`.
fn sentence<'a>(
    f: &mut fmt::Formatter<'_>,
    verb: &str,
    id: &dyn fmt::Display,
    reasons: &[String],
    services: impl IntoIterator<Item = &'a ServiceIdentity>,
) -> fmt::Result {
    write!(f, "{verb} {id}: ")?;
    for (place, reason) in reasons.iter().enumerate() {
        write!(f, "{}{reason}", if place == 0 { "" } else { "; " })?;
    }
    let mut services = services.into_iter();
    let named: Vec<&str> = services.by_ref().take(NAMED).map(|who| who.key.as_str()).collect();
    match services.count() {
        _ if named.is_empty() => Ok(()),
        0 => write!(f, " (for {})", named.join(", ")),
        more => write!(f, " (for {} and {more} more)", named.join(", ")),
    }
}

impl Plan {
    /// Whether nothing has to be written.
    pub fn is_empty(&self) -> bool {
        !self.changes().any(|change| change.is_written())
    }

    /// Everything, in the order in which it is written.
    pub fn changes(&self) -> impl Iterator<Item = PlannedChange<'_>> {
        let NetworkPlan { public_ips, load_balancers, private_links, refused } = &self.network;
        let PrivateLinkPlan { deletions, subnets, writes, notices } = private_links;
        let (first, last): (Vec<_>, Vec<_>) = writes.iter().partition(|change| change.is_first);
        let opens_first =
            |subnet: &&SubnetPolicyChange| first.iter().any(|change| change.policies_of.as_ref() == Some(&subnet.id));
        let (first_subnets, subnets): (Vec<_>, Vec<_>) = subnets.iter().partition(opens_first);
        let balancers = load_balancers.changes.iter().zip(self.causes.iter().chain(iter::repeat(&NOBODY)));
        let later = self.later.iter();
        let later = later.map(|one| PlannedChange::LaterLoadBalancer(&one.change, &one.causes, one.before.as_ref()));
        let group = self.rules.iter().map(|rules| &rules.plan).filter(|rules| rules.document.is_some());
        let written = public_ips.writes.iter().map(PlannedChange::PublicIp);
        written
            .chain(deletions.iter().map(PlannedChange::DeletePrivateLink))
            .chain(first_subnets.into_iter().map(PlannedChange::Subnet))
            .chain(first.into_iter().map(PlannedChange::PrivateLink))
            .chain(balancers.map(|(change, causes)| PlannedChange::LoadBalancer(change, causes)))
            .chain(later)
            .chain(self.pools.changes.iter().map(PlannedChange::Pool))
            .chain(group.map(PlannedChange::SecurityGroup))
            .chain(subnets.into_iter().map(PlannedChange::Subnet))
            .chain(last.into_iter().map(PlannedChange::PrivateLink))
            .chain(public_ips.releases.iter().map(PlannedChange::Release))
            .chain(public_ips.retained.iter().map(PlannedChange::Retained))
            .chain(notices.iter().map(|(who, notice)| PlannedChange::PrivateLinkNotice(who, notice)))
            .chain(refused.iter().map(|(who, refusal)| PlannedChange::Refused(who, refusal)))
            .chain(self.waiting.iter().map(PlannedChange::Waiting))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.changes().try_for_each(|change| writeln!(f, "{change}"))?;
        write!(f, "{}", self.occupancy)
    }
}

/// As a plan of which nothing else is known, not even for whom load balancers change.
impl fmt::Display for NetworkPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Plan { network: self.clone(), ..Plan::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A private link service waits for its subnet, whether load balancers wait for it or not.
    #[test]
    fn a_subnet_comes_before_what_needs_it() {
        let id = |name: &str| ResourceId::group_of("s", "g").resource("Microsoft.Network/x", &[name]);
        let subnet = |name: &str| SubnetPolicyChange { id: id(name), reasons: Vec::new(), services: Vec::new() };
        let link = |name: &str, is_first, subnet: &str| PrivateLinkChange {
            id: id(name),
            document: Default::default(),
            is_first,
            policies_of: Some(id(subnet)),
            reasons: Vec::new(),
            services: Vec::new(),
        };
        let private_links = PrivateLinkPlan {
            subnets: vec![subnet("s1"), subnet("s2")],
            writes: vec![link("late", false, "s1"), link("first", true, "s2")],
            ..PrivateLinkPlan::default()
        };
        let plan = NetworkPlan { private_links, ..NetworkPlan::default() }.to_string();
        let order: Vec<&str> = plan.lines().filter_map(|line| line.split(": ").next()?.rsplit('/').next()).collect();
        assert_eq!(order, ["s2", "first", "s1", "late"], "{plan}");
    }
}
