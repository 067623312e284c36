use std::collections::HashSet;

use proptest::{collection::vec, prelude::*, sample::subsequence};

use super::{
    super::{
        buckets::tests::drain,
        usage::allowance,
        window::{WINDOW, WindowLimit},
    },
    *,
};

fn of_resource(resource: usize, capacity: f64, per_second: f64) -> BucketCharge {
    let mut drain = drain("one", capacity, per_second);
    drain.id = BucketId { level: QuotaLevel::Resource, resource: Some(resource.to_string()), ..drain.id };
    drain
}

fn empty() -> (BudgetQueue, QuotaBuckets, Instant) {
    (BudgetQueue::default(), QuotaBuckets::default(), Instant::now())
}

/// Turns from `start` until nobody waits, or for `turns`: who went when, in milliseconds.
fn run(queue: &mut BudgetQueue, buckets: &mut QuotaBuckets, start: Instant, turns: usize) -> Vec<(u64, u128)> {
    let (mut now, mut went) = (start, Vec::new());
    for _ in 0..turns {
        let turn = queue.admit(buckets, now);
        went.extend(turn.tickets.iter().map(|number| (*number, (now - start).as_millis())));
        let Some(next) = turn.retry_at else { break };
        assert!(next > now, "a turn that asks for another at once");
        now = next;
    }
    went
}

#[test]
fn the_urgent_go_first_and_equals_in_the_order_they_came() {
    let (mut queue, mut buckets, start) = empty();
    use Urgency::{Change, Deletion, Node, Resync};
    for urgency in [Resync, Node, Change, Resync, Deletion, Change] {
        queue.join(vec![drain("a", 1.0, 1.0)], urgency, start);
    }
    let went = run(&mut queue, &mut buckets, start, 100);
    assert_eq!(went, [(3, 0), (6, 1000), (5, 2000), (2, 3000), (1, 4000), (4, 5000)]);
    assert!(queue.is_empty());
}

#[test]
fn the_most_urgent_find_tokens_that_others_left() {
    let (mut queue, mut buckets, start) = empty();
    let arm = || {
        let mut arm = drain("arm", 20.0, 1.0);
        arm.id.level = QuotaLevel::Subscription;
        vec![arm]
    };
    (0..40).for_each(|_| drop(queue.join(arm(), Urgency::Resync, start)));
    assert_eq!(queue.admit(&mut buckets, start).tickets.len(), 10);
    let urgent: Vec<u64> = (0..9).map(|_| queue.join(arm(), Urgency::Shared, start).number).collect();
    assert_eq!(queue.admit(&mut buckets, start).tickets, urgent[..8], "but for two");
    let went = run(&mut queue, &mut buckets, start, 1_000);
    assert_eq!((went.len(), went[0]), (31, (urgent[8], 1000)));
}

#[test]
fn a_minute_of_waiting_is_worth_a_class() {
    let (mut queue, mut buckets, start) = empty();
    let bucket = || vec![drain("a", 1.0, 1.0)];
    queue.join(bucket(), Urgency::Resync, start);
    queue.join(bucket(), Urgency::Change, start + URGENCY_STEP * 3 - Duration::from_secs(1));
    queue.join(bucket(), Urgency::Change, start + URGENCY_STEP * 3 + Duration::from_secs(1));
    let went = run(&mut queue, &mut buckets, start + URGENCY_STEP * 4, 100);
    assert_eq!(went.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 1, 3]);
}

#[test]
fn an_empty_bucket_holds_up_only_those_who_need_it() {
    let (mut queue, mut buckets, start) = empty();
    let (network, arm) = (drain("network", 10.0, 1.0), drain("arm", 10.0, 1.0));
    buckets.pause(&network, start + Duration::from_secs(60), start);
    queue.join(vec![network, arm.clone()], Urgency::Change, start);
    queue.join(vec![arm], Urgency::Resync, start);
    let turn = queue.admit(&mut buckets, start);
    assert_eq!(turn, AdmittedCallers { tickets: vec![2], retry_at: Some(start + Duration::from_secs(60)) });
}

#[test]
fn a_resource_holds_up_only_those_who_want_it() {
    let (mut queue, mut buckets, start) = empty();
    let mut join = |resource, urgency| {
        queue.join(vec![of_resource(resource, 1.0, 0.1), drain("arm", 10.0, 5.0)], urgency, start).number
    };
    let (first, second, other) = (join(1, Urgency::Change), join(1, Urgency::Change), join(2, Urgency::Resync));
    let went = run(&mut queue, &mut buckets, start, 100);
    assert_eq!(went, [(first, 0), (other, 0), (second, 10_000)]);
}

/// Two streams that need one bucket each, and one caller that needs both: each token comes when the other bucket is empty.
#[test]
fn streams_of_others_do_not_keep_a_caller_out() {
    let (mut queue, mut buckets, start) = empty();
    let (a, b) = (drain("a", 1.0, 1.0), drain("b", 1.0, 1.0));
    buckets.take(std::slice::from_ref(&a), start);
    buckets.take(std::slice::from_ref(&b), start + Duration::from_millis(500));
    let both = queue.join(vec![a.clone(), b.clone()], Urgency::Change, start + Duration::from_millis(600));
    for _ in 0..100 {
        queue.join(vec![a.clone()], Urgency::Resync, start);
        queue.join(vec![b.clone()], Urgency::Resync, start);
    }
    let went = run(&mut queue, &mut buckets, start + Duration::from_millis(600), 1000);
    let when = went.iter().find(|(number, _)| *number == both.number).map(|(_, when)| *when);
    assert_eq!(when, Some(900), "as soon as the later bucket has a token");
    assert_eq!(went.len(), 201);
}

#[test]
fn a_place_is_given_away_once() {
    let (mut queue, mut buckets, start) = empty();
    let first = queue.join(vec![drain("a", 1.0, 1.0)], Urgency::Change, start);
    let second = queue.join(vec![drain("a", 1.0, 1.0)], Urgency::Change, start);
    assert!(queue.leave(&first));
    assert!(!queue.leave(&first));
    assert_eq!(queue.admit(&mut buckets, start).tickets, [second.number]);
    assert!(!queue.leave(&second), "it went");
    assert!(queue.is_empty());
}

/// A bucket whose tokens are also counted by a window, of which a fifth is the reserve.
fn counted(capacity: f64, per_second: f64) -> BucketCharge {
    let mut counted = drain("writes", capacity, per_second);
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
    let went = run(&mut queue, &mut buckets, start, 100);
    let order: Vec<u64> = went.into_iter().map(|(number, _)| number).collect();
    assert_eq!(order, [1, 5, 8, 6, 2, 7, 3, 4], "the eighth at the place of `c`, and half of it is charged to `a`");
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
    assert_eq!(later, closed[4..], "what it has used is forgotten");
}

#[test]
fn five_thousand_callers_cost_a_look_each() {
    let (mut queue, mut buckets, start) = empty();
    for resource in 0..5000 {
        queue.join(vec![of_resource(resource, 18.0, 0.1), drain("arm", 125.0, 12.5)], Urgency::Node, start);
    }
    assert_eq!(queue.lines.len(), 1, "one line to look at, however many resources");
    let went = run(&mut queue, &mut buckets, start, 10_000);
    assert_eq!(went.len(), 5000);
    assert_eq!(went.last().map(|(_, when)| when / 1000), Some((5000 - 125) * 10 / 125));
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

/// A caller: its buckets, urgency, how long after the one before it comes, and whether it leaves again before its turn.
fn callers() -> impl Strategy<Value = Vec<(Vec<BucketCharge>, Urgency, u64, bool)>> {
    let all = vec![of_resource(1, 2.0, 0.5), of_resource(2, 2.0, 0.5), drain("b", 3.0, 2.0), drain("c", 5.0, 0.7)];
    vec((subsequence(all, 1..=4), urgency(), 0..2000u64, prop::bool::weighted(0.3)), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whoever stays goes exactly once, whoever left never; equals with equal needs go in order.
    #[test]
    fn everybody_goes_once(callers in callers()) {
        let (mut queue, mut buckets, mut now) = (BudgetQueue::default(), QuotaBuckets::default(), Instant::now());
        let (mut staying, mut went) = (Vec::new(), Vec::new());
        let (mut left, mut gone) = (Vec::new(), HashSet::new());
        for (drains, urgency, wait, leaves) in callers {
            now += Duration::from_millis(wait);
            let ticket = queue.join(drains.clone(), urgency, now);
            if leaves {
                left.push(ticket);
            } else {
                staying.push((ticket.number, LineKey::of(&drains, &urgency.into()), drains, urgency));
                went.extend(queue.admit(&mut buckets, now).tickets);
            }
            if let Some(ticket) = left.pop().filter(|_| wait % 2 == 0) {
                let number = ticket.number;
                if queue.leave(&ticket) { gone.insert(number); } else { buckets.give_back(&ticket.charges, now, now); }
            }
        }
        for ticket in left {
            if queue.leave(&ticket) { gone.insert(ticket.number); }
        }
        went.extend(run(&mut queue, &mut buckets, now, 10_000).into_iter().map(|(number, _)| number));
        prop_assert!(queue.is_empty() && queue.lines.is_empty());
        let position = |number: u64| went.iter().position(|other| *other == number);
        for (index, (number, _, drains, urgency)) in staying.iter().enumerate() {
            prop_assert_eq!(went.iter().filter(|other| *other == number).count(), 1);
            for (later, _, other_drains, other_urgency) in &staying[index + 1..] {
                if drains == other_drains && urgency == other_urgency {
                    prop_assert!(position(*number) < position(*later), "{number} came before {later}");
                }
            }
        }
        prop_assert!(gone.iter().all(|number| position(*number).is_none()));
    }

    /// Leaving changes nothing for the others: they go as if the caller had never come.
    #[test]
    fn leaving_leaves_no_trace(callers in callers()) {
        let start = Instant::now();
        let play = |with_leavers: bool| {
            let (mut queue, mut buckets) = (BudgetQueue::default(), QuotaBuckets::default());
            let (mut names, mut tickets) = (HashMap::new(), Vec::new());
            for (index, (drains, urgency, _, leaves)) in callers.iter().enumerate().filter(|(_, caller)| with_leavers || !caller.3) {
                let ticket = queue.join(drains.clone(), *urgency, start);
                names.insert(ticket.number, index);
                tickets.extend(leaves.then_some(ticket));
            }
            tickets.iter().for_each(|ticket| assert!(queue.leave(ticket)));
            let went = run(&mut queue, &mut buckets, start, 10_000);
            went.into_iter().map(|(number, when)| (names[&number], when)).collect::<Vec<_>>()
        };
        prop_assert_eq!(play(true), play(false));
    }

    /// Under a stream of the most urgent that alone would use up everything, nobody waits much longer than its class is worth.
    #[test]
    fn nobody_starves(urgency in urgency(), capacity in 1.0..5f64) {
        let (start, bucket) = (Instant::now(), || vec![drain("a", capacity, 1.0)]);
        let (mut queue, mut buckets, mut now) = (BudgetQueue::default(), QuotaBuckets::default(), start);
        (0..10).for_each(|_| drop(queue.join(bucket(), Urgency::Change, now)));
        let patient = queue.join(bucket(), urgency, now);
        let longest = URGENCY_STEP * urgency as u32 + Duration::from_secs(20);
        loop {
            queue.join(bucket(), Urgency::Change, now);
            if queue.admit(&mut buckets, now).tickets.contains(&patient.number) {
                break;
            }
            now += Duration::from_secs(1);
            prop_assert!(now - start <= longest, "{urgency:?} still waits after {:?}", now - start);
        }
    }
}
