//! A secure port on loopback and its clients. Input: settings and an API server. Output: [`Served`], which requests pages.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use cloud_controller_manager::{
    metrics::Metrics,
    runtime::{clock::Clock, shutdown::Shutdown},
    serving::{HealthChecks, PlanError, PlanRequest, SecureServingConfig, ServingDeps, serve},
    status::ManagerStatus,
};
use reqwest::Client;
use serde_json::json;

use crate::serving::api_server::ApiServer;

/// Running secure port.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: HealthChecks,
    pub(crate) verbosity: Arc<AtomicU8>,
    pub(crate) shutdown: Shutdown,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

pub(crate) fn config() -> SecureServingConfig {
    SecureServingConfig {
        bind_address: [127, 0, 0, 1].into(),
        port: 0,
        reload_interval: Duration::from_millis(20),
        ..Default::default()
    }
}

pub(crate) fn parts(api: Option<&Arc<ApiServer>>, verbosity: &Arc<AtomicU8>) -> ServingDeps {
    let metrics = Arc::new(Metrics::new().unwrap());
    let (gauges, verbosity) = (Arc::clone(&metrics), Arc::clone(verbosity));
    ServingDeps {
        metrics,
        health: HealthChecks::default(),
        reviews: api.map(|api| api.client().into()),
        configz: json!({ "kind": "CloudControllerManagerConfiguration" }),
        flagz: vec![("controllers".to_owned(), "*".to_owned())],
        status: Arc::new(|| ManagerStatus { version: "v0.1.0".to_owned(), ..ManagerStatus::default() }),
        planner: Some(Arc::new(|scope| Box::pin(planned(scope)))),
        before_metrics: Arc::new(move || gauges.workqueue_depth.with_label_values(&["service"]).set(42.0)),
        set_verbosity: Arc::new(move |level| verbosity.store(level, Ordering::SeqCst)),
        clock: Clock::System,
    }
}

pub(crate) async fn planned(scope: PlanRequest) -> Result<String, PlanError> {
    let service = match scope {
        PlanRequest::Service(service) => service,
        PlanRequest::Cluster { kind, after } => return Ok(format!("all {kind:?} {after:?}")),
        PlanRequest::Report { json } => return Ok(format!("report, json: {json}")),
    };
    match service.as_str() {
        "default/web" => Ok("put a load balancer\nput a rule\n".to_owned()),
        _ => Err(PlanError { code: 404, reason: format!("there is no Service {service}") }),
    }
}

pub(crate) async fn start(config: SecureServingConfig, api: Option<&Arc<ApiServer>>) -> Served {
    let verbosity = Arc::new(AtomicU8::new(0));
    let parts = parts(api, &verbosity);
    start_with(config, parts, verbosity).await
}

pub(crate) async fn start_with(config: SecureServingConfig, parts: ServingDeps, verbosity: Arc<AtomicU8>) -> Served {
    let (metrics, health, shutdown) = (Arc::clone(&parts.metrics), parts.health.clone(), Shutdown::new());
    let address = serve(config, parts, shutdown.clone()).await.unwrap();
    Served { address, metrics, health, verbosity, shutdown }
}

pub(crate) async fn error(config: SecureServingConfig) -> String {
    let parts = parts(None, &Arc::default());
    serve(config, parts, Shutdown::new()).await.unwrap_err().to_string()
}

pub(crate) fn client() -> Client {
    reqwest::ClientBuilder::new().danger_accept_invalid_certs(true).build().unwrap()
}

impl Served {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        fetch(client().get(self.url(path))).await
    }

    pub(crate) async fn get_as(&self, token: &str, path: &str) -> (u16, String) {
        fetch(client().get(self.url(path)).bearer_auth(token)).await
    }
}

pub(crate) async fn fetch(request: reqwest::RequestBuilder) -> (u16, String) {
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// Repeats `probe` until it returns `true`. Panics with `condition` after 30 s.
pub(crate) async fn eventually<F: Future<Output = bool>>(condition: &str, probe: impl Fn() -> F) {
    let repeated = async {
        while !probe().await {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), repeated).await.is_ok(), "never: {condition}");
}

/// Returns a client with its own source address.
pub(crate) fn client_from(source: [u8; 4]) -> Client {
    let builder = reqwest::ClientBuilder::new().danger_accept_invalid_certs(true);
    builder.local_address(IpAddr::from(source)).build().unwrap()
}
