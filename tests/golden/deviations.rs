//! Where the outcome differs from the recording on purpose, as `case/step`, and why. Each reason has a line in
//! `docs/explanation/differences-from-go.md`, and each step must really differ.

/// A step that comes out differently, and why.
pub(crate) type Deviation = (&'static str, &'static str);

const MADE_ANEW: &str =
    "a public IP with other IP tags is made anew, and the front end comes back at once rather than at the next change";
const OWN_FAMILIES: &str = "an IPv6 Service has no IPv4 address because its annotation names a public IP for IPv4";
const KEEPS: &str = "a Service that is refused keeps its load balancer rather than losing it first";
const BEFORE_ANY_WRITE: &str = "a private link service that cannot be is refused before anything is written";
const LEAVES: &str = "a Service leaves the list of a public IP that another cluster made";

/// Load balancers.
pub(crate) const LOAD_BALANCERS: &[Deviation] = &[("ip-tags/change", MADE_ANEW)];

/// Public IPs.
pub(crate) const PUBLIC_IPS: &[Deviation] = &[("ip-tags/change", MADE_ANEW), ("pip-other-cluster/delete", LEAVES)];

/// Security rules.
pub(crate) const SECURITY_RULES: &[Deviation] = &[
    ("dual-stack-pip-names/create", OWN_FAMILIES),
    ("dual-stack-pip-names/delete", OWN_FAMILIES),
    ("ip-tags/change", MADE_ANEW),
];

/// Addresses in the status of Services.
pub(crate) const STATUS: &[Deviation] = &[
    ("dual-stack-pip-names/create", OWN_FAMILIES),
    ("dual-stack-pip-names/delete", OWN_FAMILIES),
    ("ip-tags/change", MADE_ANEW),
];

/// Public IPs that nobody uses in the recording, but somebody does here.
pub(crate) const STILL_USED: &[Deviation] = &[("basic-mode-named/unknown", KEEPS), ("ip-tags/change", MADE_ANEW)];

/// Who is refused.
pub(crate) const REFUSED: &[Deviation] = &[
    ("basic-mode-named/unknown", KEEPS),
    ("pls-errors/external", BEFORE_ANY_WRITE),
    ("pls-errors/bad-count", BEFORE_ANY_WRITE),
];

/// Steps after which there is something to put right in the security group. Leftovers aside, these are the deviations that the recording shows.
pub(crate) const PUT_RIGHT: &[Deviation] =
    &[("dual-stack-pip-names/create", OWN_FAMILIES), ("dual-stack-pip-names/delete", OWN_FAMILIES)];

/// Steps that begin with leftovers of the recording and in which nothing is written.
pub(crate) const LEFTOVERS_STAY: &[Deviation] = &[("pls-errors/bad-count", BEFORE_ANY_WRITE)];

/// Steps after which the load balancers are put right.
pub(crate) const BALANCERS_PUT_RIGHT: &[Deviation] = &[("ip-tags/change", MADE_ANEW)];

/// Steps after which nodes are put into pools.
pub(crate) const MEMBERS_PUT_RIGHT: &[Deviation] = &[
    ("unmanaged-nodes/managed", "a node that becomes managed joins at once rather than when other nodes change"),
    ("multi-lb/delete", "nodes of a load balancer that is gone join another one at once rather than with the next Service"),
];
