//! The files decode to the recorded cases and to our own.

use crate::golden::{case::Step, corpus::cases};

#[test]
fn every_case_decodes() {
    let (cases, own): (Vec<_>, Vec<_>) = cases().iter().partition(|case| case.is_recorded);
    assert_eq!((cases.len(), own.len()), (89, 19));
    assert_eq!(cases.iter().filter(|case| case.is_about_routes()).count(), 4);
    assert_eq!(cases.iter().map(|case| case.steps.len()).sum::<usize>(), 229);
    assert_eq!(cases.iter().flat_map(|case| &case.steps).filter(|step| step.expect_failure).count(), 9);
    let lenient =
        |step: &Step| step.oddities.stale().next().is_some() || !step.oddities.unused_managed_public_ips.is_empty();
    for case in own {
        assert!(!case.steps.iter().any(lenient), "{}: oddities are leftovers of Go", case.path);
    }
}
