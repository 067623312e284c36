//! Finalizer, label and annotation of load balancers that providers and controllers share. Pure.
//!
//! Upstream: `k8s.io/cloud-provider/service/helpers`.

use k8s_openapi::api::core::v1::Node;

/// Finalizer that delays the deletion of a Service until its load balancer is deleted. Upstream:
/// `LoadBalancerCleanupFinalizer`.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Label that excludes a Node from load balancers. Upstream: `LabelNodeExcludeBalancers`, KEP-1143.
pub const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Spellings of "false" that Go's `strconv.ParseBool` accepts.
pub(crate) const FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

/// Returns `true` if [`EXCLUDE_LABEL`] excludes `node` from load balancers, with any value but a spelling of "false".
///
/// Upstream: `nodeExcludedPredicate` in `service/controller.go`.
pub fn is_excluded(node: &Node) -> bool {
    let value = node.metadata.labels.as_ref().and_then(|labels| labels.get(EXCLUDE_LABEL));
    value.is_some_and(|value| !FALSE.contains(&value.as_str()))
}

/// Annotation with the allowed client ranges, used when `spec.loadBalancerSourceRanges` is empty.
pub const SOURCE_RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
