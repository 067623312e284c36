//! Admission webhooks on a real API server with the shipped manifests: a replica that never leads serves them with its own certificate, and
//! writes the certificate authority into the configurations. Services get warnings and denials, PersistentVolumes denials. Without a
//! replica, all requests are admitted.

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

/// Creates the shipped objects with the port of the test. Services have no routing here, but the API server resolves an external name.
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

/// Writes a Lease of another holder that lasts as long as the test.
async fn write_foreign_lease(admin: &Client) {
    let leases: Api<Lease> = Api::namespaced(admin.clone(), "kube-system");
    let now = MicroTime(cloud_controller_manager::runtime::clock::Clock::System.wall());
    let spec =
        json!({"holderIdentity": "another-holder", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}, "spec": spec});
    leases.patch(NAME, &PatchParams::apply("e2e").force(), &Patch::Apply(lease)).await.expect("the Lease");
}

/// Creates a Service as a dry run, and returns status, warnings and message of the response.
async fn dry_run_create(admin: &Client, annotations: Value) -> (u16, Vec<String>, String) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    let request = http::Request::post("/api/v1/namespaces/default/services?dryRun=All")
        .header("content-type", "application/json")
        .body(kube::client::Body::from(service.to_string().into_bytes()))
        .expect("a request");
    let response = admin.send(request).await.expect("a response");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let warnings = headers.get_all("warning").iter().map(|value| value.to_str().unwrap_or_default().to_owned()).collect();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    (status, warnings, body["message"].as_str().unwrap_or_default().to_owned())
}

/// Creates a volume for this disk, and returns the stored object or the error of the API server.
async fn volume(volumes: &Api<PersistentVolume>, name: &str, disk: &str) -> Result<PersistentVolume, String> {
    let volume = json!({"metadata": {"name": name}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "azureDisk": {"diskName": "data", "diskURI": disk, "kind": "Managed", "cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": false},
    }});
    let volume = serde_json::from_value(volume).expect("a PersistentVolume");
    volumes.create(&PostParams::default(), &volume).await.map_err(|error| error.to_string())
}

async fn check_volume_without_disk_is_refused(volumes: &Api<PersistentVolume>, azure: &Azure) {
    let missing = azure.simulation.topology().group_id().resource("Microsoft.Compute/disks", &["missing"]).to_string();
    let refused = volume(volumes, "missing", &missing).await.expect_err("there is no such disk");
    assert!(refused.contains("pv-labeler.cloud-controller-manager.k8s.io"), "{refused}");
}

pub(crate) async fn services_are_reviewed(plane: &mut ControlPlane) {
    let admin = plane.admin().await;
    let port = free_port();
    let (configurations, mutating) = install(plane, &admin, port).await;
    write_foreign_lease(&admin).await;
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
    eventually("both configurations have the certificate authority", SOON, async || {
        let validating = configurations.get(NAME).await.expect("the configuration").webhooks.unwrap_or_default();
        let mutating = mutating.get(NAME).await.expect("the configuration").webhooks.unwrap_or_default();
        let mut clients = validating.iter().map(|it| &it.client_config).chain(mutating.iter().map(|it| &it.client_config));
        clients.all(|client| client.ca_bundle.is_some())
    })
    .await;
    manager.until_ready().await;
    eventually("a bad value is refused", SOON, async || dry_run_create(&admin, json!({TIMEOUT: "1"})).await.0 == 403).await;
    let (_, _, message) = dry_run_create(&admin, json!({TIMEOUT: "1"})).await;
    assert!(message.contains("service-validator.cloud-controller-manager.k8s.io") && message.contains(TIMEOUT), "{message}");
    let (status, warnings, _) = dry_run_create(&admin, json!({MISSPELT: "true"})).await;
    assert_eq!((status, warnings.len()), (201, 1), "{warnings:?}");
    assert!(warnings[0].contains(MISSPELT) && warnings[0].contains("azure-load-balancer-internal"), "{warnings:?}");
    assert_eq!(dry_run_create(&admin, json!({TIMEOUT: "5"})).await, (201, Vec::new(), String::new()));
    let (_, metrics) = manager.get("/metrics", Some(ADMIN_TOKEN)).await.expect("metrics");
    let counted = r#"cloud_provider_webhook_request_total{code="200",webhook="service-validator"} "#;
    assert!(metrics.contains(counted), "{metrics}");
    assert!(metrics.contains("leader_election_master_status{name=\"cloud-controller-manager\"} 0"), "it leads");

    let volumes: Api<PersistentVolume> = Api::all(admin.clone());
    check_volume_without_disk_is_refused(&volumes, &azure).await;
    // No volume is labeled here: the API server that `.ci/envtest` builds (1.20 with Go 1.19) crashes on any patch of a webhook.

    manager.kill();
    let stored =
        volume(&volumes, "unlabeled", "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/data").await;
    assert_eq!(stored.expect("it is stored").metadata.labels, None, "no webhook labels it");
    volumes.delete("unlabeled", &DeleteParams::default()).await.expect("the volume is deleted");
    eventually("the Service is admitted without a replica", SOON, async || {
        dry_run_create(&admin, json!({TIMEOUT: "1"})).await.0 == 201
    })
    .await;
    configurations.delete(NAME, &DeleteParams::default()).await.expect("the configuration is deleted");
    mutating.delete(NAME, &DeleteParams::default()).await.expect("the configuration is deleted");
    let services: Api<Service> = Api::namespaced(admin, "kube-system");
    services.delete(SERVICE, &DeleteParams::default()).await.expect("the Service is deleted");
}
