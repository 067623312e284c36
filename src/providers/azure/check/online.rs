//! Online part of the check: whether there is a token, and whether ARM grants what will be needed.
//!
//! In: a valid configuration. Out: a line per finding. A grant is looked up, not tried, so nothing is written. Where ARM
//! does not list its grants, a read is tried instead and the rest is reported as unchecked. Of the subscription only the
//! zones of the region are read, and that is tried: a role on resource groups does not allow lookups of grants there.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use super::permissions::{PermissionGrant, RequiredPermission, ZONES, is_allowed, required_permissions};
use crate::{
    cloud_provider::registry::CheckReport,
    metrics::Metrics,
    providers::azure::{
        arm::{
            ApiType, ArmClient, ArmError, ArmErrorClass, ArmResult, ArmTransport, Budget, BudgetSettings, ResourceId,
            Urgency, api, spelling,
        },
        config::AzureConfig,
        load_balancer::zones::RegionZones,
        planner::load_balancer::settings::LoadBalancerSettings,
        session::{Session, SessionDeps},
    },
    runtime::{clock::Clock, leader_election::Leadership, store::InformerStore},
};

/// Lines of the report.
#[derive(Default)]
struct CheckReportLines {
    text: String,
    failed: bool,
}

impl CheckReportLines {
    fn ok(&mut self, line: &str) {
        let _ = writeln!(self.text, "ok: {line}");
    }
    fn warn(&mut self, line: &str) {
        let _ = writeln!(self.text, "warning: {line}");
    }
    fn fail(&mut self, line: &str) {
        self.failed = true;
        let _ = writeln!(self.text, "error: {line}");
    }
}

pub(super) async fn check(
    config: Arc<AzureConfig>,
    environment: BTreeMap<String, String>,
    transport: Arc<dyn ArmTransport>,
) -> CheckReport {
    let mut lines = CheckReportLines::default();
    match open_session(&config, environment, transport).await {
        Ok(session) => check_permissions(&session, &mut lines).await,
        Err(reason) => lines.fail(&reason),
    }
    CheckReport { text: lines.text, passed: !lines.failed }
}

/// Opens a session that leads nothing, and so writes nothing.
pub(in crate::providers::azure) async fn open_session(
    config: &Arc<AzureConfig>,
    environment: BTreeMap<String, String>,
    transport: Arc<dyn ArmTransport>,
) -> Result<Session, String> {
    let metrics = Arc::new(Metrics::new().map_err(|error| error.to_string())?);
    // A standby's leadership makes sure that nothing is written.
    let (_standby, leadership) = Leadership::channel();
    let budget = Budget::new(BudgetSettings::from(config.as_ref()), Arc::clone(&metrics), Clock::System);
    let surroundings = SessionDeps {
        transport,
        environment,
        budget,
        leadership: leadership.clone(),
        route_leadership: leadership,
        metrics,
        clock: Clock::System,
        nodes: InformerStore::default(),
    };
    Session::open(Arc::clone(config), &surroundings).await.map_err(|error| error.to_string())
}

async fn check_permissions(session: &Session, lines: &mut CheckReportLines) {
    let permissions = required_permissions(&session.config, session.cloud.azure_stack);
    for here in permissions.chunk_by(|item, other| item.scope == other.scope) {
        let Some(first) = here.first() else { continue };
        let scope = &first.scope;
        let own = spelling::same_name(scope.subscription(), &session.config.subscription_id);
        let client = if own { &session.compute } else { &session.network };
        let requested = if first.action == ZONES {
            check_zones(session, first, lines).await
        } else {
            check_scope(client, here, lines).await
        };
        match requested {
            Ok(()) => {}
            Err(error) if error.class == ArmErrorClass::Unauthorized => {
                return lines.fail(&format!("no token is accepted: {error}"));
            }
            Err(error) if error.status.is_none() && error.class != ArmErrorClass::MalformedAnswer => {
                return lines.fail(&format!(
                    "no answer: {error}; look at cloud, resourceManagerEndpoint, HTTPS_PROXY and the firewall"
                ));
            }
            Err(error) => lines.fail(&format!("{scope}: {error}")),
        }
    }
}

/// Looks up what is granted at the scope of these needs.
async fn check_scope(client: &ArmClient, permissions: &[RequiredPermission], lines: &mut CheckReportLines) -> ArmResult<()> {
    let Some(RequiredPermission { scope, .. }) = permissions.first() else { return Ok(()) };
    match grants(client, scope).await {
        Ok(grants) => compare_grants(scope, permissions, &grants, lines),
        Err(error) if error.class == ArmErrorClass::Forbidden => try_read(client, scope, permissions, lines).await,
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Reads the zones of the region as load balancers do.
async fn check_zones(session: &Session, need: &RequiredPermission, lines: &mut CheckReportLines) -> ArmResult<()> {
    let settings = LoadBalancerSettings::new(&session.config, "");
    let zones = RegionZones::new(session.network.clone(), &settings, session.cloud.azure_stack, Clock::System);
    match zones.zones(Urgency::Change).await {
        Ok(zones) => {
            let zones = if zones.is_empty() { "none".to_owned() } else { zones.join(", ") };
            lines.ok(&format!("{}: the zones of {} can be read: {zones}", need.scope, settings.location));
        }
        Err(error) if error.class == ArmErrorClass::Forbidden => lines.fail(&not_granted(need)),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Returns the grants that ARM lists at a scope.
pub(in crate::providers::azure) async fn grants(client: &ArmClient, scope: &ResourceId) -> ArmResult<Vec<PermissionGrant>> {
    let path = format!("{scope}/providers/{}", api::PERMISSIONS.resource_type);
    client.with_urgency(Urgency::Change).list(&api::PERMISSIONS, &path, &[]).await
}

/// Reports one line for a scope where all is granted, else one for each missing action.
fn compare_grants(
    scope: &ResourceId,
    permissions: &[RequiredPermission],
    grants: &[PermissionGrant],
    lines: &mut CheckReportLines,
) {
    let lacking: Vec<&RequiredPermission> = permissions.iter().filter(|need| !is_allowed(grants, need.action)).collect();
    if lacking.is_empty() {
        lines.ok(&format!("{scope}: all {} actions are granted", permissions.len()));
    }
    lacking.into_iter().for_each(|need| lines.fail(&not_granted(need)));
}

fn not_granted(need: &RequiredPermission) -> String {
    let RequiredPermission { scope, action, purpose } = need;
    format!("{scope}: {action} is not granted ({}); assign a role that has it", purpose.text())
}

/// Returns a kind whose list some need allows to read.
pub(in crate::providers::azure) fn readable_type(permissions: &[RequiredPermission]) -> Option<&'static ApiType> {
    let kind = |need: &RequiredPermission| {
        let name = need.action.strip_suffix("/read")?;
        // Types in types are listed below one of them.
        let is_top = name.split('/').count() == 2;
        api::ALL.iter().find(|kind| is_top && kind.resource_type == name).copied()
    };
    permissions.iter().find_map(kind)
}

/// Tries at least to read if ARM does not list its grants.
async fn try_read(client: &ArmClient, scope: &ResourceId, permissions: &[RequiredPermission], lines: &mut CheckReportLines) {
    let unrecognized = "what is granted ARM does not tell without Microsoft.Authorization/permissions/read";
    let Some(kind) = readable_type(permissions) else { return lines.warn(&format!("{scope}: {unrecognized}")) };
    let name = kind.resource_type;
    let tried: Result<Vec<serde::de::IgnoredAny>, ArmError> =
        client.with_urgency(Urgency::Change).list(kind, &format!("{scope}/providers/{name}"), &[]).await;
    match tried {
        Ok(_) => lines.warn(&format!("{scope}: {name} can be read; {unrecognized}")),
        Err(error) => lines.fail(&format!("{scope}: {error}")),
    }
}
