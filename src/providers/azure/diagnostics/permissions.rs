//! Checks whether the identity has the permissions that the configuration needs.
//!
//! In: a session. Out: a finding for reads and one for writes, or findings that name each action that is missing at a scope.
//! Grants are looked up, not tested; if ARM does not list them, a read is tested, and writes remain unknown. Of the
//! subscription only the zones of the region are needed, and that read is tested, because a role on resource groups does not
//! allow lookups of grants there.

use super::checks::{READS, WRITES};
use crate::{
    cloud_provider::diagnostics::DiagnosticFinding,
    providers::azure::{
        arm::{ArmClient, Urgency},
        check::{self, PermissionGrant, RequiredPermission},
        load_balancer::zones::RegionZones,
        model::{ApiType, ArmErrorClass, ArmResult, ResourceId, api, spelling},
        planner::load_balancer::settings::LoadBalancerSettings,
        session::Session,
    },
    runtime::clock::Clock,
};

/// Maximum number of actions in a finding: more would exceed the length of its text.
const ACTIONS: usize = 5;

const READER: &str = "assign the identity a role that reads this scope, such as Reader";
const NETWORK_CONTRIBUTOR: &str = "assign the identity a role that has it at this scope: Network Contributor, and Virtual Machine Contributor for machines";

pub(super) async fn examine(session: &Session, findings: &mut Vec<DiagnosticFinding>) {
    let needed = check::required_permissions(&session.config, session.cloud.azure_stack);
    let (mut found, mut is_all_listed) = (Vec::new(), true);
    for here in needed.chunk_by(|item, other| item.scope == other.scope) {
        let Some(RequiredPermission { scope, .. }) = here.first() else { continue };
        if scope.resource_group().is_none() {
            found.extend(zones(session, here).await);
            continue;
        }
        let is_own = spelling::same_name(scope.subscription(), &session.config.subscription_id);
        let client = if is_own { &session.compute } else { &session.network };
        match grants(client, scope).await {
            Ok(grants) => found.extend(lacking(here, &grants)),
            Err(error) => {
                is_all_listed = false;
                match error.class {
                    ArmErrorClass::Forbidden => found.extend(try_read(client, scope, here).await),
                    ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound => {
                        let remedy =
                            "correct subscriptionId and the names of resource groups in azure.json, or create the group";
                        found.push(DiagnosticFinding::problem(READS, format!("{scope}: {error}"), remedy));
                    }
                    _ => found.push(DiagnosticFinding::undetermined(READS, error.to_string(), "try again later")),
                }
            }
        }
    }
    let reads = needed.iter().filter(|need| is_read(need)).count();
    let is_reported = |check: &str| found.iter().any(|finding| finding.check == check);
    let (has_reads, has_writes) = (is_reported(READS), is_reported(WRITES));
    findings.extend(found);
    if !has_reads {
        findings.push(DiagnosticFinding::ok(READS, format!("all {reads} actions that read are granted")));
    }
    if !has_writes && is_all_listed {
        let text = format!("all {} actions that write are granted", needed.len() - reads);
        findings.push(DiagnosticFinding::ok(WRITES, text));
    } else if !has_writes {
        findings.push(DiagnosticFinding::undetermined(WRITES, "what is granted could not be read", READER));
    }
}

fn is_read(need: &RequiredPermission) -> bool {
    need.action.ends_with("/read")
}

/// Returns the grants that ARM lists at a scope.
pub(super) async fn grants(client: &ArmClient, scope: &ResourceId) -> ArmResult<Vec<PermissionGrant>> {
    let path = format!("{scope}/providers/{}", api::PERMISSIONS.resource_type);
    client.with_urgency(Urgency::Change).list(&api::PERMISSIONS, &path, &[]).await
}

/// Reads the zones of the region as load balancers do. `needed`: the action for that.
async fn zones(session: &Session, needed: &[RequiredPermission]) -> Vec<DiagnosticFinding> {
    let settings = LoadBalancerSettings::new(&session.config, "");
    let zones = RegionZones::new(session.network.clone(), &settings, session.cloud.azure_stack, Clock::System);
    match zones.zones(Urgency::Change).await {
        Ok(_) => Vec::new(),
        Err(error) if error.class == ArmErrorClass::Forbidden => lacking(needed, &[]),
        Err(error) => vec![DiagnosticFinding::undetermined(READS, error.to_string(), "try again later")],
    }
}

/// Returns findings for the reads and for the writes that are not granted at a scope, by purpose: each names a few.
fn lacking(needed: &[RequiredPermission], grants: &[PermissionGrant]) -> Vec<DiagnosticFinding> {
    let lacking = needed.iter().filter(|need| !check::is_allowed(grants, need.action));
    let (reads, writes): (Vec<_>, Vec<_>) = lacking.partition(|need| is_read(need));
    let mut findings = Vec::new();
    for (check, remedy, lacking) in [(READS, READER, reads), (WRITES, NETWORK_CONTRIBUTOR, writes)] {
        let by_purpose = lacking.chunk_by(|item, other| item.purpose == other.purpose);
        for part in by_purpose.flat_map(|actions| actions.chunks(ACTIONS)) {
            let Some(RequiredPermission { scope, purpose, .. }) = part.first() else { continue };
            let actions: Vec<&str> = part.iter().map(|need| need.action).collect();
            let text = format!("not granted at {scope} ({}): {}", purpose.text(), actions.join(", "));
            findings.push(DiagnosticFinding::problem(check, text, remedy));
        }
    }
    findings
}

/// Tries at least to read if ARM does not list its grants.
async fn try_read(client: &ArmClient, scope: &ResourceId, needed: &[RequiredPermission]) -> Vec<DiagnosticFinding> {
    let unrecognized = "ARM does not list grants without Microsoft.Authorization/permissions/read";
    let remedy = "assign Reader at this scope to learn more, or compare the role with the reference by hand";
    let writes = DiagnosticFinding::undetermined(WRITES, format!("{scope}: {unrecognized}"), remedy);
    let Some(kind) = readable_type(needed) else {
        return vec![DiagnosticFinding::warning(READS, format!("{scope}: {unrecognized}"), remedy), writes];
    };
    let path = format!("{scope}/providers/{}", kind.resource_type);
    let tried: ArmResult<Vec<serde::de::IgnoredAny>> = client.with_urgency(Urgency::Change).list(kind, &path, &[]).await;
    let reads = match tried {
        Ok(_) => DiagnosticFinding::ok(READS, format!("{scope}: {} can be read", kind.resource_type)),
        Err(error) => DiagnosticFinding::problem(READS, format!("{scope}: {error}"), READER),
    };
    vec![reads, writes]
}

/// Returns a type whose list one of the permissions allows to read.
fn readable_type(permissions: &[RequiredPermission]) -> Option<&'static ApiType> {
    let kind = |need: &RequiredPermission| {
        let name = need.action.strip_suffix("/read")?;
        // Nested types can only be listed below one of their parents.
        let is_top = name.split('/').count() == 2;
        api::ALL.iter().find(|kind| is_top && kind.resource_type == name).copied()
    };
    permissions.iter().find_map(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::config::AzureConfig;

    #[test]
    fn each_missing_action_is_named_with_its_purpose() {
        let name = "x".repeat(90);
        let config = AzureConfig {
            subscription_id: "00000000-0000-0000-0000-000000000001".to_owned(),
            resource_group: name.clone(),
            route_table_name: "routes".to_owned(),
            security_group_name: "rules".to_owned(),
            vnet_name: "network".to_owned(),
            private_link_service_resource_group: name,
            ..AzureConfig::default()
        };
        let needed = check::required_permissions(&config, false);
        let findings = lacking(&needed, &[]);
        for need in &needed {
            let is_it = |finding: &&DiagnosticFinding| {
                let mut words = finding.text.split([' ', ',']);
                words.any(|word| word == need.action) && finding.text.contains(need.purpose.text())
            };
            let found = findings.iter().find(is_it);
            assert_eq!(found.map(|finding| finding.check), Some(if is_read(need) { READS } else { WRITES }), "{need:?}");
        }
    }
}
