//! Tests from a configuration to tokens, one per credential.

use std::{collections::BTreeMap, fs, sync::Arc, time::Duration};

use azure_core::base64;
use serde_json::json;
use tokio::time::sleep;

use super::{
    super::{ArmConnection, AuthError, TokenSource, connect},
    certificates::{TestCertificate, make},
    fake::{Registered, Services},
};
use crate::{
    providers::azure::{
        config::{AuxiliaryTokenProvider, AzureConfig},
        transport::ArmTransport,
    },
    runtime::clock::Clock,
};

const ARM: &str = "https://management.core.windows.net//.default";
const ARM_RESOURCE: &str = "https://management.core.windows.net/";

struct CredentialSetup {
    services: Arc<Services>,
    config: AzureConfig,
    environment: BTreeMap<String, String>,
}

impl CredentialSetup {
    fn new() -> Self {
        let config =
            AzureConfig { tenant_id: "tenant".to_owned(), aad_client_id: "client".to_owned(), ..Default::default() };
        Self { services: Arc::default(), config, environment: BTreeMap::new() }
    }

    /// Creates a setup with a secret that Entra accepts.
    fn with_secret() -> Self {
        let mut setup = Self::new();
        setup.config.aad_client_secret = "planted-secret".to_owned();
        setup.services.register("tenant", "client", Registered::Secret("planted-secret"));
        setup
    }

    fn set(&mut self, name: &str, value: &str) {
        self.environment.insert(name.to_owned(), value.to_owned());
    }

    async fn connect(&self) -> Result<ArmConnection, AuthError> {
        let transport: Arc<dyn ArmTransport> = Arc::<Services>::clone(&self.services);
        connect(&self.config, &self.environment, transport, Clock::System).await
    }

    async fn compute(&self) -> Result<String, AuthError> {
        text(&self.connect().await?.credentials.compute).await
    }
}

async fn text(source: &Arc<dyn TokenSource>) -> Result<String, AuthError> {
    let header = source.token().await?.authorization();
    Ok(header.to_str().unwrap().strip_prefix("Bearer planted-token-").unwrap().to_owned())
}

/// Asserts that no form of the error contains a planted secret, and returns both forms.
fn clean(error: &AuthError) -> String {
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("planted") && !shown.contains("eyJ"), "{shown}");
    shown
}

#[tokio::test]
async fn a_secret_is_exchanged_for_a_token() {
    let mut setup = CredentialSetup::new();
    setup.config.aad_client_secret = "planted-secret".to_owned();
    let connection = setup.connect().await.unwrap();
    assert!(setup.services.state().requests.is_empty(), "connecting needs no network");
    let refused = text(&connection.credentials.compute).await.unwrap_err();
    assert!(clean(&refused).contains("AADSTS700016"), "{refused}");
    setup.services.register("tenant", "client", Registered::Secret("another"));
    let refused = setup.compute().await.unwrap_err();
    assert!(clean(&refused).contains("check aadClientSecret"), "{refused}");
    assert!(refused.to_string().contains("application client in tenant tenant"), "{refused}");
    setup.services.register("tenant", "client", Registered::Secret("planted-secret"));
    assert_eq!(setup.compute().await.unwrap(), format!("1-tenant/client-{ARM}"));
    let last = setup.services.state().requests.last().cloned();
    assert_eq!(last.as_deref(), Some("POST https://login.microsoftonline.com/tenant/oauth2/v2.0/token"));
}

#[cfg(feature = "pfx")]
#[tokio::test]
async fn a_certificate_is_exchanged_for_a_token_and_can_be_rotated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("certificate");
    let [TestCertificate { pem, leaf, .. }, other] = [make(""), make("planted-password")];
    let mut setup = CredentialSetup::new();
    setup.config.aad_client_cert_path = path.display().to_string();
    setup.config.aad_client_cert_password = "planted-password".to_owned();
    let missing = setup.compute().await.unwrap_err();
    assert!(missing.is_configuration() && clean(&missing).contains("aadClientCertPath"), "{missing}");

    fs::write(&path, &pem).unwrap();
    setup.services.register("tenant", "client", Registered::Certificate(leaf));
    let connection = setup.connect().await.unwrap();
    assert_eq!(text(&connection.credentials.compute).await.unwrap(), format!("1-tenant/client-{ARM}"));

    fs::write(&path, &other.pfx).unwrap();
    let invalidate = async || {
        let source = &connection.credentials.compute;
        source.invalidate(source.token().await.unwrap().secret().secret());
    };
    invalidate().await;
    let refused = text(&connection.credentials.compute).await.unwrap_err();
    assert!(clean(&refused).contains("AADSTS7000215"), "the new certificate is used: {refused}");
    setup.services.register("tenant", "client", Registered::Certificate(other.leaf));
    assert!(setup.compute().await.is_ok(), "a PFX file with a password");
}

#[tokio::test]
async fn adfs_has_its_own_path_and_signature() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("certificate");
    let TestCertificate { pem, leaf, .. } = make("");
    fs::write(&path, &pem).unwrap();
    let mut setup = CredentialSetup::new();
    setup.config.cloud = "AzureStackCloud".to_owned();
    setup.config.identity_system = "ADFS".to_owned();
    setup.config.resource_manager_endpoint = "https://management.local.azurestack.external/".to_owned();
    setup.config.aad_client_cert_path = path.display().to_string();
    setup.services.state().metadata = json!([{"name": "AzureStackCloud", "authentication": {
        "audiences": ["https://management.adfs.azurestack.local/1"], "loginEndpoint": "https://adfs.local.azurestack.external/adfs"}}]);
    setup.services.register("adfs", "client", Registered::Certificate(leaf));
    let token = setup.compute().await.unwrap();
    assert_eq!(token, "1-adfs/client-https://management.adfs.azurestack.local/1/.default");
    let metadata = "GET https://management.local.azurestack.external/metadata/endpoints?api-version=2019-05-01";
    let login = "POST https://adfs.local.azurestack.external/adfs/oauth2/token";
    assert_eq!(setup.services.state().requests, [metadata, login]);
}

#[tokio::test]
async fn unavailable_metadata_is_fetched_again_later() {
    let mut setup = CredentialSetup::new();
    setup.config.resource_manager_endpoint = "https://arm.example".to_owned();
    setup.config.cloud = "Mine".to_owned();
    for broken in [json!("not a list"), json!([{"name": 1}])] {
        setup.services.state().metadata = broken;
        let error = setup.connect().await.err().unwrap();
        assert!(!error.is_configuration() && error.to_string().contains("resourceManagerEndpoint"), "{error}");
    }
    setup.services.state().metadata = json!([{"name": "Other", "resourceManager": "https://other"}]);
    assert_eq!(setup.connect().await.unwrap().cloud.resource_manager, "https://management.azure.com");
    setup.services.state().metadata = json!([{"name": "mine", "resourceManager": "https://mine/"}]);
    assert_eq!(setup.connect().await.unwrap().cloud.resource_manager, "https://mine");
    setup.config.resource_manager_endpoint = "not a url".to_owned();
    assert!(setup.connect().await.err().unwrap().is_configuration());
}

#[tokio::test]
async fn the_environment_file_counts_for_azure_stack_only() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), r#"{"resourceManagerEndpoint":"https://arm.local/","tokenAudience":"https://aud"}"#).unwrap();
    let mut setup = CredentialSetup::new();
    setup.set("AZURE_ENVIRONMENT_FILEPATH", &file.path().display().to_string());
    assert_eq!(setup.connect().await.unwrap().cloud.resource_manager, "https://management.azure.com");
    setup.config.cloud = "AZURESTACKCLOUD".to_owned();
    let cloud = setup.connect().await.unwrap().cloud;
    assert_eq!((&*cloud.resource_manager, cloud.azure_stack), ("https://arm.local", true));
    setup.config.disable_azure_stack_cloud = true;
    assert!(!setup.connect().await.unwrap().cloud.azure_stack);
    setup.set("AZURE_ENVIRONMENT_FILEPATH", "/does/not/exist");
    let error = setup.connect().await.err().unwrap();
    assert!(error.is_configuration() && error.to_string().starts_with("AZURE_ENVIRONMENT_FILEPATH"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_projected_token_is_read_at_each_refresh() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut setup = CredentialSetup::new();
    setup.config.use_federated_workload_identity_extension = true;
    setup.config.aad_federated_token_file = file.path().display().to_string();
    let empty = setup.compute().await.unwrap_err();
    assert!(clean(&empty).contains("aadFederatedTokenFile"), "{empty}");
    fs::write(file.path(), "eyJ-one\n").unwrap();
    setup.services.register("tenant", "client", Registered::Federated("eyJ-one".to_owned()));
    let source = setup.connect().await.unwrap().credentials.compute;
    assert_eq!(text(&source).await.unwrap(), format!("1-tenant/client-{ARM}"));
    fs::write(file.path(), "eyJ-two").unwrap();
    setup.services.register("tenant", "client", Registered::Federated("eyJ-two".to_owned()));
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(text(&source).await.unwrap(), format!("2-tenant/client-{ARM}"));
    fs::write(file.path(), "eyJ-three").unwrap();
    sleep(Duration::from_secs(3600)).await;
    let refused = text(&source).await.unwrap_err();
    assert!(clean(&refused).contains("AADSTS7000215"), "{refused}");
}

#[tokio::test]
async fn managed_identities_of_every_kind() {
    for (id, query) in [
        ("", ""),
        ("11-22", "client_id=11-22"),
        ("/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i", "msi_res_id="),
        ("objectId=33", "object_id=33"),
    ] {
        let mut setup = CredentialSetup::new();
        setup.config.use_managed_identity_extension = true;
        setup.config.user_assigned_identity_id = id.to_owned();
        let refused = setup.compute().await.unwrap_err();
        let named = refused.to_string().contains(id.trim_start_matches("objectId="));
        assert!(clean(&refused).contains("Identity not found") && named, "{refused}");
        let name = if query.ends_with("res_id=") { format!("{query}{id}") } else { query.to_owned() };
        setup.services.state().identities.push(name.clone());
        assert_eq!(setup.compute().await.unwrap(), format!("1-{name}-{ARM_RESOURCE}"));
    }
}

#[tokio::test]
async fn two_tenants_have_a_token_each_and_an_auxiliary_one() {
    let mut setup = CredentialSetup::with_secret();
    setup.config.network_resource_tenant_id = "network".to_owned();
    setup.services.register("network", "client", Registered::Secret("planted-secret"));
    let credentials = setup.connect().await.unwrap().credentials;
    assert!(text(&credentials.compute).await.unwrap().contains("tenant/client"));
    assert!(text(&credentials.network).await.unwrap().contains("network/client"));
    assert!(text(&credentials.auxiliary.unwrap()).await.unwrap().contains("network/client"));
    assert_eq!(setup.services.state().requests.len(), 2, "network and auxiliary share a token");
    for same in ["", "TENANT"] {
        setup.config.network_resource_tenant_id = same.to_owned();
        assert!(setup.connect().await.unwrap().credentials.auxiliary.is_none(), "{same}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_vault_supplies_the_token_for_the_network_tenant() {
    let mut setup = CredentialSetup::new();
    setup.config.use_managed_identity_extension = true;
    setup.config.network_resource_tenant_id = "network".to_owned();
    setup.config.auxiliary_token_provider = Some(AuxiliaryTokenProvider {
        subscription_id: "s".to_owned(),
        resource_group: "g".to_owned(),
        vault_name: "v".to_owned(),
        secret_name: "n".to_owned(),
    });
    setup.services.state().identities.push(String::new());
    let credentials = setup.connect().await.unwrap().credentials;
    assert!(setup.services.state().requests.is_empty());
    let auxiliary = credentials.auxiliary.unwrap();
    setup.services.state().vault_secret = json!({"access_token": "planted-token-old", "expires_on": "2020-01-01T00:00:00Z"});
    let stale = text(&auxiliary).await.unwrap_err();
    assert!(clean(&stale).contains("secrets/n"), "{stale}");
    setup.services.state().vault_secret = json!({"access_token": "planted-token-net", "expires_on": "2999-01-01T00:00:00Z"});
    sleep(Duration::from_secs(2)).await;
    assert_eq!(text(&auxiliary).await.unwrap(), "net");
    assert_eq!(text(&credentials.network).await.unwrap(), "net");
    let reads = |part: &str| setup.services.state().requests.iter().filter(|request| request.contains(part)).count();
    assert_eq!(reads("/secrets/n"), 2, "cached until shortly before its expiry");
    assert_eq!(reads("/Microsoft.KeyVault/vaults/v?"), 2);
}

#[cfg(feature = "pfx")]
#[tokio::test(start_paused = true)]
async fn a_data_plane_identity_is_replaced_by_a_newer_one_only() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |client: &str, not_before: &str, pfx: &[u8]| {
        let document = json!({
            "client_id": client, "tenant_id": "tenant", "client_secret": base64::encode(pfx), "not_before": not_before,
            "authentication_endpoint": "https://login.microsoftonline.com/",
        });
        fs::write(file.path(), document.to_string()).unwrap();
    };
    let mut setup = CredentialSetup::new();
    setup.config.aad_msi_data_plane_identity_path = file.path().display().to_string();
    assert!(setup.connect().await.err().unwrap().is_configuration());

    let certificate = make("");
    for client in ["one", "two", "three"] {
        setup.services.register("tenant", client, Registered::Certificate(certificate.leaf.clone()));
    }
    write("one", "2026-01-02T00:00:00Z", &certificate.pfx);
    let source = setup.connect().await.unwrap().credentials.compute;
    assert_eq!(text(&source).await.unwrap(), format!("1-tenant/one-{ARM}"));
    write("two", "2026-01-01T00:00:00Z", &certificate.pfx);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(text(&source).await.unwrap(), format!("2-tenant/one-{ARM}"), "an older file changes nothing");
    fs::write(file.path(), "half a docum").unwrap();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(text(&source).await.unwrap(), format!("3-tenant/one-{ARM}"), "an invalid file changes nothing");
    write("three", "2026-01-03T00:00:00Z", &certificate.pfx);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(text(&source).await.unwrap(), format!("4-tenant/three-{ARM}"));
}

#[tokio::test]
async fn a_missing_credential_fails_every_request() {
    let error = CredentialSetup::new().compute().await.unwrap_err();
    assert!(error.is_configuration() && error.to_string().contains("aadClientSecret"), "{error}");
}
