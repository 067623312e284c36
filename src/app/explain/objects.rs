//! Labels, taints, annotations and conditions of all providers' clusters, for `explain`.
//!
//! In: the names that the code uses. Out: a topic per name, found by the whole name and by the part after the slash.

use crate::{
    cloud_provider::{
        helpers::{EXCLUDE_LABEL, FINALIZER, SOURCE_RANGES_ANNOTATION},
        registry::ReferenceTopic,
    },
    controllers::service::conditions::{CONDITION_TYPE, LoadBalancerPhase},
    node::well_known::{
        ANNOTATION_PROVIDED_NODE_IP, CONDITION_NETWORK_UNAVAILABLE, LABEL_INSTANCE_TYPE, LABEL_INSTANCE_TYPE_BETA,
        LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA, TAINT_SHUTDOWN, TAINT_UNINITIALIZED,
    },
};

/// Names of objects, each with kind and meaning.
const NAMES: &[(&str, &str, &str)] = &[
    (
        "taint",
        TAINT_UNINITIALIZED,
        "The kubelet sets it with --cloud-provider=external. Initialization removes it; no pod is scheduled until then.",
    ),
    (
        "taint",
        TAINT_SHUTDOWN,
        "Set while the instance is shut down and the Node is not ready, and removed once the instance runs.",
    ),
    ("label", LABEL_INSTANCE_TYPE, "Machine type of the instance. Written at initialization."),
    ("label", LABEL_INSTANCE_TYPE_BETA, "Deprecated copy of node.kubernetes.io/instance-type."),
    ("label", LABEL_ZONE, "Availability zone of the instance. Written at initialization."),
    ("label", LABEL_ZONE_BETA, "Deprecated copy of topology.kubernetes.io/zone."),
    ("label", LABEL_REGION, "Region of the instance. Written at initialization."),
    ("label", LABEL_REGION_BETA, "Deprecated copy of topology.kubernetes.io/region."),
    ("label", EXCLUDE_LABEL, "On a Node: load balancers send it no traffic, unless the value is a spelling of false."),
    (
        "annotation",
        ANNOTATION_PROVIDED_NODE_IP,
        "The kubelet's --node-ip: the addresses that the Node gets first, one or one of each IP family.",
    ),
    (
        "annotation",
        SOURCE_RANGES_ANNOTATION,
        "On a Service: CIDRs, separated by commas, whose clients the load balancer serves. spec.loadBalancerSourceRanges has precedence.",
    ),
    (
        "finalizer",
        FINALIZER,
        "On a Service: it exists until its load balancer is deleted. Removing it by hand leaves the load balancer in the cloud; orphans lists such resources.",
    ),
    (
        "condition",
        CONDITION_NETWORK_UNAVAILABLE,
        "On a Node: True until the cloud has a route to its pods, or until the network plugin sets it to False.",
    ),
    (
        "condition",
        CONDITION_TYPE,
        "On a Service: progress of its load balancer. True: it serves the Service. False: it does not. Unknown: in progress.",
    ),
];

/// Meaning of each reason of the condition of Services.
const REASONS: &[(LoadBalancerPhase, &str)] = &[
    (LoadBalancerPhase::Ensuring, "Unknown: the load balancer is being created or updated."),
    (LoadBalancerPhase::Updating, "Unknown: the load balancer is being updated with another set of Nodes."),
    (LoadBalancerPhase::Deleting, "False: the load balancer is being deleted."),
    (LoadBalancerPhase::Ready, "True: the load balancer serves the Service."),
    (LoadBalancerPhase::ImplementedElsewhere, "True: another component provides the load balancer."),
    (
        LoadBalancerPhase::Waiting(String::new()),
        "Unknown: the cloud requested a delay; retried without a change by the user.",
    ),
    (
        LoadBalancerPhase::Failed(String::new()),
        "False: the last attempt failed; retried with backoff. The message has the error.",
    ),
    (
        LoadBalancerPhase::Invalid(String::new()),
        "False: the Service cannot be served until its user changes what the message names.",
    ),
];

pub(super) fn topics() -> impl Iterator<Item = ReferenceTopic> {
    let names = NAMES.iter().map(|(kind, name, meaning)| ReferenceTopic::object_name(kind, name, meaning));
    let reasons = REASONS.iter().map(|(phase, meaning)| ReferenceTopic {
        kind: "reason of the condition of Services",
        names: vec![phase.reason().to_owned()],
        lines: vec![(*meaning).to_owned()],
    });
    names.chain(reasons)
}
