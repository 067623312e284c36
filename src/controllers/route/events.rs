//! Every event of the route controller as a named function.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::runtime::events::{EventDescription, EventType, RecordedEvent, object_reference};

const FAILED_TO_CREATE_ROUTE: EventDescription = EventDescription {
    reason: "FailedToCreateRoute",
    type_: EventType::Warning,
    when: "The cloud rejected a route for a pod CIDR of this node. Retries with back-off.",
};

/// For the reference page.
pub const EVENTS: &[EventDescription] = &[FAILED_TO_CREATE_ROUTE];

/// A route for `cidr` of `node` could not be created; the batch it was part of took `after`. Upstream's text.
pub(super) fn failed_to_create_route(node: &Node, hint: &str, cidr: &str, after: Duration, error: &str) -> RecordedEvent {
    let name = node.name_any();
    RecordedEvent {
        about: object_reference(node),
        type_: FAILED_TO_CREATE_ROUTE.type_,
        reason: FAILED_TO_CREATE_ROUTE.reason,
        message: format!("Could not create route {hint} {cidr} for node {name} after {after:?}: {error}"),
    }
}
