//! Names that Kubernetes gives to labels, taints and annotations of Nodes. Each is defined once.
//!
//! Upstream: `k8s.io/api/core/v1/well_known_labels.go`, `cloud-provider/api/well_known_taints.go` and
//! `well_known_annotations.go`.

/// Taint that kubelet adds to a new Node with `--cloud-provider=external`, and that initialization removes.
pub const TAINT_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Taint of a Node whose instance is shut down.
pub const TAINT_SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
pub const EFFECT_NO_SCHEDULE: &str = "NoSchedule";

/// Condition that is `False` once there is a route to the Pods of the Node, and `True` until then.
pub const CONDITION_NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// Annotation with the addresses given to kubelet as `--node-ip`: one, or a pair of both families with a comma.
pub const ANNOTATION_PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

pub const LABEL_INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// Deprecated name of [`LABEL_INSTANCE_TYPE`].
pub const LABEL_INSTANCE_TYPE_BETA: &str = "beta.kubernetes.io/instance-type";
pub const LABEL_ZONE: &str = "topology.kubernetes.io/zone";
/// Deprecated name of [`LABEL_ZONE`].
pub const LABEL_ZONE_BETA: &str = "failure-domain.beta.kubernetes.io/zone";
pub const LABEL_REGION: &str = "topology.kubernetes.io/region";
pub const LABEL_REGION_BETA: &str = "failure-domain.beta.kubernetes.io/region";

/// Domains whose labels belong to Kubernetes itself: a cloud may not set them as additional labels.
pub const RESERVED_LABEL_DOMAINS: &[&str] = &["kubernetes.io", "k8s.io"];
