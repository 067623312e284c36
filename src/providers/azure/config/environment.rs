//! Environment variables that override fields, injected by the workload identity webhook among others. Pure.
//!
//! Upstream applies them to the file only (`pkg/provider/config/env.go`); here they count for every source.

use std::collections::BTreeMap;

use super::fields::AzureConfig;

/// Environment variable and its effect.
#[derive(Clone, Copy)]
pub struct EnvironmentVariable {
    pub name: &'static str,
    /// Effect of the variable, for the reference page.
    pub doc: &'static str,
    apply: fn(&mut AzureConfig, &str),
}

pub mod variables {
    pub const TENANT_ID: &str = "AZURE_TENANT_ID";
    pub const CLIENT_ID: &str = "AZURE_CLIENT_ID";
    /// Variable with the application's secret.
    pub const CLIENT_SECRET: &str = "AZURE_CLIENT_SECRET";
    /// File of the token that is exchanged for Entra tokens.
    pub const FEDERATED_TOKEN_FILE: &str = "AZURE_FEDERATED_TOKEN_FILE";
}

/// Every variable that changes the configuration. Empty ones count as not set.
pub const VARIABLES: &[EnvironmentVariable] = &[
    EnvironmentVariable {
        name: variables::TENANT_ID,
        doc: "Replaces `tenantId`.",
        apply: |config, value| value.clone_into(&mut config.tenant_id),
    },
    EnvironmentVariable {
        name: variables::CLIENT_ID,
        doc: "Replaces `aadClientId`.",
        apply: |config, value| value.clone_into(&mut config.aad_client_id),
    },
    EnvironmentVariable {
        name: variables::CLIENT_SECRET,
        doc: "Replaces `aadClientSecret`.",
        apply: |config, value| value.clone_into(&mut config.aad_client_secret),
    },
    EnvironmentVariable {
        name: variables::FEDERATED_TOKEN_FILE,
        doc: "Replaces `aadFederatedTokenFile` and turns `useFederatedWorkloadIdentityExtension` on.",
        apply: |config, value| {
            value.clone_into(&mut config.aad_federated_token_file);
            config.use_federated_workload_identity_extension = true;
        },
    },
];

/// The values of [`VARIABLES`] by name. May hold a secret and therefore has no `Debug`.
#[derive(Clone, Default)]
pub struct EnvironmentOverrides(BTreeMap<String, String>);

impl EnvironmentOverrides {
    /// Selects the relevant variables of a process, such as those of `std::env::vars()`.
    pub fn of(all: impl IntoIterator<Item = (String, String)>) -> Self {
        let matters = |(name, value): &(String, String)| {
            !value.is_empty() && VARIABLES.iter().any(|variable| variable.name == name.as_str())
        };
        Self(all.into_iter().filter(matters).collect())
    }

    /// Overrides fields, and lower-cases the resource group because ARM returns it in any letter case.
    pub fn apply(&self, mut config: AzureConfig) -> AzureConfig {
        for variable in VARIABLES {
            if let Some(value) = self.0.get(variable.name) {
                (variable.apply)(&mut config, value);
            }
        }
        config.resource_group = config.resource_group.to_lowercase();
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> EnvironmentOverrides {
        EnvironmentOverrides::of(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn each_variable_overrides_its_fields() {
        let set = environment(&[
            ("AZURE_TENANT_ID", "t"),
            ("AZURE_CLIENT_ID", "c"),
            ("AZURE_CLIENT_SECRET", "s"),
            ("AZURE_FEDERATED_TOKEN_FILE", "/f"),
            ("AZURE_SUBSCRIPTION_ID", "other"),
        ]);
        let config =
            set.apply(AzureConfig { tenant_id: "old".into(), resource_group: "RG".into(), ..AzureConfig::default() });
        let expected = AzureConfig {
            tenant_id: "t".into(),
            aad_client_id: "c".into(),
            aad_client_secret: "s".into(),
            aad_federated_token_file: "/f".into(),
            use_federated_workload_identity_extension: true,
            resource_group: "rg".into(),
            ..AzureConfig::default()
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn empty_and_missing_variables_change_nothing() {
        let config = AzureConfig { tenant_id: "old".into(), aad_client_secret: "old".into(), ..AzureConfig::default() };
        let set = environment(&[("AZURE_TENANT_ID", ""), ("AZURE_FEDERATED_TOKEN_FILE", "")]);
        assert_eq!(set.apply(config.clone()), config);
        assert_eq!(EnvironmentOverrides::default().apply(config.clone()), config);
    }
}
