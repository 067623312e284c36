//! Checks of interrupted calls. In: a fixture. Out: whether the next process completes the work of a killed process.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use k8s_openapi::api::core::v1::Service;
use tokio::time::sleep;

use super::{CLUSTER, CloudFixture, load_balancers::LoadBalancerSetting, objects::deleted, report::CheckResult};

/// Numbers of polls after which a call is dropped and its process ends.
const POLLS: [usize; 8] = [1, 2, 3, 5, 8, 13, 21, 34];

/// Maximum number of attempts to complete interrupted work, which may still be in progress in the cloud.
const MAX_ATTEMPTS: usize = 20;
/// Delay between two attempts, equal to the first backoff of the service controller.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Repeats a failed call like a controller, up to [`MAX_ATTEMPTS`] times.
async fn completed<T, F: Future<Output = CheckResult<T>>>(call: impl Fn() -> F) -> CheckResult<T> {
    let mut last = call().await;
    for _ in 1..MAX_ATTEMPTS {
        if last.is_ok() {
            return last;
        }
        sleep(RETRY_DELAY).await;
        last = call().await;
    }
    last
}

/// Polls `work` up to `polls` times, and then drops it.
async fn abandoned_after(polls: usize, work: impl Future) {
    let (mut work, mut remaining) = (pin!(work), polls);
    poll_fn(|context| {
        remaining = remaining.saturating_sub(1);
        let ended = work.as_mut().poll(context).is_ready();
        if ended || remaining == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

pub(super) async fn an_interrupted_ensure_is_completed(fixture: &dyn CloudFixture) -> CheckResult {
    let service = fixture.service("interrupted", 6);
    let services = std::slice::from_ref(&service);
    let mut setting = LoadBalancerSetting::new(fixture, services).await?;
    for polls in POLLS {
        abandoned_after(polls, setting.balancer.ensure_load_balancer(CLUSTER, &service, &setting.hosts)).await;
        setting = setting.restarted(fixture, services).await?;
        completed(|| setting.ensure(&service)).await?;
        setting = removed(setting, fixture, &service).await?;
        // The second run deletes the Service before the interrupted call is completed.
        abandoned_after(polls, setting.balancer.ensure_load_balancer(CLUSTER, &service, &setting.hosts)).await;
        setting = setting.restarted(fixture, &[deleted(&service)]).await?;
        setting = removed(setting, fixture, &service).await?;
    }
    Ok(())
}

pub(super) async fn an_interrupted_delete_is_completed(fixture: &dyn CloudFixture) -> CheckResult {
    let service = fixture.service("half-deleted", 7);
    let services = std::slice::from_ref(&service);
    let mut setting = LoadBalancerSetting::new(fixture, services).await?;
    for polls in POLLS {
        setting.ensure(&service).await?;
        let deleted_service = deleted(&service);
        abandoned_after(polls, setting.balancer.ensure_load_balancer_deleted(CLUSTER, &deleted_service)).await;
        setting = setting.restarted(fixture, &[deleted_service]).await?;
        setting = removed(setting, fixture, &service).await?;
    }
    Ok(())
}

async fn removed(
    setting: LoadBalancerSetting,
    fixture: &dyn CloudFixture,
    service: &Service,
) -> CheckResult<LoadBalancerSetting> {
    completed(|| setting.delete(service)).await?;
    setting.require_no_trace(fixture, service).await?;
    setting.restarted(fixture, std::slice::from_ref(service)).await
}
