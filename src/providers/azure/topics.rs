//! Topics of `explain` about Azure: error codes, annotations, events, fields of `azure.json`, labels and taints of Nodes.
//!
//! In: the reference pages, and the tables without a page. Out: one topic for each row.

use super::{
    config_source,
    load_balancer::{events, explain},
    metadata::describe::{LABEL_INTERCONNECT_GROUP, LABEL_SUB_FAULT_DOMAIN},
    node::{LABEL_FAULT_DOMAIN, LABEL_MANAGED, LABEL_RESOURCE_GROUP},
    out_of_service::{self, decide::OUT_OF_SERVICE},
    planner::load_balancer::annotations,
};
use crate::cloud_provider::registry::ReferenceTopic;

/// Returns the topics of all pages and tables.
pub fn topics() -> Vec<ReferenceTopic> {
    let mut topics = ReferenceTopic::rows("Azure error", 2, &explain::reference_page());
    topics.extend(ReferenceTopic::rows("annotation", 1, &annotations::reference_page()).into_iter().map(with_prefix));
    topics.extend(ReferenceTopic::rows("configuration of Azure", 1, &config_source::reference_page()));
    topics.extend(events::EVENTS.iter().chain(out_of_service::events::EVENTS).map(ReferenceTopic::event));
    topics.extend(NODE_NAMES.iter().map(|(kind, name, meaning)| ReferenceTopic::object_name(kind, name, meaning)));
    topics
}

/// Adds the names with the prefix, which the page of annotations omits.
fn with_prefix(mut topic: ReferenceTopic) -> ReferenceTopic {
    topic.names = topic.names.into_iter().flat_map(|name| [format!("{}{name}", annotations::PREFIX), name]).collect();
    topic
}

/// Kind, name and meaning of what this provider reads or writes on Nodes.
const NODE_NAMES: &[(&str, &str, &str)] = &[
    (
        "label",
        LABEL_MANAGED,
        "false: the machine is not in Azure. Its Node loses the uninitialized taint, and nothing else is written.",
    ),
    ("label", LABEL_RESOURCE_GROUP, "Resource group of the machine, if it is not the cluster's."),
    ("label", LABEL_FAULT_DOMAIN, "Fault domain of the machine, whether or not it is in an availability zone."),
    ("label", LABEL_SUB_FAULT_DOMAIN, "Part of a fault domain. Written by cloud-node-manager from the instance metadata."),
    (
        "label",
        LABEL_INTERCONNECT_GROUP,
        "Group of machines with a fast interconnect. Written by cloud-node-manager from the instance metadata.",
    ),
    (
        "taint",
        OUT_OF_SERVICE.0,
        "The machine is shut down, so that its disks can move to other Nodes. Removed when the machine runs again.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_each_page_have_topics() {
        let topics = topics();
        for (name, kind, line) in [
            ("PublicIPCountLimitReached", "Azure error", "Tried again: slowly"),
            ("PublicIPLimitReached", "Azure error", "Tried again: slowly"),
            ("azure-load-balancer-internal", "annotation", "Default: external"),
            ("service.beta.kubernetes.io/azure-load-balancer-internal", "annotation", "Default: external"),
            ("cloud", "configuration of Azure", "Default: AzurePublicCloud"),
            ("AZURE_TENANT_ID", "configuration of Azure", "Effect: Replaces tenantId."),
        ] {
            let found = topics.iter().find(|topic| topic.names.iter().any(|it| it == name)).unwrap();
            assert!(found.kind == kind && found.lines.iter().any(|it| it == line), "{found:?}");
        }
    }
}
