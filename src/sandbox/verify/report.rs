//! The report of a run, in Markdown and JSON. Pure.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{play::RowVerdict, table::Assumption};

/// A row and its result.
#[derive(Debug, Clone)]
pub struct PlayedRow {
    pub row: Assumption,
    pub verdict: RowVerdict,
}

/// Results of all rows of a run.
#[derive(Debug, Clone)]
pub struct RunReport {
    pub endpoint: String,
    pub group: String,
    pub location: String,
    /// Time of the end, in the format of RFC 3339.
    pub finished: String,
    pub rows: Vec<PlayedRow>,
    /// Resources that could not be deleted.
    pub leftovers: Option<String>,
}

impl RunReport {
    pub fn count(&self, is_so: impl Fn(&RowVerdict) -> bool) -> usize {
        self.rows.iter().filter(|row| is_so(&row.verdict)).count()
    }

    /// Returns the counts of results on one line.
    pub fn summary(&self) -> String {
        let failed = self.count(|verdict| matches!(verdict, RowVerdict::Wrong { .. }));
        let holds = self.count(|verdict| *verdict == RowVerdict::Holds);
        let not_played = self.count(|verdict| matches!(verdict, RowVerdict::NotPlayed(_)));
        let interrupted = self.count(|verdict| *verdict == RowVerdict::Interrupted);
        let mut text =
            format!("{holds} of {} beliefs hold, {failed} are wrong, {not_played} could not be played", self.rows.len());
        if interrupted > 0 {
            let _ = write!(text, ", {interrupted} were interrupted");
        }
        text
    }

    /// Returns the exit code: 0 if every belief holds, 1 if one is wrong, 2 if a row was not played or a resource not
    /// deleted, 130 after an interruption.
    pub fn exit_code(&self) -> u8 {
        let has = |is_so: fn(&RowVerdict) -> bool| self.count(is_so) > 0;
        if has(|verdict| *verdict == RowVerdict::Interrupted) {
            130
        } else if has(|verdict| matches!(verdict, RowVerdict::Wrong { .. })) {
            1
        } else if has(|verdict| matches!(verdict, RowVerdict::NotPlayed(_)))
            || self.leftovers.is_some()
            || self.rows.is_empty()
        {
            2
        } else {
            0
        }
    }

    pub fn markdown(&self) -> String {
        let mut text = format!(
            "# Assumptions about Azure\n\n{}.\n\n- Endpoint: `{}`\n- Resource group: `{}`\n- Region: `{}`\n- Finished: {}\n",
            self.summary(),
            self.endpoint,
            self.group,
            self.location,
            self.finished
        );
        if let Some(leftovers) = &self.leftovers {
            let _ = write!(text, "\n## Not deleted\n\n```text\n{leftovers}\n```\n");
        }
        self.section(&mut text, "Wrong beliefs", |verdict| matches!(verdict, RowVerdict::Wrong { .. }));
        self.section(&mut text, "Not played", |verdict| matches!(verdict, RowVerdict::NotPlayed(_)));
        self.section(&mut text, "Interrupted", |verdict| *verdict == RowVerdict::Interrupted);
        self.section(&mut text, "Beliefs that hold", |verdict| *verdict == RowVerdict::Holds);
        text
    }

    fn section(&self, text: &mut String, title: &str, belongs: impl Fn(&RowVerdict) -> bool) {
        let mut rows = self.rows.iter().filter(|row| belongs(&row.verdict)).peekable();
        if rows.peek().is_none() {
            return;
        }
        let _ = write!(text, "\n## {title}\n\n");
        for PlayedRow { row, verdict } in rows {
            let (kind, evidence) = row.source.parts();
            let _ = writeln!(text, "- **{}** ({}): {} Source: {kind}, {evidence}.", row.id, row.topic, row.belief);
            match verdict {
                RowVerdict::Wrong { request, differences, request_id } => {
                    for difference in differences {
                        let _ = writeln!(
                            text,
                            "  - `{request}`: {}: expected `{}`, found `{}`",
                            difference.subject, difference.expected, difference.found
                        );
                    }
                    if !request_id.is_empty() {
                        let _ = writeln!(text, "  - `x-ms-request-id`: {request_id}");
                    }
                }
                RowVerdict::NotPlayed(reason) => {
                    let _ = writeln!(text, "  - {reason}");
                }
                RowVerdict::Holds | RowVerdict::Interrupted => {}
            }
        }
    }

    pub fn json(&self) -> Value {
        let row = |played: &PlayedRow| {
            let (kind, evidence) = played.row.source.parts();
            let mut value = json!({
                "id": played.row.id, "topic": played.row.topic, "belief": played.row.belief,
                "source": {"kind": kind, "evidence": evidence}, "verdict": verdict_name(&played.verdict),
            });
            match &played.verdict {
                RowVerdict::Wrong { request, differences, request_id } => {
                    value["request"] = json!(request);
                    value["differences"] = json!(differences);
                    value["requestId"] = json!(request_id);
                }
                RowVerdict::NotPlayed(reason) => value["reason"] = json!(reason),
                RowVerdict::Holds | RowVerdict::Interrupted => {}
            }
            value
        };
        json!({
            "summary": self.summary(), "endpoint": self.endpoint, "resourceGroup": self.group, "location": self.location,
            "finished": self.finished, "notDeleted": self.leftovers, "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

fn verdict_name(verdict: &RowVerdict) -> &'static str {
    match verdict {
        RowVerdict::Holds => "holds",
        RowVerdict::Wrong { .. } => "wrong",
        RowVerdict::NotPlayed(_) => "not-played",
        RowVerdict::Interrupted => "interrupted",
    }
}
