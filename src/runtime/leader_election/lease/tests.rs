use std::{cmp::Reverse, collections::BinaryHeap};

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn me(identity: &str) -> ElectorConfig {
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
fn decisions() {
    let since = Instant::now();
    let decided = |holder: &str, seconds: Option<i32>, age: f64| {
        let seen = ObservedLease { lease: held_by(holder, seconds), unchanged_since: since };
        match decide(Some(&seen), since + Duration::from_secs_f64(age), wall(99), &me("a")) {
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
        // The recorded duration counts, not our own.
        ("b", Some(60), 15.0, "wait 45s"),
        ("b", Some(1), 1.0, "take over"),
        // Without a usable one, our own.
        ("b", None, 14.0, "wait 1s"),
        ("b", Some(-1), 14.0, "wait 1s"),
    ] {
        assert_eq!(decided(holder, seconds, age), expected, "{holder:?} {seconds:?} after {age} s");
    }
}

#[test]
fn a_created_lease_is_complete() {
    let LeaseAction::Create(lease) = decide(None, Instant::now(), wall(5), &me("a")) else { panic!("not created") };
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
    let LeaseAction::TakeOver(taken) = decide(Some(&theirs), since + SECOND, wall(5), &me("a")) else { panic!() };
    assert_eq!(spec(&taken).lease_transitions, Some(4));
    assert_eq!(spec(&taken).acquire_time, Some(MicroTime(wall(5))));
    assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"), "the write must be conditional");

    let ours = ObservedLease { lease: taken, unchanged_since: since };
    let LeaseAction::Renew(renewed) = decide(Some(&ours), since + SECOND, wall(6), &me("a")) else { panic!() };
    assert_eq!(spec(&renewed).lease_transitions, Some(4));
    assert_eq!(spec(&renewed).acquire_time, Some(MicroTime(wall(5))));
    assert_eq!(spec(&renewed).renew_time, Some(MicroTime(wall(6))));
    assert_eq!(spec(&renewed).lease_duration_seconds, Some(15));
}

#[test]
fn a_released_lease_is_free_for_anybody() {
    let since = Instant::now();
    let lease = released(&held_by("a", Some(15)), wall(9));
    assert_eq!(spec(&lease).holder_identity.as_deref(), Some(""));
    assert_eq!(spec(&lease).lease_duration_seconds, Some(1));
    assert_eq!(spec(&lease).lease_transitions, Some(3));
    let seen = ObservedLease { lease, unchanged_since: since };
    assert!(matches!(decide(Some(&seen), since, wall(9), &me("b")), LeaseAction::TakeOver(_)));
    assert_eq!(taken_by(Some(&seen), &me("a")), None);
}

#[test]
fn only_a_changed_spec_counts_as_a_sign_of_life() {
    let start = Instant::now();
    let first = ObservedLease::of(None, held_by("b", Some(15)), start);
    let mut relabelled = held_by("b", Some(15));
    relabelled.metadata.resource_version = Some("8".into());
    let second = ObservedLease::of(Some(&first), relabelled, start + SECOND);
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

// Two candidates over one in-memory Lease. Every delay is arbitrary: requests overtake each other, answers get lost, writes
// take effect long after their sender gave up, clocks start anywhere and run up to a fifth apart.

const RENEW_DEADLINE: f64 = 10.0;
const RETRY: f64 = 2.0;

/// What is under way for one candidate, in real (simulated) milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Look(usize),
    LookAnswered(usize, u64),
    WriteArrives(usize, u64),
    WriteAnswered(usize, u64),
    Retry(usize, u64),
}

struct Player {
    me: ElectorConfig,
    origin: Instant,
    /// How fast its clock runs.
    rate: f64,
    seen: Option<ObservedLease>,
    /// Requests and answers of older attempts are ignored by the candidate, not by the server.
    attempt: u64,
    started: u64,
    answer: Option<Option<Lease>>,
}

impl Player {
    fn clock(&self, real: u64) -> Instant {
        self.origin + Duration::from_millis(real).mul_f64(self.rate)
    }
    fn real(&self, local: f64) -> u64 {
        u64::try_from(Duration::from_secs_f64(local / self.rate).as_millis()).unwrap()
    }
}

struct World {
    players: [Player; 2],
    lease: Option<Lease>,
    version: u64,
    steps: BinaryHeap<Reverse<(u64, Step)>>,
    in_flight: Vec<(u64, usize, Lease)>,
    delays: Vec<u16>,
    drawn: usize,
    /// Windows in which somebody may write: player, from, until.
    windows: Vec<(usize, u64, u64)>,
}

impl World {
    fn delay(&mut self) -> u64 {
        self.drawn += 1;
        u64::from(self.delays[self.drawn % self.delays.len()])
    }

    fn at(&mut self, when: u64, step: Step) {
        self.steps.push(Reverse((when, step)));
    }

    fn retry(&mut self, player: usize, now: u64) {
        self.players[player].attempt += 1;
        // A long one stands for a process that did not run for a while.
        let stall = Some(self.delay()).filter(|stall| *stall > 6_000).unwrap_or(0);
        let pause = self.players[player].real(RETRY) + stall;
        self.at(now + pause, Step::Look(player));
    }

    fn take(&mut self, now: u64, step: Step) {
        match step {
            Step::Look(player) => {
                let attempt = self.players[player].attempt;
                let (there, back) = (self.delay(), self.delay());
                self.players[player].answer = Some(self.lease.clone());
                self.at(now + there + back, Step::LookAnswered(player, attempt));
                self.give_up(player, now, attempt);
            }
            Step::LookAnswered(player, attempt) if self.players[player].attempt == attempt => self.act(player, now),
            Step::WriteArrives(player, id) => self.write_arrives(player, now, id),
            Step::WriteAnswered(player, attempt) if self.players[player].attempt == attempt => {
                let until = self.players[player].started + self.players[player].real(RENEW_DEADLINE);
                self.windows.push((player, now, until));
                self.retry(player, now);
            }
            Step::Retry(player, attempt) if self.players[player].attempt == attempt => self.retry(player, now),
            _ => {}
        }
    }

    fn give_up(&mut self, player: usize, now: u64, attempt: u64) {
        let timeout = self.players[player].real(RENEW_DEADLINE / 2.0);
        self.at(now + timeout, Step::Retry(player, attempt));
    }

    fn act(&mut self, player: usize, now: u64) {
        let candidate = &mut self.players[player];
        let Some(answer) = candidate.answer.take() else { return };
        let local = candidate.clock(now);
        candidate.seen = answer.map(|lease| ObservedLease::of(candidate.seen.as_ref(), lease, local));
        let renew_time = wall(i64::try_from(self.drawn).unwrap());
        match decide(candidate.seen.as_ref(), local, renew_time, &candidate.me) {
            LeaseAction::Wait(_) => self.retry(player, now),
            LeaseAction::Create(lease) | LeaseAction::TakeOver(lease) | LeaseAction::Renew(lease) => {
                candidate.started = now;
                candidate.attempt += 1;
                let attempt = candidate.attempt;
                let id = self.drawn as u64;
                let there = self.delay();
                self.in_flight.push((id, player, lease));
                self.at(now + there, Step::WriteArrives(player, id));
                self.give_up(player, now, attempt);
            }
        }
    }

    /// The server's half: a create wants no object, a replace wants the version it carries.
    fn write_arrives(&mut self, player: usize, now: u64, id: u64) {
        let Some(index) = self.in_flight.iter().position(|write| write.0 == id) else { return };
        let (_, _, mut lease) = self.in_flight.remove(index);
        let current = self.lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
        if lease.metadata.resource_version == current {
            self.version += 1;
            lease.metadata.resource_version = Some(self.version.to_string());
            self.lease = Some(lease);
            let back = self.delay();
            let attempt = self.players[player].attempt;
            self.at(now + back, Step::WriteAnswered(player, attempt));
        }
    }
}

fn play(delays: Vec<u16>, rates: [f64; 2], starts: [u64; 2]) -> Vec<(usize, u64, u64)> {
    let player = |index: usize| Player {
        me: me(["a", "b"][index]),
        origin: Instant::now() + Duration::from_secs(1000 * index as u64),
        rate: rates[index],
        seen: None,
        attempt: 0,
        started: 0,
        answer: None,
    };
    let (steps, in_flight, windows) = (BinaryHeap::new(), Vec::new(), Vec::new());
    let players = [player(0), player(1)];
    let mut world = World { players, lease: None, version: 0, steps, in_flight, delays, drawn: 0, windows };
    world.at(starts[0], Step::Look(0));
    world.at(starts[1], Step::Look(1));
    for _ in 0..600 {
        let Some(Reverse((now, step))) = world.steps.pop() else { break };
        world.take(now, step);
    }
    world.windows
}

proptest! {
    #[test]
    fn two_candidates_never_lead_at_once(
        // Mostly quick, sometimes slower than every deadline.
        delays in prop::collection::vec(prop_oneof![4 => 0u16..300, 2 => 0u16..6_000, 1 => 0u16..60_000], 40..400),
        rates in [0.9f64..1.1, 0.9f64..1.1],
        starts in [0u64..20_000, 0u64..20_000],
    ) {
        let windows = play(delays, rates, starts);
        for (player, from, until) in &windows {
            for (other, other_from, other_until) in &windows {
                let overlap = player != other && from.max(other_from) < until.min(other_until);
                prop_assert!(!overlap, "{player}: {from}..{until} overlaps {other}: {other_from}..{other_until}");
            }
        }
    }
}

#[test]
fn the_simulation_does_elect_and_does_hand_over() {
    // One in ten is very long, at no regular distance.
    let delay = |i: u32| if (i * i * 31 + i * 7) % 101 < 10 { 55_000 } else { (i * 37) % 200 };
    let windows = play((0..397).map(|i| u16::try_from(delay(i)).unwrap()).collect(), [1.0, 1.0], [0, 50]);
    assert!(windows.iter().any(|window| window.0 == 0), "{windows:?}");
    assert!(windows.iter().any(|window| window.0 == 1), "{windows:?}");
}

#[test]
fn an_older_lease_is_noticed() {
    let versions = |versions: &[&str]| {
        let mut newest = NewestLease::default();
        for version in versions {
            let resource_version = Some((*version).to_owned()).filter(|version| !version.is_empty());
            newest.note(&Lease { metadata: ObjectMeta { resource_version, ..ObjectMeta::default() }, spec: None });
        }
        newest.went_back()
    };
    assert!(!versions(&["7", "7", "9", "opaque", "", "10"]));
    assert!(versions(&["9", "10", "8", "11"]), "it is not forgotten");
}
