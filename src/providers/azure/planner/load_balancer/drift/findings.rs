//! Which documents differ from what was right, read out of the plan that would put them right. Pure.
//!
//! In: the plan for all who ask, and those of them who ask for what they had when all was right. Out: for each of these the documents that
//! somebody else changed. A plan is for a Service when it changes parts with the Service's names; what no Service causes, such as the tags
//! of a load balancer, is told to all who are there.

use std::{collections::BTreeMap, fmt};

use super::super::{
    desired::{LAST_CHANGE_FAILED, ServiceRequest, load_balancers::LoadBalancerChange, security_rules::SecurityRulePlan},
    observed::ObservedNetwork,
    plan::network::NetworkPlan,
    settings::LoadBalancerSettings,
    spec::ServiceIdentity,
};
use crate::providers::azure::{arm::ResourceId, config::LoadBalancerSku};

/// How many changes of one document a message names, and bytes of each: names of documents are other people's.
const NAMED: usize = 3;
const MAX_SENTENCE: usize = 200;

/// What kind of document somebody changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriftedKind {
    LoadBalancer,
    PublicIp,
    SecurityGroup,
    PrivateLinkService,
}

impl DriftedKind {
    pub const ALL: [Self; 4] = [Self::LoadBalancer, Self::PublicIp, Self::SecurityGroup, Self::PrivateLinkService];

    /// For metrics, as in the requests of `plan`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LoadBalancer => "load_balancer",
            Self::PublicIp => "public_ip",
            Self::SecurityGroup => "security_group",
            Self::PrivateLinkService => "private_link_service",
        }
    }

    /// Whether this follows the Nodes of a Service, too, so that it may differ because those have changed.
    fn follows_nodes(self, settings: &LoadBalancerSettings, leads_to_machines: bool) -> bool {
        let is_placed_by_nodes = settings.has_entries() || settings.sku != LoadBalancerSku::Standard;
        is_placed_by_nodes || (self == Self::SecurityGroup && leads_to_machines)
    }
}

/// One document that somebody else changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftedDocument {
    pub kind: DriftedKind,
    pub id: ResourceId,
    /// What puts it right.
    pub repairs: Vec<String>,
}

impl fmt::Display for DriftedDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}",
            self.id,
            self.repairs.iter().take(NAMED).map(|one| shorten(one)).collect::<Vec<_>>().join("; ")
        )?;
        match self.repairs.len().saturating_sub(NAMED) {
            0 => f.write_str(")"),
            more => write!(f, "; and {more} more)"),
        }
    }
}

fn shorten(sentence: &str) -> String {
    let end = (0..=MAX_SENTENCE.min(sentence.len())).rev().find(|end| sentence.is_char_boundary(*end)).unwrap_or(0);
    if end == sentence.len() { sentence.to_owned() } else { format!("{}…", &sentence[..end]) }
}

/// By the Service.
pub type DriftByService = BTreeMap<ServiceIdentity, Vec<DriftedDocument>>;

/// What the search looks through.
pub struct DriftInput<'a> {
    /// What there is.
    pub observed: &'a ObservedNetwork,
    /// Who asked for the plan.
    pub requests: &'a [ServiceRequest],
    /// Those of them for whom all was right, and whether their Nodes are others since.
    pub compared: &'a BTreeMap<ServiceIdentity, bool>,
    /// What would be written.
    pub network: &'a NetworkPlan,
    /// The security group; `None`: there is none.
    pub rules: Option<&'a SecurityRulePlan>,
    /// Whether the rules of some Service lead to machines rather than front ends.
    pub leads_to_machines: bool,
    /// The configuration.
    pub settings: &'a LoadBalancerSettings,
}

/// What somebody else changed.
pub fn drift(input: &DriftInput<'_>) -> DriftByService {
    let mut found = DriftByService::new();
    if input.compared.is_empty() {
        return found;
    }
    let mut add =
        |kind: DriftedKind, id: &ResourceId, reasons: &[String], services: &mut dyn Iterator<Item = &ServiceIdentity>| {
            for who in services {
                let is_new_node =
                    |nodes_changed: &bool| *nodes_changed && kind.follows_nodes(input.settings, input.leads_to_machines);
                if input.compared.get(who).is_none_or(is_new_node) {
                    continue;
                }
                let repairs = repairs_of(who, reasons);
                if !repairs.is_empty() {
                    found.entry(who.clone()).or_default().push(DriftedDocument { kind, id: id.clone(), repairs });
                }
            }
        };
    let NetworkPlan { public_ips, load_balancers, private_links, .. } = input.network;
    for change in &public_ips.writes {
        add(DriftedKind::PublicIp, &change.id, &change.reasons, &mut change.services.iter());
    }
    for release in &public_ips.releases {
        add(DriftedKind::PublicIp, &release.id, &release.reasons, &mut release.services.iter());
    }
    let causes = load_balancers.causes(input.observed, input.requests);
    for (LoadBalancerChange { id, reasons, .. }, causes) in load_balancers.changes.iter().zip(&causes) {
        add(DriftedKind::LoadBalancer, id, reasons, &mut causes.iter());
    }
    for change in &private_links.writes {
        add(DriftedKind::PrivateLinkService, &change.id, &change.reasons, &mut change.services.iter());
    }
    for gone in &private_links.deletions {
        add(DriftedKind::PrivateLinkService, &gone.id, &gone.reasons, &mut gone.services.iter());
    }
    if let (Some(rules), Some(id)) = (input.rules, &input.settings.security_group) {
        match is_of_nobody(rules) {
            true => add(DriftedKind::SecurityGroup, id, &rules.reasons, &mut input.compared.keys()),
            false => add(DriftedKind::SecurityGroup, id, &rules.reasons, &mut rules.causes.iter()),
        }
    }
    found
}

/// Whether the group itself differs, rather than rules of Services or of Nodes that have gone.
fn is_of_nobody(rules: &SecurityRulePlan) -> bool {
    rules.causes.is_empty() && rules.reasons.iter().any(|reason| reason.starts_with("tags:"))
}

/// The changes that name parts of this Service; if none does, all of them. What ARM could not finish is nobody's change.
fn repairs_of(who: &ServiceIdentity, reasons: &[String]) -> Vec<String> {
    let changed = || reasons.iter().filter(|reason| reason.as_str() != LAST_CHANGE_FAILED);
    let own: Vec<String> = changed().filter(|reason| reason.contains(&who.name_prefix)).cloned().collect();
    if own.is_empty() { changed().cloned().collect() } else { own }
}
