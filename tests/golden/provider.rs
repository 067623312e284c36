//! The whole manager on every recorded case: it produces the recorded state, and writes nothing on a recorded state.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
};

use parking_lot::Mutex;

use crate::golden::{
    case::{Case, Step},
    corpus,
    deviations::{self, Deviation},
    replay::{replay, take_over},
};

/// Findings by `case/step`.
type Findings = BTreeMap<String, Vec<String>>;

fn name(case: &Case, step: &Step) -> String {
    format!("{}/{}", case.path.trim_start_matches("azure-lb/"), step.name)
}

/// Runs `check` on all cases, several in parallel, each in its own runtime on a paused clock.
fn check_all_cases(check: impl AsyncFn(&'static Case) -> Findings + Sync) -> Findings {
    let (waiting, found) = (Mutex::new(corpus::cases().iter().collect()), Mutex::new(Findings::new()));
    let work = || {
        while let Some(case) = next(&waiting) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            let findings = runtime.block_on(check(case));
            found.lock().extend(findings);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    found.into_inner()
}

fn next(waiting: &Mutex<Vec<&'static Case>>) -> Option<&'static Case> {
    waiting.lock().pop()
}

/// Panics on findings in steps without a deviation, and on deviations without findings.
fn assert_only(deviations: &[Deviation], findings: &Findings) {
    let deviations: BTreeMap<_, _> = deviations.iter().copied().collect();
    let unexpected = findings.iter().filter(|(step, _)| !deviations.contains_key(step.as_str()));
    let mut failures: Vec<String> =
        unexpected.flat_map(|(step, found)| found.iter().map(move |finding| format!("{step}: {finding}"))).collect();
    let observed: BTreeSet<_> = findings.keys().map(String::as_str).collect();
    let missing = deviations.iter().filter(|(step, _)| !observed.contains(*step));
    failures.extend(missing.map(|(step, reason)| format!("{step} no longer deviates: {reason}")));
    assert!(failures.is_empty(), "{} findings\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_case_ends_as_recorded() {
    let findings = check_all_cases(async |case| {
        let mut by_step = Findings::new();
        for finding in replay(case).await {
            let is_in = |step: &&Step| finding.starts_with(&format!("{} {}: ", case.path, step.name));
            let step = case.steps.iter().find(is_in).unwrap();
            by_step.entry(name(case, step)).or_default().push(finding);
        }
        by_step
    });
    assert_only(&[deviations::REPAIRED, deviations::UNCHANGED].concat(), &findings);
}

#[test]
fn a_recorded_state_is_not_changed() {
    let findings = check_all_cases(async |case| {
        let mut by_step = Findings::new();
        for (number, step) in case.steps.iter().enumerate() {
            let mut writes = take_over(case, number).await;
            writes.retain(|write| !tidies_up(step, write));
            if !writes.is_empty() {
                by_step.insert(name(case, step), writes);
            }
        }
        by_step
    });
    assert_only(deviations::REPAIRED, &findings);
}

/// Returns `true` if a write deletes a recorded leftover without an owner.
fn tidies_up(step: &Step, write: &str) -> bool {
    let group = write.starts_with("PUT ") && write.to_ascii_lowercase().contains("/networksecuritygroups/");
    let unused = |id: &String| write.eq_ignore_ascii_case(&format!("DELETE {id}"));
    group && step.oddities.stale().next().is_some() || step.oddities.unused_managed_public_ips.iter().any(unused)
}
