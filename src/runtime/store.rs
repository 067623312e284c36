//! Cached state of the cluster: pruned objects by key, written by one informer, read by all components.

use std::{collections::HashMap, fmt, sync::Arc};

use kube::Resource;
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::runtime::watch;

/// Namespace (empty for cluster-scoped kinds) and name. Prints as `namespace/name` or `name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    /// Returns the key of a namespaced object.
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
    /// Returns the key of a cluster-scoped object.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self::namespaced("", name)
    }
    /// Returns the key of `object`.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::namespaced(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// Status of an informer, for readiness and status pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchStatus {
    /// Whether the first list is stored.
    pub synced: bool,
    /// Error of the last list or watch; `None` after a success.
    pub error: Option<String>,
    /// Time since which the store may be outdated because there is no watch. `None` during a watch.
    pub behind_since: Option<Instant>,
    /// Time at which the list in progress last exceeded every failed list before it. `None` during a watch.
    pub progressed: Option<Instant>,
}

impl WatchStatus {
    /// Records that the server has accepted a watch, or sent a change.
    pub(super) fn mark_current(&mut self) {
        self.error = None;
        self.behind_since = None;
        self.progressed = None;
    }

    /// Records that a list or watch failed at `now`.
    pub(super) fn mark_failed(&mut self, error: String, now: Instant) {
        self.error = Some(error);
        self.behind_since.get_or_insert(now);
    }
}

/// Function that removes the fields of an object without a reader.
pub type PruneFn<K> = Arc<dyn Fn(&mut K) + Send + Sync>;

/// Numbers of requested lists, and of completed requests.
#[derive(Default)]
struct RelistRequests {
    requested: u64,
    completed: u64,
}

/// Objects by key. Clones are the same store.
pub struct InformerStore<K> {
    prune: PruneFn<K>,
    objects: Arc<RwLock<HashMap<ObjectKey, Arc<K>>>>,
    status: watch::Sender<WatchStatus>,
    relists: watch::Sender<RelistRequests>,
}

impl<K> Clone for InformerStore<K> {
    fn clone(&self) -> Self {
        Self {
            prune: Arc::clone(&self.prune),
            objects: Arc::clone(&self.objects),
            status: self.status.clone(),
            relists: self.relists.clone(),
        }
    }
}

impl<K> Default for InformerStore<K> {
    fn default() -> Self {
        Self::pruned_by(Arc::new(|_| ()))
    }
}

impl<K> InformerStore<K> {
    /// Creates an empty store whose objects are pruned by `prune`.
    pub(super) fn pruned_by(prune: PruneFn<K>) -> Self {
        let relists = watch::Sender::new(RelistRequests::default());
        Self { prune, objects: Arc::default(), status: watch::Sender::new(WatchStatus::default()), relists }
    }

    /// Returns `object` as this store would store it, for comparison with the stored object.
    pub fn pruned(&self, mut object: K) -> K {
        (self.prune)(&mut object);
        object
    }

    /// Creates a store that holds `objects` and counts as synced, for tests.
    pub fn of(objects: impl IntoIterator<Item = K>) -> Self
    where
        K: Resource,
    {
        let store = Self::default();
        objects.into_iter().for_each(|object| {
            store.insert(ObjectKey::of(&object), Arc::new(object));
        });
        store.set_status(|status| status.synced = true);
        store
    }

    /// Returns the object at `key`.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.objects.read().get(key).cloned()
    }

    /// Returns all objects, in key order so that derived results are stable.
    pub fn list(&self) -> Vec<Arc<K>> {
        let objects = self.objects.read();
        let mut pairs: Vec<_> = objects.iter().collect();
        pairs.sort_by(|a, b| a.0.cmp(b.0));
        pairs.into_iter().map(|(_, object)| Arc::clone(object)).collect()
    }

    /// Returns all keys, in order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        let objects = self.objects.read();
        let mut keys: Vec<_> = objects.keys().cloned().collect();
        keys.sort();
        keys
    }

    /// Returns how many objects satisfy the predicate, without a copy or an order of them.
    pub fn count(&self, predicate: impl Fn(&K) -> bool) -> usize {
        let objects = self.objects.read();
        objects.values().filter(|object| predicate(object)).count()
    }

    /// Returns `true` if some object satisfies the predicate.
    pub fn any(&self, predicate: impl Fn(&K) -> bool) -> bool {
        let objects = self.objects.read();
        objects.values().any(|object| predicate(object))
    }

    pub fn len(&self) -> usize {
        self.objects.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the status of the informer behind it.
    pub fn status(&self) -> WatchStatus {
        self.status.borrow().clone()
    }

    /// Resolves when the first list is stored.
    pub async fn synced(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.status.subscribe().wait_for(|status| status.synced).await;
    }

    /// Resolves with the error when an attempt to get the first list has failed.
    pub async fn first_list_failed(&self) -> String {
        let mut status = self.status.subscribe();
        let failed = status.wait_for(|status| !status.synced && status.error.is_some()).await;
        // The sender lives in `self`, so waiting cannot fail.
        failed.ok().and_then(|status| status.error.clone()).unwrap_or_default()
    }

    /// Returns the number of a newly requested list, for [`InformerStore::wait_for_relist`], which accepts it any number of
    /// times.
    ///
    /// The objects of the list are pruned by the rules of that time, so they also have fields that have got a reader since.
    pub fn request_relist(&self) -> u64 {
        let mut number = 0;
        self.relists.send_modify(|relists| {
            relists.requested += 1;
            number = relists.requested;
        });
        number
    }

    /// Resolves when the list that [`InformerStore::request_relist`] requested is in the store.
    ///
    /// The first list has the number 0, and no waiters.
    pub async fn wait_for_relist(&self, list: u64) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.relists.subscribe().wait_for(|relists| relists.completed >= list).await;
    }

    /// Returns the number of requested lists.
    pub(super) fn requested_relists(&self) -> u64 {
        self.relists.borrow().requested
    }

    /// Returns `true` if an object that the store lacks does not exist: no requested list is pending.
    ///
    /// Call it before the store is read. While a list is pending, get a missing object from the API server, or keep the
    /// resources that belong to it.
    pub fn proves_absence(&self) -> bool {
        let relists = self.relists.borrow();
        relists.completed >= relists.requested
    }

    /// Resolves when the number of requested lists exceeds `previous`.
    pub(super) async fn wait_for_relist_request(&self, previous: u64) {
        let _ = self.relists.subscribe().wait_for(|relists| relists.requested > previous).await;
    }

    /// Records that the store has a list that began after `requested` requests. Only an informer or a test calls it.
    pub fn relisted(&self, requested: u64) {
        self.relists.send_modify(|relists| relists.completed = requested);
    }

    pub(super) fn set_status(&self, change: impl FnOnce(&mut WatchStatus)) {
        self.status.send_if_modified(|status| {
            let before = status.clone();
            change(status);
            *status != before
        });
    }

    /// Stores `object` at `key`, and returns the previous object. Only an informer or a test calls it.
    pub fn insert(&self, key: ObjectKey, object: Arc<K>) -> Option<Arc<K>> {
        self.objects.write().insert(key, object)
    }

    /// Removes the object at `key`.
    pub fn remove(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.objects.write().remove(key)
    }
}
