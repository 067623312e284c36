//! Credential that the configuration selects. Pure.
//!
//! In: the configuration, with the environment's overrides. Out: a [`CredentialConfig`], or the missing field. Upstream, for the
//! order: `pkg/azclient/auth.go`, `auth_conf.go`.

use azure_core::credentials::Secret;

use super::{AuthError, cloud::CloudEndpoints};
use crate::providers::azure::config::{AuxiliaryTokenProvider, AzureConfig, variables};

/// Credential with its settings, in order of precedence.
#[derive(Debug, Clone, PartialEq)]
pub enum CredentialConfig {
    /// Projected service account token, which is exchanged for Entra tokens.
    WorkloadIdentity {
        application: EntraApplication,
        /// Path of the projected token.
        token_file: String,
    },
    /// Managed identity of the machine.
    ManagedIdentity {
        identity: ManagedIdentityId,
        /// Provider of the token for the network tenant, only in multi-tenant mode.
        auxiliary: Option<AuxiliaryTokenProvider>,
    },
    /// Service principal with a secret.
    ClientSecret {
        application: EntraApplication,
        secret: Secret,
        /// Tenant of the network resources; only in multi-tenant mode.
        network_tenant: Option<String>,
    },
    /// Service principal with a certificate.
    ClientCertificate {
        application: EntraApplication,
        /// Path of a PEM or PFX file.
        path: String,
        /// Password of the PFX file.
        password: Secret,
        /// Tenant of the network resources; only in multi-tenant mode.
        network_tenant: Option<String>,
    },
    /// File of a data-plane user-assigned identity.
    DataPlane { path: String },
    /// No credential: every request fails until one is configured.
    NoCredential,
}

/// Application registered in a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntraApplication {
    pub tenant: String,
    pub client_id: String,
}

/// Selector of a managed identity of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagedIdentityId {
    System,
    /// User-assigned identity, by client ID.
    Client(String),
    /// User-assigned identity, by ARM resource ID.
    Resource(String),
    /// User-assigned identity, by object (principal) ID.
    Object(String),
}

impl ManagedIdentityId {
    /// Parses `userAssignedIdentityID`: a client ID, a resource ID, or `objectId=<object ID>`; empty for the system-assigned identity.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        match text.split_once('=') {
            Some((kind, id)) if kind.eq_ignore_ascii_case("objectId") => Self::Object(id.to_owned()),
            _ if text.is_empty() => Self::System,
            _ if text.to_ascii_lowercase().contains("/subscriptions/") => Self::Resource(text.to_owned()),
            _ => Self::Client(text.to_owned()),
        }
    }
}

/// Returns the first credential that the configuration enables.
///
/// # Errors
///
/// Fails if a field is missing that this credential needs.
pub fn choose_credential(config: &AzureConfig, cloud: &CloudEndpoints) -> Result<CredentialConfig, AuthError> {
    let network_tenant = network_tenant(config);
    let application = |by: &str| {
        let tenant = match cloud.adfs {
            true => "adfs".to_owned(),
            false => required("tenantId", variables::TENANT_ID, &config.tenant_id, by)?,
        };
        let client_id = required("aadClientId", variables::CLIENT_ID, &config.aad_client_id, by)?;
        Ok::<_, AuthError>(EntraApplication { tenant, client_id })
    };

    if config.use_federated_workload_identity_extension {
        let (by, file) = ("workload identity", &config.aad_federated_token_file);
        return Ok(CredentialConfig::WorkloadIdentity {
            application: application(by)?,
            token_file: required("aadFederatedTokenFile", variables::FEDERATED_TOKEN_FILE, file, by)?,
        });
    }
    if config.use_managed_identity_extension {
        return managed(config, network_tenant.is_some());
    }
    if !config.aad_client_secret.is_empty() {
        return Ok(CredentialConfig::ClientSecret {
            application: application("aadClientSecret")?,
            secret: Secret::new(config.aad_client_secret.clone()),
            network_tenant,
        });
    }
    if !config.aad_client_cert_path.is_empty() {
        return Ok(CredentialConfig::ClientCertificate {
            application: application("aadClientCertPath")?,
            path: config.aad_client_cert_path.clone(),
            password: Secret::new(config.aad_client_cert_password.clone()),
            network_tenant,
        });
    }
    if !config.aad_msi_data_plane_identity_path.is_empty() {
        return Ok(CredentialConfig::DataPlane { path: config.aad_msi_data_plane_identity_path.clone() });
    }
    Ok(CredentialConfig::NoCredential)
}

/// Returns the trimmed value of `field`, or an error that names `variable` as the alternative.
fn required(field: &str, variable: &str, value: &str, by: &str) -> Result<String, AuthError> {
    match value.trim() {
        "" => {
            let message = format!("needed by {by}; set it, or {variable} in the environment");
            Err(AuthError::configuration(field, message))
        }
        value => Ok(value.to_owned()),
    }
}

/// Returns the tenant of the network resources in multi-tenant mode, in which it differs from the tenant of the machines.
fn network_tenant(config: &AzureConfig) -> Option<String> {
    let network = config.network_resource_tenant_id.trim();
    (!network.is_empty() && !network.eq_ignore_ascii_case(config.tenant_id.trim())).then(|| network.to_owned())
}

/// Returns the managed identity. The validation of the configuration checks the parts of `auxiliaryTokenProvider`.
fn managed(config: &AzureConfig, multi_tenant: bool) -> Result<CredentialConfig, AuthError> {
    let auxiliary = config.auxiliary_token_provider.clone().filter(|_| multi_tenant);
    if multi_tenant && auxiliary.is_none() {
        let message = "needed when networkResourceTenantID is not tenantId and a managed identity is used";
        return Err(AuthError::configuration("auxiliaryTokenProvider", message));
    }
    let identity = ManagedIdentityId::parse(&config.user_assigned_identity_id);
    Ok(CredentialConfig::ManagedIdentity { identity, auxiliary })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> AzureConfig {
        AzureConfig {
            tenant_id: "tenant".to_owned(),
            aad_client_id: "client".to_owned(),
            aad_client_secret: "planted-secret".to_owned(),
            aad_client_cert_path: "/cert.pfx".to_owned(),
            aad_client_cert_password: "planted-password".to_owned(),
            use_managed_identity_extension: true,
            aad_federated_token_file: "/token".to_owned(),
            use_federated_workload_identity_extension: true,
            aad_msi_data_plane_identity_path: "/identity".to_owned(),
            ..AzureConfig::default()
        }
    }

    fn chosen(config: &AzureConfig) -> Result<CredentialConfig, AuthError> {
        choose_credential(config, &CloudEndpoints::named(""))
    }

    #[test]
    fn the_first_enabled_credential_is_chosen() {
        let mut config = all();
        assert!(matches!(chosen(&config), Ok(CredentialConfig::WorkloadIdentity { .. })));
        config.use_federated_workload_identity_extension = false;
        // A token file alone does not enable workload identity.
        assert!(matches!(chosen(&config), Ok(CredentialConfig::ManagedIdentity { .. })));
        config.use_managed_identity_extension = false;
        assert!(matches!(chosen(&config), Ok(CredentialConfig::ClientSecret { .. })));
        config.aad_client_secret.clear();
        assert!(matches!(chosen(&config), Ok(CredentialConfig::ClientCertificate { .. })));
        config.aad_client_cert_path.clear();
        assert_eq!(chosen(&config), Ok(CredentialConfig::DataPlane { path: "/identity".to_owned() }));
        config.aad_msi_data_plane_identity_path.clear();
        assert_eq!(chosen(&config), Ok(CredentialConfig::NoCredential));
    }

    #[test]
    fn a_missing_field_is_named() {
        type Change<'a> = (&'a dyn Fn(&mut AzureConfig), &'static str);
        let multi_tenant = |config: &mut AzureConfig| {
            config.use_federated_workload_identity_extension = false;
            config.network_resource_tenant_id = "other".to_owned();
        };
        let changes: [Change<'_>; 4] = [
            (&|config| config.tenant_id.clear(), "tenantId"),
            (&|config| config.aad_client_id.clear(), "aadClientId"),
            (&|config| config.aad_federated_token_file.clear(), "aadFederatedTokenFile"),
            (&multi_tenant, "auxiliaryTokenProvider"),
        ];
        for (change, field) in changes {
            let mut config = all();
            change(&mut config);
            let error = chosen(&config).unwrap_err();
            assert!(matches!(&error, AuthError::Configuration { field: named, .. } if *named == field), "{error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut config = all();
        config.use_federated_workload_identity_extension = false;
        config.use_managed_identity_extension = false;
        assert!(!format!("{:?}", chosen(&config)).contains("planted"));
        config.aad_client_secret.clear();
        assert!(!format!("{:?}", chosen(&config)).contains("planted"));
    }
}
