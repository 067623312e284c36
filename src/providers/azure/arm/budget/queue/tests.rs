use std::collections::HashSet;

use proptest::{collection::vec, prelude::*, sample::subsequence};

use super::{
    super::{
        buckets::tests::charge,
        usage::allowance,
        window::{WINDOW, WindowLimit},
    },
    *,
};

fn of_resource(resource: usize, capacity: f64, per_second: f64) -> BucketCharge {
    let mut charge = charge("one", capacity, per_second);
    charge.id = BucketId { level: QuotaLevel::Resource, resource: Some(resource.to_string()), ..charge.id };
    charge
}

fn empty() -> (BudgetQueue, QuotaBuckets, Instant) {
    (BudgetQueue::default(), QuotaBuckets::default(), Instant::now())
}

/// Evaluates the queue from `start` until it is empty, at most `evaluations` times. Returns the admitted callers with times in milliseconds.
fn run(queue: &mut BudgetQueue, buckets: &mut QuotaBuckets, start: Instant, evaluations: usize) -> Vec<(u64, u128)> {
    let (mut now, mut admitted) = (start, Vec::new());
    for _ in 0..evaluations {
        let result = queue.admit(buckets, now);
        admitted.extend(result.tickets.iter().map(|number| (*number, (now - start).as_millis())));
        let Some(next) = result.retry_at else { break };
        assert!(next > now, "an evaluation that requests another at the same time");
        now = next;
    }
    admitted
}

#[test]
fn urgent_callers_are_first_and_equal_ones_keep_their_order() {
    let (mut queue, mut buckets, start) = empty();
    use Urgency::{Change, Deletion, Node, Resync};
    for urgency in [Resync, Node, Change, Resync, Deletion, Change] {
        queue.join(vec![charge("a", 1.0, 1.0)], urgency, start);
    }
    let admitted = run(&mut queue, &mut buckets, start, 100);
    assert_eq!(admitted, [(3, 0), (6, 1000), (5, 2000), (2, 3000), (1, 4000), (4, 5000)]);
    assert!(queue.is_empty());
}

#[test]
fn less_urgent_callers_leave_tokens_for_the_most_urgent() {
    let (mut queue, mut buckets, start) = empty();
    let arm = || {
        let mut arm = charge("arm", 20.0, 1.0);
        arm.id.level = QuotaLevel::Subscription;
        vec![arm]
    };
    (0..40).for_each(|_| drop(queue.join(arm(), Urgency::Resync, start)));
    assert_eq!(queue.admit(&mut buckets, start).tickets.len(), 10);
    let urgent: Vec<u64> = (0..9).map(|_| queue.join(arm(), Urgency::Shared, start).number).collect();
    assert_eq!(queue.admit(&mut buckets, start).tickets, urgent[..8], "all but two tokens");
    let admitted = run(&mut queue, &mut buckets, start, 1_000);
    assert_eq!((admitted.len(), admitted[0]), (31, (urgent[8], 1000)));
}

#[test]
fn a_minute_of_waiting_equals_a_class() {
    let (mut queue, mut buckets, start) = empty();
    let bucket = || vec![charge("a", 1.0, 1.0)];
    queue.join(bucket(), Urgency::Resync, start);
    queue.join(bucket(), Urgency::Change, start + URGENCY_STEP * 3 - Duration::from_secs(1));
    queue.join(bucket(), Urgency::Change, start + URGENCY_STEP * 3 + Duration::from_secs(1));
    let admitted = run(&mut queue, &mut buckets, start + URGENCY_STEP * 4, 100);
    assert_eq!(admitted.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 1, 3]);
}

#[test]
fn an_empty_bucket_delays_only_callers_that_need_it() {
    let (mut queue, mut buckets, start) = empty();
    let (network, arm) = (charge("network", 10.0, 1.0), charge("arm", 10.0, 1.0));
    buckets.pause(&network, start + Duration::from_secs(60), start);
    queue.join(vec![network, arm.clone()], Urgency::Change, start);
    queue.join(vec![arm], Urgency::Resync, start);
    let admitted = queue.admit(&mut buckets, start);
    assert_eq!(admitted, AdmittedCallers { tickets: vec![2], retry_at: Some(start + Duration::from_secs(60)) });
}

#[test]
fn a_resource_delays_only_callers_that_need_it() {
    let (mut queue, mut buckets, start) = empty();
    let mut join = |resource, urgency| {
        queue.join(vec![of_resource(resource, 1.0, 0.1), charge("arm", 10.0, 5.0)], urgency, start).number
    };
    let (first, second, other) = (join(1, Urgency::Change), join(1, Urgency::Change), join(2, Urgency::Resync));
    let admitted = run(&mut queue, &mut buckets, start, 100);
    assert_eq!(admitted, [(first, 0), (other, 0), (second, 10_000)]);
}

/// Two streams that need one bucket each, and one caller that needs both: each token comes when the other bucket is empty.
#[test]
fn streams_of_other_callers_do_not_starve_a_caller() {
    let (mut queue, mut buckets, start) = empty();
    let (a, b) = (charge("a", 1.0, 1.0), charge("b", 1.0, 1.0));
    buckets.take(std::slice::from_ref(&a), start);
    buckets.take(std::slice::from_ref(&b), start + Duration::from_millis(500));
    let both = queue.join(vec![a.clone(), b.clone()], Urgency::Change, start + Duration::from_millis(600));
    for _ in 0..100 {
        queue.join(vec![a.clone()], Urgency::Resync, start);
        queue.join(vec![b.clone()], Urgency::Resync, start);
    }
    let admitted = run(&mut queue, &mut buckets, start + Duration::from_millis(600), 1000);
    let when = admitted.iter().find(|(number, _)| *number == both.number).map(|(_, when)| *when);
    assert_eq!(when, Some(900), "as soon as the later bucket has a token");
    assert_eq!(admitted.len(), 201);
}

#[test]
fn a_caller_leaves_the_queue_once() {
    let (mut queue, mut buckets, start) = empty();
    let first = queue.join(vec![charge("a", 1.0, 1.0)], Urgency::Change, start);
    let second = queue.join(vec![charge("a", 1.0, 1.0)], Urgency::Change, start);
    assert!(queue.leave(&first));
    assert!(!queue.leave(&first));
    assert_eq!(queue.admit(&mut buckets, start).tickets, [second.number]);
    assert!(!queue.leave(&second), "it was admitted");
    assert!(queue.is_empty());
}

/// A bucket whose tokens are also counted by a window, of which a fifth is the reserve.
fn counted(capacity: f64, per_second: f64) -> BucketCharge {
    let mut counted = charge("writes", capacity, per_second);
    counted.limit.window = Some(WindowLimit::all(100.0));
    counted
}

fn caused_by(namespaces: &[&str]) -> QueueClaim {
    QueueClaim { causes: namespaces.iter().copied().collect(), ..Urgency::Change.into() }
}

#[test]
fn namespaces_take_turns() {
    let start = Instant::now();
    let (mut queue, mut buckets) = (BudgetQueue::default(), QuotaBuckets::default());
    let mut join = |namespaces: &[&str]| drop(queue.join(vec![counted(1.0, 1.0)], caused_by(namespaces), start));
    (0..4).for_each(|_| join(&["a"]));
    (0..3).for_each(|_| join(&["b"]));
    join(&["a", "c"]);
    let admitted = run(&mut queue, &mut buckets, start, 100);
    let order: Vec<u64> = admitted.into_iter().map(|(number, _)| number).collect();
    assert_eq!(order, [1, 5, 8, 6, 2, 7, 3, 4], "the eighth at the position of `c`, and half of it is charged to `a`");
}

#[test]
fn the_reserve_is_closed_beyond_the_share() {
    let start = Instant::now();
    let (mut queue, mut buckets) = (BudgetQueue::default(), QuotaBuckets::default());
    let writes = counted(100.0, 1.0 / 3.0);
    (0..75).for_each(|_| buckets.take(std::slice::from_ref(&writes), start));
    let noisy = caused_by(&["noisy"]);
    (0..7).for_each(|_| buckets.usage.add(std::slice::from_ref(&writes), &noisy.causes, start));
    let mut join = |claim: QueueClaim| queue.join(vec![writes.clone()], claim, start).number;
    let permit = |services| QueueClaim { allowance: Some(allowance(services)), ..noisy.clone() };
    let closed: Vec<u64> = (0..10).map(|_| join(permit(1))).collect();
    let open = [join(caused_by(&["quiet"])), join(noisy.clone())];
    let admitted = queue.admit(&mut buckets, start).tickets;
    assert_eq!(admitted, [&open[..1], &closed[..4], &open[1..]].concat(), "the first leaves one more than the reserve");
    assert!(queue.admit(&mut buckets, start + Duration::from_secs(1)).tickets.is_empty());
    let later = queue.admit(&mut buckets, start + WINDOW + Duration::from_secs(2)).tickets;
    assert_eq!(later, closed[4..], "its usage has expired");
}

#[test]
fn five_thousand_callers_are_evaluated_once_each() {
    let (mut queue, mut buckets, start) = empty();
    for resource in 0..5000 {
        queue.join(vec![of_resource(resource, 18.0, 0.1), charge("arm", 125.0, 12.5)], Urgency::Node, start);
    }
    assert_eq!(queue.lines.len(), 1, "one line to evaluate, however many resources");
    let admitted = run(&mut queue, &mut buckets, start, 10_000);
    assert_eq!(admitted.len(), 5000);
    assert_eq!(admitted.last().map(|(_, when)| when / 1000), Some((5000 - 125) * 10 / 125));
}

fn urgency() -> impl Strategy<Value = Urgency> {
    prop_oneof![
        Just(Urgency::Shared),
        Just(Urgency::Change),
        Just(Urgency::Deletion),
        Just(Urgency::Node),
        Just(Urgency::Resync)
    ]
}

/// Callers with their buckets, urgency, delay after the previous caller, and whether they leave before admission.
fn callers() -> impl Strategy<Value = Vec<(Vec<BucketCharge>, Urgency, u64, bool)>> {
    let all = vec![of_resource(1, 2.0, 0.5), of_resource(2, 2.0, 0.5), charge("b", 3.0, 2.0), charge("c", 5.0, 0.7)];
    vec((subsequence(all, 1..=4), urgency(), 0..2000u64, prop::bool::weighted(0.3)), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Admits each remaining caller exactly once and no caller that left; equal callers keep their order.
    #[test]
    fn every_remaining_caller_is_admitted_once(callers in callers()) {
        let (mut queue, mut buckets, mut now) = (BudgetQueue::default(), QuotaBuckets::default(), Instant::now());
        let (mut remaining, mut admitted) = (Vec::new(), Vec::new());
        let (mut leaving, mut removed) = (Vec::new(), HashSet::new());
        for (charges, urgency, wait, leaves) in callers {
            now += Duration::from_millis(wait);
            let ticket = queue.join(charges.clone(), urgency, now);
            if leaves {
                leaving.push(ticket);
            } else {
                remaining.push((ticket.number, LineKey::of(&charges, &urgency.into()), charges, urgency));
                admitted.extend(queue.admit(&mut buckets, now).tickets);
            }
            if let Some(ticket) = leaving.pop().filter(|_| wait % 2 == 0) {
                let number = ticket.number;
                if queue.leave(&ticket) { removed.insert(number); } else { buckets.give_back(&ticket.charges, now, now); }
            }
        }
        for ticket in leaving {
            if queue.leave(&ticket) { removed.insert(ticket.number); }
        }
        admitted.extend(run(&mut queue, &mut buckets, now, 10_000).into_iter().map(|(number, _)| number));
        prop_assert!(queue.is_empty() && queue.lines.is_empty());
        let position = |number: u64| admitted.iter().position(|other| *other == number);
        for (index, (number, _, charges, urgency)) in remaining.iter().enumerate() {
            prop_assert_eq!(admitted.iter().filter(|other| *other == number).count(), 1);
            for (later, _, other_charges, other_urgency) in &remaining[index + 1..] {
                if charges == other_charges && urgency == other_urgency {
                    prop_assert!(position(*number) < position(*later), "{number} joined before {later}");
                }
            }
        }
        prop_assert!(removed.iter().all(|number| position(*number).is_none()));
    }

    /// Admits the other callers as if the leaving ones had never joined.
    #[test]
    fn leaving_leaves_no_trace(callers in callers()) {
        let start = Instant::now();
        let play = |with_leavers: bool| {
            let (mut queue, mut buckets) = (BudgetQueue::default(), QuotaBuckets::default());
            let (mut names, mut tickets) = (HashMap::new(), Vec::new());
            for (index, (charges, urgency, _, leaves)) in callers.iter().enumerate().filter(|(_, caller)| with_leavers || !caller.3) {
                let ticket = queue.join(charges.clone(), *urgency, start);
                names.insert(ticket.number, index);
                tickets.extend(leaves.then_some(ticket));
            }
            tickets.iter().for_each(|ticket| assert!(queue.leave(ticket)));
            let admitted = run(&mut queue, &mut buckets, start, 10_000);
            admitted.into_iter().map(|(number, when)| (names[&number], when)).collect::<Vec<_>>()
        };
        prop_assert_eq!(play(true), play(false));
    }

    /// Admits a caller after about the time that its class equals, under a stream of urgent callers that could use all tokens.
    #[test]
    fn no_caller_starves(urgency in urgency(), capacity in 1.0..5f64) {
        let (start, bucket) = (Instant::now(), || vec![charge("a", capacity, 1.0)]);
        let (mut queue, mut buckets, mut now) = (BudgetQueue::default(), QuotaBuckets::default(), start);
        (0..10).for_each(|_| drop(queue.join(bucket(), Urgency::Change, now)));
        let caller = queue.join(bucket(), urgency, now);
        let max_wait = URGENCY_STEP * urgency as u32 + Duration::from_secs(20);
        loop {
            queue.join(bucket(), Urgency::Change, now);
            if queue.admit(&mut buckets, now).tickets.contains(&caller.number) {
                break;
            }
            now += Duration::from_secs(1);
            prop_assert!(now - start <= max_wait, "{urgency:?} still waits after {:?}", now - start);
        }
    }
}
