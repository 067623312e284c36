//! Consistency of the credential's fields. Order of the kinds: `pkg/azclient/auth.go`.

use super::super::{choices::CloudConfigType, environment::variables, fields::AzureConfig, finding::FindingCollector};

/// Names that `cloud` may have; any other is the public cloud. Upstream: `pkg/azclient/cloud.go`.
const CLOUDS: &[&str] =
    &["AzurePublicCloud", "AzureCloud", "AzureChinaCloud", "AzureUSGovernment", "AzureUSGovernmentCloud", "AzureStackCloud"];

/// Returns `true` if the configuration names any credential.
pub fn has_credentials(config: &AzureConfig) -> bool {
    config.use_federated_workload_identity_extension
        || config.use_managed_identity_extension
        || [&config.aad_client_secret, &config.aad_client_cert_path, &config.aad_msi_data_plane_identity_path]
            .iter()
            .any(|value| !value.is_empty())
}

pub(super) fn check(config: &AzureConfig, findings: &mut FindingCollector) {
    cloud(config, findings);
    parts(config, findings);
    other_tenant(config, findings);
    let can_do_without = config.use_instance_metadata || config.cloud_config_type != CloudConfigType::File;
    findings.error_if(
        !has_credentials(config) && !can_do_without,
        "cloudConfigType",
        "with cloudConfigType file a credential is required: set useManagedIdentityExtension, \
         useFederatedWorkloadIdentityExtension, aadClientSecret, aadClientCertPath or aadMSIDataPlaneIdentityPath; or set \
         useInstanceMetadata",
    );
    findings.warn_if(
        !has_credentials(config) && can_do_without,
        "",
        "no credential: set useManagedIdentityExtension, useFederatedWorkloadIdentityExtension, aadClientSecret, \
         aadClientCertPath or aadMSIDataPlaneIdentityPath; every request will be refused without one",
    );
}

fn cloud(config: &AzureConfig, findings: &mut FindingCollector) {
    let name = config.cloud.trim();
    let is_known = CLOUDS.iter().any(|existing| existing.eq_ignore_ascii_case(name));
    let endpoint = &config.resource_manager_endpoint;
    findings.warn_if(
        !is_known && endpoint.is_empty(),
        "cloud",
        &format!("expected one of {}; any other name counts as AzurePublicCloud", CLOUDS.join(", ")),
    );
    let is_url = endpoint.parse::<http::Uri>().is_ok_and(|url| {
        matches!(url.scheme_str(), Some("https" | "http"))
            && url.authority().is_some_and(|host| !host.as_str().contains('@'))
    });
    findings.error_if(
        !endpoint.is_empty() && !is_url,
        "resourceManagerEndpoint",
        "expected a URL such as https://management.local.azurestack.external, without user or password",
    );
}

/// Checks the fields that the first credential in order needs in addition.
fn parts(config: &AzureConfig, findings: &mut FindingCollector) {
    let kind = if config.use_federated_workload_identity_extension {
        "useFederatedWorkloadIdentityExtension"
    } else if config.use_managed_identity_extension {
        return;
    } else if !config.aad_client_secret.is_empty() {
        "aadClientSecret"
    } else if !config.aad_client_cert_path.is_empty() {
        "aadClientCertPath"
    } else {
        return;
    };
    let required = |variable: &str| format!("is required with {kind}: set it or the environment variable {variable}");
    findings.error_if(config.tenant_id.is_empty(), "tenantId", &required(variables::TENANT_ID));
    findings.error_if(config.aad_client_id.is_empty(), "aadClientId", &required(variables::CLIENT_ID));
    findings.error_if(
        config.use_federated_workload_identity_extension && config.aad_federated_token_file.is_empty(),
        "aadFederatedTokenFile",
        &required(variables::FEDERATED_TOKEN_FILE),
    );
    findings.warn_if(
        !config.user_assigned_identity_id.is_empty(),
        "userAssignedIdentityID",
        "has an effect only with useManagedIdentityExtension, and no credential before it",
    );
}

fn other_tenant(config: &AzureConfig, findings: &mut FindingCollector) {
    let tenant = &config.network_resource_tenant_id;
    let is_other = !tenant.is_empty() && !tenant.eq_ignore_ascii_case(&config.tenant_id);
    let uses_identity = config.use_managed_identity_extension && !config.use_federated_workload_identity_extension;
    findings.error_if(
        is_other && uses_identity && config.auxiliary_token_provider.is_none(),
        "auxiliaryTokenProvider",
        "is required with useManagedIdentityExtension when networkResourceTenantID is not tenantId",
    );
    if let Some(provider) = &config.auxiliary_token_provider {
        let parts = [&provider.subscription_id, &provider.resource_group, &provider.vault_name, &provider.secret_name];
        findings.error_if(
            parts.iter().any(|part| part.is_empty()),
            "auxiliaryTokenProvider",
            "needs all of subscriptionID, resourceGroup, vaultName and secretName",
        );
    }
}
