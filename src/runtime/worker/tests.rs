use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use jiff::Timestamp;
use tokio::{sync::mpsc, task::JoinHandle, time::sleep};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    queue: ReconcileQueue<u8>,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
}

fn bench() -> Bench {
    let metrics = Arc::new(Metrics::new().unwrap());
    let clock = Clock::manual(Timestamp::from_second(1_700_000_000).unwrap());
    let queue = ReconcileQueue::new("test", KeyBackoff { base: SECOND, max: 8 * SECOND }, clock, Arc::clone(&metrics));
    Bench { queue, metrics, shutdown: Shutdown::new() }
}

impl Bench {
    fn run<F, R>(&self, limit: Option<usize>, reconcile: F) -> JoinHandle<()>
    where
        F: Fn(u8) -> R + Send + Sync + 'static,
        R: Future<Output = ReconcileResult> + Send + 'static,
    {
        let (queue, shutdown) = (self.queue.clone(), self.shutdown.clone());
        tokio::spawn(async move { queue.run(limit, &shutdown, reconcile).await })
    }
}

#[tokio::test(start_paused = true)]
async fn panics_fail_only_their_key_and_are_retried() {
    for is_before_the_future in [true, false] {
        let bench = bench();
        let (completed, mut runs) = mpsc::unbounded_channel();
        let attempts = AtomicUsize::new(0);
        bench.run(None, move |key| {
            let (completed, is_first) = (completed.clone(), key == 1 && attempts.fetch_add(1, SeqCst) == 0);
            assert!(!is_first || !is_before_the_future, "first attempt of key 1");
            async move {
                assert!(!is_first, "first attempt of key 1");
                completed.send(key).unwrap();
                ReconcileResult::Done
            }
        });
        bench.queue.add(1, ReconcilePriority::UserChange);
        bench.queue.add(2, ReconcilePriority::UserChange);
        let started = Instant::now();
        assert_eq!((runs.recv().await, runs.recv().await), (Some(2), Some(1)));
        assert_eq!(started.elapsed().as_secs(), 1, "the backoff after one failure");
        assert_eq!(bench.metrics.reconcile_panics_total.with_label_values(&["test"]).get(), 1.0);
        assert_eq!(bench.metrics.workqueue_retries_total.with_label_values(&["test"]).get(), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_runs_are_limited() {
    for (limit, seconds) in [(Some(1), 6), (Some(4), 2), (None, 1)] {
        let bench = bench();
        let (completed, mut runs) = mpsc::unbounded_channel();
        bench.run(limit, move |_| {
            let completed = completed.clone();
            async move {
                sleep(SECOND).await;
                completed.send(()).unwrap();
                ReconcileResult::Done
            }
        });
        (0..6).for_each(|key| bench.queue.add(key, ReconcilePriority::Resync));
        let started = Instant::now();
        for _ in 0..6 {
            runs.recv().await.unwrap();
        }
        assert_eq!(started.elapsed().as_secs(), seconds, "limit {limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_completes_running_keys_and_keeps_others() {
    let bench = bench();
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let worker = bench.run(Some(1), move |_| {
        let count = Arc::clone(&count);
        async move {
            sleep(5 * SECOND).await;
            count.fetch_add(1, SeqCst);
            ReconcileResult::Done
        }
    });
    bench.queue.add(1, ReconcilePriority::UserChange);
    bench.queue.add(2, ReconcilePriority::UserChange);
    sleep(SECOND).await;
    bench.queue.observe();
    assert_eq!(bench.metrics.workqueue_adds_total.with_label_values(&["test"]).get(), 2.0);
    assert_eq!(bench.metrics.workqueue_depth.with_label_values(&["test"]).get(), 1.0);
    assert_eq!(bench.metrics.workqueue_longest_running.with_label_values(&["test"]).get(), 1.0);
    bench.shutdown.begin();
    worker.await.unwrap();
    assert_eq!(ended.load(SeqCst), 1);
    assert_eq!(bench.queue.unsettled().iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), ["2"]);
}

#[tokio::test(start_paused = true)]
async fn an_earlier_key_wakes_a_waiting_worker() {
    let bench = bench();
    let (completed, mut runs) = mpsc::unbounded_channel();
    bench.run(None, move |key| {
        completed.send(key).unwrap();
        async { ReconcileResult::Done }
    });
    bench.queue.add_after(1, ReconcilePriority::Resync, 60 * SECOND);
    sleep(SECOND).await;
    let before = Instant::now();
    bench.queue.add(2, ReconcilePriority::UserChange);
    assert_eq!((runs.recv().await, before.elapsed()), (Some(2), Duration::ZERO));
    assert_eq!((runs.recv().await, before.elapsed()), (Some(1), 59 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_pass_lasts_from_the_first_key_to_the_last() {
    for (limit, expected) in [(1, [3, 1]), (2, [2, 1])] {
        let bench = bench();
        let (observed, mut passes) = mpsc::unbounded_channel();
        let (queue, shutdown) = (bench.queue.clone(), bench.shutdown.clone());
        tokio::spawn(async move {
            let reconcile = |key: u8| async move {
                sleep(SECOND).await;
                assert!(key != 9, "the panic ends the pass");
                ReconcileResult::Done
            };
            let observe = |pass: Duration| observed.send(pass.as_secs()).unwrap();
            queue.run_in_passes(Some(limit), &shutdown, reconcile, observe).await;
        });
        (0..3).for_each(|key| bench.queue.add(key, ReconcilePriority::Resync));
        bench.queue.add_after(9, ReconcilePriority::Resync, 10 * SECOND);
        for seconds in expected {
            assert_eq!(passes.recv().await, Some(seconds), "limit {limit}");
        }
    }
}
