//! cloud-node-manager: the node controller for one Node, run by the machine of that Node.
//!
//! In: [`NodeManagerDeps`] – the Node's name, clients, and the metadata of its machine. Out: a [`NodeManager`] that watches this
//! Node and no other, initializes it, and keeps its addresses and labels up to date. The changes and the writes are those of
//! [`controllers::node`](crate::controllers::node), so that both modes produce the same Node and never overwrite each other.
//! Upstream: `pkg/nodemanager`.
//!
//! ```text
//! watch of one Node ─► NodeController ─► patches of that Node
//!                          ▲
//! metadata service ────────┘
//! ```

pub(crate) mod config;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, Service};

pub use config::NodeManagerSettings;

use crate::{
    cloud_provider::{
        CloudProvider, ProviderContext, metered,
        start::{ProviderReadiness, initialize},
    },
    controllers::{
        Controller, ControllerContext, Informers, NoInstances,
        names::NODE,
        node::{self, NodeController},
    },
    metrics::Metrics,
    node::{prune_node, unread_fields},
    runtime::{
        clock::Clock,
        events::{self, EventRecorder},
        informer::Informer,
        leader_election::Leadership,
        patch::ObjectWriter,
        shutdown::Shutdown,
        store::InformerStore,
        watch,
        work_queue::KeyBackoff,
    },
};

/// Maximum delay between attempts to initialize the Node. The metadata service is local to the machine, so requests are
/// cheap.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Delay before the second attempt.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Dependencies of a node manager.
pub struct NodeManagerDeps {
    /// The Node of this machine.
    pub node_name: String,
    /// Client for reads and writes.
    pub client: kube::Client,
    /// Client for the watch, which may be silent for long.
    pub watches: kube::Client,
    /// Provider for this machine.
    pub provider: Arc<dyn CloudProvider>,
    /// Metrics, one registry for the process.
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    pub settings: NodeManagerSettings,
}

/// Running node manager. Clones share its state.
#[derive(Clone)]
pub struct NodeManager {
    pub(crate) provider: Arc<dyn CloudProvider>,
    provider_ready: watch::Receiver<ProviderReadiness>,
    pub(crate) nodes: InformerStore<Node>,
    pub(crate) controller: Arc<NodeController>,
}

impl NodeManager {
    /// Creates a manager, and starts its watch and its provider, which run until `background` begins.
    ///
    /// # Errors
    ///
    /// The provider offers no instances.
    pub fn start(parts: NodeManagerDeps, background: &Shutdown) -> Result<Self, NoInstances> {
        let NodeManagerDeps { node_name, client, watches, provider, metrics, clock, settings } = parts;
        let leadership = Leadership::unopposed();
        let (recorder, recorded) = EventRecorder::channel(NODE.event_source);
        let recorder = recorder.with_discard_metric(&metrics);
        let provider =
            metered::metered(provider, Arc::clone(&metrics), leadership.clone().into(), metered::CallDeadlines::default());

        let nodes = Informer::for_object(&node_name, prune_node).without(unread_fields());
        let mut informers = Informers::new(nodes, Informer::new(|_| ()));
        let nodes = informers.nodes.store();
        let own = ControllerContext {
            cluster_name: String::new(),
            writer: ObjectWriter::new(client.clone(), leadership.clone()),
            events: recorder.clone(),
            clock,
            metrics: Arc::clone(&metrics),
        };
        let config = node_controller_config(settings);
        let controller = NodeController::new(&own, &mut informers, Arc::clone(&provider), config, None)?;

        let context = ProviderContext {
            client: client.clone(),
            leadership: leadership.clone(),
            route_leadership: leadership,
            shutdown: background.clone(),
            clock,
            metrics: Arc::clone(&metrics),
            nodes: nodes.clone(),
            services: InformerStore::<Service>::default(),
            namespaces: Default::default(),
            endpoint_slices: Default::default(),
            events: recorder,
        };
        events::start_sink(recorded, client, clock, Arc::clone(&metrics), background);
        let provider_ready = initialize(Arc::clone(&provider), context, background);
        informers.nodes.start(watches, background, metrics);
        Ok(Self { provider, provider_ready, nodes, controller })
    }

    /// Reconciles the Node until `stop` begins, then waits for a running reconcile.
    pub async fn run(mut self, stop: &Shutdown) {
        let ready = async {
            self.nodes.synced().await;
            // A provider that cannot start is called nevertheless: its error reaches the Node as an event.
            let _ = self.provider_ready.wait_for(Option::is_some).await;
        };
        if stop.run_until_begun(ready).await.is_none() {
            return;
        }
        self.controller.run(stop.clone()).await;
    }

    /// Returns the reason why the provider cannot describe the machine, if any.
    pub fn provider_problem(&self) -> Option<String> {
        match &*self.provider_ready.borrow() {
            Some(Ok(())) => self.provider.health().err(),
            Some(Err(reason)) => Some(format!("cannot be initialized; retrying: {reason}")),
            None => Some("is being initialized".to_owned()),
        }
    }
}

fn node_controller_config(settings: NodeManagerSettings) -> node::NodeControllerConfig {
    node::NodeControllerConfig {
        workers: Some(1),
        status_workers: Some(1),
        status_update_frequency: settings.status_update_frequency,
        backoff: KeyBackoff { base: MIN_RETRY_DELAY, max: MAX_RETRY_DELAY },
        waits_for_routes: settings.wait_routes,
        beta_labels: match settings.beta_labels {
            true => node::BetaLabels::Reconciled,
            false => node::BetaLabels::Omitted,
        },
        reconcile_labels: settings.reconcile_labels,
    }
}
