//! What has to be done for all Services that wait: public IPs and load balancers together, and who is refused. Pure, and prints.
//!
//! In: what there is, the asks, the other Services. Out: a [`Plan`]. A refusal of one part takes the Service out of the other part
//! as well, before anything is written: nobody gets a public IP for a front end that cannot be.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use super::{
    desired::{Ask, load_balancers, public_ips},
    observed::Observed,
    settings::Settings,
    spec::{Family, Identity, Refusal, ServiceSpec},
};
use crate::providers::azure::arm::ResourceId;

/// What has to be done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Public IPs.
    pub public_ips: public_ips::Outcome,
    /// Load balancers.
    pub load_balancers: load_balancers::Outcome,
    /// Who gets nothing new, and why.
    pub refused: BTreeMap<Identity, Refusal>,
}

/// Plans for `asks`. `others`: all other Services; nothing is made for them, and nothing of theirs is taken away.
pub fn plan(observed: &Observed, asks: &[Ask], others: &[Arc<ServiceSpec>], settings: &Settings) -> Plan {
    let mut granted = asks.to_vec();
    let mut others = others.to_vec();
    let mut refused = BTreeMap::new();
    loop {
        let mut public_ips = public_ips::reconcile(observed, &granted, &others, settings);
        let mut answers = errors(&public_ips.services);
        let (rest, _) = without(&granted, &answers);
        let lasting = without_recreated(rest, &public_ips.recreated);
        let load_balancers = load_balancers::reconcile(observed, &lasting, &others, &public_ips.wanted, settings);
        answers.extend(errors(&load_balancers.services));
        if answers.is_empty() {
            if !public_ips.release.is_empty() {
                keep_used(&mut public_ips, &load_balancers.frontends_of_public_ips(observed));
            }
            return Plan { public_ips, load_balancers, refused };
        }
        let (rest, out) = without(&granted, &answers);
        // Who is refused keeps what it has.
        others.extend(out.iter().filter_map(Ask::spec).cloned());
        granted = rest;
        refused.extend(answers);
    }
}

impl Plan {
    /// Services whose public IPs have to be written first.
    pub fn waiting_for_public_ips(&self) -> BTreeSet<Identity> {
        self.public_ips.put.iter().flat_map(|change| &change.services).cloned().collect()
    }

    /// Whether nothing has to be done.
    pub fn is_empty(&self) -> bool {
        self.public_ips.put.is_empty() && self.public_ips.release.is_empty() && self.load_balancers.documents.is_empty()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in &self.public_ips.put {
            writeln!(f, "put {}: {}", change.id, change.reasons.join("; "))?;
        }
        for change in &self.load_balancers.documents {
            let verb = if matches!(change.write, load_balancers::Write::Delete) { "delete" } else { "put" };
            writeln!(f, "{verb} {}: {}", change.id, change.reasons.join("; "))?;
        }
        for release in &self.public_ips.release {
            writeln!(f, "delete {}: {}", release.id, release.reasons.join("; "))?;
        }
        for kept in &self.public_ips.kept {
            writeln!(f, "keep {}: {}", kept.id, kept.reasons.join("; "))?;
        }
        self.refused.iter().try_for_each(|(identity, refusal)| writeln!(f, "refuse {}: {refusal}", identity.key))
    }
}

/// ARM deletes no public IP that a front end refers to. `used`: those front ends, when all is written.
fn keep_used(public_ips: &mut public_ips::Outcome, used: &BTreeMap<ResourceId, String>) {
    let (kept, release): (Vec<_>, Vec<_>) =
        std::mem::take(&mut public_ips.release).into_iter().partition(|release| used.contains_key(&release.id));
    public_ips.release = release;
    public_ips.kept.extend(kept.into_iter().map(|release| {
        let frontend = used.get(&release.id).map(String::as_str).unwrap_or_default();
        public_ips::Release { reasons: vec![format!("front end `{frontend}` stays, which others use")], ..release }
    }));
}

fn errors<T>(answers: &BTreeMap<Identity, Result<T, Refusal>>) -> BTreeMap<Identity, Refusal> {
    let errors = answers.iter().filter_map(|(who, answer)| Some((who.clone(), answer.as_ref().err()?.clone())));
    errors.collect()
}

/// Those who are granted what they ask for, and those who are not.
fn without(asks: &[Ask], refused: &BTreeMap<Identity, Refusal>) -> (Vec<Ask>, Vec<Ask>) {
    asks.iter().cloned().partition(|ask| !refused.contains_key(ask.identity()))
}

/// Front ends whose public IP is made anew are not asked for meanwhile.
pub fn without_recreated(asks: Vec<Ask>, recreated: &BTreeSet<(Identity, Family)>) -> Vec<Ask> {
    let lasting = asks.into_iter().map(|ask| match ask {
        Ask::Ensure(mut spec) => {
            let identity = spec.identity.clone();
            let is_recreated = |family: &Family| recreated.contains(&(identity.clone(), *family));
            if spec.families.iter().any(is_recreated) {
                Arc::make_mut(&mut spec).families.retain(|family| !is_recreated(family));
            }
            if spec.families.is_empty() { Ask::Remove(identity, Some(spec)) } else { Ask::Ensure(spec) }
        }
        ask @ Ask::Remove(..) => ask,
    });
    lasting.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::desired::samples::*, *};

    #[test]
    fn a_service_that_cannot_have_a_front_end_gets_no_public_ip() {
        let good = service("good");
        let bad = pinned("20.0.0.9", service("bad"));
        let there = observed(vec![load_balancer(json!({"name": "kubernetes", "properties": {}}))]);
        let asks = [Ask::Ensure(Arc::new(good.clone())), Ask::Ensure(Arc::new(bad.clone()))];
        let plan = plan(&there, &asks, &[], &settings());
        assert_eq!(plan.refused.keys().collect::<Vec<_>>(), [&bad.identity]);
        assert!(plan.public_ips.put.iter().all(|change| change.services == [good.identity.clone()]), "{plan}");
        assert_eq!(plan.load_balancers.services.keys().collect::<Vec<_>>(), [&good.identity]);
        assert!(!plan.is_empty() && plan.to_string().contains("refuse default/bad"), "{plan}");
        assert_eq!(plan.waiting_for_public_ips(), BTreeSet::from([good.identity]));
    }
}
