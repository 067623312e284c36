//! Output of a [`StatusView`] as text. Pure.
//!
//! In: the findings. Out: text in columns. Failed reads come first.

use super::view::{LeaseView, StatusView};
use crate::cli::VERSION;

/// Maximum number of rows of a table.
const MAX_ROWS: usize = 200;

pub(super) fn text(view: &StatusView) -> String {
    let mut text = String::new();
    if !view.unseen.is_empty() {
        text += "INCOMPLETE: this could not be read:\n";
        text.extend(view.unseen.iter().map(|line| format!("  {line}\n")));
    }
    if let Some(lease) = &view.lease {
        text += &format!("Leader: {}\n", leader(lease));
    }
    if let (Some(source), Some(leading)) = (&view.source, view.leading) {
        let version = version(view.version.as_deref());
        text += &format!("Page of: {source}, which {}{version}\n", if leading { "leads" } else { "does not lead" });
    }
    text.extend(view.problems.iter().map(|line| format!("Problem: {line}\n")));
    match &view.object {
        Some(object) => {
            text.extend(object.facts.iter().map(|(name, value)| format!("{name}: {value}\n")));
            let event = |event: &super::view::EventView| {
                let at = event.at.clone().unwrap_or_else(|| "-".to_owned());
                [at, event.kind.clone(), event.reason.clone(), format!("x{}", event.count), event.message.clone()]
            };
            text += &table("Events", ["TIME", "TYPE", "REASON", "COUNT", "MESSAGE"], object.events.iter().map(event));
        }
        None if view.source.is_none() => text += "Controllers: not read\n",
        None => {
            let rows = view
                .controllers
                .iter()
                .map(|controller| [controller.name.clone(), controller.waiting.to_string(), controller.state.clone()]);
            text += &table("Controllers", ["NAME", "WAITING", "STATE"], rows);
        }
    }
    if view.source.is_some() {
        let rows = view.waiting.iter().map(|row| {
            let failures = row.failures.to_string();
            [row.key.clone(), row.controller.clone(), row.state.clone(), failures, row.reason.clone()]
        });
        text += &table("Waiting", ["KEY", "CONTROLLER", "STATE", "FAILURES", "REASON"], rows);
        let rows = view.drift.iter().map(|row| {
            let about = if row.about.is_empty() { "-" } else { &row.about };
            [row.found.to_string(), about.to_owned(), row.outcome.as_str().to_owned(), row.detail.clone()]
        });
        text += &table("External changes", ["FOUND", "NAME", "OUTCOME", "WHAT"], rows);
    }
    text
}

/// Returns the manager's version, if it differs from this command's.
fn version(manager: Option<&str>) -> String {
    let other = manager.filter(|version| *version != VERSION);
    other.map(|version| format!("; it is version {version}, this command {VERSION}")).unwrap_or_default()
}

fn leader(lease: &LeaseView) -> String {
    let Some(holder) = &lease.holder else { return "none, the lease has no holder".to_owned() };
    let age = lease.renewed_seconds_ago.map(|age| format!("renewed {age} s ago")).unwrap_or_default();
    let expired = if lease.is_held { "" } else { ", EXPIRED" };
    format!("{holder} ({age}{expired})")
}

/// Formats a heading, and columns as wide as their widest cell.
fn table<const N: usize>(heading: &str, names: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = rows.collect();
    if rows.is_empty() {
        return format!("{heading}: none\n");
    }
    let shown = rows.iter().take(MAX_ROWS).map(|row| row.each_ref().map(String::as_str));
    let all: Vec<[&str; N]> = std::iter::once(names).chain(shown).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[&str; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect::<Vec<_>>();
        format!("  {}\n", cells.join("  ").trim_end())
    };
    let mut text = format!("{heading}\n{}", all.iter().map(line).collect::<String>());
    if rows.len() > MAX_ROWS {
        text += &format!("  and {} more; -o json has all\n", rows.len() - MAX_ROWS);
    }
    text
}
