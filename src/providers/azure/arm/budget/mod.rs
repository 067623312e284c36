//! Who may send when: token buckets that mirror ARM's own quotas, corrected by what ARM says is left.
//!
//! In: what a request counts against and how urgent it is; after it, the answer's status and headers. Out: permission, sooner for
//! the more urgent. Callers wait, they do not fail.

/// How urgent a request is; the first goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// A new or changed Service, or a new Node: somebody waits.
    Change,
    /// A deletion.
    Deletion,
    /// Nodes came, went or changed their state.
    Node,
    /// Looking again at what is believed to be unchanged.
    Resync,
}
