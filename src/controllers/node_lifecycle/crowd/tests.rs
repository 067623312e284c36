use super::*;

const CROWD: Crowd = Crowd { gone: 30, all: 100, allowance: 20 };

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// A scale-in two minutes ago, with lists that agree.
fn settled() -> Evidence<'static> {
    Evidence {
        gone_for: minutes(2),
        all_gone_for: minutes(1),
        second: Some(&SecondLook::Agrees),
        contradiction: None,
        others_are_there: true,
        deleted_in_window: 0,
        deleted_in_step: 0,
    }
}

fn doubted(evidence: &Evidence<'_>, part: &str) -> bool {
    matches!(hold(&CROWD, evidence), Some(Hold::Doubt(why)) if why.contains(part))
}

#[test]
fn who_is_gone_by_two_sources_goes_in_turn() {
    for (in_window, in_step, expected) in
        [(0, 0, None), (4, 4, None), (5, 5, Some(Hold::Turn)), (15, 0, None), (19, 4, None), (20, 0, Some(Hold::Turn))]
    {
        let evidence = Evidence { deleted_in_window: in_window, deleted_in_step: in_step, ..settled() };
        assert_eq!(hold(&CROWD, &evidence), expected, "{in_window} {in_step}");
    }
    assert_eq!(hold(&CROWD, &Evidence { second: None, ..settled() }), Some(Hold::Early));
    assert_eq!(hold(&CROWD, &Evidence { gone_for: minutes(1), ..settled() }), Some(Hold::Early));
}

#[test]
fn doubt_stops_a_crowd() {
    let (silent, contradicts) = (SecondLook::Silent("HTTP 403".into()), SecondLook::Contradicts("ARM lists it".into()));
    for evidence in [settled(), Evidence { gone_for: minutes(60), all_gone_for: minutes(60), ..settled() }] {
        let lasting = evidence.all_gone_for >= LASTING;
        assert!(doubted(&Evidence { others_are_there: false, ..evidence }, "no node is left"));
        assert!(doubted(&Evidence { second: Some(&contradicts), ..evidence }, "ARM lists it"));
        assert_eq!(doubted(&Evidence { second: Some(&silent), ..evidence }, "HTTP 403, so it has to last"), !lasting);
        assert!(doubted(&Evidence { contradiction: Some((minutes(1), "seen again")), ..evidence }, "seen again"));
    }
    let late = Evidence { gone_for: minutes(60), all_gone_for: minutes(60), second: Some(&silent), ..settled() };
    assert!(doubted(&Evidence { contradiction: Some((minutes(29), "seen again")), ..late }, "has to last"));
    assert_eq!(hold(&CROWD, &Evidence { contradiction: Some((minutes(30), "seen again")), ..late }), None);
    assert_eq!(hold(&CROWD, &Evidence { contradiction: Some((minutes(2), "seen again")), ..settled() }), None);
    let none = Crowd { allowance: 0, ..CROWD };
    assert!(matches!(hold(&none, &late), Some(Hold::Doubt(why)) if why.contains("--node-deletion-max-percent")));
}

#[test]
fn a_step_is_a_quarter() {
    assert_eq!(Config::default().step(), Duration::from_secs(75));
    for (allowance, share) in [(1, 1), (2, 1), (5, 2), (10, 3), (20, 5), (1_000, 250)] {
        assert_eq!(Crowd { allowance, ..CROWD }.share(), share);
    }
}
