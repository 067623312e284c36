//! Events of the route controller, each a named function.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::plan::RefusedRoute;
use crate::runtime::events::{EventDescription, RecordedEvent};

const FAILED_TO_CREATE_ROUTE: EventDescription = EventDescription::warning(
    "FailedToCreateRoute",
    "The cloud rejected a route for a pod CIDR of this node. Retries with backoff.",
);

const ROUTE_DRIFTED: EventDescription = EventDescription::warning(
    "RouteDrifted",
    "A route to this node was deleted, changed or added externally. The message names the route and the time range; the change is reverted immediately.",
);

const ROUTE_REFUSED: EventDescription = EventDescription::warning(
    "RouteRefused",
    "A pod CIDR of this node gets no new route: it is outside --cluster-cidr, or it is much larger than the pod CIDRs of other nodes. An existing route is kept.",
);

/// Events of this controller, for the reference page.
pub const EVENTS: &[EventDescription] = &[FAILED_TO_CREATE_ROUTE, ROUTE_DRIFTED, ROUTE_REFUSED];

/// Reports that a pod CIDR gets no new route. An existing route is kept.
pub(super) fn route_refused(refused: &RefusedRoute) -> RecordedEvent {
    let RefusedRoute { node, cidr, reason, has_route } = refused;
    let consequence = if *has_route { "keeps its route, but would get no new one" } else { "gets no route" };
    ROUTE_REFUSED.about(node.as_ref(), format!("spec.podCIDRs {cidr} {consequence}: {reason}"))
}

/// Reports an external change to a route to `node`.
pub(super) fn route_drifted(node: &Node, detail: &str) -> RecordedEvent {
    ROUTE_DRIFTED.about(node, format!("{detail}; the change is reverted now"))
}

/// Reports that a route for `cidr` of `node` could not be created; the batch that contained it took `after`. Upstream's
/// text.
pub(super) fn failed_to_create_route(node: &Node, hint: &str, cidr: &str, after: Duration, error: &str) -> RecordedEvent {
    let name = node.name_any();
    FAILED_TO_CREATE_ROUTE
        .about(node, format!("Could not create route {hint} {cidr} for node {name} after {after:?}: {error}"))
}
