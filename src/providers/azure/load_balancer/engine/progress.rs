//! What is being done for each Service and why it is not done yet, for the status page.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{cloud_provider::CloudError, runtime::clock::Clock};

/// Most Services that the page lists.
const MOST: usize = 100;

/// Where a Service is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waiting for the lease, what there is, and the plan.
    Planning,
    /// Its public IPs are written.
    PublicIps,
    /// Waiting for the write of the load balancer.
    LoadBalancer,
    /// Waiting for nodes to join the pools.
    Members,
    /// Waiting for the write of the security group.
    SecurityGroup,
    /// Public IPs that it has left are deleted.
    Releasing,
}

impl Stage {
    fn as_str(self) -> &'static str {
        match self {
            Stage::Planning => "planning",
            Stage::PublicIps => "writing public IPs",
            Stage::LoadBalancer => "waiting for the load balancer",
            Stage::Members => "waiting for back-end pools",
            Stage::SecurityGroup => "waiting for the security group",
            Stage::Releasing => "deleting public IPs",
        }
    }
}

struct Entry {
    stage: Stage,
    since: Timestamp,
    /// Why the last try ended.
    problem: Option<String>,
}

/// See the module.
pub(super) struct Progress {
    clock: Clock,
    entries: Mutex<BTreeMap<String, Entry>>,
}

impl Progress {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, entries: Mutex::default() }
    }

    /// The Service has come to `stage`.
    pub(super) fn at(&self, service: &str, stage: Stage) {
        let entry = Entry { stage, since: self.clock.wall(), problem: None };
        self.entries().insert(service.to_owned(), entry);
    }

    /// A try has ended.
    pub(super) fn ended(&self, service: &str, result: Result<(), &CloudError>) {
        let mut entries = self.entries();
        match (result, entries.get_mut(service)) {
            (Ok(()), _) => drop(entries.remove(service)),
            (Err(error), Some(entry)) => entry.problem = Some(error.to_string()),
            (Err(_), None) => {}
        }
    }

    /// Services that are not done, the first hundred of them.
    pub(super) fn status(&self) -> Value {
        let entries = self.entries();
        let listed = entries.iter().take(MOST).map(|(service, entry)| {
            let about = json!({"stage": entry.stage.as_str(), "since": entry.since.to_string(), "problem": entry.problem});
            (service.clone(), about)
        });
        json!({"unsettled": entries.len(), "services": listed.collect::<serde_json::Map<_, _>>()})
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_listed_until_it_is_done() {
        let progress = Progress::new(Clock::System);
        progress.at("default/web", Stage::PublicIps);
        progress.ended("default/web", Err(&CloudError::failed("no quota")));
        let status = progress.status();
        assert_eq!((&status["unsettled"], &status["services"]["default/web"]["problem"]), (&json!(1), &json!("no quota")));
        progress.at("default/web", Stage::Planning);
        assert_eq!(progress.status()["services"]["default/web"]["problem"], Value::Null);
        progress.ended("default/web", Ok(()));
        assert_eq!(progress.status()["unsettled"], 0);
    }
}
