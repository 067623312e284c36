//! A [`Plan`] as the requests that carry it out. Pure.
//!
//! In: what there is, and the plan. Out: a [`WritePlan`] with a document before and after each write, where the plan has it.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    super::{
        desired::{
            load_balancers::{LoadBalancerChange, LoadBalancerWrite},
            private_links::PrivateLinkDeletion,
        },
        observed::ObservedNetwork,
        spec::ServiceIdentity,
    },
    Plan,
    pools::{PoolChange, PoolChangeKind},
    print::PlannedChange,
    waiting::WaitingFor,
};
use crate::{
    cloud_provider::write_plan::{DELETE, POST, PUT, PlannedWrite, WritePlan, only_removes},
    providers::azure::arm::{
        ApiType, ResourceId, api,
        body::{read_only, strip},
        network::ArmLoadBalancer,
    },
};

/// Every request, in the order in which they are sent.
pub fn requests(observed: &ObservedNetwork, plan: &Plan) -> WritePlan {
    let mut requests = WritePlan { notes: plan.occupancy.notes().collect(), ..WritePlan::default() };
    for change in plan.changes() {
        match change {
            PlannedChange::Refused(who, refusal) => requests.refused.extend([format!("Service {}: {refusal}", who.key)]),
            PlannedChange::Retained(_) => requests.retained.extend([change.to_string()]),
            PlannedChange::Waiting(unread @ (WaitingFor::Machine(..) | WaitingFor::Models(_) | WaitingFor::Read(..))) => {
                requests.unread.extend([unread.to_string()]);
            }
            PlannedChange::Waiting(waiting) => requests.later.extend([waiting.to_string()]),
            PlannedChange::PrivateLinkNotice(..) => requests.retained.extend([change.to_string()]),
            PlannedChange::DeletePrivateLink(gone) => requests.writes.extend(private_link_deletion(gone)),
            written => requests.writes.extend(request(observed, &written)),
        }
    }
    requests
}

/// `None`: nothing is sent.
fn request(observed: &ObservedNetwork, change: &PlannedChange<'_>) -> Option<PlannedWrite> {
    Some(match *change {
        PlannedChange::PublicIp(change) => {
            let before = observed.public_ips.iter().find(|known| known.is(&change.id));
            let documents = (document(&api::PUBLIC_IPS, before), document(&api::PUBLIC_IPS, Some(&change.document)));
            put("public_ip", &change.id, &change.reasons, &change.services, documents)
        }
        PlannedChange::LoadBalancer(change, causes) => load_balancer(change, causes, observed.load_balancer(&change.id)),
        PlannedChange::LaterLoadBalancer(change, causes, before) => {
            PlannedWrite { then: true, ..load_balancer(change, causes, before) }
        }
        PlannedChange::Pool(change) => pool(change),
        PlannedChange::SecurityGroup(rules) => {
            let (before, after) = (observed.security_group.as_ref(), rules.document.as_ref()?);
            let id = ResourceId::parse(after.id.as_deref()?).ok()?;
            let documents = (document(&api::SECURITY_GROUPS, before), document(&api::SECURITY_GROUPS, Some(after)));
            put("security_group", &id, &rules.reasons, &rules.causes, documents)
        }
        PlannedChange::Release(release) => {
            let before = observed.public_ips.iter().find(|known| known.is(&release.id));
            let before = document(&api::PUBLIC_IPS, before);
            delete("public_ip", &release.id, &release.reasons, &release.services, before)
        }
        PlannedChange::Subnet(change) => {
            let name = change.id.as_str().rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
            let before = document(&api::SUBNETS, observed.subnets.get(&name));
            put("subnet", &change.id, &change.reasons, &change.services, (before, None))
        }
        PlannedChange::PrivateLink(change) => {
            let before = observed.private_links.services.iter().find(|known| known.is(&change.id));
            let before = document(&api::PRIVATE_LINK_SERVICES, before);
            let after = document(&api::PRIVATE_LINK_SERVICES, Some(&change.document));
            put("private_link_service", &change.id, &change.reasons, &change.services, (before, after))
        }
        PlannedChange::DeletePrivateLink(_)
        | PlannedChange::PrivateLinkNotice(..)
        | PlannedChange::Retained(_)
        | PlannedChange::Refused(..)
        | PlannedChange::Waiting(_) => return None,
    })
}

fn load_balancer(
    change: &LoadBalancerChange,
    causes: &BTreeSet<ServiceIdentity>,
    before: Option<&ArmLoadBalancer>,
) -> PlannedWrite {
    let before = document(&api::LOAD_BALANCERS, before);
    match &change.write {
        LoadBalancerWrite::Put(after) => {
            let after = document(&api::LOAD_BALANCERS, Some(after.as_ref()));
            put("load_balancer", &change.id, &change.reasons, causes, (before, after))
        }
        LoadBalancerWrite::Delete => delete("load_balancer", &change.id, &change.reasons, causes, before),
    }
}

/// Its connections go first, each on its own.
fn private_link_deletion(gone: &PrivateLinkDeletion) -> Vec<PlannedWrite> {
    let connections = gone.document.connections().iter().filter_map(|connection| connection.id.as_deref());
    let ids = connections.filter_map(|id| ResourceId::parse(id).ok());
    let of = |kind, id: &ResourceId, before| delete(kind, id, &gone.reasons, &gone.services, before);
    let mut writes: Vec<_> = ids.map(|id| of("private_endpoint_connection", &id, None)).collect();
    writes.push(of("private_link_service", &gone.id, document(&api::PRIVATE_LINK_SERVICES, Some(&gone.document))));
    writes
}

/// Members of pools: instances and interfaces are read just before they are written, so that no document is at hand.
pub fn pool(change: &PoolChange) -> PlannedWrite {
    let after = match &change.kind {
        PoolChangeKind::Pool(after) => document(&api::BACKEND_POOLS, Some(after.as_ref())),
        PoolChangeKind::Migration(pools) => Some(json!({"pools": pools})),
        PoolChangeKind::Model(_) | PoolChangeKind::Member(_) => None,
    };
    let write = put("backend_pool", &change.id, &change.reasons, [], (None, after));
    let method = if matches!(change.kind, PoolChangeKind::Migration(_)) { POST } else { PUT };
    PlannedWrite { method, leftover: false, ..write }
}

/// As it is sent.
fn document(kind: &ApiType, document: Option<&impl Serialize>) -> Option<Value> {
    let mut value = serde_json::to_value(document?).ok()?;
    read_only::of(kind).map(|fields| strip(fields, &mut value));
    Some(value)
}

fn put<'a>(
    kind: &'static str,
    id: &ResourceId,
    reasons: &[String],
    services: impl IntoIterator<Item = &'a ServiceIdentity>,
    (before, after): (Option<Value>, Option<Value>),
) -> PlannedWrite {
    let leftover = matches!((&before, &after), (Some(before), Some(after)) if only_removes(before, after));
    let subjects = services.into_iter().map(|who| who.key.clone()).collect();
    let (target, reasons) = (id.as_str().to_owned(), reasons.to_vec());
    PlannedWrite { kind, method: PUT, target, reasons, subjects, leftover, then: false, before, after }
}

fn delete<'a>(
    kind: &'static str,
    id: &ResourceId,
    reasons: &[String],
    services: impl IntoIterator<Item = &'a ServiceIdentity>,
    before: Option<Value>,
) -> PlannedWrite {
    PlannedWrite { method: DELETE, leftover: true, ..put(kind, id, reasons, services, (before, None)) }
}
