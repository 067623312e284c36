use super::*;

const CROWD: MissingNodeCount = MissingNodeCount { missing: 30, all: 100, allowance: 20 };

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// A scale-in two minutes ago, with lists that agree.
fn settled() -> AbsenceEvidence<'static> {
    AbsenceEvidence {
        gone_for: minutes(2),
        all_gone_for: minutes(1),
        second_look: Some(&SecondLook::Agrees),
        contradiction: None,
        others_exist: true,
        deleted_in_window: 0,
        deleted_in_quarter: 0,
    }
}

fn doubted(evidence: &AbsenceEvidence<'_>, part: &str) -> bool {
    matches!(hold_reason(&CROWD, evidence), Some(HoldReason::DoubtfulEvidence(why)) if why.contains(part))
}

#[test]
fn who_is_gone_by_two_sources_goes_in_turn() {
    for (in_window, in_step, expected) in [
        (0, 0, None),
        (4, 4, None),
        (5, 5, Some(HoldReason::RateLimited)),
        (15, 0, None),
        (19, 4, None),
        (20, 0, Some(HoldReason::RateLimited)),
    ] {
        let evidence = AbsenceEvidence { deleted_in_window: in_window, deleted_in_quarter: in_step, ..settled() };
        assert_eq!(hold_reason(&CROWD, &evidence), expected, "{in_window} {in_step}");
    }
    assert_eq!(hold_reason(&CROWD, &AbsenceEvidence { second_look: None, ..settled() }), Some(HoldReason::TooEarly));
    assert_eq!(hold_reason(&CROWD, &AbsenceEvidence { gone_for: minutes(1), ..settled() }), Some(HoldReason::TooEarly));
}

#[test]
fn doubt_stops_a_crowd() {
    let (silent, contradicts) = (SecondLook::Silent("HTTP 403".into()), SecondLook::Contradicts("ARM lists it".into()));
    for evidence in [settled(), AbsenceEvidence { gone_for: minutes(60), all_gone_for: minutes(60), ..settled() }] {
        let lasting = evidence.all_gone_for >= CONFIRMED_ALONE_AFTER;
        assert!(doubted(&AbsenceEvidence { others_exist: false, ..evidence }, "no node is left"));
        assert!(doubted(&AbsenceEvidence { second_look: Some(&contradicts), ..evidence }, "ARM lists it"));
        assert_eq!(
            doubted(&AbsenceEvidence { second_look: Some(&silent), ..evidence }, "HTTP 403, so it has to last"),
            !lasting
        );
        assert!(doubted(&AbsenceEvidence { contradiction: Some((minutes(1), "seen again")), ..evidence }, "seen again"));
    }
    let late = AbsenceEvidence { gone_for: minutes(60), all_gone_for: minutes(60), second_look: Some(&silent), ..settled() };
    assert!(doubted(&AbsenceEvidence { contradiction: Some((minutes(29), "seen again")), ..late }, "has to last"));
    assert_eq!(hold_reason(&CROWD, &AbsenceEvidence { contradiction: Some((minutes(30), "seen again")), ..late }), None);
    assert_eq!(hold_reason(&CROWD, &AbsenceEvidence { contradiction: Some((minutes(2), "seen again")), ..settled() }), None);
    let none = MissingNodeCount { allowance: 0, ..CROWD };
    assert!(
        matches!(hold_reason(&none, &late), Some(HoldReason::DoubtfulEvidence(why)) if why.contains("--node-deletion-max-percent"))
    );
}

#[test]
fn a_step_is_a_quarter() {
    assert_eq!(NodeLifecycleControllerConfig::default().quarter_window(), Duration::from_secs(75));
    for (allowance, share) in [(1, 1), (2, 1), (5, 2), (10, 3), (20, 5), (1_000, 250)] {
        assert_eq!(MissingNodeCount { allowance, ..CROWD }.share(), share);
    }
}
