//! Requests that carry out a [`Plan`]. Pure.
//!
//! In: the observed state, and the plan. Out: a [`WritePlan`] with the documents before and after each write, if the plan has them.

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
    providers::azure::model::{
        ApiType, ResourceId, api,
        body::{read_only, strip},
        network::ArmLoadBalancer,
    },
};

/// Returns all requests in the order in which they are sent.
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

/// Returns the request for an entry; `None` if nothing is sent.
fn request(observed: &ObservedNetwork, change: &PlannedChange<'_>) -> Option<PlannedWrite> {
    Some(match *change {
        PlannedChange::PublicIp(change) => {
            let before = observed.public_ips.iter().find(|known| known.is(&change.id));
            put(&api::PUBLIC_IPS, &change.id, &change.reasons, &change.services, (before, Some(&change.document)))
        }
        PlannedChange::LoadBalancer(change, causes) => load_balancer(change, causes, observed.load_balancer(&change.id)),
        PlannedChange::LaterLoadBalancer(change, causes, before) => {
            PlannedWrite { then: true, ..load_balancer(change, causes, before) }
        }
        PlannedChange::Pool(change) => pool(change),
        PlannedChange::SecurityGroup(rules) => {
            let (before, after) = (observed.security_group.as_ref(), rules.document.as_ref()?);
            let id = ResourceId::parse(after.id.as_deref()?).ok()?;
            put(&api::SECURITY_GROUPS, &id, &rules.reasons, &rules.causes, (before, Some(after)))
        }
        PlannedChange::Release(release) => {
            let before = observed.public_ips.iter().find(|known| known.is(&release.id));
            delete(&api::PUBLIC_IPS, &release.id, &release.reasons, &release.services, before)
        }
        PlannedChange::Subnet(change) => {
            let name = change.id.as_str().rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
            put(&api::SUBNETS, &change.id, &change.reasons, &change.services, (observed.subnets.get(&name), None))
        }
        PlannedChange::PrivateLink(change) => {
            let before = observed.private_links.services.iter().find(|known| known.is(&change.id));
            let documents = (before, Some(&change.document));
            put(&api::PRIVATE_LINK_SERVICES, &change.id, &change.reasons, &change.services, documents)
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
    match &change.write {
        LoadBalancerWrite::Put(after) => {
            put(&api::LOAD_BALANCERS, &change.id, &change.reasons, causes, (before, Some(after.as_ref())))
        }
        LoadBalancerWrite::Delete => delete(&api::LOAD_BALANCERS, &change.id, &change.reasons, causes, before),
    }
}

/// Returns the deletions of a private link service: first each of its connections, then the service itself.
fn private_link_deletion(gone: &PrivateLinkDeletion) -> Vec<PlannedWrite> {
    let connections = gone.document.connections().iter().filter_map(|connection| connection.id.as_deref());
    let ids = connections.filter_map(|id| ResourceId::parse(id).ok());
    let of = |kind, id: &ResourceId, before| delete(kind, id, &gone.reasons, &gone.services, before);
    let mut writes: Vec<_> = ids.map(|id| of(&api::PRIVATE_ENDPOINT_CONNECTIONS, &id, None)).collect();
    writes.push(of(&api::PRIVATE_LINK_SERVICES, &gone.id, Some(&gone.document)));
    writes
}

/// Returns the write of a change of pool members.
///
/// Instances and interfaces are read directly before they are written, so their writes have no documents here.
pub fn pool(change: &PoolChange) -> PlannedWrite {
    let after = match &change.kind {
        PoolChangeKind::Pool(after) => serde_json::to_value(after.as_ref()).ok(),
        PoolChangeKind::Migration(pools) => Some(json!({"pools": pools})),
        PoolChangeKind::Model(_) | PoolChangeKind::Member(_) => None,
    };
    let write = put(&api::BACKEND_POOLS, &change.id, &change.reasons, [], (None, after.as_ref()));
    let method = if matches!(change.kind, PoolChangeKind::Migration(_)) { POST } else { PUT };
    PlannedWrite { method, leftover: false, ..write }
}

/// Returns a document in the form that is sent, without read-only fields.
fn document(kind: &ApiType, document: Option<&impl Serialize>) -> Option<Value> {
    let mut value = serde_json::to_value(document?).ok()?;
    read_only::of(kind).map(|fields| strip(fields, &mut value));
    Some(value)
}

fn put<'a, D: Serialize>(
    kind: &ApiType,
    id: &ResourceId,
    reasons: &[String],
    services: impl IntoIterator<Item = &'a ServiceIdentity>,
    (before, after): (Option<&D>, Option<&D>),
) -> PlannedWrite {
    let (before, after) = (document(kind, before), document(kind, after));
    let leftover = matches!((&before, &after), (Some(before), Some(after)) if only_removes(before, after));
    let subjects = services.into_iter().map(|who| who.key.clone()).collect();
    let (target, reasons) = (id.as_str().to_owned(), reasons.to_vec());
    PlannedWrite { kind: kind.printed, method: PUT, target, reasons, subjects, leftover, then: false, before, after }
}

fn delete<'a, D: Serialize>(
    kind: &ApiType,
    id: &ResourceId,
    reasons: &[String],
    services: impl IntoIterator<Item = &'a ServiceIdentity>,
    before: Option<&D>,
) -> PlannedWrite {
    PlannedWrite { method: DELETE, leftover: true, ..put(kind, id, reasons, services, (before, None)) }
}
