//! Load balancers for Services, as the service controller asks for them: many calls at once become few writes.
//!
//! In: a call for each Service. Out: its addresses, when everything is as asked. `pipeline` has the stages; what they decide is in the
//! pure modules beside this one. Upstream: `pkg/provider/azure_loadbalancer.go`.

mod additional_ips;
mod admission;
mod backend_pools;
mod batch_commit;
mod claims;
mod drift;
mod in_flight;
mod interface_limit;
mod load_balancers;
mod machine_rules;
mod newcomers;
mod occupancy_metrics;
mod pipeline;
mod placement_labels;
mod plan_services;
mod planning;
mod pool_metrics;
mod pool_readiness;
mod pool_sync_state;
mod presence;
mod private_link_state;
mod private_links;
mod progress;
mod refused_labels;
mod rule_record_store;
mod security_group;
mod service_warnings;
mod shared_write;
mod stage_context;

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::{
    core::v1::{Namespace, Node, Service},
    discovery::v1::EndpointSlice,
};
use parking_lot::Mutex;

use self::{
    drift::{DriftWatch, EnsureOrigin},
    in_flight::InFlight,
    newcomers::Newcomers,
    occupancy_metrics::OccupancyMetrics,
    pipeline::{PipelineResult, ServicePipeline},
    placement_labels::PlacementLabels,
    pool_metrics::PoolMetrics,
    private_link_state::PrivateLinkState,
    progress::{PipelineProgress, PipelineStage},
    refused_labels::RefusedLabels,
    rule_record_store::RuleRecordStore,
    stage_context::StageContext,
};
use super::{
    apply::NetworkWriter,
    backend_pools::BackendPoolSyncer,
    cluster_watches::{self, ClusterWatches},
    events::COMPONENT,
    lease::{LeaseGuard, ResourceLocker},
    observe::{CacheLifetimes, NetworkObserver},
    reconcile_metrics::LoadBalancerMethod,
    service_index::ServiceIndex,
    subnet_ranges::SubnetRanges,
    zones::RegionZones,
};
use crate::providers::azure::planner::load_balancer::{
    desired::ServiceRequest, settings::LoadBalancerSettings, spec::ServiceIdentity,
};
use crate::{
    cloud_provider::{
        CloudError, CloudResult, LabelsRead, LoadBalancer, LoadBalancerStatus, ServiceDemand, ServicesPlan,
        config::ClusterNetworks, load_balancer_class::LoadBalancerClasses,
    },
    metrics::Metrics,
    providers::azure::{
        arm::{ArmClient, SendPermit, Urgency},
        config::{AzureConfig, DriftPolicy},
        inventory::Inventory,
        operation_metrics::{OperationLabels, observe_operation},
    },
    runtime::{clock::Clock, events::EventRecorder, informer::OnDemandInformer, patch::ObjectWriter, store::InformerStore},
    status::BalancersStatus,
};

/// What load balancers are built from.
pub struct LoadBalancerDeps<'a> {
    /// The configuration.
    pub config: &'a AzureConfig,
    /// `--cluster-name`.
    pub cluster: &'a str,
    /// Which Services are this manager's.
    pub classes: &'a LoadBalancerClasses,
    /// Networks of the cluster.
    pub networks: &'a ClusterNetworks,
    /// Whether the cloud is an Azure Stack.
    pub azure_stack: bool,
    /// For the subscription of the machines.
    pub compute: ArmClient,
    /// For the subscription of the network resources.
    pub network: ArmClient,
    /// Machines.
    pub inventory: Arc<Inventory>,
    /// Services of the cluster.
    pub services: InformerStore<Service>,
    /// Nodes of the cluster.
    pub nodes: InformerStore<Node>,
    /// Namespaces and EndpointSlices of the cluster, in case they are needed.
    pub on_demand: (&'a OnDemandInformer<Namespace>, &'a OnDemandInformer<EndpointSlice>),
    /// What is watched of the cluster where there are several load balancers.
    pub watches: ClusterWatches,
    /// The lease that is held while something is done.
    pub locker: ResourceLocker,
    /// Writes to the cluster.
    pub writer: ObjectWriter,
    /// Takes events.
    pub events: EventRecorder,
    /// Where operations are counted.
    pub metrics: Arc<Metrics>,
    /// Time.
    pub clock: Clock,
}

/// Load balancers on Azure.
pub struct AzureLoadBalancers {
    pipeline: ServicePipeline,
    settings: Arc<LoadBalancerSettings>,
    events: EventRecorder,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl Drop for AzureLoadBalancers {
    fn drop(&mut self) {
        self.pipeline.context.retire();
    }
}

impl AzureLoadBalancers {
    /// Nothing is sent yet.
    pub fn new(parts: LoadBalancerDeps<'_>) -> Self {
        let LoadBalancerDeps {
            config,
            cluster,
            classes,
            networks,
            azure_stack,
            compute,
            network,
            inventory,
            services,
            nodes,
            on_demand: (namespaces, endpoint_slices),
            watches,
            locker,
            writer,
            events,
            metrics,
            clock,
        } = parts;
        let events = events.for_component(COMPONENT);
        let settings = Arc::new(LoadBalancerSettings::new(config, cluster).serving(classes).within(networks));
        watches.demand(&settings, namespaces, endpoint_slices);
        let observer = NetworkObserver::new(
            (network.clone(), compute.clone()),
            Arc::clone(&settings),
            CacheLifetimes::from_config(config),
            clock,
        );
        let batch_size = usize::try_from(config.put_vmss_vm_batch_size).unwrap_or_default();
        let migrate = config.enable_migrate_to_ip_based_backend_pool_api;
        let context = StageContext {
            service_index: ServiceIndex::new(Arc::clone(&settings), services, nodes),
            writer: NetworkWriter::new(Arc::clone(&observer), (network.clone(), compute.clone())),
            inventory: Arc::clone(&inventory),
            backend_pools: BackendPoolSyncer::new(
                compute.clone(),
                network.clone(),
                inventory,
                Arc::clone(&settings),
                batch_size,
                migrate,
            ),
            locker,
            epoch: Mutex::default(),
            pool_planning: tokio::sync::Mutex::default(),
            rule_records: RuleRecordStore::new(writer, Arc::clone(&metrics), clock),
            metrics: Arc::clone(&metrics),
            pool_metrics: PoolMetrics::new(config, Arc::clone(&metrics), clock),
            watches,
            occupancy_metrics: OccupancyMetrics::new(Arc::clone(&metrics)),
            compute,
            private_links: PrivateLinkState::default(),
            subnets: SubnetRanges::new(network.clone(), &settings, clock),
            zones: RegionZones::new(network, &settings, azure_stack, clock),
            observer,
            settings: Arc::clone(&settings),
            hosts: Mutex::default(),
            unfilled_pools: Mutex::default(),
            newcomers: Newcomers::default(),
            load_balancers: InFlight::default(),
            security_group: InFlight::default(),
            deleting: Mutex::default(),
            reported_claims: Mutex::default(),
            pool_sync: Mutex::default(),
            public_ip_attempts: Mutex::default(),
            refused_labels: RefusedLabels::default(),
            progress: PipelineProgress::new(clock),
            drift: DriftWatch::new(settings.drift_policy, Arc::clone(&metrics), clock),
            placement_labels: PlacementLabels::default(),
            events: events.clone(),
        };
        Self { pipeline: ServicePipeline::new(context), settings, events, metrics, clock }
    }

    /// What is being done and why it is not done yet, for the status page.
    pub fn status(&self) -> BalancersStatus {
        let waiting = self.pipeline.waiting().into_iter();
        let context = &self.pipeline.context;
        BalancersStatus {
            unsupported: self.settings.unsupported.iter().map(|field| (*field).to_owned()).collect(),
            waiting: waiting.map(|(batch, count)| (batch.to_owned(), count)).collect(),
            unsettled: context.progress.status(),
            drift: context.drift.status(),
        }
    }

    /// What is remembered and no document tells, so that tests can compare it: of Services, of Nodes, of pools. Without what was read.
    #[cfg(feature = "sandbox")]
    pub fn remembered(&self) -> String {
        self.pipeline.context.remembered()
    }

    /// Why no load balancer is touched: they are laid out otherwise then, and whatever were done would take them apart.
    fn unsupported(&self) -> Option<String> {
        let fields = self.settings.unsupported.join(", ");
        (!fields.is_empty()).then(|| {
            format!(
                "{fields}: not supported by this version, so that no load balancer is touched; go on with the former controller, or \
                 change the provider's configuration"
            )
        })
    }

    fn require_supported(&self) -> CloudResult<()> {
        self.unsupported().map_or(Ok(()), |problem| Err(CloudError::refused(problem)))
    }

    /// Waits for the permit of a Service whose namespace has used more than its share of the writes.
    ///
    /// The Service has reserved and locked nothing yet, so that no other waits for it.
    async fn permit(&self, identity: &ServiceIdentity, urgency: Urgency) -> Option<SendPermit<'_>> {
        let context = &self.pipeline.context;
        let (subscription, namespace) = (self.settings.group.subscription(), identity.namespace());
        let services = || context.service_index.count_in(namespace);
        context.compute.enter((subscription, namespace), urgency, &services).await
    }

    /// Runs `request` under the lease of the resource group, with events about `service` for what could not be deleted.
    async fn run_request(
        &self,
        operation_name: &str,
        service: &Service,
        request: &ServiceRequest,
        urgency: Urgency,
        compared: Option<u64>,
    ) -> CloudResult<PipelineResult> {
        let (resource_group, subscription) = (self.settings.group.name(), self.settings.group.subscription());
        let source = &request.identity().key;
        let operation = OperationLabels { area: "services", request: operation_name, resource_group, subscription, source };
        let _permit = Box::pin(self.permit(request.identity(), urgency)).await;
        let work = Box::pin(async {
            let is_retry = self.pipeline.context.progress.is_unsettled(&request.identity().key);
            self.pipeline.context.progress.enter(&request.identity().key, PipelineStage::Lease);
            let guard = self.pipeline.context.hold_lease().await?;
            unless_lost(&guard, self.pipeline.run(request, urgency, compared, is_retry).await)
        });
        let result = observe_operation(&self.metrics, self.clock, operation, work).await;
        self.pipeline.context.progress.ended(&request.identity().key, result.as_ref().map(drop));
        result.inspect(|result| self.record_retained(service, result))
    }

    /// Syncs the members of pools and the rules that follow them, and removes rules of Services that do not exist any more.
    async fn sync_pools_and_rules(&self) -> CloudResult<()> {
        let context = &self.pipeline.context;
        let deleted = context.service_index.deleted_service();
        let has_services = context.service_index.has_any_service();
        let is_synced = !has_services || backend_pools::is_synced(context);
        let is_done = is_synced && (!has_services || machine_rules::due(context).is_none());
        if is_done && deleted.is_none() {
            return Ok(());
        }
        context.watches.synced().await?;
        let guard = self.pipeline.context.hold_lease().await?;
        unless_lost(&guard, self.pipeline.sync_hosts(is_synced, deleted).await)
    }

    async fn ensure(
        &self,
        operation_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
        origin: EnsureOrigin,
    ) -> CloudResult<LoadBalancerStatus> {
        self.pipeline.context.set_hosts(nodes);
        let urgency = if origin == EnsureOrigin::Hosts { Urgency::Node } else { Urgency::Change };
        let checked = self.checked_spec(service, urgency).await;
        self.record_warnings(service, checked.as_ref().ok().and_then(|(_, left_out)| left_out.as_ref()));
        let (spec, _) = checked?;
        self.record_unserved_families(service, &spec.families, nodes);
        let context = &self.pipeline.context;
        context.watches.synced().await?;
        let spec = context.with_placement_labels(service, spec);
        let request = ServiceRequest::Ensure(Arc::clone(&spec));
        let compared = context.drift.begin(&spec, origin);
        context.refused_labels.begin(&spec, origin);
        let ended = self.run_request(operation_name, service, &request, urgency, compared).await;
        let addresses = context.observer.cached_status(&spec);
        if let Ok(PipelineResult::LeftDrifted) = &ended {
            // The status may list addresses of other writers, so it counts only where Azure shows no address.
            let is_shown = addresses.len() >= spec.families.len();
            return Ok(plan_services::ingress(if is_shown { &addresses } else { &spec.status_addresses }));
        }
        if matches!(ended, Ok(PipelineResult::Done(..)) | Err(CloudError::Incomplete { .. })) {
            context.record_placement_labels(service, &spec);
        }
        if let Ok(PipelineResult::Done(kept, nodes)) = &ended {
            match kept.is_settled() {
                true => context.drift.settled(&spec, *nodes),
                false => context.drift.doubt(&spec.identity),
            }
        }
        if addresses.is_empty() {
            context.observer.invalidate_public_ips_without_address();
        }
        ended?;
        if addresses.is_empty() {
            return Err(CloudError::failed("the load balancer has no address for the Service yet"));
        }
        Ok(plan_services::ingress(&addresses))
    }
}

/// Returns `result`, or the loss of the lease if it failed after that: the caller tries again soon, and no user has to do anything.
fn unless_lost<T>(guard: &LeaseGuard, result: CloudResult<T>) -> CloudResult<T> {
    if result.is_err() {
        guard.check()?;
    }
    result
}

#[async_trait]
impl LoadBalancer for AzureLoadBalancers {
    async fn get_load_balancer(&self, _: &str, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        let work = Box::pin(self.find_status(service));
        LoadBalancerMethod::Get.observe(&self.metrics, self.clock, service, work).await
    }

    async fn ensure_load_balancer(
        &self,
        _: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus> {
        let work = Box::pin(self.ensure("ensure_loadbalancer", service, nodes, EnsureOrigin::Change));
        LoadBalancerMethod::Ensure.observe(&self.metrics, self.clock, service, work).await
    }

    async fn compare_load_balancer(
        &self,
        _: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus> {
        let work = Box::pin(self.ensure("ensure_loadbalancer", service, nodes, EnsureOrigin::Comparison));
        LoadBalancerMethod::Ensure.observe(&self.metrics, self.clock, service, work).await
    }

    async fn update_load_balancer(&self, _: &str, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<()> {
        let work = Box::pin(self.ensure("update_loadbalancer", service, nodes, EnsureOrigin::Hosts));
        LoadBalancerMethod::Update.observe(&self.metrics, self.clock, service, work).await.map(drop)
    }

    async fn sync_hosts(&self, _: &str, nodes: &[Arc<Node>]) -> CloudResult<()> {
        let context = &self.pipeline.context;
        context.set_hosts(nodes);
        context.note_nodes();
        if !self.settings.unsupported.is_empty() {
            return Ok(());
        }
        self.sync_pools_and_rules().await?;
        if self.settings.security_group.is_none() {
            return Ok(());
        }
        // The next call removes the addresses of deleted Services that this one finds.
        let observed = context.observer.cached();
        context.rule_records.refresh(observed.security_group.as_ref(), &context.service_index).await
    }

    async fn ensure_load_balancer_deleted(&self, _: &str, service: &Service) -> CloudResult<()> {
        let work = Box::pin(async {
            if self.can_skip_deletion(service).await? {
                return Ok(());
            }
            let request = self.pipeline.context.service_index.deletion_request(service);
            self.run_request("ensure_loadbalancer_deleted", service, &request, Urgency::Deletion, None).await.map(drop)
        });
        LoadBalancerMethod::Delete.observe(&self.metrics, self.clock, service, work).await
    }

    fn labels_read(&self) -> LabelsRead {
        if self.settings.moves_by_labels { cluster_watches::labels_read(&self.settings) } else { LabelsRead::default() }
    }

    async fn plan_services(&self, _: &str, demand: &ServiceDemand) -> CloudResult<ServicesPlan> {
        match self.unsupported() {
            Some(problem) => Ok(plan_services::refuse_all(demand, &problem)),
            None => plan_services::plan_services(&self.pipeline.context, demand).await,
        }
    }

    fn reverts_external_changes(&self) -> bool {
        self.settings.drift_policy == DriftPolicy::Repair
    }

    fn problem(&self) -> Option<String> {
        self.unsupported()
    }

    fn is_same_request(&self, old: &Service, new: &Service) -> bool {
        let index = &self.pipeline.context.service_index;
        index.parsed(old).is_same_request(&index.parsed(new))
    }

    fn delay(&self, service: &Service) -> Option<String> {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        super::explain::delay(&self.pipeline.context.compute.delay(namespace)?, namespace, self.clock)
    }
}
