//! Shapes of the values of `azure.json`: what each accepts, and what a refusal says.
//!
//! In: a JSON value. Out: the typed value, or what was expected (never the value itself, which may be a secret).

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value as Json;

/// A type that a field can have.
pub trait Value: Sized {
    /// What the value may be, for messages and the reference page: `string`, `one of standard, vmss, vmssflex`.
    fn kind() -> String;
    /// Reads the value. The error says what was expected.
    fn from_json(value: &Json) -> Result<Self, String>;
    /// The default, as it is written in the table.
    fn default_from(text: &str) -> Self;
}

impl Value for String {
    fn kind() -> String {
        "string".to_owned()
    }
    fn from_json(value: &Json) -> Result<Self, String> {
        match value {
            Json::String(text) => Ok(text.clone()),
            Json::Null => Ok(String::new()),
            _ => Err(Self::kind()),
        }
    }
    fn default_from(text: &str) -> Self {
        text.to_owned()
    }
}

macro_rules! via_serde {
    ($($type:ty: $kind:literal;)*) => {$(
        impl Value for $type {
            fn kind() -> String {
                $kind.to_owned()
            }
            fn from_json(value: &Json) -> Result<Self, String> {
                serde_json::from_value(value.clone()).map_err(|_| Self::kind())
            }
            fn default_from(text: &str) -> Self {
                text.parse().unwrap_or_default()
            }
        }
    )*};
}
via_serde! {
    bool: "true or false";
    i32: "whole number";
    f64: "number";
}

impl Value for Duration {
    fn kind() -> String {
        "whole number of seconds".to_owned()
    }
    fn from_json(value: &Json) -> Result<Self, String> {
        value.as_u64().map(Duration::from_secs).ok_or_else(Self::kind)
    }
    fn default_from(text: &str) -> Self {
        Duration::from_secs(text.parse().unwrap_or_default())
    }
}

impl<T: Value> Value for Option<T> {
    fn kind() -> String {
        T::kind()
    }
    fn from_json(value: &Json) -> Result<Self, String> {
        if value.is_null() { Ok(None) } else { T::from_json(value).map(Some) }
    }
    fn default_from(text: &str) -> Self {
        (!text.is_empty()).then(|| T::default_from(text))
    }
}

impl<T: Value> Value for Vec<T> {
    fn kind() -> String {
        format!("list of {}", T::kind())
    }
    fn from_json(value: &Json) -> Result<Self, String> {
        value.as_array().ok_or_else(Self::kind)?.iter().map(T::from_json).collect()
    }
    fn default_from(_: &str) -> Self {
        Vec::new()
    }
}

impl<T: Value> Value for BTreeMap<String, T> {
    fn kind() -> String {
        format!("map of {}", T::kind())
    }
    fn from_json(value: &Json) -> Result<Self, String> {
        let entries = value.as_object().ok_or_else(Self::kind)?;
        entries.iter().map(|(key, value)| Ok((key.clone(), T::from_json(value)?))).collect()
    }
    fn default_from(_: &str) -> Self {
        BTreeMap::new()
    }
}

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),* }

        impl $name {
            /// Every accepted spelling; letter case does not matter.
            pub const ALL: &[(&str, Self)] = &[$(($text, Self::$variant)),*];

            /// The value's spelling in the file.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }

        impl Value for $name {
            fn kind() -> String {
                format!("one of {}", Self::ALL.iter().map(|(text, _)| *text).collect::<Vec<_>>().join(", "))
            }
            fn from_json(value: &Json) -> Result<Self, String> {
                let text = value.as_str().ok_or_else(Self::kind)?;
                let found = Self::ALL.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
                found.map(|(_, value)| *value).ok_or_else(Self::kind)
            }
            fn default_from(text: &str) -> Self {
                Self::ALL.iter().find(|(name, _)| *name == text).map_or(Self::ALL[0].1, |(_, value)| *value)
            }
        }
    )*};
}
choices! {
    /// `cloudConfigType`.
    CloudConfigType {
        /// The file only.
        File = "file",
        /// The Secret only.
        Secret = "secret",
        /// The file, with the Secret's fields over it.
        Merge = "merge",
    }
    /// `vmType`.
    VmType {
        /// Availability sets and standalone machines.
        Standard = "standard",
        /// Uniform scale sets, beside the other kinds.
        Vmss = "vmss",
        /// Flexible scale sets.
        VmssFlex = "vmssflex",
    }
    /// `loadBalancerSku`.
    LoadBalancerSku {
        /// Basic.
        Basic = "basic",
        /// Standard.
        Standard = "standard",
        /// Service gateway.
        Service = "service",
    }
    /// `loadBalancerBackendPoolConfigurationType`.
    BackendPoolType {
        /// IP configurations of network interfaces.
        NodeIpConfiguration = "nodeIPConfiguration",
        /// Addresses of nodes.
        NodeIp = "nodeIP",
        /// Addresses of pods.
        PodIp = "podIP",
    }
    /// `clusterServiceLoadBalancerHealthProbeMode`.
    HealthProbeMode {
        /// One probe per Service port.
        ServiceNodePort = "servicenodeport",
        /// One probe for all Services.
        Shared = "shared",
    }
}

macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident = $kind:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty $(= $alias:literal)?),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name { $($(#[$field_doc])* $(#[serde(rename = $alias)])? pub $field: $type),* }

        impl Value for $name {
            fn kind() -> String {
                $kind.to_owned()
            }
            fn from_json(value: &Json) -> Result<Self, String> {
                serde_json::from_value(value.clone()).map_err(|_| Self::kind())
            }
            fn default_from(_: &str) -> Self {
                Self::default()
            }
        }
    )*};
}
objects! {
    /// `auxiliaryTokenProvider`.
    AuxiliaryTokenProvider = "object with subscriptionID, resourceGroup, vaultName, secretName" {
        /// Subscription of the vault.
        subscription_id: String = "subscriptionID",
        /// Resource group of the vault.
        resource_group: String,
        /// Name of the vault.
        vault_name: String,
        /// Name of the secret in it.
        secret_name: String,
    }
    /// Limits of one client.
    RateLimit = "object with the five cloudProviderRateLimit fields" {
        /// Whether the limits hold.
        cloud_provider_rate_limit: bool,
        /// Reads a second.
        cloud_provider_rate_limit_qps: f64 = "cloudProviderRateLimitQPS",
        /// Reads at once.
        cloud_provider_rate_limit_bucket: i32,
        /// Writes a second.
        cloud_provider_rate_limit_qps_write: f64 = "cloudProviderRateLimitQPSWrite",
        /// Writes at once.
        cloud_provider_rate_limit_bucket_write: i32,
    }
    /// One entry of `multipleStandardLoadBalancerConfigurations`.
    MultipleStandardLoadBalancer = "object with name, primaryVMSet, allowServicePlacement and selectors" {
        /// Name of the load balancer.
        name: String,
        /// Its machines.
        primary_vm_set: String = "primaryVMSet",
        /// Whether new Services may be placed on it; default true.
        allow_service_placement: Option<bool>,
        /// Which Services, by label.
        service_label_selector: Option<Json>,
        /// Which Services, by the labels of their namespace.
        service_namespace_selector: Option<Json>,
        /// Which nodes.
        node_selector: Option<Json>,
    }
}
