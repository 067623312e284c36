//! Events of the node controller, each a named function.

use std::fmt::Display;

use k8s_openapi::api::core::v1::Node;

use crate::{
    node::{
        labels::{self, Labels},
        name, provider_id, taints,
        well_known::TAINT_UNINITIALIZED,
    },
    runtime::events::{EventDescription, RecordedEvent},
};

/// Largest number of characters of a value in a message.
const SHOWN_VALUE: usize = 64;

const SYNCED: EventDescription =
    EventDescription::normal("Synced", "A Node has been initialized: the uninitialized taint has been removed.");
const NO_INSTANCE: EventDescription = EventDescription::normal(
    "NoCloudInstance",
    "A Node keeps the uninitialized taint because the cloud provider has no instance for it.",
);
const METADATA_FAILED: EventDescription = EventDescription::warning(
    "InstanceMetadataFailed",
    "A Node keeps the uninitialized taint because the cloud provider failed to describe its instance.",
);
const INITIALIZATION_FAILED: EventDescription = EventDescription::warning(
    "NodeInitializationFailed",
    "A Node keeps the uninitialized taint because it has no provider id, or names an address unknown to the cloud.",
);
const ADDRESSES_FAILED: EventDescription = EventDescription::warning(
    "NodeAddressesFailed",
    "The addresses of a Node are not updated because it names one unknown to the cloud.",
);
const WAITING_FOR_ROUTES: EventDescription = EventDescription::normal(
    "WaitingForRoutes",
    "A Node is initialized but keeps the uninitialized taint until a route to its Pods exists (`--wait-routes`).",
);
const FOREIGN: EventDescription = EventDescription::normal(
    "NodeOfAnotherCloud",
    "The provider id of a Node belongs to another cloud: this program does not change the Node. Once per Node and start.",
);
const NO_PROVIDER_ID: EventDescription = EventDescription::warning(
    "NodeWithoutProviderID",
    "A Node has neither a provider id nor the uninitialized taint, so no controller initializes it. Once per Node and start.",
);
const LABELS_OUTDATED: EventDescription = EventDescription::warning(
    "NodeLabelsOutdated",
    "Labels of a Node for machine type, zone or region differ from its instance, and are kept. Once per change.",
);
const LABELS_UPDATED: EventDescription = EventDescription::normal(
    "NodeLabelsUpdated",
    "Labels of a Node for machine type, zone or region have been set to the values of its instance (`--reconcile-node-labels`).",
);

/// Events of this controller, for the reference page.
pub const EVENTS: &[EventDescription] = &[
    SYNCED,
    NO_INSTANCE,
    METADATA_FAILED,
    INITIALIZATION_FAILED,
    ADDRESSES_FAILED,
    WAITING_FOR_ROUTES,
    FOREIGN,
    NO_PROVIDER_ID,
    LABELS_OUTDATED,
    LABELS_UPDATED,
];

/// Reports a successful initialization, in upstream's words.
pub(super) fn synced(node: &Node) -> RecordedEvent {
    SYNCED.about(node, "Node synced successfully")
}

/// Reports that the cloud has no instance for the Node.
pub(super) fn no_instance(node: &Node) -> RecordedEvent {
    NO_INSTANCE.about(node, "The cloud provider has no instance for this node; the node remains uninitialized")
}

pub(super) fn metadata_failed(node: &Node, error: &dyn Display) -> RecordedEvent {
    let message = format!("The cloud provider failed to describe the instance; the node remains uninitialized: {error}");
    METADATA_FAILED.about(node, message)
}

/// Reports metadata that cannot be applied to the Node.
pub(super) fn initialization_failed(node: &Node, error: &dyn Display) -> RecordedEvent {
    INITIALIZATION_FAILED.about(node, format!("The node remains uninitialized: {error}"))
}

/// Reports that the addresses cannot be determined.
pub(super) fn addresses_failed(node: &Node, error: &dyn Display) -> RecordedEvent {
    ADDRESSES_FAILED.about(node, format!("The addresses of the node were not updated: {error}"))
}

/// Reports that the Node waits for its first route.
pub(super) fn waiting_for_routes(node: &Node) -> RecordedEvent {
    let message =
        "The node remains uninitialized until its condition NetworkUnavailable is False: no route to its pods exists yet";
    WAITING_FOR_ROUTES.about(node, message)
}

/// Reports that another cloud's controllers manage the Node.
pub(super) fn foreign(node: &Node, provider: &str) -> RecordedEvent {
    let id: String = provider_id(node).unwrap_or_default().chars().take(SHOWN_VALUE).collect();
    let message = format!(
        "spec.providerID {id:?} belongs to another cloud than {provider}: this program does not change the node's addresses, labels, \
         taints, routes and load balancer membership; the node's own cloud controller manager initializes it"
    );
    FOREIGN.about(node, message)
}

/// Reports that the Node registered without the taint.
pub(super) fn without_provider_id(node: &Node) -> RecordedEvent {
    let message = format!(
        "The node has no provider ID and lacks the taint {TAINT_UNINITIALIZED}, so no controller initializes it; run `{}`, and start its \
         kubelet with --cloud-provider=external",
        taints::initialization_command(name(node))
    );
    NO_PROVIDER_ID.about(node, message)
}

/// Reports labels that differ from those of the instance, which `outdated` lists.
pub(super) fn labels_outdated(node: &Node, outdated: &Labels) -> RecordedEvent {
    let message = format!(
        "Labels differ from the instance and are kept: {}; set them by hand, or start the manager with --reconcile-node-labels",
        compare_labels(node, outdated)
    );
    LABELS_OUTDATED.about(node, message)
}

/// Reports labels that were set to those of the instance, which `outdated` lists.
pub(super) fn labels_updated(node: &Node, outdated: &Labels) -> RecordedEvent {
    let message = format!("Labels were set to the values of the instance: {}", compare_labels(node, outdated));
    LABELS_UPDATED.about(node, message)
}

fn compare_labels(node: &Node, outdated: &Labels) -> String {
    let compare = |(key, value): (&String, &String)| match labels::of(node).get(key) {
        Some(present) => format!("{key} is {value:?}, the label says {present:?}"),
        None => format!("{key} is {value:?}, the label is missing"),
    };
    outdated.iter().map(compare).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fixtures::node;

    #[test]
    fn table_lists_every_event() {
        let (node, error) = (node("n"), "broken");
        let all = [
            synced(&node),
            no_instance(&node),
            metadata_failed(&node, &error),
            initialization_failed(&node, &error),
            addresses_failed(&node, &error),
            waiting_for_routes(&node),
            foreign(&node, "azure"),
            without_provider_id(&node),
            labels_outdated(&node, &Labels::new()),
            labels_updated(&node, &Labels::new()),
        ];
        let table: Vec<_> = EVENTS.iter().map(|row| (row.reason, row.type_)).collect();
        assert_eq!(all.map(|event| (event.reason, event.type_)).to_vec(), table);
        assert_eq!(synced(&node).message, "Node synced successfully");
        let resized = labels_outdated(&node, &Labels::from([("type".to_owned(), "large".to_owned())])).message;
        assert!(resized.contains("type is \"large\", the label is missing"), "{resized}");
        let remedy = "`kubectl taint node n node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule`";
        assert!(without_provider_id(&node).message.contains(remedy));
    }
}
