//! Who may read nothing gets little: the built program under floods of its secure port keeps within its memory, answers probes
//! and does not let strangers hold up those who are known.
//!
//! In: attacks over loopback, each from many addresses; kubelet probes from others. Out: figures per attack, which are asserted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

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

/// kubelet's `timeoutSeconds` unless somebody sets it.
const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// How often each prober asks.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// What may be resident of the program that is shipped.
const RESIDENT_LIMIT_KIB: u64 = 64 * 1024;
/// What is resident of it before anybody asks (17 MiB, rounded up). A debug build begins with 55, nearly all of it pages of its own file;
/// so its growth is measured, which is the same for both or larger there. Of the program in `CCM_BINARY` everything counts.
const SHIPPED_BASE_KIB: u64 = 20 * 1024;
/// Attacks that do not end by themselves are ended.
const ATTACK: Duration = Duration::from_secs(4);
/// For everything, on a machine that may be busy; beyond what the start may take.
const ALL: Duration = Duration::from_secs(SOON.as_secs() + 120);
/// Of a hundred probes of all phases so many may be missed, as a machine that is busy with something else may stop everybody for a moment,
const MISSED_PERCENT: usize = 5;
/// but not so many in a row: then kubelet restarts the container (`failureThreshold`).
const MISSED_IN_A_ROW: usize = 3;
/// kubelet on the same host, which connects from the address that it connects to; and one whose address only it has.
const PROBERS: [Ipv4Addr; 2] = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)];
const SLOW_TOKEN: &str = "token-of-the-slow-reader";

type Outcome = Result<Duration, String>;

/// Probes from threads of their own, so that the attacks in this process do not hold them up.
struct Probers {
    /// By prober, in the order of asking.
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
    /// What was probed in all phases, by prober.
    probes: [Vec<Outcome>; PROBERS.len()],
    wrong: Vec<String>,
}

impl Flood {
    /// Attacks, and looks at memory and probes while it lasts. At least `least` of the attacks have to reach the port.
    async fn phase<A>(&mut self, name: &str, least: usize, attack: impl FnOnce(Target) -> A)
    where
        A: Future<Output = ()> + Send + 'static,
    {
        drop(self.probers.take());
        let target = self.program.target.counted_apart();
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
            self.wrong.push(format!("{name}: {peak} KiB were resident, {growth} KiB more than at the start"));
        }
        if probes.iter().any(|probes| probes.is_empty() || missed_in_a_row(probes)) {
            self.wrong.push(format!("{name}: of {} probes failed {failed:?}", all().count()));
        }
        if target.delivered() < least {
            self.wrong.push(format!("{name}: only {} attacks reached the port, not {least}", target.delivered()));
        }
        self.probes.iter_mut().zip(probes).for_each(|(all, probes)| all.extend(probes));
    }

    /// Somebody who is known asks for the first time, for a page that nobody has asked for.
    async fn known_caller(&mut self, name: &str) -> String {
        let token = format!("token-after-{name}");
        self.program.add_admin(&token);
        let start = Instant::now();
        let source = Ipv4Addr::new(127, 0, 0, 3);
        let path = format!("/metrics?{name}");
        let answer = timeout(PROBE_LIMIT, self.program.target.get(source, &path, Some(&token))).await;
        eprintln!("{name}: a known caller waited {} ms", start.elapsed().as_millis());
        if !matches!(&answer, Ok(Ok(answer)) if is_ok(answer)) {
            self.wrong.push(format!("{name}: a known caller got {answer:?}"));
        }
        answer.map(Result::unwrap_or_default).unwrap_or_default()
    }
}

async fn floods() {
    let program = Program::start().await;
    program.add_admin(SLOW_TOKEN);
    let base = program.memory("VmRSS");
    eprintln!("base: resident {base} KiB");
    let mut flood =
        Flood { probers: Probers::start(&program.target), program, base, probes: Default::default(), wrong: Vec::new() };
    flood.phase("half-sent requests", 48, attacks::half_sent_requests).await;
    flood.phase("huge heads", 20, attacks::huge_heads).await;
    flood.phase("silent connections", 500, attacks::silent_connections).await;
    flood.phase("http2 floods", 20, attacks::http2_floods).await;
    let _ = flood.known_caller("http2-floods").await;
    flood.phase("abandoned requests", 10, attacks::abandoned_requests).await;
    let metrics = flood.known_caller("abandoned-requests").await;
    let text_limit = 256 * 1024;
    if metrics.len() > text_limit {
        flood.wrong.push(format!("{} bytes of metrics", metrics.len()));
    }
    for refused in [
        "connections_refused_total{reason=\"replaced\"}",
        "requests_refused_total{reason=\"malformed\"}",
        "requests_refused_total{reason=\"reviews\"}",
    ] {
        if !metrics.contains(refused) {
            flood.wrong.push(format!("the floods never reached the limit that {refused} counts"));
        }
    }
    flood.phase("tokens of a tenant", 96, attacks::tokens_of_a_tenant).await;
    flood.phase("slow readers", 20, |target| attacks::slow_readers(target, SLOW_TOKEN)).await;
    sleep(PROBE_INTERVAL).await;
    flood.probers.end();
    for (prober, probes) in PROBERS.iter().zip(&flood.probes) {
        if missed_too_many(probes) {
            let missed = probes.iter().filter(|probe| probe.is_err()).count();
            flood.wrong.push(format!("{prober} missed {missed} of {} probes", probes.len()));
        }
    }
    let log = flood.program.log();
    assert!(log.len() < text_limit, "{} bytes of log, which end with {:?}", log.len(), log.lines().last());
    assert!(flood.wrong.is_empty(), "{}", flood.wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_cost_little_memory_and_hold_up_neither_probes_nor_known_callers() {
    assert!(timeout(ALL, floods()).await.is_ok(), "not done within {} s", ALL.as_secs());
}
