//! From flags to parts: which controllers are built and with what, and the settings of the secure port.

use std::sync::Arc;

use super::manager::ClientSource;
use crate::{
    cli::{config::Config, controllers::{ControllerName, TABLE}},
    cloud_provider::CloudProvider,
    controllers::{Controller, ControllerContext, Informers, node, node_lifecycle, route, service},
    metrics::Metrics,
    runtime::{clock::Clock, events::EventRecorder, leader_election::Leadership, patch::Writer},
};

/// A controller is configured wrongly.
#[derive(Debug, thiserror::Error)]
#[error("{controller}: {reason}")]
pub struct WiringError {
    controller: &'static str,
    reason: String,
}

/// What controllers are built from.
pub(super) struct Context<'a> {
    pub(super) config: &'a Config,
    pub(super) clients: &'a dyn ClientSource,
    pub(super) recorder: &'a EventRecorder,
    pub(super) leadership: &'a Leadership,
    pub(super) clock: Clock,
    pub(super) metrics: &'a Arc<Metrics>,
}

/// The controllers that run, and those that do not with the reason.
#[derive(Default)]
pub(super) struct Wired {
    pub(super) controllers: Vec<Arc<dyn Controller>>,
    pub(super) skipped: Vec<(&'static str, String)>,
}
