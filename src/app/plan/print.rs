//! Output of a [`ClusterPlan`] as text. Pure.
//!
//! In: the plan, and whether documents are compared. Out: text. Failed reads come first, so that an incomplete plan is not
//! mistaken for a complete one.

use std::iter;

use super::{cluster_plan::ClusterPlan, document_diff::differences};
use crate::cloud_provider::{PlannedWrite, WritePlan};

/// Maximum number of reasons that are printed on the line of a write. More reasons get a line each.
const REASONS_IN_LINE: usize = 3;

/// Returns the whole plan as text, part by part, with a summary as the last line.
pub fn text(plan: &ClusterPlan, with_documents: bool) -> String {
    sections(plan, with_documents).concat() + &summary(plan) + "\n"
}

/// Returns the failed reads, then each part with its heading.
pub(crate) fn sections(plan: &ClusterPlan, with_documents: bool) -> Vec<String> {
    let mut sections = Vec::new();
    if !plan.is_complete() {
        let unread = plan.unread().map(|line| format!("  {line}\n"));
        sections
            .push("INCOMPLETE: this could not be read, and may hide changes:\n".to_owned() + &unread.collect::<String>());
    }
    sections.extend(plan.parts.iter().map(|(heading, part)| format!("{heading}\n{}", section(part, with_documents))));
    sections.extend(plan.skipped.iter().map(|(heading, reason)| format!("{heading}\n  not planned: {reason}\n")));
    sections
}

fn section(part: &WritePlan, with_documents: bool) -> String {
    let mut lines = Vec::new();
    for write in &part.writes {
        lines.extend(lines_of(write).into_iter().map(|line| format!("  {line}")));
        if with_documents {
            let changed = differences(write.before.as_ref(), write.after.as_ref());
            lines.extend(changed.into_iter().map(|line| format!("      {line}")));
        }
    }
    lines.extend(part.later.iter().map(|line| format!("  later: {line}")));
    lines.extend(part.refused.iter().map(|line| format!("  refused: {line}")));
    lines.extend(part.retained.iter().map(|line| format!("  stays: {line}")));
    if lines.is_empty() {
        lines.push(if part.is_complete() { "  nothing to do" } else { "  not known" }.to_owned());
    }
    lines.extend(part.notes.iter().map(|line| format!("  note: {line}")));
    lines.join("\n") + "\n"
}

fn lines_of(write: &PlannedWrite) -> Vec<String> {
    if write.reasons.len() <= REASONS_IN_LINE {
        return vec![write.to_string()];
    }
    let head = format!("{}{}:", write.request(), write.subject_suffix());
    iter::once(head).chain(write.reasons.iter().map(|reason| format!("  {reason}"))).collect()
}

/// Returns one line: the number of requests, of those that only remove leftovers, and of failed reads.
pub(crate) fn summary(plan: &ClusterPlan) -> String {
    let leftovers = plan.writes().filter(|write| write.leftover).count();
    let (writes, unread) = (plan.writes().count() - leftovers, plan.unread().count());
    let later: usize = plan.plans().map(|part| part.later.len()).sum();
    let refused: usize = plan.plans().map(|part| part.refused.len()).sum();
    let mut line = format!("{writes} writes planned, {leftovers} leftovers would be removed");
    for (count, label) in [(later, "more follow later"), (refused, "refused"), (unread, "could not be read")] {
        if count > 0 {
            line += &format!(", {count} {label}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_incomplete_plan_starts_with_its_failed_reads() {
        let unread = WritePlan::unread("the load balancers: HTTP 403");
        let plan = ClusterPlan { parts: vec![("Services", unread)], skipped: vec![("Routes", "switched off".to_owned())] };
        let text = text(&plan, false);
        assert!(text.starts_with("INCOMPLETE: ") && text.contains("  the load balancers: HTTP 403\n"), "{text}");
        assert!(
            text.contains("Services\n  not known\n") && text.contains("Routes\n  not planned: switched off\n"),
            "{text}"
        );
        assert!(text.ends_with("0 writes planned, 0 leftovers would be removed, 1 could not be read\n"), "{text}");
    }

    #[test]
    fn many_reasons_get_a_line_each_and_notes_come_last() {
        let reasons = ["a", "b", "c", "d"].map(str::to_owned).into();
        let write = PlannedWrite { reasons, ..PlannedWrite::patch("service", "/x".to_owned(), "", json!({})) };
        let writes = vec![write.on_behalf_of("default/web")];
        let part = WritePlan { writes, notes: ["full".to_owned()].into(), ..WritePlan::default() };
        let lines = "PATCH /x (for default/web):\n    a\n    b\n    c\n    d\n  note: full\n";
        assert_eq!(section(&part, false), format!("  {lines}"));
    }

    #[test]
    fn writes_leftovers_and_documents_are_shown() {
        let write = PlannedWrite {
            before: Some(json!({"a": 1})),
            ..PlannedWrite::patch("service", "/x".to_owned(), "why", json!({"a": 2}))
        };
        let leftover = PlannedWrite { leftover: true, ..PlannedWrite::deletion("public_ip", "/y".to_owned(), "unused") };
        let part = WritePlan { writes: vec![write, leftover], ..WritePlan::default() };
        let plan = ClusterPlan { parts: vec![("Services", part)], ..ClusterPlan::default() };
        let expected = "Services\n  PATCH /x: why\n      ~ a: 1 → 2\n  DELETE /y: unused\n\
                        1 writes planned, 1 leftovers would be removed\n";
        assert_eq!(text(&plan, true), expected);
    }
}
