use proptest::prelude::*;

use super::*;

const CONFIG: NodeLifecycleControllerConfig = NodeLifecycleControllerConfig {
    monitor_period: Duration::from_secs(5),
    concurrent_syncs: 100,
    grace_period: Duration::from_secs(15),
    max_count: 3,
    max_percent: 20,
    window: Duration::from_secs(300),
    delete_uninitialized_after: Duration::ZERO,
};

fn uids(count: usize) -> BTreeSet<String> {
    (0..count).map(|n| format!("uid-{n:03}")).collect()
}

fn input<'a>(
    nodes: &'a BTreeSet<String>,
    start: Instant,
    at: u64,
    config: &'a NodeLifecycleControllerConfig,
) -> TrackerInput<'a> {
    TrackerInput { nodes, now: start + Duration::from_secs(at), config }
}

/// A tracker with its clock and its Nodes.
struct Simulation {
    tracker: DeletionTracker,
    start: Instant,
    nodes: BTreeSet<String>,
}

impl Simulation {
    fn new(nodes: usize) -> Self {
        Self { tracker: DeletionTracker::default(), start: Instant::now(), nodes: uids(nodes) }
    }
    fn observe(&mut self, at: u64, node: usize, observation: &NodeObservation) -> LifecycleAction {
        self.tracker.observe(&format!("uid-{node:03}"), observation, input(&self.nodes, self.start, at, &CONFIG))
    }
    fn remove(&mut self, at: u64, node: usize) {
        self.nodes.remove(&format!("uid-{node:03}"));
        self.tracker.forget(input(&self.nodes, self.start, at, &CONFIG));
    }
}

fn throttled() -> NodeObservation {
    NodeObservation::Unknown("throttled".into())
}

fn agreed() -> NodeObservation {
    NodeObservation::GoneRechecked(SecondLook::Agrees)
}

#[test]
fn deletion_without_grace_needs_two_observations_a_period_apart() {
    let config = NodeLifecycleControllerConfig { grace_period: Duration::ZERO, ..CONFIG };
    let (mut state, nodes, start) = (DeletionTracker::default(), uids(10), Instant::now());
    let mut see = |at| state.observe("uid-000", &NodeObservation::Gone, input(&nodes, start, at, &config));
    assert_eq!([see(0), see(4), see(5)], [LifecycleAction::Report, LifecycleAction::Nothing, LifecycleAction::Delete]);
}

#[test]
fn a_running_instance_resets_the_countdown() {
    for sign in
        [NodeObservation::Ready, NodeObservation::Running, NodeObservation::ShutDown, NodeObservation::Exists("?".into())]
    {
        let mut simulation = Simulation::new(10);
        simulation.observe(0, 0, &NodeObservation::Gone);
        simulation.observe(10, 0, &sign);
        assert_eq!(simulation.observe(20, 0, &NodeObservation::Gone), LifecycleAction::Report, "{sign:?}");
    }
}

#[test]
fn unknown_neither_starts_nor_resets_the_countdown() {
    let mut simulation = Simulation::new(10);
    simulation.observe(0, 0, &NodeObservation::Gone);
    for at in 1..100 {
        assert_eq!(simulation.observe(at, 0, &throttled()), LifecycleAction::Nothing);
    }
    assert_eq!(simulation.observe(100, 0, &NodeObservation::Gone), LifecycleAction::Delete);
    assert_eq!(simulation.observe(0, 1, &throttled()), LifecycleAction::Nothing);
    assert_eq!(
        simulation.observe(100, 1, &NodeObservation::Gone),
        LifecycleAction::Report,
        "an unknown existence does not count"
    );
}

#[test]
fn observations_determine_the_shutdown_taint() {
    let mut simulation = Simulation::new(10);
    for (observation, expected) in [
        (NodeObservation::Ready, LifecycleAction::RemoveShutdownTaint),
        (NodeObservation::ShutDown, LifecycleAction::AddShutdownTaint),
        (NodeObservation::Running, LifecycleAction::Nothing),
        (NodeObservation::Restarted, LifecycleAction::RemoveShutdownTaint),
        (NodeObservation::Exists("error".into()), LifecycleAction::Nothing),
    ] {
        assert_eq!(simulation.observe(0, 0, &observation), expected);
    }
}

#[test]
fn mass_deletion_is_refused_until_instances_return() {
    let mut simulation = Simulation::new(10);
    (0..4).for_each(|node| assert_eq!(simulation.observe(0, node, &NodeObservation::Gone), LifecycleAction::Report));
    for (at, first) in [(15, true), (20, false)] {
        for node in 0..4 {
            let action = simulation.observe(at, node, &NodeObservation::Gone);
            assert!(
                matches!(action, LifecycleAction::Delay { first: f, missing_count: MissingNodeCount { missing: 4, all: 10, .. } } if f == first)
            );
        }
    }
    simulation.observe(25, 3, &NodeObservation::Running);
    let action = simulation.observe(30, 0, &NodeObservation::Gone);
    assert!(
        matches!(action, LifecycleAction::Refuse { missing_count: MissingNodeCount { missing: 4, .. }, .. }),
        "the cloud contradicts itself: {action:?}"
    );
    assert!(matches!(simulation.observe(144, 0, &NodeObservation::Gone), LifecycleAction::Refuse { first: false, .. }));
    assert!(matches!(
        simulation.observe(145, 0, &NodeObservation::Gone),
        LifecycleAction::Delay { first: false, missing_count: MissingNodeCount { missing: 3, .. } }
    ));
    assert_eq!(simulation.observe(145, 0, &agreed()), LifecycleAction::Delete, "three do not exceed the allowance");
}

#[test]
fn the_allowance_grows_with_the_cluster() {
    let of = |max_count, max_percent| NodeLifecycleControllerConfig { max_count, max_percent, ..CONFIG };
    for (config, all, expected) in [
        (of(10, 20), 1, 1),
        (of(10, 20), 2, 1),
        (of(10, 20), 3, 1),
        (of(10, 20), 4, 2),
        (of(10, 20), 10, 5),
        (of(10, 20), 19, 9),
        // From here on, the flags determine the allowance.
        (of(10, 20), 20, 10),
        (of(10, 20), 50, 10),
        (of(10, 20), 100, 20),
        (of(10, 20), 5_000, 1_000),
        (of(1, 0), 10, 1),
        (of(0, 0), 10, 0),
        (of(0, 20), 4, 0),
        (of(0, 20), 10, 2),
        (of(10, 100), 10, 10),
        (of(10, 20), 0, 1),
    ] {
        assert_eq!(config.allowance(all), expected, "{config:?} {all}");
    }
}

#[test]
fn a_small_cluster_loses_a_node_but_never_all() {
    let config = NodeLifecycleControllerConfig::default();
    for (all, missing, expected) in
        [(3, 1, 1), (3, 2, 0), (3, 3, 0), (10, 5, 5), (10, 6, 0), (10, 10, 0), (2, 2, 0), (1, 1, 1)]
    {
        let (mut state, nodes, start) = (DeletionTracker::default(), uids(all), Instant::now());
        let mut deleted = 0;
        for at in [0, 20, 40] {
            for uid in nodes.iter().take(missing) {
                let action = state.observe(uid, &NodeObservation::Gone, input(&nodes, start, at, &config));
                deleted += usize::from(action == LifecycleAction::Delete);
            }
        }
        assert_eq!(deleted, expected, "{missing} of {all} are gone");
    }
}

/// Returns the seconds, among `times`, of deletions of the first `missing` Nodes. The last argument of `observe` is the need of a recheck.
fn deletions(
    config: &NodeLifecycleControllerConfig,
    (all, missing): (usize, usize),
    times: impl Iterator<Item = u64>,
    observe: impl Fn(usize, u64, bool) -> NodeObservation,
) -> Vec<u64> {
    let (mut state, mut nodes, start) = (DeletionTracker::default(), uids(all), Instant::now());
    let missing: Vec<String> = nodes.iter().take(missing).cloned().collect();
    let mut deleted = Vec::new();
    for at in times {
        for (index, uid) in missing.iter().enumerate() {
            if !nodes.contains(uid) {
                continue;
            }
            let seen = observe(index, at, state.needs_recheck(uid, input(&nodes, start, at, config)));
            if state.observe(uid, &seen, input(&nodes, start, at, config)) == LifecycleAction::Delete {
                deleted.push(at);
                nodes.remove(uid);
            }
        }
        state.forget(input(&nodes, start, at, config));
    }
    deleted
}

/// Returns the minutes at which Nodes are deleted of which `missing` have no instance for `minutes`.
fn deleted_at(all: usize, missing: usize, minutes: u64, contradicted: Option<u64>) -> Vec<u64> {
    let observe = |index: usize, at: u64, _: bool| match index == 0 && contradicted == Some(at / 60) {
        true => NodeObservation::Running,
        false => NodeObservation::Gone,
    };
    let times = (0..minutes).map(|minute| 60 * minute);
    let deleted = deletions(&NodeLifecycleControllerConfig::default(), (all, missing), times, observe);
    deleted.into_iter().map(|at| at / 60).collect()
}

#[test]
fn small_cluster_loses_its_nodes_one_window_after_the_other() {
    for (all, missing, expected) in [(3, 2, vec![30, 35]), (4, 3, vec![30, 32, 37]), (3, 3, vec![]), (2, 2, vec![])] {
        assert_eq!(deleted_at(all, missing, 60, None), expected, "{missing} of {all} are gone");
    }
    assert!(deleted_at(4, 3, 30, None).is_empty(), "not yet half an hour");
    let deleted = deleted_at(8, 6, 90, Some(20));
    assert_eq!((deleted.len(), deleted.first()), (6, Some(&51)), "an instance that returns resets the countdown of all");
}

#[test]
fn deletions_in_the_window_count_and_age() {
    let mut simulation = Simulation::new(10);
    for node in 0..3 {
        simulation.observe(0, node, &NodeObservation::Gone);
        assert_eq!(simulation.observe(20, node, &NodeObservation::Gone), LifecycleAction::Delete);
        simulation.remove(20, node);
    }
    simulation.observe(30, 3, &NodeObservation::Gone);
    assert!(matches!(
        simulation.observe(50, 3, &NodeObservation::Gone),
        LifecycleAction::Delay { missing_count: MissingNodeCount { missing: 4, all: 10, .. }, .. }
    ));
    assert!(matches!(simulation.observe(319, 3, &NodeObservation::Gone), LifecycleAction::Delay { .. }));
    assert_eq!(simulation.observe(320, 3, &agreed()), LifecycleAction::Delete);
}

/// Returns the seconds of deletions, observed each five seconds. `second` is the second source's verdict; `None` if the instance runs.
fn scale_in(all: usize, missing: usize, seconds: u64, second: impl Fn(usize, u64) -> Option<SecondLook>) -> Vec<u64> {
    let config =
        NodeLifecycleControllerConfig { grace_period: Duration::from_secs(30), ..NodeLifecycleControllerConfig::default() };
    let observe = |index: usize, at: u64, is_needed: bool| match second(index, at) {
        None => NodeObservation::Running,
        Some(second) if is_needed => NodeObservation::GoneRechecked(second),
        Some(_) => NodeObservation::Gone,
    };
    deletions(&config, (all, missing), (0..seconds).step_by(5), observe)
}

#[test]
fn ordinary_scale_in_needs_no_intervention() {
    for (all, missing) in [(100, 30), (5_000, 100), (1_000, 300), (10, 7), (3, 2)] {
        let deleted = scale_in(all, missing, 600, |_, _| Some(SecondLook::Agrees));
        assert_eq!(deleted.len(), missing, "{missing} of {all} in ten minutes: {deleted:?}");
        let allowance = NodeLifecycleControllerConfig::default().allowance(all);
        for at in &deleted {
            let within = deleted.iter().filter(|then| *then <= at && at - *then < 300).count();
            assert!(within <= allowance, "{missing} of {all}: {within} deletions within a window");
        }
    }
    assert!(scale_in(100, 30, 120, |_, _| Some(SecondLook::Agrees)).is_empty(), "not before two minutes");
    assert_eq!(scale_in(100, 30, 195, |_, _| Some(SecondLook::Agrees)).len(), 5, "a quarter of what a window allows");
    assert_eq!(scale_in(100, 90, 3_600, |_, _| Some(SecondLook::Agrees)).len(), 90, "whatever the share");
    assert!(scale_in(100, 100, 7_200, |_, _| Some(SecondLook::Agrees)).is_empty(), "but never all");
}

#[test]
fn doubtful_evidence_deletes_no_node() {
    let lists = || Some(SecondLook::Contradicts("ARM lists it".into()));
    assert!(scale_in(100, 30, 7_200, |_, _| lists()).is_empty(), "lists have what a 404 denies");
    assert!(scale_in(100, 30, 7_200, |index, _| if index == 7 { lists() } else { Some(SecondLook::Agrees) }).is_empty());
    let silent = |_, _| Some(SecondLook::Silent("HTTP 403".into()));
    assert!(scale_in(100, 30, 1_800, silent).is_empty());
    assert!(!scale_in(100, 30, 1_805, silent).is_empty(), "absence for half an hour is believed");
    for period in [30, 60, 110] {
        let flaps = |_, at| (at / period % 2 == 0).then_some(SecondLook::Agrees);
        assert!(scale_in(100, 30, 7_200, flaps).is_empty(), "seen again each {period} seconds");
    }
    // One instance returns each minute, so the reports about the others are not trusted.
    let unstable = |index, at| (index > 0 || at % 60 < 30).then_some(SecondLook::Agrees);
    assert!(scale_in(100, 30, 7_200, unstable).is_empty());
    let back = |_, at| (at < 180).then_some(SecondLook::Agrees);
    assert_eq!(scale_in(100, 30, 7_200, back).len(), 5, "deletions in three minutes if all sources are wrong");
}

#[test]
fn delayed_nodes_need_evidence_after_others_return() {
    let lists = || Some(SecondLook::Contradicts("ARM lists it".into()));
    let back = |index: usize, at| (index >= 12 || at < 180).then(lists).flatten();
    assert!(scale_in(100, 30, 7_200, back).is_empty(), "lists have the others as before");
    let silent = || Some(SecondLook::Silent("HTTP 403".into()));
    let back = |index: usize, at| (index >= 12 || at < 180).then(silent).flatten();
    assert!(scale_in(100, 30, 1_800, back).is_empty(), "the second source is inconclusive");
    let corrected = |index: usize, at| match at < 180 {
        true => lists(),
        false => (index >= 12).then_some(SecondLook::Agrees),
    };
    assert!(scale_in(100, 30, 300, corrected).is_empty(), "not within two minutes of a contradiction");
    assert_eq!(scale_in(100, 30, 1_200, corrected).len(), 18, "their instances are missing after all");
}

#[test]
fn contradictions_of_the_cloud_limit_deletions() {
    // At each moment the allowance is not exceeded, and each instance is missing for long enough.
    let waves = |index: usize, at: u64| (at / 40 % 5 == index as u64 / 20).then_some(SecondLook::Agrees);
    let deleted = scale_in(100, 100, 3_600, waves);
    assert!(deleted.len() <= 20, "{} deleted", deleted.len());
}

#[test]
fn unknown_existence_is_reported_every_hour() {
    let mut simulation = Simulation::new(10);
    let reported: Vec<u64> =
        (0..8_000).step_by(5).filter(|at| simulation.observe(*at, 0, &throttled()) != LifecycleAction::Nothing).collect();
    assert_eq!(reported, [300, 3_900, 7_500]);
    simulation.observe(8_000, 0, &NodeObservation::Running);
    assert_eq!(simulation.observe(8_005, 0, &throttled()), LifecycleAction::Nothing);
    assert_eq!(simulation.observe(8_304, 0, &throttled()), LifecycleAction::Nothing);
    assert_eq!(simulation.observe(8_305, 0, &throttled()), LifecycleAction::ReportUnknown(Duration::from_secs(300)));
}

#[test]
fn failed_deletion_does_not_count_and_needs_new_evidence() {
    let mut simulation = Simulation::new(10);
    simulation.observe(0, 0, &NodeObservation::Gone);
    simulation.observe(15, 0, &NodeObservation::Gone);
    simulation.tracker.not_deleted("uid-000");
    assert_eq!(simulation.tracker, DeletionTracker::default());
}

#[derive(Debug, Clone)]
struct Step {
    after: u64,
    node: usize,
    observation: NodeObservation,
}

fn any_step() -> impl Strategy<Value = Step> {
    let observation = prop_oneof![
        6 => Just(NodeObservation::Gone),
        1 => Just(NodeObservation::Ready),
        1 => Just(NodeObservation::Running),
        1 => Just(NodeObservation::ShutDown),
        2 => Just(throttled()),
    ];
    (0..8_u64, 0..12_usize, observation).prop_map(|(after, node, observation)| Step { after, node, observation })
}

proptest! {
    #[test]
    fn half_of_a_small_cluster_is_kept_within_a_window(all in 2..20_usize, count in 0..40_usize, percent in 0..=50_usize) {
        let allowance = NodeLifecycleControllerConfig { max_count: count, max_percent: percent, ..CONFIG }.allowance(all);
        prop_assert!(allowance * 2 <= all, "{} of {}", allowance, all);
        prop_assert!(allowance >= usize::from(count > 0), "a single Node may always be deleted");
    }

    /// For any observations in any order: only `Gone` deletes, only after an uncontradicted `Gone` long enough before, and never
    /// more than the limits allow within the window.
    #[test]
    fn deletions_keep_the_rules(steps in proptest::collection::vec(any_step(), 1..200)) {
        let mut simulation = Simulation::new(12);
        let mut at = 0;
        let mut since: BTreeMap<usize, u64> = BTreeMap::new();
        let mut deleted: Vec<u64> = Vec::new();
        for Step { after, node, observation } in steps {
            at += after;
            if !simulation.nodes.contains(&format!("uid-{node:03}")) {
                continue;
            }
            let action = simulation.observe(at, node, &observation);
            match (&observation, action) {
                (NodeObservation::Gone, LifecycleAction::Delete) => {
                    prop_assert!(since.get(&node).is_some_and(|since| at - since >= 15));
                    deleted.push(at);
                    prop_assert!(deleted.iter().filter(|then| at - **then < 300).count() <= 3, "a fourth of twelve exceeds the allowance");
                    simulation.remove(at, node);
                }
                (NodeObservation::Gone, _) => drop(since.entry(node).or_insert(at)),
                (NodeObservation::Unknown(_), action) => {
                    prop_assert!(matches!(action, LifecycleAction::Nothing | LifecycleAction::ReportUnknown(_)), "{action:?}");
                }
                (_, action) => {
                    prop_assert_ne!(action, LifecycleAction::Delete);
                    since.remove(&node);
                }
            }
        }
    }
}

const HOUR: u64 = 3600;

fn observe_unlisted(simulation: &mut Simulation, at: u64, node: usize) -> LifecycleAction {
    let config = NodeLifecycleControllerConfig { delete_uninitialized_after: Duration::from_secs(HOUR), ..CONFIG };
    let unlisted = NodeObservation::Unlisted("no machine".into());
    simulation.tracker.observe(&format!("uid-{node:03}"), &unlisted, input(&simulation.nodes, simulation.start, at, &config))
}

#[test]
fn unlisted_node_is_deleted_after_the_configured_time() {
    let mut simulation = Simulation::new(10);
    assert_eq!(observe_unlisted(&mut simulation, 0, 0), LifecycleAction::Nothing);
    assert!(matches!(observe_unlisted(&mut simulation, HOUR - 1, 0), LifecycleAction::ReportUnknown(_)));
    assert_eq!(observe_unlisted(&mut simulation, HOUR, 0), LifecycleAction::Report, "it counts as gone from now on");
    assert_eq!(observe_unlisted(&mut simulation, HOUR + 5, 0), LifecycleAction::Nothing);
    assert_eq!(observe_unlisted(&mut simulation, HOUR + 15, 0), LifecycleAction::Delete);
}

#[test]
fn unlisted_node_is_kept_without_the_setting() {
    let mut simulation = Simulation::new(10);
    let unlisted = NodeObservation::Unlisted("no machine".into());
    assert!((0..100).all(|hour| {
        let action = simulation.observe(hour * HOUR, 0, &unlisted);
        matches!(action, LifecycleAction::Nothing | LifecycleAction::ReportUnknown(_))
    }));
}

#[test]
fn unlisted_node_that_reappears_is_not_deleted() {
    type Event = fn(&mut Simulation);
    let events: [(&str, Event, u64); 4] = [
        ("ready", |simulation| simulation.tracker.note_ready(["uid-000".to_owned()]), HOUR),
        ("ready for long", |simulation| simulation.tracker.note_ready(["uid-000".to_owned()]), 3 * HOUR),
        ("listed", |simulation| drop(simulation.observe(HOUR / 2, 0, &NodeObservation::Running)), HOUR),
        ("no response", |simulation| drop(simulation.observe(HOUR - 1, 0, &throttled())), HOUR),
    ];
    for (name, event, at) in events {
        let mut simulation = Simulation::new(10);
        observe_unlisted(&mut simulation, 0, 0);
        event(&mut simulation);
        let action = observe_unlisted(&mut simulation, at, 0);
        assert!(!matches!(action, LifecycleAction::Delete | LifecycleAction::Report), "{name}: {action:?}");
        if name == "no response" {
            assert_eq!(observe_unlisted(&mut simulation, 2 * HOUR, 0), LifecycleAction::Report);
        }
    }
}

#[test]
fn many_unlisted_nodes_count_as_a_mass_deletion() {
    let mut simulation = Simulation::new(10);
    for at in [0, HOUR, HOUR + 15, HOUR + 60] {
        for node in 0..8 {
            assert_ne!(observe_unlisted(&mut simulation, at, node), LifecycleAction::Delete, "{at}");
        }
    }
}
