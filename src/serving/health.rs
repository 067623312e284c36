//! Health checks: the registry and the responses of `/healthz`, `/livez` and `/readyz`.
//!
//! In: named checks (closures), each for one or more endpoints. Out: status and body in the format of
//! `k8s.io/apiserver/pkg/server/healthz/healthz.go`. In contrast to upstream, the reason of a failure is shown to
//! authenticated callers, but not to anonymous ones.

use std::sync::Arc;

use parking_lot::RwLock;

/// Health endpoint of the secure port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HealthEndpoint {
    /// `/healthz`, the oldest endpoint, for checks of all kinds.
    Healthz,
    /// `/livez`: a failure means that the process should be restarted.
    Livez,
    /// `/readyz`: a failure means that the process cannot work now.
    Readyz,
}

impl HealthEndpoint {
    pub(super) const ALL: [HealthEndpoint; 3] = [HealthEndpoint::Healthz, HealthEndpoint::Livez, HealthEndpoint::Readyz];

    /// Returns the name, which is also the path without the slash.
    pub(super) fn name(self) -> &'static str {
        match self {
            HealthEndpoint::Healthz => "healthz",
            HealthEndpoint::Livez => "livez",
            HealthEndpoint::Readyz => "readyz",
        }
    }
}

/// Endpoints that include a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthEndpointSet(&'static [HealthEndpoint]);

impl HealthEndpointSet {
    pub const ALL: HealthEndpointSet = HealthEndpointSet(&HealthEndpoint::ALL);
    /// Endpoints of checks whose failure a restart can repair.
    pub const HEALTHZ_AND_LIVEZ: HealthEndpointSet = HealthEndpointSet(&[HealthEndpoint::Healthz, HealthEndpoint::Livez]);
    /// Endpoint of checks whose failure a restart does not repair.
    pub const READYZ: HealthEndpointSet = HealthEndpointSet(&[HealthEndpoint::Readyz]);
}

#[derive(Clone)]
struct RegisteredCheck {
    name: String,
    endpoints: HealthEndpointSet,
    /// Function that runs the check. The error is the reason of the failure.
    check: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

/// Registry of checks, in the order of registration. Clones share it, so checks can be added while the port is served.
#[derive(Clone, Default)]
pub struct HealthChecks {
    entries: Arc<RwLock<Vec<RegisteredCheck>>>,
}

impl HealthChecks {
    /// Adds a check under a unique name. Checks run for every request, so they must be fast.
    pub fn add<F>(&self, name: impl Into<String>, endpoints: HealthEndpointSet, check: F)
    where
        F: Fn() -> Result<(), String> + Send + Sync + 'static,
    {
        self.entries.write().push(RegisteredCheck { name: name.into(), endpoints, check: Arc::new(check) });
    }

    /// Runs the checks of `endpoint` that `is_included` selects. An endpoint without checks has the check `ping`, as
    /// upstream.
    pub(super) fn run(&self, endpoint: HealthEndpoint, is_included: impl Fn(&str) -> bool) -> Vec<ProbeResult> {
        let mut checks = self.entries.read().clone();
        checks.retain(|entry| entry.endpoints.0.contains(&endpoint));
        if checks.is_empty() {
            let result = is_included("ping").then_some(Ok(()));
            return vec![ProbeResult { name: "ping".to_owned(), result }];
        }
        let run = |entry: RegisteredCheck| {
            let result = is_included(&entry.name).then(|| (entry.check)());
            ProbeResult { name: entry.name, result }
        };
        checks.into_iter().map(run).collect()
    }
}

/// Result of one check; `None` if it was not run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProbeResult {
    pub(super) name: String,
    pub(super) result: Option<Result<(), String>>,
}

/// Format that the caller selected, and details that the caller may see.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HealthReportOptions {
    pub(super) verbose: bool,
    pub(super) exclude: Vec<String>,
    pub(super) show_reasons: bool,
}

/// Reads `?verbose` and the repeatable `?exclude=`.
pub(super) fn report_options(query: &[(String, String)], reasons: bool) -> HealthReportOptions {
    let exclude = query.iter().filter(|(key, _)| key == "exclude").map(|(_, value)| value.clone()).collect();
    HealthReportOptions { verbose: query.iter().any(|(key, _)| key == "verbose"), exclude, show_reasons: reasons }
}

fn reason<'a>(error: &'a str, view: &HealthReportOptions) -> &'a str {
    if view.show_reasons { error } else { "reason withheld" }
}

/// Returns status and body for a whole endpoint.
pub(super) fn render(endpoint: HealthEndpoint, outcomes: &[ProbeResult], view: &HealthReportOptions) -> (u16, String) {
    let name = endpoint.name();
    let lines: String = outcomes.iter().map(|outcome| line(outcome, view)).collect();
    if outcomes.iter().any(|outcome| matches!(outcome.result, Some(Err(_)))) {
        return (500, format!("{lines}{name} check failed\n"));
    }
    let warning = warning(outcomes, view);
    if view.verbose { (200, format!("{lines}{warning}{name} check passed\n")) } else { (200, "ok".to_owned()) }
}

fn line(outcome: &ProbeResult, view: &HealthReportOptions) -> String {
    match &outcome.result {
        None => format!("[+]{} excluded: ok\n", outcome.name),
        Some(Ok(())) => format!("[+]{} ok\n", outcome.name),
        Some(Err(error)) => format!("[-]{} failed: {}\n", outcome.name, reason(error, view)),
    }
}

fn warning(outcomes: &[ProbeResult], view: &HealthReportOptions) -> String {
    let unmatched = |name: &&String| !outcomes.iter().any(|outcome| outcome.name == **name);
    let names: Vec<_> = view.exclude.iter().filter(unmatched).map(|name| format!("{name:?}")).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("warn: some health checks cannot be excluded: no matches for {}\n", names.join(", "))
}

/// Returns status and body for one check; `None` if there is no check of that name.
pub(super) fn render_one(name: &str, outcomes: &[ProbeResult], view: &HealthReportOptions) -> Option<(u16, String)> {
    let outcome = outcomes.iter().find(|outcome| outcome.name == name)?;
    Some(match &outcome.result {
        Some(Err(error)) => (500, format!("internal server error: {}\n", reason(error, view))),
        Some(Ok(())) | None => (200, "ok".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, result: Option<Result<(), &str>>) -> ProbeResult {
        ProbeResult { name: name.to_owned(), result: result.map(|result| result.map_err(str::to_owned)) }
    }

    #[test]
    fn bodies_have_the_upstream_format() {
        let good = vec![outcome("leaderElection", Some(Ok(()))), outcome("service", Some(Ok(())))];
        let bad = vec![outcome("leaderElection", Some(Ok(()))), outcome("service", Some(Err("stuck")))];
        let skipped = vec![outcome("leaderElection", Some(Ok(()))), outcome("service", None)];
        let terse = HealthReportOptions::default();
        let verbose = HealthReportOptions { verbose: true, ..HealthReportOptions::default() };
        let with_reasons = HealthReportOptions { show_reasons: true, ..HealthReportOptions::default() };
        let exclude =
            HealthReportOptions { verbose: true, exclude: vec!["service".to_owned(), "x".to_owned()], show_reasons: false };
        let rows = [
            (&good, &terse, 200, "ok"),
            (&good, &verbose, 200, "[+]leaderElection ok\n[+]service ok\nreadyz check passed\n"),
            (&bad, &terse, 500, "[+]leaderElection ok\n[-]service failed: reason withheld\nreadyz check failed\n"),
            (&bad, &with_reasons, 500, "[+]leaderElection ok\n[-]service failed: stuck\nreadyz check failed\n"),
            (
                &skipped,
                &exclude,
                200,
                "[+]leaderElection ok\n[+]service excluded: ok\n\
                 warn: some health checks cannot be excluded: no matches for \"x\"\nreadyz check passed\n",
            ),
        ];
        for (outcomes, view, status, body) in rows {
            assert_eq!(render(HealthEndpoint::Readyz, outcomes, view), (status, body.to_owned()), "{view:?}");
        }
    }

    #[test]
    fn bodies_of_one_check_have_the_upstream_format() {
        let outcomes = vec![outcome("node", Some(Ok(()))), outcome("route", Some(Err("no network")))];
        let with_reasons = HealthReportOptions { show_reasons: true, ..HealthReportOptions::default() };
        let rows = [
            ("node", HealthReportOptions::default(), Some((200, "ok"))),
            ("route", HealthReportOptions::default(), Some((500, "internal server error: reason withheld\n"))),
            ("route", with_reasons, Some((500, "internal server error: no network\n"))),
            ("absent", HealthReportOptions::default(), None),
        ];
        for (name, view, expected) in rows {
            let expected = expected.map(|(status, body)| (status, body.to_owned()));
            assert_eq!(render_one(name, &outcomes, &view), expected, "{name}");
        }
    }

    #[test]
    fn a_check_counts_where_it_is_registered() {
        let checks = HealthChecks::default();
        let names = |endpoint| checks.run(endpoint, |_| true).into_iter().map(|outcome| outcome.name).collect::<Vec<_>>();
        assert_eq!(names(HealthEndpoint::Healthz), ["ping"]);
        checks.add("leaderElection", HealthEndpointSet::ALL, || Ok(()));
        checks.add("informers", HealthEndpointSet::READYZ, || Err("not synced".to_owned()));
        assert_eq!(names(HealthEndpoint::Livez), ["leaderElection"]);
        assert_eq!(names(HealthEndpoint::Readyz), ["leaderElection", "informers"]);
        assert_eq!(checks.run(HealthEndpoint::Readyz, |_| true)[1], outcome("informers", Some(Err("not synced"))));
    }

    #[test]
    fn queries_are_parsed_into_options() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(report_options(&pairs(&[]), false), HealthReportOptions::default());
        let view = report_options(&pairs(&[("verbose", ""), ("exclude", "a"), ("exclude", "b"), ("other", "c")]), true);
        assert_eq!(
            view,
            HealthReportOptions { verbose: true, exclude: vec!["a".to_owned(), "b".to_owned()], show_reasons: true }
        );
    }
}
