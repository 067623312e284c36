//! The whole manager on every recorded case: it leaves what was recorded, and on what was recorded it has nothing to do.

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

/// Looks at all cases, several at a time, each in a runtime of its own on a paused clock.
fn everywhere(look: impl AsyncFn(&'static Case) -> Findings + Sync) -> Findings {
    let (waiting, found) = (Mutex::new(corpus::cases().iter().collect()), Mutex::new(Findings::new()));
    let work = || {
        while let Some(case) = next(&waiting) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            let findings = runtime.block_on(look(case));
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

/// Fails on findings in other steps than these, and on steps of these without findings.
fn assert_only(known: &[Deviation], findings: &Findings) {
    let known: BTreeMap<_, _> = known.iter().copied().collect();
    let unknown = findings.iter().filter(|(step, _)| !known.contains_key(step.as_str()));
    let mut wrong: Vec<String> =
        unknown.flat_map(|(step, found)| found.iter().map(move |finding| format!("{step}: {finding}"))).collect();
    let met: BTreeSet<_> = findings.keys().map(String::as_str).collect();
    let unmet = known.iter().filter(|(step, _)| !met.contains(*step));
    wrong.extend(unmet.map(|(step, why)| format!("{step} no longer deviates: {why}")));
    assert!(wrong.is_empty(), "{} findings\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_case_ends_as_recorded() {
    let findings = everywhere(async |case| {
        let mut by_step = Findings::new();
        for finding in replay(case).await {
            let is_in = |step: &&Step| finding.starts_with(&format!("{} {}: ", case.path, step.name));
            let step = case.steps.iter().find(is_in).unwrap();
            by_step.entry(name(case, step)).or_default().push(finding);
        }
        by_step
    });
    assert_only(&[deviations::PUT_RIGHT, deviations::LEFT_ALONE].concat(), &findings);
}

#[test]
fn what_was_recorded_is_left_alone() {
    let findings = everywhere(async |case| {
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
    assert_only(deviations::PUT_RIGHT, &findings);
}

/// Whether a write takes away what the recording says belongs to nobody any more.
fn tidies_up(step: &Step, write: &str) -> bool {
    let group = write.starts_with("PUT ") && write.to_ascii_lowercase().contains("/networksecuritygroups/");
    let unused = |id: &String| write.eq_ignore_ascii_case(&format!("DELETE {id}"));
    group && step.oddities.stale().next().is_some() || step.oddities.unused_managed_public_ips.iter().any(unused)
}
