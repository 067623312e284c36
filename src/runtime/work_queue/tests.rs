use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const BACKOFF: KeyBackoff = KeyBackoff { base: SECOND, max: Duration::from_secs(8) };

fn queue() -> (WorkQueue<u8>, Instant) {
    (WorkQueue::new(BACKOFF), Instant::now())
}

impl WorkQueue<u8> {
    fn failures(&self, key: u8) -> u32 {
        self.entries.get(&key).map_or(0, |entry| entry.failures)
    }
}

fn failed() -> ReconcileResult {
    ReconcileResult::Failed("broken".into())
}

fn run(queue: &mut WorkQueue<u8>, now: Instant) -> u8 {
    match queue.next(now) {
        NextKey::Run(key, _) => key,
        other => panic!("nothing to run: {other:?}"),
    }
}

#[test]
fn due_keys_run_by_priority_and_then_in_order() {
    let (mut queue, now) = queue();
    for (key, priority) in [
        (1, ReconcilePriority::Resync),
        (2, ReconcilePriority::NodeChange),
        (3, ReconcilePriority::UserChange),
        (4, ReconcilePriority::Deletion),
    ] {
        queue.add_at(key, priority, now);
    }
    queue.add_at(5, ReconcilePriority::UserChange, now);
    queue.add_at(1, ReconcilePriority::UserChange, now);
    let order: Vec<_> = (0..5).map(|_| run(&mut queue, now)).collect();
    assert_eq!(order, [1, 3, 5, 4, 2], "key 1 became urgent and had been first");
    assert_eq!(queue.next(now), NextKey::Idle);
}

#[test]
fn failures_and_rejections_back_off_and_success_forgets_them() {
    let rejected = ReconcileResult::Rejected("locked".into());
    for (outcome, pauses) in [(failed(), &[1, 2, 4, 8, 8][..]), (rejected, &[15, 30, 60, 120, 240, 300, 300])] {
        let (mut queue, mut now) = queue();
        queue.add_at(1, ReconcilePriority::UserChange, now);
        for seconds in pauses {
            run(&mut queue, now);
            queue.finish(&1, outcome.clone(), now);
            assert_eq!(queue.next(now), NextKey::WaitUntil(now + *seconds * SECOND), "{outcome:?}");
            now += *seconds * SECOND;
        }
        run(&mut queue, now);
        queue.finish(&1, ReconcileResult::Done, now);
        assert_eq!((queue.failures(1), queue.next(now), queue.unsettled(now)), (0, NextKey::Idle, Vec::new()));
        assert!(queue.entries.is_empty(), "leftover keys: {queue:?}");
    }
}

/// Returns the most attempts of `count` rejected keys in 5 minutes of an hour.
fn attempts_of_rejected_keys(count: u16) -> usize {
    let (mut queue, start) = (WorkQueue::<u16>::new(BACKOFF), Instant::now());
    (0..count).for_each(|key| queue.add_at(key, ReconcilePriority::UserChange, start));
    let (mut now, mut attempts) = (start, Vec::new());
    while now < start + 3600 * SECOND {
        let due: Vec<_> = std::iter::from_fn(|| match queue.next(now) {
            NextKey::Run(key, _) => Some(key),
            _ => None,
        })
        .collect();
        attempts.extend(due.iter().map(|_| now));
        due.iter().for_each(|key| _ = queue.finish(key, ReconcileResult::Rejected("locked".into()), now));
        if let NextKey::WaitUntil(due) = queue.next(now) {
            now = due;
        }
    }
    let within = |from: Instant| attempts.iter().filter(|at| **at >= from && **at < from + 300 * SECOND).count();
    let mut starts = attempts.clone();
    starts.dedup();
    starts.into_iter().map(within).max().unwrap_or_default()
}

#[test]
fn hundreds_of_rejected_keys_do_not_use_up_a_request_quota() {
    for (count, most) in [(1, 5), (10, 50), (100, 250), (150, 350), (300, 400), (500, 600)] {
        let attempts = attempts_of_rejected_keys(count);
        assert!(attempts <= most, "{attempts} attempts of {count} keys in 5 minutes");
    }
}

#[test]
fn waiting_is_not_failing() {
    let (mut queue, now) = queue();
    queue.add_at(1, ReconcilePriority::UserChange, now);
    run(&mut queue, now);
    queue.finish(&1, failed(), now);
    run(&mut queue, now + SECOND);
    queue.finish(&1, ReconcileResult::RequeueAfter(5 * SECOND, "creating".into()), now + SECOND);
    assert_eq!(queue.failures(1), 1);
    assert_eq!(queue.next(now + SECOND), NextKey::WaitUntil(now + 6 * SECOND));
    assert_eq!(queue.unsettled(now)[0].reason.as_deref(), Some("creating"));
}

#[test]
fn resync_never_cuts_pauses_short_and_other_reasons_do() {
    let wait = || ReconcileResult::RequeueAfter(42 * SECOND, "throttled".into());
    for (outcome, priority, while_running, expected) in [
        (failed(), ReconcilePriority::Resync, false, 1),
        (failed(), ReconcilePriority::Resync, true, 1),
        (failed(), ReconcilePriority::UserChange, false, 0),
        (failed(), ReconcilePriority::UserChange, true, 0),
        (failed(), ReconcilePriority::NodeChange, false, 0),
        (failed(), ReconcilePriority::Deletion, true, 0),
        (wait(), ReconcilePriority::Resync, false, 42),
        (wait(), ReconcilePriority::Resync, true, 42),
        (wait(), ReconcilePriority::UserChange, false, 0),
        (wait(), ReconcilePriority::NodeChange, true, 0),
    ] {
        let (mut queue, now) = queue();
        queue.add_at(1, ReconcilePriority::UserChange, now);
        run(&mut queue, now);
        if while_running {
            queue.add_at(1, priority, now);
        }
        queue.finish(&1, outcome.clone(), now);
        if !while_running {
            queue.add_at(1, priority, now);
        }
        let due_in = queue.unsettled(now)[0].due_in_seconds;
        assert_eq!(
            due_in,
            Some((expected * SECOND).as_secs_f64()),
            "{outcome:?}, {priority:?}, while running: {while_running}"
        );
    }
}

#[test]
fn requeue_delays_are_bounded() {
    for (requested, expected) in [(Duration::ZERO, REQUEUE_BOUNDS.0), (Duration::MAX, REQUEUE_BOUNDS.1), (SECOND, SECOND)] {
        let (mut queue, now) = queue();
        queue.add_at(1, ReconcilePriority::UserChange, now);
        run(&mut queue, now);
        queue.finish(&1, ReconcileResult::RequeueAfter(requested, "later".into()), now);
        assert_eq!(queue.unsettled(now)[0].due_in_seconds, Some(expected.as_secs_f64()), "{requested:?}");
    }
}

#[test]
fn a_key_added_while_it_runs_runs_again_afterwards() {
    let (mut queue, now) = queue();
    queue.add_at(1, ReconcilePriority::UserChange, now);
    run(&mut queue, now);
    queue.add_at(1, ReconcilePriority::UserChange, now);
    assert_eq!(queue.next(now), NextKey::Idle);
    assert_eq!(queue.finish(&1, ReconcileResult::Done, now + SECOND), SECOND);
    assert_eq!(queue.next(now + SECOND), NextKey::Run(1, SECOND));
    queue.finish(&1, ReconcileResult::Done, now + SECOND);
    assert_eq!(queue.finish(&1, failed(), now + SECOND), Duration::ZERO, "a second finish has no effect");
    assert_eq!(queue.next(now + SECOND), NextKey::Idle);
}

#[test]
fn the_earlier_time_wins() {
    let (mut queue, now) = queue();
    queue.add_at(1, ReconcilePriority::Resync, now + 9 * SECOND);
    queue.add_at(1, ReconcilePriority::UserChange, now + 3 * SECOND);
    queue.add_at(1, ReconcilePriority::UserChange, now + 6 * SECOND);
    assert_eq!(queue.next(now), NextKey::WaitUntil(now + 3 * SECOND));
    assert_eq!(queue.next(now + 5 * SECOND), NextKey::Run(1, 2 * SECOND));
    assert_eq!((queue.depth(now), queue.running_ages(now + 6 * SECOND)), (0, (SECOND, SECOND)));
}

#[test]
fn deleted_keys_are_removed_unless_they_run() {
    let (mut queue, now) = queue();
    for key in 1..=3 {
        queue.add_at(key, ReconcilePriority::UserChange, now);
    }
    assert_eq!(run(&mut queue, now), 1);
    queue.add_at(1, ReconcilePriority::UserChange, now);
    (1..=4).for_each(|key| queue.forget(&key));
    assert_eq!((queue.next(now), queue.entries.len()), (NextKey::Idle, 1));
    queue.finish(&1, ReconcileResult::Done, now);
    assert!(queue.entries.is_empty() && queue.scheduled.is_empty() && queue.ready.is_empty(), "leftover keys: {queue:?}");
}

#[derive(Debug, Clone)]
enum Step {
    Add(u8, ReconcilePriority, u64),
    Next,
    Finish(usize, ReconcileResult),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    use ReconcilePriority::{Deletion, NodeChange, Resync, UserChange};
    let priority = prop::sample::select(vec![UserChange, Deletion, NodeChange, Resync]);
    let outcome = prop_oneof![
        2 => Just(ReconcileResult::Done),
        1 => (0u64..5).prop_map(|seconds| ReconcileResult::RequeueAfter(Duration::from_secs(seconds), "waiting".into())),
        1 => Just(failed()),
        1 => Just(ReconcileResult::Rejected("locked".into())),
    ];
    prop_oneof![
        3 => (0u8..6, priority, 0u64..4).prop_map(|(key, priority, delay)| Step::Add(key, priority, delay)),
        3 => Just(Step::Next),
        2 => (0usize..6, outcome).prop_map(|(index, outcome)| Step::Finish(index, outcome)),
        1 => (0u64..5).prop_map(Step::Pass),
    ]
}

/// Runs that the queue must start, because of an add or an outcome.
#[derive(Default)]
struct Model {
    owed: HashSet<u8>,
    running: Vec<u8>,
    /// Earliest time of the next run of keys that wait or back off, and to which only resyncs were added.
    backing_off: BTreeMap<u8, Instant>,
}

impl Model {
    fn start(&mut self, key: u8, now: Instant) {
        assert!(!self.running.contains(&key), "key {key} runs twice at a time");
        assert!(self.owed.remove(&key), "key {key} runs without a request");
        assert!(self.backing_off.remove(&key).is_none_or(|until| until <= now), "key {key} runs before its backoff ends");
        self.running.push(key);
    }

    fn take(&mut self, queue: &mut WorkQueue<u8>, now: &mut Instant, step: Step) {
        match step {
            Step::Pass(seconds) => *now += Duration::from_secs(seconds),
            Step::Add(key, priority, delay) => {
                self.owed.insert(key);
                if priority != ReconcilePriority::Resync {
                    self.backing_off.remove(&key);
                }
                queue.add_at(key, priority, *now + Duration::from_secs(delay));
            }
            Step::Next => {
                if let NextKey::Run(key, _) = queue.next(*now) {
                    self.start(key, *now);
                }
            }
            Step::Finish(index, outcome) => {
                if self.running.is_empty() {
                    return;
                }
                let key = self.running.remove(index % self.running.len());
                self.finish(queue, key, outcome, *now);
            }
        }
    }

    fn finish(&mut self, queue: &mut WorkQueue<u8>, key: u8, outcome: ReconcileResult, now: Instant) {
        let pending = queue.entries.get(&key).and_then(|entry| entry.pending);
        let only_resync = pending.is_none_or(|pending| pending.priority == ReconcilePriority::Resync);
        let requested_delay = match &outcome {
            ReconcileResult::RequeueAfter(delay, _) => Some(*delay),
            ReconcileResult::Rejected(_) => Some(REJECTED.base),
            _ => None,
        };
        let failed = matches!(outcome, ReconcileResult::Failed(_));
        if outcome != ReconcileResult::Done {
            self.owed.insert(key);
        }
        queue.finish(&key, outcome, now);
        let wait = requested_delay.or_else(|| failed.then(|| BACKOFF.delay(queue.failures(key))));
        if let Some(wait) = wait.filter(|_| only_resync) {
            self.backing_off.insert(key, now + wait);
        }
    }
}

proptest! {
    #[test]
    fn no_run_is_lost_duplicated_or_early(steps in prop::collection::vec(step(), 1..120)) {
        let (mut queue, mut now) = queue();
        let mut model = Model::default();
        for step in steps {
            model.take(&mut queue, &mut now, step);
        }
        for key in std::mem::take(&mut model.running) {
            model.finish(&mut queue, key, ReconcileResult::Done, now);
        }
        now += Duration::from_secs(3600);
        while let NextKey::Run(key, _) = queue.next(now) {
            model.start(key, now);
            model.running.clear();
            queue.finish(&key, ReconcileResult::Done, now);
        }
        prop_assert!(model.owed.is_empty(), "lost: {:?}", model.owed);
        prop_assert!(queue.entries.is_empty() && queue.scheduled.is_empty() && queue.ready.is_empty(), "leftover keys: {queue:?}");
    }
}

#[test]
fn a_due_key_counts_as_added_once_until_it_runs() {
    let (mut queue, now) = queue();
    for priority in [ReconcilePriority::Resync, ReconcilePriority::UserChange, ReconcilePriority::UserChange] {
        queue.add_at(1, priority, now);
        queue.depth(now);
    }
    assert_eq!(queue.take_added(), 1);
    run(&mut queue, now);
    queue.add_at(1, ReconcilePriority::UserChange, now);
    queue.add_at(1, ReconcilePriority::UserChange, now);
    queue.finish(&1, failed(), now);
    run(&mut queue, now);
    assert_eq!(queue.take_added(), 1, "an add during a run counts once");
    queue.finish(&1, failed(), now);
    assert_eq!((queue.depth(now), queue.take_added()), (0, 0), "a key does not become due before its backoff ends");
    let later = now + BACKOFF.max;
    assert_eq!((queue.depth(later), queue.take_added()), (1, 1));
}
