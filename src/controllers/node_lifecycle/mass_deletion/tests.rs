use super::*;

const MANY_MISSING: MissingNodeCount = MissingNodeCount { missing: 30, all: 100, allowance: 20 };

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// Returns the evidence of a scale-in two minutes ago, with lists that agree.
fn settled() -> AbsenceEvidence<'static> {
    AbsenceEvidence {
        missing_for: minutes(2),
        all_missing_for: minutes(1),
        second_look: Some(&SecondLook::Agrees),
        contradiction: None,
        others_exist: true,
        deleted_in_window: 0,
        deleted_in_quarter: 0,
    }
}

fn is_doubtful(evidence: &AbsenceEvidence<'_>, part: &str) -> bool {
    matches!(hold_reason(&MANY_MISSING, evidence), Some(HoldReason::DoubtfulEvidence(reason)) if reason.contains(part))
}

#[test]
fn confirmed_nodes_are_deleted_at_a_limited_rate() {
    for (in_window, in_step, expected) in [
        (0, 0, None),
        (4, 4, None),
        (5, 5, Some(HoldReason::RateLimited)),
        (15, 0, None),
        (19, 4, None),
        (20, 0, Some(HoldReason::RateLimited)),
    ] {
        let evidence = AbsenceEvidence { deleted_in_window: in_window, deleted_in_quarter: in_step, ..settled() };
        assert_eq!(hold_reason(&MANY_MISSING, &evidence), expected, "{in_window} {in_step}");
    }
    assert_eq!(hold_reason(&MANY_MISSING, &AbsenceEvidence { second_look: None, ..settled() }), Some(HoldReason::TooEarly));
    assert_eq!(
        hold_reason(&MANY_MISSING, &AbsenceEvidence { missing_for: minutes(1), ..settled() }),
        Some(HoldReason::TooEarly)
    );
}

#[test]
fn doubtful_evidence_stops_a_mass_deletion() {
    let (silent, contradicts) = (SecondLook::Silent("HTTP 403".into()), SecondLook::Contradicts("ARM lists it".into()));
    for evidence in [settled(), AbsenceEvidence { missing_for: minutes(60), all_missing_for: minutes(60), ..settled() }] {
        let lasting = evidence.all_missing_for >= CONFIRMED_ALONE_AFTER;
        assert!(is_doubtful(&AbsenceEvidence { others_exist: false, ..evidence }, "no node has an existing instance"));
        assert!(is_doubtful(&AbsenceEvidence { second_look: Some(&contradicts), ..evidence }, "ARM lists it"));
        assert_eq!(
            is_doubtful(
                &AbsenceEvidence { second_look: Some(&silent), ..evidence },
                "HTTP 403, so the instances must be missing"
            ),
            !lasting
        );
        assert!(is_doubtful(&AbsenceEvidence { contradiction: Some((minutes(1), "seen again")), ..evidence }, "seen again"));
    }
    let late =
        AbsenceEvidence { missing_for: minutes(60), all_missing_for: minutes(60), second_look: Some(&silent), ..settled() };
    assert!(is_doubtful(&AbsenceEvidence { contradiction: Some((minutes(29), "seen again")), ..late }, "must be missing"));
    assert_eq!(
        hold_reason(&MANY_MISSING, &AbsenceEvidence { contradiction: Some((minutes(30), "seen again")), ..late }),
        None
    );
    assert_eq!(
        hold_reason(&MANY_MISSING, &AbsenceEvidence { contradiction: Some((minutes(2), "seen again")), ..settled() }),
        None
    );
    let none = MissingNodeCount { allowance: 0, ..MANY_MISSING };
    assert!(
        matches!(hold_reason(&none, &late), Some(HoldReason::DoubtfulEvidence(reason)) if reason.contains("--node-deletion-max-percent"))
    );
}

#[test]
fn window_has_four_equal_shares() {
    assert_eq!(NodeLifecycleControllerConfig::default().quarter_window(), Duration::from_secs(75));
    for (allowance, share) in [(1, 1), (2, 1), (5, 2), (10, 3), (20, 5), (1_000, 250)] {
        assert_eq!(MissingNodeCount { allowance, ..MANY_MISSING }.share(), share);
    }
}
