//! A [`ClusterPlan`] for people. Pure.
//!
//! In: the plan, and whether documents are compared. Out: text. What could not be read comes first, so that nobody takes an incomplete plan for
//! a whole one.

use super::{cluster_plan::ClusterPlan, document_diff::differences};
use crate::cloud_provider::WritePlan;

/// Everything, part by part, and a last line that counts.
pub(crate) fn text(plan: &ClusterPlan, with_documents: bool) -> String {
    let mut text = String::new();
    if !plan.is_complete() {
        text += "INCOMPLETE: this could not be read, and may hide changes:\n";
        text.extend(plan.unread().map(|line| format!("  {line}\n")));
    }
    text.extend(plan.parts.iter().map(|(heading, part)| format!("{heading}\n{}", section(part, with_documents))));
    text.extend(plan.skipped.iter().map(|(heading, why)| format!("{heading}\n  not planned: {why}\n")));
    text + &summary(plan) + "\n"
}

fn section(part: &WritePlan, with_documents: bool) -> String {
    let mut lines = Vec::new();
    for write in &part.writes {
        lines.push(format!("  {write}"));
        if with_documents {
            let changed = differences(write.before.as_ref(), write.after.as_ref());
            lines.extend(changed.into_iter().map(|line| format!("      {line}")));
        }
    }
    lines.extend(part.later.iter().map(|line| format!("  later: {line}")));
    lines.extend(part.refused.iter().map(|line| format!("  refused: {line}")));
    lines.extend(part.retained.iter().map(|line| format!("  stays: {line}")));
    let nothing = if part.is_complete() { "  nothing to do" } else { "  not known" };
    if lines.is_empty() {
        lines.push(nothing.to_owned());
    }
    lines.join("\n") + "\n"
}

/// One line: how many requests, how many of them only remove leftovers, what is not known.
pub(crate) fn summary(plan: &ClusterPlan) -> String {
    let leftovers = plan.writes().filter(|write| write.leftover).count();
    let (writes, unread) = (plan.writes().count() - leftovers, plan.unread().count());
    let later: usize = plan.plans().map(|part| part.later.len()).sum();
    let refused: usize = plan.plans().map(|part| part.refused.len()).sum();
    let mut line = format!("{writes} writes planned, {leftovers} leftovers would be removed");
    for (count, what) in [(later, "more follow later"), (refused, "refused"), (unread, "could not be read")] {
        if count > 0 {
            line += &format!(", {count} {what}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cloud_provider::PlannedWrite;

    #[test]
    fn an_incomplete_plan_says_so_first_and_does_not_call_anything_done() {
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
    fn writes_leftovers_and_documents_are_shown() {
        let write = PlannedWrite {
            before: Some(json!({"a": 1})),
            ..PlannedWrite::patch("service", "/x".to_owned(), "why", json!({"a": 2}))
        };
        let gone = PlannedWrite { leftover: true, ..PlannedWrite::deletion("public_ip", "/y".to_owned(), "nobody's") };
        let part = WritePlan { writes: vec![write, gone], ..WritePlan::default() };
        let plan = ClusterPlan { parts: vec![("Services", part)], ..ClusterPlan::default() };
        let expected = "Services\n  PATCH /x: why\n      ~ a: 1 → 2\n  DELETE /y: nobody's\n\
                        1 writes planned, 1 leftovers would be removed\n";
        assert_eq!(text(&plan, true), expected);
    }
}
