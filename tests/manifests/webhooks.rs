//! The webhooks' component: names, paths and ports fit the program's, and nothing is ever in the way.

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

fn one<K: DeserializeOwned + Serialize>(file: &str) -> K {
    let [object] = <[Value; 1]>::try_from(documents(&format!("{COMPONENT}/{file}"))).unwrap();
    assert_eq!(round_trip::<K>(&object), object, "{file}: fields that Kubernetes does not know");
    serde_json::from_value(object).unwrap()
}

fn configuration() -> (String, ValidatingWebhook) {
    let configuration: ValidatingWebhookConfiguration = one("configuration.yaml");
    let [webhook] = <[ValidatingWebhook; 1]>::try_from(configuration.webhooks.unwrap()).unwrap();
    (configuration.metadata.name.unwrap(), webhook)
}

fn program() -> (ManagerConfig, Deployment) {
    let deployment = deployment_with(&["azure", COMPONENT]);
    let container = deployment.spec.template.spec.as_ref().unwrap().containers[0].clone();
    (config(&container), deployment)
}

#[test]
fn the_api_server_finds_the_webhook_that_the_deployment_serves() {
    let (config, deployment) = program();
    let webhooks = config.webhooks.unwrap();
    assert_eq!(webhooks.names, [SERVICE_VALIDATOR]);
    let (name, webhook) = configuration();
    assert_eq!(webhooks.configurations, [name]);
    let asked = webhook.client_config.service.unwrap();
    assert_eq!(
        (asked.namespace.as_str(), asked.name.as_str()),
        (webhooks.service.namespace.as_str(), webhooks.service.name.as_str())
    );
    assert_eq!(asked.path.as_deref(), Some(SERVICE_VALIDATOR_PATH));
    let service: Service = one("service.yaml");
    assert_eq!(
        (service.metadata.name.as_ref(), service.metadata.namespace.as_ref()),
        (Some(&asked.name), Some(&asked.namespace))
    );
    let spec = service.spec.unwrap();
    let port = spec.ports.unwrap().remove(0);
    assert_eq!((Some(port.port), port.target_port), (asked.port, Some(IntOrString::Int(i32::from(webhooks.secure.port)))));
    let labels = deployment.spec.template.metadata.unwrap().labels.unwrap();
    assert!(spec.selector.unwrap().iter().all(|(key, value)| labels.get(key) == Some(value)));
    let ports = deployment.spec.template.spec.unwrap().containers.remove(0).ports.unwrap();
    assert!(ports.iter().any(|port| port.container_port == i32::from(webhooks.secure.port)));
}

#[test]
fn a_webhook_that_does_not_answer_is_not_in_the_way() {
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
    let [role, binding] = <[Value; 2]>::try_from(documents(&format!("{COMPONENT}/rbac.yaml"))).unwrap();
    let role: ClusterRole = serde_json::from_value(role).unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
    let (name, _) = configuration();
    let grant = |verb: &str| {
        let group = "admissionregistration.k8s.io";
        ["cluster", group, "validatingwebhookconfigurations", &name, verb].map(str::to_owned).into()
    };
    assert_eq!(grants("cluster", role.rules), [grant("get"), grant("patch")]);
    assert_eq!(Some(binding.role_ref.name), role.metadata.name);
    let [subject] = <[Subject; 1]>::try_from(binding.subjects.unwrap()).unwrap();
    assert_eq!((subject.name.as_str(), subject.namespace.as_deref()), (NAME, Some(NAMESPACE)));
}

const LABELER: &str = "webhooks/pv-labeler";

#[test]
fn the_labeler_extends_the_component_and_may_write_its_own_configuration() {
    let deployment = deployment_with(&["azure", COMPONENT, LABELER]);
    let program = config(&deployment.spec.template.spec.unwrap().containers[0]).webhooks.unwrap();
    assert_eq!(program.names, [SERVICE_VALIDATOR, PV_LABELER]);
    let [object] = <[Value; 1]>::try_from(documents(&format!("{LABELER}/configuration.yaml"))).unwrap();
    assert_eq!(round_trip::<MutatingWebhookConfiguration>(&object), object, "fields that Kubernetes does not know");
    let configuration: MutatingWebhookConfiguration = serde_json::from_value(object).unwrap();
    let name = configuration.metadata.name.unwrap();
    assert_eq!(program.configurations[1], format!("mutating/{name}"));
    let [webhook] = <[MutatingWebhook; 1]>::try_from(configuration.webhooks.unwrap()).unwrap();
    let asked = webhook.client_config.service.unwrap();
    assert_eq!((asked.namespace, asked.name), (program.service.namespace, program.service.name));
    assert_eq!(asked.path.as_deref(), Some(PV_LABELER_PATH));
    assert_eq!((webhook.failure_policy.as_deref(), webhook.side_effects.as_str()), (Some("Ignore"), "None"));
    let role: ClusterRole = serde_json::from_value(documents(&format!("{LABELER}/rbac.yaml")).remove(0)).unwrap();
    let grant = |verb: &str| {
        let group = "admissionregistration.k8s.io";
        ["cluster", group, "mutatingwebhookconfigurations", &name, verb].map(str::to_owned).into()
    };
    assert_eq!(grants("cluster", role.rules), [grant("get"), grant("patch")]);
}
