//! The route table in ARM: read, cached, written.
//!
//! In: changes. Out: the table as ARM last sent it, and for each change whether it is in there. After a write the table is what
//! ARM answered; after a failed one it is read again before anything else is written.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::{ArmClient, ArmError, ArmErrorClass, ArmResult, Precondition, ResourceId, Urgency, api, network::RouteTable},
        planner::routes::{
            plan::{self, RouteChange, RouteTablePlan},
            settings::RouteSettings,
        },
    },
    runtime::clock::Clock,
};

/// How often one batch is written when somebody else writes the table at the same time, or answers are lost.
const TRIES: u32 = 5;

/// How long ARM's word about the limit stands.
const LIMIT_TTL: Duration = Duration::from_secs(60 * 60);

/// A table at a moment; `None`: there is none.
pub(super) type ObservedRouteTable = Option<Arc<RouteTable>>;

/// Tells the pod CIDRs of the Node of this name.
pub(super) type PodCidrLookup = dyn Fn(&str) -> Vec<String> + Send + Sync;

pub(super) struct RouteTableStore {
    id: ResourceId,
    settings: RouteSettings,
    arm: ArmClient,
    clock: Clock,
    cache: Mutex<RouteTableCache>,
    writes: AtomicU64,
}

#[derive(Default)]
struct RouteTableCache {
    table: Option<(ObservedRouteTable, Instant)>,
    /// Counts writes: what was read before one of them is not kept.
    generation: u64,
    /// When ARM last said that the table has the usual limit.
    limited_at: Option<Instant>,
}

impl RouteTableStore {
    pub(super) fn new(id: ResourceId, settings: RouteSettings, arm: &ArmClient, clock: Clock) -> Self {
        let (arm, cache, writes) = (arm.with_urgency(Urgency::Node), Mutex::default(), AtomicU64::new(0));
        Self { id, settings, arm, clock, cache, writes }
    }

    /// Which table.
    pub(super) fn id(&self) -> &ResourceId {
        &self.id
    }

    pub(super) fn status(&self) -> Value {
        let cache = self.cache();
        let known = cache.table.as_ref();
        json!({
            "table": self.id.as_str(),
            "exists": known.map(|(table, _)| table.is_some()),
            "routes": known.map(|(table, _)| plan::routes_of(table.as_deref()).len()),
            "ageSeconds": known.map(|(_, at)| self.age(*at).as_secs()),
            "writes": self.writes.load(Ordering::Relaxed),
        })
    }

    /// The table, not older than the cache time.
    pub(super) async fn list(&self) -> ArmResult<ObservedRouteTable> {
        let cached = self.cache().table.clone().filter(|(_, at)| self.age(*at) < self.settings.ttl);
        match cached {
            Some((table, _)) => Ok(table),
            None => self.read().await,
        }
    }

    /// Whether its tags are not as configured.
    pub(super) fn needs_tags(&self, table: &ObservedRouteTable) -> bool {
        plan::plan(table.as_deref(), &[], &self.settings, &|_| Vec::new()).document.is_some()
    }

    /// Makes `changes`, in one write if any is needed. `Err`: ARM did not take them, and none is made for certain.
    pub(super) async fn write(&self, changes: &[RouteChange], cidrs_of: &PodCidrLookup) -> ArmResult<Vec<CloudResult<()>>> {
        let mut tries = 1;
        loop {
            let table = self.read_for_write().await?;
            let RouteTablePlan { document, refused, .. } =
                plan::plan(table.as_deref(), changes, &self.settings(), &|name| cidrs_of(name));
            let Some(document) = document else { return Ok(answers(changes, &refused, table.as_deref())) };
            match self.put(table.as_deref(), &document, urgency(changes)).await {
                Ok(table) => return Ok(answers(changes, &refused, table.as_deref())),
                Err(error) if error.class == ArmErrorClass::QuotaExceeded && self.learn_limit(&document) => {
                    tracing::warn!(%error, "route table limited to {} routes for an hour", plan::MOST_ROUTES);
                }
                Err(error) if tries < TRIES && needs_reread(&error) => {
                    tracing::info!(%error, tries, "reading the route table again before the next write");
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// With the limit that ARM has shown lately.
    fn settings(&self) -> RouteSettings {
        let limited = self.cache().limited_at.is_some_and(|at| self.age(at) < LIMIT_TTL);
        let most_routes = if limited { plan::MOST_ROUTES } else { self.settings.most_routes };
        RouteSettings { most_routes, ..self.settings.clone() }
    }

    /// ARM did not take the table in for a limit: keeps in mind that it has the usual one, if that was exceeded and is news.
    fn learn_limit(&self, document: &RouteTable) -> bool {
        let news =
            plan::routes_of(Some(document)).len() > plan::MOST_ROUTES && self.settings().most_routes > plan::MOST_ROUTES;
        if news {
            self.cache().limited_at = Some(self.clock.now());
        }
        news
    }

    /// What is cached carries an etag, so that writing on an old one does no harm. That there is no table has to be seen afresh.
    async fn read_for_write(&self) -> ArmResult<ObservedRouteTable> {
        let cached = self.cache().table.clone();
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
        // Forgotten first: if nobody waits for the answer any more, it is read again.
        self.forget();
        self.writes.fetch_add(1, Ordering::Relaxed);
        let condition = table.map_or(Precondition::Absent, |table| Precondition::unchanged(table.etag.as_deref()));
        let answer = self.arm.with_urgency(urgency).put(&api::ROUTE_TABLES, &self.id, condition, document).await;
        self.forget();
        let written = Some(Arc::new(answer?));
        self.cache().table = Some((written.clone(), self.clock.now()));
        Ok(written)
    }

    /// The table for a plan: not older than the cache time, and not kept.
    pub(super) async fn peek(&self) -> ArmResult<ObservedRouteTable> {
        let cached = self.cache().table.clone().filter(|(_, at)| self.age(*at) < self.settings.ttl);
        match cached {
            Some((table, _)) => Ok(table),
            None => self.fetch().await,
        }
    }

    /// What [`Self::write`] would write for `changes` if ARM took everything at once.
    pub(super) async fn plan(&self, changes: &[RouteChange], cidrs_of: &PodCidrLookup) -> ArmResult<RouteTablePlan> {
        let table = self.peek().await?;
        Ok(plan::plan(table.as_deref(), changes, &self.settings(), &|name| cidrs_of(name)))
    }

    async fn fetch(&self) -> ArmResult<ObservedRouteTable> {
        match self.arm.get(&api::ROUTE_TABLES, &self.id, &[]).await {
            Ok(table) => Ok(Some(Arc::new(table))),
            Err(error) if error.class == ArmErrorClass::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn read(&self) -> ArmResult<ObservedRouteTable> {
        let (generation, asked) = (self.cache().generation, self.clock.now());
        let table = self.fetch().await?;
        let mut cache = self.cache();
        if cache.generation == generation {
            cache.table = Some((table.clone(), asked));
        }
        Ok(table)
    }

    fn forget(&self) {
        let mut cache = self.cache();
        cache.generation += 1;
        cache.table = None;
    }

    fn cache(&self) -> MutexGuard<'_, RouteTableCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn age(&self, at: Instant) -> Duration {
        self.clock.now().saturating_duration_since(at)
    }
}

/// Somebody else wrote the table, or nobody knows whether it was written.
fn needs_reread(error: &ArmError) -> bool {
    matches!(error.class, ArmErrorClass::Conflict | ArmErrorClass::OutcomeUnknown)
}

/// A new Node waits for its route; the others do not.
fn urgency(changes: &[RouteChange]) -> Urgency {
    if changes.iter().any(|change| matches!(change, RouteChange::Set(_))) { Urgency::Change } else { Urgency::Deletion }
}

/// What ARM shows is done, whatever was sent.
fn answers(changes: &[RouteChange], refused: &[Option<String>], table: Option<&RouteTable>) -> Vec<CloudResult<()>> {
    let answer = |(change, refused): (&RouteChange, &Option<String>)| match refused {
        Some(reason) => Err(CloudError::invalid(reason.clone())),
        None if plan::is_applied_with(table, change, changes) => Ok(()),
        None => Err(CloudError::failed("ARM accepted the route table, but its response lacks this change")),
    };
    changes.iter().zip(refused).map(answer).collect()
}
