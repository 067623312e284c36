//! Changes of an orphan: a private link service whose owner does not use the frontend anymore. Pure.
//!
//! In: the document as ARM sent it, and the options of the heir, a Service that shares the frontend. Out: the document with only those
//! fields changed for which the heir has an annotation. While the owner used the frontend, the heir could not have options, so a missing
//! annotation does not request the default. The owner's tag remains: with the heir's tag, the next pass would treat the heir as the owner
//! and reset the other fields.

use std::net::{IpAddr, Ipv4Addr};

use super::document::{LinkDraft, fixed_address, listed, parts};
use crate::providers::azure::{
    model::{
        ResourceId,
        network::{PrivateLinkIpConfigurationProperties, PrivateLinkServiceProperties},
    },
    planner::load_balancer::{
        annotations::{
            PLS_ADDRESS_COUNT, PLS_ADDRESSES, PLS_AUTO_APPROVAL, PLS_FQDNS, PLS_PROXY_PROTOCOL, PLS_SUBNET, PLS_VISIBILITY,
        },
        spec::PrivateLinkSpec,
    },
};

/// Returns `true` if a Service has the annotation `key`, which only an owner may have.
pub(super) fn gives(link: &PrivateLinkSpec, key: &'static str) -> bool {
    link.owners_only.contains(&key)
}

/// Applies the heir's annotations to the draft. `subnet`: the subnet that an annotation names.
pub(super) fn apply(draft: &mut LinkDraft, id: &ResourceId, heir: &PrivateLinkSpec, subnet: Option<&ResourceId>) {
    let properties = draft.document.properties.clone().unwrap_or_default();
    draft.set_options(&with_own_options(heir, &properties));
    let names_addresses = [PLS_SUBNET.key, PLS_ADDRESS_COUNT.key, PLS_ADDRESSES.key].into_iter().any(|key| gives(heir, key));
    let subnet = subnet.cloned().or_else(|| own_subnet(&properties)).filter(|_| names_addresses);
    if let Some(subnet) = subnet {
        draft.set_addresses(id, &with_own_addresses(heir, &properties, &subnet), &subnet);
    }
}

/// Returns the heir's options. Options without an annotation have the values of the document.
fn with_own_options(heir: &PrivateLinkSpec, properties: &PrivateLinkServiceProperties) -> PrivateLinkSpec {
    let mut link = heir.clone();
    if !gives(heir, PLS_PROXY_PROTOCOL.key) {
        link.proxy_protocol = properties.enable_proxy_protocol.unwrap_or_default();
    }
    if !gives(heir, PLS_FQDNS.key) {
        link.fqdns = properties.fqdns.clone().unwrap_or_default();
    }
    if !gives(heir, PLS_VISIBILITY.key) {
        link.visibility = listed(properties.visibility.as_ref()).to_vec();
    }
    if !gives(heir, PLS_AUTO_APPROVAL.key) {
        link.auto_approval = listed(properties.auto_approval.as_ref()).to_vec();
    }
    link
}

/// Returns the heir's addresses. Without an annotation, their number and the fixed addresses are those of the document. Fixed addresses
/// cannot move to another subnet.
fn with_own_addresses(
    heir: &PrivateLinkSpec,
    properties: &PrivateLinkServiceProperties,
    subnet: &ResourceId,
) -> PrivateLinkSpec {
    let mut link = heir.clone();
    if !gives(heir, PLS_ADDRESS_COUNT.key) {
        link.address_count = parts(properties).count().max(heir.addresses.len()).max(1);
    }
    if !gives(heir, PLS_ADDRESSES.key) && own_subnet(properties).is_some_and(|own| own == *subnet) {
        link.addresses = fixed_addresses(properties);
        link.addresses.truncate(link.address_count);
    }
    link
}

/// Returns the fixed IPv4 addresses, the primary address first.
fn fixed_addresses(properties: &PrivateLinkServiceProperties) -> Vec<Ipv4Addr> {
    let mut fixed: Vec<_> = parts(properties).collect();
    fixed.sort_by_key(|part| part.primary != Some(true));
    let address = |part: &PrivateLinkIpConfigurationProperties| match fixed_address(part) {
        Some(IpAddr::V4(address)) => Some(address),
        Some(IpAddr::V6(_)) | None => None,
    };
    fixed.into_iter().filter_map(address).collect()
}

fn own_subnet(properties: &PrivateLinkServiceProperties) -> Option<ResourceId> {
    parts(properties).find_map(|part| ResourceId::parse(part.subnet.as_ref()?.id.as_deref()?).ok())
}
