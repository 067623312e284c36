//! Comparison of ARM ids, which plans make by the thousand. Times are reported; what is asserted is how they compare to that of equal bytes.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::{hint::black_box, time::Duration};

use cloud_controller_manager::providers::azure::model::spelling::same_id;
use tokio::time::Instant;

const COMPARISONS: u32 = 100_000;
/// The shortest of so many runs counts.
const RUNS: u32 = 20;
/// How much longer the comparison of two ids may take than that of their bytes. With a walk from the first letter on it was 70 times.
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
        let taken = shortest(|| same_id(black_box(&first), black_box(&other)));
        let ratio = taken.as_secs_f64() / bytes.as_secs_f64();
        println!("{name}: {:?}, {ratio:.1} times", taken / COMPARISONS);
        assert!(!is_bounded || ratio < MAX_RATIO, "{name}: {ratio:.1} times the comparison of bytes, at most {MAX_RATIO}");
    }
}

/// Returns how long [`COMPARISONS`] take.
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
