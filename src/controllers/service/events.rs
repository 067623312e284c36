//! Events of the service controller, each a named function. Reasons and messages are upstream's (`service/controller.go`).

use std::{fmt, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Service};

use super::{needs_update::ServiceChangeEvent, reason};
use crate::runtime::events::{EventDescription, EventType, RecordedEvent, object_reference};

const fn normal(reason: &'static str, when: &'static str) -> EventDescription {
    EventDescription { reason, type_: EventType::Normal, when }
}
const fn warning(reason: &'static str, when: &'static str) -> EventDescription {
    EventDescription { reason, type_: EventType::Warning, when }
}

/// Events of this controller, for the reference page.
pub const EVENTS: &[EventDescription] = &[
    normal(reason::ENSURING, "Creation or update of the load balancer starts for a new or changed Service."),
    normal(reason::ENSURED, "The load balancer serves the Service."),
    warning(reason::UNAVAILABLE, "The load balancer has no node to send traffic to."),
    normal(reason::UPDATED, "The load balancer has the new set of nodes."),
    warning(
        reason::UPDATE_FAILED,
        "The load balancer could not be updated with the new set of nodes; retries with backoff.",
    ),
    normal(reason::DELETING, "Deletion of the load balancer starts."),
    normal(reason::DELETED, "The load balancer is deleted."),
    warning(reason::DELETE_FAILED, "The load balancer of a deleted Service could not be deleted; retries with backoff."),
    warning(reason::SYNC_FAILED, "The load balancer could not be created, updated or deleted; retries with backoff."),
    normal(
        reason::WAITING_FOR_OTHER_MANAGER,
        "The Service has the finalizer of another manager: its load balancer is created after that finalizer has been removed. Beyond upstream.",
    ),
    warning(
        reason::RESTORED,
        "Another writer removed the finalizer, the addresses or the condition of a Service; they were written again. Beyond upstream.",
    ),
    normal(
        reason::CHANGED,
        "Another writer added to the addresses in the status of a Service, or the configuration (`driftPolicy`) does not restore what it removed; once until the Service changes. Beyond upstream.",
    ),
    normal(reason::TYPE, "The type of the Service changed to or from LoadBalancer."),
    normal(reason::SOURCE_RANGES, "`spec.loadBalancerSourceRanges` changed."),
    normal(reason::LOAD_BALANCER_IP, "`spec.loadBalancerIP` changed."),
    normal(reason::EXTERNAL_IP, "`spec.externalIPs` changed."),
    normal(reason::UID, "The Service was replaced by another with the same name."),
    normal(reason::EXTERNAL_TRAFFIC_POLICY, "`spec.externalTrafficPolicy` changed."),
    normal(reason::HEALTH_CHECK_NODE_PORT, "`spec.healthCheckNodePort` changed."),
    normal(reason::IP_FAMILIES, "The number of `spec.ipFamilies` changed."),
];

/// Maximum number of node names in one message. Upstream: `maxNodeNamesToLog`.
const MAX_NODE_NAMES: usize = 20;

fn event(service: &Service, type_: EventType, reason: &'static str, message: impl Into<String>) -> RecordedEvent {
    RecordedEvent { about: object_reference(service), type_, reason, message: message.into() }
}

/// Reports that the load balancer is about to be created or updated.
pub fn ensuring(service: &Service) -> RecordedEvent {
    event(service, EventType::Normal, reason::ENSURING, "Ensuring load balancer")
}

/// Reports that the load balancer serves the Service.
pub fn ensured(service: &Service) -> RecordedEvent {
    event(service, EventType::Normal, reason::ENSURED, "Ensured load balancer")
}

/// Reports that there is no node to send traffic to.
pub fn unavailable(service: &Service) -> RecordedEvent {
    event(service, EventType::Warning, reason::UNAVAILABLE, "There are no available nodes for LoadBalancer")
}

/// Reports that the load balancer has the new nodes.
pub fn updated(service: &Service) -> RecordedEvent {
    event(service, EventType::Normal, reason::UPDATED, "Updated load balancer with new hosts")
}

/// Reports that the load balancer could not be updated with the new nodes.
pub fn update_failed(service: &Service, nodes: &[Arc<Node>], error: &dyn fmt::Display) -> RecordedEvent {
    let (names, total) = (node_names(nodes), nodes.len());
    let limited = format!("[node names limited, total number of nodes: {total}]");
    let message = format!("Error updating load balancer with new hosts [{names}] {limited}, error: {error}");
    event(service, EventType::Warning, reason::UPDATE_FAILED, message)
}

/// Reports that another manager has not cleaned up yet.
pub fn waiting(service: &Service, finalizer: &str) -> RecordedEvent {
    let message = format!(
        "Waiting until the manager of finalizer {finalizer} has removed its load balancer; remove the finalizer by hand if that manager no longer runs or does not remove it"
    );
    event(service, EventType::Normal, reason::WAITING_FOR_OTHER_MANAGER, message)
}

/// Reports that a field was restored that another writer removed.
pub fn restored(service: &Service, field: &str) -> RecordedEvent {
    let message = format!("Another writer changed the {field} of the load balancer; it was restored");
    event(service, EventType::Warning, reason::RESTORED, message)
}

/// Reports that addresses of another writer are kept.
pub fn additions_kept(service: &Service) -> RecordedEvent {
    let message =
        "Another writer added to the addresses of the load balancer; its entries are kept until the Service changes";
    event(service, EventType::Normal, reason::CHANGED, message)
}

/// Reports that a field that another writer removed is not restored.
pub fn not_restored(service: &Service, field: &str) -> RecordedEvent {
    let message = format!(
        "Another writer changed the {field} of the load balancer; the provider's configuration does not restore it until the Service changes"
    );
    event(service, EventType::Normal, reason::CHANGED, message)
}

/// Reports that the load balancer is about to be deleted.
pub fn deleting(service: &Service) -> RecordedEvent {
    event(service, EventType::Normal, reason::DELETING, "Deleting load balancer")
}

/// Reports that the load balancer is deleted.
pub fn deleted(service: &Service) -> RecordedEvent {
    event(service, EventType::Normal, reason::DELETED, "Deleted load balancer")
}

/// Reports that the load balancer of a deleted Service could not be deleted.
pub fn delete_failed(service: &Service, error: &dyn fmt::Display) -> RecordedEvent {
    event(service, EventType::Warning, reason::DELETE_FAILED, format!("Error deleting load balancer: {error}"))
}

pub fn sync_failed(service: &Service, error: &dyn fmt::Display) -> RecordedEvent {
    event(service, EventType::Warning, reason::SYNC_FAILED, format!("Error syncing load balancer: {error}"))
}

/// Reports a change by the user for which upstream has an event.
pub fn changed(service: &Service, announcement: ServiceChangeEvent) -> RecordedEvent {
    event(service, EventType::Normal, announcement.reason, announcement.message)
}

fn node_names(nodes: &[Arc<Node>]) -> String {
    let mut names: Vec<_> =
        nodes.iter().take(MAX_NODE_NAMES).map(|node| node.metadata.name.clone().unwrap_or_default()).collect();
    if nodes.len() > MAX_NODE_NAMES {
        names.push(format!("<{} more>", nodes.len() - MAX_NODE_NAMES));
    }
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_long_list_of_nodes_is_truncated() {
        let node = |index: usize| {
            let mut node = Node::default();
            node.metadata.name = Some(format!("n{index}"));
            Arc::new(node)
        };
        let nodes: Vec<_> = (0..22).map(node).collect();
        let few = update_failed(&Service::default(), &nodes[..2], &"boom").message;
        let all = "[n0 n1] [node names limited, total number of nodes: 2], error: boom";
        assert_eq!(few, format!("Error updating load balancer with new hosts {all}"));
        let many = update_failed(&Service::default(), &nodes, &"boom").message;
        assert!(many.contains(" n19 <2 more>] [node names limited, total number of nodes: 22]"), "{many}");
    }

    #[test]
    fn table_lists_every_event_once_with_its_type() {
        let reasons: BTreeSet<_> = EVENTS.iter().map(|doc| doc.reason).collect();
        assert_eq!(reasons.len(), EVENTS.len());
        let service = Service::default();
        let all = [
            ensuring(&service),
            ensured(&service),
            unavailable(&service),
            updated(&service),
            update_failed(&service, &[], &""),
            deleting(&service),
            deleted(&service),
            delete_failed(&service, &""),
            sync_failed(&service, &""),
        ];
        for event in all {
            assert!(EVENTS.iter().any(|doc| doc.reason == event.reason && doc.type_ == event.type_), "{}", event.reason);
        }
    }
}
