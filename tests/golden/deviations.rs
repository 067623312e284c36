//! Intended differences from the recording, as `case/step`, with their reasons. Each reason has a line in
//! `docs/explanation/differences-by-topic.md`. Tests fail for a listed step without a difference.

/// Step with a different outcome, and the reason.
pub(crate) type Deviation = (&'static str, &'static str);

const OWN_FAMILIES: &str = "an IPv6 Service has no IPv4 address because its annotation names a public IP for IPv4";

/// Steps whose recorded end state the manager changes, apart from leftovers. So their outcome differs, too.
pub(crate) const REPAIRED: &[Deviation] = &[
    ("dual-stack-pip-names/create", OWN_FAMILIES),
    ("dual-stack-pip-names/delete", OWN_FAMILIES),
    (
        "ip-tags/change",
        "a public IP with other IP tags is recreated, and its frontend is recreated at once rather than at the next change",
    ),
    ("unmanaged-nodes/managed", "a node that becomes managed joins at once rather than when other nodes change"),
    ("multi-lb/delete", "nodes of a deleted load balancer join another at once rather than with the next Service"),
];

/// Steps with a different outcome whose recorded end state the manager does not change.
pub(crate) const UNCHANGED: &[Deviation] =
    &[("pip-other-cluster/delete", "a Service leaves the list of a public IP that another cluster created")];
