//! The webhooks component: names, paths and ports match the program, and a failed webhook blocks no request.

use cloud_controller_manager::{
    cloud_provider::{PV_LABELER, PV_LABELER_PATH},
    providers::azure::{SERVICE_VALIDATOR, SERVICE_VALIDATOR_PATH},
};
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhook, ValidatingWebhookConfiguration,
    },
    core::v1::Service,
};

use super::*;

const COMPONENT: &str = "webhooks";

fn configuration() -> (String, ValidatingWebhook) {
    let configuration: ValidatingWebhookConfiguration = only_document("webhooks/configuration.yaml");
    let [webhook] = <[ValidatingWebhook; 1]>::try_from(configuration.webhooks.unwrap()).unwrap();
    (configuration.metadata.name.unwrap(), webhook)
}

/// Returns the rights to read and write only this configuration.
fn right_to_write(resource: &str, name: &str) -> BTreeMap<String, BTreeSet<Grant>> {
    let to_grant = |verb| grant(["cluster", "admissionregistration.k8s.io", resource, name, verb]);
    BTreeMap::from([(NAME.to_owned(), BTreeSet::from(["get", "patch"].map(to_grant)))])
}

#[test]
fn the_api_server_finds_the_webhook_that_the_deployment_serves() {
    let deployment = deployment_with(&["azure", COMPONENT]);
    let pod = deployment.spec.template.spec.unwrap();
    let webhooks = manager_config(start(&pod.containers[0])).webhooks.unwrap();
    assert_eq!(webhooks.names, [SERVICE_VALIDATOR]);
    let (name, webhook) = configuration();
    assert_eq!(webhooks.configurations, [name]);
    let service_reference = webhook.client_config.service.unwrap();
    assert_eq!(
        (service_reference.namespace.as_str(), service_reference.name.as_str()),
        (webhooks.service.namespace.as_str(), webhooks.service.name.as_str())
    );
    assert_eq!(service_reference.path.as_deref(), Some(SERVICE_VALIDATOR_PATH));
    let service: Service = only_document("webhooks/service.yaml");
    assert_eq!(
        (service.metadata.name.as_ref(), service.metadata.namespace.as_ref()),
        (Some(&service_reference.name), Some(&service_reference.namespace))
    );
    let spec = service.spec.unwrap();
    let port = spec.ports.unwrap().remove(0);
    assert_eq!(
        (Some(port.port), port.target_port),
        (service_reference.port, Some(IntOrString::Int(i32::from(webhooks.secure.port))))
    );
    let labels = deployment.spec.template.metadata.unwrap().labels.unwrap();
    assert!(spec.selector.unwrap().iter().all(|(key, value)| labels.get(key) == Some(value)));
    assert!(pod.containers[0].ports.iter().flatten().any(|port| port.container_port == i32::from(webhooks.secure.port)));
}

#[test]
fn an_unresponsive_webhook_blocks_no_request() {
    let (_, webhook) = configuration();
    assert_eq!((webhook.failure_policy.as_deref(), webhook.side_effects.as_str()), (Some("Ignore"), "None"));
    assert!(webhook.timeout_seconds.unwrap() < 10);
    assert_eq!(webhook.client_config.ca_bundle, None, "the program writes it");
    let [rule] = <[_; 1]>::try_from(webhook.rules.unwrap()).unwrap();
    assert_eq!(rule.resources.unwrap(), ["services"]);
    assert_eq!(rule.operations.unwrap(), ["CREATE", "UPDATE"]);
}

#[test]
fn the_account_may_write_the_configuration_and_no_other() {
    let (name, _) = configuration();
    let account_rights = rights(&documents("webhooks/rbac.yaml"));
    assert_eq!(account_rights, right_to_write("validatingwebhookconfigurations", &name));
}

const LABELER: &str = "webhooks/pv-labeler";

#[test]
fn the_labeler_may_write_its_own_configuration() {
    let program = manager_config(start(&pod_with(&["azure", COMPONENT, LABELER]).containers[0])).webhooks.unwrap();
    assert_eq!(program.names, [SERVICE_VALIDATOR, PV_LABELER]);
    let configuration: MutatingWebhookConfiguration = only_document(&format!("{LABELER}/configuration.yaml"));
    let name = configuration.metadata.name.unwrap();
    assert_eq!(program.configurations[1], format!("mutating/{name}"));
    let [webhook] = <[MutatingWebhook; 1]>::try_from(configuration.webhooks.unwrap()).unwrap();
    let service_reference = webhook.client_config.service.unwrap();
    assert_eq!((service_reference.namespace, service_reference.name), (program.service.namespace, program.service.name));
    assert_eq!(service_reference.path.as_deref(), Some(PV_LABELER_PATH));
    assert_eq!((webhook.failure_policy.as_deref(), webhook.side_effects.as_str()), (Some("Ignore"), "None"));
    let account_rights = rights(&documents(&format!("{LABELER}/rbac.yaml")));
    assert_eq!(account_rights, right_to_write("mutatingwebhookconfigurations", &name));
}
