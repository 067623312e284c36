//! Plan of public IPs, load balancers and private link services for all pending Services, and the refused Services. Pure, and prints.
//!
//! In: the observed state, the requests, the other Services. Out: a [`NetworkPlan`]. A refusal by one part excludes the Service from the
//! other parts too, before anything is written: no Service gets a public IP for a frontend that it cannot have.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use super::super::{
    desired::{
        ServiceRequest, load_balancers,
        private_links::{self, PrivateLinkInput, PrivateLinkPlan},
        public_ips,
    },
    observed::ObservedNetwork,
    settings::LoadBalancerSettings,
    spec::{IpFamily, ServiceIdentity, ServiceRefusal, ServiceSpec},
};
use crate::providers::azure::model::ResourceId;

/// Changes of public IPs, load balancers and private link services, and the refused Services.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NetworkPlan {
    pub public_ips: public_ips::PublicIpPlan,
    pub load_balancers: load_balancers::LoadBalancerPlan,
    pub private_links: PrivateLinkPlan,
    /// Services that get nothing new, with the reason.
    pub refused: BTreeMap<ServiceIdentity, ServiceRefusal>,
}

/// Plans public IPs, load balancers and private link services for `requests`. `others`: all other Services, for which nothing is created or
/// deleted.
pub fn plan_network(
    observed: &ObservedNetwork,
    requests: &[ServiceRequest],
    others: &[Arc<ServiceSpec>],
    settings: &LoadBalancerSettings,
) -> NetworkPlan {
    let ensured = requests.iter().filter(|request| matches!(request, ServiceRequest::Ensure(_)));
    let ensured: Vec<&ServiceSpec> = ensured.filter_map(ServiceRequest::spec).map(Arc::as_ref).collect();
    let mut refused = settings.service_limits.namespace_refusals(&ensured, others);
    let (mut granted, out) = partition_refused(requests, &refused);
    let mut others = others.to_vec();
    others.extend(out.iter().filter_map(ServiceRequest::spec).cloned());
    let mut notices = Vec::new();
    loop {
        let mut public_ips = public_ips::plan_public_ips(observed, &granted, &others, settings);
        let mut answers = refusals(&public_ips.services);
        let (rest, _) = partition_refused(&granted, &answers);
        let lasting = without_recreated(rest, &public_ips.recreated);
        let load_balancers =
            load_balancers::plan_load_balancers(observed, &lasting, &others, &public_ips.assigned, settings);
        answers.extend(refusals(&load_balancers.services));
        let links =
            PrivateLinkInput { observed, requests: &lasting, others: &others, load_balancers: &load_balancers, settings };
        let (mut private_links, held) = private_links::plan_private_links(&links);
        answers.extend(held);
        if answers.is_empty() {
            private_links.notices.append(&mut notices);
            if !public_ips.releases.is_empty() {
                retain_used(&mut public_ips, &load_balancers.frontends_of_public_ips(observed));
            }
            return NetworkPlan { public_ips, load_balancers, private_links, refused };
        }
        let (rest, out) = partition_refused(&granted, &answers);
        notices.extend(private_links.notices.into_iter().filter(|(who, _)| answers.contains_key(who)));
        // A refused Service keeps what it has.
        others.extend(out.iter().filter_map(ServiceRequest::spec).cloned());
        granted = rest;
        refused.extend(answers);
    }
}

impl NetworkPlan {
    /// Returns the Services whose public IPs must be written before their load balancers.
    pub fn waiting_for_public_ips(&self) -> BTreeSet<ServiceIdentity> {
        self.public_ips.writes.iter().flat_map(|change| &change.causes).cloned().collect()
    }

    /// Returns the placements of Services for which nothing is written, released or retained. The map is empty unless the whole plan is.
    pub fn settled_placements(&self) -> BTreeMap<ServiceIdentity, load_balancers::ServicePlacement> {
        // An interim plan does not show the changes of the plan that follows it.
        let is_empty = self.is_empty() && !self.load_balancers.is_interim;
        let retained: BTreeSet<_> = self.public_ips.retained.iter().flat_map(|release| &release.services).collect();
        let is_settled = |service: &ServiceIdentity, placement: &load_balancers::ServicePlacement| {
            let is_complete = placement.retained_frontends.is_empty() && placement.crowded_interfaces.is_none();
            is_empty && placement.load_balancer.is_some() && is_complete && !retained.contains(service)
        };
        let placements = self.load_balancers.services.iter();
        let placements = placements.filter_map(|(service, placement)| Some((service, placement.as_ref().ok()?)));
        let settled = placements.filter(|(service, placement)| is_settled(service, placement));
        settled.map(|(service, placement)| (service.clone(), placement.clone())).collect()
    }

    /// Replaces the changes that are written after load balancers by those of `next`, the last plan of load balancers, and adds its
    /// refusals.
    pub(super) fn take_over(&mut self, next: Self) {
        let Self { public_ips, private_links, refused, .. } = next;
        self.public_ips.releases = public_ips.releases;
        self.public_ips.retained = public_ips.retained;
        self.private_links.writes.retain(|change| change.is_first);
        self.private_links.writes.extend(private_links.writes.into_iter().filter(|change| !change.is_first));
        self.private_links.subnets = private_links.subnets;
        self.private_links.notices = private_links.notices;
        self.refused.extend(refused);
    }

    /// Removes the private link services that are deleted before load balancers are written.
    pub(super) fn remove_deleted(&self, observed: &mut ObservedNetwork) {
        let deleted: HashSet<String> = self.private_links.deletions.iter().map(|deletion| deletion.id.key()).collect();
        let is_deleted = |id: Option<&str>| id.is_some_and(|id| deleted.contains(&id.to_ascii_lowercase()));
        observed.private_links.services.retain(|link| !is_deleted(link.id.as_deref()));
    }

    /// Returns `true` if there is nothing to write or delete.
    pub fn is_empty(&self) -> bool {
        self.public_ips.writes.is_empty()
            && self.public_ips.releases.is_empty()
            && self.load_balancers.changes.is_empty()
            && self.private_links.is_empty()
    }
}

/// Retains the public IPs that frontends still refer to, because ARM would reject their deletion.
///
/// `used`: ids of those frontends after all writes, by public IP.
fn retain_used(public_ips: &mut public_ips::PublicIpPlan, used: &BTreeMap<ResourceId, String>) {
    let (kept, release): (Vec<_>, Vec<_>) =
        std::mem::take(&mut public_ips.releases).into_iter().partition(|release| used.contains_key(&release.id));
    public_ips.releases = release;
    public_ips.retained.extend(kept.into_iter().map(|release| {
        let frontend = used.get(&release.id).map(String::as_str).unwrap_or_default();
        public_ips::PublicIpRelease {
            reasons: vec![format!("front end `{frontend}`, which is kept, refers to it")],
            ..release
        }
    }));
}

fn refusals<T>(answers: &BTreeMap<ServiceIdentity, Result<T, ServiceRefusal>>) -> BTreeMap<ServiceIdentity, ServiceRefusal> {
    let errors = answers.iter().filter_map(|(who, answer)| Some((who.clone(), answer.as_ref().err()?.clone())));
    errors.collect()
}

/// Splits the requests into the accepted and the `refused` ones.
pub(super) fn partition_refused(
    requests: &[ServiceRequest],
    refused: &BTreeMap<ServiceIdentity, ServiceRefusal>,
) -> (Vec<ServiceRequest>, Vec<ServiceRequest>) {
    requests.iter().cloned().partition(|request| !refused.contains_key(request.identity()))
}

/// Removes the frontends whose public IPs are being recreated from the requests. A Service without other frontends gets a request to
/// delete them.
pub fn without_recreated(
    requests: Vec<ServiceRequest>,
    recreated: &BTreeSet<(ServiceIdentity, IpFamily)>,
) -> Vec<ServiceRequest> {
    let lasting = requests.into_iter().map(|request| match request {
        ServiceRequest::Ensure(mut spec) => {
            let identity = spec.identity.clone();
            let is_recreated = |family: &IpFamily| recreated.contains(&(identity.clone(), *family));
            if spec.families.iter().any(is_recreated) {
                Arc::make_mut(&mut spec).families.retain(|family| !is_recreated(family));
            }
            if spec.families.is_empty() {
                ServiceRequest::Delete(identity, Some(spec))
            } else {
                ServiceRequest::Ensure(spec)
            }
        }
        request @ ServiceRequest::Delete(..) => request,
    });
    lasting.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::{
            super::{
                desired::samples::*,
                spec::{Protocol, ServiceLimits},
            },
            after::after_network,
        },
        *,
    };

    #[test]
    fn a_service_that_cannot_have_a_front_end_gets_no_public_ip() {
        let good = service("good");
        let bad = pinned("20.0.0.9", service("bad"));
        let there = observed(vec![load_balancer(json!({"name": "kubernetes", "properties": {}}))]);
        let requests = [ServiceRequest::Ensure(Arc::new(good.clone())), ServiceRequest::Ensure(Arc::new(bad.clone()))];
        let plan = plan_network(&there, &requests, &[], &settings());
        assert_eq!(plan.refused.keys().collect::<Vec<_>>(), [&bad.identity]);
        assert!(plan.public_ips.writes.iter().all(|change| change.services == [good.identity.clone()]), "{plan}");
        assert_eq!(plan.load_balancers.services.keys().collect::<Vec<_>>(), [&good.identity]);
        assert!(!plan.is_empty() && plan.to_string().contains("refuse default/bad"), "{plan}");
        assert_eq!(plan.waiting_for_public_ips(), BTreeSet::from([good.identity]));
    }

    #[test]
    fn services_are_settled_when_nothing_is_written() {
        let (first, second) = (internal("first"), internal("second"));
        let moved = ServiceSpec { ports: vec![port(Protocol::Tcp, 8080, 30080)], ..first.clone() };
        let plan = |there: &ObservedNetwork, requests: &[ServiceRequest], others: &[Arc<ServiceSpec>]| {
            let plan = plan_network(there, requests, others, &settings());
            let settled: Vec<_> = plan.settled_placements().into_keys().map(|service| service.key).collect();
            (settled.join(" "), after_network(there, &plan))
        };
        let none = observed(Vec::new());
        let (settled, first_written) = plan(&none, &[ensure(&first)], &[]);
        assert_eq!(settled, "", "its frontend is written");
        let (settled, both_written) = plan(&first_written, &[ensure(&first), ensure(&second)], &[]);
        assert_eq!(settled, "", "the document of the first one is written for the second one");
        for (requests, expected) in [
            ([ensure(&first), ensure(&second)], "default/first default/second"),
            ([ensure(&moved), ensure(&second)], ""),
            ([remove(&first), ensure(&second)], ""),
        ] {
            assert_eq!(plan(&both_written, &requests, &[]).0, expected, "{requests:?}");
        }
        let external = ensure(&ServiceSpec { internal: false, ..first });
        assert_eq!(plan(&both_written, &[external], &[Arc::new(second)]).0, "", "a public IP is written first");
    }

    #[test]
    fn a_full_namespace_refuses_a_new_service_before_any_write() {
        let service_limits = ServiceLimits { of_service: [Some(3), None, None], namespace_factor: Some(1) };
        let limited = LoadBalancerSettings { service_limits, ..settings() };
        let there = observed(Vec::new());
        let served = Arc::new(ServiceSpec { status_addresses: vec!["20.0.0.9".parse().unwrap()], ..service("zoo") });
        let new = service("new");
        for (settings, is_refused) in [(settings(), false), (limited, true)] {
            let plan =
                plan_network(&there, &[ServiceRequest::Ensure(Arc::new(new.clone()))], &[Arc::clone(&served)], &settings);
            assert_eq!(plan.refused.contains_key(&new.identity), is_refused, "{plan}");
            assert_eq!(plan.is_empty(), is_refused, "{plan}");
        }
    }
}
