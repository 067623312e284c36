//! Webhooks. `service-validator` reports errors to the author of a Service immediately, instead of later in events; `pv-labeler`
//! returns the locations of disks ([`disk`]).
//!
//! In: a Service before it is written, and the current configuration. Out: warnings, or a refusal with all errors. The planner's own
//! parser decides ([`decide`]). For Services, no request is sent and nothing is written.

mod decide;
mod disk;

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;

pub(super) use disk::DiskLabeler;

use super::{planner::load_balancer::settings::LoadBalancerSettings, session::Session, session_proxy::current_session};
use crate::cloud_provider::{AdmissionAnswer, AdmissionRequest, AdmissionWebhook, load_balancer_class::LoadBalancerClasses};

/// Value for the flag `--webhooks`.
pub const SERVICE_VALIDATOR: &str = "service-validator";
/// Path of the webhook.
pub const SERVICE_VALIDATOR_PATH: &str = "/validate-v1-service";

/// Webhook that validates Services with the current configuration.
pub(super) struct ServiceValidator {
    pub(super) session: Arc<ArcSwapOption<Session>>,
    pub(super) cluster: String,
    pub(super) classes: LoadBalancerClasses,
}

#[async_trait]
impl AdmissionWebhook for ServiceValidator {
    fn name(&self) -> &'static str {
        SERVICE_VALIDATOR
    }

    fn path(&self) -> &'static str {
        SERVICE_VALIDATOR_PATH
    }

    async fn review(&self, request: &AdmissionRequest) -> Result<AdmissionAnswer, String> {
        let session = current_session(&self.session).map_err(|error| error.to_string())?;
        let settings = LoadBalancerSettings::new(&session.config, &self.cluster).serving(&self.classes);
        Ok(decide::decide(request, &settings))
    }
}
