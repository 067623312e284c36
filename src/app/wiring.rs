//! From flags to parts: which controllers are built and with what, and the settings of the secure port.

use std::sync::Arc;

use super::{
    client_source::ClientSource,
    start_error::{ManagerStartError, WiringError},
};
use crate::{
    cli::{
        config::{self, KubeCloudSharedOptions, ManagerConfig},
        feature_gates::{self, FeatureGates},
        tls,
    },
    cloud_provider::{
        CloudProvider,
        registry::{ProviderConfig, SecretRef},
    },
    controllers::{
        Controller, ControllerContext, Informers,
        names::{ControllerNames, NODE, NODE_LIFECYCLE, ROUTE, SERVICE, TABLE},
        node, node_lifecycle, route, service,
    },
    metrics::Metrics,
    runtime::{clock::Clock, events::EventRecorder, leader_election::Leadership, patch::ObjectWriter},
    serving,
};

/// What controllers are built from.
pub(super) struct WiringContext<'a> {
    pub(super) config: &'a ManagerConfig,
    pub(super) clients: &'a dyn ClientSource,
    pub(super) recorder: &'a EventRecorder,
    pub(super) leadership: &'a Leadership,
    pub(super) clock: Clock,
    pub(super) metrics: &'a Arc<Metrics>,
}

/// The controllers that run, and those that do not with the reason.
#[derive(Default)]
pub(super) struct WiredControllers {
    pub(super) controllers: Vec<(ControllerNames, Arc<dyn Controller>)>,
    pub(super) skipped: Vec<(&'static str, String)>,
}

/// A controller, or why it is left out.
type WiredController = Result<Arc<dyn Controller>, String>;

/// Builds the controllers that the flags select and the provider supports; the others are named with the reason.
pub(super) fn controllers(
    context: &WiringContext<'_>,
    informers: &mut Informers,
    provider: &Arc<dyn CloudProvider>,
) -> Result<WiredControllers, ManagerStartError> {
    let mut wired = WiredControllers::default();
    for names in TABLE {
        if !context.config.controllers.contains(names.canonical) {
            wired.skipped.push((names.canonical, "switched off by --controllers or --enable-node-controller".to_owned()));
            continue;
        }
        match build(*names, context, informers, provider)? {
            Ok(controller) => wired.controllers.push((*names, controller)),
            Err(reason) => {
                tracing::warn!(controller = names.canonical, reason, "not started");
                wired.skipped.push((names.canonical, reason));
            }
        }
    }
    Ok(wired)
}

fn build(
    names: ControllerNames,
    context: &WiringContext<'_>,
    informers: &mut Informers,
    provider: &Arc<dyn CloudProvider>,
) -> Result<WiredController, ManagerStartError> {
    let config = context.config;
    let own = ControllerContext {
        cluster_name: config.cloud.cluster_name.clone(),
        writer: ObjectWriter::new(context.clients.controller(names.client, context.leadership)?, context.leadership.clone()),
        events: context.recorder.for_component(names.event_source),
        clock: context.clock,
        metrics: Arc::clone(context.metrics),
    };
    let provider = Arc::clone(provider);
    Ok(match names {
        NODE => into_dyn(node::NodeController::new(&own, informers, provider, node_settings(&config.node))),
        NODE_LIFECYCLE => {
            let settings = lifecycle_settings(&config.node_lifecycle);
            into_dyn(node_lifecycle::NodeLifecycleController::new(&own, informers, provider, settings))
        }
        SERVICE => {
            let concurrent_syncs = config.service.concurrent_syncs.unwrap_or(0);
            let settings = service::ServiceControllerConfig { concurrent_syncs, resync_period: config.min_resync_period };
            into_dyn(service::new(&own, informers, provider, settings))
        }
        _ if !config.cloud.configure_cloud_routes => Err("switched off by --configure-cloud-routes=false".to_owned()),
        _ => routes(&own, informers, provider, config)?,
    })
}

/// Upstream: missing or wrong CIDRs end the process, a provider without routes only the controller.
fn routes(
    own: &ControllerContext,
    informers: &mut Informers,
    provider: Arc<dyn CloudProvider>,
    config: &ManagerConfig,
) -> Result<WiredController, ManagerStartError> {
    let settings = route::RouteControllerConfig {
        cluster_cidrs: config.cloud.cluster_cidrs.clone(),
        reconciliation_period: config.route.reconciliation_period,
        watch_based: config.route.watch_based,
        nodes_are_filtered: config.node_filter.is_some(),
    };
    match route::RouteController::new(own, informers, provider, settings) {
        Ok(controller) => Ok(Ok(controller)),
        Err(reason @ route::RouteControllerError::RoutesUnsupported(_)) => Ok(Err(reason.to_string())),
        Err(reason) => Err(WiringError { controller: ROUTE.canonical, reason: reason.to_string() }.into()),
    }
}

fn into_dyn<C: Controller + 'static, E: std::fmt::Display>(built: Result<Arc<C>, E>) -> WiredController {
    built.map(|controller| controller as Arc<dyn Controller>).map_err(|reason| reason.to_string())
}

fn node_settings(config: &config::NodeControllerOptions) -> node::NodeControllerConfig {
    node::NodeControllerConfig {
        workers: Some(config.workers),
        status_workers: Some(config.status_update_workers),
        status_update_frequency: config.status_update_frequency,
        ..node::NodeControllerConfig::default()
    }
}

fn lifecycle_settings(config: &config::NodeLifecycleControllerOptions) -> node_lifecycle::NodeLifecycleControllerConfig {
    node_lifecycle::NodeLifecycleControllerConfig {
        monitor_period: config.monitor_period,
        grace_period: config.deletion_grace_period,
        max_count: config.deletion_max_count,
        max_percent: usize::from(config.deletion_max_percent),
        window: config.deletion_window,
    }
}

/// The settings of the secure port.
pub(super) fn serving(config: &config::SecureServingOptions, gates: &FeatureGates) -> serving::SecureServingConfig {
    serving::SecureServingConfig {
        bind_address: config.bind_address,
        port: config.secure_port,
        cert_dir: config.cert_dir.clone(),
        tls_cert_file: config.tls_files.as_ref().map(|files| files.cert.clone()),
        tls_private_key_file: config.tls_files.as_ref().map(|files| files.key.clone()),
        tls_sni_cert_key: config.sni_certificates.iter().map(sni).collect(),
        tls_min_version: match config.min_version {
            tls::OfferedTlsVersion::V1_2 => serving::TlsMinVersion::Tls12,
            tls::OfferedTlsVersion::V1_3 => serving::TlsMinVersion::Tls13,
        },
        tls_cipher_suites: config.cipher_suites.iter().map(|name| (*name).to_owned()).collect(),
        tls_curve_preferences: config.curve_preferences.iter().map(|curve| i32::from(*curve)).collect(),
        disable_http2: !config.http2,
        http2_max_streams: config.http2_max_streams,
        permit_port_sharing: config.permit_port_sharing,
        permit_address_sharing: config.permit_address_sharing,
        profiling: config.profiling,
        flagz: gates.enabled(feature_gates::FLAGZ),
        statusz: gates.enabled(feature_gates::STATUSZ),
        authentication: authentication(&config.authentication),
        authorization: serving::DelegatedAuthorizationConfig {
            always_allow_paths: config.authorization.always_allow_paths.clone(),
            authorized_ttl: config.authorization.authorized_ttl,
            unauthorized_ttl: config.authorization.unauthorized_ttl,
        },
        ..serving::SecureServingConfig::default()
    }
}

fn sni(pair: &crate::cli::value::SniCertKeyFlag) -> serving::SniCertKey {
    serving::SniCertKey {
        cert_file: pair.cert_file.clone().into(),
        key_file: pair.key_file.clone().into(),
        patterns: pair.names.clone(),
    }
}

fn authentication(config: &config::DelegatingAuthenticationOptions) -> serving::DelegatedAuthenticationConfig {
    let proxy = config.request_header.as_ref();
    serving::DelegatedAuthenticationConfig {
        skip_lookup: config.skip_lookup,
        tolerate_lookup_failure: config.tolerate_lookup_failure,
        token_cache_ttl: config.token_cache_ttl,
        client_ca_file: config.client_ca_file.clone(),
        requestheader_client_ca_file: proxy.map(|proxy| proxy.client_ca_file.clone()),
        requestheader: proxy.map_or_else(serving::RequestHeaderNames::default, |proxy| serving::RequestHeaderNames {
            allowed_names: proxy.allowed_names.clone(),
            username_headers: proxy.username_headers.clone(),
            uid_headers: proxy.uid_headers.clone(),
            group_headers: proxy.group_headers.clone(),
            extra_headers_prefix: proxy.extra_header_prefixes.clone(),
        }),
    }
}

/// What the factories of providers are told.
pub(super) fn provider_config(cloud: &KubeCloudSharedOptions) -> ProviderConfig {
    let secret = cloud.cloud_config_secret.clone();
    ProviderConfig {
        cloud_config: cloud.cloud_config.clone(),
        cloud_config_secret: secret.map(|secret| SecretRef {
            namespace: secret.namespace,
            name: secret.name,
            key: secret.key,
        }),
        reload: cloud.reload,
        cluster_name: cloud.cluster_name.clone(),
    }
}
