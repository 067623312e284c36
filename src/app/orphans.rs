//! Command `orphans`: doctor's findings of cloud resources tagged or named for the cluster that no Service owns.
//!
//! In: a manager's configuration. Out: resource, reason and removal command of each, as text or JSON; and an exit code: 0 for no
//! orphans, 2 for orphans, 1 if none were found but not everything could be read. It removes nothing.

use std::{collections::BTreeMap, process::ExitCode};

use serde_json::json;

use super::{
    app_error::AppError,
    doctor,
    process::{on_runtime, print},
};
use crate::{
    cli::DiagnoseOptions,
    cloud_provider::{
        Registry,
        diagnostics::{Examination, OrphanReport, OrphanedResource},
    },
};

pub(super) fn run(registry: &Registry, options: &DiagnoseOptions) -> Result<ExitCode, AppError> {
    let Examination { orphans: report, .. } = on_runtime(async |_| doctor::examine(registry, options).await)?;
    Ok(print(&shown(&report, options.json), ExitCode::from(code(&report))))
}

pub(super) fn shown(report: &OrphanReport, json: bool) -> String {
    if json {
        return format!(
            "{:#}",
            json!({"complete": report.unread.is_empty(), "orphans": report.orphans, "unread": report.unread})
        );
    }
    let mut text = String::new();
    if !report.unread.is_empty() {
        text += "INCOMPLETE: this could not be read, and may hide orphans:\n";
        text.extend(report.unread.iter().map(|line| format!("  {line}\n")));
    }
    text += &by_service(&report.orphans);
    if !report.orphans.is_empty() {
        text += "Remove them in this order:\n";
        text.extend(report.orphans.iter().map(|orphan| format!("  {}\n", orphan.removal)));
    }
    text + &match (report.orphans.len(), report.unread.is_empty()) {
        (0, true) => "no orphans\n".to_owned(),
        (0, false) => "no orphans in the part that could be read\n".to_owned(),
        (count, _) => format!("{count} orphans; nothing was removed\n"),
    }
}

/// Groups the resources by deleted Service, followed by those without one.
fn by_service(orphans: &[OrphanedResource]) -> String {
    let mut groups: BTreeMap<(bool, &str), Vec<&OrphanedResource>> = BTreeMap::new();
    for orphan in orphans {
        let service = orphan.service.as_deref();
        groups.entry((service.is_none(), service.unwrap_or("of no single Service"))).or_default().push(orphan);
    }
    let resource = |orphan: &&OrphanedResource| format!("  {} {}\n    why: {}\n", orphan.kind, orphan.id, orphan.reason);
    let group = |((_, service), orphans): ((bool, &str), Vec<&OrphanedResource>)| {
        format!("{service}: {} resources\n{}", orphans.len(), orphans.iter().map(resource).collect::<String>())
    };
    groups.into_iter().map(group).collect()
}

fn code(report: &OrphanReport) -> u8 {
    match (report.orphans.is_empty(), report.unread.is_empty()) {
        (false, _) => 2,
        (true, false) => 1,
        (true, true) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_reads_are_never_reported_as_no_orphans() {
        let orphan = OrphanedResource {
            kind: "public_ip",
            id: "/x".to_owned(),
            service: Some("a/b".to_owned()),
            services: vec!["a/b".to_owned()],
            reason: "a/b is gone".to_owned(),
            removal: "az …".to_owned(),
        };
        for (orphans, unread, expected_code, ending) in [
            (vec![], vec![], 0, "no orphans\n"),
            (vec![], vec!["public IPs: 403".to_owned()], 1, "no orphans in the part that could be read\n"),
            (vec![orphan.clone()], vec!["public IPs: 403".to_owned()], 2, "1 orphans; nothing was removed\n"),
            (
                vec![orphan],
                vec![],
                2,
                "a/b: 1 resources\n  public_ip /x\n    why: a/b is gone\nRemove them in this order:\n  az …\n1 orphans; nothing was removed\n",
            ),
        ] {
            let report = OrphanReport { orphans, unread };
            let text = shown(&report, false);
            assert!(code(&report) == expected_code && text.ends_with(ending), "{text}");
            assert_eq!(text.starts_with("INCOMPLETE: "), !report.unread.is_empty(), "{text}");
            assert!(shown(&report, true).contains(&format!("\"complete\": {}", report.unread.is_empty())));
        }
    }
}
