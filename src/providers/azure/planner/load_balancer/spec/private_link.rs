//! Desired private link service in front of a frontend. Pure. Upstream: `pkg/provider/azure_privatelinkservice.go`.
//!
//! In: the annotations `azure-pls-*`. Out: a [`PrivateLinkSpec`] if one is requested, and all refusals that need no request to Azure.
//! Upstream finds most of these problems only when it has written load balancer and security rules.

use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::api::core::v1::ServiceSpec as Fields;

use super::{
    IpFamily,
    probes::{self, ProbePolicy},
    reader::{SpecReader, refusal},
    types::{PrivateLinkSpec, reason},
};
use crate::providers::azure::{
    config::LoadBalancerSku,
    planner::load_balancer::{
        annotations::{
            AnnotationFormat, DISABLE_FLOATING_IP, PLS_ADDRESS_COUNT, PLS_ADDRESSES, PLS_AUTO_APPROVAL, PLS_CREATE,
            PLS_FQDNS, PLS_NAME, PLS_PROXY_PROTOCOL, PLS_RESOURCE_GROUP, PLS_SUBNET, PLS_VISIBILITY, ResourceNameFormat,
            excerpt,
        },
        settings::LoadBalancerSettings,
    },
};

/// Visibility for every subscription.
const EVERYBODY: &str = "*";
/// Port on which kube-proxy answers probes; kube-proxy does not understand the proxy header.
const KUBE_PROXY_PORT: i32 = 10_256;

/// Properties of the Service that its private link service depends on.
pub(super) struct PrivateLinkContext<'a> {
    pub(super) internal: bool,
    pub(super) floating_ip: bool,
    pub(super) families: &'a [IpFamily],
    /// Annotation that names the subnet of the internal frontend, and the subnet.
    pub(super) subnet: Option<(&'static str, &'a str)>,
}

pub(super) fn private_link(
    reading: &mut SpecReader<'_>,
    fields: &Fields,
    settings: &LoadBalancerSettings,
    context: &PrivateLinkContext<'_>,
) -> Option<PrivateLinkSpec> {
    let owners_only = owners_only(reading);
    if !reading.is(&PLS_CREATE) {
        if let Some(key) = owners_only.first() {
            reading.without_effect(key, &format!("`{}` is not `true`", PLS_CREATE.key));
        }
        return None;
    }
    check_service(reading, settings, context);
    let proxy_protocol = reading.is(&PLS_PROXY_PROTOCOL);
    let is_shared = probes::policy(reading, fields, settings) == ProbePolicy::Shared;
    if proxy_protocol && is_shared && settings.shared_probe.0 == KUBE_PROXY_PORT {
        let message = "kube-proxy does not understand the proxy header, which the shared health probe begins with: no node is found \
                       healthy; run health-probe-proxy and set clusterServiceSharedLoadBalancerHealthProbePort to its port";
        reading.warn(reason::UNANSWERED_PROBE, PLS_PROXY_PROTOCOL.key, message);
    }
    let group = reading.get(&PLS_RESOURCE_GROUP).map(|name| settings.private_link_group_called(name));
    let own = reading.get(&PLS_SUBNET).map(|name| (PLS_SUBNET.key, name));
    let address_count = reading.get(&PLS_ADDRESS_COUNT).and_then(|count| usize::try_from(count).ok()).unwrap_or(1);
    Some(PrivateLinkSpec {
        names_group: group.is_some(),
        group: group.unwrap_or_else(|| settings.private_link_group.clone()),
        name: name(reading),
        subnet: own.or(context.subnet).map(|(key, name)| (key, name.to_owned())),
        addresses: addresses(reading, address_count),
        address_count,
        fqdns: words(reading.get(&PLS_FQDNS)),
        proxy_protocol,
        visibility: visibility(words(reading.get(&PLS_VISIBILITY))),
        auto_approval: words(reading.get(&PLS_AUTO_APPROVAL)),
        owners_only,
    })
}

/// Refuses Services for which Azure cannot have a private link service.
fn check_service(reading: &mut SpecReader<'_>, settings: &LoadBalancerSettings, context: &PrivateLinkContext<'_>) {
    let key = PLS_CREATE.key;
    if !context.internal && context.floating_ip {
        let switch = DISABLE_FLOATING_IP.key;
        let message = format!("a private link service needs an internal load balancer, or `{switch}: \"true\"`");
        reading.refuse(refusal(key, message));
    }
    if !context.families.contains(&IpFamily::V4) {
        reading.refuse(refusal(key, "a private link service needs an IPv4 front end; the Service has IPv6 alone"));
    }
    if settings.sku == LoadBalancerSku::Basic {
        reading.refuse(refusal(key, "a private link service needs a standard load balancer; loadBalancerSku is `basic`"));
    }
}

/// Returns the given annotations, valid or not, that only the owner may have.
fn owners_only(reading: &SpecReader<'_>) -> Vec<&'static str> {
    let all = [
        PLS_NAME.key,
        PLS_SUBNET.key,
        PLS_ADDRESS_COUNT.key,
        PLS_ADDRESSES.key,
        PLS_FQDNS.key,
        PLS_PROXY_PROTOCOL.key,
        PLS_VISIBILITY.key,
        PLS_AUTO_APPROVAL.key,
    ];
    all.into_iter().filter(|key| reading.annotations.contains_key(*key)).collect()
}

/// Returns the name of the private link service. A blank name is refused: upstream sends it, and Azure rejects it after all other writes.
fn name(reading: &mut SpecReader<'_>) -> Option<String> {
    if PLS_NAME.is_given(reading.annotations) && PLS_NAME.read(reading.annotations) == Ok(None) {
        reading.refuse(refusal(PLS_NAME.key, format!("expected {}, found a blank one", ResourceNameFormat::accepts())));
    }
    reading.get(&PLS_NAME).map(str::to_owned)
}

/// Returns the fixed addresses in the order of the annotation, each once.
fn addresses(reading: &mut SpecReader<'_>, most: usize) -> Vec<Ipv4Addr> {
    let mut addresses = Vec::new();
    for text in reading.get(&PLS_ADDRESSES).unwrap_or_default() {
        match text.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(IpAddr::V4(address)) if addresses.contains(&address) => {}
            Ok(IpAddr::V4(address)) => addresses.push(address),
            Ok(IpAddr::V6(_)) | Err(_) => {
                let message = format!("expected IPv4 addresses between spaces, found `{}`", excerpt(text));
                reading.refuse(refusal(PLS_ADDRESSES.key, message));
            }
        }
    }
    if addresses.len() > most {
        let (count, key) = (addresses.len(), PLS_ADDRESS_COUNT.key);
        let message = format!("expected at most {most} addresses, as `{key}` says, found {count}");
        reading.refuse(refusal(PLS_ADDRESSES.key, message));
    }
    addresses
}

fn words(words: Option<Vec<&str>>) -> Vec<String> {
    words.unwrap_or_default().into_iter().map(str::to_owned).collect()
}

/// Returns `*` alone if the list contains it, because it includes every other subscription.
fn visibility(subscriptions: Vec<String>) -> Vec<String> {
    if subscriptions.iter().any(|one| one == EVERYBODY) { vec![EVERYBODY.to_owned()] } else { subscriptions }
}

#[cfg(test)]
mod tests;
