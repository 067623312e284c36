//! Informer that lists and watches only after the first demand, because most clusters do not need the objects.
//!
//! In: an [`Informer`] with its subscribers, and the first call of [`OnDemandInformer::demand`]. Out: the store, which fills
//! from then on. It runs until the process ends, because a component may need it again after a change of the configuration.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use kube::Resource;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::{Informer, ObjectChange};
use crate::{
    metrics::Metrics,
    runtime::{
        shutdown::Shutdown,
        store::{InformerStore, WatchStatus},
    },
};

/// Function that starts the informer with an additional subscriber.
type Starter<K> = Box<dyn FnOnce(Box<dyn Fn(&ObjectChange<K>) + Send + Sync>) + Send>;

/// Informer that starts on demand. Clones share its state.
pub struct OnDemandInformer<K> {
    inner: Arc<OnDemandState<K>>,
}

struct OnDemandState<K> {
    store: InformerStore<K>,
    /// Starter of the informer; `None` if it runs, or if there is no informer.
    starter: Mutex<Option<Starter<K>>>,
    demanded: OnceLock<()>,
}

impl<K> Clone for OnDemandInformer<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

/// Without an informer, the store remains empty and is never synced.
impl<K> Default for OnDemandInformer<K> {
    fn default() -> Self {
        Self::over(InformerStore::default(), None)
    }
}

impl<K> OnDemandInformer<K> {
    fn over(store: InformerStore<K>, starter: Option<Starter<K>>) -> Self {
        Self { inner: Arc::new(OnDemandState { store, starter: Mutex::new(starter), demanded: OnceLock::new() }) }
    }

    /// Starts the informer at the first call, and returns the store, which fills from then on.
    ///
    /// `handler` is called for changes only if this is the first call.
    pub fn demand(&self, handler: impl Fn(&ObjectChange<K>) + Send + Sync + 'static) -> InformerStore<K> {
        let _ = self.inner.demanded.set(());
        let starter = self.inner.starter.lock().take();
        if let Some(start) = starter {
            start(Box::new(handler));
        }
        self.inner.store.clone()
    }

    /// Returns the status of the watch and the number of objects; `None` before the first demand.
    pub fn status(&self) -> Option<(WatchStatus, usize)> {
        self.inner.demanded.get().map(|()| (self.inner.store.status(), self.inner.store.len()))
    }

    /// Returns the store, which is empty before the first demand.
    pub fn store(&self) -> InformerStore<K> {
        self.inner.store.clone()
    }
}

impl<K> OnDemandInformer<K>
where
    K: Resource<DynamicType = ()> + Clone + PartialEq + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
{
    /// Wraps `informer`, which starts at the first demand.
    pub fn new(informer: Informer<K>, client: kube::Client, shutdown: &Shutdown, metrics: Arc<Metrics>) -> Self {
        let (store, shutdown) = (informer.store(), shutdown.clone());
        let start: Starter<K> = Box::new(move |handler| {
            let mut informer = informer;
            informer.subscribe(handler);
            informer.start(client, &shutdown, metrics);
        });
        Self::over(store, Some(start))
    }

    /// Creates an informer over existing objects, for tests.
    pub fn of(objects: impl IntoIterator<Item = K>) -> Self {
        Self::over(InformerStore::of(objects), None)
    }
}

#[cfg(all(test, feature = "sandbox"))]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Namespace;

    use super::*;
    use crate::{runtime::clock::Clock, sandbox::api_server::ApiServer};

    #[tokio::test(start_paused = true)]
    async fn lists_start_with_the_first_demand() {
        let server = ApiServer::new(Clock::manual("2026-01-01T00:00:00Z".parse().unwrap()));
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("shop".into());
        server.create(&namespace);
        let (shutdown, seen) = (Shutdown::new(), Arc::new(Mutex::new(Vec::new())));
        let metrics = Arc::new(Metrics::new().unwrap());
        let informer = OnDemandInformer::new(Informer::<Namespace>::new(|_| ()), server.client(), &shutdown, metrics);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((informer.status(), informer.store().len()), (None, 0));

        let observed = Arc::clone(&seen);
        let store = informer.demand(move |change| observed.lock().push(change.object().metadata.name.clone()));
        informer.demand(|_| unreachable!("the informer already runs")).synced().await;
        assert!(seen.lock().contains(&Some("shop".to_owned())));
        assert!(informer.status().is_some_and(|(status, objects)| status.synced && objects == store.len()));
    }
}
