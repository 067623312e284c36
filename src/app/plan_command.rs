//! Command `plan`: the writes that a manager with this configuration would send now.
//!
//! In: the daemon's flags, and the output format. Out: the plan on stdout and an exit code: 0 if nothing would be written
//! and nothing is refused, 2 if something would be written or is refused, 1 if something could not be read. With `--report`,
//! 0 means ready to switch, and 2 not ready. It needs the rights to read the cluster and the cloud, and sends no writes.

use std::time::Duration;

use super::{
    manager::{self, ManagerDeps},
    manager_state::ManagerState,
    plan::{
        cluster_plan::{ClusterPlan, ClusterPlanRequest, plan_cluster},
        print,
        report::ReportTracker,
    },
    start_error::StartResult,
};
use crate::{cli::PlanOptions, cloud_provider::start::ProviderReadiness, runtime::shutdown::Shutdown};

/// Maximum wait for the cluster's objects and the cloud.
const PLAN_TIMEOUT: Duration = Duration::from_secs(120);

/// Time that background tasks may take to end.
const DRAIN: Duration = Duration::from_secs(2);

/// Output and result of `plan`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanOutcome {
    pub text: String,
    /// Exit code: 0, 1 or 2.
    pub code: u8,
}

/// Makes one plan and returns its text with the exit code.
///
/// # Errors
///
/// The manager could not start. A plan that could not be made is an outcome with code 1.
pub async fn plan(parts: ManagerDeps, options: &PlanOptions) -> StartResult<PlanOutcome> {
    let clock = parts.clock;
    let plan_result = Box::pin(cluster_plan(parts, options.service.as_deref())).await?;
    Ok(match plan_result {
        Ok(plan) => printed(plan, options, clock.wall()),
        Err(problem) => PlanOutcome { text: format!("no plan: {problem}\n"), code: 1 },
    })
}

/// Makes one plan, for the cluster or for one Service, or returns the reason why that is not possible.
///
/// # Errors
///
/// The manager could not start.
pub async fn cluster_plan(parts: ManagerDeps, service: Option<&str>) -> StartResult<Result<ClusterPlan, String>> {
    let background = Shutdown::new();
    let state = manager::watch_only(parts, &background).await?;
    let plan_result = match tokio::time::timeout(PLAN_TIMEOUT, state.ready_or_failed()).await {
        Ok(Ok(())) => state.plan_for(service).await,
        Ok(Err(problem)) => Err(problem),
        Err(_) => Err(format!("the cluster's objects and the cloud's machines were not listed within {PLAN_TIMEOUT:?}")),
    };
    background.begin();
    background.drain(DRAIN).await;
    Ok(plan_result)
}

fn printed(plan: ClusterPlan, options: &PlanOptions, now: jiff::Timestamp) -> PlanOutcome {
    let is_quiet = if options.report { plan.is_ready() } else { !plan.has_changes() && !plan.has_refusals() };
    let code = match (plan.is_complete(), is_quiet) {
        (false, _) => 1,
        (true, false) => 2,
        (true, true) => 0,
    };
    let text = match (options.report, options.json) {
        (true, json) => {
            let mut tracker = ReportTracker::default();
            tracker.observe(plan, now);
            let report = tracker.report(now);
            report.map(|report| if json { format!("{:#}\n", report.json) } else { report.text }).unwrap_or_default()
        }
        (false, true) => format!("{:#}\n", plan.json_with(options.diff)),
        (false, false) => print::text(&plan, options.diff),
    };
    PlanOutcome { text, code }
}

impl ManagerState {
    async fn plan_for(&self, service: Option<&str>) -> Result<ClusterPlan, String> {
        if let Some(key) = service.filter(|key| !self.has_service(key)) {
            return Err(format!("Service {key} does not exist"));
        }
        let plan = plan_cluster(self, &ClusterPlanRequest::everything()).await;
        Ok(match service {
            Some(key) => plan.of_service(key),
            None => plan,
        })
    }

    /// Waits until all inputs of a plan are ready.
    pub(crate) async fn ready_to_plan(&self) {
        self.nodes.synced().await;
        if let Some(services) = &self.services {
            services.synced().await;
        }
        let mut provider = self.provider_ready.clone();
        let _ = provider.wait_for(|state| matches!(state, Some(Ok(())))).await;
    }

    /// Waits until the manager is ready, or returns the error of the first attempt.
    async fn ready_or_failed(&self) -> Result<(), String> {
        let mut provider = self.provider_ready.clone();
        let provider = async move {
            let readiness = provider.wait_for(|state: &ProviderReadiness| state.is_some()).await;
            match readiness.as_deref() {
                Ok(Some(Err(reason))) => Err(format!("cannot use the cloud: {reason}")),
                _ => Ok(()),
            }
        };
        tokio::select! {
            biased;
            problem = self.first_list_failed() => Err(problem),
            ready = async { provider.await?; self.ready_to_plan().await; Ok(()) } => ready,
        }
    }

    /// Waits until a first list of the cluster's objects fails, and returns the error.
    async fn first_list_failed(&self) -> String {
        let services = async {
            match &self.services {
                Some(services) => services.first_list_failed().await,
                None => std::future::pending().await,
            }
        };
        let (kind, error) = tokio::select! {
            biased;
            error = self.nodes.first_list_failed() => ("Nodes", error),
            error = services => ("Services", error),
        };
        format!("cannot list the {kind} of the cluster: {error}")
    }

    pub(super) fn has_service(&self, key: &str) -> bool {
        let Some((namespace, name)) = key.split_once('/') else { return false };
        let key = crate::runtime::store::ObjectKey::namespaced(namespace, name);
        self.services.as_ref().is_some_and(|services| services.get(&key).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud_provider::{PlannedWrite, WritePlan};

    fn options(report: bool) -> PlanOptions {
        let words = ["ccm", "plan", if report { "--report" } else { "--all" }, "--configure-cloud-routes=false"];
        match crate::cli::parse(words.map(Into::into), &["azure"], &[]) {
            Ok(crate::cli::CliCommand::Plan(options)) => *options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_exit_code_follows_readiness_and_refusals() {
        let write = |leftover| WritePlan {
            writes: vec![PlannedWrite { leftover, ..PlannedWrite::deletion("public_ip", "/a".to_owned(), "unused") }],
            ..WritePlan::default()
        };
        let refused =
            WritePlan { refused: ["Service t1/plain: no such protocol".to_owned()].into(), ..WritePlan::default() };
        for (part, plain, report) in [
            (WritePlan::default(), 0, 0),
            (write(false), 2, 2),
            (write(true), 2, 0),
            (refused, 2, 2),
            (WritePlan { later: ["x".to_owned()].into(), ..WritePlan::default() }, 2, 2),
            (WritePlan::unread("HTTP 403"), 1, 1),
        ] {
            let plan = ClusterPlan { parts: vec![("Services", part)], ..ClusterPlan::default() };
            let codes =
                [false, true].map(|report| printed(plan.clone(), &options(report), jiff::Timestamp::UNIX_EPOCH).code);
            assert_eq!(codes, [plain, report], "{plan:?}");
            let of_service = printed(plan.clone().of_service("t1/plain"), &options(false), jiff::Timestamp::UNIX_EPOCH);
            assert_eq!(of_service.code == 2, !plan.clone().parts[0].1.refused.is_empty(), "{plan:?}");
        }
    }
}
