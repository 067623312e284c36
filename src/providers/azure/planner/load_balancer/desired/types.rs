//! Requests and results of planning for Services: types that all steps share. Pure.

use std::{collections::BTreeMap, sync::Arc};

use super::draft::FrontendUse;
use crate::providers::azure::{
    model::ResourceId,
    planner::load_balancer::spec::{IpFamily, PublicIpSpec, ServiceIdentity, ServiceSpec},
};

/// Reason to repeat the write of a document whose last change ARM could not complete.
pub const LAST_CHANGE_FAILED: &str = "write it again, since its last change failed";

/// Index of a request among those of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestIdx(pub(super) usize);

/// Index of a load balancer among the drafts of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DraftIdx(pub(super) usize);

/// Number of rules that each load balancer will have, by external name in lower case and whether it is internal.
///
/// A load balancer without an entry does not exist.
pub(super) type RuleCounts = BTreeMap<(String, bool), usize>;

/// Desired result of a plan for one Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceRequest {
    /// Load balancer of the Service as its spec requests it.
    Ensure(Arc<ServiceSpec>),
    /// Removal of all parts of the Service. The last valid spec, if there is one, has facts that no document has (pinned addresses).
    Delete(ServiceIdentity, Option<Arc<ServiceSpec>>),
}

impl ServiceRequest {
    pub fn identity(&self) -> &ServiceIdentity {
        match self {
            ServiceRequest::Ensure(spec) => &spec.identity,
            ServiceRequest::Delete(identity, _) => identity,
        }
    }

    /// Returns the spec of a Service to ensure, or the last valid spec of a Service to delete.
    pub fn spec(&self) -> Option<&Arc<ServiceSpec>> {
        match self {
            ServiceRequest::Ensure(spec) => Some(spec),
            ServiceRequest::Delete(_, last) => last.as_ref(),
        }
    }

    /// Returns the request without a DNS label: the public IP keeps its current one.
    pub fn without_dns_label(&self) -> Self {
        let ServiceRequest::Ensure(spec) = self else { return self.clone() };
        let public_ip = PublicIpSpec { dns_label: None, ..spec.public_ip.clone() };
        ServiceRequest::Ensure(Arc::new(ServiceSpec { public_ip, ..ServiceSpec::clone(spec) }))
    }
}

/// Public IP that each external Service must have, by family. The public IP may not exist yet.
pub type PublicIpAssignment = BTreeMap<(ServiceIdentity, IpFamily), ResourceId>;

/// Reason of the event, and field of the refusal, for a frontend that remains because others use it.
pub const DELETING_FRONTEND: &str = "DeletingFrontendIPConfiguration";

/// Frontend that its Service does not need anymore, and that remains: others use it, or its load balancer must not lose the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetainedFrontend {
    pub id: String,
    /// Users of the frontend; empty if it is the last one. The event's reason is [`DELETING_FRONTEND`].
    pub uses: Vec<FrontendUse>,
}

/// Result of a plan for one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServicePlacement {
    /// Load balancer of the Service; `None` if it was removed.
    pub load_balancer: Option<ResourceId>,
    /// ARM ids of the Service's frontends, in the order of its families.
    pub frontends: Vec<(IpFamily, String)>,
    /// Frontends that the Service left and that remain.
    pub retained_frontends: Vec<RetainedFrontend>,
    /// Message of an event, if the Service's rules exceed Azure's documented limit at network interfaces.
    pub crowded_interfaces: Option<String>,
}
