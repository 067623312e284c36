//! Who causes a change of a plan.

/// Who causes a change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeOwner {
    /// A Service, by namespace and name.
    Service(String),
    /// The Nodes of the cluster.
    Nodes,
}
