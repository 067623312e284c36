//! Admission webhooks on a real API server, as the component ships them: a replica that never leads serves them with a certificate of its
//! own, whose authority it writes; Services are warned about and refused, PersistentVolumes refused; and without any replica nothing is in
//! the way.

use cloud_controller_manager::runtime::yaml;
use http_body_util::BodyExt;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        coordination::v1::Lease,
        core::v1::{PersistentVolume, Service},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    azure::Azure,
    control_plane::{ADMIN_TOKEN, ControlPlane, free_port},
    support::{SOON, eventually},
};

const NAME: &str = "cloud-controller-manager";
const SERVICE: &str = "cloud-controller-manager-webhook";
const TIMEOUT: &str = "service.beta.kubernetes.io/azure-load-balancer-tcp-idle-timeout";
const MISSPELT: &str = "service.beta.kubernetes.io/azure-load-balancer-internl";

/// What the component ships, on the port of the test: nobody routes to Services here, but names behind them are looked up.
async fn install(
    plane: &ControlPlane,
    admin: &Client,
    port: u16,
) -> (Api<ValidatingWebhookConfiguration>, Api<MutatingWebhookConfiguration>) {
    plane.apply_file("manifests/webhooks/rbac.yaml").await;
    plane.apply_file("manifests/webhooks/pv-labeler/rbac.yaml").await;
    let services: Api<Service> = Api::namespaced(admin.clone(), "kube-system");
    let service = json!({"metadata": {"name": SERVICE}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let service = serde_json::from_value(service).expect("a Service");
    services.create(&PostParams::default(), &service).await.expect("the Service");
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(admin.clone());
    let configuration = configuration("manifests/webhooks/pv-labeler/configuration.yaml", port);
    mutating.create(&PostParams::default(), &configuration).await.expect("the configuration");
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(admin.clone());
    let configuration = self::configuration("manifests/webhooks/configuration.yaml", port);
    validating.create(&PostParams::default(), &configuration).await.expect("the configuration");
    (validating, mutating)
}

fn configuration<K: serde::de::DeserializeOwned>(file: &str, port: u16) -> K {
    let text = std::fs::read_to_string(file).expect("the configuration");
    let mut configuration: Value = yaml::parse(&text).expect("YAML");
    configuration["webhooks"][0]["clientConfig"]["service"]["port"] = json!(port);
    serde_json::from_value(configuration).expect("a configuration")
}

/// A Lease that somebody else holds for as long as the test runs.
async fn hold_lease(admin: &Client) {
    let leases: Api<Lease> = Api::namespaced(admin.clone(), "kube-system");
    let now = MicroTime(cloud_controller_manager::runtime::clock::Clock::System.wall());
    let spec = json!({"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}, "spec": spec});
    leases.patch(NAME, &PatchParams::apply("e2e").force(), &Patch::Apply(lease)).await.expect("the Lease");
}

/// What is said to somebody who would create this Service: status, warnings, message.
async fn tried(admin: &Client, annotations: Value) -> (u16, Vec<String>, String) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    let request = http::Request::post("/api/v1/namespaces/default/services?dryRun=All")
        .header("content-type", "application/json")
        .body(kube::client::Body::from(service.to_string().into_bytes()))
        .expect("a request");
    let response = admin.send(request).await.expect("an answer");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let warnings = headers.get_all("warning").iter().map(|value| value.to_str().unwrap_or_default().to_owned()).collect();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    (status, warnings, body["message"].as_str().unwrap_or_default().to_owned())
}

/// A volume that somebody makes by hand for this disk, as the API server answers it.
async fn volume(volumes: &Api<PersistentVolume>, name: &str, disk: &str) -> Result<PersistentVolume, String> {
    let volume = json!({"metadata": {"name": name}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "azureDisk": {"diskName": "data", "diskURI": disk, "kind": "Managed", "cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": false},
    }});
    let volume = serde_json::from_value(volume).expect("a PersistentVolume");
    volumes.create(&PostParams::default(), &volume).await.map_err(|error| error.to_string())
}

async fn a_volume_without_its_disk_is_refused(volumes: &Api<PersistentVolume>, azure: &Azure) {
    let missing = azure.world.topology().group_id().resource("Microsoft.Compute/disks", &["missing"]).to_string();
    let refused = volume(volumes, "missing", &missing).await.expect_err("there is no such disk");
    assert!(refused.contains("pv-labeler.cloud-controller-manager.k8s.io"), "{refused}");
}

pub(crate) async fn services_are_judged(plane: &mut ControlPlane) {
    let admin = plane.admin().await;
    let port = free_port();
    let (configurations, mutating) = install(plane, &admin, port).await;
    hold_lease(&admin).await;
    let azure = Azure::start(plane, "webhooks").await;
    let port_flag = format!("--webhook-secure-port={port}");
    let flags = [
        "--configure-cloud-routes=false",
        "--feature-gates=CloudControllerManagerWebhook=true",
        "--webhooks=service-validator,pv-labeler",
        "--webhook-configurations=cloud-controller-manager,mutating/cloud-controller-manager",
        &port_flag,
    ];
    let manager = azure.manager_with_only(plane, "webhooks", &flags).await;
    eventually("the authority is written into both", SOON, async || {
        let validating = configurations.get(NAME).await.expect("the configuration").webhooks.unwrap_or_default();
        let mutating = mutating.get(NAME).await.expect("the configuration").webhooks.unwrap_or_default();
        let mut clients =
            validating.iter().map(|one| &one.client_config).chain(mutating.iter().map(|one| &one.client_config));
        clients.all(|client| client.ca_bundle.is_some())
    })
    .await;
    manager.until_ready().await;
    eventually("a bad value is refused", SOON, async || tried(&admin, json!({TIMEOUT: "1"})).await.0 == 403).await;
    let (_, _, message) = tried(&admin, json!({TIMEOUT: "1"})).await;
    assert!(message.contains("service-validator.cloud-controller-manager.k8s.io") && message.contains(TIMEOUT), "{message}");
    let (status, warnings, _) = tried(&admin, json!({MISSPELT: "true"})).await;
    assert_eq!((status, warnings.len()), (201, 1), "{warnings:?}");
    assert!(warnings[0].contains(MISSPELT) && warnings[0].contains("azure-load-balancer-internal"), "{warnings:?}");
    assert_eq!(tried(&admin, json!({TIMEOUT: "5"})).await, (201, Vec::new(), String::new()));
    let (_, metrics) = manager.get("/metrics", Some(ADMIN_TOKEN)).await.expect("metrics");
    let counted = r#"cloud_provider_webhook_request_total{code="200",webhook="service-validator"} "#;
    assert!(metrics.contains(counted), "{metrics}");
    assert!(metrics.contains("leader_election_master_status{name=\"cloud-controller-manager\"} 0"), "it leads");

    let volumes: Api<PersistentVolume> = Api::all(admin.clone());
    a_volume_without_its_disk_is_refused(&volumes, &azure).await;
    // None is labelled here: the API server that `.ci/envtest` builds (1.20 with Go 1.19) dies of any patch of a webhook.

    manager.kill();
    let stored =
        volume(&volumes, "unlabelled", "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/data").await;
    assert_eq!(stored.expect("it is stored").metadata.labels, None, "nobody labels it");
    volumes.delete("unlabelled", &DeleteParams::default()).await.expect("the volume goes");
    eventually("nobody is in the way", SOON, async || tried(&admin, json!({TIMEOUT: "1"})).await.0 == 201).await;
    configurations.delete(NAME, &DeleteParams::default()).await.expect("the configuration goes");
    mutating.delete(NAME, &DeleteParams::default()).await.expect("the configuration goes");
    let services: Api<Service> = Api::namespaced(admin, "kube-system");
    services.delete(SERVICE, &DeleteParams::default()).await.expect("the Service goes");
}
