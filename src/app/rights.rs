//! Rights in the cluster that the program needs, by component. Plain data: `doctor` checks whether they are granted, and
//! `tests/manifests.rs` compares the manifests with them.

/// Row of a table of rights: scope (`cluster`, or a namespace), API group, resource, object name (`*` for any), verbs.
pub type RightRow = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

/// Placeholder for the election's lease in the tables, with its default name and namespace.
pub const LEASE: &str = "cloud-controller-manager";
pub const NAMESPACE: &str = "kube-system";

/// Rights of the manager.
#[rustfmt::skip]
pub const MANAGER_RIGHTS: &[RightRow] = &[
    // Informers; `ObjectWriter::get` in the node and node-lifecycle controllers; `PatchTarget::Object` in both; `ObjectWriter::delete`.
    ("cluster", "", "nodes", "*", &["get", "list", "watch", "patch", "delete"]),
    // `PatchTarget::Status` in the node and route controllers.
    ("cluster", "", "nodes/status", "*", &["patch"]),
    // Informer; `ObjectWriter::get` in the service controller.
    ("cluster", "", "services", "*", &["get", "list", "watch"]),
    // `PatchTarget::Status` in the service controller, which is also how the finalizer is written.
    ("cluster", "", "services/status", "*", &["patch"]),
    // Informers that run only when the provider's configuration needs them: Azure with several standard load balancers.
    ("cluster", "", "namespaces", "*", &["get", "list", "watch"]),
    ("cluster", "discovery.k8s.io", "endpointslices", "*", &["get", "list", "watch"]),
    // runtime/events/sink.rs
    ("cluster", "", "events", "*", &["create", "patch"]),
    // serving/authentication/token.rs, serving/authorization.rs
    ("cluster", "authentication.k8s.io", "tokenreviews", "*", &["create"]),
    ("cluster", "authorization.k8s.io", "subjectaccessreviews", "*", &["create"]),
    // runtime/leader_election/elector.rs: the watch begins without a list.
    (NAMESPACE, "coordination.k8s.io", "leases", "*", &["create"]),
    (NAMESPACE, "coordination.k8s.io", "leases", LEASE, &["get", "watch", "update"]),
];

/// Rights of the commands for people in addition to those of the manager: `manifests/viewer`.
#[rustfmt::skip]
pub const VIEWER_RIGHTS: &[RightRow] = &[
    // app/status_command/leader.rs, app/doctor/cluster.rs, app/support_bundle
    ("cluster", "coordination.k8s.io", "leases", "*", &["get", "list"]),
    ("cluster", "", "pods", "*", &["get", "list"]),
    // app/status_command/object.rs, app/support_bundle
    ("cluster", "", "events", "*", &["get", "list"]),
];
