//! Fields that are objects with fields of their own; keys match in any letter case.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::Value as Json;

use super::{
    document::{YamlNode, YamlValue},
    reader::FieldReader,
    values::FieldValue,
};

macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $key:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type),* }

        impl FieldValue for $name {
            fn kind() -> String {
                format!("object with {}", [$($key),*].join(", "))
            }
            fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self> {
                let mut object = Self::default();
                read_object(node, reader, &Self::kind(), &[$($key),*], |name, value, reader| match name {
                    $($key => FieldValue::read(value, reader).map(|value| object.$field = value).is_some(),)*
                    _ => true,
                })?;
                Some(object)
            }
            fn default_from(_: &str) -> Self {
                Self::default()
            }
            fn to_json(&self) -> Json {
                Json::Object([$(($key.to_owned(), self.$field.to_json())),*].into_iter().collect())
            }
        }
    )*};
}

/// Passes every known entry to `take`, which returns `true` if it could read the entry. Returns `None` if one could not be read.
fn read_object(
    node: &YamlNode,
    reader: &mut FieldReader<'_>,
    kind: &str,
    names: &[&'static str],
    mut take: impl FnMut(&str, &YamlNode, &mut FieldReader<'_>) -> bool,
) -> Option<()> {
    let YamlValue::Map(entries) = &node.value else { return reader.type_error(node, kind) };
    let mut is_good = true;
    for (name, value) in reader.known_entries(entries, names) {
        is_good &= reader.entry(name, |reader| take(name, value, reader));
    }
    is_good.then_some(())
}

objects! {
    /// `auxiliaryTokenProvider`.
    AuxiliaryTokenProvider {
        /// Subscription of the vault.
        subscription_id: String = "subscriptionID",
        /// Resource group of the vault.
        resource_group: String = "resourceGroup",
        /// Name of the vault.
        vault_name: String = "vaultName",
        /// Name of the secret in it.
        secret_name: String = "secretName",
    }
    /// Limits of one client.
    ClientRateLimit {
        /// Whether the limits apply.
        cloud_provider_rate_limit: bool = "cloudProviderRateLimit",
        /// Reads per second.
        cloud_provider_rate_limit_qps: f64 = "cloudProviderRateLimitQPS",
        /// Burst of reads.
        cloud_provider_rate_limit_bucket: i32 = "cloudProviderRateLimitBucket",
        /// Writes per second.
        cloud_provider_rate_limit_qps_write: f64 = "cloudProviderRateLimitQPSWrite",
        /// Burst of writes.
        cloud_provider_rate_limit_bucket_write: i32 = "cloudProviderRateLimitBucketWrite",
    }
    /// One entry of `multipleStandardLoadBalancerConfigurations`. Upstream: `pkg/provider/config/multi_slb.go`.
    MultipleStandardLoadBalancer {
        /// Name of the load balancer.
        name: String = "name",
        /// Availability set or scale set of its machines.
        primary_vm_set: String = "primaryVMSet",
        /// Whether new Services may be placed on it; default true.
        allow_service_placement: Option<bool> = "allowServicePlacement",
        /// Labels of the Services that may be placed on it.
        service_label_selector: Option<LabelSelector> = "serviceLabelSelector",
        /// Labels of the namespaces of these Services.
        service_namespace_selector: Option<LabelSelector> = "serviceNamespaceSelector",
        /// Labels of the nodes in its pools.
        node_selector: Option<LabelSelector> = "nodeSelector",
    }
}

impl FieldValue for LabelSelector {
    fn kind() -> String {
        "label selector with matchLabels, matchExpressions".to_owned()
    }
    fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self> {
        let mut selector = Self::default();
        read_object(node, reader, &Self::kind(), &["matchLabels", "matchExpressions"], |name, value, reader| {
            if name == "matchLabels" {
                BTreeMap::read(value, reader).map(|labels| selector.match_labels = Some(labels)).is_some()
            } else {
                Vec::read(value, reader).map(|rows| selector.match_expressions = Some(rows)).is_some()
            }
        })?;
        Some(selector)
    }
    fn default_from(_: &str) -> Self {
        Self::default()
    }
    fn to_json(&self) -> Json {
        serde_json::to_value(self).unwrap_or_default()
    }
}

const OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist"];

impl FieldValue for LabelSelectorRequirement {
    fn kind() -> String {
        format!("object with key, values and operator, one of {}", OPERATORS.join(", "))
    }
    fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self> {
        let mut row = Self::default();
        read_object(node, reader, &Self::kind(), &["key", "operator", "values"], |name, value, reader| match name {
            "key" => FieldValue::read(value, reader).map(|key| row.key = key).is_some(),
            "operator" => FieldValue::read(value, reader).map(|operator| row.operator = operator).is_some(),
            _ => Vec::read(value, reader).map(|values| row.values = Some(values)).is_some(),
        })?;
        let needs_values = matches!(row.operator.as_str(), "In" | "NotIn");
        let has_values = row.values.as_ref().is_some_and(|values| !values.is_empty());
        if row.key.is_empty() || !OPERATORS.contains(&row.operator.as_str()) || needs_values != has_values {
            let advice = "; In and NotIn need values, Exists and DoesNotExist have none";
            return reader.type_error(node, &(Self::kind() + advice));
        }
        Some(row)
    }
    fn default_from(_: &str) -> Self {
        Self::default()
    }
    fn to_json(&self) -> Json {
        serde_json::to_value(self).unwrap_or_default()
    }
}
