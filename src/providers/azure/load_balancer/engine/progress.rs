//! What is being done for each Service and why it is not done yet, for the status page.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

pub(super) use crate::status::PipelineStage;
use crate::{
    cloud_provider::CloudError,
    providers::azure::{load_balancer::explain, planner::load_balancer::plan::print::PlannedChange},
    runtime::{clock::Clock, text::truncate},
    status::{FailureClass, UnsettledBalancer, UnsettledBalancers},
};

/// Most Services that the page lists.
const MAX_LISTED: usize = 100;
/// Most sentences that are kept of one Service's stage: a Service has a few documents.
const MAX_SENTENCES: usize = 8;
/// Bytes of each that the page shows: one write may be for hundreds of Services, and is listed at each of them.
const MAX_SENTENCE: usize = 1024;

impl PipelineStage {
    /// The stage that writes this; `None` for what is not written.
    pub(super) fn of_write(change: &PlannedChange<'_>) -> Option<Self> {
        match change {
            PlannedChange::PublicIp(_) => Some(Self::PublicIps),
            PlannedChange::LoadBalancer(..) | PlannedChange::LaterLoadBalancer(..) => Some(Self::LoadBalancer),
            PlannedChange::Pool(_) => Some(Self::BackendPools),
            PlannedChange::SecurityGroup(_) => Some(Self::SecurityGroup),
            PlannedChange::DeletePrivateLink(_) => Some(Self::LoadBalancer),
            PlannedChange::Subnet(_) | PlannedChange::PrivateLink(_) => Some(Self::PrivateLinks),
            PlannedChange::Release(_) => Some(Self::Releasing),
            PlannedChange::PrivateLinkNotice(..)
            | PlannedChange::Retained(_)
            | PlannedChange::Refused(..)
            | PlannedChange::Waiting(_) => None,
        }
    }
}

struct ProgressEntry {
    stage: PipelineStage,
    since: Timestamp,
    /// What is written, and at which stage, or why nothing is: as the plan prints it, shared by all whom it concerns.
    changes: Vec<(Option<PipelineStage>, Arc<str>)>,
    /// Why the last try ended.
    problem: Option<CloudError>,
}

impl ProgressEntry {
    fn status(&self) -> UnsettledBalancer {
        let problem = self.problem.as_ref();
        UnsettledBalancer {
            stage: self.stage,
            since: self.since,
            changes: self.changes.iter().map(|(_, sentence)| truncate(sentence, MAX_SENTENCE)).collect(),
            problem: problem.map(ToString::to_string),
            class: problem.map(|error| FailureClass::named(error.class())),
            advice: problem.and_then(explain::advice).map(str::to_owned),
        }
    }
}

/// See the module.
pub(super) struct PipelineProgress {
    clock: Clock,
    entries: Mutex<BTreeMap<String, ProgressEntry>>,
}

impl PipelineProgress {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, entries: Mutex::default() }
    }

    /// The Service has come to `stage`, or is still there. Another Service may have begun to write for both at that stage.
    pub(super) fn enter(&self, service: &str, stage: PipelineStage) {
        let mut entries = self.entries();
        let before = entries.remove(service);
        let since = before.as_ref().filter(|entry| entry.stage == stage).map(|entry| entry.since);
        let since = since.unwrap_or_else(|| self.clock.wall());
        let mut changes = before.map(|entry| entry.changes).unwrap_or_default();
        changes.retain(|(at, _)| *at == Some(stage));
        entries.insert(service.to_owned(), ProgressEntry { stage, since, changes, problem: None });
    }

    /// Returns `true` if the last try for the Service has failed, was canceled or is still running.
    pub(super) fn is_unsettled(&self, service: &str) -> bool {
        self.entries().contains_key(service)
    }

    /// The Service cannot have what it asks for.
    pub(super) fn refused(&self, service: &str, error: &CloudError) {
        self.enter(service, PipelineStage::Refused);
        self.ended(service, Err(error));
    }

    /// This is about to be written for these Services at a stage, or keeps them from being served.
    pub(super) fn planned<'a>(
        &self,
        services: impl Iterator<Item = &'a str>,
        stage: Option<PipelineStage>,
        sentence: &Arc<str>,
    ) {
        let mut entries = self.entries();
        for service in services {
            let entry = entries.get_mut(service).filter(|entry| entry.changes.len() < MAX_SENTENCES);
            entry.into_iter().for_each(|entry| entry.changes.push((stage, Arc::clone(sentence))));
        }
    }

    /// These Services are planned for anew.
    pub(super) fn replanned<'a>(&self, services: impl Iterator<Item = &'a str>) {
        let mut entries = self.entries();
        services.for_each(|service| entries.get_mut(service).into_iter().for_each(|entry| entry.changes.clear()));
    }

    /// A try has ended.
    pub(super) fn ended(&self, service: &str, result: Result<(), &CloudError>) {
        let mut entries = self.entries();
        match (result, entries.get_mut(service)) {
            (Ok(()), _) => drop(entries.remove(service)),
            (Err(error), Some(entry)) => entry.problem = Some(error.clone()),
            (Err(_), None) => {}
        }
    }

    /// Services that are not done, the first hundred of them.
    pub(super) fn status(&self) -> UnsettledBalancers {
        let entries = self.entries();
        let listed = entries.iter().take(MAX_LISTED).map(|(service, entry)| (service.clone(), entry.status()));
        UnsettledBalancers { unsettled: entries.len(), services: listed.collect() }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, ProgressEntry>> {
        self.entries.lock()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_is_listed_until_it_is_done() {
        let progress = PipelineProgress::new(Clock::System);
        progress.enter("default/web", PipelineStage::PublicIps);
        progress.ended("default/web", Err(&CloudError::failed("no quota")));
        let status = progress.status();
        assert!(progress.is_unsettled("default/web") && !progress.is_unsettled("default/other"));
        assert_eq!((status.unsettled, status.services["default/web"].problem.as_deref()), (1, Some("no quota")));
        progress.enter("default/web", PipelineStage::Planning);
        assert_eq!(progress.status().services["default/web"].problem, None);
        progress.ended("default/web", Ok(()));
        assert_eq!(progress.status().unsettled, 0);
        assert!(!progress.is_unsettled("default/web"));
    }

    #[test]
    fn what_is_written_is_told_to_those_whom_it_concerns_until_the_next_stage() {
        let progress = PipelineProgress::new(Clock::System);
        let changes = || progress.status().services["default/web"].changes.clone();
        ["default/web", "default/other"].into_iter().for_each(|who| progress.enter(who, PipelineStage::LoadBalancer));
        let planned = |services: &[&str], sentence: &str| {
            progress.planned(services.iter().copied(), Some(PipelineStage::LoadBalancer), &sentence.into());
        };
        planned(&["default/web", "default/gone"], "put lb: why");
        assert_eq!(changes(), ["put lb: why"]);
        let status = progress.status();
        assert_eq!((status.services["default/other"].changes.len(), status.unsettled), (0, 2));
        progress.replanned(["default/web"].into_iter());
        (0..2 * MAX_SENTENCES).for_each(|_| planned(&["default/web"], &"é".repeat(MAX_SENTENCE)));
        let told = changes();
        assert_eq!(told.len(), MAX_SENTENCES);
        assert_eq!(told[0], "é".repeat(MAX_SENTENCE / 2) + "…");
        progress.enter("default/web", PipelineStage::SecurityGroup);
        assert_eq!(changes(), [""; 0]);
    }

    #[test]
    fn what_another_service_writes_for_both_is_told_to_who_comes_to_that_stage_later() {
        let progress = PipelineProgress::new(Clock::System);
        let changes = || progress.status().services["default/web"].changes.clone();
        progress.enter("default/web", PipelineStage::Planning);
        progress.planned(["default/web"].into_iter(), Some(PipelineStage::PublicIps), &"put ip: why".into());
        progress.planned(["default/web"].into_iter(), None, &"waiting".into());
        progress.enter("default/web", PipelineStage::PublicIps);
        assert_eq!(changes(), ["put ip: why"]);
        progress.enter("default/web", PipelineStage::LoadBalancer);
        assert_eq!(changes(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_or_is_refused_is_listed_since_the_first_time() {
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let progress = PipelineProgress::new(clock);
        for _ in 0..2 {
            progress.enter("default/web", PipelineStage::Lease);
            progress.ended("default/web", Err(&CloudError::failed("AKS holds it")));
            progress.refused("default/odd", &CloudError::invalid("no such protocol"));
            tokio::time::advance(std::time::Duration::from_secs(15)).await;
        }
        let services = json!(progress.status().services);
        let since = "2026-01-01T00:00:00Z";
        assert_eq!(
            services["default/web"],
            json!({"stage": "waiting for the lease", "since": since, "changes": [], "problem": "AKS holds it", "class": "failed", "advice": null})
        );
        let odd = json!({"stage": "refused", "since": since, "changes": [], "problem": "no such protocol", "class": "invalid", "advice": null});
        assert_eq!(services["default/odd"], odd);
        progress.enter("default/web", PipelineStage::Planning);
        assert_eq!(progress.status().services["default/web"].since.to_string(), "2026-01-01T00:00:30Z");
    }
}
