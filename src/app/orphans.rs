//! The command `orphans`: resources in the cloud that carry the cluster's marks and belong to no Service.
//!
//! In: a manager's configuration. Out: what each is, why it is there and what removes it, as text or JSON; and an exit code: 0 nothing, 2
//! something, 1 nothing was found but not everything could be looked at. It removes nothing.

use std::process::ExitCode;

use serde_json::json;

use super::{
    doctor::{self, ClusterFacts},
    process::{fail, on_runtime, print},
};
use crate::{
    cli::{DiagnoseOptions, config::ManagerConfig},
    cloud_provider::{Registry, diagnostics::OrphanReport},
};

pub(super) fn run(registry: &Registry, options: &DiagnoseOptions) -> ExitCode {
    match on_runtime(async |_| look(registry, &options.manager).await) {
        Ok(report) => print(&shown(&report, options.json), ExitCode::from(code(&report))),
        Err(error) => fail(&error),
    }
}

/// Whatever can be seen.
pub(super) async fn look(registry: &Registry, manager: &ManagerConfig) -> OrphanReport {
    let Some(provider) = registry.diagnostics(&manager.cloud.provider) else {
        let told = format!("the cloud provider {:?} does not tell what it owns", manager.cloud.provider);
        return OrphanReport { unread: vec![told], ..OrphanReport::default() };
    };
    let client = doctor::client(manager, "orphans").await;
    let facts = match &client {
        Ok(client) => ClusterFacts::read(client, &manager.leader_election).await,
        Err(error) => ClusterFacts::unseen(&error.to_string()),
    };
    provider.orphans(&doctor::request(manager, client.ok(), facts)).await
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
        text += "INCOMPLETE: this could not be looked at, and may hide orphans:\n";
        text.extend(report.unread.iter().map(|line| format!("  {line}\n")));
    }
    for orphan in &report.orphans {
        text += &format!("{} {}\n  why: {}\n  removed by: {}\n", orphan.kind, orphan.id, orphan.reason, orphan.removal);
    }
    text + &match (report.orphans.len(), report.unread.is_empty()) {
        (0, true) => "no orphans\n".to_owned(),
        (0, false) => "no orphans where it could be looked\n".to_owned(),
        (count, _) => format!("{count} orphans; nothing was removed\n"),
    }
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
    use crate::cloud_provider::diagnostics::OrphanedResource;

    #[test]
    fn what_was_not_looked_at_is_never_told_as_none() {
        let orphan = OrphanedResource {
            kind: "public_ip",
            id: "/x".to_owned(),
            services: vec!["a/b".to_owned()],
            reason: "a/b is gone".to_owned(),
            removal: "az …".to_owned(),
        };
        for (orphans, unread, expected, told) in [
            (vec![], vec![], 0, "no orphans\n"),
            (vec![], vec!["public IPs: 403".to_owned()], 1, "no orphans where it could be looked\n"),
            (vec![orphan.clone()], vec!["public IPs: 403".to_owned()], 2, "1 orphans; nothing was removed\n"),
            (
                vec![orphan],
                vec![],
                2,
                "public_ip /x\n  why: a/b is gone\n  removed by: az …\n1 orphans; nothing was removed\n",
            ),
        ] {
            let report = OrphanReport { orphans, unread };
            let text = shown(&report, false);
            assert!(code(&report) == expected && text.ends_with(told), "{text}");
            assert_eq!(text.starts_with("INCOMPLETE: "), !report.unread.is_empty(), "{text}");
            assert!(shown(&report, true).contains(&format!("\"complete\": {}", report.unread.is_empty())));
        }
    }
}
