//! Checks whether the identity has the permissions that the configuration needs.
//!
//! In: a session. Out: a finding for reads and one for writes, or one for each role that is missing at a scope. A grant is
//! looked up, not tried; where ARM does not list its grants, a read is tried, and writes remain unknown.

use super::checks::{READS, WRITES};
use crate::{
    cloud_provider::diagnostics::DiagnosticFinding,
    providers::azure::{
        arm::{ArmClient, ArmErrorClass, ArmResult, Urgency, spelling},
        check::{self, PermissionGrant, RequiredPermission},
        session::Session,
    },
};

/// Most actions that a finding names.
const TOLD: usize = 10;

const READER: &str = "assign the identity a role that reads this scope, such as Reader";
const NETWORK_CONTRIBUTOR: &str = "assign the identity a role that has it at this scope: Network Contributor, and Virtual Machine Contributor for machines";

pub(super) async fn examine(session: &Session, findings: &mut Vec<DiagnosticFinding>) {
    let needed = check::required_permissions(&session.config, session.cloud.azure_stack);
    let before = findings.len();
    let mut counts = (0, 0);
    for here in needed.chunk_by(|item, other| item.scope == other.scope) {
        let Some(first) = here.first() else { continue };
        // A role on resource groups does not allow to look up grants of the subscription.
        if first.scope.resource_group().is_none() {
            continue;
        }
        let is_own = spelling::same_name(first.scope.subscription(), &session.config.subscription_id);
        let client = if is_own { &session.compute } else { &session.network };
        let reads = here.iter().filter(|need| is_read(need)).count();
        counts = (counts.0 + reads, counts.1 + here.len() - reads);
        match check::grants(client, &first.scope).await {
            Ok(grants) => findings.extend(lacking(here, &grants)),
            Err(error) if error.class == ArmErrorClass::Forbidden => findings.extend(try_read(client, here).await),
            Err(error) if matches!(error.class, ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound) => {
                let remedy = "correct subscriptionId and the names of resource groups in azure.json, or create the group";
                findings.push(DiagnosticFinding::problem(READS, format!("{}: {error}", first.scope), remedy));
            }
            Err(error) => findings.push(DiagnosticFinding::unknown(READS, error.to_string(), "try again later")),
        }
    }
    let is_reported = |check: &str| findings.iter().skip(before).any(|finding| finding.check == check);
    let (reads_reported, writes_reported) = (is_reported(READS), is_reported(WRITES));
    if !reads_reported {
        findings.push(DiagnosticFinding::ok(READS, format!("all {} actions that read are granted", counts.0)));
    }
    if !writes_reported && reads_reported {
        findings.push(DiagnosticFinding::unknown(WRITES, "what is granted could not be read", READER));
    } else if !writes_reported {
        findings.push(DiagnosticFinding::ok(WRITES, format!("all {} actions that write are granted", counts.1)));
    }
}

fn is_read(need: &RequiredPermission) -> bool {
    need.action.ends_with("/read")
}

/// Returns one finding for the reads that are not granted at a scope, and one for the writes: each is one role to assign.
fn lacking(needed: &[RequiredPermission], grants: &[PermissionGrant]) -> Vec<DiagnosticFinding> {
    let lacking = needed.iter().filter(|need| !check::is_allowed(grants, need.action));
    let (reads, writes): (Vec<_>, Vec<_>) = lacking.partition(|need| is_read(need));
    let of_role = |check, remedy, lacking: &[&RequiredPermission]| {
        let first = lacking.first()?;
        let named: Vec<&str> = lacking.iter().take(TOLD).map(|need| need.action).collect();
        let more = lacking.len().saturating_sub(TOLD);
        let more = if more > 0 { format!(" and {more} more (`check-config --online` lists them)") } else { String::new() };
        let text = format!("{} actions are not granted at {}: {}{more}", lacking.len(), first.scope, named.join(", "));
        Some(DiagnosticFinding::problem(check, text, remedy))
    };
    of_role(READS, READER, &reads).into_iter().chain(of_role(WRITES, NETWORK_CONTRIBUTOR, &writes)).collect()
}

async fn try_read(client: &ArmClient, needed: &[RequiredPermission]) -> Vec<DiagnosticFinding> {
    let Some(scope) = needed.first().map(|need| &need.scope) else { return Vec::new() };
    let unrecognized = "ARM does not tell what is granted without Microsoft.Authorization/permissions/read";
    let remedy = "assign Reader at this scope to learn more, or compare the role with the reference by hand";
    let writes = DiagnosticFinding::unknown(WRITES, format!("{scope}: {unrecognized}"), remedy);
    let Some(kind) = check::readable_type(needed) else { return vec![writes] };
    let path = format!("{scope}/providers/{}", kind.resource_type);
    let tried: ArmResult<Vec<serde::de::IgnoredAny>> = client.with_urgency(Urgency::Change).list(kind, &path, &[]).await;
    match tried {
        Ok(_) => vec![writes],
        Err(error) => vec![DiagnosticFinding::problem(READS, error.to_string(), READER), writes],
    }
}
