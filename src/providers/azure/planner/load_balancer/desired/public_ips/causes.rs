//! Services that cause the write of a public IP. Pure.
//!
//! In: the document before and after the write, and the requested Services that use or leave the public IP. Out: the Services that wait for
//! the write and fail with it. A Service whose own part needs no change is served without the write.

use std::collections::BTreeSet;

use super::{super::public_ip_ownership as ownership, claims::PublicIpClaim, dns_label, document};
use crate::providers::azure::{
    model::{network::PublicIpAddress, spelling},
    planner::load_balancer::{
        desired::ServiceRequest,
        spec::{ServiceIdentity, ServiceSpec},
    },
};

/// Returns the Services that cause the write, in order: those that leave the public IP, and those whose own part changes.
///
/// If there are none, all requested Services cause it.
pub(super) fn of(
    before: &PublicIpAddress,
    after: &PublicIpAddress,
    requested: &[&PublicIpClaim<'_>],
    leaving: &[&ServiceRequest],
) -> Vec<ServiceIdentity> {
    // No load balancer can use the public IP before the write.
    let is_for_all = before.has_failed() || before.is_basic() != after.is_basic();
    let changed = requested.iter().filter(|claim| is_for_all || changes_part_of(claim.spec, before, after));
    let changed = changed.map(|claim| &claim.spec.identity);
    let mut causes: BTreeSet<_> = changed.chain(leaving.iter().map(|request| request.identity())).collect();
    if causes.is_empty() {
        causes.extend(requested.iter().map(|claim| &claim.spec.identity));
    }
    causes.into_iter().cloned().collect()
}

/// Returns `true` if the write adds the Service to the list, or sets its DNS label, tags or IP tags.
fn changes_part_of(spec: &ServiceSpec, before: &PublicIpAddress, after: &PublicIpAddress) -> bool {
    let is_listed = |pip| ownership::position(pip, &spec.identity.key).is_some();
    let has_label = |pip| {
        let label = spec.public_ip.dns_label.as_deref();
        label.is_some_and(|label| spelling::same_name(label, dns_label::label_of(pip)))
    };
    let label = |pip| (dns_label::label_of(pip), ownership::dns_owner(pip));
    let has_tag = |pip: &PublicIpAddress, key: &str, value: &str| ownership::tag(pip.tags.as_ref(), [key; 2]) == Some(value);
    let mut tags = spec.public_ip.tags.iter();
    (!is_listed(before) && is_listed(after))
        || (has_label(after) && label(before) != label(after))
        || tags.any(|(key, value)| has_tag(after, key, value) && !has_tag(before, key, value))
        || (document::ip_tags_differ(before, spec) && !document::ip_tags_differ(after, spec))
}
