//! The way of one Service through the stages. Each stage serves all who have come to it at once.
//!
//! ```text
//! plan ─► public IPs (each by itself) ─► load balancers ─► pool members ─► security group ─► public IPs that can go
//! ```
//!
//! Killed anywhere, the next try goes the same way and finds what is done already; what is made is tagged or named so that it is found.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::join_all;

use super::{
    admission::{Puts, admit},
    balancers::{Balancers, Got, Step},
    membership,
    progress::{Progress, Stage},
    rounds::{Suspects, commit},
    security::SecurityGroup,
    world::World,
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::{ArmResult, ErrorClass, Urgency},
        load_balancer::{
            commit::batch::{Batcher, Coming, Interrupted},
            desired::{Ask, load_balancers::KeptFrontend, public_ips::Release},
            events::Call,
            explain::cloud_error,
            roster::Wish,
            spec::{Identity, ServiceSpec},
        },
    },
};

/// How often a Service begins anew because its public IPs have changed, before the queue of the controller spaces the tries.
const PASSES: usize = 6;
/// Least time in which asks gather at a stage: a hundredth of what the writes take. Those who leave a stage together come to the next
/// one a moment after each other.
const GATHER: Duration = Duration::from_millis(50);

/// Longest that a Service with its public IPs waits for others that still get theirs.
const BALANCERS: Duration = Duration::from_secs(30);
/// Longest that it waits for others before the security group is written: they come in the batches of the load balancers.
const RULES: Duration = Duration::from_secs(5);

/// One ask on its way.
struct Turn {
    ask: Ask,
    urgency: Urgency,
}

/// What stays although a Service does not want it any more.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) frontends: Vec<KeptFrontend>,
    pub(super) public_ips: Vec<Release>,
}

/// The stages.
pub(super) struct Flow {
    pub(super) world: World,
    pub(super) progress: Progress,
    admission: Batcher<Turn, CloudResult<Puts>>,
    balancers: Batcher<Turn, CloudResult<Step>>,
    members: Batcher<Turn, CloudResult<()>>,
    security: Batcher<Turn, CloudResult<()>>,
    suspects: (Suspects, Suspects),
}

/// Those who wait for this Service.
struct Awaited {
    balancers: Coming,
    security: Coming,
}

impl Flow {
    pub(super) fn new(world: World, progress: Progress) -> Self {
        Self {
            world,
            progress,
            admission: Batcher::new(GATHER, Duration::ZERO),
            balancers: Batcher::new(GATHER, BALANCERS),
            members: Batcher::new(GATHER, Duration::ZERO),
            security: Batcher::new(GATHER, RULES),
            suspects: Default::default(),
        }
    }

    /// How many wait at which stage.
    pub(super) fn waiting(&self) -> [(&'static str, usize); 4] {
        [
            ("plan", self.admission.waiting()),
            ("loadBalancers", self.balancers.waiting()),
            ("members", self.members.waiting()),
            ("securityGroup", self.security.waiting()),
        ]
    }

    /// Brings everything to what is asked. Answers what could not be taken away.
    pub(super) async fn run(&self, ask: &Ask, urgency: Urgency) -> CloudResult<Kept> {
        for _ in 0..PASSES {
            if let Some(kept) = self.pass(ask, urgency).await? {
                if matches!(ask, Ask::Remove(..)) {
                    self.world.tried().remove(ask.identity());
                }
                return Ok(kept);
            }
        }
        Err(CloudError::failed("its public IPs keep being changed by somebody else"))
    }

    /// `None`: it has to begin anew.
    async fn pass(&self, ask: &Ask, urgency: Urgency) -> CloudResult<Option<Kept>> {
        let awaited = Awaited { balancers: self.balancers.announce(), security: self.security.announce() };
        self.at(ask, Stage::Planning);
        let turn = || Turn { ask: ask.clone(), urgency };
        let puts = given_up(self.admission.submit(turn(), None, |turns| self.admit(turns)).await)??;
        if !self.put_public_ips(ask, &puts, urgency).await? {
            return Ok(None);
        }
        self.at(ask, Stage::LoadBalancer);
        let step = self.balancers.submit(turn(), Some(awaited.balancers), |turns| self.write_balancers(turns)).await;
        let Step::Placed(got) = given_up(step)?? else { return Ok(None) };
        let joined = self.members(ask, turn()).await;
        if got.recreated {
            drop(awaited.security);
        } else {
            // Who may reach the front end does not depend on which machines are behind it.
            self.at(ask, Stage::SecurityGroup);
            given_up(self.security.submit(turn(), Some(awaited.security), |turns| self.write_rules(turns)).await)??;
        }
        joined?;
        let is_done = self.release(ask, &got, urgency).await? && !got.recreated;
        let Got { placed, kept, .. } = *got;
        Ok(is_done.then_some(Kept { frontends: placed.kept, public_ips: kept }))
    }

    async fn members(&self, ask: &Ask, turn: Turn) -> CloudResult<()> {
        if matches!(ask, Ask::Remove(..)) {
            return Ok(());
        }
        self.at(ask, Stage::Members);
        let running = self.world.counting.join(ask);
        let joined = given_up(self.members.submit(turn, None, |turns| self.join(turns)).await).and_then(|joined| joined);
        running.into_iter().for_each(|one| one.end(joined.is_ok()));
        joined
    }

    fn at(&self, ask: &Ask, stage: Stage) {
        self.progress.at(&ask.identity().key, stage);
    }

    async fn admit(&self, turns: Vec<Turn>) -> Vec<CloudResult<Puts>> {
        let (asks, urgency) = together(turns);
        admit(&self.world, asks, urgency).await
    }

    /// Whether they are as planned; otherwise somebody else has written one.
    async fn put_public_ips(&self, ask: &Ask, puts: &Puts, urgency: Urgency) -> CloudResult<bool> {
        if !puts.is_empty() {
            self.at(ask, Stage::PublicIps);
        }
        if !puts.is_empty() {
            self.world.tried().insert(ask.identity().clone());
        }
        let had_address = ask.spec().is_some_and(|spec| !spec.known_addresses.is_empty());
        let writes = puts.iter().map(|put| put.run(|change| self.world.writer.put_public_ip(change, had_address, urgency)));
        for written in join_all(writes).await {
            match written {
                Ok(()) => {}
                Err(error) if error.class == ErrorClass::Conflict => return Ok(false),
                Err(error) => {
                    self.world.tell(std::slice::from_ref(ask), Call::CreateOrUpdatePublicIp, &error);
                    return Err(cloud_error("write a public IP", error));
                }
            }
        }
        Ok(true)
    }

    async fn write_balancers(&self, turns: Vec<Turn>) -> Vec<CloudResult<Step>> {
        let (asks, urgency) = together(turns);
        let order: Vec<Identity> = asks.iter().map(|ask| ask.identity().clone()).collect();
        let stage = Balancers { world: &self.world, urgency };
        let mut answers = commit(&stage, asks, &self.suspects.0).await;
        order.iter().map(|who| answers.remove(who).unwrap_or(Ok(Step::Again))).collect()
    }

    async fn join(&self, turns: Vec<Turn>) -> Vec<CloudResult<()>> {
        let (asks, urgency) = together(turns);
        let joined = membership::join(&self.world, &asks, urgency).await;
        vec![joined; asks.len()]
    }

    async fn write_rules(&self, turns: Vec<Turn>) -> Vec<CloudResult<()>> {
        let (asks, urgency) = together(turns);
        let order: Vec<Identity> = asks.iter().map(|ask| ask.identity().clone()).collect();
        let stage = SecurityGroup { world: &self.world, urgency };
        let answers = commit(&stage, asks, &self.suspects.1).await;
        let unanswered = || Err(CloudError::failed("the security group was planned without this Service"));
        // A Service may be there twice: for itself, and because machines joined.
        order.iter().map(|who| answers.get(who).cloned().unwrap_or_else(unanswered)).collect()
    }

    /// Opens the machines that are in the pools now to Services whose rules lead to machines. What fails is tried again in a minute.
    pub(super) async fn open_machines(&self, urgency: Urgency) {
        let leads_to_machines = |spec: &Arc<ServiceSpec>| !spec.floating_ip && !spec.known_addresses.is_empty();
        let services = self.world.roster.others(&BTreeSet::new()).into_iter();
        let specs = services.filter_map(|wish| match wish {
            Wish::Valid(spec) => Some(spec).filter(leads_to_machines),
            Wish::Refused(..) => None,
        });
        let turns = specs.map(|spec| Turn { ask: Ask::Ensure(spec), urgency });
        let written = join_all(turns.map(|turn| self.security.submit(turn, None, |turns| self.write_rules(turns)))).await;
        for error in written.into_iter().filter_map(|rules| given_up(rules).and_then(|rules| rules).err()) {
            tracing::warn!(%error, "the security group does not open all machines that are in pools");
            self.world.unfollow();
        }
    }

    /// Whether those that can go are gone; otherwise somebody else has written one.
    async fn release(&self, ask: &Ask, got: &Got, urgency: Urgency) -> CloudResult<bool> {
        if !got.releases.is_empty() {
            self.at(ask, Stage::Releasing);
        }
        let deletions = got.releases.iter().map(|it| it.run(|release| self.world.writer.delete_public_ip(release, urgency)));
        match join_all(deletions).await.into_iter().collect::<ArmResult<()>>() {
            Ok(()) => Ok(true),
            Err(error) if error.class == ErrorClass::Conflict => Ok(false),
            Err(error) => {
                self.world.tell(std::slice::from_ref(ask), Call::DeletePublicIp, &error);
                Err(cloud_error("delete a public IP", error))
            }
        }
    }
}

/// All asks, with the greatest urgency of them.
fn together(turns: Vec<Turn>) -> (Vec<Ask>, Urgency) {
    let urgency = turns.iter().map(|turn| turn.urgency).min().unwrap_or(Urgency::Resync);
    (turns.into_iter().map(|turn| turn.ask).collect(), urgency)
}

fn given_up<R>(result: Result<R, Interrupted>) -> CloudResult<R> {
    result.map_err(|interrupted| CloudError::failed(interrupted.to_string()))
}
