//! What every stage works with: settings, who there is, what there is, and who writes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::{Node, Service};

use super::{
    drift::{DriftVerdict, DriftWatch},
    newcomers::Newcomers,
    occupancy_metrics::OccupancyMetrics,
    pool_metrics::PoolMetrics,
    pool_sync_state::PoolSyncState,
    private_link_state::PrivateLinkState,
    progress::{PipelineProgress, PipelineStage},
    rule_record_store::RuleRecordStore,
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::{ArmClient, ArmError, ArmErrorClass, ResourceId, Urgency, api, spelling},
        config::LoadBalancerSku,
        inventory::Inventory,
        load_balancer::{
            apply::NetworkWriter,
            backend_pools::{BackendPoolSyncer, vm_sets},
            cluster_watches::ClusterWatches,
            events::{self, ArmCallKind},
            explain::cloud_error,
            observe::{ExpectedDocument, NetworkCacheKey, NetworkObserver, NetworkQuery, NetworkReadFailure},
            service_index::ServiceIndex,
            subnet_ranges::SubnetRanges,
            zones::RegionZones,
        },
        planner::load_balancer::{
            desired::{
                ServiceRequest, expected,
                private_links::reads,
                status::{has_parts_of, public_ip_groups},
            },
            drift::findings::DriftedDocument,
            entries,
            labels::LabelMap,
            observed::ObservedNetwork,
            plan::print::PlannedChange,
            pools::{claims::ReportedClaims, local_pools::LocalPools, member_addresses::listed_in_pools},
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
    /// Held while pools are written: one sync must not remove what another adds.
    pub(super) pool_round: tokio::sync::Mutex<()>,
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
    /// Load balancers that are about to be deleted.
    pub(super) deleting: Mutex<BTreeSet<ResourceId>>,
    /// Nodes that claim another Node's machine, as far as events report them.
    pub(super) reported_claims: Mutex<ReportedClaims>,
    /// Whether the pools are where they have to be.
    pub(super) pool_sync: Mutex<PoolSyncState>,
    /// Services for which this process has sent a public IP to ARM, whatever came of it.
    pub(super) public_ip_attempts: Mutex<BTreeSet<ServiceIdentity>>,
    /// Where each Service is on its way.
    pub(super) progress: PipelineProgress,
    /// What was right for each Service.
    pub(super) drift: DriftWatch,
}

/// What one round plans on.
#[derive(Clone)]
pub(super) struct StageInput {
    /// What there is.
    pub(super) observed: Arc<ObservedNetwork>,
    /// The Services that do not ask.
    pub(super) others: Vec<ParsedService>,
    /// Whether the zones of the region are known. Only what is made anew needs them.
    pub(super) zones: CloudResult<()>,
    /// What some Services name and nobody could read.
    failures: Vec<NetworkReadFailure>,
    /// Those who ask for whom this process has sent a public IP to ARM.
    public_ip_attempts: BTreeSet<ServiceIdentity>,
}

impl StageInput {
    /// What the others ask for or have.
    pub(super) fn specs(&self) -> Vec<Arc<ServiceSpec>> {
        self.others.iter().map(|claim| Arc::clone(claim.spec())).collect()
    }

    /// The same, and what those ask for or have who are hindered.
    pub(super) fn specs_and(&self, hindered: &[(ServiceRequest, CloudError)]) -> Vec<Arc<ServiceSpec>> {
        let hindered = hindered.iter().filter_map(|(request, _)| request.spec()).cloned();
        self.specs().into_iter().chain(hindered).collect()
    }

    /// Why nothing can be planned for this ask: what it names could not be read. Who goes waits only while something of it may be there.
    pub(super) fn blocked_by(&self, request: &ServiceRequest, settings: &LoadBalancerSettings) -> Option<CloudError> {
        let unread = self.failures_of(request, settings).find(|unread| self.is_blocking(request, unread, settings))?;
        let error = cloud_error("read what the Service names", unread.error.clone());
        Some(match unread.missing_for {
            Some(after) => CloudError::MissingReference { after, message: error.to_string() },
            None => error,
        })
    }

    /// What could not be read of what the Service of this ask named, and does not keep it from going. Something of it may be left there if
    /// another process has made that.
    pub(super) fn ignorable_failure(
        &self,
        request: &ServiceRequest,
        settings: &LoadBalancerSettings,
    ) -> Option<&NetworkReadFailure> {
        self.failures_of(request, settings)
            .find(|unread| !unread.group_missing && !self.is_blocking(request, unread, settings))
    }

    /// In a group of which ARM says that it does not exist, nothing is left to take away. Where reading is refused for a reason that lasts,
    /// nothing was made either, unless an address or the memory of this process says otherwise; any other error passes. The cluster's own
    /// group has to exist and to be readable, and a process that was killed may have made something there.
    fn is_blocking(&self, request: &ServiceRequest, unread: &NetworkReadFailure, settings: &LoadBalancerSettings) -> bool {
        let is_served = || request.spec().is_some_and(|spec| !spec.status_addresses.is_empty());
        let was_tried = || self.public_ip_attempts.contains(request.identity());
        matches!(request, ServiceRequest::Ensure(_))
            || (!unread.group_missing
                && (!is_lasting(&unread.error) || is_in_own_group(unread, settings) || is_served() || was_tried()))
    }

    fn failures_of(
        &self,
        request: &ServiceRequest,
        settings: &LoadBalancerSettings,
    ) -> impl Iterator<Item = &NetworkReadFailure> {
        let names = |spec: &Arc<ServiceSpec>, unread: &NetworkReadFailure| {
            let is_wanted = matches!(request, ServiceRequest::Ensure(_));
            let subnet = Some(spec.subnet.as_ref().unwrap_or(&settings.subnet)).filter(|_| spec.internal && is_wanted);
            match &unread.key {
                NetworkCacheKey::PublicIps(group) => *group == spec.public_ip.group,
                NetworkCacheKey::PublicIp(id) => id.parent().as_ref() == Some(&spec.public_ip.group),
                NetworkCacheKey::PrivateLinks(group) => link_group(spec) == Some(group),
                NetworkCacheKey::PrivateLink(id) => link_group(spec) == id.parent().as_ref(),
                NetworkCacheKey::Subnet(name) => {
                    subnet.is_some_and(|subnet| spelling::same_name(subnet, name))
                        || reads::subnets(std::slice::from_ref(request), settings)
                            .iter()
                            .any(|subnet| spelling::same_name(subnet, name))
                }
                NetworkCacheKey::LoadBalancers | NetworkCacheKey::LoadBalancer(_) | NetworkCacheKey::SecurityGroup => false,
            }
        };
        self.failures.iter().filter(move |unread| request.spec().is_some_and(|spec| names(spec, unread)))
    }
}

fn is_in_own_group(unread: &NetworkReadFailure, settings: &LoadBalancerSettings) -> bool {
    match &unread.key {
        NetworkCacheKey::PublicIps(group) => *group == settings.group,
        NetworkCacheKey::PublicIp(id) => id.parent().as_ref() == Some(&settings.group),
        _ => false,
    }
}

impl StageContext {
    /// Looks at everything that concerns the asking Services and the others, and remembers nothing of the Nodes that pools tell of.
    pub(super) async fn peek(&self, requests: &[ServiceRequest], urgency: Urgency) -> CloudResult<StageInput> {
        self.read(requests, &BTreeSet::new(), &[], urgency).await
    }

    /// The same, and a second look for those who go, had an address and are found on no load balancer.
    pub(super) async fn peek_twice(&self, requests: &[ServiceRequest], urgency: Urgency) -> CloudResult<StageInput> {
        let input = self.peek(requests, urgency).await?;
        match self.lost_documents(requests, &input.observed) {
            more if more.is_empty() => Ok(input),
            more => self.read(requests, &more, &[], urgency).await,
        }
    }

    /// The same before something is written.
    pub(super) async fn load(&self, requests: &[ServiceRequest], urgency: Urgency) -> CloudResult<StageInput> {
        self.load_with(requests, &BTreeSet::new(), urgency).await
    }

    /// The same before anything is done. Who goes, had an address and is found on no load balancer is looked for a second time, under all
    /// names that it may have parts at.
    pub(super) async fn load_first(&self, requests: &[ServiceRequest], urgency: Urgency) -> CloudResult<StageInput> {
        let input = self.load(requests, urgency).await?;
        match self.lost_documents(requests, &input.observed) {
            more if more.is_empty() => Ok(input),
            more => self.load_with(requests, &more, urgency).await,
        }
    }

    /// Where parts may be of those who go, had an address and are found on no load balancer. When there are any, the list is read anew.
    fn lost_documents(&self, requests: &[ServiceRequest], observed: &ObservedNetwork) -> BTreeSet<ExpectedDocument> {
        let lost: Vec<ServiceRequest> = requests.iter().filter(|request| is_lost(request, observed)).cloned().collect();
        if lost.is_empty() {
            return BTreeSet::new();
        }
        let (load_balancers, public_ips) = expected::under_other_settings(&lost, &observed.vm_sets, &self.settings);
        self.observer.invalidate(NetworkCacheKey::LoadBalancers);
        let load_balancers = load_balancers.into_iter().map(ExpectedDocument::LoadBalancer);
        load_balancers.chain(public_ips.into_iter().map(ExpectedDocument::PublicIp)).collect()
    }

    async fn load_with(
        &self,
        requests: &[ServiceRequest],
        more: &BTreeSet<ExpectedDocument>,
        urgency: Urgency,
    ) -> CloudResult<StageInput> {
        let input = self.read(requests, more, requests, urgency).await?;
        self.service_index.record_pool_addresses(listed_in_pools(&input.observed, &self.settings));
        Ok(input)
    }

    /// `informed`: whose Services get an event when the load balancers cannot be listed.
    async fn read(
        &self,
        requests: &[ServiceRequest],
        more: &BTreeSet<ExpectedDocument>,
        informed: &[ServiceRequest],
        urgency: Urgency,
    ) -> CloudResult<StageInput> {
        let others = self.service_index.others(&requests.iter().map(ServiceRequest::identity).cloned().collect());
        let mut query = self.query(requests, &others);
        query.expected.extend(more.iter().cloned());
        let zones = self.refresh_zones(urgency).await;
        let (mut observed, mut unread) = self.observe(&query, informed, urgency).await?;
        let known = query.public_ip_groups.len();
        query.public_ip_groups.extend(public_ip_groups(&observed, requests.iter().map(ServiceRequest::identity)));
        if query.public_ip_groups.len() > known {
            (observed, unread) = self.observe(&query, informed, urgency).await?;
        }
        let tried = requests
            .iter()
            .map(ServiceRequest::identity)
            .filter(|who| self.public_ip_attempts().contains(who))
            .cloned()
            .collect();
        Ok(StageInput { observed, others, zones, failures: unread, public_ip_attempts: tried })
    }

    /// Services for which this process has sent a public IP to ARM.
    pub(super) fn public_ip_attempts(&self) -> MutexGuard<'_, BTreeSet<ServiceIdentity>> {
        self.public_ip_attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same input with the private link services of these groups as well.
    pub(super) async fn read_again(
        &self,
        requests: &[ServiceRequest],
        input: &StageInput,
        groups: BTreeSet<ResourceId>,
        urgency: Urgency,
    ) -> CloudResult<StageInput> {
        let mut query = self.query(requests, &input.others);
        query.public_ip_groups.extend(public_ip_groups(&input.observed, requests.iter().map(ServiceRequest::identity)));
        query.private_link_groups.extend(groups);
        let (observed, failures) = self.observe(&query, requests, urgency).await?;
        Ok(StageInput { observed, failures, ..input.clone() })
    }

    async fn refresh_zones(&self, urgency: Urgency) -> CloudResult<()> {
        let zones = self.zones.zones(urgency).await.map_err(|error| cloud_error("read the zones of the region", error))?;
        self.observer.set_zones(zones);
        Ok(())
    }

    /// Labels of the Service's Namespace that decide where it is.
    pub(super) fn namespace_labels(&self, spec: &ServiceSpec) -> LabelMap {
        self.watches.labels_of_namespace(spec.namespace(), &entries::namespace_label_keys(&self.settings.entries))
    }

    async fn observe(
        &self,
        query: &NetworkQuery,
        informed: &[ServiceRequest],
        urgency: Urgency,
    ) -> CloudResult<(Arc<ObservedNetwork>, Vec<NetworkReadFailure>)> {
        if self.settings.sku == LoadBalancerSku::Basic {
            self.observer.set_vm_sets(vm_sets(&self.inventory, &self.service_index.nodes()).await);
        }
        if let Some(labels) = self.watches.namespace_labels() {
            self.observer.set_namespace_labels(labels);
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

    /// A group that could not be read last time is read for those alone who ask and name it, and a subnet for those alone who may get a
    /// front end in it: nobody else waits.
    fn query(&self, requests: &[ServiceRequest], others: &[ParsedService]) -> NetworkQuery {
        let mut query = NetworkQuery::default();
        let asking = requests.iter().filter_map(ServiceRequest::spec).map(|spec| (spec, true));
        // Where other managers put theirs is nothing to look for.
        let own = || others.iter().filter(|claim| !claim.spec().is_others);
        for (spec, requests) in asking.chain(own().map(|claim| (claim.spec(), false))) {
            let group = &spec.public_ip.group;
            if !query.public_ip_groups.contains(group)
                && (requests || !self.observer.is_denied(&NetworkCacheKey::PublicIps(group.clone())))
            {
                query.public_ip_groups.insert(group.clone());
            }
        }
        let wanted =
            requests.iter().filter(|request| matches!(request, ServiceRequest::Ensure(_))).filter_map(ServiceRequest::spec);
        let inside = wanted.filter(|spec| spec.internal);
        query.subnets.extend(inside.map(|spec| spec.subnet.clone().unwrap_or_else(|| self.settings.subnet.clone())));
        query.subnets.extend(reads::subnets(requests, &self.settings));
        query.private_link_groups.extend(self.private_link_groups(requests, others));
        let links = reads::expected_links(requests, &self.settings);
        query.expected.extend(links.into_iter().map(ExpectedDocument::PrivateLink));
        let load_balancers = expected::load_balancers(requests, own().map(ParsedService::spec), &self.settings);
        query.expected.extend(load_balancers.into_iter().map(ExpectedDocument::LoadBalancer));
        let public_ips = expected::public_ips(requests, self.service_index.going(), &self.settings);
        query.expected.extend(public_ips.into_iter().map(ExpectedDocument::PublicIp));
        query
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
            tracing::warn!(service = %who.key, what, "found drift");
            self.service_index.service(who).into_iter().for_each(|service| self.events.record(event(&service, what)));
        }
        verdict
    }

    pub(super) fn set_hosts(&self, nodes: &[Arc<Node>]) {
        *self.hosts.lock().unwrap_or_else(PoisonError::into_inner) = Some(nodes.into());
    }

    /// Who is to be behind load balancers; `None`: nobody has said yet.
    pub(super) fn hosts(&self) -> Option<Arc<[Arc<Node>]>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

type DriftEvent = fn(&Service, &str) -> RecordedEvent;

/// Where the private link service is that a Service asks for.
fn link_group(spec: &ServiceSpec) -> Option<&ResourceId> {
    spec.private_link.as_ref().map(|link| &link.group)
}

/// Whether ARM will say the same for a while.
pub(super) fn is_lasting(error: &ArmError) -> bool {
    matches!(error.class, ArmErrorClass::Forbidden | ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound)
}

/// Whether an ask is that something goes which had an address and is on no load balancer.
fn is_lost(request: &ServiceRequest, observed: &ObservedNetwork) -> bool {
    let goes = matches!(request, ServiceRequest::Delete(_, Some(spec)) if !spec.status_addresses.is_empty());
    goes && !observed.load_balancers.iter().any(|document| has_parts_of(document, request.identity()))
}

/// Those of whom all is known that planning needs, and the others with what hinders them, who keep what they have.
pub(super) fn partition_blocked(
    requests: &[ServiceRequest],
    input: &StageInput,
    settings: &LoadBalancerSettings,
) -> (Vec<ServiceRequest>, Vec<(ServiceRequest, CloudError)>) {
    let (mut free, mut hindered) = (Vec::new(), Vec::new());
    for request in requests {
        match input.blocked_by(request, settings) {
            None => free.push(request.clone()),
            Some(error) => hindered.push((request.clone(), error)),
        }
    }
    (free, hindered)
}

/// What a user has to change, here or at another Service or in Azure: it is tried again with back-off.
pub(super) fn refusal_error(refusal: &ServiceRefusal) -> CloudError {
    CloudError::failed(refusal.to_string())
}
