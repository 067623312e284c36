//! What becomes of one public IP that exists. Pure.
//!
//! In: the document and who wants and leaves it. Out: a change, a release, or what keeps it, in the [`PublicIpPlan`].

use std::collections::BTreeSet;

use super::{
    super::public_ip_ownership::{self as ownership, PublicIpOwner},
    claims::{PublicIpClaim, PublicIpClaims},
    dns_label::DnsLabelQuestion,
    document::{self, PublicIpEdit},
    target::PublicIpIndex,
    types::{PublicIpChange, PublicIpPlan, PublicIpRelease},
    upgrade::{self, SkuUpgrade},
    usage,
};
use crate::providers::azure::{
    arm::{ResourceId, network::PublicIpAddress, spelling},
    planner::load_balancer::{
        desired::{LAST_CHANGE_FAILED, ServiceRequest},
        spec::{ServiceIdentity, ServiceSpec},
    },
};

/// Decides about one public IP. Without an ask that wants or leaves it, nothing happens to it, unless its address would be lost: for that
/// everybody waits.
pub(super) fn decide<'a>(
    id: &ResourceId,
    pip: &'a PublicIpAddress,
    claims: &PublicIpClaims<'a>,
    index: &PublicIpIndex<'a>,
    outcome: &mut PublicIpPlan,
) {
    let asked: Vec<_> = claims.requested_claims_on(id).collect();
    if let Some(document) = upgrade::with_static_address(pip, &index.leftovers) {
        postpone(&asked, outcome);
        let services: Vec<ServiceIdentity> = claims.granted_services().cloned().collect();
        if !services.is_empty() {
            let reasons = vec!["its address has to stay when the basic load balancer goes".to_owned()];
            outcome.writes.push(PublicIpChange { id: id.clone(), document, etag: pip.etag.clone(), reasons, services });
        }
        return;
    }
    let leaving = claims.leaving(id, pip, index);
    if asked.is_empty() && leaving.is_empty() {
        return;
    }
    let maker = ownership::owner(pip, &index.settings.cluster);
    let services = listed(id, pip, maker, &leaving, claims);
    let identities = asked.iter().map(|claim| &claim.spec.identity).chain(leaving.iter().map(|request| request.identity()));
    let identities: Vec<ServiceIdentity> = identities.cloned().collect::<BTreeSet<_>>().into_iter().collect();
    let release =
        |reasons| PublicIpRelease { id: id.clone(), etag: pip.etag.clone(), reasons, services: identities.clone() };
    if maker == PublicIpOwner::Cluster && services.is_empty() {
        let reasons = leaving.iter().map(|request| release_reason(request, id)).collect();
        match usage::blocking_user(pip, &index.documents, index.settings) {
            Some(user) => outcome.retained.push(release(vec![user])),
            None => outcome.releases.push(release(reasons)),
        }
        return;
    }
    let users = in_order(&services, claims.claims_on(id));
    match recreation(&asked, pip, maker, users.len().max(services.len()), index) {
        Some(Ok(claim)) => {
            outcome.assigned.remove(&(claim.spec.identity.clone(), claim.family));
            outcome.recreated.insert((claim.spec.identity.clone(), claim.family));
            outcome.releases.push(release(vec!["other IP tags are asked for, which need a new public IP".to_owned()]));
            return;
        }
        Some(Err(why)) => outcome.retained.push(release(vec![format!("it keeps its IP tags: {why}")])),
        None => {}
    }
    let claims_on = claims.claims_on(id).filter(|claim| claims.is_granted(claim)).collect();
    let labels = DnsLabelQuestion { pip, maker, services: &services, claims: claims_on }.decide();
    outcome.retained.extend(
        labels
            .rejected
            .into_iter()
            .map(|(identity, reason)| PublicIpRelease { services: vec![identity.clone()], ..release(vec![reason]) }),
    );
    let upgrade = if asked.is_empty() { SkuUpgrade::NotNeeded } else { upgrade::of(pip, index.observed, index.settings) };
    if upgrade == SkuUpgrade::AfterDeletion {
        return postpone(&asked, outcome);
    }
    let edit = PublicIpEdit {
        owner: maker,
        users,
        is_requested: !asked.is_empty(),
        label: labels.change,
        dns_owner_leaves: owner_leaves(pip, &leaving),
        services,
        upgrades_sku: upgrade == SkuUpgrade::Now,
    };
    let again =
        || (maker == PublicIpOwner::Cluster && !asked.is_empty() && pip.has_failed()).then(|| (pip.clone(), write_again()));
    if let Some((document, reasons)) = document::edited(pip, &edit, index.settings).or_else(again) {
        outcome.writes.push(PublicIpChange {
            id: id.clone(),
            document,
            etag: pip.etag.clone(),
            reasons,
            services: identities,
        });
    }
}

/// Front ends of these have to wait.
fn postpone(asked: &[&PublicIpClaim<'_>], outcome: &mut PublicIpPlan) {
    for claim in asked {
        outcome.assigned.remove(&(claim.spec.identity.clone(), claim.family));
        outcome.recreated.insert((claim.spec.identity.clone(), claim.family));
    }
}

fn write_again() -> Vec<String> {
    vec![LAST_CHANGE_FAILED.to_owned()]
}

/// The Services that the public IP shall list: those that stay in their order, then new ones in order of name. A Service that wants it
/// without being asked for is added only when the list, and with it the proof of ownership, would be empty otherwise.
fn listed(
    id: &ResourceId,
    pip: &PublicIpAddress,
    maker: PublicIpOwner,
    leaving: &[&ServiceRequest],
    claims: &PublicIpClaims<'_>,
) -> Vec<String> {
    if maker == PublicIpOwner::User {
        return Vec::new();
    }
    let leaves = |name: &&str| leaving.iter().any(|request| spelling::same_name(&request.identity().key, name));
    let mut list: Vec<String> =
        ownership::services(pip).into_iter().filter(|name| !leaves(name)).map(str::to_owned).collect();
    let mut add = |key: &str| {
        if !list.iter().any(|name| spelling::same_name(name, key)) {
            list.push(key.to_owned());
        }
    };
    claims.requested_claims_on(id).for_each(|claim| add(&claim.spec.identity.key));
    if list.is_empty() {
        list = claims.claims_on(id).map(|claim| claim.spec.identity.key.clone()).collect();
    }
    list
}

/// The Services that want the public IP, in the order of its list, then the rest.
fn in_order<'a: 'w, 'w>(services: &[String], claims: impl Iterator<Item = &'w PublicIpClaim<'a>>) -> Vec<&'a ServiceSpec> {
    let place = |spec: &ServiceSpec| services.iter().position(|name| spelling::same_name(name, &spec.identity.key));
    let mut specs: Vec<_> = claims.map(|claim| claim.spec).collect();
    specs.sort_by_key(|spec| place(spec).unwrap_or(usize::MAX));
    specs
}

fn owner_leaves(pip: &PublicIpAddress, leaving: &[&ServiceRequest]) -> bool {
    let owner = ownership::dns_owner(pip);
    owner.is_some_and(|owner| leaving.iter().any(|request| spelling::same_name(&request.identity().key, owner)))
}

fn release_reason(request: &ServiceRequest, id: &ResourceId) -> String {
    let (key, name) = (&request.identity().key, id.name());
    match request {
        ServiceRequest::Delete(..) => format!("{key} needs no load balancer any more"),
        ServiceRequest::Ensure(spec) if spec.internal => format!("{key} is internal now"),
        ServiceRequest::Ensure(_) => format!("{key} does not ask for `{name}` any more"),
    }
}

/// Whether the public IP has to be made anew, since other IP tags are asked for and may not be changed in place. Only the user's own
/// change of the IP tags may lose an address, and only that of a generated public IP which nobody else uses.
fn recreation<'w, 'a>(
    asked: &[&'w PublicIpClaim<'a>],
    pip: &PublicIpAddress,
    maker: PublicIpOwner,
    users: usize,
    index: &PublicIpIndex<'_>,
) -> Option<Result<&'w PublicIpClaim<'a>, String>> {
    if index.settings.mutate_ip_tags && maker == PublicIpOwner::Cluster {
        return None;
    }
    let claim = asked.iter().find(|claim| document::ip_tags_differ(pip, claim.spec))?;
    let keeps = match users {
        _ if maker != PublicIpOwner::Cluster => Some("it is not this cluster's own".to_owned()),
        2.. => Some("other Services use it, too".to_owned()),
        _ if claim.target.selected => Some("its name or address is asked for, and would be lost".to_owned()),
        _ => usage::blocking_user(pip, &index.documents, index.settings),
    };
    Some(keeps.map_or(Ok(*claim), Err))
}
