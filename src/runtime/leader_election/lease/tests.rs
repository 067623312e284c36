use std::{cmp::Reverse, collections::BinaryHeap};

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn candidate(identity: &str) -> ElectorConfig {
    ElectorConfig {
        namespace: "kube-system".into(),
        name: "ccm".into(),
        identity: identity.into(),
        lease_duration: 15 * SECOND,
        renew_deadline: 10 * SECOND,
        retry_period: 2 * SECOND,
    }
}

fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn held_by(holder: &str, seconds: Option<i32>) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(holder.into()),
        lease_duration_seconds: seconds,
        lease_transitions: Some(3),
        acquire_time: Some(MicroTime(wall(0))),
        renew_time: Some(MicroTime(wall(0))),
        ..LeaseSpec::default()
    };
    let metadata = ObjectMeta { resource_version: Some("7".into()), ..ObjectMeta::default() };
    Lease { metadata, spec: Some(spec) }
}

fn spec(lease: &Lease) -> &LeaseSpec {
    lease.spec.as_ref().unwrap()
}

#[test]
fn decisions_depend_on_holder_and_age() {
    let since = Instant::now();
    let decided = |holder: &str, seconds: Option<i32>, age: f64| {
        let observed = ObservedLease { lease: held_by(holder, seconds), unchanged_since: since };
        match decide(Some(&observed), since + Duration::from_secs_f64(age), wall(99), &candidate("a")) {
            LeaseAction::Create(_) => "create".to_owned(),
            LeaseAction::TakeOver(_) => "take over".to_owned(),
            LeaseAction::Renew(_) => "renew".to_owned(),
            LeaseAction::Wait(rest) => format!("wait {rest:?}"),
        }
    };
    for (holder, seconds, age, expected) in [
        ("a", Some(15), 0.0, "renew"),
        ("a", Some(15), 100.0, "renew"),
        ("", Some(15), 0.0, "take over"),
        ("", None, 0.0, "take over"),
        ("b", Some(15), 0.0, "wait 15s"),
        ("b", Some(15), 14.0, "wait 1s"),
        ("b", Some(15), 15.0, "take over"),
        // The recorded duration determines the expiry, not that of the candidate.
        ("b", Some(60), 15.0, "wait 45s"),
        ("b", Some(1), 1.0, "take over"),
        // Without a valid recorded duration, that of the candidate is used.
        ("b", None, 14.0, "wait 1s"),
        ("b", Some(-1), 14.0, "wait 1s"),
    ] {
        assert_eq!(decided(holder, seconds, age), expected, "{holder:?} {seconds:?} after {age} s");
    }
}

#[test]
fn a_created_lease_is_complete() {
    let LeaseAction::Create(lease) = decide(None, Instant::now(), wall(5), &candidate("a")) else { panic!("not created") };
    assert_eq!(lease.metadata.name.as_deref(), Some("ccm"));
    assert_eq!(lease.metadata.namespace.as_deref(), Some("kube-system"));
    let expected = LeaseSpec {
        holder_identity: Some("a".into()),
        lease_duration_seconds: Some(15),
        lease_transitions: Some(0),
        acquire_time: Some(MicroTime(wall(5))),
        renew_time: Some(MicroTime(wall(5))),
        ..LeaseSpec::default()
    };
    assert_eq!(*spec(&lease), expected);
}

#[test]
fn taking_over_counts_a_transition_and_renewing_does_not() {
    let since = Instant::now();
    let theirs = ObservedLease { lease: held_by("b", Some(1)), unchanged_since: since };
    let LeaseAction::TakeOver(new_lease) = decide(Some(&theirs), since + SECOND, wall(5), &candidate("a")) else { panic!() };
    assert_eq!(spec(&new_lease).lease_transitions, Some(4));
    assert_eq!(spec(&new_lease).acquire_time, Some(MicroTime(wall(5))));
    assert_eq!(new_lease.metadata.resource_version.as_deref(), Some("7"), "the write must be conditional");

    let ours = ObservedLease { lease: new_lease, unchanged_since: since };
    let LeaseAction::Renew(renewed) = decide(Some(&ours), since + SECOND, wall(6), &candidate("a")) else { panic!() };
    assert_eq!(spec(&renewed).lease_transitions, Some(4));
    assert_eq!(spec(&renewed).acquire_time, Some(MicroTime(wall(5))));
    assert_eq!(spec(&renewed).renew_time, Some(MicroTime(wall(6))));
    assert_eq!(spec(&renewed).lease_duration_seconds, Some(15));
}

#[test]
fn a_released_lease_is_free_for_any_candidate() {
    let since = Instant::now();
    let lease = released(&held_by("a", Some(15)), wall(9));
    assert_eq!(spec(&lease).holder_identity.as_deref(), Some(""));
    assert_eq!(spec(&lease).lease_duration_seconds, Some(1));
    assert_eq!(spec(&lease).lease_transitions, Some(3));
    let observed = ObservedLease { lease, unchanged_since: since };
    assert!(matches!(decide(Some(&observed), since, wall(9), &candidate("b")), LeaseAction::TakeOver(_)));
    assert_eq!(taken_by(Some(&observed), &candidate("a")), None);
}

#[test]
fn only_a_changed_spec_extends_the_lease() {
    let start = Instant::now();
    let first = ObservedLease::of(None, held_by("b", Some(15)), start);
    let mut relabeled = held_by("b", Some(15));
    relabeled.metadata.resource_version = Some("8".into());
    let second = ObservedLease::of(Some(&first), relabeled, start + SECOND);
    assert_eq!(second.unchanged_since, start);
    assert_eq!(second.lease.metadata.resource_version.as_deref(), Some("8"));
    let third = ObservedLease::of(Some(&second), held_by("b", Some(16)), start + 2 * SECOND);
    assert_eq!(third.unchanged_since, start + 2 * SECOND);
}

#[test]
fn durations_are_recorded_in_seconds_rounded_up() {
    for (duration, seconds) in [(15.0, 15), (15.2, 16), (0.2, 1), (0.0, 1)] {
        assert_eq!(whole_seconds(Duration::from_secs_f64(duration)), seconds);
    }
}

#[test]
fn waiting_is_jittered_and_ends_with_the_lease() {
    let period = 2 * SECOND;
    assert_eq!(next_poll_delay(period, None, 0.0), period);
    assert_eq!(next_poll_delay(period, None, 1.0), Duration::from_millis(4400));
    assert_eq!(next_poll_delay(period, Some(SECOND), 0.5), SECOND);
    assert_eq!(next_poll_delay(period, Some(60 * SECOND), 0.0), period);
}

// Two candidates with one in-memory Lease. Every delay is arbitrary: requests overtake each other, responses get lost,
// writes take effect long after their timeout, clocks start at any time, and their rates differ by up to a fifth.

const RENEW_DEADLINE: f64 = 10.0;
const RETRY: f64 = 2.0;

/// Pending event of one candidate. Times are real (simulated) milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Read(usize),
    ReadResponse(usize, u64),
    WriteArrives(usize, u64),
    WriteResponse(usize, u64),
    Retry(usize, u64),
}

struct Candidate {
    config: ElectorConfig,
    origin: Instant,
    /// Rate of its clock, relative to real time.
    rate: f64,
    observed: Option<ObservedLease>,
    /// Number of the current attempt. The candidate, but not the server, ignores requests and responses of older attempts.
    attempt: u64,
    started: u64,
    response: Option<Option<Lease>>,
}

impl Candidate {
    fn clock(&self, real: u64) -> Instant {
        self.origin + Duration::from_millis(real).mul_f64(self.rate)
    }
    fn real(&self, local: f64) -> u64 {
        u64::try_from(Duration::from_secs_f64(local / self.rate).as_millis()).unwrap()
    }
}

struct Simulation {
    candidates: [Candidate; 2],
    lease: Option<Lease>,
    version: u64,
    steps: BinaryHeap<Reverse<(u64, Step)>>,
    in_flight: Vec<(u64, usize, Lease)>,
    delays: Vec<u16>,
    drawn: usize,
    /// Intervals in which a candidate may write: index, start, end.
    windows: Vec<(usize, u64, u64)>,
}

impl Simulation {
    fn delay(&mut self) -> u64 {
        self.drawn += 1;
        u64::from(self.delays[self.drawn % self.delays.len()])
    }

    fn at(&mut self, when: u64, step: Step) {
        self.steps.push(Reverse((when, step)));
    }

    fn retry(&mut self, index: usize, now: u64) {
        self.candidates[index].attempt += 1;
        // A long delay simulates a suspended process.
        let stall = Some(self.delay()).filter(|stall| *stall > 6_000).unwrap_or(0);
        let pause = self.candidates[index].real(RETRY) + stall;
        self.at(now + pause, Step::Read(index));
    }

    fn take(&mut self, now: u64, step: Step) {
        match step {
            Step::Read(index) => {
                let attempt = self.candidates[index].attempt;
                let (there, back) = (self.delay(), self.delay());
                self.candidates[index].response = Some(self.lease.clone());
                self.at(now + there + back, Step::ReadResponse(index, attempt));
                self.give_up(index, now, attempt);
            }
            Step::ReadResponse(index, attempt) if self.candidates[index].attempt == attempt => self.act(index, now),
            Step::WriteArrives(index, id) => self.write_arrives(index, now, id),
            Step::WriteResponse(index, attempt) if self.candidates[index].attempt == attempt => {
                let until = self.candidates[index].started + self.candidates[index].real(RENEW_DEADLINE);
                self.windows.push((index, now, until));
                self.retry(index, now);
            }
            Step::Retry(index, attempt) if self.candidates[index].attempt == attempt => self.retry(index, now),
            _ => {}
        }
    }

    fn give_up(&mut self, index: usize, now: u64, attempt: u64) {
        let timeout = self.candidates[index].real(RENEW_DEADLINE / 2.0);
        self.at(now + timeout, Step::Retry(index, attempt));
    }

    fn act(&mut self, index: usize, now: u64) {
        let candidate = &mut self.candidates[index];
        let Some(response) = candidate.response.take() else { return };
        let local = candidate.clock(now);
        candidate.observed = response.map(|lease| ObservedLease::of(candidate.observed.as_ref(), lease, local));
        let renew_time = wall(i64::try_from(self.drawn).unwrap());
        match decide(candidate.observed.as_ref(), local, renew_time, &candidate.config) {
            LeaseAction::Wait(_) => self.retry(index, now),
            LeaseAction::Create(lease) | LeaseAction::TakeOver(lease) | LeaseAction::Renew(lease) => {
                candidate.started = now;
                candidate.attempt += 1;
                let attempt = candidate.attempt;
                let id = self.drawn as u64;
                let there = self.delay();
                self.in_flight.push((id, index, lease));
                self.at(now + there, Step::WriteArrives(index, id));
                self.give_up(index, now, attempt);
            }
        }
    }

    /// Handles a write on the server: a create requires that there is no object, a replace requires its version.
    fn write_arrives(&mut self, index: usize, now: u64, id: u64) {
        let Some(position) = self.in_flight.iter().position(|write| write.0 == id) else { return };
        let (_, _, mut lease) = self.in_flight.remove(position);
        let current = self.lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
        if lease.metadata.resource_version == current {
            self.version += 1;
            lease.metadata.resource_version = Some(self.version.to_string());
            self.lease = Some(lease);
            let back = self.delay();
            let attempt = self.candidates[index].attempt;
            self.at(now + back, Step::WriteResponse(index, attempt));
        }
    }
}

fn play(delays: Vec<u16>, rates: [f64; 2], starts: [u64; 2]) -> Vec<(usize, u64, u64)> {
    let new_candidate = |index: usize| Candidate {
        config: candidate(["a", "b"][index]),
        origin: Instant::now() + Duration::from_secs(1000 * index as u64),
        rate: rates[index],
        observed: None,
        attempt: 0,
        started: 0,
        response: None,
    };
    let (steps, in_flight, windows) = (BinaryHeap::new(), Vec::new(), Vec::new());
    let candidates = [new_candidate(0), new_candidate(1)];
    let mut simulation = Simulation { candidates, lease: None, version: 0, steps, in_flight, delays, drawn: 0, windows };
    simulation.at(starts[0], Step::Read(0));
    simulation.at(starts[1], Step::Read(1));
    for _ in 0..600 {
        let Some(Reverse((now, step))) = simulation.steps.pop() else { break };
        simulation.take(now, step);
    }
    simulation.windows
}

proptest! {
    #[test]
    fn two_candidates_never_lead_at_once(
        // Most delays are short, some exceed every deadline.
        delays in prop::collection::vec(prop_oneof![4 => 0u16..300, 2 => 0u16..6_000, 1 => 0u16..60_000], 40..400),
        rates in [0.9f64..1.1, 0.9f64..1.1],
        starts in [0u64..20_000, 0u64..20_000],
    ) {
        let windows = play(delays, rates, starts);
        for (index, from, until) in &windows {
            for (other, other_from, other_until) in &windows {
                let overlap = index != other && from.max(other_from) < until.min(other_until);
                prop_assert!(!overlap, "{index}: {from}..{until} overlaps {other}: {other_from}..{other_until}");
            }
        }
    }
}

#[test]
fn the_simulation_elects_both_candidates() {
    // One in ten delays is very long, at irregular distances.
    let delay = |i: u32| if (i * i * 31 + i * 7) % 101 < 10 { 55_000 } else { (i * 37) % 200 };
    let windows = play((0..397).map(|i| u16::try_from(delay(i)).unwrap()).collect(), [1.0, 1.0], [0, 50]);
    assert!(windows.iter().any(|window| window.0 == 0), "{windows:?}");
    assert!(windows.iter().any(|window| window.0 == 1), "{windows:?}");
}

#[test]
fn an_older_version_of_the_lease_is_detected() {
    let versions = |versions: &[&str]| {
        let mut newest = NewestLease::default();
        for version in versions {
            let resource_version = Some((*version).to_owned()).filter(|version| !version.is_empty());
            newest.note(&Lease { metadata: ObjectMeta { resource_version, ..ObjectMeta::default() }, spec: None });
        }
        newest.went_back()
    };
    assert!(!versions(&["7", "7", "9", "opaque", "", "10"]));
    assert!(versions(&["9", "10", "8", "11"]), "the detection is permanent");
}
