//! Where the outcome differs from the recording on purpose, as `case/step`, and why. Each reason has a line in
//! `docs/explanation/differences-by-topic.md`, and each step must really differ.

/// A step that comes out differently, and why.
pub(crate) type Deviation = (&'static str, &'static str);

const OWN_FAMILIES: &str = "an IPv6 Service has no IPv4 address because its annotation names a public IP for IPv4";

/// Steps after whose recorded end there is something to put right, leftovers aside; so they end differently, too.
pub(crate) const PUT_RIGHT: &[Deviation] = &[
    ("dual-stack-pip-names/create", OWN_FAMILIES),
    ("dual-stack-pip-names/delete", OWN_FAMILIES),
    (
        "ip-tags/change",
        "a public IP with other IP tags is made anew, and the front end comes back at once rather than at the next change",
    ),
    ("unmanaged-nodes/managed", "a node that becomes managed joins at once rather than when other nodes change"),
    ("multi-lb/delete", "nodes of a load balancer that is gone join another one at once rather than with the next Service"),
];

/// Steps that end differently, but whose recorded end is left alone.
pub(crate) const LEFT_ALONE: &[Deviation] =
    &[("pip-other-cluster/delete", "a Service leaves the list of a public IP that another cluster made")];
