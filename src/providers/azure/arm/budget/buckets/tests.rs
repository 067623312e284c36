use proptest::prelude::*;

use super::{super::window::WindowLimit, *};

/// Returns the charge of one token to a bucket.
pub(in super::super) fn charge(name: &'static str, capacity: f64, per_second: f64) -> BucketCharge {
    let id = BucketId { level: QuotaLevel::Provider, name: name.into(), subscription: "s".to_owned(), resource: None };
    BucketCharge { id, limit: BucketLimit { capacity, per_second, window: None } }
}

fn remaining(buckets: &QuotaBuckets, charge: &BucketCharge, now: Instant) -> f64 {
    buckets.in_use.get(&charge.id).map_or(charge.limit.capacity, |bucket| bucket.remaining(now))
}

/// Takes the tokens of a request, or returns when it may be sent.
fn take(buckets: &mut QuotaBuckets, charges: &[BucketCharge], now: Instant) -> Result<(), SendTime> {
    let ready = buckets.send_time(charges, |_| 0.0, now);
    if ready.at > now {
        return Err(ready);
    }
    buckets.take(charges, now);
    Ok(())
}

#[test]
fn a_burst_is_sent_at_once_and_the_rest_at_the_refill() {
    let (start, charges) = (Instant::now(), [charge("a", 2.0, 0.5), charge("b", 5.0, 1.0)]);
    let mut buckets = QuotaBuckets::default();
    assert_eq!(take(&mut buckets, &charges, start), Ok(()));
    assert_eq!(take(&mut buckets, &charges, start), Ok(()));
    let wait = SendTime { at: start + Duration::from_secs(2), limiting_bucket: 0 };
    assert_eq!(take(&mut buckets, &charges, start), Err(wait));
    assert_eq!(remaining(&buckets, &charges[1], start), 3.0, "all or nothing");
    assert_eq!(take(&mut buckets, &charges, wait.at), Ok(()));
    assert_eq!(take(&mut buckets, &charges[1..], wait.at), Ok(()), "the other bucket is not delayed");
}

#[test]
fn after_a_pause_one_is_sent_and_the_others_at_the_refill() {
    let (start, charges) = (Instant::now(), [charge("a", 100.0, 2.0)]);
    let mut buckets = QuotaBuckets::default();
    let until = start + Duration::from_secs(30);
    assert!(buckets.pause(&charges[0], until, start));
    assert!(!buckets.pause(&charges[0], start + Duration::from_secs(5), start), "paused already, and not shortened");
    assert_eq!(take(&mut buckets, &charges, start).unwrap_err().at, until);
    assert_eq!(take(&mut buckets, &charges, until), Ok(()));
    assert_eq!(take(&mut buckets, &charges, until).unwrap_err().at, until + Duration::from_millis(500));
    assert!(buckets.pause(&charges[0], until + Duration::from_secs(9), until), "it ran again before");
}

#[test]
fn a_correction_raises_tokens_except_during_a_pause() {
    let (start, charges) = (Instant::now(), [charge("a", 6.0, 0.1)]);
    let mut buckets = QuotaBuckets::default();
    (0..6).for_each(|_| take(&mut buckets, &charges, start).unwrap());
    buckets.set_remaining(&charges[0], 3.0, start);
    assert_eq!(remaining(&buckets, &charges[0], start), 3.0);
    buckets.set_remaining(&charges[0], 99.0, start);
    assert_eq!(remaining(&buckets, &charges[0], start), 6.0, "never above the brim");
    buckets.pause(&charges[0], start + Duration::from_secs(9), start);
    buckets.set_remaining(&charges[0], 3.0, start);
    assert_eq!(remaining(&buckets, &charges[0], start), 1.0);
}

#[test]
fn a_counted_quota_borrows_little_and_nothing_after_a_refusal() {
    let start = Instant::now();
    let mut counted = charge("a", 50.0, 50.0 / 300.0);
    counted.limit.window = Some(WindowLimit::all(100.0).share(0.5));
    let within = |buckets: &mut QuotaBuckets, from: u64| {
        let seconds = (from..from + 300).map(|second| start + Duration::from_secs(second));
        seconds
            .map(|now| (0..50).filter(|_| take(buckets, std::slice::from_ref(&counted), now).is_ok()).count())
            .sum::<usize>()
    };
    let mut buckets = QuotaBuckets::default();
    assert_eq!(within(&mut buckets, 0), 55, "the share and a twentieth of the whole");
    buckets.pause(&counted, start + Duration::from_secs(301), start + Duration::from_secs(300));
    assert_eq!(within(&mut buckets, 400), 50);
    assert_eq!(within(&mut buckets, 702), 50);
}

#[test]
fn only_full_buckets_of_single_resources_are_forgotten() {
    let start = Instant::now();
    let mut of_one = charge("a", 2.0, 1.0);
    of_one.id = BucketId { level: QuotaLevel::Resource, resource: Some("r".to_owned()), ..of_one.id };
    let charges = [of_one, charge("b", 2.0, 1.0)];
    let mut buckets = QuotaBuckets::default();
    take(&mut buckets, &charges, start).unwrap();
    assert!(!buckets.tidy(start));
    assert_eq!(buckets.iter().count(), 2);
    assert!(buckets.tidy(start + Duration::from_secs(1)));
    assert_eq!(buckets.iter().count(), 1);
    buckets.pause(&charges[0], start + Duration::from_secs(9), start + Duration::from_secs(1));
    assert!(!buckets.tidy(start + Duration::from_secs(2)), "a paused one is in use");
}

proptest! {
    #[test]
    fn no_window_sees_more_than_the_burst_and_the_refill(
        capacity in 1.0..20f64, per_second in 0.05..20f64, steps in proptest::collection::vec((0..3000u64, 0..6u8), 1..60),
    ) {
        let (start, charges) = (Instant::now(), [charge("a", capacity, per_second)]);
        let (mut buckets, mut now, mut sent) = (QuotaBuckets::default(), start, Vec::new());
        for (wait, requests) in steps {
            now += Duration::from_millis(wait);
            for _ in 0..requests {
                match take(&mut buckets, &charges, now) {
                    Ok(()) => sent.push(now),
                    Err(ready) => {
                        prop_assert!(ready.at > now);
                        prop_assert_eq!(take(&mut buckets.clone(), &charges, ready.at), Ok(()), "admitted at the returned time");
                    }
                }
            }
        }
        for (index, first) in sent.iter().enumerate() {
            for (count, last) in sent[index..].iter().enumerate() {
                let allowed = capacity + per_second * (*last - *first).as_secs_f64();
                prop_assert!((count + 1) as f64 <= allowed + 1e-3, "{} in {:?}, allowed {allowed}", count + 1, *last - *first);
            }
        }
    }

    #[test]
    fn corrections_and_pauses_never_raise_tokens(takes in 0..10u8, tokens in -5.0..30f64, pause in 1..100u64, wait in 0..20_000u64) {
        let (start, charges) = (Instant::now(), [charge("a", 10.0, 0.5)]);
        let mut uncorrected = QuotaBuckets::default();
        for _ in 0..takes {
            take(&mut uncorrected, &charges, start).unwrap();
        }
        let later = start + Duration::from_millis(wait);
        let (mut corrected, mut paused) = (uncorrected.clone(), uncorrected.clone());
        corrected.at_most(&charges[0], tokens, start);
        prop_assert!(remaining(&corrected, &charges[0], later) <= remaining(&uncorrected, &charges[0], later));
        paused.pause(&charges[0], start + Duration::from_secs(pause), start);
        let ready = |buckets: &QuotaBuckets| buckets.send_time(&charges, |_| 0.0, later).at;
        prop_assert!(ready(&paused) >= ready(&uncorrected));
        prop_assert!(ready(&paused) >= start + Duration::from_secs(pause));
    }

    #[test]
    fn giving_tokens_back_reverts_taking_them(takes in 0..10u8) {
        let (start, charges) = (Instant::now(), [charge("a", 10.0, 0.5), charge("b", 20.0, 0.5)]);
        let mut buckets = QuotaBuckets::default();
        for _ in 0..takes {
            take(&mut buckets, &charges, start).unwrap();
        }
        let before = buckets.clone();
        take(&mut buckets, &charges, start).unwrap();
        buckets.give_back(&charges, start, start);
        for charge in &charges {
            prop_assert_eq!(remaining(&buckets, charge, start), remaining(&before, charge, start));
        }
        buckets.give_back(&charges, start, start);
        buckets.give_back(&charges, start, start + Duration::from_secs(1000));
        prop_assert!(remaining(&buckets, &charges[0], start + Duration::from_secs(1000)) <= 10.0, "never above the brim");
    }
}
