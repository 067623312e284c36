//! What becomes of one public IP that exists. Pure.
//!
//! In: the document and who wants and leaves it. Out: a change, a release, or what keeps it, in the [`PublicIpPlan`].

use std::collections::BTreeSet;

use super::{
    claims::{PublicIpClaim, PublicIpClaims},
    document::{self, PublicIpEdit},
    ownership::{self, PublicIpOwner},
    target::PublicIpIndex,
    types::{PublicIpChange, PublicIpPlan, PublicIpRelease},
    upgrade::{self, SkuUpgrade},
    usage,
};
use crate::providers::azure::{
    arm::{ResourceId, network::PublicIpAddress, spelling},
    planner::load_balancer::{
        desired::ServiceRequest,
        spec::{ServiceIdentity, ServiceSpec},
    },
};

/// Decides about one public IP. Without an ask that wants or leaves it, nothing happens to it, unless its address would be lost: for that
/// everybody waits.
pub(super) fn decide<'a>(
    id: &ResourceId,
    pip: &'a PublicIpAddress,
    wishes: &PublicIpClaims<'a>,
    world: &PublicIpIndex<'a>,
    outcome: &mut PublicIpPlan,
) {
    let asked: Vec<_> = wishes.requested_claims_on(id).collect();
    if let Some(document) = upgrade::with_static_address(pip, world.observed, world.settings) {
        postpone(&asked, outcome);
        let services: Vec<ServiceIdentity> = wishes.granted_services().cloned().collect();
        if !services.is_empty() {
            let reasons = vec!["its address has to stay when the basic load balancer goes".to_owned()];
            outcome.writes.push(PublicIpChange { id: id.clone(), document, etag: pip.etag.clone(), reasons, services });
        }
        return;
    }
    let leaving = wishes.leaving(id, pip, world);
    if asked.is_empty() && leaving.is_empty() {
        return;
    }
    let maker = ownership::owner(pip, &world.settings.cluster);
    let services = listed(id, pip, maker, &leaving, wishes);
    let identities = asked.iter().map(|wish| &wish.spec.identity).chain(leaving.iter().map(|ask| ask.identity()));
    let identities: Vec<ServiceIdentity> = identities.cloned().collect::<BTreeSet<_>>().into_iter().collect();
    let release =
        |reasons| PublicIpRelease { id: id.clone(), etag: pip.etag.clone(), reasons, services: identities.clone() };
    if maker == PublicIpOwner::Cluster && services.is_empty() {
        let reasons = leaving.iter().map(|ask| release_reason(ask, id)).collect();
        match usage::blocking_user(pip, world.observed, world.settings) {
            Some(user) => outcome.retained.push(release(vec![user])),
            None => outcome.releases.push(release(reasons)),
        }
        return;
    }
    let users = in_order(&services, wishes.claims_on(id));
    match recreation(&asked, pip, maker, users.len().max(services.len()), world) {
        Some(Ok(wish)) => {
            outcome.assigned.remove(&(wish.spec.identity.clone(), wish.family));
            outcome.recreated.insert((wish.spec.identity.clone(), wish.family));
            outcome.releases.push(release(vec!["other IP tags are asked for, which need a new public IP".to_owned()]));
            return;
        }
        Some(Err(why)) => outcome.retained.push(release(vec![format!("it keeps its IP tags: {why}")])),
        None => {}
    }
    if let Some(label) =
        asked.iter().filter(|_| maker != PublicIpOwner::Cluster).find_map(|wish| document::other_label(pip, wish.spec))
    {
        outcome.retained.push(release(vec![format!("it keeps its DNS label `{label}`: it is not this cluster's own")]));
    }
    let upgrade = if asked.is_empty() { SkuUpgrade::NotNeeded } else { upgrade::of(pip, world.observed, world.settings) };
    if upgrade == SkuUpgrade::AfterDeletion {
        return postpone(&asked, outcome);
    }
    let edit = PublicIpEdit {
        owner: maker,
        users,
        requesting: specs(&asked),
        dns_owner_leaves: owner_leaves(pip, &leaving),
        services,
        upgrades_sku: upgrade == SkuUpgrade::Now,
    };
    let again =
        || (maker == PublicIpOwner::Cluster && !asked.is_empty() && pip.has_failed()).then(|| (pip.clone(), write_again()));
    if let Some((document, reasons)) = document::edited(pip, &edit, world.settings).or_else(again) {
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
    for wish in asked {
        outcome.assigned.remove(&(wish.spec.identity.clone(), wish.family));
        outcome.recreated.insert((wish.spec.identity.clone(), wish.family));
    }
}

fn write_again() -> Vec<String> {
    vec!["write it again, since its last change failed".to_owned()]
}

fn specs<'a>(wishes: &[&PublicIpClaim<'a>]) -> Vec<&'a ServiceSpec> {
    wishes.iter().map(|wish| wish.spec).collect()
}

/// The Services that the public IP shall list: those that stay in their order, then new ones in order of name. A Service that wants it
/// without being asked for is added only when the list, and with it the proof of ownership, would be empty otherwise.
fn listed(
    id: &ResourceId,
    pip: &PublicIpAddress,
    maker: PublicIpOwner,
    leaving: &[&ServiceRequest],
    wishes: &PublicIpClaims<'_>,
) -> Vec<String> {
    if maker == PublicIpOwner::User {
        return Vec::new();
    }
    let leaves = |name: &&str| leaving.iter().any(|ask| spelling::same_name(&ask.identity().key, name));
    let mut list: Vec<String> =
        ownership::services(pip).into_iter().filter(|name| !leaves(name)).map(str::to_owned).collect();
    let mut add = |key: &str| {
        if !list.iter().any(|name| spelling::same_name(name, key)) {
            list.push(key.to_owned());
        }
    };
    wishes.requested_claims_on(id).for_each(|wish| add(&wish.spec.identity.key));
    if list.is_empty() {
        list = wishes.claims_on(id).map(|wish| wish.spec.identity.key.clone()).collect();
    }
    list
}

/// The Services that want the public IP, in the order of its list, then the rest.
fn in_order<'a: 'w, 'w>(services: &[String], wishes: impl Iterator<Item = &'w PublicIpClaim<'a>>) -> Vec<&'a ServiceSpec> {
    let place = |spec: &ServiceSpec| services.iter().position(|name| spelling::same_name(name, &spec.identity.key));
    let mut specs: Vec<_> = wishes.map(|wish| wish.spec).collect();
    specs.sort_by_key(|spec| place(spec).unwrap_or(usize::MAX));
    specs
}

fn owner_leaves(pip: &PublicIpAddress, leaving: &[&ServiceRequest]) -> bool {
    let owner = ownership::dns_owner(pip);
    owner.is_some_and(|owner| leaving.iter().any(|ask| spelling::same_name(&ask.identity().key, owner)))
}

fn release_reason(ask: &ServiceRequest, id: &ResourceId) -> String {
    let (key, name) = (&ask.identity().key, id.name());
    match ask {
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
    world: &PublicIpIndex<'_>,
) -> Option<Result<&'w PublicIpClaim<'a>, String>> {
    if world.settings.mutate_ip_tags && maker == PublicIpOwner::Cluster {
        return None;
    }
    let wish = asked.iter().find(|wish| document::ip_tags_differ(pip, wish.spec))?;
    let keeps = match users {
        _ if maker != PublicIpOwner::Cluster => Some("it is not this cluster's own".to_owned()),
        2.. => Some("other Services use it, too".to_owned()),
        _ if wish.target.selected => Some("its name or address is asked for, and would be lost".to_owned()),
        _ => usage::blocking_user(pip, world.observed, world.settings),
    };
    Some(keeps.map_or(Ok(*wish), Err))
}
