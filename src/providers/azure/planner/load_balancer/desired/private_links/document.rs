//! Document of a private link service, changed to the options that its owner requests. Pure.
//!
//! In: the document as ARM sent it, or a new one; the requested options. Out: the document with changes where it differs, and their
//! reasons. Lists are compared without regard to order. Addresses that Azure chose, and the names of their entries, are not compared. Any
//! difference in the addresses replaces all of them.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
};

use super::{
    super::{
        LAST_CHANGE_FAILED,
        ownership_tags::{CLUSTER_TAG, OWNER_TAG, tag},
    },
    names::MAX_NAME,
};
use crate::providers::azure::{
    model::{
        ResourceId,
        document::SubResource,
        network::{
            PrivateLinkIpConfiguration, PrivateLinkIpConfigurationProperties, PrivateLinkService,
            PrivateLinkServiceProperties, PrivateLinkSubscriptions,
        },
        spelling,
    },
    planner::{
        load_balancer::{settings::LoadBalancerSettings, spec::PrivateLinkSpec},
        tags,
    },
};

/// Private link service with the changes so far.
pub(super) struct LinkDraft {
    pub(super) document: PrivateLinkService,
    /// Reasons for the changes; empty if the document is unchanged.
    pub(super) reasons: Vec<String>,
}

/// Returns a new private link service for `frontend`.
pub(super) fn new(id: &ResourceId, frontend: &str, settings: &LoadBalancerSettings) -> LinkDraft {
    let frontend = SubResource { id: Some(frontend.to_owned()), ..SubResource::default() };
    let properties = PrivateLinkServiceProperties {
        load_balancer_frontend_ip_configurations: Some(vec![frontend]),
        ..PrivateLinkServiceProperties::default()
    };
    let document = PrivateLinkService {
        name: Some(id.name().to_owned()),
        location: Some(settings.location.clone()),
        extended_location: settings.edge_zone(),
        properties: Some(properties),
        ..PrivateLinkService::default()
    };
    LinkDraft { document, reasons: vec![format!("create private link service {}", id.name())] }
}

/// Returns a draft of an existing private link service. A failed last change is the first reason.
pub(super) fn known(document: &PrivateLinkService) -> LinkDraft {
    let mut reasons = Vec::new();
    if document.has_failed() {
        reasons.push(LAST_CHANGE_FAILED.to_owned());
    }
    LinkDraft { document: document.clone(), reasons }
}

impl LinkDraft {
    /// Returns `true` if connections begin with the proxy header.
    pub(super) fn is_proxying(&self) -> bool {
        self.document.properties.as_ref().is_some_and(|properties| properties.enable_proxy_protocol == Some(true))
    }

    /// Replaces the addresses if they differ from the desired ones.
    pub(super) fn set_addresses(&mut self, id: &ResourceId, link: &PrivateLinkSpec, subnet: &ResourceId) {
        let properties = self.document.properties.get_or_insert_default();
        if !has_addresses(properties, link, subnet) {
            let prefix = format!("{}-{}", subnet.name(), id.name());
            properties.ip_configurations = Some(ip_configurations(link, &prefix, subnet));
            self.note(format!("other addresses: {} in subnet {}", link.address_count, subnet.name()));
        }
    }

    /// Changes the proxy header, DNS names and subscriptions where they differ.
    pub(super) fn set_options(&mut self, link: &PrivateLinkSpec) {
        let properties = self.document.properties.get_or_insert_default();
        let mut changed = Vec::new();
        if properties.enable_proxy_protocol.unwrap_or_default() != link.proxy_protocol {
            properties.enable_proxy_protocol = Some(link.proxy_protocol);
            let switch = if link.proxy_protocol { "on" } else { "off" };
            changed.push(format!("switch the proxy header {switch}"));
        }
        if !is_same_list(properties.fqdns.as_deref().unwrap_or_default(), &link.fqdns) {
            properties.fqdns = Some(link.fqdns.clone());
            changed.push("other DNS names".to_owned());
        }
        changed.extend(set_subscriptions(properties, link));
        changed.into_iter().for_each(|reason| self.note(reason));
    }

    /// Sets the owner's tag, which differs in a new document only, and the configured tags. The cluster's tag never changes.
    pub(super) fn set_tags(&mut self, owner: &str, settings: &LoadBalancerSettings) {
        let cluster = tag(self.document.tags.as_ref(), CLUSTER_TAG).unwrap_or(&settings.cluster).to_owned();
        let mut desired = settings.tags.clone();
        desired.retain(|key, _| ![CLUSTER_TAG, OWNER_TAG].iter().any(|own| spelling::same_name(own, key)));
        desired.insert(CLUSTER_TAG.to_owned(), cluster);
        desired.insert(OWNER_TAG.to_owned(), owner.to_owned());
        if tags::merge(&mut self.document.tags, &desired, &settings.system_tags) {
            self.note("its tags differ".to_owned());
        }
    }

    /// Adds a reason to change an existing private link service. A new private link service has only one reason.
    fn note(&mut self, reason: String) {
        if self.document.id.is_some() {
            self.reasons.push(reason);
        }
    }
}

/// Sets both lists of subscriptions if one of them differs, as upstream does. Returns the reason.
fn set_subscriptions(properties: &mut PrivateLinkServiceProperties, link: &PrivateLinkSpec) -> Option<String> {
    if is_same_list(listed(properties.visibility.as_ref()), &link.visibility)
        && is_same_list(listed(properties.auto_approval.as_ref()), &link.auto_approval)
    {
        return None;
    }
    properties.visibility.get_or_insert_default().subscriptions = Some(link.visibility.clone());
    properties.auto_approval.get_or_insert_default().subscriptions = Some(link.auto_approval.clone());
    Some("other subscriptions see it or are let in unasked".to_owned())
}

pub(super) fn listed(list: Option<&PrivateLinkSubscriptions>) -> &[String] {
    list.and_then(|list| list.subscriptions.as_deref()).unwrap_or_default()
}

fn is_same_list(known: &[String], wanted: &[String]) -> bool {
    let words = |list: &[String]| list.iter().map(|word| word.to_ascii_lowercase()).collect::<BTreeSet<_>>();
    words(known) == words(wanted)
}

/// Returns `true` if the number of addresses, the subnet, the fixed addresses and the primary address match the request.
fn has_addresses(properties: &PrivateLinkServiceProperties, link: &PrivateLinkSpec, subnet: &ResourceId) -> bool {
    let known: Vec<_> = parts(properties).collect();
    let is_there =
        |part: &PrivateLinkIpConfigurationProperties| part.subnet.as_ref().is_some_and(|own| own.refers_to(subnet));
    let fixed: BTreeSet<IpAddr> = known.iter().filter_map(|part| fixed_address(part)).collect();
    let wanted: BTreeSet<IpAddr> = link.addresses.iter().copied().map(IpAddr::V4).collect();
    let primary = known.iter().find(|part| part.primary == Some(true));
    let first = link.addresses.first().copied().map(IpAddr::V4);
    known.len() == link.address_count
        && known.iter().all(|part| is_there(part))
        && fixed == wanted
        && primary.is_some_and(|part| fixed_address(part) == first)
}

pub(super) fn parts(
    properties: &PrivateLinkServiceProperties,
) -> impl Iterator<Item = &PrivateLinkIpConfigurationProperties> {
    properties.ip_configurations.iter().flatten().filter_map(|configuration| configuration.properties.as_ref())
}

pub(super) fn fixed_address(part: &PrivateLinkIpConfigurationProperties) -> Option<IpAddr> {
    let is_fixed = spelling::is_word(part.private_ip_allocation_method.as_deref(), STATIC);
    part.private_ip_address.as_deref().filter(|_| is_fixed)?.parse().ok()
}

const STATIC: &str = "Static";
const DYNAMIC: &str = "Dynamic";

/// Returns entries for the fixed addresses, in the requested order, and then for the addresses that Azure chooses. The first entry is the
/// primary one.
fn ip_configurations(link: &PrivateLinkSpec, prefix: &str, subnet: &ResourceId) -> Vec<PrivateLinkIpConfiguration> {
    let chosen = link.address_count.saturating_sub(link.addresses.len());
    let fixed = link.addresses.iter().map(|address| (format!("-static-{address}"), Some(*address)));
    let all = fixed.chain((0..chosen).map(|place| (format!("-dynamic-{place}"), None)));
    all.enumerate()
        .map(|(place, (ending, address))| ip_configuration(place == 0, prefix, &ending, address, subnet))
        .collect()
}

fn ip_configuration(
    primary: bool,
    prefix: &str,
    ending: &str,
    address: Option<Ipv4Addr>,
    subnet: &ResourceId,
) -> PrivateLinkIpConfiguration {
    let start: String = prefix.chars().take(MAX_NAME - ending.len()).collect();
    let properties = PrivateLinkIpConfigurationProperties {
        primary: Some(primary),
        private_ip_address: address.map(|address| address.to_string()),
        private_ip_address_version: Some("IPv4".to_owned()),
        private_ip_allocation_method: Some(if address.is_some() { STATIC } else { DYNAMIC }.to_owned()),
        subnet: Some(SubResource::to(subnet)),
        ..PrivateLinkIpConfigurationProperties::default()
    };
    PrivateLinkIpConfiguration {
        name: Some(start + ending),
        properties: Some(properties),
        ..PrivateLinkIpConfiguration::default()
    }
}
