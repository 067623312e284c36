//! Text of a plan: one sentence for each document, each refused Service and each part that waits.
//!
//! In: a [`PlannedChange`], or a whole [`Plan`] in the order in which it is written. Out: the sentence. The stages print what they are
//! about to write, for the log and the status page. [`super::writes`] has the same reasons for the plan that pages and commands print.

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

/// Largest number of Services that a sentence names.
const NAMED: usize = 3;

/// Entry of a plan, which prints as one sentence.
#[derive(Clone, Copy)]
pub enum PlannedChange<'a> {
    /// Write of a public IP.
    PublicIp(&'a PublicIpChange),
    /// Write or deletion of a load balancer, with the Services that cause it.
    LoadBalancer(&'a LoadBalancerChange, &'a BTreeSet<ServiceIdentity>),
    /// Write or deletion of a load balancer after the earlier writes, with the Services that cause it and with the document before it.
    LaterLoadBalancer(&'a LoadBalancerChange, &'a BTreeSet<ServiceIdentity>, Option<&'a ArmLoadBalancer>),
    /// Write of a pool, or of a document that lists the pool.
    Pool(&'a PoolChange),
    /// Write of the network security group.
    SecurityGroup(&'a SecurityRulePlan),
    /// Deletion of a private link service, before load balancers are written.
    DeletePrivateLink(&'a PrivateLinkDeletion),
    /// Write of a subnet that must allow private link services.
    Subnet(&'a SubnetPolicyChange),
    /// Write of a private link service.
    PrivateLink(&'a PrivateLinkChange),
    /// Private link service that is kept although no Service requests it, or although a Service requests its name.
    PrivateLinkNotice(&'a ServiceIdentity, &'a PrivateLinkNotice),
    /// Deletion of a public IP.
    Release(&'a PublicIpRelease),
    /// Public IP that is kept although no Service needs it.
    Retained(&'a PublicIpRelease),
    /// Service that gets nothing new, with the reason.
    Refused(&'a ServiceIdentity, &'a ServiceRefusal),
    /// Part that is planned once more facts are known.
    Waiting(&'a WaitingFor),
}

/// Document of an entry that concerns exactly one document.
pub struct PlannedDocument<'a> {
    /// Type of the document.
    pub kind: &'static ApiType,
    /// Operation on the document: `put`, `delete` or `keep`.
    pub verb: &'static str,
    pub id: &'a ResourceId,
    pub reasons: &'a [String],
    /// Services for which the document is written, deleted or kept.
    pub services: &'a [ServiceIdentity],
}

impl<'a> PlannedChange<'a> {
    /// Returns `true` if Azure is sent a request for this entry.
    pub fn is_written(&self) -> bool {
        !matches!(self, Self::PrivateLinkNotice(..) | Self::Retained(_) | Self::Refused(..) | Self::Waiting(_))
    }

    /// Returns the document of this entry; `None` if the entry concerns parts of a load balancer, rules of all Services, or no document.
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
/// Suffix of changes that no Service causes.
const FOR_NODES: &str = " (for Nodes)";

/// Writes the operation, the document, the reasons, and the Services that cause it: ` (for default/web)`.
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
    /// Returns `true` if no entry sends a request to Azure.
    pub fn is_empty(&self) -> bool {
        !self.changes().any(|change| change.is_written())
    }

    /// Returns all entries in the order in which they are written.
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

/// Prints like a [`Plan`] without other parts, and without the Services that cause changes of load balancers.
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
