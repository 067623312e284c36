//! The file azure.json for a topology, and its endpoint file: the configuration of a provider on the simulated cloud.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{PoolKind, Topology};

/// Addresses of the simulated cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// ARM and `/metadata/endpoints`, without trailing slash.
    pub resource_manager: String,
    /// Login host; https, since `azure_identity` accepts nothing else.
    pub login: String,
    /// Audience of ARM tokens.
    pub audience: String,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self::public()
    }
}

impl Endpoints {
    /// Returns those of the public cloud: for transports in the same process.
    pub fn public() -> Self {
        Self {
            resource_manager: "https://management.azure.com".to_owned(),
            login: "https://login.microsoftonline.com/".to_owned(),
            audience: "https://management.core.windows.net/".to_owned(),
        }
    }

    /// Returns endpoints behind one URL, such as `https://127.0.0.1:4443`.
    pub fn behind(url: &str) -> Self {
        let url = url.trim_end_matches('/');
        Self { resource_manager: url.to_owned(), login: format!("{url}/"), audience: url.to_owned() }
    }

    /// Returns the response of `/metadata/endpoints?api-version=2019-05-01` for a cloud of this name.
    pub fn metadata(&self, cloud: &str) -> Value {
        json!([{
            "name": cloud,
            "portal": "https://portal.azure.com",
            "authentication": {
                "loginEndpoint": self.login, "audiences": [self.audience, self.resource_manager], "tenant": "common",
                "identityProvider": "AAD",
            },
            "resourceManager": self.resource_manager,
            "suffixes": {"acrLoginServer": "azurecr.io", "storage": "core.windows.net", "keyVaultDns": "vault.azure.net"},
        }])
    }

    /// Returns the file for `AZURE_ENVIRONMENT_FILEPATH`, which counts when `cloud` is `AzureStackCloud`.
    pub fn environment_file(&self) -> Value {
        json!({
            "name": "AzureStackCloud",
            "resourceManagerEndpoint": self.resource_manager,
            "activeDirectoryEndpoint": self.login,
            "tokenAudience": self.audience,
            "serviceManagementEndpoint": self.audience,
            "storageEndpointSuffix": "core.windows.net",
            "containerRegistryDNSSuffix": "azurecr.io",
        })
    }
}

/// Setting of `azure.json` for the address of the cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// No setting: it is the public cloud.
    Public,
    /// Setting `resourceManagerEndpoint`, whose `/metadata/endpoints` returns the rest.
    MetadataEndpoint(String),
    /// `AzureStackCloud` with `AZURE_ENVIRONMENT_FILEPATH`, which the process must have in its environment.
    EnvironmentFile,
}

/// Setting of `azure.json` for the identity of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// No identity at all.
    Nobody,
    /// Client id and secret.
    Secret(String, String),
    /// Client id, file and password; without password a PEM file.
    Certificate(String, PathBuf, Option<String>),
    /// The machine's own identity, or the one with this client id or resource id.
    ManagedIdentity(Option<String>),
    /// Client id, and the file with the service account token.
    Federated(String, PathBuf),
}

impl Login {
    /// Returns the fields of `azure.json`.
    fn fields(&self) -> Value {
        match self {
            Self::Nobody => json!({}),
            Self::Secret(client, secret) => json!({"aadClientId": client, "aadClientSecret": secret}),
            Self::Certificate(client, file, password) => json!({
                "aadClientId": client, "aadClientCertPath": file, "aadClientCertPassword": password.clone().unwrap_or_default(),
            }),
            Self::ManagedIdentity(id) => json!({
                "useManagedIdentityExtension": true, "userAssignedIdentityID": id.clone().unwrap_or_default(),
            }),
            Self::Federated(client, file) => json!({
                "aadClientId": client, "aadFederatedTokenFile": file, "useFederatedWorkloadIdentityExtension": true,
            }),
        }
    }
}

impl Reach {
    fn fields(&self) -> Value {
        match self {
            Self::Public => json!({"cloud": "AzurePublicCloud"}),
            Self::MetadataEndpoint(url) => json!({"cloud": "AzurePublicCloud", "resourceManagerEndpoint": url}),
            Self::EnvironmentFile => json!({"cloud": "AzureStackCloud", "disableAzureStackCloud": true}),
        }
    }
}

impl Topology {
    /// Returns the content of azure.json.
    pub fn config(&self, reach: &Reach, login: &Login) -> Value {
        let mut config = json!({
            "tenantId": self.tenant,
            "subscriptionId": self.subscription,
            "resourceGroup": self.resource_group,
            "location": self.location,
            "vmType": self.vm_type(),
            "vnetName": self.vnet,
            "vnetResourceGroup": self.resource_group,
            "subnetName": self.subnet,
            "securityGroupName": self.security_group,
            "routeTableName": self.route_table,
            "loadBalancerSku": "standard",
            "useInstanceMetadata": false,
        });
        let kinds: Vec<_> = self.pools.iter().map(|pool| pool.kind).collect();
        if kinds.contains(&PoolKind::Uniform) && kinds.contains(&PoolKind::Flexible) {
            config["enableVmssFlexNodes"] = json!(true);
        }
        if let Some(config) = config.as_object_mut() {
            for fields in [reach.fields(), login.fields()] {
                config.extend(fields.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
            }
        }
        config
    }

    /// Returns the kind that covers all pools; `vmss` covers others in addition to uniform scale sets.
    fn vm_type(&self) -> &'static str {
        let all = |kinds: &[PoolKind]| !self.pools.is_empty() && self.pools.iter().all(|pool| kinds.contains(&pool.kind));
        if all(&[PoolKind::Flexible]) {
            "vmssflex"
        } else if all(&[PoolKind::AvailabilitySet, PoolKind::Standalone]) {
            "standard"
        } else {
            "vmss"
        }
    }
}
