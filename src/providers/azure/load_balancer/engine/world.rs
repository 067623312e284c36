//! What every stage works with: settings, who there is, what there is, and who writes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::Node;

use super::{counting::Counting, membership::Following};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::{ArmError, ErrorClass, ResourceId, Urgency, api},
        config::LoadBalancerSku,
        inventory::Inventory,
        load_balancer::{
            apply::Writer,
            desired::{
                Ask, expected,
                status::{has_parts_of, public_ip_groups},
            },
            events::{self, Call},
            explain::cloud_error,
            members::{Members, listed_in_pools, vm_sets},
            observe::{Doubt, Expected, Need, Observer, Unread},
            observed::Observed,
            roster::{Roster, Wish},
            settings::Settings,
            spec::{Identity, ServiceSpec},
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
    pub(super) counting: Counting,
    pub(super) zones: Zones,
    pub(super) inventory: Arc<Inventory>,
    /// The Nodes that were to be behind load balancers when somebody last said so.
    pub(super) hosts: Mutex<Option<Arc<[Arc<Node>]>>>,
    pub(super) events: EventRecorder,
    /// Pools that were made and not filled yet.
    pub(super) created: Mutex<BTreeSet<ResourceId>>,
    /// Load balancers that are about to be deleted.
    pub(super) leaving: Mutex<BTreeSet<ResourceId>>,
    /// Whether the pools are where they have to be.
    pub(super) following: Mutex<Following>,
    /// Services for which this process has sent a public IP to ARM, whatever came of it.
    pub(super) tried: Mutex<BTreeSet<Identity>>,
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
    /// Those who ask for whom this process has sent a public IP to ARM.
    tried: BTreeSet<Identity>,
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

    /// Why nothing can be planned for this ask: what it names could not be read. Who goes waits only while something of it may be there.
    pub(super) fn hindrance(&self, ask: &Ask, settings: &Settings) -> Option<CloudError> {
        let unread = self.unread_of(ask, settings).find(|unread| self.matters(ask, unread))?;
        Some(cloud_error("read what the Service names", unread.error.clone()))
    }

    /// What could not be read of what the Service of this ask named, and does not keep it from going. Something of it may be left there if
    /// another process has made that.
    pub(super) fn let_go(&self, ask: &Ask, settings: &Settings) -> Option<&Unread> {
        self.unread_of(ask, settings).find(|unread| !unread.gone && !self.matters(ask, unread))
    }

    /// In a group of which ARM says that it does not exist, nothing is left to take away. Where reading is refused for a reason that lasts,
    /// nothing was made either, unless an address or the memory of this process says otherwise; any other error passes.
    fn matters(&self, ask: &Ask, unread: &Unread) -> bool {
        let is_served = || ask.spec().is_some_and(|spec| !spec.known_addresses.is_empty());
        let was_tried = || self.tried.contains(ask.identity());
        matches!(ask, Ask::Ensure(_)) || (!unread.gone && (!is_lasting(&unread.error) || is_served() || was_tried()))
    }

    fn unread_of(&self, ask: &Ask, settings: &Settings) -> impl Iterator<Item = &Unread> {
        let names = |spec: &Arc<ServiceSpec>, unread: &Unread| {
            let is_wanted = matches!(ask, Ask::Ensure(_));
            let subnet = Some(spec.subnet.as_ref().unwrap_or(&settings.subnet)).filter(|_| spec.internal && is_wanted);
            match &unread.what {
                Doubt::PublicIps(group) => *group == spec.public_ip.group,
                Doubt::PublicIp(id) => id.parent().as_ref() == Some(&spec.public_ip.group),
                Doubt::Subnet(name) => subnet.is_some_and(|subnet| subnet.eq_ignore_ascii_case(name)),
                Doubt::LoadBalancers | Doubt::LoadBalancer(_) | Doubt::SecurityGroup => false,
            }
        };
        self.unread.iter().filter(move |unread| ask.spec().is_some_and(|spec| names(spec, unread)))
    }
}

impl World {
    /// Looks at everything that concerns the asking Services and the others.
    pub(super) async fn look(&self, asks: &[Ask], urgency: Urgency) -> CloudResult<Look> {
        self.look_for(asks, &BTreeSet::new(), urgency).await
    }

    /// The same before anything is done. Who goes, had an address and is found on no load balancer is looked for a second time, under all
    /// names that it may have parts at.
    pub(super) async fn first_look(&self, asks: &[Ask], urgency: Urgency) -> CloudResult<Look> {
        let look = self.look(asks, urgency).await?;
        let lost: Vec<Ask> = asks.iter().filter(|ask| is_lost(ask, &look.observed)).cloned().collect();
        if lost.is_empty() {
            return Ok(look);
        }
        let (load_balancers, public_ips) = expected::elsewhere(&lost, &look.observed.vm_sets, &self.settings);
        let load_balancers = load_balancers.into_iter().map(Expected::LoadBalancer);
        let more = load_balancers.chain(public_ips.into_iter().map(Expected::PublicIp)).collect();
        self.observer.doubt(Doubt::LoadBalancers);
        self.look_for(asks, &more, urgency).await
    }

    async fn look_for(&self, asks: &[Ask], more: &BTreeSet<Expected>, urgency: Urgency) -> CloudResult<Look> {
        let others = self.roster.others(&asks.iter().map(Ask::identity).cloned().collect());
        let mut need = self.need(asks, &others);
        need.expected.extend(more.iter().cloned());
        let zones = self.learn_zones(urgency).await;
        let (mut observed, mut unread) = self.observe(&need, asks, urgency).await?;
        self.roster.had_nodes(listed_in_pools(&observed, &self.settings));
        let known = need.public_ip_groups.len();
        need.public_ip_groups.extend(public_ip_groups(&observed, asks.iter().map(Ask::identity)));
        if need.public_ip_groups.len() > known {
            (observed, unread) = self.observe(&need, asks, urgency).await?;
        }
        let tried = asks.iter().map(Ask::identity).filter(|who| self.tried().contains(who)).cloned().collect();
        Ok(Look { observed, others, zones, unread, tried })
    }

    /// Services for which this process has sent a public IP to ARM.
    pub(super) fn tried(&self) -> MutexGuard<'_, BTreeSet<Identity>> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// A group that could not be read last time is read for those alone who ask and name it, and a subnet for those alone who may get a
    /// front end in it: nobody else waits.
    fn need(&self, asks: &[Ask], others: &[Wish]) -> Need {
        let mut need = Need::default();
        let asking = asks.iter().filter_map(Ask::spec).map(|spec| (spec, true));
        for (spec, asks) in asking.chain(others.iter().map(|wish| (wish.spec(), false))) {
            let group = &spec.public_ip.group;
            if !need.public_ip_groups.contains(group) && (asks || !self.observer.is_denied(&Doubt::PublicIps(group.clone())))
            {
                need.public_ip_groups.insert(group.clone());
            }
        }
        let wanted = asks.iter().filter(|ask| matches!(ask, Ask::Ensure(_))).filter_map(Ask::spec);
        let inside = wanted.filter(|spec| spec.internal);
        need.subnets.extend(inside.map(|spec| spec.subnet.clone().unwrap_or_else(|| self.settings.subnet.clone())));
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

/// Whether ARM will say the same for a while.
fn is_lasting(error: &ArmError) -> bool {
    matches!(error.class, ErrorClass::Forbidden | ErrorClass::NotFound | ErrorClass::ParentNotFound)
}

/// Whether an ask is that something goes which had an address and is on no load balancer.
fn is_lost(ask: &Ask, observed: &Observed) -> bool {
    let goes = matches!(ask, Ask::Remove(_, Some(spec)) if !spec.known_addresses.is_empty());
    goes && !observed.load_balancers.iter().any(|document| has_parts_of(document, ask.identity()))
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
