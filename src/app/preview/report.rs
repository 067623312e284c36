//! Whether a shadow manager could take over. Pure.
//!
//! In: one plan after the other, with its time. Out: a [`ReadinessReport`]: what would be written, for how long that has been so, and what
//! appeared and went since the plan before. While somebody else writes, differences come and go; those that stay are what counts.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{cluster_plan::ClusterPlan, print::summary};

/// Follows plans.
#[derive(Debug, Default)]
pub struct ReportTracker {
    plan: ClusterPlan,
    /// Every line of the plan, and when it appeared.
    since: BTreeMap<String, Timestamp>,
    plans: u64,
    last: Option<Timestamp>,
}

/// What appeared and went from one plan to the next.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PlanChanges {
    /// New lines.
    pub appeared: Vec<String>,
    /// Lines that are gone.
    pub gone: Vec<String>,
}

/// What is known now.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadinessReport {
    /// The summary and what differs, as text.
    pub text: String,
    /// The same for machines.
    pub json: Value,
    /// Whether a manager with this configuration would write nothing but remove leftovers.
    pub is_ready: bool,
}

impl ReportTracker {
    /// Takes a plan that was made at `now`.
    pub fn observe(&mut self, plan: ClusterPlan, now: Timestamp) -> PlanChanges {
        let lines = lines(&plan);
        let appeared = lines.iter().filter(|line| !self.since.contains_key(*line)).cloned().collect();
        let gone = self.since.keys().filter(|line| !lines.contains(line)).cloned().collect();
        let since = |line: &String| self.since.get(line).copied().unwrap_or(now);
        self.since = lines.iter().map(|line| (line.clone(), since(line))).collect();
        (self.plan, self.last, self.plans) = (plan, Some(now), self.plans + 1);
        PlanChanges { appeared, gone }
    }

    /// `None`: no plan has been made yet.
    pub fn report(&self, now: Timestamp) -> Option<ReadinessReport> {
        let made = self.last?;
        let (is_ready, summary) = (is_ready(&self.plan), summary(&self.plan));
        let verdict = if is_ready { "ready to switch" } else { "not ready to switch" };
        let mut text = format!("{verdict}: {summary}\n");
        for (line, since) in &self.since {
            text += &format!("  {line} (for {} s)\n", seconds(*since, now));
        }
        text += &format!("plan {} of this process, made {} s ago; nothing was written\n", self.plans, seconds(made, now));
        let differences = self.since.iter().map(|(line, since)| json!({"line": line, "since": since.to_string()}));
        let json = json!({
            "ready": is_ready, "summary": summary, "differences": differences.collect::<Vec<_>>(),
            "plans": self.plans, "madeAt": made.to_string(), "plan": self.plan.json(),
        });
        Some(ReadinessReport { text, json, is_ready })
    }
}

fn seconds(since: Timestamp, now: Timestamp) -> i64 {
    now.as_second() - since.as_second()
}

fn is_ready(plan: &ClusterPlan) -> bool {
    let is_quiet = plan.plans().all(|part| part.later.is_empty() && part.refused.is_empty());
    plan.is_complete() && is_quiet && plan.writes().all(|write| write.leftover)
}

fn lines(plan: &ClusterPlan) -> Vec<String> {
    let of_part = |part: &crate::cloud_provider::WritePlan| {
        let marked = |mark: &str, lines: &std::collections::BTreeSet<String>| -> Vec<String> {
            lines.iter().map(|line| format!("{mark}: {line}")).collect()
        };
        let writes = part.writes.iter().map(|write| match write.leftover {
            true => format!("leftover: {write}"),
            false => format!("write: {write}"),
        });
        let more = [("later", &part.later), ("refused", &part.refused), ("not read", &part.unread)];
        writes.chain(more.into_iter().flat_map(|(mark, lines)| marked(mark, lines))).collect::<Vec<_>>()
    };
    plan.plans().flat_map(of_part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud_provider::{PlannedWrite, WritePlan};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn plan(part: WritePlan) -> ClusterPlan {
        ClusterPlan { parts: vec![("Services", part)], ..ClusterPlan::default() }
    }

    fn gone(target: &str, leftover: bool) -> PlannedWrite {
        PlannedWrite { leftover, ..PlannedWrite::deletion("public_ip", target.to_owned(), "nobody's") }
    }

    #[test]
    fn leftovers_do_not_hinder_a_switch_and_everything_else_does() {
        let mut tracker = ReportTracker::default();
        assert_eq!(tracker.report(at(0)), None, "no plan yet");
        let mut verdict = |part: WritePlan| {
            tracker.observe(plan(part), at(1));
            tracker.report(at(2)).unwrap().is_ready
        };
        assert!(verdict(WritePlan::default()));
        assert!(verdict(WritePlan { writes: vec![gone("/a", true)], ..WritePlan::default() }));
        assert!(!verdict(WritePlan { writes: vec![gone("/a", false)], ..WritePlan::default() }));
        assert!(!verdict(WritePlan { later: ["x".to_owned()].into(), ..WritePlan::default() }));
        assert!(!verdict(WritePlan { refused: ["x".to_owned()].into(), ..WritePlan::default() }));
        assert!(!verdict(WritePlan::unread("x")));
    }

    #[test]
    fn what_appears_and_goes_is_told_once_and_keeps_its_time() {
        let mut tracker = ReportTracker::default();
        let one = || WritePlan { writes: vec![gone("/a", true)], ..WritePlan::default() };
        let line = "leftover: DELETE /a: nobody's".to_owned();
        assert_eq!(tracker.observe(plan(one()), at(10)).appeared, std::slice::from_ref(&line));
        assert_eq!(tracker.observe(plan(one()), at(70)), PlanChanges::default());
        let told = tracker.report(at(100)).unwrap().text;
        let expected = "ready to switch: 0 writes planned, 1 leftovers would be removed\n  \
                        leftover: DELETE /a: nobody's (for 90 s)\n\
                        plan 2 of this process, made 30 s ago; nothing was written\n";
        assert_eq!(told, expected);
        assert_eq!(tracker.observe(plan(WritePlan::default()), at(130)).gone, [line]);
    }
}
