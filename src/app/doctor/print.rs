//! Output of findings as text and JSON. Pure.
//!
//! In: findings. Out: a table with the remedy below each row, JSON, an exit code.

use serde_json::json;

use crate::cloud_provider::diagnostics::{DiagnosticFinding, FindingState};

/// Length of the longest state.
const STATE_WIDTH: usize = 7;

/// Returns 2 if there is a problem, 1 if there is none but not everything could be checked, else 0.
pub(crate) fn code(findings: &[DiagnosticFinding]) -> u8 {
    match (count(findings, FindingState::Problem), count(findings, FindingState::Unknown)) {
        (0, 0) => 0,
        (0, _) => 1,
        _ => 2,
    }
}

fn count(findings: &[DiagnosticFinding], state: FindingState) -> usize {
    findings.iter().filter(|finding| finding.state == state).count()
}

pub(crate) fn text(findings: &[DiagnosticFinding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or_default();
    let mut text = String::new();
    for DiagnosticFinding { check, state, text: detail, remedy } in findings {
        let state = match state {
            FindingState::Ok => "ok",
            FindingState::Warning => "warning",
            FindingState::Problem => "PROBLEM",
            FindingState::Unknown => "UNKNOWN",
        };
        text += &format!("{state:<STATE_WIDTH$}  {check:<width$}  {detail}\n");
        if !remedy.is_empty() {
            text += &format!("{:<STATE_WIDTH$}  {:<width$}  → {remedy}\n", "", "");
        }
    }
    let [ok, warnings, problems, unverified] =
        [FindingState::Ok, FindingState::Warning, FindingState::Problem, FindingState::Unknown]
            .map(|state| count(findings, state));
    text + &format!("{problems} problems, {warnings} warnings, {unverified} could not be checked, {ok} ok\n")
}

pub(crate) fn json(findings: &[DiagnosticFinding]) -> String {
    let complete = count(findings, FindingState::Unknown) == 0;
    format!("{:#}", json!({"complete": complete, "problems": count(findings, FindingState::Problem), "findings": findings}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_reports_problems_then_unknown_findings() {
        let ok = DiagnosticFinding::ok("a", "fine");
        let undetermined = DiagnosticFinding::undetermined("lease", "403", "grant it");
        let problem = DiagnosticFinding::problem("b", "no", "do");
        let warning = DiagnosticFinding::warning("b", "hm", "look");
        for (rows, expected) in
            [(vec![&ok], 0), (vec![&ok, &warning], 0), (vec![&ok, &undetermined], 1), (vec![&undetermined, &problem], 2)]
        {
            let rows: Vec<_> = rows.into_iter().cloned().collect();
            assert_eq!(code(&rows), expected, "{rows:?}");
        }
        let text = text(&[ok, undetermined.clone()]);
        let expected = "ok       a      fine\nUNKNOWN  lease  403\n                → grant it\n\
                        0 problems, 0 warnings, 1 could not be checked, 1 ok\n";
        assert_eq!(text, expected);
        assert!(json(&[undetermined]).contains("\"complete\": false"));
    }
}
