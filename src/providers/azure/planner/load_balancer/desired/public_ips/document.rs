//! Document of one public IP: a new one, or an existing one with the edits for its Services. Pure.
//!
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `ensurePublicIPExists`, `reconcileDNSSettings`, `ensurePIPTagged`. Differences: the
//! family and the allocation of an existing public IP are never changed, and its SKU only from basic to standard. ARM rejects other
//! changes, or the address would be lost.

use std::collections::BTreeMap;

use super::{
    super::public_ip_ownership::{self as ownership, CLUSTER_TAG_KEYS, DNS_TAG_KEYS, PublicIpOwner, SERVICES_TAG_KEYS},
    dns_label::{self, DnsLabelChange},
    target::{PublicIpIndex, PublicIpTarget},
    upgrade,
};
use crate::providers::azure::{
    config::LoadBalancerSku,
    model::{
        document::{ArmSku, Extra, SubResource},
        names::MAX_TAGS,
        network::{DnsSettings, IpTag, PublicIpAddress, PublicIpAddressProperties},
        spelling,
    },
    planner::{
        load_balancer::{
            annotations::excerpts,
            settings::LoadBalancerSettings,
            spec::{IpFamily, ServiceSpec},
        },
        tags,
    },
};

/// Returns the document of a new public IP for the Service.
pub(super) fn new(
    spec: &ServiceSpec,
    family: IpFamily,
    target: &PublicIpTarget<'_>,
    index: &PublicIpIndex<'_>,
) -> PublicIpAddress {
    let settings = index.settings;
    let is_standard = settings.sku != LoadBalancerSku::Basic;
    let zones = Some(&index.observed.zones).filter(|zones| is_standard && !zones.is_empty());
    let mut document = PublicIpAddress {
        name: Some(target.id.name().to_owned()),
        location: Some(settings.location.clone()),
        extended_location: settings.edge_zone(),
        zones: zones.filter(|_| settings.extended_location.is_none()).cloned(),
        sku: is_standard.then(|| ArmSku { name: Some("Standard".to_owned()), ..ArmSku::default() }),
        tags: Some(BTreeMap::from([
            (SERVICES_TAG_KEYS[0].to_owned(), Some(spec.identity.key.clone())),
            (CLUSTER_TAG_KEYS[0].to_owned(), Some(settings.cluster.clone())),
        ])),
        properties: Some(properties(spec, family, is_standard)),
        ..PublicIpAddress::default()
    };
    if spec.public_ip.dns_label.as_deref().is_some_and(|label| !label.is_empty()) {
        tags::set(document.tags.get_or_insert_default(), DNS_TAG_KEYS[0], &spec.identity.key);
    }
    let wanted = wanted_tags(&document, &[spec], settings);
    tags::merge(&mut document.tags, &wanted, &settings.system_tags);
    document
}

fn properties(spec: &ServiceSpec, family: IpFamily, is_standard: bool) -> PublicIpAddressProperties {
    let is_dynamic = !is_standard && family == IpFamily::V6;
    let prefix = spec.public_ip.prefix.get(family).as_ref().filter(|_| is_standard);
    let label = spec.public_ip.dns_label.as_ref().filter(|label| !label.is_empty());
    PublicIpAddressProperties {
        public_ip_address_version: Some(family.to_string()),
        public_ip_allocation_method: Some(if is_dynamic { "Dynamic" } else { "Static" }.to_owned()),
        public_ip_prefix: prefix.map(|id| SubResource { id: Some(id.clone()), extra: Extra::new() }),
        dns_settings: label.map(|label| DnsSettings { domain_name_label: Some(label.clone()), ..DnsSettings::default() }),
        ip_tags: spec.public_ip.ip_tags.as_ref().filter(|tags| !tags.is_empty()).map(|tags| ip_tags(tags)),
        ..PublicIpAddressProperties::default()
    }
}

fn ip_tags(tags: &[(String, String)]) -> Vec<IpTag> {
    let tag = |(kind, tag): &(String, String)| IpTag {
        ip_tag_type: Some(kind.clone()),
        tag: Some(tag.clone()),
        extra: Extra::new(),
    };
    tags.iter().map(tag).collect()
}

/// Returns `true` if an existing public IP has other IP tags than the Service requests. The order of IP tags has no meaning.
pub(super) fn ip_tags_differ(pip: &PublicIpAddress, spec: &ServiceSpec) -> bool {
    let Some(wanted) = &spec.public_ip.ip_tags else { return false };
    let existing = pip.properties.as_ref().and_then(|properties| properties.ip_tags.as_ref());
    let pair = |tag: &IpTag| (tag.ip_tag_type.clone().unwrap_or_default(), tag.tag.clone().unwrap_or_default());
    let mut existing: Vec<_> = existing.into_iter().flatten().map(pair).collect();
    let mut wanted = wanted.clone();
    existing.sort();
    wanted.sort();
    existing != wanted
}

/// Edit of an existing public IP.
pub(super) struct PublicIpEdit<'a> {
    pub owner: PublicIpOwner,
    /// Services that the public IP must list, in order.
    pub services: Vec<String>,
    /// Whether the Service that has set the DNS label leaves the public IP.
    pub dns_owner_leaves: bool,
    /// Services that use the public IP, in the order of its list.
    pub users: Vec<&'a ServiceSpec>,
    /// Whether one of the users is requested.
    pub is_requested: bool,
    /// Change of the DNS label; `None` keeps it.
    pub label: Option<DnsLabelChange<'a>>,
    /// Whether the SKU changes from basic to standard.
    pub upgrades_sku: bool,
}

impl PublicIpEdit<'_> {
    /// Returns `true` if the public IP gets the tags of the configuration and of its Services.
    pub(super) fn is_tagged(&self) -> bool {
        self.owner == PublicIpOwner::Cluster && self.is_requested
    }
}

/// Returns the document after the edit, with the reasons; `None` if the edit changes nothing.
pub(super) fn edited(
    pip: &PublicIpAddress,
    edit: &PublicIpEdit<'_>,
    settings: &LoadBalancerSettings,
) -> Option<(PublicIpAddress, Vec<String>)> {
    let (mut document, mut reasons) = (pip.clone(), Vec::new());
    if edit.upgrades_sku {
        upgrade::apply(&mut document);
        reasons.push("standard load balancers need a public IP of the standard SKU".to_owned());
    }
    if edit.owner != PublicIpOwner::User && ownership::services(pip) != edit.services {
        tags::set(document.tags.get_or_insert_default(), SERVICES_TAG_KEYS[0], &edit.services.join(","));
        reasons.push(format!("it is used by {}", edit.services.join(", ")));
    }
    if edit.dns_owner_leaves
        && let Some(tags) = &mut document.tags
    {
        tags.retain(|key, _| !DNS_TAG_KEYS.iter().any(|dns| spelling::same_name(dns, key)));
        reasons.push("the Service that has set its DNS label uses it no more".to_owned());
    }
    reasons.extend(edit.label.map(|change| change_label(&mut document, change, edit.owner)));
    let is_ours = edit.is_tagged();
    let first = edit.users.iter().find(|spec| spec.public_ip.ip_tags.is_some());
    if let Some(spec) = first.filter(|spec| settings.mutate_ip_tags && ip_tags_differ(pip, spec) && is_ours) {
        let tags = spec.public_ip.ip_tags.as_deref().map(ip_tags);
        document.properties.get_or_insert_default().ip_tags = tags;
        reasons.push("other IP tags are asked for".to_owned());
    }
    if is_ours {
        let wanted = wanted_tags(&document, &edit.users, settings);
        if tags::merge(&mut document.tags, &wanted, &settings.system_tags) {
            reasons.push("its tags differ".to_owned());
        }
    }
    (!reasons.is_empty() && document != *pip).then_some((document, reasons))
}

/// Returns the notice about requested tags that the document lacks because it has as many tags as ARM accepts.
pub(super) fn omitted_tags(
    document: &PublicIpAddress,
    edit: &PublicIpEdit<'_>,
    settings: &LoadBalancerSettings,
) -> Option<String> {
    let wanted = wanted_tags(document, &edit.users, settings);
    let keys = tags::without_room(document.tags.as_ref(), &wanted);
    let notice = || {
        format!(
            "it lacks the requested tags {}, since Azure accepts {MAX_TAGS} tags on a resource; remove others",
            excerpts(keys.iter().copied())
        )
    };
    (edit.is_tagged() && !keys.is_empty()).then(notice)
}

/// Writes the DNS label and returns the reason.
///
/// A tag names the Service that sets the label. A public IP that a user created gets no such tag: its tags belong to the user.
fn change_label(document: &mut PublicIpAddress, change: DnsLabelChange<'_>, owner: PublicIpOwner) -> String {
    let present = dns_label::label_of(document).to_owned();
    let properties = document.properties.get_or_insert_default();
    match change {
        DnsLabelChange::Remove => {
            properties.dns_settings = None;
            format!("its DNS label `{present}` is removed")
        }
        DnsLabelChange::Set(spec) => {
            let label = spec.public_ip.dns_label.clone().unwrap_or_default();
            if !spelling::same_name(&label, &present) {
                properties.dns_settings.get_or_insert_default().domain_name_label = Some(label.clone());
            }
            if owner != PublicIpOwner::User {
                tags::set(document.tags.get_or_insert_default(), DNS_TAG_KEYS[0], &spec.identity.key);
            }
            format!("{} sets its DNS label `{label}`", spec.identity.key)
        }
    }
}

/// Returns the tags that the public IP must have.
///
/// Tags of the Services replace configured tags; the first Service in the list has precedence. The tags of this program replace both, under
/// their current keys.
fn wanted_tags(
    document: &PublicIpAddress,
    users: &[&ServiceSpec],
    settings: &LoadBalancerSettings,
) -> BTreeMap<String, String> {
    let mut wanted = settings.tags.clone();
    for spec in users.iter().rev() {
        for (key, value) in &spec.public_ip.tags {
            overlay(&mut wanted, key, value);
        }
    }
    for keys in [SERVICES_TAG_KEYS, CLUSTER_TAG_KEYS, DNS_TAG_KEYS] {
        if let Some(value) = ownership::tag(document.tags.as_ref(), keys).filter(|value| !value.is_empty()) {
            overlay(&mut wanted, keys[0], value);
        }
    }
    wanted
}

fn overlay(tags: &mut BTreeMap<String, String>, key: &str, value: &str) {
    tags.retain(|known, _| !spelling::same_name(known, key));
    tags.insert(key.to_owned(), value.to_owned());
}
