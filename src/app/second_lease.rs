//! Second lease of leader migration.
//!
//! In: the configuration, and the dependencies of an election. Out: the second election, if controllers of this process run
//! under its lease, and the leadership of each controller.

use super::{
    election::{self, ElectionContext, PendingElection},
    start_error::StartResult,
    wiring::ControllerLeases,
};
use crate::{
    cli::config::ManagerConfig,
    controllers::{
        leader_migration::{ControllerLease, LeaderMigration},
        names::{self, ControllerNames},
    },
};

/// Leader migration with the election for its lease.
pub(super) type SecondLease = (LeaderMigration, PendingElection);

/// Prepares the second election, if controllers of this process run under the second lease.
pub(super) fn prepare(elections: &ElectionContext<'_>, config: &ManagerConfig) -> StartResult<Option<SecondLease>> {
    let Some(migration) = enabled(config).filter(|_| !config.dry_run) else { return Ok(None) };
    let is_under_it = |names: &&ControllerNames| migration.lease_of(names) == ControllerLease::Migration;
    if !names::TABLE.iter().filter(is_under_it).any(|names| config.controllers.contains(names.canonical)) {
        return Ok(None);
    }
    Ok(Some((migration.clone(), election::prepare(elections, &migration.lease_name)?)))
}

/// Returns the leadership that each controller writes under.
pub(super) fn leases(config: &ManagerConfig, main: &PendingElection, second: Option<&SecondLease>) -> ControllerLeases {
    let second = second.map_or(&main.leadership, |(_, second)| &second.leadership).clone();
    ControllerLeases {
        main: main.leadership.clone(),
        migration: enabled(config).map(|migration| (migration.clone(), second)),
    }
}

/// Returns the migration, or `None` if leader election is disabled, because there are no leases then.
fn enabled(config: &ManagerConfig) -> Option<&LeaderMigration> {
    config.leader_migration.as_ref().filter(|_| config.leader_election.enabled)
}
