//! The work queue's hot path at ten thousand keys: add, next, finish. Counts are asserted, times reported.

use std::time::Duration;

use cloud_controller_manager::runtime::work_queue::{KeyBackoff, NextKey, ReconcilePriority, ReconcileResult, WorkQueue};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use tokio::time::Instant;

const KEYS: u32 = 10_000;

fn filled(now: Instant) -> WorkQueue<u32> {
    let mut queue = WorkQueue::new(KeyBackoff::DEFAULT);
    (0..KEYS).for_each(|key| queue.add_at(key, ReconcilePriority::Resync, now));
    queue
}

fn drain(mut queue: WorkQueue<u32>, now: Instant) -> u32 {
    let mut ran = 0;
    while let NextKey::Run(key, _) = queue.next(now) {
        queue.finish(&key, ReconcileResult::Done, now);
        ran += 1;
    }
    ran
}

fn work_queue(criterion: &mut Criterion) {
    let now = Instant::now();
    criterion.bench_function("add 10k keys", |bencher| bencher.iter(|| filled(now)));
    criterion.bench_function("next and finish 10k keys", |bencher| {
        bencher.iter_batched(|| filled(now), |queue| assert_eq!(drain(queue, now), KEYS), BatchSize::LargeInput);
    });
    criterion.bench_function("one key among 10k waiting", |bencher| {
        let mut queue = WorkQueue::new(KeyBackoff::DEFAULT);
        (1..KEYS).for_each(|key| queue.add_at(key, ReconcilePriority::Resync, now + Duration::from_secs(60)));
        bencher.iter(|| {
            queue.add_at(0, ReconcilePriority::UserChange, now);
            assert!(matches!(queue.next(now), NextKey::Run(0, _)));
            queue.finish(&0, ReconcileResult::Done, now);
        });
    });
}

criterion_group!(benches, work_queue);
criterion_main!(benches);
