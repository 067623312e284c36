use super::*;

const PACE: PollingPace = PollingPace {
    first: Duration::from_millis(200),
    factor: 1.5,
    longest: Duration::from_secs(10),
    max_retry_after: Duration::from_secs(60),
    min_retry_after: Duration::ZERO,
};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Returns a schedule with waiters 1, 2, … that are due after these milliseconds.
fn schedule(due: &[u64]) -> (WatchSchedule, Instant) {
    let (mut schedule, start) = (WatchSchedule::new(PACE, 1), Instant::now());
    (1..).zip(due).for_each(|(waiter, due)| schedule.wait(waiter, start + ms(*due), start));
    (schedule, start)
}

#[test]
fn many_writes_are_listed_and_a_few_are_polled() {
    for (due, pages, page_cost, at, expected) in [
        // Alone, at its own pace.
        (vec![200], 1, 1, 200, WatchMove::PollAlone),
        (vec![200], 1, 1, 199, WatchMove::WaitUntil(Instant::now())),
        // Two, one page.
        (vec![200, 200], 1, 1, 200, WatchMove::List),
        // The second is due a moment later: both wait for it.
        (vec![200, 280], 1, 1, 200, WatchMove::WaitUntil(Instant::now())),
        (vec![200, 280], 1, 1, 280, WatchMove::List),
        // The second is due much later.
        (vec![200, 900], 1, 1, 200, WatchMove::PollAlone),
        // More pages than waiters.
        (vec![200, 200], 3, 1, 200, WatchMove::PollAlone),
        (vec![200, 200, 200], 3, 1, 200, WatchMove::List),
        // For more expensive pages, more writes must wait for a list.
        (vec![200; 10], 1, 7, 200, WatchMove::List),
        (vec![200; 6], 1, 7, 200, WatchMove::PollAlone),
        (vec![200; 10], 2, 7, 200, WatchMove::PollAlone),
        (vec![200; 10], 10, 7, 200, WatchMove::PollAlone),
        (vec![200; 70], 10, 7, 200, WatchMove::List),
        (vec![200; 10], 10, 1, 200, WatchMove::List),
    ] {
        let (mut schedule, start) = schedule(&due);
        (schedule.pages, schedule.page_cost, schedule.has_ended) = (pages, page_cost, true);
        let next = schedule.next(1, start + ms(at));
        let same = matches!((next, expected), (WatchMove::WaitUntil(_), WatchMove::WaitUntil(_))) || next == expected;
        assert!(same, "{due:?} due, {pages} pages of cost {page_cost}, after {at} ms: {next:?}");
    }
}

#[test]
fn lists_do_not_overlap() {
    let (mut schedule, start) = schedule(&[200, 200, 200]);
    assert_eq!(schedule.next(2, start + ms(200)), WatchMove::List);
    assert_eq!(schedule.next(1, start + ms(201)), WatchMove::WaitForList);
    schedule.listed(Some(1), start + ms(250));
    assert_eq!(schedule.next(1, start + ms(250)), WatchMove::WaitUntil(start + ms(250 + 300)), "not at once again");
    assert_eq!(schedule.next(1, start + ms(550)), WatchMove::List);
}

#[test]
fn after_a_failed_list_every_write_polls_alone_for_a_while() {
    let (mut schedule, start) = schedule(&[200, 200, 10_000]);
    assert_eq!(schedule.next(1, start + ms(200)), WatchMove::List);
    schedule.listed(None, start + ms(300));
    assert_eq!([1, 2].map(|waiter| schedule.next(waiter, start + ms(300))), [WatchMove::PollAlone; 2]);
    assert_eq!(
        schedule.next(3, start + ms(300)),
        WatchMove::WaitUntil(start + ms(10_000)),
        "its own `Retry-After` is respected"
    );
    for waiter in [1, 2] {
        schedule.wait(waiter, start + AFTER_FAILURE + ms(400), start + ms(500));
    }
    assert_eq!(schedule.next(1, start + AFTER_FAILURE + ms(400)), WatchMove::List, "lists are retried later");
}

#[test]
fn a_write_with_a_longer_delay_delays_no_other() {
    let (mut schedule, start) = schedule(&[200, 200, 10_000]);
    assert_eq!(schedule.next(3, start + ms(200)), WatchMove::WaitUntil(start + ms(10_000)));
    assert_eq!(schedule.next(1, start + ms(200)), WatchMove::List);
    assert!(schedule.is_waiting(3), "but it receives the result of the list");
}

#[test]
fn a_waiter_that_leaves_is_removed() {
    let (mut schedule, start) = schedule(&[200, 200]);
    schedule.leave(2);
    assert_eq!(schedule.next(1, start + ms(200)), WatchMove::PollAlone);
    schedule.leave(1);
    assert!(schedule.is_idle(start + ms(200)));
    assert_eq!(schedule.next(1, start + ms(200)), WatchMove::PollAlone, "an unknown waiter does not wait");
}

#[test]
fn scarce_lists_come_less_often() {
    let (heavy, waited) = trickle(10, 1, 40_000, 1, 7);
    let (light, _) = trickle(10, 1, 40_000, 1, 1);
    assert!(heavy <= 15 && light >= 35, "{heavy} instead of {light}");
    assert!(waited <= ms(8_000), "{waited:?}");
}

#[test]
fn after_a_wasted_long_list_the_oldest_polls_as_sentinel() {
    let (mut schedule, start) = schedule(&[200; 9]);
    assert_eq!(schedule.next(3, start + ms(200)), WatchMove::List);
    schedule.listed(Some(3), start + ms(200));
    (1..=9).for_each(|waiter| schedule.acknowledge(waiter));
    (1..=9).for_each(|waiter| schedule.wait(waiter, start + ms(500), start + ms(200)));
    let latest = WatchMove::WaitUntil(start + ms(200 + 5_000));
    assert_eq!([1, 2].map(|waiter| schedule.next(waiter, start + ms(500))), [WatchMove::PollAlone, latest]);
    schedule.acknowledge(1);
    assert_eq!(schedule.next(2, start + ms(600)), latest, "one sentinel is enough");
    schedule.wait(1, start + ms(950), start + ms(510));
    assert_eq!(schedule.next(1, start + ms(950)), WatchMove::PollAlone, "the same sentinel");
    assert!(schedule.ended(1, start + ms(960)), "the first end");
    schedule.leave(1);
    let enough = start + ms(960) + MARGIN;
    assert_eq!(schedule.next(2, start + ms(960)), WatchMove::WaitUntil(enough));
    assert_eq!(schedule.next(2, enough), WatchMove::List);
}

#[test]
fn a_sentinel_that_leaves_is_replaced_until_the_list() {
    let (mut schedule, start) = schedule(&[200; 9]);
    (schedule.pages, schedule.last_round) = (3, Some(start));
    assert_eq!(schedule.next(1, start + ms(200)), WatchMove::PollAlone);
    schedule.leave(1);
    assert_eq!(schedule.next(2, start + ms(300)), WatchMove::PollAlone);
    assert_eq!(schedule.next(3, start + ms(5_000)), WatchMove::List);
}

#[test]
fn without_pending_writes_the_list_follows_the_last_end() {
    for (is_pending, expected) in [(true, 5_000), (false, 3_000 + 2_000 + 50)] {
        let (mut schedule, start) = schedule(&[200; 9]);
        schedule.announce(is_pending);
        (schedule.pages, schedule.has_ended) = (3, true);
        (schedule.length, schedule.last_round, schedule.interval) = (Some(ms(2_000)), Some(start), ms(8_000));
        schedule.wait(10, start + ms(3_200), start + ms(3_000));
        assert_eq!(schedule.next(10, start + ms(3_300)), WatchMove::WaitUntil(start + ms(expected)), "{is_pending}");
    }
}

/// Plays writes every `gap` with operations of `operation` milliseconds. Returns the number of requests and the longest wait.
fn trickle(count: u64, gap: u64, operation: u64, pages: usize, page_cost: usize) -> (usize, Duration) {
    let start = Instant::now();
    let (mut schedule, mut requests, mut longest) = (WatchSchedule::new(PACE, page_cost), 0, Duration::ZERO);
    let mut running = BTreeMap::new();
    for now in 0..count * gap + 60_000 {
        if now >= count * gap && running.is_empty() {
            break;
        }
        let time = start + ms(now);
        if now % gap == 0 && now / gap < count {
            schedule.wait(now / gap, time + PACE.first, time);
            running.insert(now / gap, now);
        }
        for waiter in running.keys().copied().collect::<Vec<_>>() {
            if !running.contains_key(&waiter) {
                continue;
            }
            let has_ended = |begun: &u64| begun + operation <= now;
            let settled: Vec<u64> = match schedule.next(waiter, time) {
                WatchMove::PollAlone => {
                    requests += 1;
                    running.get(&waiter).filter(|begun| has_ended(begun)).map(|_| waiter).into_iter().collect()
                }
                WatchMove::List => {
                    requests += pages;
                    schedule.listed(Some(pages), time);
                    running.iter().filter(|(_, begun)| has_ended(begun)).map(|(waiter, _)| *waiter).collect()
                }
                WatchMove::WaitUntil(_) | WatchMove::WaitForList => continue,
            };
            for ended in settled {
                schedule.ended(ended, time);
                schedule.leave(ended);
                if let Some(begun) = running.remove(&ended) {
                    longest = longest.max(ms(now - begun - operation.min(now - begun)));
                }
            }
            if running.contains_key(&waiter) {
                schedule.wait(waiter, time + PACE.first, time);
            }
        }
    }
    assert!(running.is_empty(), "{} wait forever", running.len());
    (requests, longest)
}

#[test]
fn requests_stay_few_and_waits_short() {
    for (count, gap, operation, pages, max_requests, max_wait) in [
        // All at about the same time.
        (200, 1, 200, 2, 12, ms(1_000)),
        // As fast as half of a quota.
        (100, 200, 200, 2, 40, ms(3_300)),
        (200, 200, 2_000, 5, 70, ms(8_300)),
        // One at a time: each polls its own operation.
        (20, 5_000, 200, 5, 20, ms(1)),
    ] {
        let (requests, waited) = trickle(count, gap, operation, pages, 1);
        let case = format!("{count} every {gap} ms, {operation} ms each, {pages} pages: {requests} requests, {waited:?}");
        assert!(requests <= max_requests && waited <= max_wait, "{case}");
    }
}

proptest::proptest! {
    /// Checks that every wait is limited, and that no write waits for a list that is not in progress.
    #[test]
    fn no_write_waits_forever(events in proptest::collection::vec((0_u8..5, 1_u64..6, 0_u64..3_000), 1..60)) {
        let (start, mut now) = (Instant::now(), 0);
        let (mut schedule, mut listing) = (WatchSchedule::new(PACE, 1), false);
        for (event, waiter, time) in events {
            now += time / 10;
            let at = start + ms(now);
            match event {
                0 => schedule.wait(waiter, at + ms(time), at),
                1 => schedule.leave(waiter),
                2 if listing => {
                    schedule.listed((time % 3 > 0).then_some(usize::try_from(time % 7).unwrap()), at);
                    listing = false;
                }
                _ => match schedule.next(waiter, at) {
                    WatchMove::WaitUntil(until) => {
                        proptest::prop_assert!(until > at);
                        proptest::prop_assert!(until <= at + ms(3_000) + MAX_INTERVAL);
                    }
                    WatchMove::WaitForList => proptest::prop_assert!(listing),
                    WatchMove::List => {
                        proptest::prop_assert!(!listing);
                        listing = true;
                    }
                    WatchMove::PollAlone => schedule.leave(waiter),
                },
            }
        }
    }
}
