//! Seeds of random tests. A test runs the same seeds every time. `CCM_SEEDS=7` runs one seed instead, `CCM_SEEDS=250..500` a range of them,
//! and `CCM_SOAK_SECONDS` adds others for as long as it says.
//!
//! A seed replays exactly: under a paused clock, the same seed sends the same requests in the same order.

#![allow(dead_code, reason = "each test crate uses a part")]
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test ends where its input is wrong, and prints what replays it"
)]

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use tokio::time::Instant;

/// Variable of the environment with the seeds to run.
const SEEDS: &str = "CCM_SEEDS";

/// Returns the seeds that the environment names, and whether it names any; otherwise `usual`.
fn seeds(usual: Range<u64>) -> (Range<u64>, bool) {
    let whole = |text: &str| text.parse::<u64>().expect("CCM_SEEDS is a seed or a range such as 0..100");
    let Ok(text) = std::env::var(SEEDS) else { return (usual, false) };
    let range =
        text.split_once("..").map_or_else(|| whole(&text)..whole(&text) + 1, |(first, end)| whole(first)..whole(end));
    (range, true)
}

/// Returns the seeds to run. Each is printed before it runs, so that the output of a test that fails ends with the seed.
pub(crate) fn printed(usual: Range<u64>) -> impl Iterator<Item = u64> {
    seeds(usual).0.inspect(|seed| println!("seed {seed}: {SEEDS}={seed} and the name of this test replay it"))
}

/// Runs `check` with each seed, and then panics with the seeds for which it failed.
pub(crate) fn each_seed(usual: Range<u64>, check: impl Fn(u64)) {
    let (seeds, _) = seeds(usual);
    report(&seeds.filter(|seed| !passes(&check, *seed)).collect::<Vec<_>>());
}

/// Runs `check` with each seed, and with the following ones for `CCM_SOAK_SECONDS`.
pub(crate) fn sweep(usual: Range<u64>, check: impl Fn(u64)) {
    let seconds = std::env::var("CCM_SOAK_SECONDS").map_or(0, |text| text.parse().expect("a number of seconds"));
    let (started, (seeds, is_chosen)) = (Instant::now(), seeds(usual));
    let lasts = || !is_chosen && started.elapsed() < Duration::from_secs(seconds);
    let more = (seeds.end..).take_while(|_| lasts());
    report(&seeds.chain(more).filter(|seed| !passes(&check, *seed)).collect::<Vec<_>>());
}

fn passes(check: &impl Fn(u64), seed: u64) -> bool {
    catch_unwind(AssertUnwindSafe(|| check(seed))).is_ok()
}

fn report(failed: &[u64]) {
    let first = failed.first().copied().unwrap_or_default();
    assert!(failed.is_empty(), "seeds {failed:?} failed: replay one with {SEEDS}={first} and the name of this test");
}
