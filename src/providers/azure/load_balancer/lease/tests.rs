//! The lease on a simulated API server, on a paused clock.
#![cfg(feature = "sandbox")]

use serde_json::json;

use super::*;
use crate::{
    runtime::leader_election::LeadershipState,
    sandbox::{
        api_server::{ApiServer, RequestRecord},
        http::Verb,
    },
};

struct Setup {
    server: ApiServer,
    clock: Clock,
    shutdown: Shutdown,
    locker: ResourceLocker,
}

impl Setup {
    fn new() -> Self {
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        Self::on(ApiServer::new(clock), clock, Leadership::unopposed())
    }

    fn on(server: ApiServer, clock: Clock, leadership: Leadership) -> Self {
        let shutdown = Shutdown::new();
        let locker = ResourceLocker::new(server.client(), leadership, clock, &shutdown);
        Self { server, clock, shutdown, locker }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.server.client_as("test"), NAMESPACE)
    }

    async fn lease(&self) -> Lease {
        self.api().get(NAME).await.unwrap()
    }

    async fn holder(&self) -> String {
        self.lease().await.spec.unwrap().holder_identity.unwrap_or_default()
    }

    /// Writes the lease as another component.
    async fn take_as(&self, holder: &str) {
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(self.clock.wall());
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 900, "renewTime": now, "acquireTime": now});
        let mut lease: Lease =
            serde_json::from_value(json!({"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec})).unwrap();
        if let Some(there) = self.api().get_opt(NAME).await.unwrap() {
            lease.metadata.resource_version = there.metadata.resource_version;
            self.api().replace(NAME, &PostParams::default(), &lease).await.unwrap();
        } else {
            self.api().create(&PostParams::default(), &lease).await.unwrap();
        }
        self.server.clear_requests();
    }

    /// Lets the task run until it waits.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    fn requests(&self) -> usize {
        let count = self.server.requests().len();
        self.server.clear_requests();
        count
    }
}

fn is_update(request: &RequestRecord) -> bool {
    request.verb == Verb::Update
}

#[tokio::test(start_paused = true)]
async fn work_shares_the_lease_and_gives_it_up_at_the_end() {
    let setup = Setup::new();
    let first = setup.locker.hold().await.unwrap();
    assert_eq!(setup.requests(), 2, "looked for and created");
    let second = setup.locker.hold().await.unwrap();
    drop(first);
    setup.settle().await;
    assert_eq!(setup.requests(), 0, "shared");
    assert_eq!(setup.holder().await, plan::HOLDER);
    drop(second);
    setup.settle().await;
    assert_eq!(setup.holder().await, "");
    assert_eq!(setup.lease().await.metadata.annotations.unwrap()[plan::PREVIOUS_HOLDER], plan::HOLDER);
    setup.server.clear_requests();

    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(setup.requests(), 0, "nothing without work");
    let again = setup.locker.hold().await.unwrap();
    assert_eq!((setup.requests(), again.epoch()), (1, 0), "nobody else wrote, so it need not be read");
}

#[tokio::test(start_paused = true)]
async fn another_holder_is_respected_until_its_lease_expires() {
    let setup = Setup::new();
    setup.take_as("aks-rp").await;
    let error = setup.locker.hold().await.unwrap_err();
    let CloudError::RetryAfter { after, message } = &error else { panic!("{error:?}") };
    assert_eq!(*after, MAX_RETRY_DELAY);
    assert!(message.contains("aks-rp") && message.contains("2026-01-01T00:15:00Z"), "{message}");
    tokio::time::sleep(Duration::from_secs(895)).await;
    assert!(
        matches!(setup.locker.hold().await, Err(CloudError::RetryAfter { after, .. }) if after < Duration::from_secs(6))
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(setup.locker.hold().await.unwrap().epoch(), 1, "what was read before must be read again");
}

#[tokio::test(start_paused = true)]
async fn a_holder_in_between_is_noticed() {
    let setup = Setup::new();
    drop(setup.locker.hold().await.unwrap());
    setup.settle().await;
    setup.take_as("aks-rp").await;
    setup.take_as("").await;
    let held = setup.locker.hold().await.unwrap();
    assert_eq!(held.epoch(), 1);
    assert_eq!(setup.requests(), 3, "refused, read again, taken");
}

#[tokio::test(start_paused = true)]
async fn a_long_hold_is_renewed() {
    let setup = Setup::new();
    let held = setup.locker.hold().await.unwrap();
    setup.server.faults().fail_next(1, 500, is_update);
    tokio::time::sleep(Duration::from_secs(3000)).await;
    let lease = setup.lease().await;
    assert!(plan::is_ours(&lease) && plan::expires(&lease).unwrap() > setup.clock.wall());
    drop(held);
    setup.settle().await;
    assert_eq!(setup.holder().await, "");
}

#[tokio::test(start_paused = true)]
async fn writes_are_refused_from_the_loss_until_all_guards_are_dropped() {
    let setup = Setup::new();
    let (held, other) = (setup.locker.hold().await.unwrap(), setup.locker.hold().await.unwrap());
    let fence = setup.locker.fence();
    assert_eq!((held.check(), fence.check()), (Ok(()), Ok(())));
    setup.take_as("aks-rp").await;
    tokio::time::sleep(RENEW_PERIOD + Duration::from_secs(1)).await;
    assert_eq!((held.check(), fence.check()), (Err(LeaseLost), Err(LeaseLost)));
    setup.requests();
    drop(held);
    setup.settle().await;
    assert_eq!(setup.locker.hold().await.unwrap_err().class(), "retry_after", "other work goes on");
    assert_eq!((setup.requests(), fence.check()), (0, Err(LeaseLost)));
    drop(other);
    setup.settle().await;
    assert_eq!((setup.holder().await.as_str(), fence.check()), ("aks-rp", Ok(())), "left alone, and no work needs it");
    setup.take_as("").await;
    let again = setup.locker.hold().await.unwrap();
    assert_eq!((again.epoch(), again.check()), (1, Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_is_lost_when_it_expires() {
    let setup = Setup::new();
    let held = setup.locker.hold().await.unwrap();
    setup.server.faults().fail_every(500, is_update);
    tokio::time::sleep(Duration::from_secs(899)).await;
    assert_eq!(held.check(), Ok(()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(held.check(), Err(LeaseLost));
    setup.server.faults().clear();
    drop(held);
    setup.settle().await;
    assert_eq!(setup.locker.hold().await.unwrap().epoch(), 0, "no other component wrote it");
}

#[tokio::test(start_paused = true)]
async fn failing_to_lock_fails_the_work() {
    let setup = Setup::new();
    setup.server.faults().fail_every(500, |_| true);
    let error = setup.locker.hold().await.unwrap_err();
    assert!(error.class() == "failed" && error.to_string().contains(NAME), "{error:?}");
    setup.server.faults().clear();
    assert!(setup.locker.hold().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_locks() {
    let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
    let (state, leadership) = Leadership::channel();
    let setup = Setup::on(ApiServer::new(clock), clock, leadership);
    assert_eq!(setup.locker.hold().await.unwrap_err().class(), "not_leader");
    assert_eq!(setup.requests(), 0);
    state.send_replace(LeadershipState::Unopposed);
    assert!(setup.locker.hold().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_work_and_the_release() {
    let setup = Setup::new();
    let held = setup.locker.hold().await.unwrap();
    setup.shutdown.begin();
    assert!(!setup.shutdown.drain(Duration::from_secs(5)).await, "still held");
    assert_eq!(setup.holder().await, plan::HOLDER);
    drop(held);
    assert!(setup.shutdown.drain(Duration::from_secs(5)).await);
    assert_eq!(setup.holder().await, "");
    assert_eq!(setup.locker.hold().await.unwrap_err().class(), "not_leader");
}

#[tokio::test(start_paused = true)]
async fn whoever_stopped_waiting_holds_nothing() {
    let setup = Setup::new();
    setup.server.faults().delay_every(Duration::from_secs(2), |_| true);
    assert!(timeout(Duration::from_secs(1), setup.locker.hold()).await.is_err());
    setup.server.faults().clear();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(setup.holder().await, "");
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_jumps_costs_one_refusal() {
    let (clock, jump) = Clock::adjustable("2026-01-01T00:00:00Z".parse().unwrap());
    let setup = Setup::on(ApiServer::new(clock), clock, Leadership::unopposed());
    let held = setup.locker.hold().await.unwrap();
    jump.set(jiff::SignedDuration::from_secs(3600));
    assert_eq!(held.check(), Err(LeaseLost));
    assert!(setup.locker.hold().await.is_err());
    setup.settle().await;
    assert_eq!(held.check(), Ok(()), "it is renewed at once");
    assert_eq!(setup.locker.hold().await.unwrap().epoch(), 0);
}
