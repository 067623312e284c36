//! What the documents have to become: pure functions that change one document for many Services at once.
//!
//! Each takes a document as ARM sent it and the asks, changes only what belongs to those Services (by names and tags), and answers for
//! each Service whether that was possible. Applied twice they change nothing the second time; the order of the asks does not matter.

mod attempt;
pub mod check;
mod claims;
mod context;
mod draft;
pub mod expected;
mod former;
mod frontends;
mod handover;
pub mod load_balancers;
pub mod members;
mod merge;
mod placement;
mod pools;
mod probes;
pub mod public_ips;
mod rules;
#[cfg(test)]
pub(super) mod samples;
mod seats;
pub mod security_rules;
pub mod status;
pub mod tags;
pub mod traces;

use std::sync::Arc;

use super::spec::{Identity, ServiceSpec};

/// One Service's part in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Its load balancer shall be as asked.
    Ensure(Arc<ServiceSpec>),
    /// All that belongs to it shall go. Carries the last valid spec, when there is one, for what only it tells (pinned addresses).
    Remove(Identity, Option<Arc<ServiceSpec>>),
}

impl Ask {
    /// Whose it is.
    pub fn identity(&self) -> &Identity {
        match self {
            Ask::Ensure(spec) => &spec.identity,
            Ask::Remove(identity, _) => identity,
        }
    }

    /// What it asks for or asked for last.
    pub fn spec(&self) -> Option<&Arc<ServiceSpec>> {
        match self {
            Ask::Ensure(spec) => Some(spec),
            Ask::Remove(_, last) => last.as_ref(),
        }
    }
}
