//! Simulated process of the provider, initialized and leading. In: a fixture, and the Nodes and Services of the cluster.
//! Out: the parts of the provider, until the process is killed.

use std::{convert::Infallible, sync::Arc};

use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::client::Body;

use super::{
    CloudFixture,
    report::{AtStep, CheckResult, needed, require},
};
use crate::{
    cloud_provider::{
        CloudError, CloudProvider, CloudResult, InstancesV2, LoadBalancer, ProviderContext, Routes, instances_of,
    },
    metrics::Metrics,
    runtime::{
        clock::Clock,
        events::EventRecorder,
        informer::OnDemandInformer,
        leader_election::{Leadership, LeadershipState},
        shutdown::Shutdown,
        store::InformerStore,
        watch,
    },
};

/// Simulated process of a provider. Dropping it kills the process: its leadership and its tasks end.
pub(super) struct Process {
    provider: Arc<dyn CloudProvider>,
    leadership: watch::Sender<LeadershipState>,
    shutdown: Shutdown,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.leadership.send_replace(LeadershipState::Standby);
        self.shutdown.begin();
    }
}

impl Process {
    /// Starts a process that leads.
    pub(super) async fn start(fixture: &dyn CloudFixture, nodes: &[Node], services: &[Service]) -> CheckResult<Self> {
        Self::start_as(fixture, LeadershipState::Unopposed, nodes, services).await
    }

    async fn start_as(
        fixture: &dyn CloudFixture,
        state: LeadershipState,
        nodes: &[Node],
        services: &[Service],
    ) -> CheckResult<Self> {
        let provider = fixture.provider().await.at("create the provider")?;
        let (sender, leadership) = Leadership::channel();
        sender.send_replace(state);
        let shutdown = Shutdown::new();
        let context = context(leadership, shutdown.clone(), nodes, services).at("create its context")?;
        let process = Self { provider, leadership: sender, shutdown };
        process.provider.initialize(fixture.context(context)).await.at("initialize")?;
        Ok(process)
    }

    pub(super) fn name(&self) -> &str {
        self.provider.provider_name()
    }

    pub(super) fn load_balancer(&self) -> CheckResult<Arc<dyn LoadBalancer>> {
        needed(self.provider.load_balancer(), "load balancers")
    }

    pub(super) fn instances(&self) -> CheckResult<Arc<dyn InstancesV2>> {
        needed(instances_of(self.provider.as_ref()), "InstancesV2")
    }

    pub(super) fn routes(&self) -> CheckResult<Arc<dyn Routes>> {
        needed(self.provider.routes(), "routes")
    }
}

/// Returns the context of a provider without an API server, in a cluster whose objects do not change.
pub(crate) fn context(
    leadership: Leadership,
    shutdown: Shutdown,
    nodes: &[Node],
    services: &[Service],
) -> CloudResult<ProviderContext> {
    let metrics = Metrics::new().map_err(|error| CloudError::failed(error.to_string()))?;
    Ok(ProviderContext {
        client: kube::Client::new(tower::service_fn(not_found), "default"),
        leadership: leadership.clone(),
        route_leadership: leadership,
        shutdown,
        clock: Clock::System,
        metrics: Arc::new(metrics),
        nodes: InformerStore::of(nodes.iter().cloned()),
        services: InformerStore::of(services.iter().cloned()),
        namespaces: OnDemandInformer::default(),
        endpoint_slices: OnDemandInformer::default(),
        events: EventRecorder::channel("conformance").0,
    })
}

async fn not_found(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_FOUND;
    Ok(response)
}

/// Checks that the name is the scheme of provider IDs and the value of `--cloud-provider`.
pub(super) async fn the_name_fits_provider_ids(fixture: &dyn CloudFixture) -> CheckResult {
    let process = Process::start(fixture, &[], &[]).await?;
    let name = process.name();
    let is_valid = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    require(!name.is_empty() && name.chars().all(is_valid), || {
        format!("{name:?} contains other characters than a-z, 0-9 and -")
    })
}

/// Checks that `initialize` does not write on a standby replica.
pub(super) async fn a_start_writes_nothing(fixture: &dyn CloudFixture) -> CheckResult {
    let before = fixture.contents().await;
    let _standby = Process::start_as(fixture, LeadershipState::Standby, &[], &[]).await?;
    let after = fixture.contents().await;
    require(before == after, || "initialize on a standby changed the cloud".to_owned())
}
