//! Parser of whole Services. Pure.
//!
//! In: the Service and the settings. Out: the desired state without the invalid parts, and all refusals and warnings.

use k8s_openapi::api::core::v1::{Service, ServiceSpec as Fields};

use super::{
    IpFamily, PerFamily, ServiceIdentity, ServiceRefusal, ServiceSpec, ServiceWarning, access, additional_ips, addresses,
    ports::{self, ParsedPorts, PortContext},
    private_link::{self, PrivateLinkContext},
    public_ip,
    reader::{SpecReader, refusal},
    reason,
};
use crate::providers::azure::{
    config::LoadBalancerSku,
    planner::load_balancer::{
        annotations::{
            ALLOWED_SERVICE_TAGS, AnnotatedPorts, AnnotationFormat, CONFIGURATIONS, DISABLE_FLOATING_IP, DISABLE_TCP_RESET,
            IDLE_TIMEOUT, INTERNAL, INTERNAL_SUBNET, MODE, NamespaceListFormat, SHARED_SECURITY_RULE, SHARING_NAMESPACES,
            ServiceAnnotations, excerpt, excerpts, unknown_annotations,
        },
        entries::label_keys,
        labels, naming,
        settings::LoadBalancerSettings,
    },
};

/// Idle timeout without the annotation, in minutes.
const DEFAULT_IDLE_TIMEOUT: i32 = 4;

/// Largest product of the numbers of service tags and ports.
const MOST_TAGGED_PORTS: usize = 15_000;

/// Result of parsing a Service.
struct ParsedSpec {
    /// Desired state without the refused parts.
    spec: ServiceSpec,
    refusals: Vec<ServiceRefusal>,
    warnings: Vec<ServiceWarning>,
}

/// Parses every part of a Service, whether or not other parts are valid.
fn parse(service: &Service, settings: &LoadBalancerSettings) -> ParsedSpec {
    let (no_annotations, no_fields) = (ServiceAnnotations::new(), Fields::default());
    let fields = service.spec.as_ref().unwrap_or(&no_fields);
    let mut reading = SpecReader::new(service.metadata.annotations.as_ref().unwrap_or(&no_annotations));
    if service.metadata.uid.as_deref().unwrap_or_default().is_empty() {
        reading.refuse(refusal("metadata.uid", "expected the UID that the API server gives"));
    }
    let spec = assemble(&mut reading, service, fields, settings);
    check_pinned_configurations(&mut reading, &spec);
    check_tagged_ports(&mut reading, &spec);
    // All Services share the rules of network interfaces, and the sources and rules of the security group.
    let above_limits = settings.service_limits.refusals(&spec, access::field_of_ranges(&reading));
    above_limits.into_iter().for_each(|refusal| reading.refuse(refusal));
    access::compare_families(&mut reading, &spec);
    if SHARED_SECURITY_RULE.is_given(reading.annotations) {
        reading.without_effect(SHARED_SECURITY_RULE.key, "security rules are always shared");
    }
    ParsedSpec { spec, refusals: reading.refusals, warnings: reading.warnings }
}

fn assemble(
    reading: &mut SpecReader<'_>,
    service: &Service,
    fields: &Fields,
    settings: &LoadBalancerSettings,
) -> ServiceSpec {
    let internal = reading.is(&INTERNAL);
    let families = families(reading, fields);
    let floating_ip = !reading.is(&DISABLE_FLOATING_IP);
    let to_node_ports = !floating_ip || (internal && families.contains(&IpFamily::V6));
    let ParsedPorts { ports, local_probe, ha_ports } =
        ports::ports(reading, fields, settings, &PortContext { internal, to_node_ports });
    let public_ip = public_ip::public_ip(reading, settings, &families, internal);
    let decides = |family| {
        let is_named = public_ip.name.get(family).is_some() || public_ip.prefix.get(family).is_some();
        families.contains(&family) && (internal || !is_named)
    };
    let wanted = addresses::PinRequirement {
        accepts_private: internal || settings.is_azure_stack,
        effective: PerFamily { v4: decides(IpFamily::V4), v6: decides(IpFamily::V6) },
    };
    let subnet = subnet(reading, internal);
    let context = PrivateLinkContext {
        internal,
        floating_ip,
        families: &families,
        subnet: subnet.as_deref().map(|subnet| (INTERNAL_SUBNET.key, subnet)),
    };
    let private_link = private_link::private_link(reading, fields, settings, &context);
    ServiceSpec {
        identity: identity_of(service),
        is_others: settings.classes.is_others(service),
        internal,
        ports,
        local_probe,
        own_pool: settings.has_entries() && fields.external_traffic_policy.as_deref() == Some("Local"),
        ha_ports,
        client_ip_affinity: fields.session_affinity.as_deref() == Some("ClientIP"),
        idle_timeout: reading.get(&IDLE_TIMEOUT).unwrap_or(DEFAULT_IDLE_TIMEOUT),
        tcp_reset: !reading.is(&DISABLE_TCP_RESET),
        floating_ip,
        subnet,
        pinned: addresses::pinned(reading, fields.load_balancer_ip.as_deref(), &wanted),
        families,
        sharing_namespaces: sharing_namespaces(reading, settings, internal),
        public_ip,
        additional_ips: additional_ips::additional(reading, &settings.additional_public_ips),
        access: access::access(reading, fields.load_balancer_source_ranges.as_deref().unwrap_or_default(), internal),
        mode: mode(reading, settings),
        configurations: configurations(reading, settings),
        labels: labels::with_keys(
            service.metadata.labels.as_ref(),
            &label_keys(&settings.entries, |entry| entry.service_selector.as_ref()),
        ),
        namespace_labels: None,
        private_link,
        status_addresses: status_addresses(service),
    }
}

/// Limits the product of service tags and ports, because each service tag has a rule with all ports.
fn check_tagged_ports(reading: &mut SpecReader<'_>, spec: &ServiceSpec) {
    let (tags, ports) = (spec.access.tags.len(), spec.ports.len());
    if tags * ports > MOST_TAGGED_PORTS {
        let message = format!(
            "expected at most {MOST_TAGGED_PORTS} ports in the rules of all service tags, found {tags} tags and {ports} ports"
        );
        reading.refuse(refusal(ALLOWED_SERVICE_TAGS.key, message));
    }
}

/// Returns the IP families, IPv4 first whatever the order of the Service. Frontends and the addresses in the status have this order, as
/// upstream.
fn families(reading: &mut SpecReader<'_>, fields: &Fields) -> Vec<IpFamily> {
    let mut families = Vec::new();
    for (at, text) in fields.ip_families.iter().flatten().enumerate() {
        match text.as_str() {
            "IPv4" => families.push(IpFamily::V4),
            "IPv6" => families.push(IpFamily::V6),
            other => {
                let message = format!("expected IPv4 or IPv6, found `{}`", excerpt(other));
                reading.refuse(refusal(format!("spec.ipFamilies[{at}]"), message));
            }
        }
    }
    families.sort();
    if families.is_empty() { vec![IpFamily::V4] } else { families }
}

/// Returns the namespaces that may pin the private address. Invalid names are ignored, because they only restrict other Services further.
fn sharing_namespaces(reading: &mut SpecReader<'_>, settings: &LoadBalancerSettings, internal: bool) -> Vec<String> {
    let Some(names) = reading.get_if(false, &SHARING_NAMESPACES) else { return Vec::new() };
    let invalid = excerpts(names.iter().filter_map(|name| name.err()));
    if !invalid.is_empty() {
        let message = format!("expected {}, found {invalid}", NamespaceListFormat::accepts());
        reading.without_effect(SHARING_NAMESPACES.key, &message);
    }
    if !settings.namespaces_are_enforced {
        let reason = "enforcePublicIPNamespaces of the provider's configuration is false, so Services of every namespace may pin the address";
        reading.without_effect(SHARING_NAMESPACES.key, reason);
    } else if !internal {
        let reason = format!("the Service is external; `{}: \"true\"` makes it internal", INTERNAL.key);
        reading.without_effect(SHARING_NAMESPACES.key, &reason);
    }
    names.into_iter().filter_map(Result::ok).map(str::to_owned).collect()
}

/// Returns the name of the subnet in the user's spelling, because the name is part of other names.
fn subnet(reading: &mut SpecReader<'_>, internal: bool) -> Option<String> {
    let subnet = reading.get_if(internal, &INTERNAL_SUBNET);
    if subnet.is_some() && !internal {
        let reason = format!("the Service is external; `{}: \"true\"` makes it internal", INTERNAL.key);
        reading.without_effect(INTERNAL_SUBNET.key, &reason);
    }
    subnet.filter(|_| internal).map(str::to_owned)
}

fn mode(reading: &mut SpecReader<'_>, settings: &LoadBalancerSettings) -> Option<String> {
    let is_basic = settings.sku == LoadBalancerSku::Basic;
    let mode = reading.get_if(is_basic, &MODE);
    if mode.is_some() && !is_basic {
        reading.without_effect(
            MODE.key,
            "loadBalancerSku of the provider's configuration is not basic; only basic load balancers belong to a VM set",
        );
    }
    mode.filter(|_| is_basic).map(str::to_owned)
}

/// Returns the names of the entries that may accept the Service, in lower case.
///
/// Upstream reads this key in any letter case; here only the exact key counts.
fn configurations(reading: &mut SpecReader<'_>, settings: &LoadBalancerSettings) -> Option<Vec<String>> {
    let named = reading.get_if(settings.has_entries(), &CONFIGURATIONS)?;
    if !settings.has_entries() {
        reading.without_effect(CONFIGURATIONS.key, "the configuration has no multipleStandardLoadBalancerConfigurations");
        return None;
    }
    let (known, unknown): (Vec<&str>, Vec<&str>) = named.into_iter().partition(|name| settings.has_entry(name));
    let names: Vec<&str> = settings.entries.iter().map(|entry| entry.name.as_str()).collect();
    let names = names.join(", ");
    if known.is_empty() {
        let found = excerpts(unknown.iter().copied());
        let message = format!("expected entries of multipleStandardLoadBalancerConfigurations ({names}), found {found}");
        reading.refuse(refusal(CONFIGURATIONS.key, message));
    } else {
        for name in &unknown {
            let message = format!(
                "`{}` without effect: expected entries of multipleStandardLoadBalancerConfigurations ({names})",
                excerpt(name)
            );
            reading.warn(reason::IGNORED_CONFIGURATION, CONFIGURATIONS.key, message);
        }
    }
    Some(known.into_iter().chain(unknown).map(str::to_lowercase).collect())
}

/// Refuses configurations next to a pinned address, which already determines the load balancer.
fn check_pinned_configurations(reading: &mut SpecReader<'_>, spec: &ServiceSpec) {
    if spec.configurations.is_some() && spec.families.iter().any(|family| spec.pins(*family)) {
        let message = "conflicting load balancer configuration: the Service names an address or a public IP, too, which decides about the load balancer; \
                       remove either";
        reading.refuse(refusal(CONFIGURATIONS.key, message));
    }
}

/// Returns the addresses in the status of a Service.
pub fn status_addresses(service: &Service) -> Vec<std::net::IpAddr> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let entries = balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
    entries.iter().filter_map(|entry| entry.ip.as_deref()?.parse().ok()).collect()
}

/// Returns warnings about annotation keys that are unknown or have no effect.
fn unknown_keys(service: &Service) -> Vec<ServiceWarning> {
    let Some(annotations) = &service.metadata.annotations else { return Vec::new() };
    let fields = service.spec.as_ref();
    let ports = fields.and_then(|fields| fields.ports.as_deref()).unwrap_or_default().iter().map(|port| port.port);
    unknown_annotations(annotations, &AnnotatedPorts::new(ports, fields.and_then(|fields| fields.health_check_node_port)))
}

/// Returns the identity of a Service; never fails. A Service without a UID owns nothing.
pub fn identity_of(service: &Service) -> ServiceIdentity {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let metadata = &service.metadata;
    let (namespace, name, uid) = (text(&metadata.namespace), text(&metadata.name), text(&metadata.uid));
    if uid.is_empty() {
        // A bare `a` would be a prefix of the names of every Service. No name in Azure contains `<`.
        return ServiceIdentity { key: format!("{namespace}/{name}"), name_prefix: "<no uid>".to_owned() };
    }
    naming::identity(&namespace, &name, &uid)
}

/// Returns the desired state of a Service of type `LoadBalancer`, or all reasons for refusing the Service.
pub fn parse_service(service: &Service, settings: &LoadBalancerSettings) -> Result<ServiceSpec, Vec<ServiceRefusal>> {
    let read = parse(service, settings);
    if read.refusals.is_empty() { Ok(read.spec) } else { Err(read.refusals) }
}

/// Returns the desired state without the refused parts, to delete what belongs to the Service whatever it requests now.
pub fn parse_leniently(service: &Service, settings: &LoadBalancerSettings) -> ServiceSpec {
    parse(service, settings).spec
}

/// Returns the problems for which a Service is not refused.
///
/// Only this function checks for unknown keys, because that check is the most expensive one. Call it only to report the warnings.
pub fn warnings(service: &Service, settings: &LoadBalancerSettings) -> Vec<ServiceWarning> {
    let mut warnings = parse(service, settings).warnings;
    warnings.extend(unknown_keys(service));
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::providers::azure::planner::load_balancer::spec::tests::{service, settings};

    const INTERNAL_TRUE: (&str, &str) = ("azure-load-balancer-internal", "true");

    fn messages(annotations: &[(&str, &str)], settings: &LoadBalancerSettings) -> Vec<String> {
        warnings(&service(annotations, json!({})), settings).into_iter().map(|warning| warning.message).collect()
    }

    #[test]
    fn sharing_namespaces_without_effect_are_reported() {
        let (off, internal, external) = ("enforcePublicIPNamespaces", true, false);
        for (text, is_enforced, is_internal, granted, expected) in [
            ("shop,*", true, internal, &["shop", "*"][..], &[][..]),
            ("shop", true, external, &["shop"], &["azure-load-balancer-internal: \"true\""]),
            ("shop", false, internal, &["shop"], &[off]),
            ("Shop,blog,a_b", true, internal, &["blog"], &["found `Shop`, `a_b`"]),
            ("a.b", false, internal, &[], &["(RFC 1123 labels)", off]),
            (" , ", false, internal, &[], &[]),
        ] {
            let settings = LoadBalancerSettings { namespaces_are_enforced: is_enforced, ..settings() };
            let mut annotations = vec![("azure-load-balancer-sharing-namespaces", text)];
            annotations.extend(is_internal.then_some(INTERNAL_TRUE));
            let spec = parse_service(&service(&annotations, json!({})), &settings).unwrap();
            assert_eq!(spec.sharing_namespaces, granted, "{text}");
            let found = messages(&annotations, &settings);
            let matches = found.iter().zip(expected).all(|(message, expected)| message.contains(expected));
            assert!(matches && found.len() == expected.len(), "{text}: {found:?}");
        }
    }

    #[test]
    fn ignored_annotations_name_what_gives_them_an_effect() {
        for (annotation, expected) in [
            (("azure-load-balancer-internal-subnet", "apps"), "azure-load-balancer-internal: \"true\""),
            (("azure-load-balancer-mode", "__auto__"), "loadBalancerSku"),
            (("azure-load-balancer-enable-high-availability-ports", "true"), "azure-load-balancer-internal"),
            (("azure-load-balancer-internal", "True"), "found `True`"),
        ] {
            let found = messages(&[annotation], &settings());
            assert!(found.len() == 1 && found[0].contains(expected), "{annotation:?}: {found:?}");
        }
    }

    #[test]
    fn unlisted_configurations_name_field_and_entries() {
        let entries = crate::providers::azure::config::decode(
            "loadBalancerBackendPoolConfigurationType: nodeIP\n\
             multipleStandardLoadBalancerConfigurations: [{name: lb1, primaryVMSet: a}, {name: lb2, primaryVMSet: b}]\n",
        );
        let settings = LoadBalancerSettings::new(&entries.config, "lb1");
        let service = |names: &str| service(&[("azure-load-balancer-configurations", names)], json!({}));
        let refusals = parse_service(&service("lb3"), &settings).unwrap_err();
        let expected = "expected entries of multipleStandardLoadBalancerConfigurations (lb1, lb2)";
        assert_eq!(refusals[0].message, format!("{expected}, found `lb3`"));
        let warned = warnings(&service("lb1,lb3"), &settings);
        assert_eq!(warned[0].message, format!("`lb3` without effect: {expected}"));
    }
}
