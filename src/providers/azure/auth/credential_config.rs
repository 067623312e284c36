//! Credential that the configuration selects. Pure.
//!
//! In: the configuration and the environment. Out: a [`CredentialConfig`], or the field that is missing. The order, and
//! which variables replace which fields: upstream `pkg/azclient/auth.go`, `auth_conf.go`.

use std::collections::BTreeMap;

use azure_core::credentials::Secret;

use super::{AuthError, cloud::CloudEndpoints};
use crate::providers::azure::config::{AuxiliaryTokenProvider, AzureConfig, variables};

/// A credential and what it needs. The first that applies wins.
#[derive(Debug, Clone, PartialEq)]
pub enum CredentialConfig {
    /// A projected service account token is exchanged for Entra tokens.
    WorkloadIdentity {
        application: EntraApplication,
        /// File of the projected token.
        token_file: String,
    },
    /// The identity of the machine.
    ManagedIdentity {
        identity: ManagedIdentityId,
        /// Provider of the token for the network tenant; only in multi-tenant mode.
        auxiliary: Option<AuxiliaryTokenProvider>,
    },
    /// A service principal with a secret.
    ClientSecret {
        application: EntraApplication,
        secret: Secret,
        /// Tenant of the network resources; only in multi-tenant mode.
        network_tenant: Option<String>,
    },
    /// A service principal with a certificate.
    ClientCertificate {
        application: EntraApplication,
        /// PEM or PFX file.
        path: String,
        /// Password of the PFX file.
        password: Secret,
        /// Tenant of the network resources; only in multi-tenant mode.
        network_tenant: Option<String>,
    },
    /// The file of a data-plane user-assigned identity.
    DataPlane { path: String },
    /// None: every request will fail until one is configured.
    NoCredential,
}

/// An application registered in a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntraApplication {
    pub tenant: String,
    pub client_id: String,
}

/// A managed identity of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagedIdentityId {
    /// System-assigned identity.
    System,
    /// A user-assigned one, by client id.
    Client(String),
    /// By ARM resource id.
    Resource(String),
    /// By object (principal) id.
    Object(String),
}

impl ManagedIdentityId {
    /// Reads `userAssignedIdentityID`: a client id, a resource id, or `objectId=<object id>`.
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

/// A field and the variable that replaces it.
struct OverridableField<'a> {
    field: &'static str,
    variable: &'static str,
    value: &'a str,
}

struct FieldOverrides<'a> {
    environment: &'a BTreeMap<String, String>,
}

impl<'a> FieldOverrides<'a> {
    fn read(&self, field: &'static str, variable: &'static str, configured: &'a str) -> OverridableField<'a> {
        let replaced = self.environment.get(variable).map(String::as_str).filter(|value| !value.is_empty());
        OverridableField { field, variable, value: replaced.unwrap_or(configured) }
    }
}

impl OverridableField<'_> {
    fn required(&self, by: &str) -> Result<String, AuthError> {
        if self.value.trim().is_empty() {
            let message = format!("needed by {by}; set it, or {} in the environment", self.variable);
            return Err(AuthError::configuration(self.field, message));
        }
        Ok(self.value.trim().to_owned())
    }
}

pub fn choose_credential(
    config: &AzureConfig,
    environment: &BTreeMap<String, String>,
    cloud: &CloudEndpoints,
) -> Result<CredentialConfig, AuthError> {
    let settings = FieldOverrides { environment };
    let tenant = settings.read("tenantId", variables::TENANT_ID, &config.tenant_id);
    let client = settings.read("aadClientId", variables::CLIENT_ID, &config.aad_client_id);
    let secret = settings.read("aadClientSecret", variables::CLIENT_SECRET, &config.aad_client_secret);
    let token_file =
        settings.read("aadFederatedTokenFile", variables::FEDERATED_TOKEN_FILE, &config.aad_federated_token_file);
    let network_tenant = network_tenant(config, tenant.value);
    let application = |by: &str| {
        let tenant = if cloud.adfs { "adfs".to_owned() } else { tenant.required(by)? };
        Ok(EntraApplication { tenant, client_id: client.required(by)? })
    };

    if config.use_federated_workload_identity_extension || environment_has(environment, token_file.variable) {
        let by = "workload identity";
        return Ok(CredentialConfig::WorkloadIdentity {
            application: application(by)?,
            token_file: token_file.required(by)?,
        });
    }
    if config.use_managed_identity_extension {
        return managed(config, network_tenant.is_some());
    }
    if !secret.value.is_empty() {
        let application = application("aadClientSecret")?;
        return Ok(CredentialConfig::ClientSecret {
            application,
            secret: Secret::new(secret.value.to_owned()),
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

fn environment_has(environment: &BTreeMap<String, String>, variable: &str) -> bool {
    environment.get(variable).is_some_and(|value| !value.is_empty())
}

/// Returns the network tenant in multi-tenant mode: the network resources are in another tenant.
fn network_tenant(config: &AzureConfig, tenant: &str) -> Option<String> {
    let network = config.network_resource_tenant_id.trim();
    (!network.is_empty() && !network.eq_ignore_ascii_case(tenant.trim())).then(|| network.to_owned())
}

fn managed(config: &AzureConfig, multi_tenant: bool) -> Result<CredentialConfig, AuthError> {
    let auxiliary = if multi_tenant { Some(vault(config.auxiliary_token_provider.as_ref())?) } else { None };
    Ok(CredentialConfig::ManagedIdentity {
        identity: ManagedIdentityId::parse(&config.user_assigned_identity_id),
        auxiliary,
    })
}

fn vault(provider: Option<&AuxiliaryTokenProvider>) -> Result<AuxiliaryTokenProvider, AuthError> {
    const FIELD: &str = "auxiliaryTokenProvider";
    let Some(provider) = provider else {
        let message = "needed when networkResourceTenantID is not tenantId and a managed identity is used";
        return Err(AuthError::configuration(FIELD, message));
    };
    let parts = [
        ("subscriptionID", &provider.subscription_id),
        ("resourceGroup", &provider.resource_group),
        ("vaultName", &provider.vault_name),
        ("secretName", &provider.secret_name),
    ];
    match parts.into_iter().find(|(_, value)| value.is_empty()) {
        Some((part, _)) => Err(AuthError::configuration(format!("{FIELD}.{part}"), "missing")),
        None => Ok(provider.clone()),
    }
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

    fn chosen(config: &AzureConfig, environment: &[(&str, &str)]) -> Result<CredentialConfig, AuthError> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        choose_credential(config, &environment, &CloudEndpoints::named(""))
    }

    #[test]
    fn the_first_that_applies_wins() {
        let mut config = all();
        assert!(matches!(chosen(&config, &[]), Ok(CredentialConfig::WorkloadIdentity { .. })));
        config.use_federated_workload_identity_extension = false;
        // A token file alone does not switch it on.
        assert!(matches!(chosen(&config, &[]), Ok(CredentialConfig::ManagedIdentity { .. })));
        let by_environment = chosen(&config, &[("AZURE_FEDERATED_TOKEN_FILE", "/other"), ("AZURE_CLIENT_ID", "pod")]);
        let application = EntraApplication { tenant: "tenant".to_owned(), client_id: "pod".to_owned() };
        assert_eq!(by_environment, Ok(CredentialConfig::WorkloadIdentity { application, token_file: "/other".to_owned() }));
        config.use_managed_identity_extension = false;
        assert!(matches!(chosen(&config, &[]), Ok(CredentialConfig::ClientSecret { .. })));
        config.aad_client_secret.clear();
        assert!(matches!(chosen(&config, &[]), Ok(CredentialConfig::ClientCertificate { .. })));
        assert!(matches!(chosen(&config, &[("AZURE_CLIENT_SECRET", "x")]), Ok(CredentialConfig::ClientSecret { .. })));
        config.aad_client_cert_path.clear();
        assert_eq!(chosen(&config, &[]), Ok(CredentialConfig::DataPlane { path: "/identity".to_owned() }));
        config.aad_msi_data_plane_identity_path.clear();
        assert_eq!(chosen(&config, &[]), Ok(CredentialConfig::NoCredential));
    }

    #[test]
    fn a_missing_field_is_named() {
        type Change<'a> = (&'a dyn Fn(&mut AzureConfig), &'static str);
        let multi_tenant = |config: &mut AzureConfig| {
            config.use_federated_workload_identity_extension = false;
            config.network_resource_tenant_id = "other".to_owned();
        };
        let of_vault = |config: &mut AzureConfig| {
            multi_tenant(config);
            let subscription_id = "s".to_owned();
            config.auxiliary_token_provider = Some(AuxiliaryTokenProvider { subscription_id, ..Default::default() });
        };
        let changes: [Change<'_>; 5] = [
            (&|config| config.tenant_id.clear(), "tenantId"),
            (&|config| config.aad_client_id.clear(), "aadClientId"),
            (&|config| config.aad_federated_token_file.clear(), "aadFederatedTokenFile"),
            (&multi_tenant, "auxiliaryTokenProvider"),
            (&of_vault, "auxiliaryTokenProvider.resourceGroup"),
        ];
        for (change, field) in changes {
            let mut config = all();
            change(&mut config);
            let error = chosen(&config, &[]).unwrap_err();
            assert!(matches!(&error, AuthError::Configuration { field: named, .. } if *named == field), "{error}");
        }
    }

    #[test]
    fn another_network_tenant_is_multi_tenant_mode() {
        let mut config = AzureConfig { use_managed_identity_extension: false, ..all() };
        config.use_federated_workload_identity_extension = false;
        for (network, expected) in [("", None), ("TENANT", None), ("other", Some("other".to_owned()))] {
            config.network_resource_tenant_id = network.to_owned();
            match chosen(&config, &[]) {
                Ok(CredentialConfig::ClientSecret { network_tenant, .. }) => assert_eq!(network_tenant, expected),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn identities_by_their_shape() {
        let rows = [
            ("", ManagedIdentityId::System),
            ("11-22", ManagedIdentityId::Client("11-22".to_owned())),
            ("/SUBSCRIPTIONS/s/x", ManagedIdentityId::Resource("/SUBSCRIPTIONS/s/x".to_owned())),
            ("objectid=11-22", ManagedIdentityId::Object("11-22".to_owned())),
        ];
        for (text, expected) in rows {
            assert_eq!(ManagedIdentityId::parse(text), expected);
        }
    }

    #[test]
    fn adfs_has_a_tenant_of_its_own() {
        let mut config = all();
        config.tenant_id.clear();
        let cloud = CloudEndpoints { adfs: true, ..CloudEndpoints::named("AzureStackCloud") };
        match choose_credential(&config, &BTreeMap::new(), &cloud) {
            Ok(CredentialConfig::WorkloadIdentity { application, .. }) => assert_eq!(application.tenant, "adfs"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut config = all();
        config.use_federated_workload_identity_extension = false;
        config.use_managed_identity_extension = false;
        assert!(!format!("{:?}", chosen(&config, &[])).contains("planted"));
        config.aad_client_secret.clear();
        assert!(!format!("{:?}", chosen(&config, &[])).contains("planted"));
    }
}
