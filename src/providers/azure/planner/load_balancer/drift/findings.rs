//! Documents that differ from an earlier correct state, read from the plan that would repair them. Pure.
//!
//! In: the plan for all requests, and the requests whose earlier state was correct and whose content is unchanged. Out: for
//! each of these, the documents that another writer changed. A change belongs to a Service if it changes parts with the
//! Service's names. A change that no Service causes, such as one of the tags of a load balancer, is reported for all
//! Services.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::super::{
    desired::{
        LAST_CHANGE_FAILED, ServiceRequest, load_balancers::LoadBalancerChange, public_ips::plan_public_ips,
        security_rules::SecurityRulePlan,
    },
    observed::ObservedNetwork,
    plan::{
        Plan,
        print::{PlannedChange, PlannedDocument},
    },
    settings::LoadBalancerSettings,
    spec::{ServiceIdentity, ServiceSpec},
};
use crate::{
    providers::azure::{
        config::LoadBalancerSku,
        model::{ApiType, ResourceId, api},
    },
    runtime::text::truncate,
};

/// Largest number of changes of one document in a message. The names in them are those of other owners, so each has a limit,
/// too.
const NAMED: usize = 3;
const MAX_SENTENCE: usize = 200;

/// Returns `true` if documents of this type also follow the Nodes of a Service, so that changed Nodes may cause a
/// difference.
fn follows_nodes(kind: &ApiType, settings: &LoadBalancerSettings, leads_to_machines: bool) -> bool {
    let is_placed_by_nodes = settings.has_entries() || settings.sku != LoadBalancerSku::Standard;
    is_placed_by_nodes || (*kind == api::SECURITY_GROUPS && leads_to_machines)
}

/// Document that another writer changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftedDocument {
    pub kind: &'static ApiType,
    pub id: ResourceId,
    /// Descriptions of the changes that repair the document.
    pub repairs: Vec<String>,
}

impl fmt::Display for DriftedDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}",
            self.id,
            self.repairs.iter().take(NAMED).map(|one| truncate(one, MAX_SENTENCE)).collect::<Vec<_>>().join("; ")
        )?;
        match self.repairs.len().saturating_sub(NAMED) {
            0 => f.write_str(")"),
            more => write!(f, "; and {more} more)"),
        }
    }
}

/// Changed documents by the Service that they belong to.
pub type DriftByService = BTreeMap<ServiceIdentity, Vec<DriftedDocument>>;

/// Plan and its context, in which [`drift`] finds changes of other writers.
pub struct DriftInput<'a> {
    /// Observed state of Azure.
    pub observed: &'a ObservedNetwork,
    /// Requests that the plan serves.
    pub requests: &'a [ServiceRequest],
    /// Specs of the Services without a request: desired, or last applied.
    pub others: &'a [Arc<ServiceSpec>],
    /// Services of `requests` whose earlier state was correct, each with `true` if its Nodes have changed since.
    pub compared: &'a BTreeMap<ServiceIdentity, bool>,
    /// Plan that would repair the differences.
    pub plan: &'a Plan,
    /// Whether the rules of some Service lead to machines rather than frontends.
    pub leads_to_machines: bool,
    pub settings: &'a LoadBalancerSettings,
}

/// Returns the changed documents of the Services whose earlier state was correct.
pub fn drift(input: &DriftInput<'_>) -> DriftByService {
    let mut found = DriftByService::new();
    if input.compared.is_empty() {
        return found;
    }
    let public_ips = public_ip_changes(input);
    for change in input.plan.changes() {
        let (kind, id, reasons, services): (&'static ApiType, _, _, Vec<&ServiceIdentity>) = match change {
            PlannedChange::LoadBalancer(LoadBalancerChange { id, reasons, .. }, causes) => {
                (&api::LOAD_BALANCERS, id, reasons.as_slice(), causes.iter().collect())
            }
            PlannedChange::SecurityGroup(rules) => {
                let Some(id) = &input.settings.security_group else { continue };
                let is_of_all = is_of_nobody(rules);
                let services = if is_of_all { input.compared.keys().collect() } else { rules.causes.iter().collect() };
                (&api::SECURITY_GROUPS, id, rules.reasons.as_slice(), services)
            }
            other => match other.document() {
                Some(PlannedDocument { kind, id, reasons, services, .. }) if kind.is_compared && other.is_written() => {
                    let reasons =
                        if *kind == api::PUBLIC_IPS { public_ips.get(id).map(Vec::as_slice) } else { Some(reasons) };
                    let Some(reasons) = reasons else { continue };
                    (kind, id, reasons, services.iter().collect())
                }
                _ => continue,
            },
        };
        let may_follow_nodes = follows_nodes(kind, input.settings, input.leads_to_machines);
        for who in services {
            let has_drifted = input.compared.get(who).is_some_and(|nodes_changed| !(*nodes_changed && may_follow_nodes));
            let repairs = if has_drifted { repairs_of(who, reasons) } else { Vec::new() };
            if !repairs.is_empty() {
                found.entry(who.clone()).or_default().push(DriftedDocument { kind, id: id.clone(), repairs });
            }
        }
    }
    found
}

/// Returns the reasons for changes of public IPs if only the compared Services had requests, by id.
///
/// A shared public IP lists all its Services, so a Service that joins or leaves it in the same batch changes it for the
/// others. A change therefore counts only if it is planned both without and with the other Services of the batch.
fn public_ip_changes(input: &DriftInput<'_>) -> BTreeMap<ResourceId, Vec<String>> {
    let planned = &input.plan.network.public_ips;
    if planned.writes.is_empty() && planned.releases.is_empty() {
        return BTreeMap::new();
    }
    let is_compared = |request: &ServiceRequest| input.compared.contains_key(request.identity());
    let (compared, rest): (Vec<_>, Vec<_>) = input.requests.iter().cloned().partition(is_compared);
    let changes = |others: &[Arc<ServiceSpec>]| -> BTreeMap<ResourceId, Vec<String>> {
        let plan = plan_public_ips(input.observed, &compared, others, input.settings);
        let releases = plan.releases.into_iter().map(|release| (release.id, release.reasons));
        plan.writes.into_iter().map(|change| (change.id, change.reasons)).chain(releases).collect()
    };
    let mut alone = changes(input.others);
    if !rest.is_empty() {
        let beside: Vec<_> = input.others.iter().chain(rest.iter().filter_map(ServiceRequest::spec)).cloned().collect();
        let beside = changes(&beside);
        alone.retain(|id, _| beside.contains_key(id));
    }
    alone
}

/// Returns `true` if the tags of the security group differ, rather than rules of Services or of deleted Nodes.
fn is_of_nobody(rules: &SecurityRulePlan) -> bool {
    rules.causes.is_empty() && rules.reasons.iter().any(|reason| reason.starts_with("tags:"))
}

/// Returns the changes that name parts of this Service, or all changes if none does. A change that ARM could not finish is
/// no drift.
fn repairs_of(who: &ServiceIdentity, reasons: &[String]) -> Vec<String> {
    let changed = || reasons.iter().filter(|reason| reason.as_str() != LAST_CHANGE_FAILED);
    let own: Vec<String> = changed().filter(|reason| reason.contains(&who.name_prefix)).cloned().collect();
    if own.is_empty() { changed().cloned().collect() } else { own }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{
            desired::samples::*,
            plan::{after::after_network, network::plan_network},
            spec::Protocol,
        },
        *,
    };
    use crate::providers::azure::model::network::LoadBalancerProperties;

    /// Returns the observed state and the requests of two internal Services that are served.
    fn served() -> (ObservedNetwork, Vec<ServiceRequest>) {
        let requests = vec![ensure(&internal("web")), ensure(&internal("api"))];
        let empty = observed(Vec::new());
        let there = after_network(&empty, &plan_network(&empty, &requests, &[], &settings()));
        (there, requests)
    }

    fn properties(there: &mut ObservedNetwork) -> &mut LoadBalancerProperties {
        there.load_balancers[0].properties_mut()
    }

    fn found(
        there: &ObservedNetwork,
        requests: &[ServiceRequest],
        nodes_changed: bool,
        settings: &LoadBalancerSettings,
    ) -> DriftByService {
        let compared = requests.iter().map(|request| (request.identity().clone(), nodes_changed)).collect();
        found_of(&compared, there, requests, settings)
    }

    fn found_of(
        compared: &BTreeMap<ServiceIdentity, bool>,
        there: &ObservedNetwork,
        requests: &[ServiceRequest],
        settings: &LoadBalancerSettings,
    ) -> DriftByService {
        let network = plan_network(there, requests, &[], settings);
        let causes = network.load_balancers.causes(there, requests);
        let (observed, plan) = (there, &Plan { network, causes, ..Plan::default() });
        drift(&DriftInput { observed, requests, others: &[], compared, plan, leads_to_machines: false, settings })
    }

    #[test]
    fn who_comes_to_a_shared_public_ip_or_leaves_it_is_no_drift_of_the_others() {
        let web = service("web");
        let settled = |there: &ObservedNetwork, requests: &[ServiceRequest]| {
            let mut there = after_network(there, &plan_network(there, requests, &[], &settings()));
            there.public_ips[0].properties.get_or_insert_default().ip_address = Some("20.0.0.1".to_owned());
            there
        };
        let api = pinned("20.0.0.1", ServiceSpec { ports: vec![port(Protocol::Udp, 53, 30053)], ..service("api") });
        let one = settled(&observed(Vec::new()), &[ensure(&web)]);
        let two = settled(&one, &[ensure(&web), ensure(&api)]);
        let compared = BTreeMap::from([(web.identity.clone(), false)]);
        for (name, there, other) in [("comes", &one, ensure(&api)), ("leaves", &two, remove(&api))] {
            let requests = [ensure(&web), other];
            let writes = plan_network(there, &requests, &[], &settings()).public_ips.writes;
            assert!(writes.len() == 1 && writes[0].services.contains(&web.identity), "{name}: {writes:?}");
            assert_eq!(found_of(&compared, there, &requests, &settings()), DriftByService::new(), "{name}");
            let tagged = LoadBalancerSettings { tags: BTreeMap::from([("team".into(), "a".into())]), ..settings() };
            let found = found_of(&compared, there, &requests, &tagged);
            let mut repairs = found[&web.identity].iter().filter(|document| *document.kind == api::PUBLIC_IPS);
            let repairs = &repairs.next().unwrap().repairs;
            assert_eq!(*repairs, ["its tags differ"], "{name}");
        }
    }

    #[test]
    fn only_those_whose_parts_differ_are_told_and_only_their_changes() {
        let (mut there, requests) = served();
        assert_eq!(found(&there, &requests, false, &settings()), DriftByService::new());
        let web = requests[0].identity().clone();
        properties(&mut there).load_balancing_rules.as_mut().unwrap().retain(|rule| {
            let name = rule.name.as_deref().unwrap();
            !name.starts_with(&web.name_prefix) || !name.contains("443")
        });
        for nodes_changed in [false, true] {
            let found = found(&there, &requests, nodes_changed, &settings());
            assert_eq!(found.keys().collect::<Vec<_>>(), [&web]);
            let [document] = found[&web].as_slice() else { panic!("{found:?}") };
            assert_eq!((document.kind, document.repairs.len()), (&api::LOAD_BALANCERS, 1));
            assert!(document.to_string().contains("443"), "{document}");
        }
        let basic = LoadBalancerSettings { sku: LoadBalancerSku::Basic, ..settings() };
        assert!(found(&there, &requests, true, &basic).is_empty(), "basic load balancers follow the Nodes");
    }

    #[test]
    fn what_arm_could_not_finish_is_nobodys_change() {
        let (mut there, requests) = served();
        properties(&mut there).provisioning_state = Some("Failed".to_owned());
        assert!(!plan_network(&there, &requests, &[], &settings()).is_empty());
        assert_eq!(found(&there, &requests, false, &settings()), DriftByService::new());
    }

    #[test]
    fn tags_that_differ_are_told_to_all_who_are_there() {
        let (mut there, requests) = served();
        let tagged = LoadBalancerSettings { tags: BTreeMap::from([("team".into(), "a".into())]), ..settings() };
        assert_eq!(found(&there, &requests, false, &tagged).len(), 2);
        let plan = plan_network(&there, &requests, &[], &tagged);
        there = after_network(&there, &plan);
        assert_eq!(found(&there, &requests, false, &tagged), DriftByService::new());
    }

    #[test]
    fn a_message_is_bounded() {
        let repairs = vec!["é".repeat(1000); 50];
        let document = DriftedDocument { kind: &api::PUBLIC_IPS, id: public_ip("a"), repairs };
        let message = document.to_string();
        assert!(message.len() < 1000 && message.ends_with("…; and 47 more)"), "{message}");
    }
}
