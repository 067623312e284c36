//! Construction of the controllers and their dependencies from the configuration.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::{
    client_source::ClientSource,
    start_error::{StartResult, WiringError},
};
use crate::{
    cli::config::ManagerConfig,
    cloud_provider::{CloudProvider, metered::WriteLeadership},
    controllers::{
        Controller, ControllerContext, Informers,
        leader_migration::{ControllerLease, LeaderMigration},
        names::{ControllerNames, NODE, NODE_IPAM, NODE_LIFECYCLE, ROUTE, SERVICE, TABLE},
        node,
        node_ipam::{self, PodCidrPool},
        node_lifecycle, route, service,
    },
    metrics::Metrics,
    node::{prune_node, prune_node_and_labels, unread_fields, unread_fields_and_labels},
    runtime::{
        clock::Clock,
        events::EventRecorder,
        informer::{Informer, ObjectChange},
        leader_election::Leadership,
        patch::ObjectWriter,
        watch,
    },
};

/// Creates the informer of Nodes. Without a `selector`, labels without a reader are removed; with one, all labels are kept,
/// because the selector may name any of them.
pub(super) fn node_informer(selector: Option<&str>, provider: &Arc<dyn CloudProvider>) -> Informer<Node> {
    if let Some(selector) = selector {
        return Informer::with_label_selector(Some(selector), prune_node).without(unread_fields());
    }
    let [decoded, arriving] = [provider, provider].map(Arc::clone);
    Informer::new(move |node: &mut Node| prune_node_and_labels(node, |key| decoded.reads_node_label(key)))
        .without(unread_fields_and_labels(move |key| arriving.reads_node_label(key)))
}

/// Returns a receiver of the reason why the provider must not lead this cluster, after a Node of another cloud has joined.
pub(super) fn watch_refusals(
    nodes: &mut Informer<Node>,
    provider: &Arc<dyn CloudProvider>,
) -> watch::Receiver<Option<String>> {
    let ((sender, receiver), provider) = (watch::channel(None), Arc::clone(provider));
    nodes.subscribe(move |change| {
        let reason = match change {
            ObjectChange::Added(node) | ObjectChange::Updated { new: node, .. } => {
                provider.refuses_cluster(std::slice::from_ref(node))
            }
            ObjectChange::Deleted(_) => None,
        };
        if reason.is_some() {
            sender.send_replace(reason);
        }
    });
    receiver
}

/// Dependencies of the controllers.
pub(super) struct WiringContext<'a> {
    pub(super) config: &'a ManagerConfig,
    pub(super) clients: &'a dyn ClientSource,
    pub(super) recorder: &'a EventRecorder,
    pub(super) leases: &'a ControllerLeases,
    pub(super) clock: Clock,
    pub(super) metrics: &'a Arc<Metrics>,
}

/// Controllers that run, and those that do not, with the reasons.
#[derive(Default)]
pub(super) struct WiredControllers {
    pub(super) controllers: Vec<(ControllerNames, Arc<dyn Controller>)>,
    pub(super) skipped: Vec<(&'static str, String)>,
    /// Source of pod CIDRs, if this process allocates them.
    pod_cidrs: Option<Arc<PodCidrPool>>,
}

/// Leadership that each controller writes under.
pub(super) struct ControllerLeases {
    pub(super) main: Leadership,
    /// Leadership of the second lease, with the migration that selects its controllers.
    pub(super) migration: Option<(LeaderMigration, Leadership)>,
}

impl ControllerLeases {
    /// Returns the leadership of a controller, or the program that runs it instead.
    pub(super) fn of(&self, names: &ControllerNames) -> Result<&Leadership, String> {
        let Some((migration, leadership)) = &self.migration else { return Ok(&self.main) };
        match migration.lease_of(names) {
            ControllerLease::Main => Ok(&self.main),
            ControllerLease::Migration => Ok(leadership),
            ControllerLease::Elsewhere(component) => Err(component),
        }
    }

    /// Returns the leadership for calls of the provider. A controller that runs elsewhere makes no such calls here.
    fn or_main(&self, names: &ControllerNames) -> Leadership {
        self.of(names).unwrap_or(&self.main).clone()
    }

    /// Returns the leadership that the provider's writing calls check.
    pub(super) fn of_provider(&self) -> WriteLeadership {
        WriteLeadership { load_balancers: self.or_main(&SERVICE), routes: self.or_main(&ROUTE) }
    }
}

/// Controller, or the reason why it does not run.
type WiredController = Result<Arc<dyn Controller>, String>;

/// Builds the controllers that the flags select and the provider supports, and records the reasons for the others.
///
/// # Errors
///
/// The configuration of a controller is invalid, or its client cannot be built.
pub(super) fn controllers(
    context: &WiringContext<'_>,
    informers: &mut Informers,
    provider: &Arc<dyn CloudProvider>,
) -> StartResult<WiredControllers> {
    let mut wired = WiredControllers::default();
    for names in TABLE {
        let leadership = match leadership_of(names, context) {
            Ok(leadership) => leadership,
            Err(reason) => {
                wired.skipped.push((names.canonical, reason));
                continue;
            }
        };
        match build(*names, context, leadership, informers, provider, &mut wired)? {
            Ok(controller) => wired.controllers.push((*names, controller)),
            Err(reason) => {
                tracing::warn!(controller = names.canonical, reason, "not started");
                wired.skipped.push((names.canonical, reason));
            }
        }
    }
    Ok(wired)
}

/// Returns the leadership of a controller that the flags select, or the reason why they do not select it.
fn leadership_of<'a>(names: &ControllerNames, context: &WiringContext<'a>) -> Result<&'a Leadership, String> {
    if !context.config.controllers.contains(names.canonical) {
        return Err("switched off by --controllers or --enable-node-controller".to_owned());
    }
    if *names == NODE_IPAM && !context.config.node_ipam.enabled {
        return Err("pod CIDRs are not allocated here (--allocate-node-cidrs=false)".to_owned());
    }
    context.leases.of(names).map_err(|component| format!("runs in {component} (--leader-migration-config)"))
}

fn build(
    names: ControllerNames,
    context: &WiringContext<'_>,
    leadership: &Leadership,
    informers: &mut Informers,
    provider: &Arc<dyn CloudProvider>,
    wired: &mut WiredControllers,
) -> StartResult<WiredController> {
    let config = context.config;
    let own = ControllerContext {
        cluster_name: config.cloud.config.cluster_name.clone(),
        writer: ObjectWriter::new(context.clients.controller(names.client, leadership)?, leadership.clone()),
        events: context.recorder.for_component(names.event_source),
        clock: context.clock,
        metrics: Arc::clone(context.metrics),
    };
    let provider = Arc::clone(provider);
    Ok(match names {
        NODE_IPAM => {
            let controller = pod_cidrs(&own, informers, provider.as_ref(), config)?;
            wired.pod_cidrs = Some(controller.pool());
            Ok(controller as Arc<dyn Controller>)
        }
        NODE => {
            let pod_cidrs = wired.pod_cidrs.clone();
            into_dyn(node::NodeController::new(&own, informers, provider, config.node, pod_cidrs))
        }
        NODE_LIFECYCLE => {
            into_dyn(node_lifecycle::NodeLifecycleController::new(&own, informers, provider, config.node_lifecycle))
        }
        SERVICE => into_dyn(service::new(&own, informers, provider, config.service.clone())),
        _ if !config.cloud.configure_cloud_routes => Err("switched off by --configure-cloud-routes=false".to_owned()),
        _ => routes(&own, informers, provider, config)?,
    })
}

/// Creates the node-ipam controller. As upstream, an invalid allocation ends the process.
fn pod_cidrs(
    own: &ControllerContext,
    informers: &mut Informers,
    provider: &dyn CloudProvider,
    config: &ManagerConfig,
) -> StartResult<Arc<node_ipam::NodeIpamController>> {
    let has_instances = provider.instances_v2().is_some() || provider.instances().is_some();
    let has_node_controller = has_instances && config.controllers.contains(NODE.canonical);
    let built = node_ipam::NodeIpamController::new(own, informers, provider, config.node_ipam.clone(), has_node_controller);
    built.map_err(|reason| WiringError { controller: NODE_IPAM.canonical, reason: reason.to_string() }.into())
}

/// Creates the route controller. As upstream, missing or invalid CIDRs end the process, a provider without routes only the
/// controller.
fn routes(
    own: &ControllerContext,
    informers: &mut Informers,
    provider: Arc<dyn CloudProvider>,
    config: &ManagerConfig,
) -> StartResult<WiredController> {
    match route::RouteController::new(own, informers, provider, config.route.clone()) {
        Ok(controller) => Ok(Ok(controller)),
        Err(reason @ route::RouteControllerError::RoutesUnsupported(_)) => Ok(Err(reason.to_string())),
        Err(reason) => Err(WiringError { controller: ROUTE.canonical, reason: reason.to_string() }.into()),
    }
}

fn into_dyn<C: Controller + 'static, E: std::fmt::Display>(built: Result<Arc<C>, E>) -> WiredController {
    built.map(|controller| controller as Arc<dyn Controller>).map_err(|reason| reason.to_string())
}
