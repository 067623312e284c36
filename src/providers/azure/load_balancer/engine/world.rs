//! What every stage works with: settings, who there is, what there is, and who writes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::Node;

use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::{ArmError, ResourceId, Urgency, api},
        config::LoadBalancerSku,
        inventory::Inventory,
        load_balancer::{
            apply::Writer,
            desired::{Ask, expected, status::public_ip_groups},
            events::{self, Call},
            explain::cloud_error,
            members::{Members, vm_sets},
            observe::{Doubt, Expected, Need, Observer, Unread},
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
    /// What some Services name and nobody could read.
    unread: Vec<Unread>,
}

impl Look {
    /// What the others ask for or have.
    pub(super) fn specs(&self) -> Vec<Arc<ServiceSpec>> {
        self.others.iter().map(|wish| Arc::clone(wish.spec())).collect()
    }

    /// The same, and what those ask for or have who are hindered.
    pub(super) fn specs_and(&self, hindered: &[(Ask, CloudError)]) -> Vec<Arc<ServiceSpec>> {
        let hindered = hindered.iter().filter_map(|(ask, _)| ask.spec()).cloned();
        self.specs().into_iter().chain(hindered).collect()
    }

    /// Why nothing can be planned for this ask: what it names could not be read. What never had an address can go without.
    pub(super) fn hindrance(&self, ask: &Ask, settings: &Settings) -> Option<CloudError> {
        let spec = ask.spec()?;
        let is_wanted = matches!(ask, Ask::Ensure(_));
        if !is_wanted && spec.known_addresses.is_empty() {
            return None;
        }
        let subnet = Some(spec.subnet.as_ref().unwrap_or(&settings.subnet)).filter(|_| spec.internal && is_wanted);
        // In a group of which ARM says that it does not exist, nothing is left to take away.
        let matters = |unread: &&Unread| is_wanted || !unread.gone;
        let names = |unread: &&Unread| match &unread.what {
            Doubt::PublicIps(group) => *group == spec.public_ip.group,
            Doubt::PublicIp(id) => id.parent().as_ref() == Some(&spec.public_ip.group),
            Doubt::Subnet(name) => subnet.is_some_and(|subnet| subnet.eq_ignore_ascii_case(name)),
            Doubt::LoadBalancers | Doubt::LoadBalancer(_) | Doubt::SecurityGroup => false,
        };
        let unread = self.unread.iter().filter(matters).find(names)?;
        Some(cloud_error("read what the Service names", unread.error.clone()))
    }
}

impl World {
    /// Looks at everything that concerns the asking Services and the others.
    pub(super) async fn look(&self, asks: &[Ask], urgency: Urgency) -> CloudResult<Look> {
        let others = self.roster.others(&asks.iter().map(Ask::identity).cloned().collect());
        let mut need = self.need(asks, &others);
        let zones = self.learn_zones(urgency).await;
        let (mut observed, mut unread) = self.observe(&need, asks, urgency).await?;
        let known = need.public_ip_groups.len();
        need.public_ip_groups.extend(public_ip_groups(&observed, asks.iter().map(Ask::identity)));
        if need.public_ip_groups.len() > known {
            (observed, unread) = self.observe(&need, asks, urgency).await?;
        }
        Ok(Look { observed, others, zones, unread })
    }

    async fn learn_zones(&self, urgency: Urgency) -> CloudResult<()> {
        let zones = self.zones.zones(urgency).await.map_err(|error| cloud_error("read the zones of the region", error))?;
        self.observer.set_zones(zones);
        Ok(())
    }

    async fn observe(&self, need: &Need, asks: &[Ask], urgency: Urgency) -> CloudResult<(Arc<Observed>, Vec<Unread>)> {
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

    /// A group that could not be read last time is read for those alone who ask and name it: nobody else waits for it.
    fn need(&self, asks: &[Ask], others: &[Wish]) -> Need {
        let mut need = Need::default();
        let asking = asks.iter().filter_map(Ask::spec).map(|spec| (spec, true));
        for (spec, asks) in asking.chain(others.iter().map(|wish| (wish.spec(), false))) {
            let group = &spec.public_ip.group;
            if !need.public_ip_groups.contains(group) && (asks || !self.observer.is_denied(group)) {
                need.public_ip_groups.insert(group.clone());
            }
            if spec.internal {
                need.subnets.insert(spec.subnet.clone().unwrap_or_else(|| self.settings.subnet.clone()));
            }
        }
        let load_balancers = expected::load_balancers(asks, others.iter().map(Wish::spec), &self.settings);
        need.expected.extend(load_balancers.into_iter().map(Expected::LoadBalancer));
        need.expected.extend(expected::public_ips(asks, &self.settings).into_iter().map(Expected::PublicIp));
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

/// Those of whom all is known that planning needs, and the others with what hinders them, who keep what they have.
pub(super) fn unhindered(asks: &[Ask], look: &Look, settings: &Settings) -> (Vec<Ask>, Vec<(Ask, CloudError)>) {
    let (mut free, mut hindered) = (Vec::new(), Vec::new());
    for ask in asks {
        match look.hindrance(ask, settings) {
            None => free.push(ask.clone()),
            Some(error) => hindered.push((ask.clone(), error)),
        }
    }
    (free, hindered)
}
