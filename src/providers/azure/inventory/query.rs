//! What callers ask about machines, and what they are told.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    InventorySettings, Machine,
    read::{ArmRead, ListScope, group_of},
};
use crate::providers::azure::arm::{ArmError, ResourceId};

/// A node whose machine is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MachineQuery {
    /// Name of the Node.
    pub node_name: String,
    /// The machine, from `spec.providerID`; an id decides alone, the name is not compared then.
    pub id: Option<ResourceId>,
    /// Resource group from the label `kubernetes.azure.com/resource-group`; `None`: the cluster's.
    pub resource_group: Option<String>,
}

/// How old an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// As old as the configured cache times allow; older while ARM fails.
    Cached,
    /// Not older than this.
    Within(Duration),
}

/// Why there is no machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// It is in none of the places where it could be, read just now. Says where was looked. No evidence that it is gone.
    #[error("instance not found: {0}")]
    NotListed(String),
    /// It exists, but has no network interface or no address yet.
    #[error(
        "{0} has no private address yet; if it should have one, may the identity in azure.json read network interfaces, and those \
         of scale sets?"
    )]
    NoAddress(String),
    /// ARM could not be asked.
    #[error(transparent)]
    Arm(#[from] ArmError),
}

/// Whether a machine exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineExistence {
    /// It does, and this is its state, power state included.
    Found(Arc<Machine>),
    /// ARM said of this very machine that it does not exist, and answers sanely about what surrounds it.
    Gone,
    /// Nobody knows, for this reason.
    Unknown(String),
}

/// A question as it stands in line: what is wanted, where, since when, and how old the answer may be.
#[derive(Debug, Clone)]
pub(super) struct PendingQuery {
    pub(super) query: MachineQuery,
    /// Where the machine is looked for.
    pub(super) group: ResourceId,
    /// When it was asked; reads sent later are fresh.
    pub(super) asked_at: Instant,
    pub(super) freshness: Freshness,
    /// Whether it is asked if the machine exists, rather than what it is.
    pub(super) is_existence_check: bool,
    /// Whether only a read of the machine by itself will do, not a list.
    pub(super) needs_single_read: bool,
    /// Whether it is asked what lists say of a machine that is gone.
    pub(super) second_look: bool,
}

/// A failure this old still answers those who take cached answers, so that a failing ARM is not asked by each of them.
const FAILURE_TTL: Duration = Duration::from_secs(5);

impl PendingQuery {
    pub(super) fn new(
        wanted: &MachineQuery,
        settings: &InventorySettings,
        asked: Instant,
        freshness: Freshness,
        confirm: bool,
    ) -> Self {
        let labelled = wanted.resource_group.as_deref().filter(|group| !group.is_empty());
        let group = match (&wanted.id, labelled) {
            (Some(id), _) => group_of(id),
            (None, Some(group)) => ResourceId::group_of(settings.group.subscription(), group),
            (None, None) => settings.group.clone(),
        };
        Self {
            query: wanted.clone(),
            group,
            asked_at: asked,
            freshness,
            is_existence_check: confirm,
            needs_single_read: false,
            second_look: false,
        }
    }

    /// Whether something read at `at` is fresh enough, where cached answers may have the age `cached`.
    pub(super) fn fresh(&self, at: Instant, cached: Duration) -> bool {
        let limit = match self.freshness {
            Freshness::Cached => cached,
            Freshness::Within(limit) => limit,
        };
        self.asked_at.saturating_duration_since(at) <= limit
    }

    /// Whether a failure at `at` answers the question.
    pub(super) fn answered_by_failure(&self, at: Instant) -> bool {
        let limit = if self.freshness == Freshness::Cached { FAILURE_TTL } else { Duration::ZERO };
        self.asked_at.saturating_duration_since(at) <= limit
    }
}

/// Where a question stands: answered, or what has to be known first.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QueryEvaluation<T> {
    Done(T),
    NeedsReads(Vec<RequiredRead>),
}

/// Something a question has to know.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum RequiredRead {
    /// Just this read.
    Read(ArmRead),
    /// A machine: read by itself, or with this list if there is one that may have it.
    Machine(ResourceId, Option<ListScope>),
    /// The interfaces of a known machine, likewise.
    Interfaces(ResourceId, Option<ListScope>),
}
