//! Urgency of a request.

/// Urgency of a request; the first is sent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// A document that many wait for, such as the load balancer of all Services: one request serves them all.
    Shared,
    /// New or changed Service, or new Node: a user waits.
    Change,
    Deletion,
    /// Nodes came, went or changed their state.
    Node,
    /// Looking again at what is believed to be unchanged.
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
