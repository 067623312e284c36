//! How urgent a request is.

/// How urgent a request is; the first goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// A document that many wait for, such as the load balancer of all Services: one request serves them all.
    Shared,
    /// A new or changed Service, or a new Node: somebody waits.
    Change,
    /// A deletion.
    Deletion,
    /// Nodes came, went or changed their state.
    Node,
    /// Looking again at what is believed to be unchanged.
    Resync,
}

impl Urgency {
    /// Name in metrics and on the status page.
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
