//! Queries about machines, and their results.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    InventorySettings,
    read::{ArmRead, ListScope, group_of},
};
use crate::providers::azure::model::{Machine, MachineQuery, ResourceId};

/// Largest age of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// As old as the configured cache times allow; older while ARM fails.
    Cached,
    /// Not older than this.
    Within(Duration),
}

/// Existence of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineExistence {
    /// The machine exists, with this state, including the power state.
    Found(Arc<Machine>),
    /// ARM reported directly that this machine does not exist, and its responses about the surroundings are consistent.
    Gone,
    /// The existence is unknown, for this reason.
    Unknown(String),
}

/// Queued query: its machine, location, start, and the largest age of the result.
#[derive(Debug, Clone)]
pub(super) struct PendingQuery {
    pub(super) query: MachineQuery,
    /// Group in which the machine is looked up.
    pub(super) group: ResourceId,
    /// Time of the query; reads sent later are current.
    pub(super) queried_at: Instant,
    pub(super) freshness: Freshness,
    /// Whether the query is about the machine's existence rather than its description.
    pub(super) is_existence_check: bool,
    /// Whether a read of the machine alone is required, not a list.
    pub(super) needs_single_read: bool,
    /// Whether the verdict of lists on a missing machine is required.
    pub(super) second_look: bool,
}

/// Age up to which a failure is returned to callers that accept cached results, so that a failing ARM is not called by each
/// of them.
const FAILURE_TTL: Duration = Duration::from_secs(5);

impl PendingQuery {
    pub(super) fn new(
        query: &MachineQuery,
        settings: &InventorySettings,
        requested: Instant,
        freshness: Freshness,
        confirm: bool,
    ) -> Self {
        let labeled = query.resource_group.as_deref().filter(|group| !group.is_empty());
        let group = match (&query.id, labeled) {
            (Some(id), _) => group_of(id),
            (None, Some(group)) => ResourceId::group_of(settings.group.subscription(), group),
            (None, None) => settings.group.clone(),
        };
        Self {
            query: query.clone(),
            group,
            queried_at: requested,
            freshness,
            is_existence_check: confirm,
            needs_single_read: false,
            second_look: false,
        }
    }

    /// Returns `true` if a state that was read at `at` is recent enough. `cached` is the maximum age of cached results.
    pub(super) fn is_fresh(&self, at: Instant, cached: Duration) -> bool {
        let limit = match self.freshness {
            Freshness::Cached => cached,
            Freshness::Within(limit) => limit,
        };
        self.queried_at.saturating_duration_since(at) <= limit
    }

    /// Returns `true` if a failure at `at` resolves the query.
    pub(super) fn is_resolved_by_failure(&self, at: Instant) -> bool {
        let limit = if self.freshness == Freshness::Cached { FAILURE_TTL } else { Duration::ZERO };
        self.queried_at.saturating_duration_since(at) <= limit
    }
}

/// State of a query: finished, or the reads that it needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QueryEvaluation<T> {
    Done(T),
    NeedsReads(Vec<RequiredRead>),
}

/// Requirement of a query.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequiredRead {
    /// Read without an alternative.
    Read(ArmRead),
    /// Machine: read alone, or with this list if there is one that may have it.
    Machine(ResourceId, Option<ListScope>),
    /// Interfaces of a known machine, read alone or with this list.
    Interfaces(ResourceId, Option<ListScope>),
}

impl RequiredRead {
    /// Returns the read of exactly the need, and the list that would cover it too.
    pub(super) fn alternatives(&self) -> (ArmRead, Option<ArmRead>) {
        match self {
            Self::Read(read) => (read.clone(), None),
            Self::Machine(id, scope) => (ArmRead::Machine(id.clone()), scope.clone().map(ArmRead::Machines)),
            Self::Interfaces(id, scope) => (ArmRead::InterfacesOf(id.clone()), scope.clone().map(ArmRead::Interfaces)),
        }
    }
}
