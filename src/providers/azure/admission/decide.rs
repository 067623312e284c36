//! Decision about a Service. Pure.
//!
//! In: the request, the settings. Out: a response. A Service that had errors before is not refused for the same
//! errors, because its finalizer and labels must remain editable.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;

use crate::{
    cloud_provider::{AdmissionAnswer, AdmissionRequest},
    providers::azure::planner::load_balancer::{
        settings::LoadBalancerSettings,
        spec::{parse_service, warnings},
    },
};

/// Decides about a change of a Service of type `LoadBalancer` that this manager serves.
pub(super) fn decide(request: &AdmissionRequest, settings: &LoadBalancerSettings) -> AdmissionAnswer {
    let is_services = request.resource.group.is_empty() && request.resource.kind == "services";
    if !is_services || !request.sub_resource.is_empty() || !["CREATE", "UPDATE"].contains(&request.operation.as_str()) {
        return AdmissionAnswer::allowed();
    }
    // The API server refuses documents that are not a valid Service.
    let Some(service) = request.object.read().filter(|service| is_validated(service, settings)) else {
        return AdmissionAnswer::allowed();
    };
    let old_service = request.old_object.read().filter(|service| is_validated(service, settings));
    let old_refusals: BTreeSet<String> = old_service.map(|service| refusals(&service, settings)).unwrap_or_default();
    let (old, new): (BTreeSet<_>, BTreeSet<_>) =
        refusals(&service, settings).into_iter().partition(|refusal| old_refusals.contains(refusal));
    let messages = warnings(&service, settings).into_iter().map(|warning| format!("{}: {}", warning.field, warning.message));
    let warned = old.into_iter().map(|refusal| format!("no load balancer because of {refusal}"));
    let response = match new.is_empty() {
        true => AdmissionAnswer::allowed(),
        false => AdmissionAnswer::refused(new.into_iter().collect::<Vec<_>>().join("; ")),
    };
    response.with_warnings(warned.chain(messages))
}

fn is_validated(service: &Service, settings: &LoadBalancerSettings) -> bool {
    settings.classes.wants(service) && service.metadata.deletion_timestamp.is_none()
}

fn refusals(service: &Service, settings: &LoadBalancerSettings) -> BTreeSet<String> {
    parse_service(service, settings).err().into_iter().flatten().map(|refusal| refusal.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        cloud_provider::{load_balancer_class::LoadBalancerClasses, registry::ProviderConfig},
        providers::azure::config::AzureConfig,
        runtime::admission::AdmissionType,
    };

    const INTERNAL: &str = "service.beta.kubernetes.io/azure-load-balancer-internal";
    const LABEL: &str = "service.beta.kubernetes.io/azure-dns-label-name";
    const GROUP: &str = "service.beta.kubernetes.io/azure-load-balancer-resource-group";
    const TIMEOUT: &str = "service.beta.kubernetes.io/azure-load-balancer-tcp-idle-timeout";

    fn settings() -> LoadBalancerSettings {
        let config = AzureConfig { location: "eastus".to_owned(), ..AzureConfig::default() };
        LoadBalancerSettings::new(&config, &ProviderConfig::default().cluster_name)
    }

    fn document(annotations: &Value, fields: &Value) -> Value {
        let mut spec = json!({"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}],
            "ipFamilies": ["IPv4"], "clusterIPs": ["10.0.0.9"]});
        fields.as_object().unwrap().iter().for_each(|(name, value)| spec[name] = value.clone());
        json!({"apiVersion": "v1", "kind": "Service", "spec": spec,
            "metadata": {"namespace": "default", "name": "web", "uid": "u-1", "annotations": annotations}})
    }

    fn request(operation: &str, object: Value, old_object: Value) -> AdmissionRequest {
        let services = AdmissionType { version: "v1".to_owned(), kind: "services".to_owned(), ..AdmissionType::default() };
        AdmissionRequest {
            operation: operation.to_owned(),
            resource: services,
            object: object.into(),
            old_object: old_object.into(),
            ..AdmissionRequest::default()
        }
    }

    fn created(annotations: &Value, fields: &Value) -> AdmissionAnswer {
        decide(&request("CREATE", document(annotations, fields), Value::Null), &settings())
    }

    #[test]
    fn a_refusal_of_the_planner_names_the_field() {
        for (annotations, fields, field) in [
            (json!({TIMEOUT: "1"}), json!({}), "azure-load-balancer-tcp-idle-timeout"),
            (json!({GROUP: "a/b"}), json!({}), "azure-load-balancer-resource-group"),
            (json!({}), json!({"loadBalancerIP": "not-an-address"}), "loadBalancerIP"),
            (json!({INTERNAL: "true", "service.beta.kubernetes.io/azure-load-balancer-ipv4": "fd00::1"}), json!({}), "ipv4"),
        ] {
            let refusal = created(&annotations, &fields).refusal.unwrap_or_default();
            assert!(refusal.contains(field), "{annotations} {fields}: {refusal}");
        }
    }

    #[test]
    fn a_doubtful_annotation_causes_a_warning_with_a_hint() {
        let misspelt = "service.beta.kubernetes.io/azure-load-balancer-internl";
        for (key, value, hint) in [(misspelt, "true", INTERNAL), (LABEL, "Not_A_Label!", "lower-case letters")] {
            let response = created(&json!({key: value}), &json!({}));
            assert_eq!(response.refusal, None, "{key}");
            let [warning] = response.warnings.as_slice() else { panic!("{response:?}") };
            assert!(warning.contains(key) && warning.contains(hint), "{warning}");
        }
        assert_eq!(created(&json!({INTERNAL: "true"}), &json!({})), AdmissionAnswer::allowed());
    }

    #[test]
    fn unserved_and_deleted_services_are_not_validated() {
        let bad = json!({TIMEOUT: "1"});
        for fields in [json!({"type": "ClusterIP"}), json!({"loadBalancerClass": "example.com/other"})] {
            assert_eq!(created(&bad, &fields), AdmissionAnswer::allowed(), "{fields}");
        }
        let own = LoadBalancerClasses::new(Some("example.com/other"), false).unwrap();
        for (fields, is_refused) in [(json!({"loadBalancerClass": "example.com/other"}), true), (json!({}), false)] {
            let response = decide(&request("CREATE", document(&bad, &fields), Value::Null), &settings().serving(&own));
            assert_eq!(response.refusal.is_some(), is_refused, "{fields}");
        }
        let mut deleted = document(&bad, &json!({}));
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let good = document(&json!({}), &json!({}));
        let refused = || request("CREATE", document(&bad, &json!({})), Value::Null);
        assert!(decide(&refused(), &settings()).refusal.is_some());
        for other in [
            request("UPDATE", deleted, good),
            request("DELETE", Value::Null, document(&bad, &json!({}))),
            request("CREATE", json!({"spec": 5}), Value::Null),
            AdmissionRequest { sub_resource: "status".to_owned(), ..refused() },
            AdmissionRequest { resource: AdmissionType { group: "x".to_owned(), ..refused().resource }, ..refused() },
            AdmissionRequest { resource: AdmissionType { kind: "nodes".to_owned(), ..refused().resource }, ..refused() },
        ] {
            assert_eq!(decide(&other, &settings()), AdmissionAnswer::allowed(), "{other:?}");
        }
    }

    #[test]
    fn old_errors_are_warnings_and_only_new_ones_are_refused() {
        let bad = json!({TIMEOUT: "1"});
        let mut labeled = document(&bad, &json!({}));
        labeled["metadata"]["labels"] = json!({"a": "b"});
        let response = decide(&request("UPDATE", labeled, document(&bad, &json!({}))), &settings());
        assert_eq!(response.refusal, None);
        assert!(response.warnings.iter().any(|warning| warning.contains("no load balancer because of")), "{response:?}");
        let worse = document(&json!({TIMEOUT: "1", GROUP: "a/b"}), &json!({}));
        let refusal = decide(&request("UPDATE", worse, document(&bad, &json!({}))), &settings()).refusal.unwrap();
        assert!(refusal.contains("azure-load-balancer-resource-group") && !refusal.contains("idle-timeout"), "{refusal}");
        // After a change of the type, all errors are new.
        let other = document(&bad, &json!({"type": "ClusterIP"}));
        assert!(decide(&request("UPDATE", document(&bad, &json!({})), other), &settings()).refusal.is_some());
    }
}
