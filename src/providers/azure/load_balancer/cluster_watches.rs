//! Watches that are needed only with several load balancers: endpoints of Services with separate pools, and the labels of
//! Namespaces that an entry selects.
//!
//! In: informers that start on demand, and the settings. Out: the Nodes with endpoints of each Service and the labels, in
//! the form that plans need, and a wait that ends when pools must follow endpoints. The process has one instance, which
//! outlives each configuration: started watches continue.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    cloud_provider::{AnnotationUse, CloudError, CloudResult, LabelsRead, ServiceListLimits},
    providers::azure::{
        config::AzureConfig,
        node::LABEL_FAULT_DOMAIN,
        planner::load_balancer::{
            annotations, entries,
            labels::{LabelMap, with_keys},
            pools::{
                endpoint_nodes::EndpointNodeIndex,
                local_pools::{LocalPools, local_services},
                nodes,
            },
            settings::LoadBalancerSettings,
            spec::{MAX_PORTS, ServiceSpec},
        },
    },
    runtime::{
        informer::{ObjectChange, OnDemandInformer},
        store::{InformerStore, ObjectKey, WatchStatus},
    },
};

/// Longest wait of a Service for the first list. After it, the controller's queue delays the retries.
const FIRST_LIST: Duration = Duration::from_secs(10);

/// Lengths of the longest lists of a Service that are accepted.
pub const SERVICE_LIST_LIMITS: ServiceListLimits =
    ServiceListLimits { source_ranges: annotations::MOST_RANGES, ports: MAX_PORTS };

/// Kinds of objects that a configuration needs to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchedKinds {
    pub namespaces: bool,
    pub endpoint_slices: bool,
}

impl WatchedKinds {
    /// Returns Namespaces if any entry selects them, and EndpointSlices if there are several load balancers.
    pub fn of(settings: &LoadBalancerSettings) -> Self {
        let selects = settings.entries.iter().any(|entry| entry.namespace_selector.is_some());
        Self { namespaces: selects, endpoint_slices: settings.has_entries() }
    }
}

/// Returns the labels that determine the load balancer of a Service.
pub fn labels_read(settings: &LoadBalancerSettings) -> LabelsRead {
    let owned = |keys: BTreeSet<&str>| keys.into_iter().map(str::to_owned).collect();
    LabelsRead {
        service: owned(entries::label_keys(&settings.entries, |entry| entry.service_selector.as_ref())),
        namespace: owned(entries::label_keys(&settings.entries, |entry| entry.namespace_selector.as_ref())),
    }
}

/// Returns the labels of Nodes that a configuration reads.
pub fn node_labels_read(config: &AzureConfig) -> BTreeSet<String> {
    let entries = entries::entries(config);
    let selected = entries::label_keys(&entries, |entry| entry.node_selector.as_ref());
    let topology = config.fault_domain_label.then_some(LABEL_FAULT_DOMAIN);
    selected.into_iter().chain(nodes::READ_LABELS).chain(topology).map(str::to_owned).collect()
}

/// Returns the labels of Services that a configuration reads.
pub fn service_labels_read(config: &AzureConfig) -> BTreeSet<String> {
    let entries = entries::entries(config);
    entries::label_keys(&entries, |entry| entry.service_selector.as_ref()).into_iter().map(str::to_owned).collect()
}

/// Returns the use of an annotation of Services in memory.
pub fn service_annotation_use(key: &str, service: Option<&Service>) -> AnnotationUse {
    annotations::use_in(key, service)
}

/// Watches of EndpointSlices and Namespaces. Clones share them.
#[derive(Clone, Default)]
pub struct ClusterWatches {
    inner: Arc<ClusterWatchState>,
}

#[derive(Default)]
struct ClusterWatchState {
    slices: OnceLock<InformerStore<EndpointSlice>>,
    namespaces: OnceLock<InformerStore<Namespace>>,
    index: Mutex<EndpointNodeIndex>,
    interval: Mutex<Duration>,
    changed: Notify,
}

impl ClusterWatches {
    /// Starts the watches that the settings need and that are not running.
    pub fn demand(
        &self,
        settings: &LoadBalancerSettings,
        namespaces: &OnDemandInformer<Namespace>,
        slices: &OnDemandInformer<EndpointSlice>,
    ) {
        let needed = WatchedKinds::of(settings);
        *self.inner.interval.lock() = settings.pool_update_interval;
        if needed.namespaces {
            self.inner.namespaces.get_or_init(|| namespaces.demand(|_| ()));
        }
        if needed.endpoint_slices {
            let observer = self.clone();
            self.inner.slices.get_or_init(|| slices.demand(move |change| observer.observe(change)));
        }
    }

    fn observe(&self, change: &ObjectChange<EndpointSlice>) {
        let now = Instant::now();
        let mut index = self.inner.index.lock();
        match change {
            ObjectChange::Added(new) => index.replace(None, Some(new), now),
            ObjectChange::Updated { old, new } => index.replace(Some(old), Some(new), now),
            ObjectChange::Deleted(old) => index.replace(Some(old), None, now),
        }
        drop(index);
        self.inner.changed.notify_one();
    }

    /// Waits for the first lists. Before them, Services would be assigned and pools filled as if the cluster were empty.
    pub async fn synced(&self) -> CloudResult<()> {
        first_list("EndpointSlices", self.inner.slices.get()).await?;
        first_list("Namespaces", self.inner.namespaces.get()).await
    }

    /// Returns the labels of all Namespaces; `None` if no entry needs them.
    pub fn namespace_labels(&self) -> Option<BTreeMap<String, LabelMap>> {
        let namespaces = self.inner.namespaces.get()?.list();
        let labels = namespaces.into_iter().map(|namespace| {
            let metadata = &namespace.metadata;
            (metadata.name.clone().unwrap_or_default(), metadata.labels.clone().unwrap_or_default())
        });
        Some(labels.collect())
    }

    /// Returns the labels of one Namespace with these keys; `None` if it is not in the store.
    pub fn labels_of_namespace(&self, name: &str, keys: &BTreeSet<&str>) -> Option<LabelMap> {
        let namespace = self.inner.namespaces.get()?.get(&ObjectKey::cluster(name))?;
        Some(with_keys(namespace.metadata.labels.as_ref(), keys))
    }

    /// Returns the separate pools of these Services, and a number that grows with each change of the members. `services`
    /// must have all Services.
    pub fn local_pools<'a>(&self, services: impl Iterator<Item = &'a ServiceSpec> + Clone) -> (LocalPools, u64) {
        let is_listed = self.inner.slices.get().is_some_and(|slices| slices.status().synced);
        if !is_listed {
            return Default::default();
        }
        let mut index = self.inner.index.lock();
        let slices = || self.inner.slices.get().map(InformerStore::list).unwrap_or_default();
        let nodes = index.nodes_of(&local_services(services.clone()), slices);
        (LocalPools::new(services, &nodes), index.publications())
    }

    /// Returns the number that [`ClusterWatches::local_pools`] would return now for the same Services.
    pub fn publications(&self) -> u64 {
        self.inner.index.lock().publications()
    }

    /// Waits until changes of endpoints have accumulated for the interval and pools must follow.
    pub async fn endpoints_moved(&self) {
        loop {
            let interval = *self.inner.interval.lock();
            let due = self.inner.index.lock().due(interval);
            match due {
                None => self.inner.changed.notified().await,
                Some(due) => {
                    sleep_until(due).await;
                    if self.inner.index.lock().publish() {
                        return;
                    }
                }
            }
        }
    }
}

async fn first_list<K>(what: &str, store: Option<&InformerStore<K>>) -> CloudResult<()> {
    let Some(store) = store else { return Ok(()) };
    timeout(FIRST_LIST, store.synced()).await.map_err(|_| {
        let WatchStatus { error, .. } = store.status();
        let why = error.unwrap_or_else(|| "no answer yet".to_owned());
        CloudError::failed(format!("the cluster's {what} have not been listed, which several load balancers need: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::providers::azure::config::decode;

    fn watching(config: &str) -> WatchedKinds {
        WatchedKinds::of(&LoadBalancerSettings::new(&decode(config).config, "kubernetes"))
    }

    #[test]
    fn a_kind_is_watched_only_where_the_configuration_needs_it() {
        let list = |fields: &str| {
            format!("multipleStandardLoadBalancerConfigurations: [{{name: kubernetes, primaryVMSet: a{fields}}}]")
        };
        let watched = |namespaces, endpoint_slices| WatchedKinds { namespaces, endpoint_slices };
        assert_eq!(watching("{}"), watched(false, false));
        assert_eq!(watching(&list("")), watched(false, true));
        assert_eq!(watching(&list(", serviceLabelSelector: {matchLabels: {a: b}}")), watched(false, true));
        assert_eq!(watching(&list(", serviceNamespaceSelector: {}")), watched(true, true));
    }

    #[tokio::test]
    async fn only_labels_of_the_namespace_that_an_entry_selects_by_are_told() {
        let selecting = "multipleStandardLoadBalancerConfigurations: [{name: kubernetes, primaryVMSet: a, \
                         serviceNamespaceSelector: {matchLabels: {team: x}}}]";
        let settings = LoadBalancerSettings::new(&decode(selecting).config, "kubernetes");
        let namespace = json!({"metadata": {"name": "default", "labels": {"team": "x", "other": "y"}}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        let watches = ClusterWatches::default();
        watches.demand(&settings, &OnDemandInformer::of([namespace]), &OnDemandInformer::of([]));
        let read = entries::label_keys(&settings.entries, |entry| entry.namespace_selector.as_ref());
        assert_eq!(watches.labels_of_namespace("default", &read), Some(LabelMap::from([("team".into(), "x".into())])));
        assert_eq!(watches.labels_of_namespace("elsewhere", &read), None);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_placed_before_the_first_list() {
        let store = InformerStore::<Namespace>::default();
        let error = first_list("Namespaces", Some(&store)).await.unwrap_err();
        assert!(error.to_string().contains("Namespaces have not been listed"), "{error}");
        assert_eq!(first_list::<Namespace>("Namespaces", None).await, Ok(()));
        assert_eq!(first_list("Namespaces", Some(&InformerStore::<Namespace>::of([]))).await, Ok(()));
    }
}
