//! The webhooks of the chart match those of the kustomize components, on the port of the Deployment.
//!
//! Input: the case `webhooks`, `manifests/webhooks`.

use serde_json::Value;

use crate::chart::{
    objects::{find, folder, parse, pod, read, rendered, selects},
    programs::manager,
};

const NAME: &str = "cloud-controller-manager";
const SERVICE: &str = "cloud-controller-manager-webhook";
const RIGHTS: &str = "system:cloud-controller-manager:webhooks";

fn component(file: &str) -> Vec<Value> {
    parse(&read(&folder("../../manifests/webhooks").join(file)))
}

#[test]
fn the_webhook_matches_the_component_and_the_values() {
    let objects = rendered("webhooks");
    let config = manager(&objects).webhooks.unwrap();
    assert_eq!(
        (config.secure.port, config.names.as_slice()),
        (10261, ["service-validator", "pv-labeler"].map(str::to_owned).as_slice())
    );

    let configuration = find(&objects, "ValidatingWebhookConfiguration", &config.configurations[0]);
    assert_eq!(configuration["webhooks"], component("configuration.yaml")[0]["webhooks"]);

    let service = find(&objects, "Service", SERVICE);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], config.secure.port);
    assert_eq!(service["metadata"]["labels"]["app.kubernetes.io/name"], Value::Null, "the ServiceMonitor would scrape it");
    let deployment = find(&objects, "Deployment", NAME);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert!(selects(&service["spec"]["selector"], labels), "{labels}");
    let ports = pod(deployment).containers.remove(0).ports.unwrap();
    assert!(ports.iter().any(|port| port.container_port == i32::from(config.secure.port)));

    let labeler = find(&objects, "MutatingWebhookConfiguration", NAME);
    assert!(config.configurations.contains(&format!("mutating/{NAME}")), "{:?}", config.configurations);
    assert_eq!(labeler["webhooks"], component("pv-labeler/configuration.yaml")[0]["webhooks"]);
    let rights = "system:cloud-controller-manager:pv-labeler";
    assert_eq!(find(&objects, "ClusterRole", rights)["rules"], component("pv-labeler/rbac.yaml")[0]["rules"]);

    assert_eq!(find(&objects, "ClusterRole", RIGHTS)["rules"], component("rbac.yaml")[0]["rules"]);
    let subjects = |name| &find(&objects, "ClusterRoleBinding", name)["subjects"];
    assert_eq!(subjects(RIGHTS), subjects("system:cloud-controller-manager"));
}
