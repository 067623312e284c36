//! Desired public IPs of a Service. Pure. Upstream: `pkg/provider/azure_utils.go`, `azure_loadbalancer.go`.

use super::{
    IpFamily, PerFamily, PublicIpSpec,
    reader::{SpecReader, refusal},
};
use crate::providers::azure::{
    model::ResourceId,
    planner::load_balancer::{
        annotations::{
            AnnotationFormat, DNS_LABEL, IpTagListFormat, PIP_IP_TAGS, PIP_NAME, PIP_NAME_IPV6, PIP_PREFIX_ID,
            PIP_PREFIX_ID_IPV6, PIP_TAGS, PrefixIdFormat, RESOURCE_GROUP, TagListFormat, excerpt, excerpts, is_reserved,
        },
        settings::LoadBalancerSettings,
    },
};

/// Returns the desired public IPs. `families`: those of the Service.
pub(super) fn public_ip(
    reading: &mut SpecReader<'_>,
    settings: &LoadBalancerSettings,
    families: &[IpFamily],
    internal: bool,
) -> PublicIpSpec {
    skipped_pairs(reading, PIP_TAGS.key, TagListFormat::LONGEST);
    skipped_pairs(reading, PIP_IP_TAGS.key, IpTagListFormat::LONGEST);
    let names = (reading.get_if(!internal, &PIP_NAME), reading.get_if(!internal, &PIP_NAME_IPV6));
    let prefixes = (reading.get_if(!internal, &PIP_PREFIX_ID), reading.get_if(!internal, &PIP_PREFIX_ID_IPV6));
    if !internal {
        let uses_plain = families.contains(&IpFamily::V4) || prefixes.1.is_none();
        check_prefix(reading, settings, PIP_PREFIX_ID.key, prefixes.0.filter(|_| uses_plain));
        check_prefix(reading, settings, PIP_PREFIX_ID_IPV6.key, prefixes.1.filter(|_| families.contains(&IpFamily::V6)));
    }
    PublicIpSpec {
        group: group(reading, settings),
        name: of_families(families, names),
        prefix: of_families(families, prefixes),
        tags: reading.get_if(!internal, &PIP_TAGS).unwrap_or_default(),
        ip_tags: reading.get_if(!internal, &PIP_IP_TAGS),
        // An invalid label is ignored: the load balancer works without a label, as it does if another Service has the label.
        dns_label: reading.get_if(false, &DNS_LABEL).map(str::to_owned),
    }
}

/// Returns the resource group of the public IPs.
///
/// A group that the configuration does not allow is refused and still returned, because resources of the Service may be in it.
fn group(reading: &mut SpecReader<'_>, settings: &LoadBalancerSettings) -> ResourceId {
    let Some(name) = reading.get(&RESOURCE_GROUP) else { return settings.group.clone() };
    if !settings.allows_group(name) {
        let allowed = excerpts(settings.allowed_groups.iter().map(String::as_str));
        let message = format!(
            "expected the cluster's resource group or one that allowedPublicIPResourceGroups names ({allowed}), found `{}`",
            excerpt(name)
        );
        reading.refuse(refusal(RESOURCE_GROUP.key, message));
    }
    ResourceId::group_of(settings.group.subscription(), name)
}

/// Returns the values of annotations for IPv4 and IPv6. A single-stack IPv6 Service may use the annotation for IPv4.
fn of_families(families: &[IpFamily], (v4, v6): (Option<&str>, Option<&str>)) -> PerFamily<Option<String>> {
    let (has_v4, has_v6) = (families.contains(&IpFamily::V4), families.contains(&IpFamily::V6));
    let v6 = if has_v4 { v6 } else { v6.or(v4) };
    PerFamily { v4: v4.filter(|_| has_v4).map(str::to_owned), v6: v6.filter(|_| has_v6).map(str::to_owned) }
}

fn check_prefix(reading: &mut SpecReader<'_>, settings: &LoadBalancerSettings, key: &str, text: Option<&str>) {
    const TYPE: &str = "Microsoft.Network/publicIPPrefixes";
    let Some(text) = text else { return };
    let expected = match ResourceId::parse(text).ok().filter(|id| id.is_type(TYPE)) {
        None => PrefixIdFormat::accepts(),
        Some(id) if !settings.allows_prefix(&id) => {
            "a prefix in the cluster's resource group or in one that allowedPublicIPResourceGroups names, in the cluster's subscription"
                .to_owned()
        }
        Some(_) => return,
    };
    reading.refuse(refusal(key, format!("expected {expected}, found `{}`", excerpt(text))));
}

/// Warns about pairs without effect, and about reserved keys. A text that is longer than `longest` is refused as a whole and not read here.
fn skipped_pairs(reading: &mut SpecReader<'_>, key: &str, longest: usize) {
    let Some(text) = reading.annotations.get(key).filter(|text| text.len() <= longest) else { return };
    let pairs = || text.split(',').filter(|pair| !pair.trim().is_empty());
    let skipped = excerpts(pairs().filter(|pair| pair.matches('=').count() != 1));
    if !skipped.is_empty() {
        reading.without_effect(key, &format!("not exactly one `=` in {skipped}"));
    }
    let reserved = excerpts(pairs().filter(|pair| key == PIP_TAGS.key && is_reserved(key_of(pair))));
    if !reserved.is_empty() {
        reading.without_effect(key, &format!("only this program and operators set {reserved}"));
    }
}

fn key_of(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(key, _)| key).trim()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::providers::azure::planner::load_balancer::spec::{
        reason,
        tests::{accepted, refused, service, settings},
        warnings,
    };

    #[test]
    fn invalid_dns_label_is_ignored_with_an_event() {
        const KEY: &str = "azure-dns-label-name";
        let long = "a".repeat(64);
        for text in ["My-Label", "ab", "1ab", "ab-", "a.b", "Not_A_Label!", &long, &"x".repeat(240_000)] {
            let annotations = [(KEY, text)];
            assert_eq!(refused(&annotations, json!({})), [""; 0], "{text:.70}");
            assert_eq!(accepted(&annotations, json!({})).public_ip.dns_label, None, "{text:.70}");
            let warned = warnings(&service(&annotations, json!({})), &settings());
            let [warning] = warned.as_slice() else { panic!("{text:.70}: {warned:?}") };
            assert!(warning.reason == reason::IGNORED_CONFIGURATION && warning.field.ends_with(KEY), "{warning:?}");
            let message = &warning.message;
            let shown: String = text.chars().take(64).collect();
            assert!(message.contains("3 to 63 lower-case letters") && message.contains(&shown), "{message}");
            assert!(!message.contains(&"x".repeat(65)), "more than 64 characters are shown");
        }
        assert_eq!(accepted(&[(KEY, "my-label")], json!({})).public_ip.dns_label.as_deref(), Some("my-label"));
    }
}
