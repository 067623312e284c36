//! The route table in ARM: read, cached, written.
//!
//! In: changes. Out: the table as ARM last sent it, and for each change whether it is in there. After a write the table is
//! ARM's response; after a failed write it is read again before the next write.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::{ArmClient, Precondition, Urgency},
        model::{ArmError, ArmErrorClass, ArmResult, ResourceId, api, network::RouteTable},
        planner::routes::{
            plan::{self, RouteChange, RouteTablePlan},
            settings::RouteSettings,
        },
    },
    runtime::clock::Clock,
    status::RouteTableStatus,
};

/// Attempts to write one batch if another writer changes the table at the same time, or responses are lost.
const MAX_ATTEMPTS: u32 = 5;

/// Time for which ARM's limit is remembered.
const LIMIT_TTL: Duration = Duration::from_secs(60 * 60);

/// A table at a moment; `None`: there is none.
pub(super) type ObservedRouteTable = Option<Arc<RouteTable>>;

/// Lookup of the pod CIDRs of the Node of this name.
pub(super) type PodCidrLookup = dyn Fn(&str) -> Vec<String> + Send + Sync;

pub(super) struct RouteTableStore {
    pub(super) id: ResourceId,
    settings: RouteSettings,
    arm: ArmClient,
    clock: Clock,
    cache: Mutex<RouteTableCache>,
    writes: AtomicU64,
}

#[derive(Default)]
struct RouteTableCache {
    table: Option<(ObservedRouteTable, Instant)>,
    /// Number of writes: the result of a read that began before a write is not cached.
    generation: u64,
    /// Time at which ARM last reported the usual limit of the table.
    limited_at: Option<Instant>,
}

impl RouteTableStore {
    pub(super) fn new(id: ResourceId, settings: RouteSettings, arm: &ArmClient, clock: Clock) -> Self {
        let (arm, cache, writes) = (arm.with_urgency(Urgency::Node), Mutex::default(), AtomicU64::new(0));
        Self { id, settings, arm, clock, cache, writes }
    }

    pub(super) fn status(&self) -> RouteTableStatus {
        let cache = self.cache.lock();
        let existing = cache.table.as_ref();
        RouteTableStatus {
            table: self.id.as_str().to_owned(),
            exists: existing.map(|(table, _)| table.is_some()),
            routes: existing.map(|(table, _)| plan::routes_of(table.as_deref()).len()),
            age_seconds: existing.map(|(_, at)| self.age(*at).as_secs()),
            writes: self.writes.load(Ordering::Relaxed),
            ..RouteTableStatus::default()
        }
    }

    /// Returns the table, not older than the cache time.
    pub(super) async fn list(&self) -> ArmResult<ObservedRouteTable> {
        let cached = self.cache.lock().table.clone().filter(|(_, at)| self.age(*at) < self.settings.ttl);
        match cached {
            Some((table, _)) => Ok(table),
            None => self.read().await,
        }
    }

    /// Returns `true` if its tags are not as configured.
    pub(super) fn needs_tags(&self, table: &ObservedRouteTable) -> bool {
        plan::plan(table.as_deref(), &[], &self.settings, &|_| Vec::new()).document.is_some()
    }

    /// Applies `changes`, in one write if any is needed. `Err`: ARM did not accept the write, and no change is certain to be
    /// applied.
    pub(super) async fn write(&self, changes: &[RouteChange], cidrs_of: &PodCidrLookup) -> ArmResult<Vec<CloudResult<()>>> {
        let mut tries = 1;
        loop {
            let table = self.read_for_write().await?;
            let RouteTablePlan { document, refused, .. } = self.plan(table.as_deref(), changes, cidrs_of);
            let Some(document) = document else { return Ok(change_results(changes, &refused, table.as_deref())) };
            match self.put(table.as_deref(), &document, urgency(changes)).await {
                Ok(table) => return Ok(change_results(changes, &refused, table.as_deref())),
                Err(error) if error.class == ArmErrorClass::QuotaExceeded && self.learn_limit(&document) => {
                    tracing::warn!(%error, "route table limited to {} routes for an hour", plan::MOST_ROUTES);
                }
                Err(error) if tries < MAX_ATTEMPTS && needs_reread(&error) => {
                    tracing::info!(%error, tries, "reading the route table again before the next write");
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the settings with the limit that ARM has reported recently.
    fn settings(&self) -> RouteSettings {
        let limited = self.cache.lock().limited_at.is_some_and(|at| self.age(at) < LIMIT_TTL);
        let most_routes = if limited { plan::MOST_ROUTES } else { self.settings.most_routes };
        RouteSettings { most_routes, ..self.settings.clone() }
    }

    /// Records that the table has the usual limit after ARM rejected it for one. Returns `true` if that limit was exceeded
    /// and is new.
    fn learn_limit(&self, document: &RouteTable) -> bool {
        let event =
            plan::routes_of(Some(document)).len() > plan::MOST_ROUTES && self.settings().most_routes > plan::MOST_ROUTES;
        if event {
            self.cache.lock().limited_at = Some(self.clock.now());
        }
        event
    }

    /// Reads the table for a write. A cached one carries an etag, so a write of an old version is harmless; a missing table
    /// must be confirmed.
    async fn read_for_write(&self) -> ArmResult<ObservedRouteTable> {
        let cached = self.cache.lock().table.clone();
        match cached {
            Some((Some(table), _)) => Ok(Some(table)),
            _ => self.read().await,
        }
    }

    async fn put(
        &self,
        table: Option<&RouteTable>,
        document: &RouteTable,
        urgency: Urgency,
    ) -> ArmResult<ObservedRouteTable> {
        // Forget first: if the caller is cancelled before the response, the table is read again.
        self.forget();
        self.writes.fetch_add(1, Ordering::Relaxed);
        let condition = table.map_or(Precondition::Absent, |table| Precondition::unchanged(table.etag.as_deref()));
        let result_of = self.arm.with_urgency(urgency).put(&api::ROUTE_TABLES, &self.id, condition, document).await;
        self.forget();
        let written = Some(Arc::new(result_of?));
        self.cache.lock().table = Some((written.clone(), self.clock.now()));
        Ok(written)
    }

    /// Returns the table for a plan: not older than the cache time, and not kept.
    pub(super) async fn read_for_plan(&self) -> ArmResult<ObservedRouteTable> {
        let cached = self.cache.lock().table.clone().filter(|(_, at)| self.age(*at) < self.settings.ttl);
        match cached {
            Some((table, _)) => Ok(table),
            None => self.fetch().await,
        }
    }

    /// Plans what [`Self::write`] would write for `changes`.
    pub(super) fn plan(
        &self,
        table: Option<&RouteTable>,
        changes: &[RouteChange],
        cidrs_of: &PodCidrLookup,
    ) -> RouteTablePlan {
        plan::plan(table, changes, &self.settings(), &|name| cidrs_of(name))
    }

    async fn fetch(&self) -> ArmResult<ObservedRouteTable> {
        match self.arm.get(&api::ROUTE_TABLES, &self.id, &[]).await {
            Ok(table) => Ok(Some(Arc::new(table))),
            Err(error) if error.class == ArmErrorClass::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn read(&self) -> ArmResult<ObservedRouteTable> {
        let (generation, requested) = (self.cache.lock().generation, self.clock.now());
        let table = self.fetch().await?;
        let mut cache = self.cache.lock();
        if cache.generation == generation {
            cache.table = Some((table.clone(), requested));
        }
        Ok(table)
    }

    fn forget(&self) {
        let mut cache = self.cache.lock();
        cache.generation += 1;
        cache.table = None;
    }

    fn age(&self, at: Instant) -> Duration {
        self.clock.now().saturating_duration_since(at)
    }
}

/// Returns `true` if another writer changed the table, or the result of the write is unknown.
fn needs_reread(error: &ArmError) -> bool {
    matches!(error.class, ArmErrorClass::Conflict | ArmErrorClass::OutcomeUnknown)
}

/// Returns the urgency of a write: a new Node waits for its route, deletions can wait.
fn urgency(changes: &[RouteChange]) -> Urgency {
    if changes.iter().any(|change| matches!(change, RouteChange::Set(_))) { Urgency::Change } else { Urgency::Deletion }
}

/// Returns a result for each change. A change that ARM shows is applied, whatever was sent.
fn change_results(changes: &[RouteChange], refused: &[Option<String>], table: Option<&RouteTable>) -> Vec<CloudResult<()>> {
    let result_of = |(change, refused): (&RouteChange, &Option<String>)| match refused {
        Some(reason) => Err(CloudError::invalid(reason.clone())),
        None if plan::is_applied_with(table, change, changes) => Ok(()),
        None => Err(CloudError::failed("ARM accepted the route table, but its response lacks this change")),
    };
    changes.iter().zip(refused).map(result_of).collect()
}
