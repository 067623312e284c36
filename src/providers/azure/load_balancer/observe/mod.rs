//! The only reader of the network documents: load balancers, public IPs, the security group, subnets.
//!
//! In: what a look needs. Out: [`Observed`], as young as the configuration asks, with as few requests as that takes.
//!
//! ```text
//! observe ─► knowledge (what is due?) ─► fetch ◄── ARM
//!                ▲  record, write_back      │
//!                └──────────────────────────┘
//! ```
//! Reads run in tasks of their own and are shared by all who wait for the same. What the writer (`super::apply`) was answered comes in
//! here, so that nothing is read that a write has shown. Everything but [`Observer`] and `fetch` is pure.
//!
//! Absent is a fact about one thing: `fetch` says what proves it, `knowledge` reads again by itself what a list should have shown, and
//! `denials` remembers which resource groups and subnets may not be read.

mod denials;
mod documents;
mod effects;
mod fetch;
mod knowledge;
mod need;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use denials::{Cause, Denials};
pub(super) use effects::{doubts, references};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, join_all},
};
use knowledge::{Answer, Knowledge, Tick};
pub(super) use knowledge::{Standing, Written};
pub use need::{Doubt, Expected, Lifetimes, Need};

use tokio::time::Instant;

use super::{observed::Observed, settings::Settings};
use crate::{
    providers::azure::arm::{
        ArmClient, ArmError, ArmResult, ErrorClass, ResourceId, Urgency,
        network::{LoadBalancer, PublicIpAddress},
    },
    runtime::clock::Clock,
};

/// A read under way, for all who wait for it.
type Flight = Shared<BoxFuture<'static, ArmResult<()>>>;

/// Something that only some Services name, and that could not be read.
#[derive(Debug, Clone)]
pub struct Unread {
    /// What.
    pub what: Doubt,
    /// Why.
    pub error: ArmError,
    /// Whether that is because ARM says of its resource group that it does not exist.
    pub gone: bool,
}

/// What is known of the network, and how to learn the rest.
pub struct Observer {
    client: ArmClient,
    settings: Arc<Settings>,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    knowledge: Knowledge,
    denials: Denials,
    flights: HashMap<Doubt, Flight>,
}

impl State {
    /// The answer to a read of `what`. That there is no such group is an error for those who name it.
    fn take_in(
        &mut self,
        what: Doubt,
        since: Tick,
        at: Instant,
        answer: ArmResult<Answer>,
        settings: &Settings,
    ) -> ArmResult<()> {
        let cause = match &answer {
            Ok(Answer::NoGroup(error)) => Some(Cause::NoGroup((**error).clone())),
            Ok(Answer::Subnet(None)) => Some(Cause::Absent),
            Ok(_) => None,
            Err(error) => Some(Cause::Failed(error.clone())),
        };
        let denied = match &cause {
            Some(Cause::NoGroup(error) | Cause::Failed(error)) => Some(error.clone()),
            Some(Cause::Absent) | None => None,
        };
        match cause {
            _ if !is_of_some(&what, settings) => {}
            Some(cause) => self.denials.note(&what, cause, at),
            None => self.denials.recovered(&what),
        }
        if let Ok(answer) = answer {
            self.knowledge.record(what, since, at, answer);
        }
        denied.map_or(Ok(()), Err)
    }
}

impl Observer {
    /// An observer that knows nothing yet.
    pub fn new(client: ArmClient, settings: Arc<Settings>, lifetimes: Lifetimes, clock: Clock) -> Arc<Self> {
        let knowledge = Knowledge::new(settings.group.clone(), settings.security_group.clone(), lifetimes);
        let state = Mutex::new(State { knowledge, denials: Denials::default(), flights: HashMap::new() });
        Arc::new(Self { client, settings, clock, state })
    }

    /// What there is, after reading what is missing, doubted or older than its lifetime. Callers at the same time share reads. The same
    /// `Arc` as before when nothing has changed.
    ///
    /// A security group or subnet of which ARM says that it does not exist counts as absent. An error about what `need` names is told
    /// beside what there is otherwise, since it concerns only those who need that; any other error is the answer. That a resource
    /// group or subnet may not be read or does not exist is remembered for minutes; after any other error the next look tries again, and
    /// reads only what failed.
    pub async fn observe(self: &Arc<Self>, need: &Need, urgency: Urgency) -> ArmResult<(Arc<Observed>, Vec<Unread>)> {
        let (mut need, mut unread) = self.without_denied(need.clone());
        loop {
            let failed = match self.observe_all(&need, urgency).await {
                Ok(observed) => return Ok((observed, unread)),
                Err(failed) => failed,
            };
            for one in failed {
                if !need.remove(&one.what) {
                    return Err(one.error);
                }
                unread.push(one);
            }
        }
    }

    /// `need` without what is known not to be readable, and why. A subnet that does not exist is no error, as when it has just been read.
    fn without_denied(&self, mut need: Need) -> (Need, Vec<Unread>) {
        let (state, now, mut unread) = (self.lock(), self.clock.now(), Vec::new());
        for what in need.named() {
            let Some(cause) = state.denials.of(&what, now) else { continue };
            need.remove(&what);
            match cause.clone() {
                Cause::Failed(error) => unread.push(Unread { what, error, gone: false }),
                Cause::NoGroup(error) => unread.push(Unread { what, error, gone: true }),
                Cause::Absent => {}
            }
        }
        (need, unread)
    }

    /// Whether the last read of this failed for a reason that lasts. It concerns only those who name it.
    pub fn is_denied(&self, what: &Doubt) -> bool {
        self.lock().denials.is_denied(what)
    }

    /// The same; an error is what could not be read.
    async fn observe_all(self: &Arc<Self>, need: &Need, urgency: Urgency) -> Result<Arc<Observed>, Vec<Unread>> {
        let asked = self.begin_look(need);
        loop {
            let flights: Vec<_> = {
                let mut state = self.lock();
                let due = state.knowledge.due(need, asked, self.clock.now());
                if due.is_empty() {
                    return Ok(state.knowledge.observed());
                }
                let join = |what: Doubt| (what.clone(), self.join(&mut state, what, urgency));
                due.into_iter().map(join).collect()
            };
            let reads = flights.into_iter().map(|(what, flight)| async move {
                let error = flight.await.err()?;
                let gone = self.is_gone(&what);
                Some(Unread { what, error, gone })
            });
            let failed: Vec<Unread> = join_all(reads).await.into_iter().flatten().collect();
            if !failed.is_empty() {
                return Err(failed);
            }
        }
    }

    fn is_gone(&self, what: &Doubt) -> bool {
        matches!(self.lock().denials.of(what, self.clock.now()), Some(Cause::NoGroup(_)))
    }

    /// What is known now, without any request; empty before the first look.
    pub fn known(&self) -> Arc<Observed> {
        self.lock().knowledge.observed()
    }

    /// What is known of this may be wrong: the next look that needs it reads it again, and nothing planned before is written.
    pub fn doubt(&self, what: Doubt) {
        self.lock().knowledge.doubt(what);
    }

    /// Tells the zones of the region, for [`Observed::zones`].
    pub fn set_zones(&self, zones: Vec<String>) {
        self.lock().knowledge.set_zones(zones);
    }

    /// Tells the scale sets or availability sets of the cluster's machines, for [`Observed::vm_sets`].
    pub fn set_vm_sets(&self, vm_sets: Vec<String>) {
        self.lock().knowledge.set_vm_sets(vm_sets);
    }

    fn begin_look(&self, need: &Need) -> Tick {
        let mut state = self.lock();
        let asked = state.knowledge.tick();
        state.knowledge.forget(need, asked, self.clock.now());
        asked
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The read of `what` that is under way, or a new one.
    fn join(self: &Arc<Self>, state: &mut State, what: Doubt, urgency: Urgency) -> Flight {
        match state.flights.get(&what).filter(|flight| flight.peek().is_none()) {
            Some(flight) => flight.clone(),
            None => self.start(state, what, urgency),
        }
    }

    /// A new read, in a task of its own: whoever asked may go away without its being sent again.
    fn start(self: &Arc<Self>, state: &mut State, what: Doubt, urgency: Urgency) -> Flight {
        let since = state.knowledge.begin();
        let (this, read, client) = (Arc::clone(self), what.clone(), self.client.with_urgency(urgency));
        let task = tokio::spawn(async move { this.read(&client, read, since).await });
        let flight = task.map(|joined| joined.unwrap_or_else(|_| Err(broken_off()))).boxed().shared();
        state.flights.insert(what, flight.clone());
        flight
    }

    async fn read(&self, client: &ArmClient, what: Doubt, since: Tick) -> ArmResult<()> {
        let at = self.clock.now();
        let answer = fetch::read(client, &self.settings, &what).await;
        let mut state = self.lock();
        state.flights.remove(&what);
        let outcome = state.take_in(what, since, at, answer, &self.settings);
        state.knowledge.end(since);
        outcome
    }
}

/// For the writer.
impl Observer {
    /// What is known of the document that a read of `what` shows.
    pub(super) fn standing(&self, what: &Doubt) -> Standing {
        self.lock().knowledge.standing(what, self.clock.now())
    }

    /// What is known of a public IP.
    pub(super) fn public_ip(&self, id: &ResourceId) -> Option<PublicIpAddress> {
        self.lock().knowledge.public_ip(id).cloned()
    }

    /// What is known of a load balancer.
    pub(super) fn load_balancer(&self, id: &ResourceId) -> Option<LoadBalancer> {
        self.lock().knowledge.load_balancer(id).cloned()
    }

    /// Reads this again now, whatever is under way.
    pub(super) async fn read_again(self: &Arc<Self>, what: Doubt, urgency: Urgency) -> ArmResult<()> {
        let flight = self.start(&mut self.lock(), what, urgency);
        flight.await
    }

    /// A write of the document that a read of `what` shows is sent now.
    pub(super) fn begin_write(self: &Arc<Self>, what: Doubt) -> Writing {
        let since = self.lock().knowledge.tick();
        Writing { observer: Arc::clone(self), what: Some(what), since }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// A write under way. What it is about is doubtful when nobody says how it ended.
pub(super) struct Writing {
    observer: Arc<Observer>,
    what: Option<Doubt>,
    since: Tick,
}

impl Writing {
    /// It succeeded.
    pub(super) fn succeeded(mut self, written: Written) {
        self.what = None;
        let at = self.observer.clock.now();
        self.observer.lock().knowledge.write_back(written, self.since, at);
    }

    /// It failed. `doubts`: what is doubtful now.
    pub(super) fn failed(mut self, doubts: Vec<Doubt>) {
        self.what = None;
        let mut state = self.observer.lock();
        doubts.into_iter().for_each(|doubt| state.knowledge.doubt(doubt));
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(what) = self.what.take() {
            self.observer.doubt(what);
        }
    }
}

/// Whether only some Services name it. The cluster's own group and subnet have to exist.
fn is_of_some(what: &Doubt, settings: &Settings) -> bool {
    match what {
        Doubt::PublicIps(group) => *group != settings.group,
        Doubt::Subnet(name) => !name.eq_ignore_ascii_case(&settings.subnet),
        _ => false,
    }
}

fn broken_off() -> ArmError {
    ArmError {
        class: ErrorClass::Transient,
        status: None,
        code: String::new(),
        message: "the read was broken off; it is tried again".to_owned(),
        request: "network documents".to_owned(),
        correlation_id: None,
        retry_after: None,
    }
}
