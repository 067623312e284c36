//! Names of everything that load balancing creates in Azure. Pure.
//!
//! In: Services' identities and the settings. Out: names, byte for byte those of cloud-provider-azure, so that its resources are
//! recognized, except where Azure rejects the names. Upstream: `pkg/provider/azure_standard.go`, `azure_utils.go` and
//! `pkg/provider/securitygroup`.

use std::collections::BTreeSet;

use super::spec::{IpFamily, Protocol, ServiceIdentity};
use crate::providers::azure::model::spelling;

/// Name of the probe that Services with policy `Cluster` may share.
pub const SHARED_PROBE: &str = "cluster-service-shared-health-probe";
/// Ending of the names of internal load balancers; the ending alone makes a load balancer internal.
pub const INTERNAL: &str = "-internal";
/// Beginning of the names of managed security rules.
pub const SECURITY_RULE_PREFIX: &str = "k8s-azure-lb";

const IPV6: &str = "-IPv6";
/// Ending of the names of IPv6 pools that belong to one Service.
const OWN_IPV6: &str = "-ipv6";
/// Length of [`ServiceIdentity::name_prefix`] in characters.
pub const NAME_PREFIX_LENGTH: usize = 32;
/// Longest name before the ending of the family.
const MAX_LENGTH: usize = 75;
/// Longest name that ARM accepts.
const MAX_NAME: usize = 80;

/// Returns the identity of a Service; its prefix is `a` and the UID without dashes, cut to 32 characters.
pub fn identity(namespace: &str, name: &str, uid: &str) -> ServiceIdentity {
    let base = std::iter::once('a').chain(uid.chars().filter(|c| *c != '-')).take(NAME_PREFIX_LENGTH).collect();
    ServiceIdentity { key: format!("{namespace}/{name}"), name_prefix: base }
}

/// Returns `name`, with an ending for the IPv6 half of a dual-stack Service.
fn of_family(name: String, family: IpFamily, dual: bool) -> String {
    if dual && family == IpFamily::V6 { name + IPV6 } else { name }
}

fn truncated(text: &str, length: usize) -> String {
    text.chars().take(length).collect()
}

/// Returns the name of a load balancer. `external`: name of the external load balancer.
pub fn load_balancer(external: &str, internal: bool) -> String {
    if internal { format!("{external}{INTERNAL}") } else { external.to_owned() }
}

/// Returns the external name of the load balancer called `name`, and whether the load balancer is internal.
pub fn split_load_balancer(name: &str) -> (&str, bool) {
    let at = name.len().saturating_sub(INTERNAL.len());
    match (name.get(..at), name.get(at..)) {
        (Some(external), Some(end)) if spelling::same_name(end, INTERNAL) => (external, true),
        _ => (name, false),
    }
}

/// Returns the name of a frontend. `subnet`: the annotation of an internal Service.
pub fn frontend(identity: &ServiceIdentity, subnet: Option<&str>, family: IpFamily, dual: bool) -> String {
    let Some(subnet) = subnet else { return of_family(identity.name_prefix.clone(), family, dual) };
    let whole = format!("{}-{subnet}", identity.name_prefix);
    let mut name = truncated(&whole, MAX_LENGTH);
    if name.len() < whole.len() && !name.ends_with(|c: char| c == '_' || c.is_ascii_alphabetic()) {
        name.pop();
        name.push('_');
    }
    of_family(name, family, dual)
}

/// Returns the name of a frontend that belongs to no Service. `member`: name of its public IP, or its private address.
pub fn unowned_frontend(member: &str) -> String {
    let mut name = truncated(&format!("k8s-azure-kept-{}", member.replace(':', "-")), MAX_LENGTH);
    if !name.ends_with(|c: char| c == '_' || c.is_ascii_alphanumeric()) {
        name.push('_');
    }
    name
}

/// Returns the name of a rule, or of its probe. The local-traffic probe has the name for TCP and the health-check node port.
pub fn rule(
    identity: &ServiceIdentity,
    subnet: Option<&str>,
    protocol: Protocol,
    port: i32,
    family: IpFamily,
    dual: bool,
) -> String {
    let end = format!("-{}-{port}", kubernetes_protocol(protocol));
    let mut name = identity.name_prefix.clone();
    if let Some(subnet) = subnet {
        name.push('-');
        name += &truncated(subnet, MAX_LENGTH.saturating_sub(name.len() + end.len()));
    }
    of_family(name + &end, family, dual)
}

fn kubernetes_protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    }
}

/// Returns `true` if the rule or probe called `name` belongs to the Service.
pub fn owns_rule(identity: &ServiceIdentity, name: &str) -> bool {
    spelling::starts_with(name, &identity.name_prefix)
}

/// Returns `true` if the frontend called `name` is the Service's own.
pub fn owns_frontend(identity: &ServiceIdentity, name: &str) -> bool {
    name.starts_with(&identity.name_prefix)
}

/// Returns the name of the backend pool that all Services of the cluster share.
pub fn pool(cluster: &str, family: IpFamily) -> String {
    of_family(cluster.to_owned(), family, true)
}

/// Returns the name of the backend pool that belongs to one Service with policy `Local` among several load balancers.
///
/// Upstream sends names that are too long, which ARM rejects, so no pool of upstream has such a name.
pub fn own_pool(identity: &ServiceIdentity, family: IpFamily) -> String {
    let ending = if family == IpFamily::V6 { OWN_IPV6 } else { "" };
    shortened(&identity.key.to_lowercase().replace('/', "-"), MAX_NAME - ending.len()) + ending
}

/// Returns the name of a Node's entry in a backend pool: the name of the Node, shortened, because it may have 253 characters.
pub fn pool_member(node: &str) -> String {
    shortened(node, MAX_NAME)
}

/// Returns a name of at most `longest` characters. The hash of a longer name distinguishes it from others with the same beginning.
fn shortened(name: &str, longest: usize) -> String {
    if name.len() <= longest {
        return name.to_owned();
    }
    let hash = hash(name);
    truncated(name, longest - hash.len() - 1) + "-" + &hash
}

/// Returns the family of the members of the pool called `name`, if all Services share the pool.
pub fn pool_family(name: &str) -> IpFamily {
    let ending = name.len().checked_sub(IPV6.len()).and_then(|at| name.get(at..));
    if spelling::is_word(ending, IPV6) { IpFamily::V6 } else { IpFamily::V4 }
}

/// Returns the name of a public IP that the Service owns. `prefix`: name of the prefix it is taken from.
///
/// Azure rejects names that end with `-` or `.`, so a name that is cut there ends with `_`. Before the ending of a family, both characters
/// are valid, and remain as in upstream.
pub fn public_ip(cluster: &str, identity: &ServiceIdentity, prefix: Option<&str>, family: IpFamily, dual: bool) -> String {
    if dual && family == IpFamily::V6 {
        return public_ip_of_family(cluster, identity, prefix, family);
    }
    let mut name = cut_public_ip(cluster, identity, prefix);
    if name.ends_with(['-', '.']) {
        name.pop();
        name.push('_');
    }
    name
}

/// Returns the name of a public IP with the ending of its family, whatever families the Service has.
pub fn public_ip_of_family(cluster: &str, identity: &ServiceIdentity, prefix: Option<&str>, family: IpFamily) -> String {
    format!("{}-{family}", cut_public_ip(cluster, identity, prefix))
}

fn cut_public_ip(cluster: &str, identity: &ServiceIdentity, prefix: Option<&str>) -> String {
    let prefix = prefix.map(|prefix| format!("-{prefix}")).unwrap_or_default();
    truncated(&format!("{cluster}-{}{prefix}", identity.name_prefix), MAX_LENGTH)
}

/// Returns ARM's word for the protocol of a security rule.
pub fn security_protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "Tcp",
        Protocol::Udp => "Udp",
        Protocol::Sctp => "*",
    }
}

/// Returns ports as texts, in lexical order.
pub fn sorted_texts(ports: &BTreeSet<i32>) -> Vec<String> {
    let mut texts: Vec<_> = ports.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}

/// Returns the name of the rule that lets `sources`, which are sorted, reach `ports`: a hash of both with the protocol.
pub fn allow_rule(family: IpFamily, protocol: Protocol, sources: &[String], ports: &BTreeSet<i32>) -> String {
    let text = format!("{}_{}_{}", security_protocol(protocol), sources.join(","), sorted_texts(ports).join(","));
    format!("{SECURITY_RULE_PREFIX}_allow_{family}_{}", hash(&text))
}

/// Returns the name of the rule that denies the rest.
pub fn deny_rule(family: IpFamily) -> String {
    format!("{SECURITY_RULE_PREFIX}_deny-all_{family}")
}

/// Returns the name of the rule that denies the rest of a protocol at some ports of instances.
///
/// Only this program creates such a rule; upstream treats it as its own.
pub fn deny_rule_at(family: IpFamily, protocol: Protocol, ports: &BTreeSet<i32>) -> String {
    let text = format!("{}_{}", security_protocol(protocol), sorted_texts(ports).join(","));
    format!("{SECURITY_RULE_PREFIX}_deny_{family}_{}", hash(&text))
}

/// Returns the MD5 hash as hexadecimal text, which shortens a name and protects nothing.
fn hash(text: &str) -> String {
    use md5::{Digest, Md5};
    Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> ServiceIdentity {
        identity("default", "web", "6f3c1a52-8d7e-4b90-9a41-2c5d7e8f9a01")
    }

    #[test]
    fn front_ends_have_at_most_75_characters() {
        let base = web().name_prefix;
        let cut = format!("{base}-{}_", "s".repeat(41));
        for (subnet, dual, v4, v6) in [
            (None, false, base.clone(), base.clone()),
            (None, true, base.clone(), format!("{base}-IPv6")),
            (Some("apps".to_owned()), true, format!("{base}-apps"), format!("{base}-apps-IPv6")),
            (Some("s".repeat(41) + "-subnet"), false, cut.clone(), cut),
        ] {
            assert_eq!(frontend(&web(), subnet.as_deref(), IpFamily::V4, dual), v4);
            assert_eq!(frontend(&web(), subnet.as_deref(), IpFamily::V6, dual), v6);
        }
    }

    #[test]
    fn rules_keep_protocol_and_port_however_long_the_subnet_is() {
        let base = web().name_prefix;
        assert_eq!(rule(&web(), None, Protocol::Tcp, 80, IpFamily::V6, true), format!("{base}-TCP-80-IPv6"));
        let long = rule(&web(), Some(&"s".repeat(80)), Protocol::Tcp, 80, IpFamily::V4, false);
        assert!(long.len() == 75 && long.ends_with("-TCP-80"), "{long}");
        let upper = long.to_uppercase();
        assert!(owns_rule(&web(), &upper) && !owns_rule(&web(), "a6f3") && !owns_frontend(&web(), &upper));
    }

    #[test]
    fn public_ips_are_cut_before_the_ending() {
        let base = web().name_prefix;
        let prefixed = public_ip("kubernetes", &web(), Some("my-prefix"), IpFamily::V6, false);
        assert_eq!(prefixed, format!("kubernetes-{base}-my-prefix"));
        let long = public_ip(&"c".repeat(60), &web(), None, IpFamily::V6, true);
        assert_eq!(long, format!("{}-a6f3c1a528d7e4-IPv6", "c".repeat(60)));
    }

    /// Upstream only cuts the name, and Azure rejects it (cloud-provider-azure#5194).
    #[test]
    fn public_ips_that_are_cut_end_as_azure_wants() {
        let whole = format!("kubernetes-{}-{}", web().name_prefix, "p".repeat(30));
        for (last, end) in [("-", "_"), (".", "_"), ("_", "_"), ("x", "x"), ("7", "7")] {
            let prefix = format!("{}{last}rest", "p".repeat(30));
            let name = |family, dual| public_ip("kubernetes", &web(), Some(&prefix), family, dual);
            let single = format!("{whole}{end}");
            assert_eq!(single.len(), 75, "the cut is behind `{last}`");
            assert_eq!(name(IpFamily::V4, false), single);
            assert_eq!(name(IpFamily::V6, false), single);
            assert_eq!(name(IpFamily::V4, true), single);
            // Azure accepts these names, so they exist already.
            assert_eq!(name(IpFamily::V6, true), format!("{whole}{last}-IPv6"));
            let of_family = public_ip_of_family("kubernetes", &web(), Some(&prefix), IpFamily::V4);
            assert_eq!(of_family, format!("{whole}{last}-IPv4"));
        }
        let cluster = public_ip(&"c".repeat(74), &web(), None, IpFamily::V4, false);
        assert_eq!(cluster, "c".repeat(74) + "_");
    }

    #[test]
    fn kinds_and_families_are_read_from_endings() {
        assert_eq!(split_load_balancer("kubernetes-Internal"), ("kubernetes", true));
        assert_eq!(split_load_balancer("kubernetes"), ("kubernetes", false));
        assert_eq!(split_load_balancer("é"), ("é", false));
        assert_eq!(load_balancer("kubernetes", true), "kubernetes-internal");
        let families = ["Kubernetes-ipv6", "kubernetes", "v6"].map(pool_family);
        assert_eq!(families, [IpFamily::V6, IpFamily::V4, IpFamily::V4]);
        assert_eq!(pool("kubernetes", IpFamily::V6), "kubernetes-IPv6");
    }

    #[test]
    fn names_that_azure_refuses_are_shortened_and_stay_unique() {
        let pools = |namespace: &str| {
            let identity = identity(namespace, &"n".repeat(40), "");
            [IpFamily::V4, IpFamily::V6].map(|family| own_pool(&identity, family))
        };
        let [v4, v6] = pools(&"s".repeat(39));
        assert_eq!(v4, format!("{}-{}", "s".repeat(39), "n".repeat(40)), "it fits");
        assert!(v6.len() == 80 && v6.ends_with("-ipv6"), "{v6}");
        let longest = [pools(&"s".repeat(63)), pools(&format!("{}t", "s".repeat(62)))].concat();
        assert!(longest.iter().all(|name| name.len() == 80), "{longest:?}");
        assert_eq!(longest.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{longest:?}");

        assert_eq!(pool_member(&"n".repeat(80)), "n".repeat(80));
        let of = |last: &str| pool_member(&format!("{}.internal.cloudapp.{last}", "n".repeat(64)));
        assert!(of("net").len() == 80 && of("net") != of("com"), "{}", of("net"));
    }
}
