//! Who asks for what, and what each got: the words that all steps of planning share. Pure.

use std::{collections::BTreeMap, sync::Arc};

use super::draft::FrontendUse;
use crate::providers::azure::{
    model::ResourceId,
    planner::load_balancer::spec::{IpFamily, PublicIpSpec, ServiceIdentity, ServiceSpec},
};

/// Why a document is written again that ARM could not bring to what it was told.
pub const LAST_CHANGE_FAILED: &str = "write it again, since its last change failed";

/// Place of a request among those of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestIdx(pub(super) usize);

/// Place of a load balancer among the drafts of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DraftIdx(pub(super) usize);

/// How many rules each load balancer will have, by external name in lower case and kind; one that is missing is not there.
pub(super) type RuleCounts = BTreeMap<(String, bool), usize>;

/// One Service's part in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceRequest {
    /// Its load balancer shall be as asked.
    Ensure(Arc<ServiceSpec>),
    /// All that belongs to it shall go. Carries the last valid spec, when there is one, for what only it tells (pinned addresses).
    Delete(ServiceIdentity, Option<Arc<ServiceSpec>>),
}

impl ServiceRequest {
    /// Whose it is.
    pub fn identity(&self) -> &ServiceIdentity {
        match self {
            ServiceRequest::Ensure(spec) => &spec.identity,
            ServiceRequest::Delete(identity, _) => identity,
        }
    }

    /// What it asks for or asked for last.
    pub fn spec(&self) -> Option<&Arc<ServiceSpec>> {
        match self {
            ServiceRequest::Ensure(spec) => Some(spec),
            ServiceRequest::Delete(_, last) => last.as_ref(),
        }
    }

    /// Returns the request without a DNS label: the public IP keeps the one that it has.
    pub fn without_dns_label(&self) -> Self {
        let ServiceRequest::Ensure(spec) = self else { return self.clone() };
        let public_ip = PublicIpSpec { dns_label: None, ..spec.public_ip.clone() };
        ServiceRequest::Ensure(Arc::new(ServiceSpec { public_ip, ..ServiceSpec::clone(spec) }))
    }
}

/// The public IP that each external Service shall have, by family. It may not exist yet.
pub type PublicIpAssignment = BTreeMap<(ServiceIdentity, IpFamily), ResourceId>;

/// Reason of the event, and field of the refusal, when a front end has to stay because others use it.
pub const DELETING_FRONTEND: &str = "DeletingFrontendIPConfiguration";

/// A frontend that its Service does not need anymore, and that remains: others use it, or its load balancer must not lose the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetainedFrontend {
    /// ARM's id.
    pub id: String,
    /// Rules that use it; empty if it is the last one. The event's reason is [`DELETING_FRONTEND`].
    pub uses: Vec<FrontendUse>,
}

/// What a Service got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServicePlacement {
    /// Its load balancer; `None`: it was removed.
    pub load_balancer: Option<ResourceId>,
    /// ARM's ids of its front ends, in the order of its families.
    pub frontends: Vec<(IpFamily, String)>,
    /// Front ends that it left and that stay.
    pub retained_frontends: Vec<RetainedFrontend>,
    /// Message of an event, if its rules bring those at network interfaces over Azure's documented limit.
    pub crowded_interfaces: Option<String>,
}
