//! Lists and watches each kind once, into a store of pruned objects.
//!
//! In: a watch of the API server. Out: an [`InformerStore`] to read from, and [`ObjectChange`]s with old and new object for
//! each subscriber from before the start. Survives disconnects, restarts, expired resource versions, and an API server whose
//! versions go back because its etcd was restored. An object that cannot be decoded is counted, logged and skipped, so that
//! one bad object never stops a watch. Fields without a reader are removed in two steps: large fields before an object is
//! decoded (`json_filter`), the rest right after. No server can block it forever: the limits are those of
//! `client::deadline`, and [`WatchStatus`] reports since when the store may be stale.

mod annotation_digest;
mod json_filter;
mod lenient_object;
mod on_demand;
mod unread_fields;
mod watch_client;

use std::{
    collections::BTreeMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Resource,
    api::ApiResource,
    client::Body,
    core::Status,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;

use tokio::time::Instant;
use tower::BoxError;

pub use annotation_digest::{AnnotationDigest, UNREAD_ANNOTATIONS};
pub use on_demand::OnDemandInformer;
pub use unread_fields::{AnnotationUse, MAX_SAMPLED_ANNOTATIONS, UnreadFields};

use self::{json_filter::without_unread, lenient_object::RawObject, watch_client::watch_client};
use super::{
    backoff::{self, ExponentialBackoff},
    client::with_causes,
    clock::Clock,
    shutdown::Shutdown,
    store::{InformerStore, ObjectKey, PruneFn, WatchStatus},
};
use crate::metrics::Metrics;

/// Backoff after failed lists and watches. It doubles with each failure, because a list of a large cluster is the most
/// expensive request. As in client-go (`tools/cache/reflector.go`).
const RELIST_PAUSE: ExponentialBackoff = ExponentialBackoff::doubling(Duration::from_millis(800), Duration::from_secs(30));
/// Random share of a delay.
const RELIST_JITTER: f64 = 0.25;
/// Time since the last delay after which a failure starts another series. It is longer than a slow list that fails.
const BACKOFF_RESET_GAP: Duration = Duration::from_secs(120);
/// Time since the last delay after which a change ends the series, because the watch works.
const STEADY_WATCH: Duration = Duration::from_secs(10);

/// Change of an object in the store.
#[derive(Debug, Clone)]
pub enum ObjectChange<K> {
    /// The object is new.
    Added(Arc<K>),
    /// The object differs from the stored one.
    Updated { old: Arc<K>, new: Arc<K> },
    /// The object was deleted; this is its last cached state.
    Deleted(Arc<K>),
}

impl<K> ObjectChange<K> {
    /// Returns the current object, or the last cached state of a deleted object.
    pub fn object(&self) -> &Arc<K> {
        match self {
            ObjectChange::Added(object) | ObjectChange::Updated { new: object, .. } | ObjectChange::Deleted(object) => {
                object
            }
        }
    }
}

/// Callback for each change, called after the store is updated. Must not block: it runs in the informer's task.
pub type ChangeHandler<K> = Box<dyn Fn(&ObjectChange<K>) + Send + Sync>;

/// Informer that has not started. Handlers are added before [`Informer::start`] consumes it.
pub struct Informer<K> {
    store: InformerStore<K>,
    handlers: Vec<ChangeHandler<K>>,
    unread: UnreadFields,
    watch_config: watcher::Config,
    clock: Clock,
}

impl<K> Informer<K>
where
    K: Resource<DynamicType = ()> + Clone + PartialEq + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
{
    /// Creates an informer that stores objects after `prune` has removed unread fields.
    ///
    /// `metadata.managedFields` is always removed.
    pub fn new(prune: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        let prune: PruneFn<K> = Arc::new(prune);
        Self {
            store: InformerStore::pruned_by(prune),
            handlers: Vec::new(),
            unread: UnreadFields::default(),
            watch_config: watcher::Config::default(),
            clock: Clock::default(),
        }
    }

    /// Creates an informer of the single object `name`.
    pub fn for_object(name: &str, prune: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        let watched = watcher::Config::default().fields(&format!("metadata.name={name}"));
        Self { watch_config: watched, ..Self::new(prune) }
    }

    /// Creates an informer of the objects that the label `selector` selects; an object that it no longer selects is
    /// [`ObjectChange::Deleted`].
    pub fn with_label_selector(selector: Option<&str>, prune: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        let watched = selector.iter().fold(watcher::Config::default(), |watched, selector| watched.labels(selector));
        Self { watch_config: watched, ..Self::new(prune) }
    }

    /// Takes the jitter of its pauses from `clock` instead of the system's.
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Removes these fields before an object is decoded: the large and the numerous fields that `prune` would remove.
    pub fn without(self, unread: UnreadFields) -> Self {
        Self { unread, ..self }
    }

    /// Returns a client whose responses lack the fields that this informer omits, for single requests.
    pub fn filtered(&self, client: kube::Client) -> kube::Client {
        let unread = self.unread.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (client, unread) = (client.clone(), unread.clone());
            async move { Ok::<_, BoxError>(without_unread(client.send(request).await?, unread, |_| ())) }
        });
        kube::Client::new(service, "default")
    }

    /// Returns the store, which fills after the start.
    pub fn store(&self) -> InformerStore<K> {
        self.store.clone()
    }

    /// Adds a handler. Handlers run in the order they were added.
    pub fn subscribe(&mut self, handler: impl Fn(&ObjectChange<K>) + Send + Sync + 'static) {
        self.handlers.push(Box::new(handler));
    }

    /// Lists and watches all objects of the kind until `shutdown` begins.
    pub fn start(self, client: kube::Client, shutdown: &Shutdown, metrics: Arc<Metrics>) {
        let token = shutdown.clone();
        let resource = K::plural(&()).into_owned();
        self.store.set_status(|status| status.behind_since = Some(Instant::now()));
        let unread = self.unread.clone();
        let client = watch_client(client, self.store.clone(), unread, resource.clone(), Arc::clone(&metrics));
        let api = Api::all_with(client, &ApiResource::erase::<K>(&()));
        let feed = Reflector {
            informer: self,
            list_in_progress: None,
            relist_requests: 0,
            longest_failed_list: 0,
            resource,
            metrics,
        };
        shutdown.spawn(async move { token.run_until_begun(feed.run(api)).await });
    }

    /// Calls the handlers. A panic of one ends neither the informer nor other handlers.
    fn dispatch(&self, change: &ObjectChange<K>) {
        for handler in &self.handlers {
            if catch_unwind(AssertUnwindSafe(|| handler(change))).is_err() {
                tracing::error!(key = %ObjectKey::of(change.object().as_ref()), "a handler panicked; it misses one change");
            }
        }
    }

    fn apply(&self, object: Arc<K>) {
        let key = ObjectKey::of(object.as_ref());
        match self.store.insert(key, Arc::clone(&object)) {
            None => self.dispatch(&ObjectChange::Added(object)),
            // Equal versions are not sufficient: after a restore of etcd, versions are used again.
            Some(old) if old == object => {}
            Some(old) => self.dispatch(&ObjectChange::Updated { old, new: object }),
        }
    }

    fn delete(&self, key: &ObjectKey) {
        if let Some(old) = self.store.remove(key) {
            self.dispatch(&ObjectChange::Deleted(old));
        }
    }
}

/// Running informer, which turns watch events into changes.
struct Reflector<K> {
    informer: Informer<K>,
    /// Objects of the list in progress.
    list_in_progress: Option<BTreeMap<ObjectKey, Arc<K>>>,
    /// Number of requested lists when the last one began.
    relist_requests: u64,
    /// Largest number of objects in a failed list since the last complete one.
    longest_failed_list: usize,
    resource: String,
    metrics: Arc<Metrics>,
}

impl<K> Reflector<K>
where
    K: Resource<DynamicType = ()> + Clone + PartialEq + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
{
    async fn run(mut self, api: Api<RawObject>) {
        let mut series = RelistBackoff::default();
        loop {
            let watch = watcher::watcher(api.clone(), self.informer.watch_config.clone());
            let mut watch = watch.map_err(|error| WatchFailure::of(&error)).boxed();
            loop {
                let (store, begun) = (self.informer.store.clone(), self.relist_requests);
                let event = tokio::select! {
                    biased;
                    event = watch.next() => event,
                    () = store.wait_for_relist_request(begun) => break,
                };
                let Some(event) = event else { break };
                match event {
                    Ok(event) => {
                        if matches!(event, Event::Apply(_) | Event::Delete(_)) {
                            series.reset_if_steady(Instant::now());
                        }
                        self.handle_event(event);
                    }
                    Err(failure) => {
                        let expired = failure.expired;
                        self.record_failure(failure);
                        // The jitter spreads the requests of replicas.
                        let pause = series.next_pause(Instant::now());
                        tokio::time::sleep(backoff::shortened(
                            pause,
                            RELIST_JITTER,
                            self.informer.clock.chance(&self.resource),
                        ))
                        .await;
                        if expired {
                            break;
                        }
                    }
                }
            }
        }
    }

    fn record_failure(&self, failure: WatchFailure) {
        let WatchFailure { operation, message, expired } = failure;
        if expired {
            // Objects that were created meanwhile are missing until the list has ended.
            self.informer.store.request_relist();
        }
        tracing::warn!(resource = self.resource, operation, error = message, "list or watch failed, retrying");
        self.metrics.informer_restarts_total.with_label_values(&[&self.resource, operation]).inc();
        self.informer.store.set_status(|status| status.mark_failed(message, Instant::now()));
    }

    fn handle_event(&mut self, event: Event<RawObject>) {
        match event {
            Event::Init => {
                self.list_in_progress = Some(BTreeMap::new());
                self.relist_requests = self.informer.store.requested_relists();
            }
            Event::InitApply(object) => {
                let accepted = self.decode_and_prune(&object);
                if let (Some((key, object)), Some(relisted)) = (accepted, self.list_in_progress.as_mut()) {
                    // An unchanged object shares the memory of the stored one.
                    let cached = self.informer.store.get(&key).filter(|cached| *cached == object);
                    relisted.insert(key, cached.unwrap_or(object));
                    // A list that always fails at the same page makes no progress.
                    if relisted.len() > self.longest_failed_list {
                        self.longest_failed_list = relisted.len();
                        self.informer.store.set_status(|status| status.progressed = Some(Instant::now()));
                    }
                }
            }
            Event::InitDone => self.replace_store(),
            Event::Apply(object) => {
                if let Some((_, object)) = self.decode_and_prune(&object) {
                    self.informer.apply(object);
                }
                self.informer.store.set_status(WatchStatus::mark_current);
            }
            Event::Delete(object) => {
                self.informer.delete(&ObjectKey::of(&object));
                self.informer.store.set_status(WatchStatus::mark_current);
            }
        }
        let count = u32::try_from(self.informer.store.len()).unwrap_or(u32::MAX);
        self.metrics.informer_objects.with_label_values(&[&self.resource]).set(f64::from(count));
    }

    fn replace_store(&mut self) {
        self.longest_failed_list = 0;
        let relisted = self.list_in_progress.take().unwrap_or_default();
        let removed: Vec<_> = self.informer.store.keys().into_iter().filter(|key| !relisted.contains_key(key)).collect();
        removed.iter().for_each(|key| self.informer.delete(key));
        relisted.into_values().for_each(|object| self.informer.apply(object));
        self.informer.store.relisted(self.relist_requests);
        self.informer.store.set_status(|status| {
            status.synced = true;
            status.mark_current();
        });
    }

    /// Decodes and prunes an object. An invalid object is counted, and the stored one is kept.
    fn decode_and_prune(&self, raw: &RawObject) -> Option<(ObjectKey, Arc<K>)> {
        let key = ObjectKey::of(raw);
        match raw.decode() {
            Ok(mut object) => {
                object = self.informer.store.pruned(object);
                drop_slack(object.meta_mut());
                Some((key, Arc::new(object)))
            }
            Err(error) => {
                tracing::error!(resource = self.resource, %key, error, "cannot decode an object, skipped");
                self.metrics.informer_malformed_total.with_label_values(&[&self.resource]).inc();
                let last_seen = self.informer.store.get(&key)?;
                Some((key, last_seen))
            }
        }
    }
}

/// Rebuilds maps that were filled key by key, which have unused capacity.
fn drop_slack(metadata: &mut ObjectMeta) {
    for map in [&mut metadata.labels, &mut metadata.annotations].into_iter().flatten() {
        *map = std::mem::take(map).into_iter().collect();
    }
}

/// Failure of a list or watch.
struct WatchFailure {
    /// Name of the operation, as in the metric.
    operation: &'static str,
    message: String,
    /// Whether the server no longer has the version, or does not have it yet.
    ///
    /// kube's watcher repeats such a watch forever; only a new watcher lists again.
    expired: bool,
}

impl WatchFailure {
    fn of(error: &watcher::Error) -> Self {
        let (operation, status) = match error {
            watcher::Error::InitialListFailed(_) | watcher::Error::NoResourceVersion => ("list", None),
            watcher::Error::WatchStartFailed(kube::Error::Api(status)) => ("watch", Some(status)),
            watcher::Error::WatchStartFailed(_) => ("watch", None),
            watcher::Error::WatchFailed(kube::Error::Api(status)) | watcher::Error::WatchError(status) => {
                ("stream", Some(status))
            }
            watcher::Error::WatchFailed(_) => ("stream", None),
        };
        Self { operation, expired: status.is_some_and(|status| lacks_version(status)), message: with_causes(error) }
    }
}

/// Returns `true` if the server has forgotten the version of a watch, or has not reached it: its etcd was restored from a
/// backup.
///
/// Upstream: apimachinery `pkg/apis/meta/v1`, `CauseTypeResourceVersionTooLarge`.
fn lacks_version(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 410 || causes.any(|cause| cause.reason == "ResourceVersionTooLarge")
}

/// End and length of the last delay after failures in a row. An accepted list or watch does not reset it, because the next
/// request may fail again at once.
#[derive(Default)]
struct RelistBackoff(Option<(Instant, Duration)>);

impl RelistBackoff {
    /// Returns the delay after a failure at `now`, and records it.
    fn next_pause(&mut self, now: Instant) -> Duration {
        let last = self.0.filter(|(end, _)| now.saturating_duration_since(*end) < BACKOFF_RESET_GAP);
        let pause = RELIST_PAUSE.after(last.map(|(_, pause)| pause));
        self.0 = Some((now + pause, pause));
        pause
    }

    /// Resets the backoff at a change at `now`, if no failure was recent.
    fn reset_if_steady(&mut self, now: Instant) {
        self.0 = self.0.filter(|(end, _)| now.saturating_duration_since(*end) < STEADY_WATCH);
    }
}

#[cfg(test)]
mod tests;
