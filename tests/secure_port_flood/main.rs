//! Who asks without a name gets little: the built program under floods of its secure port keeps within its memory, answers probes
//! and does not let strangers hold up those who are known.
//!
//! In: attacks over loopback, each from many addresses; kubelet probes from others. Out: figures per attack, which are asserted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

mod attacks;
mod target;

use std::{
    future::Future,
    mem,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use self::target::{Program, Target, is_ok, probe};

/// kubelet's `timeoutSeconds` unless somebody sets it.
const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// How often each prober asks.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// What may be resident of the program that is shipped.
const RESIDENT_LIMIT_KIB: u64 = 64 * 1024;
/// What is resident of it before anybody asks (17 MiB, rounded up). The debug build that runs here begins with 55, nearly all of it
/// pages of its own file; so the growth is measured, which is the same for both or larger here.
const SHIPPED_BASE_KIB: u64 = 20 * 1024;
/// Attacks that do not end by themselves are ended.
const ATTACK: Duration = Duration::from_secs(4);
const ALL: Duration = Duration::from_secs(40);
/// kubelet on the same host, which connects from the address that it connects to; and one whose address only it has.
const PROBERS: [Ipv4Addr; 2] = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)];
const SLOW_TOKEN: &str = "token-of-the-slow-reader";

/// Probes from threads of their own, so that the attacks in this process do not hold them up.
struct Probers {
    results: Arc<Mutex<Vec<Result<Duration, String>>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Probers {
    fn start(target: &Target) -> Self {
        let (results, stop): (Arc<Mutex<Vec<_>>>, Arc<AtomicBool>) = Default::default();
        let threads = PROBERS.map(|source| {
            let (target, results, stop) = (target.clone(), Arc::clone(&results), Arc::clone(&stop));
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                while !stop.load(Ordering::SeqCst) {
                    let result = runtime.block_on(probe(&target, source, PROBE_LIMIT));
                    results.lock().unwrap().push(result);
                    thread::sleep(PROBE_INTERVAL);
                }
            })
        });
        Self { results, stop, threads: threads.into() }
    }

    fn take(&self) -> Vec<Result<Duration, String>> {
        mem::take(&mut self.results.lock().unwrap())
    }

    fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

struct Flood {
    program: Program,
    base: u64,
    probers: Probers,
    wrong: Vec<String>,
}

impl Flood {
    /// Attacks, and looks at memory and probes while it lasts.
    async fn phase(&mut self, name: &str, attack: impl Future<Output = ()> + Send + 'static) {
        drop(self.probers.take());
        let mut attack = tokio::spawn(attack);
        let ended = timeout(ATTACK, &mut attack).await;
        let peak = self.program.memory("VmHWM");
        let resident = self.program.memory("VmRSS");
        let probes = self.probers.take();
        match ended {
            Ok(ended) => ended.unwrap(),
            Err(_) => attack.abort(),
        }
        let worst = probes.iter().flatten().max().copied().unwrap_or_default();
        let failed: Vec<_> = probes.iter().filter_map(|probe| probe.as_ref().err()).collect();
        eprintln!(
            "{name}: resident {resident} KiB, peak {peak} KiB; {} probes, slowest {} ms, {} failed {failed:?}",
            probes.len(),
            worst.as_millis(),
            failed.len()
        );
        let growth = peak.saturating_sub(self.base);
        if SHIPPED_BASE_KIB + growth > RESIDENT_LIMIT_KIB {
            self.wrong.push(format!("{name}: {growth} KiB more than at the start were resident"));
        }
        if probes.len() < PROBERS.len() || !failed.is_empty() {
            self.wrong.push(format!("{name}: of {} probes failed {failed:?}", probes.len()));
        }
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
    let (base, target) = (program.memory("VmRSS"), program.target.clone());
    eprintln!("base: resident {base} KiB");
    let mut flood = Flood { probers: Probers::start(&target), program, base, wrong: Vec::new() };
    flood.phase("half-sent requests", attacks::half_sent_requests(target.clone())).await;
    flood.phase("huge heads", attacks::huge_heads(target.clone())).await;
    flood.phase("silent connections", attacks::silent_connections(target.clone())).await;
    flood.phase("http2 floods", attacks::http2_floods(target.clone())).await;
    let _ = flood.known_caller("http2-floods").await;
    flood.phase("abandoned requests", attacks::abandoned_requests(target.clone())).await;
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
    flood.phase("slow readers", attacks::slow_readers(target.clone(), SLOW_TOKEN)).await;
    sleep(PROBE_INTERVAL).await;
    flood.probers.end();
    let log = flood.program.log();
    assert!(log.len() < text_limit, "{} bytes of log, which end with {:?}", log.len(), log.lines().last());
    assert!(flood.wrong.is_empty(), "{}", flood.wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_cost_little_memory_and_hold_up_neither_probes_nor_known_callers() {
    assert!(timeout(ALL, floods()).await.is_ok(), "not done within {} s", ALL.as_secs());
}
