//! What is known of the documents, how old it is, and what of it is doubtful. Pure: time comes in.
//!
//! In: answers of reads and writes. Out: the snapshot, and what has to be read before it can be used. Events are put in order by a
//! counter, not by time: a read shows nothing of what became known after it began, and settles no doubt raised since.
//!
//! That a document is absent is known only from a read of it alone, and from our own deletion of it. A list takes nothing away: what was
//! known or is referred to and is not listed, and what somebody who asks may have, is read by itself before anything is concluded.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    documents::{self, Listed},
    effects,
    need::{Doubt, Expected, Lifetimes, Need},
};
use crate::providers::azure::{
    arm::{
        ArmError, ResourceId,
        document::SubResource,
        network::{BackendAddressPool, LoadBalancer, NetworkSecurityGroup, PublicIpAddress, Subnet},
    },
    load_balancer::observed::Observed,
};

/// So many doubtful documents of one list are read one by one; with more, the list is read.
const SINGLES: usize = 3;
/// How long something is believed to be missing that may be created any moment.
const ABSENT: Duration = Duration::from_secs(15);
/// How long it is remembered at all that something was missing.
const PROOFS_KEPT: Duration = Duration::from_secs(600);

/// A place in the order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tick(u64);

/// What a read brought; `None`: ARM says that it does not exist.
#[derive(Debug)]
pub(super) enum Answer {
    LoadBalancers(Vec<LoadBalancer>),
    LoadBalancer(Option<Box<LoadBalancer>>),
    PublicIps(Vec<PublicIpAddress>),
    /// ARM says that the group of the list does not exist, and the list said this.
    NoGroup(Box<ArmError>),
    PublicIp(Option<Box<PublicIpAddress>>),
    SecurityGroup(Option<Box<NetworkSecurityGroup>>),
    Subnet(Option<Box<Subnet>>),
}

/// What a write brought about.
#[derive(Debug)]
pub(in crate::providers::azure::load_balancer) enum Written {
    /// A load balancer is like this.
    LoadBalancer(ResourceId, Box<LoadBalancer>),
    /// A load balancer is gone.
    NoLoadBalancer(ResourceId),
    /// A pool of a load balancer is like this.
    Pool(ResourceId, Box<BackendAddressPool>),
    /// Something else about a load balancer has changed.
    Inside(ResourceId),
    /// A public IP is like this.
    PublicIp(ResourceId, Box<PublicIpAddress>),
    /// A public IP is gone.
    NoPublicIp(ResourceId),
    /// The security group is like this.
    SecurityGroup(Box<NetworkSecurityGroup>),
}

/// What is known of a document that is about to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::providers::azure::load_balancer) struct Standing {
    /// The version that is known, if the document is: a document need not have an etag.
    pub etag: Option<Option<String>>,
    /// Whether it has to be read before it is believed.
    pub doubted: bool,
    /// Whether its etag is known to be an old one, while the rest is as it was.
    pub stale: bool,
    /// Whether a read of it alone has shown a moment ago that it does not exist.
    pub absent: bool,
}

#[derive(Debug)]
struct Reading {
    at: Instant,
    ended: Tick,
    found: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Knowledge {
    own_group: ResourceId,
    security_group: Option<ResourceId>,
    lifetimes: Lifetimes,
    observed: Arc<Observed>,
    last: u64,
    /// Whole lists, the security group and subnets.
    read: HashMap<Doubt, Reading>,
    doubts: HashMap<Doubt, Tick>,
    /// Those of the doubtful documents that a list lacked: another list would prove nothing.
    unlisted: HashSet<ResourceId>,
    /// What reads of single documents found absent, and what was deleted.
    absent: HashMap<ResourceId, Reading>,
    /// When something became known of a document otherwise than by a list; kept while an older read is under way.
    touched: HashMap<ResourceId, Tick>,
    /// Public IPs of whose etag it is known that it changed.
    stale: HashMap<ResourceId, Tick>,
    reading: BTreeSet<Tick>,
}

impl Knowledge {
    /// Nothing. `own_group`: the cluster's, whose public IPs every look needs.
    pub(super) fn new(own_group: ResourceId, security_group: Option<ResourceId>, lifetimes: Lifetimes) -> Self {
        Self {
            own_group,
            security_group,
            lifetimes,
            observed: Arc::default(),
            last: 0,
            read: HashMap::new(),
            doubts: HashMap::new(),
            unlisted: HashSet::new(),
            absent: HashMap::new(),
            touched: HashMap::new(),
            stale: HashMap::new(),
            reading: BTreeSet::new(),
        }
    }

    /// What is known now.
    pub(super) fn observed(&self) -> Arc<Observed> {
        Arc::clone(&self.observed)
    }

    /// The next place in the order of events.
    pub(super) fn tick(&mut self) -> Tick {
        self.last += 1;
        Tick(self.last)
    }

    /// Makes a change in the snapshot, which others may hold as it was.
    fn change(&mut self) -> &mut Observed {
        Arc::make_mut(&mut self.observed)
    }

    /// The region's zones.
    pub(super) fn set_zones(&mut self, zones: Vec<String>) {
        if self.observed.zones != zones {
            self.change().zones = zones;
        }
    }

    /// Names of scale sets or availability sets.
    pub(super) fn set_vm_sets(&mut self, vm_sets: Vec<String>) {
        if self.observed.vm_sets != vm_sets {
            self.change().vm_sets = vm_sets;
        }
    }

    /// What is known of this may be wrong.
    pub(super) fn doubt(&mut self, what: Doubt) {
        let now = self.tick();
        self.doubts.insert(what.normal(), now);
    }
}

/// Reads.
impl Knowledge {
    /// Everything that a look needs, in the order in which it is read.
    fn needed(&self, need: &Need) -> Vec<Doubt> {
        let groups: BTreeSet<_> = need.public_ip_groups.iter().chain([&self.own_group]).collect();
        let subnets: BTreeSet<String> = need.subnets.iter().map(|name| name.to_ascii_lowercase()).collect();
        let mut needed = vec![Doubt::LoadBalancers];
        needed.extend(groups.into_iter().cloned().map(Doubt::PublicIps));
        needed.extend(self.security_group.is_some().then_some(Doubt::SecurityGroup));
        needed.extend(subnets.into_iter().map(Doubt::Subnet));
        needed
    }

    fn lifetime(&self, what: &Doubt, found: bool) -> Duration {
        let lifetime = match what {
            Doubt::LoadBalancers | Doubt::LoadBalancer(_) => self.lifetimes.load_balancers,
            Doubt::PublicIps(_) | Doubt::PublicIp(_) => self.lifetimes.public_ips,
            Doubt::SecurityGroup => self.lifetimes.security_group,
            Doubt::Subnet(_) => self.lifetimes.subnets,
        };
        if found { lifetime } else { lifetime.min(ABSENT) }
    }

    /// Whether it is known well enough for a look that began at `asked`: read since, or young enough, and not doubted itself.
    fn is_good(&self, what: &Doubt, asked: Tick, now: Instant) -> bool {
        !self.doubts.contains_key(what)
            && self.read.get(what).is_some_and(|reading| {
                reading.ended > asked || now.saturating_duration_since(reading.at) < self.lifetime(what, reading.found)
            })
    }

    /// What has to be read before a look that began at `asked` can be answered.
    pub(super) fn due(&self, need: &Need, asked: Tick, now: Instant) -> Vec<Doubt> {
        let mut due = Vec::new();
        for what in self.needed(need) {
            if !self.is_good(&what, asked, now) {
                due.push(what);
                continue;
            }
            let doubted = self.doubts.keys().filter(|doubt| what.covers(doubt)).cloned();
            let (unlisted, singles): (Vec<_>, Vec<_>) = doubted.partition(|doubt| self.is_unlisted(doubt));
            due.extend(unlisted);
            due.extend(
                need.expected
                    .iter()
                    .filter(|one| self.is_open(one, asked, now))
                    .map(Expected::read)
                    .filter(|read| what.covers(read) && !self.doubts.contains_key(read)),
            );
            if singles.len() > SINGLES { due.push(what) } else { due.extend(singles) }
        }
        due
    }

    fn is_unlisted(&self, doubt: &Doubt) -> bool {
        matches!(doubt, Doubt::LoadBalancer(id) | Doubt::PublicIp(id) if self.unlisted.contains(id))
    }

    /// Whether nothing is known of a document that may be there.
    fn is_open(&self, expected: &Expected, asked: Tick, now: Instant) -> bool {
        let id = expected.id();
        let is_known = match expected {
            Expected::LoadBalancer(_) => self.load_balancer(id).is_some(),
            Expected::PublicIp(_) => self.public_ip(id).is_some(),
        };
        !is_known && !self.is_absent(&expected.read(), id, asked, now)
    }

    fn is_absent(&self, what: &Doubt, id: &ResourceId, asked: Tick, now: Instant) -> bool {
        let lifetime = self.lifetime(what, false);
        let is_young = |at: Instant| now.saturating_duration_since(at) < lifetime;
        self.absent.get(id).is_some_and(|reading| reading.ended > asked || is_young(reading.at))
    }

    /// Forgets public IPs of groups and subnets that this look does not need and that the next one would have to read anyway: nobody
    /// shall plan with them.
    pub(super) fn forget(&mut self, need: &Need, asked: Tick, now: Instant) {
        let needed = self.needed(need);
        let doubted = |what: &Doubt| self.doubts.keys().any(|doubt| what.covers(doubt));
        let is_old = |what: &&Doubt| !needed.contains(*what) && (!self.is_good(what, asked, now) || doubted(what));
        let old: Vec<Doubt> = self.read.keys().filter(is_old).cloned().collect();
        for what in old {
            self.read.remove(&what);
            self.doubts.retain(|doubt, _| !what.covers(doubt));
            match &what {
                Doubt::PublicIps(group) => self.drop_group(group),
                Doubt::Subnet(name) => self.set_subnet(name, None),
                _ => {}
            }
        }
    }

    /// A read is sent now. Answers its place; [`Knowledge::end`] has to follow.
    pub(super) fn begin(&mut self) -> Tick {
        let since = self.tick();
        self.reading.insert(since);
        since
    }

    /// The read that began at `since` has ended.
    pub(super) fn end(&mut self, since: Tick) {
        self.reading.remove(&since);
        let oldest = self.reading.first().copied().unwrap_or(Tick(u64::MAX));
        self.touched.retain(|_, tick| *tick > oldest);
    }

    /// Takes in what a read of `what` brought that was sent at `since` and `at`.
    pub(super) fn record(&mut self, what: Doubt, since: Tick, at: Instant, answer: Answer) {
        let (mut found, mut lacking) = (true, Vec::new());
        match (&what, answer) {
            (_, Answer::LoadBalancers(list)) => lacking = self.set_listed_balancers(list, since),
            (Doubt::PublicIps(group), Answer::PublicIps(list)) => {
                let touched = std::mem::take(&mut self.touched);
                let is_newer = |id: &ResourceId| touched.get(id).is_some_and(|tick| *tick > since);
                lacking = self.set_listed_ips(list, group, is_newer);
                self.stale.retain(|id, _| is_newer(id) || id.parent().as_ref() != Some(group));
                self.touched = touched;
            }
            (Doubt::PublicIps(group), Answer::NoGroup(_)) => {
                found = false;
                self.drop_group(group);
            }
            (Doubt::LoadBalancer(id), Answer::LoadBalancer(document)) => {
                let found = document.is_some();
                self.record_single(id, (since, at, found), &what, |known| set(&mut known.load_balancers, id, document));
                return self.doubt_what_is_referred_to();
            }
            (Doubt::PublicIp(id), Answer::PublicIp(document)) => {
                let found = document.is_some();
                return self.record_single(id, (since, at, found), &what, |known| set(&mut known.public_ips, id, document));
            }
            (_, Answer::SecurityGroup(document)) => {
                found = document.is_some();
                if self.security_group.as_ref().is_some_and(|id| self.is_newer(id, since)) {
                    return;
                }
                self.set_security_group(document.map(|document| *document));
            }
            (Doubt::Subnet(name), Answer::Subnet(document)) => {
                found = document.is_some();
                self.set_subnet(name, document.map(|document| *document));
            }
            _ => return,
        }
        self.settle(&what, since);
        lacking.into_iter().for_each(|doubt| self.doubt_unlisted(doubt));
        let ended = self.tick();
        self.read.insert(what, Reading { at, ended, found });
        self.absent.retain(|_, reading| at.saturating_duration_since(reading.at) < PROOFS_KEPT);
        self.doubt_what_is_referred_to();
    }

    /// A list lacks it.
    fn doubt_unlisted(&mut self, what: Doubt) {
        if let Doubt::LoadBalancer(id) | Doubt::PublicIp(id) = &what {
            self.unlisted.insert(id.clone());
            self.doubt(what);
        }
    }

    /// ARM deletes no public IP that a front end refers to: one that the list of its group lacks was left out.
    fn doubt_what_is_referred_to(&mut self) {
        let is_listed = |id: &ResourceId| id.parent().is_some_and(|group| self.read.contains_key(&Doubt::PublicIps(group)));
        let attached = self.observed.load_balancers.iter().flat_map(|balancer| effects::attachments(balancer).into_keys());
        let mut unknown: HashSet<ResourceId> = attached.collect();
        for known in &self.observed.public_ips {
            if unknown.is_empty() {
                return;
            }
            if let Some(id) = known.resource_id() {
                unknown.remove(&id);
            }
        }
        unknown.retain(|id| is_listed(id) && !self.absent.contains_key(id));
        unknown.into_iter().for_each(|id| self.doubt_unlisted(Doubt::PublicIp(id)));
    }

    /// Nothing is known of the public IPs of a group any more.
    fn drop_group(&mut self, group: &ResourceId) {
        let is_in = |id: &ResourceId| id.parent().as_ref() == Some(group);
        if self.observed.public_ips.iter().any(|known| known.resource_id().is_some_and(|id| is_in(&id))) {
            self.change().public_ips.retain(|known| !known.resource_id().is_some_and(|id| is_in(&id)));
        }
        self.unlisted.retain(|id| !is_in(id));
    }

    /// A single document is taken over unless something newer is known; then it stays doubtful and is read again.
    fn record_single(
        &mut self,
        id: &ResourceId,
        (since, at, found): (Tick, Instant, bool),
        what: &Doubt,
        change: impl FnOnce(&mut Observed),
    ) {
        if !self.is_newer(id, since) {
            change(self.change());
            self.stale.remove(id);
            self.settle(what, since);
            self.prove(id, at, found);
            self.touch(id);
        }
    }

    /// Whether a document exists has been seen by itself.
    fn prove(&mut self, id: &ResourceId, at: Instant, found: bool) {
        let ended = self.tick();
        match found {
            true => drop(self.absent.remove(id)),
            false => drop(self.absent.insert(id.clone(), Reading { at, ended, found })),
        }
    }

    fn is_newer(&self, id: &ResourceId, since: Tick) -> bool {
        self.touched.get(id).is_some_and(|tick| *tick > since)
    }

    fn touch(&mut self, id: &ResourceId) {
        let now = self.tick();
        self.touched.insert(id.clone(), now);
    }

    /// Doubts older than `since` that the read has settled: not those about documents that it did not get to say anything about.
    fn settle(&mut self, what: &Doubt, since: Tick) {
        let touched = &self.touched;
        let is_newer = |id: &ResourceId| touched.get(id).is_some_and(|tick| *tick > since);
        self.doubts.retain(|doubt, tick| {
            let untold = matches!(doubt, Doubt::LoadBalancer(id) | Doubt::PublicIp(id) if is_newer(id));
            *tick > since || untold || !what.covers(doubt)
        });
        let doubts = &self.doubts;
        let is_doubted = |id: &ResourceId| {
            doubts.contains_key(&Doubt::LoadBalancer(id.clone())) || doubts.contains_key(&Doubt::PublicIp(id.clone()))
        };
        self.unlisted.retain(is_doubted);
    }

    /// Answers what the list lacks.
    fn set_listed_balancers(&mut self, list: Vec<LoadBalancer>, since: Tick) -> Vec<Doubt> {
        let known = &self.observed.load_balancers;
        let (list, lacking) = documents::listed(known, list, |_| true, |id| self.is_newer(id, since));
        if *known != list {
            self.change().load_balancers = list;
        }
        lacking.into_iter().map(Doubt::LoadBalancer).collect()
    }

    /// Answers what the list lacks.
    fn set_listed_ips(
        &mut self,
        list: Vec<PublicIpAddress>,
        group: &ResourceId,
        is_newer: impl Fn(&ResourceId) -> bool,
    ) -> Vec<Doubt> {
        let known = &self.observed.public_ips;
        let (list, lacking) = documents::listed(known, list, |id| id.parent().as_ref() == Some(group), is_newer);
        if *known != list {
            self.change().public_ips = list;
        }
        lacking.into_iter().map(Doubt::PublicIp).collect()
    }

    fn set_security_group(&mut self, document: Option<NetworkSecurityGroup>) {
        if self.observed.security_group != document {
            self.change().security_group = document;
        }
    }

    fn set_subnet(&mut self, name: &str, document: Option<Subnet>) {
        if self.observed.subnets.get(name) != document.as_ref() {
            let subnets = &mut self.change().subnets;
            match document {
                Some(document) => drop(subnets.insert(name.to_owned(), document)),
                None => drop(subnets.remove(name)),
            }
        }
    }
}

fn set<D: Listed>(list: &mut Vec<D>, id: &ResourceId, document: Option<Box<D>>) {
    match document {
        Some(document) => documents::put(list, id, *document),
        None => list.retain(|known| !known.is(id)),
    }
}

/// Writes.
impl Knowledge {
    /// A public IP, as it is known.
    pub(super) fn public_ip(&self, id: &ResourceId) -> Option<&PublicIpAddress> {
        self.observed.public_ips.iter().find(|known| known.is(id))
    }

    /// A load balancer, as it is known.
    pub(super) fn load_balancer(&self, id: &ResourceId) -> Option<&LoadBalancer> {
        self.observed.load_balancers.iter().find(|known| known.is(id))
    }

    /// What is known of the document that a single read of `what` would show.
    pub(super) fn standing(&self, what: &Doubt, now: Instant) -> Standing {
        let (etag, stale, whole) = match what {
            Doubt::LoadBalancer(id) => {
                (self.load_balancer(id).map(|known| known.etag.clone()), false, Some(Doubt::LoadBalancers))
            }
            Doubt::PublicIp(id) => {
                let etag = self.public_ip(id).map(|known| known.etag.clone());
                (etag, self.stale.contains_key(id), id.parent().map(Doubt::PublicIps))
            }
            Doubt::SecurityGroup => (self.observed.security_group.as_ref().map(|known| known.etag.clone()), false, None),
            _ => (None, false, None),
        };
        let doubted = self.doubts.contains_key(what) || whole.is_some_and(|whole| self.doubts.contains_key(&whole));
        let never = Tick(u64::MAX);
        let absent = matches!(what, Doubt::LoadBalancer(id) | Doubt::PublicIp(id) if self.is_absent(what, id, never, now));
        Standing { etag, doubted, stale, absent }
    }

    /// Takes in what a write brought about that was sent at `since` and answered at `at`. Doubts raised since then remain.
    pub(super) fn write_back(&mut self, written: Written, since: Tick, at: Instant) {
        match written {
            Written::LoadBalancer(id, document) => {
                self.attach(&id, &effects::attachments(&document));
                self.known_anew(&Doubt::LoadBalancer(id.clone()), &id, since);
                self.prove(&id, at, true);
                documents::put(&mut self.change().load_balancers, &id, *document);
            }
            Written::NoLoadBalancer(id) => {
                self.attach(&id, &HashMap::new());
                self.known_anew(&Doubt::LoadBalancer(id.clone()), &id, since);
                self.prove(&id, at, false);
                self.change().load_balancers.retain(|known| !known.is(&id));
            }
            Written::Pool(id, pool) => {
                let Some(balancer) = id.parent() else { return };
                if let Some(known) = self.change().load_balancers.iter_mut().find(|known| known.is(&balancer)) {
                    effects::put_pool(known, id.name(), *pool);
                }
                self.touch(&balancer);
                self.doubt(Doubt::LoadBalancer(balancer));
            }
            Written::Inside(balancer) => self.doubt(Doubt::LoadBalancer(balancer)),
            Written::PublicIp(id, document) => {
                self.prove(&id, at, true);
                self.put_public_ip(&id, *document, since);
            }
            Written::NoPublicIp(id) => {
                self.stale.remove(&id);
                self.known_anew(&Doubt::PublicIp(id.clone()), &id, since);
                self.prove(&id, at, false);
                self.change().public_ips.retain(|known| !known.is(&id));
            }
            Written::SecurityGroup(document) => {
                if let Some(id) = self.security_group.clone() {
                    self.known_anew(&Doubt::SecurityGroup, &id, since);
                }
                self.set_security_group(Some(*document));
                let ended = self.tick();
                self.read.insert(Doubt::SecurityGroup, Reading { at, ended, found: true });
            }
        }
    }

    fn known_anew(&mut self, what: &Doubt, id: &ResourceId, since: Tick) {
        self.doubts.retain(|doubt, tick| doubt != what || *tick > since);
        self.touch(id);
    }

    /// The answer may have been made before a load balancer was written meanwhile; then its etag and what it is attached to are old.
    fn put_public_ip(&mut self, id: &ResourceId, mut document: PublicIpAddress, since: Tick) {
        if self.stale.get(id).is_some_and(|tick| *tick > since) {
            let attached = self.public_ip(id).and_then(|known| known.properties.as_ref()?.ip_configuration.clone());
            document.properties.get_or_insert_default().ip_configuration = attached;
        } else {
            self.stale.remove(id);
        }
        self.known_anew(&Doubt::PublicIp(id.clone()), id, since);
        documents::put(&mut self.change().public_ips, id, document);
    }

    /// The load balancer `id` has been written, and has these attachments now.
    fn attach(&mut self, id: &ResourceId, attachments: &HashMap<ResourceId, SubResource>) {
        let changed = |public_ip: &PublicIpAddress| effects::on_public_ip(id, attachments, public_ip);
        if self.observed.public_ips.iter().all(|public_ip| changed(public_ip).is_none()) {
            return;
        }
        let mut touched = Vec::new();
        for public_ip in &mut self.change().public_ips {
            if let Some(attached) = changed(public_ip) {
                public_ip.properties.get_or_insert_default().ip_configuration = attached;
                touched.extend(public_ip.resource_id());
            }
        }
        let now = self.tick();
        self.touched.extend(touched.iter().map(|id| (id.clone(), now)));
        self.stale.extend(touched.into_iter().map(|id| (id, now)));
    }
}

#[cfg(test)]
mod tests;
