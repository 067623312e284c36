//! Limits for callers without access: under floods of its secure port, the built program stays within its memory limit, responds to probes
//! and does not delay known callers.
//!
//! Input: attacks over loopback, each from many addresses, and kubelet probes from other addresses. Output: checked figures per attack.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests outside test functions")]

mod attacks;
pub(crate) mod target;

use std::{
    future::Future,
    mem,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use self::target::{Program, SOON, Target, is_ok, is_shipped, probe};

/// Default of `timeoutSeconds` of the kubelet.
const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// Interval of the requests of each prober.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Limit of resident memory of the shipped program.
const RESIDENT_LIMIT_KIB: u64 = 64 * 1024;
/// Resident memory of the shipped program before the first request (17 MiB, rounded up). A debug build starts with 55 MiB, nearly all of it
/// pages of its own file, so only its growth counts, which is at least that of a release build. For the program in `CCM_BINARY`, all memory
/// counts.
const SHIPPED_BASE_KIB: u64 = 20 * 1024;
/// Time after which an attack is aborted.
const ATTACK: Duration = Duration::from_secs(4);
/// Time limit for all phases on a busy machine, in addition to the start.
const ALL: Duration = Duration::from_secs(SOON.as_secs() + 120);
/// Percentage of probes of all phases that may fail, because a busy machine may stop all processes for a moment.
const MISSED_PERCENT: usize = 5;
/// Number of consecutive failures after which the kubelet restarts the container (`failureThreshold`).
const MISSED_IN_A_ROW: usize = 3;
/// Addresses of a kubelet on the same host, which connects from the address of the server, and of one with its own address.
const PROBERS: [Ipv4Addr; 2] = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)];
const SLOW_TOKEN: &str = "token-of-the-slow-reader";

type Outcome = Result<Duration, String>;

/// Probers on their own threads, so the attacks in this process do not delay them.
struct Probers {
    /// Results by prober, in order.
    results: [Arc<Mutex<Vec<Outcome>>>; PROBERS.len()],
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Probers {
    fn start(target: &Target) -> Self {
        let (results, stop): ([Arc<Mutex<Vec<_>>>; PROBERS.len()], Arc<AtomicBool>) = Default::default();
        let threads = PROBERS.into_iter().zip(&results).map(|(source, results)| {
            let (target, results, stop) = (target.clone(), Arc::clone(results), Arc::clone(&stop));
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                while !stop.load(Ordering::SeqCst) {
                    let result = runtime.block_on(probe(&target, source, PROBE_LIMIT));
                    results.lock().push(result);
                    thread::sleep(PROBE_INTERVAL);
                }
            })
        });
        let threads = threads.collect();
        Self { results, stop, threads }
    }

    fn take(&self) -> Vec<Vec<Outcome>> {
        self.results.iter().map(|results| mem::take(&mut *results.lock())).collect()
    }

    fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn missed_in_a_row(probes: &[Outcome]) -> bool {
    probes.windows(MISSED_IN_A_ROW).any(|row| row.iter().all(Result::is_err))
}

fn missed_too_many(probes: &[Outcome]) -> bool {
    let missed = probes.iter().filter(|probe| probe.is_err()).count();
    probes.is_empty() || missed * 100 > probes.len() * MISSED_PERCENT
}

struct Flood {
    program: Program,
    base: u64,
    probers: Probers,
    /// Probes of all phases, by prober.
    probes: [Vec<Outcome>; PROBERS.len()],
    failures: Vec<String>,
}

impl Flood {
    /// Runs an attack, and checks memory and probes. At least `least` attacks must reach the port.
    async fn phase<A>(&mut self, name: &str, least: usize, attack: impl FnOnce(Target) -> A)
    where
        A: Future<Output = ()> + Send + 'static,
    {
        drop(self.probers.take());
        let target = self.program.target.with_own_count();
        let mut attack = tokio::spawn(attack(target.clone()));
        let ended = timeout(ATTACK, &mut attack).await;
        let peak = self.program.memory("VmHWM");
        let resident = self.program.memory("VmRSS");
        let probes = self.probers.take();
        match ended {
            Ok(ended) => ended.unwrap(),
            Err(_) => attack.abort(),
        }
        let all = || probes.iter().flatten();
        let worst = all().flatten().max().copied().unwrap_or_default();
        let failed: Vec<_> = all().filter_map(|probe| probe.as_ref().err()).collect();
        eprintln!(
            "{name}: {} delivered, resident {resident} KiB, peak {peak} KiB; {} probes, slowest {} ms, {} failed {failed:?}",
            target.delivered(),
            all().count(),
            worst.as_millis(),
            failed.len()
        );
        let growth = peak.saturating_sub(self.base);
        let needed = if is_shipped() { peak } else { SHIPPED_BASE_KIB + growth };
        if needed > RESIDENT_LIMIT_KIB {
            self.failures.push(format!("{name}: {peak} KiB were resident, {growth} KiB more than at the start"));
        }
        if probes.iter().any(|probes| probes.is_empty() || missed_in_a_row(probes)) {
            self.failures.push(format!("{name}: of {} probes failed {failed:?}", all().count()));
        }
        if target.delivered() < least {
            self.failures.push(format!("{name}: only {} attacks reached the port, not {least}", target.delivered()));
        }
        self.probes.iter_mut().zip(probes).for_each(|(all, probes)| all.extend(probes));
    }

    /// Sends the first request of an authorized caller, for a new path.
    async fn known_caller(&mut self, name: &str) -> String {
        let token = format!("token-after-{name}");
        self.program.add_admin(&token);
        let start = Instant::now();
        let source = Ipv4Addr::new(127, 0, 0, 3);
        let path = format!("/metrics?{name}");
        let response = timeout(PROBE_LIMIT, self.program.target.get(source, &path, Some(&token))).await;
        eprintln!("{name}: a known caller waited {} ms", start.elapsed().as_millis());
        if !matches!(&response, Ok(Ok(response)) if is_ok(response)) {
            self.failures.push(format!("{name}: a known caller got {response:?}"));
        }
        response.map(Result::unwrap_or_default).unwrap_or_default()
    }
}

async fn floods() {
    let program = Program::start().await;
    program.add_admin(SLOW_TOKEN);
    let base = program.memory("VmRSS");
    eprintln!("base: resident {base} KiB");
    let mut flood =
        Flood { probers: Probers::start(&program.target), program, base, probes: Default::default(), failures: Vec::new() };
    flood.phase("half-sent requests", 48, attacks::half_sent_requests).await;
    flood.phase("huge heads", 20, attacks::huge_heads).await;
    flood.phase("silent connections", 500, attacks::silent_connections).await;
    flood.phase("http2 floods", 20, attacks::http2_floods).await;
    let _ = flood.known_caller("http2-floods").await;
    flood.phase("abandoned requests", 10, attacks::abandoned_requests).await;
    let metrics = flood.known_caller("abandoned-requests").await;
    let text_limit = 256 * 1024;
    if metrics.len() > text_limit {
        flood.failures.push(format!("{} bytes of metrics", metrics.len()));
    }
    for refused in [
        "connections_refused_total{reason=\"replaced\"}",
        "requests_refused_total{reason=\"malformed\"}",
        "requests_refused_total{reason=\"reviews\"}",
    ] {
        if !metrics.contains(refused) {
            flood.failures.push(format!("the floods did not reach the limit that {refused} counts"));
        }
    }
    flood.phase("tokens of a tenant", 96, attacks::tokens_of_a_tenant).await;
    flood.phase("slow readers", 20, |target| attacks::slow_readers(target, SLOW_TOKEN)).await;
    sleep(PROBE_INTERVAL).await;
    flood.probers.end();
    for (prober, probes) in PROBERS.iter().zip(&flood.probes) {
        if missed_too_many(probes) {
            let missed = probes.iter().filter(|probe| probe.is_err()).count();
            flood.failures.push(format!("{prober} missed {missed} of {} probes", probes.len()));
        }
    }
    let log = flood.program.log();
    assert!(log.len() < text_limit, "{} bytes of log, which end with {:?}", log.len(), log.lines().last());
    assert!(flood.failures.is_empty(), "{}", flood.failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_affect_neither_memory_nor_probes_nor_known_callers() {
    assert!(timeout(ALL, floods()).await.is_ok(), "not done within {} s", ALL.as_secs());
}
