//! What every stage works with: settings, who there is, what there is, and who writes.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Service};
use parking_lot::Mutex;

use super::{
    drift::{DriftVerdict, DriftWatch},
    in_flight::InFlight,
    newcomers::Newcomers,
    occupancy_metrics::OccupancyMetrics,
    placement_labels::PlacementLabels,
    pool_metrics::PoolMetrics,
    pool_sync_state::PoolSyncState,
    private_link_state::PrivateLinkState,
    progress::{PipelineProgress, PipelineStage},
    refused_labels::RefusedLabels,
    rule_record_store::RuleRecordStore,
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    metrics::Metrics,
    providers::azure::{
        arm::{ArmClient, Urgency},
        config::LoadBalancerSku,
        inventory::Inventory,
        load_balancer::{
            apply::NetworkWriter,
            backend_pools::{BackendPoolSyncer, vm_sets},
            cluster_watches::ClusterWatches,
            events::{self, ArmCallKind},
            explain::cloud_error,
            lease::{LeaseGuard, ResourceLocker},
            observe::{NetworkCacheKey, NetworkObserver, NetworkQuery, NetworkReadFailure},
            service_index::ServiceIndex,
            subnet_ranges::SubnetRanges,
            zones::RegionZones,
        },
        model::{ArmError, ArmResult, ResourceId, api},
        planner::load_balancer::{
            desired::ServiceRequest,
            drift::findings::DriftedDocument,
            entries::{LoadBalancerEntry, label_keys},
            observed::ObservedNetwork,
            plan::{NetworkReads, print::PlannedChange},
            pools::{claims::ReportedClaims, local_pools::LocalPools},
            rule_memory::ParsedService,
            settings::LoadBalancerSettings,
            spec::{ServiceIdentity, ServiceRefusal, ServiceSpec},
        },
    },
    runtime::events::{EventRecorder, RecordedEvent},
};

/// See the module.
pub(super) struct StageContext {
    pub(super) settings: Arc<LoadBalancerSettings>,
    pub(super) service_index: ServiceIndex,
    pub(super) observer: Arc<NetworkObserver>,
    pub(super) writer: NetworkWriter,
    /// Which destinations of the security group are whose, for the next process.
    pub(super) rule_records: RuleRecordStore,
    pub(super) backend_pools: BackendPoolSyncer,
    /// Held while members of pools are planned, until their writes count as in flight: no plan must remove what another one adds.
    pub(super) pool_planning: tokio::sync::Mutex<()>,
    pub(super) metrics: Arc<Metrics>,
    /// The lease that is held while something is done.
    pub(super) locker: ResourceLocker,
    /// In which epoch of the lease the documents were read.
    pub(super) epoch: Mutex<Option<u64>>,
    pub(super) pool_metrics: PoolMetrics,
    pub(super) occupancy_metrics: OccupancyMetrics,
    /// For the subscription of the machines.
    pub(super) compute: ArmClient,
    pub(super) private_links: PrivateLinkState,
    pub(super) zones: RegionZones,
    pub(super) subnets: SubnetRanges,
    pub(super) inventory: Arc<Inventory>,
    pub(super) watches: ClusterWatches,
    /// The Nodes that were to be behind load balancers when somebody last said so.
    pub(super) hosts: Mutex<Option<Arc<[Arc<Node>]>>>,
    pub(super) events: EventRecorder,
    /// Pools that were made and not filled yet.
    pub(super) unfilled_pools: Mutex<BTreeSet<ResourceId>>,
    /// Services on their way to load balancers that do not exist yet.
    pub(super) newcomers: Newcomers,
    /// Load balancers that a batch writes, with its Services: batches may overlap.
    pub(super) load_balancers: InFlight,
    /// The security group that a batch writes, with its Services.
    pub(super) security_group: InFlight,
    /// Load balancers that are about to be deleted.
    pub(super) deleting: Mutex<BTreeSet<ResourceId>>,
    /// Nodes that claim another Node's machine, as far as events report them.
    pub(super) reported_claims: Mutex<ReportedClaims>,
    /// Whether the pools are where they have to be.
    pub(super) pool_sync: Mutex<PoolSyncState>,
    /// Services for which this process has sent a public IP to ARM, whatever came of it.
    pub(super) public_ip_attempts: Mutex<BTreeSet<ServiceIdentity>>,
    /// DNS labels that ARM has refused.
    pub(super) refused_labels: RefusedLabels,
    /// Where each Service is on its way.
    pub(super) progress: PipelineProgress,
    /// What was right for each Service.
    pub(super) drift: DriftWatch,
    /// The labels by which Services were placed.
    pub(super) placement_labels: PlacementLabels,
}

/// What one round plans on.
#[derive(Clone)]
pub(super) struct StageInput {
    /// What there is.
    pub(super) observed: Arc<ObservedNetwork>,
    /// The Services that do not ask.
    pub(super) others: Vec<ParsedService>,
    /// What was read of the network, and what could not be.
    pub(super) reads: NetworkReads,
}

impl StageInput {
    /// What the others ask for or have.
    pub(super) fn specs(&self) -> Vec<Arc<ServiceSpec>> {
        self.others.iter().map(|claim| Arc::clone(claim.spec())).collect()
    }
}

impl StageContext {
    pub(super) async fn refresh_zones(&self, urgency: Urgency) -> ArmResult<()> {
        let zones = self.zones.zones(urgency).await?;
        self.observer.update(|known| known.zones == zones, |known| known.zones.clone_from(&zones));
        Ok(())
    }

    /// Reads what is missing, doubted or too old. `informed`: whose Services get an event when the load balancers cannot be listed.
    pub(super) async fn observe(
        &self,
        query: &NetworkQuery,
        informed: &[ServiceRequest],
        urgency: Urgency,
    ) -> CloudResult<(Arc<ObservedNetwork>, Vec<NetworkReadFailure>)> {
        if self.settings.sku == LoadBalancerSku::Basic {
            let vm_sets = vm_sets(&self.inventory, &self.service_index.nodes()).await;
            self.observer.update(|known| known.vm_sets == vm_sets, |known| known.vm_sets.clone_from(&vm_sets));
        }
        if let Some(labels) = self.watches.namespace_labels() {
            let is_known = |known: &ObservedNetwork| known.namespace_labels == labels;
            self.observer.update(is_known, |known| known.namespace_labels.clone_from(&labels));
        }
        let seen = self.observer.observe(query, urgency).await;
        if let Ok((observed, _)) = &seen {
            self.occupancy_metrics.note(observed, &self.settings);
        }
        seen.map_err(|error| {
            if error.request.ends_with(api::LOAD_BALANCERS.resource_type) {
                self.record_failed_call(informed, ArmCallKind::ListLoadBalancers, &error);
            }
            cloud_error("read the load balancers, public IPs and the security group", error)
        })
    }

    /// Tells those who ask that a request to ARM has failed.
    pub(super) fn record_failed_call(&self, requests: &[ServiceRequest], call: ArmCallKind, error: &ArmError) {
        for service in requests.iter().filter_map(|request| self.service_index.service(request.identity())) {
            self.events.record(events::call_failed(&service, call, error));
        }
    }

    /// The pools that Services have for themselves, and the count of changes of who is in them.
    pub(super) fn local_pools(&self) -> (LocalPools, u64) {
        let services = self.service_index.managed();
        self.watches.local_pools(services.iter().map(|service| service.spec().as_ref()))
    }

    /// Tells a Service that its own back-end pool is not as it has to be.
    pub(super) fn record_failed_pool(&self, service: &ServiceIdentity, error: &ArmError) {
        if let Some(service) = self.service_index.service(service) {
            self.events.record(events::call_failed(&service, ArmCallKind::UpdateBackendPool, error));
        }
    }

    /// Tells what is about to be written for these Services, or why nothing is, in the words of the plan: the log and the status page.
    /// Refusals also end as errors, which the queue logs.
    pub(super) fn announce<'a>(&self, change: PlannedChange<'_>, services: impl IntoIterator<Item = &'a ServiceIdentity>) {
        let sentence: Arc<str> = change.to_string().into();
        match change.is_written() {
            true => tracing::info!(change = %sentence, "writing"),
            false => tracing::debug!(change = %sentence, "not writing"),
        }
        let stage = PipelineStage::of_write(&change);
        self.progress.planned(services.into_iter().map(|who| who.key.as_str()), stage, &sentence);
    }

    /// Tells a Service what somebody else changed of it, and answers what to do.
    pub(super) fn judge_drift(&self, who: &ServiceIdentity, documents: Vec<DriftedDocument>) -> DriftVerdict {
        let verdict = self.drift.judge(who, documents);
        let event = match &verdict {
            DriftVerdict::Repair(what) | DriftVerdict::Report(what) => Some((events::drifted as DriftEvent, what)),
            DriftVerdict::Delay(Some(what)) => Some((events::repair_delayed as DriftEvent, what)),
            DriftVerdict::Right | DriftVerdict::Delay(None) => None,
        };
        if let Some((event, what)) = event {
            tracing::warn!(service = %who.key, detail = what, "found drift");
            self.service_index.service(who).into_iter().for_each(|service| self.events.record(event(&service, what)));
        }
        verdict
    }

    /// Holds the lease. What was read before somebody else held it, or by a standby before it ever held it, is read again.
    pub(super) async fn hold_lease(&self) -> CloudResult<LeaseGuard> {
        let held = self.locker.hold().await?;
        let mut epoch = self.epoch.lock();
        if epoch.replace(held.epoch()) != Some(held.epoch()) {
            self.observer.invalidate(NetworkCacheKey::LoadBalancers);
            for group in &self.observer.cached().private_links.groups {
                self.observer.invalidate(NetworkCacheKey::PrivateLinks(group.clone()));
            }
        }
        Ok(held)
    }

    /// Lets no plan of members follow another one: a session with another configuration goes on.
    pub(super) fn retire(&self) {
        self.pool_sync.lock().is_retired = true;
    }

    pub(super) fn set_hosts(&self, nodes: &[Arc<Node>]) {
        *self.hosts.lock() = Some(nodes.into());
    }

    /// Who is to be behind load balancers; `None`: nobody has said yet.
    pub(super) fn hosts(&self) -> Option<Arc<[Arc<Node>]>> {
        self.hosts.lock().clone()
    }

    /// Returns `spec` with the labels that place the Service.
    pub(super) fn with_placement_labels(&self, service: &Service, spec: Arc<ServiceSpec>) -> Arc<ServiceSpec> {
        if !self.selects_services() {
            return spec;
        }
        let keys = label_keys(&self.settings.entries, |entry| entry.namespace_selector.as_ref());
        let namespace_labels = self.watches.labels_of_namespace(spec.namespace(), &keys);
        let mut placed = ServiceSpec { namespace_labels, ..ServiceSpec::clone(&spec) };
        self.placement_labels.apply(service, &mut placed);
        Arc::new(placed)
    }

    /// Records that a Service is where the labels of `spec` place it.
    pub(super) fn record_placement_labels(&self, service: &Service, spec: &ServiceSpec) {
        if self.selects_services() && !self.settings.moves_by_labels {
            self.placement_labels.record(service, spec);
        }
    }

    /// What is remembered and no document tells.
    #[cfg(feature = "sandbox")]
    pub(super) fn remembered(&self) -> String {
        let pools = self.backend_pools.memory();
        let sync = self.pool_sync.lock().synced;
        let (unfilled, attempts) = (self.unfilled_pools.lock().clone(), self.public_ip_attempts.lock().clone());
        let progress = self.progress.status();
        format!("{:#?}\n{pools:#?}\n{sync:?}\n{unfilled:?}\n{attempts:?}\n{progress:#?}", self.service_index)
    }

    fn selects_services(&self) -> bool {
        self.settings.entries.iter().any(LoadBalancerEntry::has_selector)
    }
}

type DriftEvent = fn(&Service, &str) -> RecordedEvent;

/// What a user has to change, here or at another Service or in Azure: it is tried again with back-off.
pub(super) fn refusal_error(refusal: &ServiceRefusal) -> CloudError {
    CloudError::failed(refusal.to_string())
}
