//! Classes of urgency, which order the requests that wait for a quota.

/// Urgency of a request, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// Document that many callers wait for, such as the load balancer of all Services: one request serves all of them.
    Shared,
    /// New or changed Service, or new Node: a user waits.
    Change,
    Deletion,
    /// Added, removed or changed Nodes.
    Node,
    /// Periodic check of state that is believed to be unchanged.
    Resync,
}

impl Urgency {
    /// Returns the name in metrics and on the status page.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Change => "change",
            Self::Deletion => "deletion",
            Self::Node => "node",
            Self::Resync => "resync",
        }
    }
}
