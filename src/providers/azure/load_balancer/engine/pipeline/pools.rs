//! Machines of pools: who waits for them.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{
    super::{backend_pools, pool_readiness::PoolReadiness, progress::PipelineStage},
    QueuedRequest, ServicePipeline, batch_result, merge_requests,
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::Urgency,
        planner::load_balancer::{desired::ServiceRequest, plan::pools::MODEL_WAIT},
    },
};

/// Longest that machines wait to join new load balancers, while one of those is still to be made.
const MAX_NEWCOMER_DELAY: Duration = Duration::from_secs(10);
/// Longest that a Service waits for a machine in its pools before it is tried again.
const MAX_FILL_DELAY: Duration = Duration::from_secs(120);
/// Longest that a sync of hosts waits for writes of machines.
const MAX_SYNC_DELAY: Duration = Duration::from_secs(30);

impl ServicePipeline {
    /// Waits until each pool of the Service has a member, if a machine can join it.
    ///
    /// A deletion does not wait: Nodes behind a deleted load balancer belong to another entry.
    pub(super) async fn join_pools(&self, request: &ServiceRequest, queued: impl Fn() -> QueuedRequest) -> CloudResult<()> {
        if matches!(request, ServiceRequest::Delete(..)) {
            if self.context.settings.has_entries() && !backend_pools::is_synced(&self.context) {
                let begun = batch_result(self.pools.submit(queued(), None, |turns| self.join(turns)).await);
                let begun = begun.and_then(|begun| begun);
                begun.err().into_iter().for_each(|error| tracing::warn!(%error, "nodes are not in their backend pools yet"));
            }
            return Ok(());
        }
        self.report_stage(request, PipelineStage::BackendPools);
        let running = self.context.pool_metrics.join(request);
        // Rules that lead to machines are written for those that have joined.
        let settles = request.spec().is_some_and(|spec| !spec.floating_ip);
        let joined = self.fill_pools(queued, settles).await;
        running.into_iter().for_each(|one| one.end(joined.is_ok()));
        joined
    }

    /// `settles`: whether to wait a while for machines that are still joining.
    async fn fill_pools(&self, queued: impl Fn() -> QueuedRequest, settles: bool) -> CloudResult<()> {
        let begun = Instant::now();
        while begun.elapsed() < MAX_FILL_DELAY {
            let ends = self.context.backend_pools.ends();
            let readiness = batch_result(self.pools.submit(queued(), None, |turns| self.join(turns)).await)??;
            match readiness {
                PoolReadiness::Filling => {}
                PoolReadiness::Joining if settles && begun.elapsed() < MODEL_WAIT => {}
                PoolReadiness::Joining | PoolReadiness::Ready => return Ok(()),
            }
            self.context.backend_pools.wait_for_end(ends).await;
        }
        let message = "no machine has joined a backend pool of the Service yet".to_owned();
        Err(CloudError::RetryAfter { after: MODEL_WAIT, message })
    }

    async fn join(&self, turns: Vec<QueuedRequest>) -> Vec<CloudResult<PoolReadiness>> {
        let (requests, urgency) = merge_requests(turns);
        self.context.newcomers.all_here(MAX_NEWCOMER_DELAY).await;
        let begun = backend_pools::join(&self.context, &requests, urgency).await;
        let readiness = |request: &ServiceRequest| match &begun {
            Ok(round) => round.pools.of(request.identity()),
            Err(error) => Err(error.clone()),
        };
        requests.iter().map(readiness).collect()
    }

    /// Writes each machine once that is not in its pools. A slow write continues in the background, so that newer Nodes join.
    pub(super) async fn sync_members(&self) -> CloudResult<()> {
        let round = backend_pools::join(&self.context, &[], Urgency::Node).await?;
        let Some(result) = round.result else { return Ok(()) };
        match timeout(MAX_SYNC_DELAY, result).await {
            Ok(Ok(Err(error))) => Err(error.into()),
            Ok(Ok(Ok(_))) if !round.is_blocked => Ok(()),
            _ => {
                let message = "writes of machines to backend pools have not ended yet".to_owned();
                Err(CloudError::RetryAfter { after: MODEL_WAIT, message })
            }
        }
    }
}
