//! What the cluster looks like, as last seen: pruned objects by key, written by one informer, read by everybody.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use kube::Resource;
use tokio::{sync::watch, time::Instant};

/// Namespace (empty for cluster-scoped kinds) and name. Prints as `namespace/name` or `name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    /// Key of a namespaced object.
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
    /// Key of a cluster-scoped object.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self::namespaced("", name)
    }
    /// Key of `object`.
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

/// How an informer is doing, for readiness and status pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchStatus {
    /// Whether the first list has been taken in.
    pub synced: bool,
    /// The last error of list or watch, while it lasts.
    pub error: Option<String>,
    /// Since when the store may be older than the cluster: nothing watches. `None` while something does.
    pub behind_since: Option<Instant>,
    /// When the list under way last brought more than any list before it that failed. `None` while something watches.
    pub progressed: Option<Instant>,
}

impl WatchStatus {
    /// The server has accepted a watch, or sent a change.
    pub(super) fn mark_current(&mut self) {
        self.error = None;
        self.behind_since = None;
        self.progressed = None;
    }

    /// A list or watch failed at `now`.
    pub(super) fn mark_failed(&mut self, error: String, now: Instant) {
        self.error = Some(error);
        self.behind_since.get_or_insert(now);
    }
}

/// Takes out of an object what nobody reads.
pub type PruneFn<K> = Arc<dyn Fn(&mut K) + Send + Sync>;

/// How often a list was asked for, and how many of these requests have been met.
#[derive(Default)]
struct RelistRequests {
    wanted: u64,
    met: u64,
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
    /// An empty store, of objects that went through `prune`.
    pub(super) fn pruned_by(prune: PruneFn<K>) -> Self {
        let relists = watch::Sender::new(RelistRequests::default());
        Self { prune, objects: Arc::default(), status: watch::Sender::new(WatchStatus::default()), relists }
    }

    /// What this store would keep of `object`, to be compared with what it has.
    pub fn as_kept(&self, mut object: K) -> K {
        (self.prune)(&mut object);
        object
    }

    /// A store that holds `objects` and counts as synced, for tests.
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

    /// The object at `key`.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// All objects, in key order so that whatever is derived from them is stable.
    pub fn list(&self) -> Vec<Arc<K>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let mut pairs: Vec<_> = objects.iter().collect();
        pairs.sort_by(|a, b| a.0.cmp(b.0));
        pairs.into_iter().map(|(_, object)| Arc::clone(object)).collect()
    }

    /// All keys, in order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let mut keys: Vec<_> = objects.keys().cloned().collect();
        keys.sort();
        keys
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How the informer behind it is doing.
    pub fn status(&self) -> WatchStatus {
        self.status.borrow().clone()
    }

    /// Resolves when the first list has been taken in.
    pub async fn synced(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.status.subscribe().wait_for(|status| status.synced).await;
    }

    /// Resolves with the error when a try to take in the first list has failed.
    pub async fn first_list_failed(&self) -> String {
        let mut status = self.status.subscribe();
        let failed = status.wait_for(|status| !status.synced && status.error.is_some()).await;
        // The sender lives in `self`, so waiting cannot fail.
        failed.ok().and_then(|status| status.error.clone()).unwrap_or_default()
    }

    /// Has the informer list all objects again, and resolves when the store has them as [`InformerStore::as_kept`] keeps them from now on.
    /// For what is read of objects has grown.
    pub async fn relist(&self) {
        self.relist_met(self.want_relist()).await;
    }

    /// Has the informer list all objects again. The answer is for [`InformerStore::relist_met`], which may be asked again and again.
    pub fn want_relist(&self) -> u64 {
        let mut mine = 0;
        self.relists.send_modify(|relists| {
            relists.wanted += 1;
            mine = relists.wanted;
        });
        mine
    }

    /// Resolves when the store has what [`InformerStore::want_relist`] asked for. The first list is number 0, which is not waited for.
    pub async fn relist_met(&self, list: u64) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.relists.subscribe().wait_for(|relists| relists.met >= list).await;
    }

    /// How many lists were asked for, and whether all of them are there.
    pub(super) fn relists_wanted(&self) -> (u64, bool) {
        let relists = self.relists.borrow();
        (relists.wanted, relists.met == relists.wanted)
    }

    /// Resolves when more lists are wanted than `known`.
    pub(super) async fn relist_wanted(&self, known: u64) {
        let _ = self.relists.subscribe().wait_for(|relists| relists.wanted > known).await;
    }

    /// A list that began when so many were wanted is in the store. Only an informer, or a test standing in for one, says so.
    pub fn relisted(&self, wanted: u64) {
        self.relists.send_modify(|relists| relists.met = wanted);
    }

    pub(super) fn set_status(&self, change: impl FnOnce(&mut WatchStatus)) {
        self.status.send_if_modified(|status| {
            let before = status.clone();
            change(status);
            *status != before
        });
    }

    /// Puts `object` at `key`; answers what was there. Only an informer, or a test standing in for one, writes.
    pub fn insert(&self, key: ObjectKey, object: Arc<K>) -> Option<Arc<K>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(key, object)
    }

    /// Takes away what is at `key`.
    pub fn remove(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(key)
    }
}
