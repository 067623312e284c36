//! Azure's part of the commands `doctor`, `orphans`, `check-config` and `support-bundle`. Writes nothing.
//!
//! ```text
//! azure.json ─► session ─► access (credential, wire, clock) ─► permissions ─┬─► network (documents) ─┬─► verdicts
//!                                                             check-config ◄┘                        └─► orphans
//! ```
//! In: the manager's configuration, Nodes and Services. Out: findings by the checks of `checks`. Checks that
//! depend on a failed one are skipped: they have no finding, and the command shows them as not examined.

mod access;
mod checks;
mod network;
mod observer;
mod opened;
mod orphans;
mod permissions;
mod tenants;
#[cfg(all(test, feature = "sandbox"))]
#[expect(clippy::unwrap_used, reason = "a test ends where what it needs is missing")]
mod tests;
mod verdicts;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;

use super::{
    auth::ReqwestTransport,
    check,
    config::{AzureConfig, ConfigFinding, ConfigReport, EnvironmentOverrides, offline_report},
    config_source::ConfigLoader,
    load_balancer::lease::plan::NAME as LEASE_NAME,
    node,
    planner::load_balancer::{rule_records::CONFIG_MAP as RECORDS_NAME, settings::LoadBalancerSettings},
    provider::{environment, source},
    transport::{ArmTransport, ReadOnlyTransport},
};
use crate::cloud_provider::diagnostics::{
    CheckReport, DiagnosticCheck, DiagnosticFinding, DiagnosticRequest, Examination, FindingState, OrphanReport,
    ProviderDiagnostics,
};
use checks::{CHECKS, CONFIG};
use observer::ObservedTransport;
use opened::{OpenedCloud, open_session};

/// Rights for the calls of `load_balancer::lease`.
pub const RIGHTS: &[(&str, &str, &str, &str, &[&str])] = &[
    ("kube-system", "coordination.k8s.io", "leases", LEASE_NAME, &["get", "update"]),
    ("kube-system", "", "configmaps", "*", &["create"]),
    ("kube-system", "", "configmaps", RECORDS_NAME, &["get", "patch"]),
];

/// Diagnostics of the binary, or of a test with another transport. The default uses the network and the environment of the
/// process.
#[derive(Default)]
pub struct AzureDiagnostics {
    wire: Option<(BTreeMap<String, String>, Arc<dyn ArmTransport>)>,
}

impl AzureDiagnostics {
    /// Creates diagnostics with another transport and environment.
    pub fn over(transport: Arc<dyn ArmTransport>, environment: BTreeMap<String, String>) -> Self {
        Self { wire: Some((environment, transport)) }
    }

    fn wire(&self) -> Result<(BTreeMap<String, String>, Arc<ObservedTransport>), String> {
        let (environment, transport) = match &self.wire {
            Some((environment, transport)) => (environment.clone(), Arc::clone(transport)),
            None => {
                let environment = environment();
                let transport = ReqwestTransport::new(&environment).map_err(|error| error.to_string())?;
                (environment, Arc::new(transport) as Arc<dyn ArmTransport>)
            }
        };
        Ok((environment, Arc::new(ObservedTransport::new(Arc::new(ReadOnlyTransport(transport))))))
    }
}

#[async_trait]
impl ProviderDiagnostics for AzureDiagnostics {
    fn checks(&self) -> &'static [DiagnosticCheck] {
        CHECKS
    }

    fn rights(&self) -> &'static [(&'static str, &'static str, &'static str, &'static str, &'static [&'static str])] {
        RIGHTS
    }

    fn manages_node(&self, node: &Node) -> bool {
        node::is_azures(node)
    }

    async fn examine(&self, request: &DiagnosticRequest) -> Examination {
        let mut findings = Vec::new();
        let orphans = match self.examine_all(request, &mut findings).await {
            Some(report) => report,
            None => unread_report(&findings, request),
        };
        Examination { findings, orphans }
    }

    async fn check(&self, request: &DiagnosticRequest, is_online: bool, is_strict: bool) -> CheckReport {
        let mut findings = Vec::new();
        let loaded = self.load(request, is_strict, &mut findings).await;
        let configuration = loaded.as_ref().map(|loaded| effective_text(&loaded.config));
        if let Some(loaded) = loaded.filter(|_| is_online) {
            drop(loaded.open(&request.config.cluster_name, &mut findings).await);
        }
        CheckReport { findings: findings.into_iter().filter_map(verdicts::for_check).collect(), configuration }
    }

    async fn secrets(&self, request: &DiagnosticRequest) -> Vec<String> {
        let environment = self.wire().map(|(environment, _)| environment).unwrap_or_default();
        let texts = loader(request, &EnvironmentOverrides::of(environment)).texts().await;
        texts.map(|texts| verdicts::secrets([texts.file, texts.secret].into_iter().flatten())).unwrap_or_default()
    }
}

impl AzureDiagnostics {
    /// Runs all checks, and searches for orphans. `None`: the findings name the reason why the search was impossible.
    async fn examine_all(&self, request: &DiagnosticRequest, findings: &mut Vec<DiagnosticFinding>) -> Option<OrphanReport> {
        let loaded = self.load(request, false, findings).await?;
        let cloud = loaded.open(&request.config.cluster_name, findings).await?;
        network::examine(&cloud, request, findings).await;
        Some(orphans::examine(&cloud, request, findings).await)
    }

    /// Reads the configuration. `None`: the findings say why it cannot be used.
    async fn load(
        &self,
        request: &DiagnosticRequest,
        is_strict: bool,
        findings: &mut Vec<DiagnosticFinding>,
    ) -> Option<LoadedCloud> {
        let (environment, wire) = match self.wire() {
            Ok(wire) => wire,
            Err(error) => {
                let remedy = "correct HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR";
                findings.push(DiagnosticFinding::problem(CONFIG, error, remedy));
                return None;
            }
        };
        let report = match report(request, environment.clone(), is_strict).await {
            Ok(report) => report,
            Err(error) => {
                let remedy = "give --cloud-config the manager's azure.json, or --cloud-config-secret-name its Secret";
                findings.push(DiagnosticFinding::problem(CONFIG, error, remedy));
                return None;
            }
        };
        findings.extend(verdicts::configuration(&report.findings));
        Some(LoadedCloud { config: Arc::new(report.config?), environment, wire })
    }
}

/// Valid configuration, and what is needed to open a session.
struct LoadedCloud {
    config: Arc<AzureConfig>,
    environment: BTreeMap<String, String>,
    wire: Arc<ObservedTransport>,
}

impl LoadedCloud {
    /// Builds clients, and checks whether Azure accepts the identity and which permissions that has. `None`: the findings
    /// name the reason.
    async fn open(self, cluster: &str, findings: &mut Vec<DiagnosticFinding>) -> Option<OpenedCloud> {
        let Self { config, environment, wire } = self;
        let settings = LoadBalancerSettings::new(&config, cluster);
        let transport: Arc<dyn ArmTransport> = Arc::<ObservedTransport>::clone(&wire);
        let session = match open_session(config, environment, transport).await {
            Ok(session) => session,
            Err(reason) => {
                findings.extend(access::failure(&reason, &wire));
                return None;
            }
        };
        let cloud = OpenedCloud { session, settings, wire };
        if !access::examine(&cloud, findings).await {
            return None;
        }
        permissions::examine(&cloud.session, findings).await;
        Some(cloud)
    }
}

/// Returns a report without orphans: `findings` say why nothing could be read.
fn unread_report(findings: &[DiagnosticFinding], request: &DiagnosticRequest) -> OrphanReport {
    let hinders = |finding: &&DiagnosticFinding| matches!(finding.state, FindingState::Problem | FindingState::Unknown);
    let cloud = findings.iter().filter(hinders).map(|finding| format!("Azure: {}", finding.text));
    let cluster = request.services.as_ref().err().map(|reason| format!("Services: {reason}"));
    OrphanReport { unread: cloud.chain(cluster).collect(), ..OrphanReport::default() }
}

/// Returns the effective configuration, without secrets, and the kinds that are watched because of it.
fn effective_text(config: &AzureConfig) -> String {
    let watched: String = check::watched(config).into_iter().map(|line| line + "\n").collect();
    format!("effective configuration:\n{:#}\n{watched}", config.effective())
}

/// Returns the effective configuration with its findings.
async fn report(
    request: &DiagnosticRequest,
    environment: BTreeMap<String, String>,
    is_strict: bool,
) -> Result<ConfigReport, String> {
    let environment = EnvironmentOverrides::of(environment);
    let texts = loader(request, &environment).texts().await.map_err(|error| error.to_string())?;
    let report = offline_report(&texts, &environment, is_strict);
    let more = |config: &AzureConfig| check::lacking(config, &request.config.cluster_name, request.routes);
    let lacking: Vec<ConfigFinding> = report.config.as_ref().map(more).unwrap_or_default();
    Ok(report.with_findings(lacking, is_strict))
}

fn loader(request: &DiagnosticRequest, environment: &EnvironmentOverrides) -> ConfigLoader {
    ConfigLoader {
        source: source(&request.config),
        client: request.client.clone(),
        environment: environment.clone(),
        is_strict: false,
    }
}
