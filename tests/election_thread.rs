//! The leader election when everything else stands still: both workers of the main runtime are blocked, in real time.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends where what it needs is missing")]

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use cloud_controller_manager::{
    app::{
        election::ElectionHost,
        manager::{self, ManagerDeps, ManagerOutcome, ManagerStartError},
    },
    cli,
    metrics::Metrics,
    providers::fake::{FakeCloud, FakeConfig},
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{api_server::ApiServer, in_process::InProcess},
};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use tokio::{runtime::Runtime, task::JoinHandle};

/// Long, because the machine that tests run on may be busy.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// They block threads in real time; three at once would be in each other's way.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A program with two workers that leads.
struct Program {
    server: ApiServer,
    runtime: Runtime,
    stop: Shutdown,
    ended: JoinHandle<Result<ManagerOutcome, ManagerStartError>>,
    _alone: MutexGuard<'static, ()>,
}

fn start(host: ElectionHost) -> Program {
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let flags = [
        "ccm",
        "--cloud-provider=fake",
        "--secure-port=0",
        "--configure-cloud-routes=false",
        "--leader-elect-lease-duration=15s",
        "--leader-elect-renew-deadline=10s",
        "--leader-elect-retry-period=500ms",
    ];
    let cli::CliCommand::Run(config) = cli::parse(flags.iter().map(Into::into), &["fake"], &[]).unwrap() else {
        panic!("no help asked for")
    };
    let server = ApiServer::new(Clock::System);
    let parts = ManagerDeps {
        config: *config,
        clients: Arc::new(InProcess(server.clone())),
        provider: Arc::new(FakeCloud::new(FakeConfig::any_node())),
        metrics: Arc::new(Metrics::new().unwrap()),
        clock: Clock::System,
        set_verbosity: Arc::new(|_| ()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let stop = Shutdown::new();
    let until = stop.clone();
    let ended = runtime.spawn(async move { manager::run_with(parts, host, &until).await });
    let program = Program { server, runtime, stop, ended, _alone: alone };
    program.wait_until("it leads", |program| program.renewed().is_some());
    program
}

impl Program {
    /// When the lease was last renewed; `None` when nobody holds it.
    fn renewed(&self) -> Option<Timestamp> {
        let spec = self.server.get::<Lease>("kube-system", "cloud-controller-manager")?.spec?;
        spec.holder_identity.filter(|holder| !holder.is_empty())?;
        spec.renew_time.map(|time| time.0)
    }

    fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        for _ in 0..3000 {
            if condition(self) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("not within a minute: {what}");
    }

    /// Blocks both workers until the answer is dropped.
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

fn must_not_end(why: &str) -> ! {
    panic!("the process would have ended: {why}")
}

#[test]
fn the_lease_is_renewed_while_both_workers_are_blocked() {
    let program = start(ElectionHost::OwnThread { end: must_not_end });
    let blocked = program.block();
    let mut renewals = std::collections::BTreeSet::new();
    for _ in 0..120 {
        thread::sleep(RENEW_DEADLINE / 100);
        renewals.extend(program.renewed());
    }
    drop(blocked);
    assert!(renewals.len() >= 3, "renewed {} times in more than a renew deadline", renewals.len());
    program.stop.begin();
    assert_eq!(program.runtime.block_on(program.ended).unwrap().unwrap(), ManagerOutcome::Stopped);
    assert_eq!(
        program
            .server
            .get::<Lease>("kube-system", "cloud-controller-manager")
            .unwrap()
            .spec
            .unwrap()
            .holder_identity
            .unwrap(),
        ""
    );
}

#[test]
fn on_the_callers_runtime_the_same_costs_the_lease() {
    let program = start(ElectionHost::CallersRuntime);
    let blocked = program.block();
    thread::sleep(RENEW_DEADLINE + Duration::from_secs(2));
    drop(blocked);
    assert_eq!(program.runtime.block_on(program.ended).unwrap().unwrap(), ManagerOutcome::LeaseLost);
}

static ENDED: AtomicBool = AtomicBool::new(false);

fn note_the_end(_: &str) -> ! {
    ENDED.store(true, SeqCst);
    loop {
        thread::park();
    }
}

#[test]
fn a_lost_lease_ends_the_process_though_both_workers_are_blocked() {
    let program = start(ElectionHost::OwnThread { end: note_the_end });
    let _blocked = program.block();
    program.server.faults().fail_every(500, |request| request.resource == "leases");
    program.wait_until("the process is ended", |_| ENDED.load(SeqCst));
    assert!(!program.ended.is_finished());
}
