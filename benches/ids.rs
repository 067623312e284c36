//! Comparison of ARM ids, of which a plan makes thousands. Times are printed. Asserted is their ratio to the time of comparing bytes.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::{hint::black_box, time::Duration};

use cloud_controller_manager::providers::azure::model::spelling::same_id;
use tokio::time::Instant;

const COMPARISONS: u32 = 100_000;
/// Number of runs, of which the shortest counts.
const RUNS: u32 = 20;
/// Limit of the time for two ids, as a multiple of the time for their bytes. A comparison letter by letter took 70 times as long.
const MAX_RATIO: f64 = 10.0;

const SUBSCRIPTION: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/kubernetes";

fn main() {
    let id = |group: &str, name: &str| format!("{group}/providers/Microsoft.Network/publicIPAddresses/kubernetes-{name}");
    let (first, second) = (id(SUBSCRIPTION, "aaaaaaaaaaaaaaaa"), id(SUBSCRIPTION, "aaaaaaaaaaaaaaab"));
    let bytes = shortest(|| black_box(first.as_str()) == black_box(second.as_str()));
    println!("bytes of two ids: {:?}", bytes / COMPARISONS);
    for (name, other, is_bounded) in [
        ("two ids", second, true),
        ("an id and itself", first.clone(), true),
        ("an id and its other spelling", id(&SUBSCRIPTION.to_uppercase(), "aaaaaaaaaaaaaaaa"), false),
    ] {
        let elapsed = shortest(|| same_id(black_box(&first), black_box(&other)));
        let ratio = elapsed.as_secs_f64() / bytes.as_secs_f64();
        println!("{name}: {:?}, {ratio:.1} times", elapsed / COMPARISONS);
        assert!(!is_bounded || ratio < MAX_RATIO, "{name}: {ratio:.1} times the comparison of bytes, at most {MAX_RATIO}");
    }
}

/// Returns how long [`COMPARISONS`] comparisons take, in the shortest run.
fn shortest(compare: impl Fn() -> bool) -> Duration {
    let run = || {
        let start = Instant::now();
        for _ in 0..COMPARISONS {
            black_box(compare());
        }
        start.elapsed()
    };
    (0..RUNS).map(|_| run()).min().unwrap_or_default()
}
