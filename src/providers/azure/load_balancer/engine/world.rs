//! What every stage works with: settings, who there is, what there is, and who writes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::Node;

use crate::{
    cloud_provider::CloudResult,
    providers::azure::{
        arm::{ArmError, ResourceId, Urgency, api},
        config::LoadBalancerSku,
        inventory::Inventory,
        load_balancer::{
            apply::Writer,
            desired::Ask,
            events::{self, Call},
            explain::cloud_error,
            members::{Members, vm_sets},
            observe::{Need, Observer},
            observed::Observed,
            roster::{Roster, Wish},
            settings::Settings,
            spec::ServiceSpec,
            zones::Zones,
        },
    },
    runtime::events::EventRecorder,
};

/// See the module.
pub(super) struct World {
    pub(super) settings: Arc<Settings>,
    pub(super) roster: Roster,
    pub(super) observer: Arc<Observer>,
    pub(super) writer: Writer,
    /// One at a time: what one puts in another must not take out.
    pub(super) members: tokio::sync::Mutex<Members>,
    pub(super) zones: Zones,
    pub(super) inventory: Arc<Inventory>,
    /// The Nodes that were to be behind load balancers when somebody last said so.
    pub(super) hosts: Mutex<Option<Arc<[Arc<Node>]>>>,
    pub(super) events: EventRecorder,
    /// Pools that were made and not filled yet.
    pub(super) created: Mutex<BTreeSet<ResourceId>>,
}

/// What one round plans on.
pub(super) struct Look {
    /// What there is.
    pub(super) observed: Arc<Observed>,
    /// The Services that do not ask.
    pub(super) others: Vec<Wish>,
    /// Whether the zones of the region are known. Only what is made anew needs them.
    pub(super) zones: CloudResult<()>,
}

impl Look {
    /// What the others ask for or have.
    pub(super) fn specs(&self) -> Vec<ServiceSpec> {
        self.others.iter().map(|wish| (**wish.spec()).clone()).collect()
    }
}

impl World {
    /// Looks at everything that concerns the asking Services and the others.
    pub(super) async fn look(&self, asks: &[Ask], urgency: Urgency) -> CloudResult<Look> {
        let others = self.roster.others(&asks.iter().map(Ask::identity).cloned().collect());
        let need = self.need(asks.iter().filter_map(told).chain(others.iter().map(|wish| wish.spec().as_ref())));
        let zones = self.learn_zones(urgency).await;
        Ok(Look { observed: self.observe(&need, asks, urgency).await?, others, zones })
    }

    async fn learn_zones(&self, urgency: Urgency) -> CloudResult<()> {
        let zones = self.zones.zones(urgency).await.map_err(|error| cloud_error("read the zones of the region", error))?;
        self.observer.set_zones(zones);
        Ok(())
    }

    async fn observe(&self, need: &Need, asks: &[Ask], urgency: Urgency) -> CloudResult<Arc<Observed>> {
        if self.settings.sku == LoadBalancerSku::Basic {
            self.observer.set_vm_sets(vm_sets(&self.inventory, &self.roster.nodes()).await);
        }
        self.observer.observe(need, urgency).await.map_err(|error| {
            if error.request.ends_with(api::LOAD_BALANCERS.resource_type) {
                self.tell(asks, Call::ListLoadBalancers, &error);
            }
            cloud_error("read the load balancers, public IPs and the security group", error)
        })
    }

    fn need<'a>(&self, specs: impl Iterator<Item = &'a ServiceSpec>) -> Need {
        let mut need = Need::default();
        for spec in specs {
            need.public_ip_groups.insert(spec.public_ip.group.clone());
            if spec.internal {
                need.subnets.insert(spec.subnet.clone().unwrap_or_else(|| self.settings.subnet.clone()));
            }
        }
        need
    }

    /// Tells those who ask that a request to ARM has failed.
    pub(super) fn tell(&self, asks: &[Ask], call: Call, error: &ArmError) {
        for service in asks.iter().filter_map(|ask| self.roster.service(ask.identity())) {
            self.events.record(events::call_failed(&service, call, error));
        }
    }

    /// Takes note of who is to be behind load balancers.
    pub(super) fn set_hosts(&self, nodes: &[Arc<Node>]) {
        *self.hosts.lock().unwrap_or_else(PoisonError::into_inner) = Some(nodes.into());
    }

    /// Who is to be behind load balancers; `None`: nobody has said yet.
    pub(super) fn hosts(&self) -> Option<Arc<[Arc<Node>]>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What an ask tells of itself.
pub(super) fn told(ask: &Ask) -> Option<&ServiceSpec> {
    match ask {
        Ask::Ensure(spec) => Some(spec),
        Ask::Remove(_, last) => last.as_deref(),
    }
}
