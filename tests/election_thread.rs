//! Leader election while both workers of the main runtime are blocked, in real time.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test panics if its setup fails")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use cloud_controller_manager::{
    app::{
        election::ElectionHost,
        manager::{self, ManagerOutcome, ManagerStartError},
    },
    metrics::Metrics,
    providers::fake::{FakeCloud, FakeConfig},
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::api_server::ApiServer,
    sandbox_demo::in_process::InProcess,
};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::{Mutex, MutexGuard};
use tokio::{runtime::Runtime, task::JoinHandle};

/// Renew deadline that no test reaches, not even on a busy machine.
const LONG: Duration = Duration::from_secs(30);
/// Renew deadline of a leader that loses its lease.
const SHORT: Duration = Duration::from_secs(2);

/// Serializes the tests: they block threads in real time, and would delay each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Leading manager on a runtime with two workers.
struct Program {
    server: ApiServer,
    runtime: Runtime,
    stop: Shutdown,
    ended: JoinHandle<Result<ManagerOutcome, ManagerStartError>>,
    _guard: MutexGuard<'static, ()>,
}

fn start(host: ElectionHost, renew_deadline: Duration) -> Program {
    let guard = ONE_AT_A_TIME.lock();
    let flags = [
        "--configure-cloud-routes=false",
        "--leader-elect-lease-duration=60s",
        &format!("--leader-elect-renew-deadline={}s", renew_deadline.as_secs()),
        "--leader-elect-retry-period=200ms",
    ];
    let server = ApiServer::new(Clock::System);
    let (clients, cloud) = (Arc::new(InProcess(server.clone())), FakeCloud::new(FakeConfig::any_node()));
    let parts = crate::manager_deps(&flags, clients, cloud, &Arc::new(Metrics::new().unwrap()), Clock::System);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let stop = Shutdown::new();
    let until = stop.clone();
    let ended = runtime.spawn(async move { manager::run_with(parts, host, &until).await });
    let program = Program { server, runtime, stop, ended, _guard: guard };
    program.wait_until("it leads", |program| program.renewed().is_some());
    program
}

impl Program {
    /// Returns when the lease was last renewed; `None` if it has no holder.
    fn renewed(&self) -> Option<Timestamp> {
        let spec = self.server.get::<Lease>("kube-system", "cloud-controller-manager")?.spec?;
        spec.holder_identity.filter(|holder| !holder.is_empty())?;
        spec.renew_time.map(|time| time.0)
    }

    fn wait_until(&self, description: &str, condition: impl Fn(&Self) -> bool) {
        for _ in 0..3000 {
            if condition(self) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("not within a minute: {description}");
    }

    /// Blocks both workers until the returned guard is dropped.
    fn block(&self) -> Blocked {
        let (go, blocked) = (Arc::new(AtomicBool::new(false)), Arc::new(std::sync::Barrier::new(3)));
        for _ in 0..2 {
            let (go, blocked) = (Arc::clone(&go), Arc::clone(&blocked));
            self.runtime.spawn(async move {
                blocked.wait();
                while !go.load(SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        blocked.wait();
        Blocked(go)
    }
}

struct Blocked(Arc<AtomicBool>);

impl Drop for Blocked {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn must_not_end(reason: &str) -> ! {
    panic!("the process would have ended: {reason}")
}

#[test]
fn the_lease_is_renewed_while_both_workers_are_blocked() {
    let mut program = start(ElectionHost::OwnThread { end: must_not_end }, LONG);
    let blocked = program.block();
    for _ in 0..3 {
        let before = program.renewed();
        program.wait_until("the lease is renewed", |program| program.renewed() > before);
    }
    drop(blocked);
    program.stop.begin();
    assert_eq!(program.runtime.block_on(&mut program.ended).unwrap().unwrap(), ManagerOutcome::Stopped);
    assert_eq!(program.renewed(), None, "the lease has no holder");
}

#[test]
fn blocked_workers_cost_the_lease_on_the_callers_runtime() {
    let program = start(ElectionHost::CallersRuntime, SHORT);
    let blocked = program.block();
    thread::sleep(2 * SHORT);
    drop(blocked);
    assert_eq!(program.runtime.block_on(program.ended).unwrap().unwrap(), ManagerOutcome::LeaseLost);
}

static ENDED: AtomicBool = AtomicBool::new(false);

fn record_end(_: &str) -> ! {
    ENDED.store(true, SeqCst);
    loop {
        thread::park();
    }
}

#[test]
fn lost_lease_ends_the_process_while_workers_are_blocked() {
    let program = start(ElectionHost::OwnThread { end: record_end }, SHORT);
    let _blocked = program.block();
    program.server.faults().fail_every(500, |request| request.resource == "leases");
    program.wait_until("the process is ended", |_| ENDED.load(SeqCst));
    assert!(!program.ended.is_finished());
}
