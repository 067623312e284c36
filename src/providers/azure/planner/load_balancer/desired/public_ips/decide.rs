//! Decision about one existing public IP. Pure.
//!
//! In: the document, and the Services that use or leave it. Out: a change, a release, or the reason to retain it, in the [`PublicIpPlan`].

use std::collections::BTreeSet;

use super::{
    super::public_ip_ownership::{self as ownership, PublicIpOwner, SERVICES_TAG_KEYS},
    causes,
    claims::{PublicIpClaim, PublicIpClaims},
    dns_label::DnsLabelQuestion,
    document::{self, PublicIpEdit},
    service_list::ServiceList,
    target::PublicIpIndex,
    types::{PublicIpChange, PublicIpPlan, PublicIpRelease},
    upgrade::{self, SkuUpgrade},
    usage,
};
use crate::providers::azure::{
    model::{ResourceId, names::MAX_TAG_VALUE, network::PublicIpAddress, spelling},
    planner::load_balancer::{
        desired::{LAST_CHANGE_FAILED, ServiceRequest},
        spec::{ServiceIdentity, ServiceSpec},
    },
};

/// Decides about one public IP and adds the result to `outcome`.
///
/// A public IP that no request uses or leaves is not changed. The exception is a dynamic address that would be lost with its basic load
/// balancer: all requests wait for the write that makes it static.
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
            let (id, etag, causes) = (id.clone(), pip.etag.clone(), services.clone());
            outcome.writes.push(PublicIpChange { id, document, etag, reasons, services, causes });
        }
        return;
    }
    let leaving = claims.leaving(id, pip, index);
    if asked.is_empty() && leaving.is_empty() {
        return;
    }
    let maker = ownership::owner(pip, &index.settings.cluster);
    let list = match maker {
        PublicIpOwner::User => ServiceList::default(),
        _ => ServiceList::plan(&ownership::services(pip), &leaving, &asked, claims.claims_on(id)),
    };
    let identities = asked.iter().map(|claim| &claim.spec.identity).chain(leaving.iter().map(|request| request.identity()));
    let identities: Vec<ServiceIdentity> = identities.cloned().collect::<BTreeSet<_>>().into_iter().collect();
    let release = |reasons| PublicIpRelease {
        id: id.clone(),
        etag: pip.etag.clone(),
        reasons,
        services: identities.clone(),
        is_notice: false,
    };
    if maker == PublicIpOwner::Cluster && list.names.is_empty() {
        let reasons = leaving.iter().map(|request| release_reason(request, id)).collect();
        match usage::blocking_user(pip, &index.documents, index.settings) {
            Some(user) => outcome.retained.push(release(vec![user])),
            None => outcome.releases.push(release(reasons)),
        }
        return;
    }
    let users = in_order(&list.names, claims.claims_on(id));
    match recreation(&asked, pip, maker, users.len().max(list.names.len()), index) {
        Some(Ok(claim)) => {
            postpone(&[claim], outcome);
            outcome.releases.push(release(vec!["other IP tags are asked for, which need a new public IP".to_owned()]));
            return;
        }
        Some(Err(why)) => outcome.retained.push(release(vec![format!("it keeps its IP tags: {why}")])),
        None => {}
    }
    let claims_on = claims.claims_on(id).filter(|claim| claims.is_granted(claim)).collect();
    let labels = DnsLabelQuestion { pip, maker, services: &list.names, claims: claims_on }.decide();
    let note =
        |identity: &ServiceIdentity, reason| PublicIpRelease { services: vec![identity.clone()], ..release(vec![reason]) };
    let notice = |identity: &ServiceIdentity, reason| PublicIpRelease { is_notice: true, ..note(identity, reason) };
    outcome.retained.extend(labels.rejected.into_iter().map(|(identity, reason)| note(identity, reason)));
    outcome.retained.extend(list.omitted.iter().map(|identity| notice(identity, no_room(identity))));
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
        services: list.names,
        upgrades_sku: upgrade == SkuUpgrade::Now,
    };
    let again = || {
        (maker == PublicIpOwner::Cluster && !asked.is_empty() && pip.has_failed())
            .then(|| (pip.clone(), vec![LAST_CHANGE_FAILED.to_owned()]))
    };
    let written = document::edited(pip, &edit, index.settings).or_else(again);
    let document = written.as_ref().map_or(pip, |(document, _)| document);
    if let Some(reason) = document::omitted_tags(document, &edit, index.settings) {
        outcome.retained.extend(asked.iter().map(|claim| notice(&claim.spec.identity, reason.clone())));
    }
    if let Some((document, reasons)) = written {
        let causes = causes::of(pip, &document, &asked, &leaving);
        outcome.writes.push(PublicIpChange {
            id: id.clone(),
            document,
            etag: pip.etag.clone(),
            reasons,
            services: identities,
            causes,
        });
    }
}

/// Moves these claims from `assigned` to `recreated`: their frontends wait for a later plan.
fn postpone(asked: &[&PublicIpClaim<'_>], outcome: &mut PublicIpPlan) {
    for claim in asked {
        outcome.assigned.remove(&(claim.spec.identity.clone(), claim.family));
        outcome.recreated.insert((claim.spec.identity.clone(), claim.family));
    }
}

/// Returns the notice to a Service that the list of a public IP has no room for it.
fn no_room(service: &ServiceIdentity) -> String {
    format!(
        "its tag `{}` has no room for {} within the {MAX_TAG_VALUE} characters that Azure accepts; the Service is served, and is added when \
         another one leaves the public IP",
        SERVICES_TAG_KEYS[0], service.key
    )
}

/// Returns the Services that use the public IP: first those in its list, in the order of the list, then the others.
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

/// Returns the claim that needs a new public IP because of its IP tags; `Err` is the reason to retain the public IP.
///
/// `None` means that no claim requests other IP tags, or that they can be changed in place. Only a change of the IP tags by the user may
/// lose an address, and only the address of a generated public IP that nothing else uses.
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
