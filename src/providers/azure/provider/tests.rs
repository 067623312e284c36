//! The whole provider on the simulated cloud and API server.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use serde_json::Value;

use super::{label_keys::RELIST_TIMEOUT, *};
use crate::{
    cloud_provider::{conformance, registry::SecretRef},
    providers::azure::model::{ResourceId, api},
    runtime::{clock::Clock, leader_election::Leadership, shutdown::Shutdown},
    sandbox::{
        api_server::ApiServer,
        azure::{
            AzureOptions, Class, Effect, Fault,
            entra::Credential,
            topology::{Login, Pool, PoolKind, Topology},
            world::{CLIENT_ID, World},
        },
    },
};

struct Setting {
    simulation: World,
    server: ApiServer,
    folder: tempfile::TempDir,
    context: ProviderContext,
}

impl Setting {
    fn new() -> Self {
        let topology = Topology::new().pool(Pool::new(PoolKind::Uniform, "uni", 2));
        let simulation = World::new(topology, AzureOptions::immediate(), Clock::System).unwrap();
        let server = ApiServer::new(Clock::manual("2026-01-01T00:00:00Z".parse().unwrap()));
        let context = conformance::context(Leadership::channel().1, Shutdown::new(), &[], &[]).unwrap();
        let context = ProviderContext { client: server.client(), ..context };
        Self { simulation, server, folder: tempfile::tempdir().unwrap(), context }
    }

    fn write(&self, config: &Value) {
        std::fs::write(self.folder.path().join("azure.json"), config.to_string()).unwrap();
    }

    fn put_secret(&self, config: &Value) {
        let mut secret = Secret::default();
        secret.metadata.name = Some("azure".into());
        secret.metadata.namespace = Some("kube-system".into());
        secret.data = Some([("cloud-config".to_owned(), ByteString(config.to_string().into_bytes()))].into());
        self.server.delete::<Secret>("kube-system", "azure");
        self.server.create(&secret);
    }

    fn configured(&self, config: &ProviderConfig) -> CloudResult<AzureCloud> {
        AzureCloud::new(config, BTreeMap::new(), self.simulation.azure().transport())
    }

    fn with_file(&self, reload: bool) -> CloudResult<AzureCloud> {
        let path = self.folder.path().join("azure.json");
        let config = ProviderConfig { cloud_config: Some(path), reload, ..ProviderConfig::default() };
        self.configured(&config)
    }

    fn with_secret(&self) -> AzureCloud {
        let secret = SecretRef { namespace: "kube-system".into(), name: "azure".into(), key: "cloud-config".into() };
        let config = ProviderConfig { cloud_config_secret: Some(secret), reload: true, ..ProviderConfig::default() };
        self.configured(&config).unwrap()
    }

    async fn start(&self, cloud: &AzureCloud) -> Result<(), String> {
        cloud.initialize(self.context.clone()).await.map_err(|error| error.to_string())
    }

    /// Starts a provider with a file that is reloaded.
    async fn running(&self) -> AzureCloud {
        self.write(&self.simulation.config());
        let cloud = self.with_file(true).unwrap();
        self.start(&cloud).await.unwrap();
        cloud
    }

    fn with_client_secret(&self, secret: &str) -> Value {
        self.simulation.config_with(&Login::Secret(CLIENT_ID.to_owned(), secret.to_owned()))
    }

    fn add_client_secret(&self, secret: &str) {
        let tenant = self.simulation.topology().tenant;
        self.simulation
            .with_directory(|directory| directory.add_credential(&tenant, CLIENT_ID, Credential::Secret(secret.to_owned())));
    }
}

fn with(mut config: Value, key: &str, value: Value) -> Value {
    config[key] = value;
    config
}

async fn until(event: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(900), waiting).await.is_ok(), "never: {event}");
}

fn unhealthy(cloud: &AzureCloud, expected: &str) -> bool {
    cloud.health().is_err_and(|reason| reason.contains(expected))
}

#[tokio::test(start_paused = true)]
async fn a_bad_file_ends_the_process_at_once() {
    let setting = Setting::new();
    let refused = |setting: &Setting| setting.with_file(false).err().unwrap();
    assert!(refused(&setting).to_string().contains("azure.json"));
    setting.write(&with(setting.simulation.config(), "vmCacheTTLInSeconds", json!("soon")));
    let error = refused(&setting);
    assert!(matches!(&error, CloudError::Invalid(reason) if reason.contains("vmCacheTTLInSeconds")), "{error}");
    let unconfigured = setting.configured(&ProviderConfig::default()).err().unwrap();
    assert!(unconfigured.to_string().contains("--cloud-config"), "{unconfigured}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_named_and_used_once_it_exists() {
    let setting = Setting::new();
    let cloud = setting.with_secret();
    let reason = setting.start(&cloud).await.unwrap_err();
    assert!(reason.contains("kubectl -n kube-system create secret generic azure"), "{reason}");
    assert!(cloud.health().is_err() && cloud.session().is_err());
    setting.put_secret(&setting.simulation.config());
    setting.start(&cloud).await.unwrap();
    assert_eq!(cloud.health(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn arm_that_is_down_costs_the_start_only() {
    let setting = Setting::new();
    setting.write(&setting.simulation.config());
    let cloud = setting.with_file(false).unwrap();
    setting.simulation.azure().faults().set_down(true);
    let reason = setting.start(&cloud).await.unwrap_err();
    assert!(reason.contains("no connection"), "{reason}");
    assert!(unhealthy(&cloud, "not initialized") && json!(cloud.status())["problem"].is_string());
    setting.simulation.azure().faults().set_down(false);
    setting.start(&cloud).await.unwrap();
    assert_eq!(cloud.health(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_file_corrected_before_startup_is_used() {
    let setting = Setting::new();
    setting.write(&setting.with_client_secret("wrong"));
    let cloud = setting.with_file(true).unwrap();
    let reason = setting.start(&cloud).await.unwrap_err();
    assert!(reason.contains("aadClientSecret"), "{reason}");
    setting.write(&setting.simulation.config());
    setting.start(&cloud).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_takes_effect_only_with_reloading() {
    let setting = Setting::new();
    let cloud = setting.running().await;
    let fixed = setting.with_file(false).unwrap();
    setting.start(&fixed).await.unwrap();
    setting.write(&with(setting.simulation.config(), "userAgent", json!("changed/2")));
    until("the new session", || cloud.session().unwrap().config.user_agent == "changed/2").await;
    assert!(setting.simulation.azure().count(|request| request.user_agent == "changed/2") > 0);
    assert_eq!((cloud.health(), fixed.session().unwrap().config.user_agent.as_str()), (Ok(()), ""));
}

#[tokio::test(start_paused = true)]
async fn node_labels_are_read_once_a_configuration_names_them() {
    let setting = Setting::new();
    let cloud = setting.running().await;
    let (old, nodes) = (cloud.session().unwrap(), setting.context.nodes.clone());
    let read = |keys: [&str; 3]| keys.map(|key| cloud.reads_node_label(key));
    let keys = ["kubernetes.azure.com/managed", "kubernetes.azure.com/mode", "agentpool"];
    assert_eq!(read(keys), [true, false, false]);
    let entry = json!([{"name": "kubernetes", "primaryVMSet": "pool", "nodeSelector": {"matchLabels": {"kubernetes.azure.com/mode": "user"}}}]);
    let several = with(setting.simulation.config(), "loadBalancerBackendPoolConfigurationType", json!("nodeIP"));
    setting.write(&with(several.clone(), "multipleStandardLoadBalancerConfigurations", entry.clone()));
    // No informer lists the Nodes.
    until("the wait is over", || unhealthy(&cloud, "nodeSelector names")).await;
    assert_eq!(read(keys), [true, true, false]);
    // Another change ends the wait for the first.
    let changed = with(several.clone(), "userAgent", json!("changed/2"));
    setting.write(&with(changed, "multipleStandardLoadBalancerConfigurations", entry));
    tokio::time::sleep(RELIST_TIMEOUT * 3).await;
    assert!(Arc::ptr_eq(&old, &cloud.session().unwrap()), "a session without the labels");
    nodes.relisted(1);
    until("the new session", || cloud.session().unwrap().config.user_agent == "changed/2").await;
    assert_eq!(cloud.health(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_changed_secret_brings_new_credentials() {
    let setting = Setting::new();
    setting.put_secret(&setting.simulation.config());
    let cloud = setting.with_secret();
    setting.start(&cloud).await.unwrap();
    let old = cloud.session().unwrap();
    setting.simulation.with_directory(|directory| {
        directory.remove_credentials(CLIENT_ID);
        directory.revoke_tokens();
    });
    setting.add_client_secret("rotated");
    setting.put_secret(&setting.with_client_secret("rotated"));
    until("the new session", || !Arc::ptr_eq(&old, &cloud.session().unwrap())).await;
    tokio::time::sleep(WARM_PERIOD * 30).await;
    assert_eq!(cloud.health(), Ok(()));
}

/// Returns the value of the metric when it is read.
fn refused_configuration(cloud: &AzureCloud) -> f64 {
    cloud.observe();
    let (metrics, _) = cloud.inner.observed.get().unwrap();
    let azure = metrics.table::<AzureMetrics>().unwrap();
    azure.rows.configuration_refused.with_label_values::<&str>(&[]).get()
}

#[tokio::test(start_paused = true)]
async fn an_invalid_change_is_reported_and_not_applied() {
    let setting = Setting::new();
    let cloud = setting.running().await;
    let old = cloud.session().unwrap();
    let unreadable = with(setting.simulation.config(), "location", json!([1]));
    for (bad, expected) in [(unreadable, "location"), (setting.with_client_secret("wrong"), "aadClientSecret")] {
        setting.write(&bad);
        until(expected, || unhealthy(&cloud, expected)).await;
        assert!(json!(cloud.status())["refusedConfiguration"].as_str().unwrap().contains(expected));
        assert_eq!(refused_configuration(&cloud), 1.0);
        assert!(Arc::ptr_eq(&old, &cloud.session().unwrap()));
        setting.write(&setting.simulation.config());
        until("health", || cloud.health().is_ok()).await;
        assert_eq!(refused_configuration(&cloud), 0.0);
        assert!(Arc::ptr_eq(&old, &cloud.session().unwrap()), "what was taken back costs nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn a_newer_change_does_not_wait_for_one_that_hangs() {
    let setting = Setting::new();
    let cloud = setting.running().await;
    setting.simulation.azure().add_fault(Fault::new(Effect::Hang).class(Class::Read).times(3));
    setting.write(&with(setting.simulation.config(), "userAgent", json!("hangs")));
    tokio::time::sleep(config_source::INTERVAL * 2).await;
    let before = tokio::time::Instant::now();
    setting.simulation.azure().faults().clear();
    setting.write(&with(setting.simulation.config(), "userAgent", json!("works")));
    until("the newest session", || cloud.session().unwrap().config.user_agent == "works").await;
    assert!(before.elapsed() < Duration::from_secs(30), "the first try ends only after a minute");
}

#[tokio::test(start_paused = true)]
async fn disable_cloud_provider_stops_and_starts_it() {
    let setting = Setting::new();
    let cloud = setting.running().await;
    let disabled = with(setting.simulation.config(), "disableCloudProvider", json!(true));
    setting.write(&disabled);
    until("stopped", || cloud.session().is_err()).await;
    assert!(unhealthy(&cloud, "disableCloudProvider") && json!(cloud.status())["problem"].is_string());
    let late = setting.with_file(true).unwrap();
    assert!(setting.start(&late).await.unwrap_err().contains("disableCloudProvider"));
    setting.write(&setting.simulation.config());
    until("started", || cloud.health().is_ok()).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_session_keeps_the_paused_quotas() {
    let setting = Setting::new();
    let cloud = setting.running().await;
    let throttled =
        Fault::new(Effect::Refuse(429, "ResourceRequestsThrottled".into(), Some(1800))).path("*/virtualMachines/x");
    setting.simulation.azure().add_fault(throttled);
    let vm = setting.simulation.topology().group_id().resource(api::VIRTUAL_MACHINES.resource_type, &["x"]);
    let read = |cloud: &AzureCloud, id: ResourceId| {
        let arm = cloud.session().unwrap().compute.clone();
        async move { arm.get::<Value>(&api::VIRTUAL_MACHINES, &id, &[]).await.unwrap_err() }
    };
    read(&cloud, vm).await;
    setting.write(&with(setting.simulation.config(), "userAgent", json!("changed/2")));
    until("the new session", || cloud.session().unwrap().config.user_agent == "changed/2").await;
    let status = json!(cloud.status());
    let buckets = status["session"]["requestBudget"]["buckets"].as_array().unwrap();
    let paused = |bucket: &&Value| bucket["pausedForSeconds"].as_f64().unwrap() > 60.0;
    assert_eq!(buckets.iter().filter(paused).count(), 1, "{buckets:?}");
}

#[tokio::test(start_paused = true)]
async fn background_work_begins_once_and_ends_with_the_shutdown() {
    let setting = Setting::new();
    setting.put_secret(&setting.simulation.config());
    let cloud = setting.with_secret();
    setting.start(&cloud).await.unwrap();
    setting.start(&cloud).await.unwrap();
    setting.server.clear_requests();
    tokio::time::sleep(config_source::INTERVAL * 10).await;
    let reads = setting.server.requests().iter().filter(|request| !request.verb.is_write()).count();
    assert!((8..=12).contains(&reads), "{reads}");

    setting.simulation.azure().add_fault(Fault::new(Effect::Hang).class(Class::Read));
    tokio::time::sleep(Duration::from_secs(700)).await;
    setting.context.shutdown.begin();
    assert!(setting.context.shutdown.drain(Duration::from_secs(1)).await);
}
