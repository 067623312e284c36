//! Checks of what a killed process leaves behind. In: a fixture. Out: whether the next process completes what was begun.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use k8s_openapi::api::core::v1::Service;
use tokio::time::sleep;

use super::{CLUSTER, CloudFixture, load_balancers::LoadBalancerSetting, objects::deleted, report::CheckResult};

/// Numbers of polls of a call before its process dies.
const POLLS: [usize; 8] = [1, 2, 3, 5, 8, 13, 21, 34];

/// Tries of a call that completes what was begun: the cloud may still be busy with it.
const TRIES: usize = 20;
/// Delay between two attempts, as the service controller's first backoff.
const PAUSE: Duration = Duration::from_secs(5);

/// Repeats a call that fails, as its controller would.
async fn completed<T, F: Future<Output = CheckResult<T>>>(call: impl Fn() -> F) -> CheckResult<T> {
    let mut last = call().await;
    for _ in 1..TRIES {
        if last.is_ok() {
            return last;
        }
        sleep(PAUSE).await;
        last = call().await;
    }
    last
}

/// Polls `work` so often, then drops it.
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
        // Also if the Service is deleted before the call is completed.
        abandoned_after(polls, setting.balancer.ensure_load_balancer(CLUSTER, &service, &setting.hosts)).await;
        setting = setting.restarted(fixture, &[deleted(&service)]).await?;
        setting = removed(setting, fixture, &service).await?;
    }
    Ok(())
}

pub(super) async fn an_interrupted_delete_is_completed(fixture: &dyn CloudFixture) -> CheckResult {
    let service = fixture.service("half-gone", 7);
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
