//! Load balancers for Services, as the service controller asks for them: many calls at once become few writes.
//!
//! In: a call for each Service. Out: its addresses, when everything is as asked. `flow` has the stages; what they decide is in the
//! pure modules beside this one. Upstream: `pkg/provider/azure_loadbalancer.go`.

mod admission;
mod balancers;
mod counting;
mod flow;
mod membership;
mod once;
mod progress;
mod rounds;
mod security;
mod world;

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Service};
use serde_json::{Value, json};

use self::{
    counting::Counting,
    flow::{Flow, Kept},
    progress::{Progress, Stage},
    world::{Look, World},
};
use super::{
    apply::Writer,
    desired::{Ask, expected::public_ips, status::status, traces},
    events::{self, COMPONENT},
    lease::{Held, Locker},
    members::Members,
    observe::{Doubt, Lifetimes, Observer},
    plan::plan,
    reconciles::Reconcile,
    roster::{Roster, Wish},
    settings::Settings,
    spec::{Refusal, ServiceSpec, Warning, for_removal, identity_of, known_addresses, reason, warnings},
    zones::Zones,
};
use crate::{
    cloud_provider::{CloudError, CloudResult, LoadBalancer, LoadBalancerIngress, LoadBalancerStatus},
    metrics::Metrics,
    providers::azure::{
        arm::{ArmClient, Urgency},
        config::AzureConfig,
        inventory::Inventory,
        operations::{Operation, observe_operation},
    },
    runtime::{clock::Clock, events::EventRecorder, store::Store},
};

/// What load balancers are built from.
pub struct Parts<'a> {
    /// The configuration.
    pub config: &'a AzureConfig,
    /// `--cluster-name`.
    pub cluster: &'a str,
    /// Whether the cloud is an Azure Stack.
    pub azure_stack: bool,
    /// For the subscription of the machines.
    pub compute: ArmClient,
    /// For the subscription of the network resources.
    pub network: ArmClient,
    /// Machines.
    pub inventory: Arc<Inventory>,
    /// Services of the cluster.
    pub services: Store<Service>,
    /// Nodes of the cluster.
    pub nodes: Store<Node>,
    /// The lease that is held while something is done.
    pub locker: Locker,
    /// Takes events.
    pub events: EventRecorder,
    /// Where operations are counted.
    pub metrics: Arc<Metrics>,
    /// Time.
    pub clock: Clock,
}

/// Load balancers on Azure.
pub struct AzureLoadBalancers {
    flow: Flow,
    settings: Arc<Settings>,
    locker: Locker,
    events: EventRecorder,
    metrics: Arc<Metrics>,
    clock: Clock,
    /// In which epoch of the lease the documents were read.
    epoch: Mutex<Option<u64>>,
}

impl AzureLoadBalancers {
    /// Nothing is sent yet.
    pub fn new(parts: Parts<'_>) -> Self {
        let Parts {
            config,
            cluster,
            azure_stack,
            compute,
            network,
            inventory,
            services,
            nodes,
            locker,
            events,
            metrics,
            clock,
        } = parts;
        let events = events.for_component(COMPONENT);
        let settings = Arc::new(Settings::new(config, cluster));
        let observer = Observer::new(network.clone(), Arc::clone(&settings), Lifetimes::from_config(config), clock);
        let batch_size = usize::try_from(config.put_vmss_vm_batch_size).unwrap_or_default();
        let migrate = config.enable_migrate_to_ip_based_backend_pool_api;
        let world = World {
            roster: Roster::new(Arc::clone(&settings), services, nodes),
            writer: Writer::new(Arc::clone(&observer), network.clone()),
            inventory: Arc::clone(&inventory),
            members: Members::new(compute, network.clone(), inventory, Arc::clone(&settings), batch_size, migrate).into(),
            counting: Counting::new(config, Arc::clone(&metrics), clock),
            zones: Zones::new(network, &settings, azure_stack, clock),
            observer,
            settings: Arc::clone(&settings),
            hosts: Mutex::default(),
            created: Mutex::default(),
            leaving: Mutex::default(),
            following: Mutex::default(),
            tried: Mutex::default(),
            events: events.clone(),
        };
        let flow = Flow::new(world, Progress::new(clock));
        Self { flow, settings, locker, events, metrics, clock, epoch: Mutex::default() }
    }

    /// What is being done and why it is not done yet, for the status page.
    pub fn status(&self) -> Value {
        let waiting: serde_json::Map<_, _> =
            self.flow.waiting().into_iter().map(|(stage, count)| (stage.to_owned(), json!(count))).collect();
        json!({"unsupported": self.settings.unsupported, "waiting": waiting, "unsettled": self.flow.progress.status()})
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

    /// Whether this Service can be let go although no load balancer is touched: neither its status nor Azure shows anything that
    /// somebody has made for it. `false`: it is to be deleted as usual.
    async fn is_let_go(&self, service: &Service) -> CloudResult<bool> {
        let Some(problem) = self.unsupported() else { return Ok(false) };
        if known_addresses(service).is_empty() {
            let (look, uid) = (self.look(service).await?, service.metadata.uid.as_deref().unwrap_or_default());
            if !traces::has_any(&look.observed, &identity_of(service), uid, &self.settings) {
                return Ok(true);
            }
        }
        Err(CloudError::refused(problem))
    }

    /// Holds the lease. What was read before somebody else held it is read again.
    async fn hold(&self) -> CloudResult<Held> {
        let held = self.locker.hold().await?;
        let mut epoch = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        if epoch.replace(held.epoch()).is_some_and(|known| known != held.epoch()) {
            self.flow.world.observer.doubt(Doubt::LoadBalancers);
        }
        Ok(held)
    }

    /// Has it done, with events about `service` for what could not be taken away.
    async fn work(&self, request: &str, service: &Service, ask: &Ask, urgency: Urgency) -> CloudResult<()> {
        let operation = Operation {
            area: "services",
            request,
            resource_group: self.settings.group.name(),
            subscription: self.settings.group.subscription(),
            source: &ask.identity().key,
        };
        let work = Box::pin(async {
            self.flow.progress.at(&ask.identity().key, Stage::Lease);
            let _held = self.hold().await?;
            self.flow.run(ask, urgency).await
        });
        let result = observe_operation(&self.metrics, self.clock, operation, work).await;
        self.flow.progress.ended(&ask.identity().key, result.as_ref().map(drop));
        self.tell_kept(service, &result?);
        Ok(())
    }

    fn tell_kept(&self, service: &Service, kept: &Kept) {
        let frontends = kept.frontends.iter().map(|kept| events::kept_frontend(service, kept));
        let public_ips = kept.public_ips.iter().map(|kept| events::kept_public_ip(service, kept));
        frontends.chain(public_ips).for_each(|event| self.events.record(event));
    }

    /// What is strange about a Service, which may be why it is refused.
    fn tell_strange(&self, service: &Service, left_out: Option<&Refusal>) {
        let left_out = left_out.map(|Refusal { field, message }| Warning {
            reason: reason::WITHOUT_EFFECT,
            field: field.clone(),
            message: format!("left out: {message}"),
        });
        for warning in warnings(service, &self.settings).into_iter().chain(left_out) {
            self.events.record(events::strange(service, &warning));
        }
    }

    /// What is asked for this Service, if that is possible at all.
    fn checked(&self, service: &Service) -> CloudResult<(Arc<ServiceSpec>, Option<Refusal>)> {
        let checked = self.require_supported().and_then(|()| self.wish(service));
        checked.inspect_err(|error| self.flow.progress.refused(&identity_of(service).key, error))
    }

    /// What it asks for, and what of that it does not get.
    fn wish(&self, service: &Service) -> CloudResult<(Arc<ServiceSpec>, Option<Refusal>)> {
        match self.flow.world.roster.wish(service) {
            Wish::Valid(spec) => Ok(self.flow.world.roster.without_claims_of_others(spec)),
            Wish::Refused(_, refusals) => {
                let all: Vec<String> = refusals.iter().map(ToString::to_string).collect();
                Err(CloudError::refused(all.join("; ")))
            }
        }
    }

    async fn ensure(
        &self,
        request: &str,
        service: &Service,
        nodes: &[Arc<Node>],
        urgency: Urgency,
    ) -> CloudResult<LoadBalancerStatus> {
        self.flow.world.set_hosts(nodes);
        let checked = self.checked(service);
        self.tell_strange(service, checked.as_ref().ok().and_then(|(_, left_out)| left_out.as_ref()));
        let (spec, _) = checked?;
        let ask = Ask::Ensure(Arc::clone(&spec));
        self.work(request, service, &ask, urgency).await?;
        let addresses = status(&self.flow.world.observer.known(), &spec, &self.settings);
        if addresses.is_empty() {
            return Err(CloudError::failed("the load balancer has no address for the Service yet"));
        }
        Ok(ingress(&addresses))
    }

    /// There is a load balancer as long as the documents or the Service's status tell of one: then the rest is taken away as well.
    async fn found(&self, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        if self.is_let_go(service).await? {
            return Ok(None);
        }
        let look = self.look(service).await?;
        let spec = for_removal(service, &self.settings);
        let flipped = ServiceSpec { internal: !spec.internal, ..spec.clone() };
        let found = [&spec, &flipped].map(|spec| status(&look.observed, spec, &self.settings));
        if let Some(addresses) = found.iter().find(|addresses| !addresses.is_empty()) {
            return Ok(Some(ingress(addresses)));
        }
        let plan = plan(&look.observed, &[self.flow.world.roster.removal(service)], &look.specs(), &self.settings);
        let has_something = !spec.known_addresses.is_empty() || !plan.is_empty();
        if !has_something {
            self.flow.world.tried().remove(&spec.identity);
        }
        Ok(has_something.then(|| ingress(&spec.known_addresses)))
    }

    async fn look(&self, service: &Service) -> CloudResult<Look> {
        let ask = self.flow.world.roster.removal(service);
        let look = self.flow.world.first_look(std::slice::from_ref(&ask), Urgency::Change).await?;
        if let Some(error) = look.hindrance(&ask, &self.settings) {
            return Err(error);
        }
        if let Some(unread) = look.let_go(&ask, &self.settings) {
            let ids = public_ips(std::slice::from_ref(&ask), &self.settings);
            ids.iter().for_each(|id| self.events.record(events::maybe_left(service, id, &unread.error)));
        }
        Ok(look)
    }
}

fn ingress(addresses: &[IpAddr]) -> LoadBalancerStatus {
    let entry = |address: &IpAddr| LoadBalancerIngress { ip: Some(address.to_string()), ..LoadBalancerIngress::default() };
    LoadBalancerStatus { ingress: Some(addresses.iter().map(entry).collect()) }
}

#[async_trait]
impl LoadBalancer for AzureLoadBalancers {
    async fn get_load_balancer(&self, _: &str, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        let work = Box::pin(self.found(service));
        Reconcile::Get.observe(&self.metrics, self.clock, service, work).await
    }

    async fn ensure_load_balancer(
        &self,
        _: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> CloudResult<LoadBalancerStatus> {
        let work = Box::pin(self.ensure("ensure_loadbalancer", service, nodes, Urgency::Change));
        Reconcile::Ensure.observe(&self.metrics, self.clock, service, work).await
    }

    async fn update_load_balancer(&self, _: &str, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<()> {
        let work = Box::pin(self.ensure("update_loadbalancer", service, nodes, Urgency::Node));
        Reconcile::Update.observe(&self.metrics, self.clock, service, work).await.map(drop)
    }

    async fn sync_hosts(&self, _: &str, nodes: &[Arc<Node>]) -> CloudResult<()> {
        let world = &self.flow.world;
        world.set_hosts(nodes);
        world.roster.note_nodes();
        let is_idle = !self.settings.unsupported.is_empty() || !world.roster.is_asked() || membership::is_followed(world);
        if is_idle {
            return Ok(());
        }
        let _held = self.hold().await?;
        membership::join(world, &[], Urgency::Node).await?;
        self.flow.open_machines(Urgency::Node).await;
        Ok(())
    }

    async fn ensure_load_balancer_deleted(&self, _: &str, service: &Service) -> CloudResult<()> {
        let work = Box::pin(async {
            if self.is_let_go(service).await? {
                return Ok(());
            }
            let ask = self.flow.world.roster.removal(service);
            self.work("ensure_loadbalancer_deleted", service, &ask, Urgency::Deletion).await
        });
        Reconcile::Delete.observe(&self.metrics, self.clock, service, work).await
    }

    async fn plan_load_balancer(&self, _: &str, service: &Service, _: &[Arc<Node>]) -> CloudResult<String> {
        self.require_supported()?;
        let (spec, _) = self.wish(service)?;
        let asks = [Ask::Ensure(spec)];
        let look = self.flow.world.look(&asks, Urgency::Change).await?;
        let plan = plan(&look.observed, &asks, &look.specs(), &self.settings);
        let rules = security::rules(&self.flow.world, &asks, &look).await;
        let rules: Vec<String> = rules.map(|rules| rules.outcome.reasons).unwrap_or_default();
        Ok(rules.iter().fold(plan.to_string(), |text, reason| format!("{text}security group: {reason}\n")))
    }

    fn problem(&self) -> Option<String> {
        self.unsupported()
    }
}
