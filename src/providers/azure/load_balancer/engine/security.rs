//! The fourth stage: the rules of the security group, for all at once.
//!
//! In: asks whose front ends are there, or gone. Out: whether their rules are right now.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    admission,
    rounds::{Answers, Document, Trouble},
    world::{Look, World},
};
use crate::{
    cloud_provider::CloudError,
    providers::azure::{
        arm::{ErrorClass, ResourceId, Urgency, network::NetworkSecurityGroup},
        load_balancer::{
            desired::{
                Ask,
                security_rules::{self, Outcome, Reach},
            },
            members::Reached,
            roster::{Machines, Wish},
            spec::{Refusal, ServiceSpec},
        },
    },
};

/// How often a write is planned anew because somebody else has written.
const CONFLICTS: usize = 5;

/// See the module.
pub(super) struct SecurityGroup<'a> {
    pub(super) world: &'a World,
    pub(super) urgency: Urgency,
}

#[async_trait]
impl Document for SecurityGroup<'_> {
    type Answer = ();

    fn doing(&self) -> &'static str {
        "write the security group"
    }

    async fn attempt(&self, asks: &[Ask]) -> Result<Answers<()>, Trouble> {
        let Some(id) = self.world.settings.security_group.clone() else { return Ok(all(asks)) };
        for _ in 0..CONFLICTS {
            let look = self.world.look(asks, self.urgency).await?;
            let Some(rules) = rules(self.world, asks, &look).await else { return Ok(missing(asks, &id)) };
            match self.write(&id, &rules.outcome).await {
                Ok(()) => return Ok(self.settled(asks, rules)),
                Err(Trouble::Arm(error)) if error.class == ErrorClass::Conflict => {
                    tracing::info!(%error, "somebody else has written, planning again");
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Err(CloudError::failed("the security group keeps being changed by somebody else while it is written").into())
    }
}

/// What becomes of the group, and what was asked of it.
pub(super) struct Rules {
    pub(super) outcome: Outcome,
    reaches: Vec<Reach>,
    refused: Vec<(usize, Refusal)>,
}

/// Plans; `None`: the group does not exist.
pub(super) async fn rules(world: &World, asks: &[Ask], look: &Look) -> Option<Rules> {
    let group = look.observed.security_group.as_ref()?;
    let reached = reached(world, asks, look).await;
    Some(planned(world, asks, look, group, &reached))
}

/// Where machines are in pools, when the rules of some Service lead to machines.
async fn reached(world: &World, asks: &[Ask], look: &Look) -> Reached {
    let mut specs = asks.iter().filter_map(Ask::spec).chain(look.others.iter().map(Wish::spec));
    if specs.all(|spec| spec.floating_ip) {
        return Reached::default();
    }
    Reached::look_up(&world.inventory, &world.roster.nodes(), &world.settings).await
}

fn planned(world: &World, asks: &[Ask], look: &Look, group: &NetworkSecurityGroup, reached: &Reached) -> Rules {
    let nodes = world.roster.node_addresses(|| security_rules::destinations(group));
    let behind = |spec: &ServiceSpec| reached.behind(spec, &look.observed, &world.settings);
    let machines = Machines { all: &nodes.present, behind: &behind };
    let reach_of = |wish: &Wish| world.roster.reach_of_other(wish, &look.observed, &machines);
    let mut others: Vec<Reach> = look.others.iter().map(reach_of).collect();
    let (mut reaches, mut refused) = (Vec::new(), Vec::new());
    for (place, ask) in asks.iter().enumerate() {
        match world.roster.reach(ask, &look.observed, &machines) {
            Ok(reach) => reaches.push(reach),
            Err(refusal) => {
                // What it has stays, whoever leaves an address that it shares.
                others.extend(ask.spec().map(|spec| reach_of(&Wish::Valid(Arc::clone(spec)))));
                refused.push((place, refusal));
            }
        }
    }
    let outcome = security_rules::reconcile(group, &reaches, &others, &nodes, &world.settings);
    Rules { outcome, reaches, refused }
}

fn all(asks: &[Ask]) -> Answers<()> {
    asks.iter().map(|ask| (ask.identity().clone(), Ok(()))).collect()
}

/// Nothing has to be taken out of a group that does not exist.
fn missing(asks: &[Ask], id: &ResourceId) -> Answers<()> {
    let error = || {
        CloudError::failed(format!(
            "the security group {id} does not exist: create it, or mend securityGroupName and securityGroupResourceGroup"
        ))
    };
    let answer = |ask: &Ask| if matches!(ask, Ask::Ensure(_)) { Err(error()) } else { Ok(()) };
    asks.iter().map(|ask| (ask.identity().clone(), answer(ask))).collect()
}

impl SecurityGroup<'_> {
    async fn write(&self, id: &ResourceId, outcome: &Outcome) -> Result<(), Trouble> {
        let Some(document) = &outcome.document else { return Ok(()) };
        tracing::info!(%id, reasons = outcome.reasons.join("; "), "writing the security group");
        Ok(self.world.writer.put_security_group(id, document, Urgency::Shared).await?)
    }

    fn settled(&self, asks: &[Ask], rules: Rules) -> Answers<()> {
        let Rules { outcome, reaches, refused } = rules;
        let mut answers: Answers<()> = outcome
            .services
            .into_iter()
            .map(|(who, answer)| (who, answer.map_err(|refusal| admission::refused(&refusal))))
            .collect();
        for (place, refusal) in refused {
            // The address may come at the next look.
            answers.insert(asks[place].identity().clone(), Err(CloudError::failed(refusal.to_string())));
        }
        for reach in reaches {
            let ask = asks.iter().find(|ask| *ask.identity() == reach.identity);
            if let Some(ask) = ask.filter(|_| answers.get(&reach.identity).is_some_and(Result::is_ok)) {
                self.world.roster.settled(ask, &reach);
            }
        }
        answers
    }
}
