//! Decision whether a shadow manager could take over. Pure.
//!
//! In: consecutive plans, with their times. Out: a [`ReadinessReport`]: the planned writes, their ages, and the changes
//! since the previous plan. While another manager writes, differences appear and disappear, and cached data of the cloud is
//! outdated, so a difference counts only after it is older than the caches. The text of a difference may change with each plan,
//! so it also counts after its document has differed for twice as long.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{cluster_plan::ClusterPlan, print::summary};
use crate::cloud_provider::{PlannedWrite, WritePlan};

/// Age of one line of a plan.
#[derive(Debug)]
struct LineAge {
    /// Document or object that the line is about.
    subject: String,
    since: Timestamp,
    /// Time since which some line has been about the subject.
    subject_since: Timestamp,
}

/// Tracker of consecutive plans and of the time when each line first appeared.
#[derive(Debug, Default)]
pub struct ReportTracker {
    plan: ClusterPlan,
    /// Lines of the plan with their ages.
    ages: BTreeMap<String, LineAge>,
    plans: u64,
    last: Option<Timestamp>,
    first: Option<Timestamp>,
    /// Maximum age of the data of a plan.
    cache_age: Duration,
}

/// Changes from one plan to the next.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PlanChanges {
    /// Lines that the previous plan did not have.
    pub appeared: Vec<String>,
    /// Lines of the previous plan that the current one does not have.
    pub removed: Vec<String>,
}

/// Current state of the comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadinessReport {
    /// Summary and differences as text.
    pub text: String,
    /// Machine-readable form of the report.
    pub json: Value,
    /// Whether a manager with this configuration would only remove leftovers.
    pub is_ready: bool,
}

impl ReportTracker {
    /// Creates a tracker of plans whose data is at most `cache_age` old.
    pub fn with_cache_age(cache_age: Duration) -> Self {
        Self { cache_age, ..Self::default() }
    }

    /// Records a plan that was made at `now`, and returns its changes since the previous one.
    pub fn observe(&mut self, plan: ClusterPlan, now: Timestamp) -> PlanChanges {
        let subjects: BTreeMap<&str, Timestamp> =
            self.ages.values().map(|age| (age.subject.as_str(), age.subject_since)).collect();
        let age = |(subject, line): (String, String)| {
            let since = self.ages.get(&line).map_or(now, |age| age.since);
            let subject_since = subjects.get(subject.as_str()).copied().unwrap_or(now);
            (line, LineAge { subject, since, subject_since })
        };
        let lines = lines(&plan);
        let appeared = lines.iter().filter(|(_, line)| !self.ages.contains_key(line));
        let appeared = appeared.map(|(_, line)| line.clone()).collect();
        let ages: BTreeMap<String, LineAge> = lines.into_iter().map(age).collect();
        let removed = self.ages.keys().filter(|line| !ages.contains_key(*line)).cloned().collect();
        self.ages = ages;
        (self.plan, self.last, self.plans) = (plan, Some(now), self.plans + 1);
        self.first.get_or_insert(now);
        PlanChanges { appeared, removed }
    }

    /// Returns the last plan without the differences that are not older than the caches. Refusals and failed reads are kept,
    /// whatever their age.
    pub fn settled(&self, now: Timestamp) -> ClusterPlan {
        let is_settled = |line: &str| self.ages.get(line).is_some_and(|age| self.counted_since(age, now).is_some());
        let mut plan = self.plan.clone();
        for (_, part) in &mut plan.parts {
            part.writes.retain(|write| is_settled(&line_of(write).1));
            part.later.retain(|line| is_settled(&format!("later: {line}")));
        }
        plan
    }

    /// Returns the time since which a difference exists, once it is older than the caches.
    fn counted_since(&self, age: &LineAge, now: Timestamp) -> Option<Timestamp> {
        let by_line = is_older(age.since, self.cache_age, now).then_some(age.since);
        by_line.or_else(|| is_older(age.subject_since, self.cache_age * 2, now).then_some(age.subject_since))
    }

    /// Returns the report, or `None` before the first plan.
    pub fn report(&self, now: Timestamp) -> Option<ReadinessReport> {
        let last_plan = self.last?;
        let plan = self.settled(now);
        let settled: BTreeSet<String> = lines(&plan).into_iter().map(|(_, line)| line).collect();
        let young = self.ages.len() - settled.len();
        let has_watched = self.first.is_some_and(|first| is_older(first, self.cache_age, now));
        let is_ready = plan.is_ready() && (has_watched || self.plan.is_ready());
        let summary = summary(&plan);
        let verdict = if is_ready { "ready to switch" } else { "not ready to switch" };
        let mut text = format!("{verdict}: {summary}\n");
        let since = |age: &LineAge| self.counted_since(age, now).unwrap_or(age.since);
        let differences = self.ages.iter().filter(|(line, _)| settled.contains(*line));
        let differences: Vec<_> = differences.map(|(line, age)| (line, since(age))).collect();
        for (line, since) in &differences {
            text += &format!("  {line} (for {} s)\n", seconds(*since, now));
        }
        if young > 0 {
            let age = self.cache_age.as_secs();
            text += &format!("  {young} more differences are younger than the caches ({age} s), and are not counted yet\n");
        }
        text +=
            &format!("plan {} of this process, made {} s ago; nothing was written\n", self.plans, seconds(last_plan, now));
        let differences = differences.iter().map(|(line, since)| json!({"line": line, "since": since.to_string()}));
        let json = json!({
            "ready": is_ready, "summary": summary, "differences": differences.collect::<Vec<_>>(), "young": young,
            "plans": self.plans, "madeAt": last_plan.to_string(), "plan": self.plan.json(),
        });
        Some(ReadinessReport { text, json, is_ready })
    }
}

fn seconds(since: Timestamp, now: Timestamp) -> i64 {
    now.as_second() - since.as_second()
}

fn is_older(since: Timestamp, age: Duration, now: Timestamp) -> bool {
    seconds(since, now) >= i64::try_from(age.as_secs()).unwrap_or(i64::MAX)
}

/// Returns the document of a write, and its line.
fn line_of(write: &PlannedWrite) -> (String, String) {
    let mark = if write.leftover { "leftover" } else { "write" };
    (format!("{mark}: {}", write.target), format!("{mark}: {write}"))
}

/// Returns the subject and the text of each line. The texts of parts begin with their subject.
fn lines(plan: &ClusterPlan) -> Vec<(String, String)> {
    let of_text = |mark: &'static str, line: &String| {
        let subject = line.split_once(": ").map_or(line.as_str(), |(subject, _)| subject);
        (format!("{mark}: {subject}"), format!("{mark}: {line}"))
    };
    let of_part = |part: &WritePlan| {
        let texts = [("later", &part.later), ("refused", &part.refused), ("not read", &part.unread)];
        let texts = texts.into_iter().flat_map(|(mark, lines)| lines.iter().map(move |line| of_text(mark, line)));
        part.writes.iter().map(line_of).chain(texts).collect::<Vec<_>>()
    };
    plan.plans().flat_map(of_part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn plan(part: WritePlan) -> ClusterPlan {
        ClusterPlan { parts: vec![("Services", part)], ..ClusterPlan::default() }
    }

    fn removed(target: &str, leftover: bool) -> PlannedWrite {
        PlannedWrite { leftover, ..PlannedWrite::deletion("public_ip", target.to_owned(), "unused") }
    }

    #[test]
    fn only_leftovers_allow_a_switch() {
        let mut tracker = ReportTracker::default();
        assert_eq!(tracker.report(at(0)), None, "no plan yet");
        let mut verdict = |part: WritePlan| {
            tracker.observe(plan(part), at(1));
            tracker.report(at(2)).unwrap().is_ready
        };
        assert!(verdict(WritePlan::default()));
        assert!(verdict(WritePlan { writes: vec![removed("/a", true)], ..WritePlan::default() }));
        assert!(!verdict(WritePlan { writes: vec![removed("/a", false)], ..WritePlan::default() }));
        assert!(!verdict(WritePlan { later: ["x".to_owned()].into(), ..WritePlan::default() }));
        assert!(!verdict(WritePlan { refused: ["x".to_owned()].into(), ..WritePlan::default() }));
        assert!(!verdict(WritePlan::unread("x")));
    }

    #[test]
    fn only_differences_older_than_the_caches_count() {
        let mut tracker = ReportTracker::with_cache_age(Duration::from_secs(600));
        let write = || WritePlan { writes: vec![removed("/a", false)], ..WritePlan::default() };
        let ready = |tracker: &ReportTracker, second| tracker.report(at(second)).unwrap().is_ready;
        tracker.observe(plan(WritePlan::default()), at(0));
        assert!(ready(&tracker, 1), "nothing differs");
        tracker.observe(plan(write()), at(60));
        assert!(!ready(&tracker, 61), "it has not watched for long enough");
        assert_eq!(tracker.settled(at(61)).writes().count(), 0);
        let text = tracker.report(at(605)).unwrap().text;
        assert!(text.starts_with("ready to switch: 0 writes") && text.contains("1 more differences are younger"), "{text}");
        assert!(!ready(&tracker, 660), "it is as old as the caches");
        assert_eq!(tracker.settled(at(660)).writes().count(), 1);
        tracker.observe(plan(WritePlan { refused: ["x".to_owned()].into(), ..WritePlan::default() }), at(661));
        assert!(!ready(&tracker, 662), "a refusal counts immediately");
    }

    #[test]
    fn a_difference_with_changing_text_counts() {
        let mut tracker = ReportTracker::with_cache_age(Duration::from_secs(600));
        let mut is_ready = |second: i64| {
            let reason = format!("{second} rules are missing");
            let write = PlannedWrite::deletion("security_group", "/group".to_owned(), reason);
            let later = [format!("Service default/web: its {second} addresses")].into();
            tracker.observe(plan(WritePlan { writes: vec![write], later, ..WritePlan::default() }), at(second));
            let report = tracker.report(at(second)).unwrap();
            (report.is_ready, report.text)
        };
        for second in (0..1_200).step_by(60) {
            assert_eq!(is_ready(second).0, second >= 600, "{second}: it has not watched for long, then nothing is old");
        }
        let (ready, text) = is_ready(1_200);
        assert!(!ready && text.contains("1200 rules are missing (for 1200 s)"), "{text}");
        assert!(text.contains("its 1200 addresses (for 1200 s)"), "{text}");
    }

    #[test]
    fn report_tracks_since_when_each_line_exists() {
        let mut tracker = ReportTracker::default();
        let leftover = || WritePlan { writes: vec![removed("/a", true)], ..WritePlan::default() };
        let line = "leftover: DELETE /a: unused".to_owned();
        assert_eq!(tracker.observe(plan(leftover()), at(10)).appeared, std::slice::from_ref(&line));
        assert_eq!(tracker.observe(plan(leftover()), at(70)), PlanChanges::default());
        let text = tracker.report(at(100)).unwrap().text;
        let expected = "ready to switch: 0 writes planned, 1 leftovers would be removed\n  \
                        leftover: DELETE /a: unused (for 90 s)\n\
                        plan 2 of this process, made 30 s ago; nothing was written\n";
        assert_eq!(text, expected);
        assert_eq!(tracker.observe(plan(WritePlan::default()), at(130)).removed, [line]);
    }
}
