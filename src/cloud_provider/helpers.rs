//! Readings of a Service and of a Node that providers and controllers share. Pure.
//!
//! Upstream: `k8s.io/cloud-provider/service/helpers`.

use std::collections::BTreeSet;

use ipnet::{IpNet, Ipv4Net};
use k8s_openapi::api::core::v1::{Node, Service, ServiceSpec};

use super::{CloudError, CloudResult};

/// Keeps a Service from vanishing before its load balancer has. Upstream: `LoadBalancerCleanupFinalizer`.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Keeps a node out of load balancers. Upstream: `LabelNodeExcludeBalancers`, KEP-1143.
pub const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Spellings of "false" that Go's `strconv.ParseBool` accepts.
pub(crate) const FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

/// Returns `true` if [`EXCLUDE_LABEL`] keeps `node` out of load balancers. Any value but a spelling of "false" does.
/// Upstream: `nodeExcludedPredicate` in `service/controller.go`.
pub fn is_excluded(node: &Node) -> bool {
    let value = node.metadata.labels.as_ref().and_then(|labels| labels.get(EXCLUDE_LABEL));
    value.is_some_and(|value| !FALSE.contains(&value.as_str()))
}

/// Annotation with the allowed client ranges, used when `spec.loadBalancerSourceRanges` is empty.
pub const SOURCE_RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Path that kube-proxy answers on the health check node port.
pub const HEALTH_CHECK_PATH: &str = "/healthz";

/// Default of the allowed ranges: all IPv4 addresses.
const ANY_SOURCE: IpNet = IpNet::V4(Ipv4Net::new_assert(std::net::Ipv4Addr::UNSPECIFIED, 0));

/// Returns the client ranges that may reach the load balancer: the spec's list, else the annotation's, else all addresses.
pub fn load_balancer_source_ranges(service: &Service) -> CloudResult<BTreeSet<IpNet>> {
    let listed = service.spec.as_ref().and_then(|spec| spec.load_balancer_source_ranges.as_deref()).unwrap_or_default();
    if !listed.is_empty() {
        let example = "a list of IP ranges. For example, 10.0.0.0/24";
        return parse_all(listed.iter().map(String::as_str), "service.Spec.LoadBalancerSourceRanges", example);
    }
    let annotations = service.metadata.annotations.as_ref();
    let value = annotations.and_then(|all| all.get(SOURCE_RANGES_ANNOTATION)).map(|value| value.trim()).unwrap_or_default();
    if value.is_empty() {
        return Ok([ANY_SOURCE].into());
    }
    let example = "a comma-separated list of source IP ranges. For example, 10.0.0.0/24,192.168.2.0/24";
    parse_all(value.split(','), SOURCE_RANGES_ANNOTATION, example)
}

fn parse_all<'a>(ranges: impl Iterator<Item = &'a str>, field: &str, expected: &str) -> CloudResult<BTreeSet<IpNet>> {
    let parse = |range: &str| {
        let range = range.trim();
        parse(range).ok_or_else(|| CloudError::invalid(format!("{field}: {range:?} is not valid. Expecting {expected}")))
    };
    ranges.map(parse).collect()
}

/// Parses a CIDR and truncates it to its network. Leading zeros in IPv4 are decimal, as in Go's `ParseCIDRSloppy`.
fn parse(range: &str) -> Option<IpNet> {
    let (address, length) = range.split_once('/')?;
    let octets = address.split('.').map(without_leading_zeros);
    let address = if address.contains(':') { address.to_owned() } else { octets.collect::<Vec<_>>().join(".") };
    format!("{address}/{length}").parse::<IpNet>().ok().map(|net| net.trunc())
}

fn without_leading_zeros(octet: &str) -> &str {
    let trimmed = octet.trim_start_matches('0');
    // All zeros is zero; nothing at all stays wrong.
    if trimmed.is_empty() { &octet[..octet.len().min(1)] } else { trimmed }
}

/// Returns `true` if `ranges` allow all IPv4 addresses. Upstream: `IsAllowAll`.
pub fn is_allow_all(ranges: &BTreeSet<IpNet>) -> bool {
    ranges.contains(&ANY_SOURCE)
}

/// Returns `true` if `service` wants traffic only on nodes with pods of its own. Upstream: `ExternallyAccessible` and
/// `ExternalPolicyLocal`.
pub fn requests_only_local_traffic(service: &Service) -> bool {
    let local = |spec: &ServiceSpec| {
        let external = matches!(spec.type_.as_deref(), Some("LoadBalancer" | "NodePort"));
        external && spec.external_traffic_policy.as_deref() == Some("Local")
    };
    service.spec.as_ref().is_some_and(local)
}

/// Returns `true` if the load balancer must probe kube-proxy for the nodes that have pods.
pub fn needs_health_check(service: &Service) -> bool {
    let type_ = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
    type_ == Some("LoadBalancer") && requests_only_local_traffic(service)
}

/// Returns path and port of the health check, if [`needs_health_check`]. Upstream: `GetServiceHealthCheckPathPort`.
pub fn health_check_path_port(service: &Service) -> Option<(&'static str, i32)> {
    let port = service.spec.as_ref().and_then(|spec| spec.health_check_node_port).unwrap_or_default();
    needs_health_check(service).then_some((HEALTH_CHECK_PATH, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(ranges: &[&str], annotation: Option<&str>) -> Service {
        let mut service = Service::default();
        let ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
        service.spec.get_or_insert_default().load_balancer_source_ranges = Some(ranges);
        let annotation = annotation.map(|value| (SOURCE_RANGES_ANNOTATION.to_owned(), value.to_owned()));
        service.metadata.annotations = Some(annotation.into_iter().collect());
        service
    }

    fn nets(ranges: &[&str]) -> BTreeSet<IpNet> {
        ranges.iter().map(|range| range.parse().unwrap()).collect()
    }

    #[test]
    fn source_ranges_come_from_spec_then_annotation_then_everybody() {
        let cases: [(&[&str], Option<&str>, &[&str]); 7] = [
            (&[], None, &["0.0.0.0/0"]),
            (&[], Some("  "), &["0.0.0.0/0"]),
            (&[], Some("10.0.0.0/24, 10.1.0.0/24 "), &["10.0.0.0/24", "10.1.0.0/24"]),
            (&[" 1.2.3.4/32"], Some("10.0.0.0/24"), &["1.2.3.4/32"]),
            (&["10.0.0.7/24"], None, &["10.0.0.0/24"]),
            (&["010.000.0.0/8"], None, &["10.0.0.0/8"]),
            (&["fd00::/8"], None, &["fd00::/8"]),
        ];
        for (spec, annotation, expected) in cases {
            let ranges = load_balancer_source_ranges(&service(spec, annotation)).unwrap();
            assert_eq!(ranges, nets(expected), "{spec:?} {annotation:?}");
        }
        assert!(is_allow_all(&nets(&["0.0.0.0/0", "10.0.0.0/8"])) && !is_allow_all(&nets(&["10.0.0.0/8"])));
    }

    #[test]
    fn a_bad_range_is_named_with_its_field() {
        for bad in ["foo", "1.2.3.4", "10.0.0.1/33", "1..2.3/8", ""] {
            let error = load_balancer_source_ranges(&service(&[bad, "10.0.0.0/8"], None)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("service.Spec.LoadBalancerSourceRanges: {bad:?} is not valid.")), "{error}");
        }
        let error = load_balancer_source_ranges(&service(&[], Some("10.0.0.0/8,foo"))).unwrap_err().to_string();
        assert!(error.starts_with(SOURCE_RANGES_ANNOTATION) && error.contains("\"foo\""), "{error}");
    }

    #[test]
    fn local_load_balancers_have_a_health_check() {
        let mut service = Service::default();
        for (type_, policy, expected) in [
            ("LoadBalancer", "Local", Some(("/healthz", 32000))),
            ("LoadBalancer", "Cluster", None),
            ("NodePort", "Local", None),
            ("ClusterIP", "Local", None),
        ] {
            let spec = service.spec.get_or_insert_default();
            spec.type_ = Some(type_.into());
            spec.external_traffic_policy = Some(policy.into());
            spec.health_check_node_port = Some(32000);
            assert_eq!(health_check_path_port(&service), expected, "{type_} {policy}");
        }
    }
}
