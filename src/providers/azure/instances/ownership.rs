//! Ownership of a Node, and the query for its machine. Pure.
//!
//! In: a Node. Out: its [`NodeOwnership`], with the [`MachineQuery`] to look it up by. Upstream:
//! `pkg/provider/azure_instances_v2.go`, `azure_wrap.go` (`IsNodeUnmanaged`, `IsNodeUnmanagedByProviderID`).

use k8s_openapi::api::core::v1::Node;

use crate::{
    cloud_provider::InstanceMetadata,
    providers::azure::{
        model::{
            MachineQuery,
            provider_id::{self, ParsedProviderId},
        },
        node,
    },
};

/// Owner of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeOwnership {
    /// Unmanaged by Azure, according to its label: it exists, and nothing else is known of it.
    Unmanaged,
    /// Owned by another cloud, according to the scheme of its provider ID: it exists, and it is left alone.
    Foreign,
    /// Of Azure or without a scheme, but not in the form of Azure's machines: it exists, and its machine is found by name.
    Unrecognized,
    /// Of Azure, but its provider ID names no machine, for this reason: nothing may be concluded.
    Invalid(String),
    /// Of Azure: its machine is looked up by this query.
    Azure(MachineQuery),
}

pub fn of_node(node: &Node) -> NodeOwnership {
    if node::is_unmanaged(node) {
        return NodeOwnership::Unmanaged;
    }
    if node::is_foreign(node) {
        return NodeOwnership::Foreign;
    }
    match node::provider_id(node).map(provider_id::parse) {
        Some(ParsedProviderId::Foreign) => NodeOwnership::Unrecognized,
        Some(ParsedProviderId::Invalid(reason)) => NodeOwnership::Invalid(reason),
        Some(ParsedProviderId::Machine(id)) => NodeOwnership::Azure(MachineQuery { id: Some(id), ..by_name(node) }),
        None => NodeOwnership::Azure(by_name(node)),
    }
}

/// Returns the query for the machine whose metadata `node` should have; `None` if it has none.
///
/// A provider ID of Azure that names no machine does not matter here: upstream finds the machine by name.
pub fn metadata_query(node: &Node) -> Option<MachineQuery> {
    match of_node(node) {
        NodeOwnership::Unmanaged | NodeOwnership::Foreign => None,
        NodeOwnership::Azure(query) => Some(query),
        NodeOwnership::Unrecognized | NodeOwnership::Invalid(_) => Some(by_name(node)),
    }
}

/// Returns the metadata of a `node` without [`metadata_query`]: none for a Node of another cloud, nothing but that it is
/// unmanaged for the others.
pub fn metadata_without_machine(node: &Node) -> Option<InstanceMetadata> {
    let unmanaged = InstanceMetadata { is_unmanaged: true, ..InstanceMetadata::default() };
    (!node::is_foreign(node)).then_some(unmanaged)
}

fn by_name(node: &Node) -> MachineQuery {
    MachineQuery { node_name: node::name(node).to_owned(), id: None, resource_group: node::external_resource_group(node) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::{
        model::ResourceId,
        node::{LABEL_MANAGED, LABEL_RESOURCE_GROUP, fixtures::node},
    };

    const VM: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/n";

    fn query(id: Option<&str>, group: Option<&str>) -> MachineQuery {
        let id = id.map(|id| ResourceId::parse(id).unwrap());
        MachineQuery { node_name: "n".into(), id, resource_group: group.map(str::to_owned) }
    }

    #[test]
    fn label_then_provider_id_then_name() {
        let azure = format!("azure://{VM}");
        let cases = [
            (node("n"), NodeOwnership::Azure(query(None, None))),
            (node("n").provider_id(""), NodeOwnership::Azure(query(None, None))),
            (node("n").provider_id(&azure), NodeOwnership::Azure(query(Some(VM), None))),
            (node("n").label(LABEL_RESOURCE_GROUP, "Other"), NodeOwnership::Azure(query(None, Some("other")))),
            (node("n").label(LABEL_RESOURCE_GROUP, ""), NodeOwnership::Azure(query(None, None))),
            (node("n").provider_id("kind://n"), NodeOwnership::Foreign),
            (node("n").provider_id("azure://n"), NodeOwnership::Unrecognized),
            (node("n").provider_id("Azure:///subscriptions/s/resourcegroups/g/n"), NodeOwnership::Unrecognized),
            (node("n").provider_id("n"), NodeOwnership::Unrecognized),
            (node("n").provider_id(&azure).label(LABEL_MANAGED, "False"), NodeOwnership::Unmanaged),
            (node("n").label(LABEL_MANAGED, "true"), NodeOwnership::Azure(query(None, None))),
        ];
        for (node, expected) in cases {
            let node = node.build();
            assert_eq!(of_node(&node), expected, "{node:?}");
        }
        let unreadable = node("n").provider_id(&azure.replace("virtualMachines", "disks")).build();
        assert!(matches!(of_node(&unreadable), NodeOwnership::Invalid(_)));
    }

    #[test]
    fn metadata_is_found_by_name_when_the_provider_id_does_not_help() {
        let lower = "azure:///subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachines/n";
        assert_eq!(metadata_query(&node("n").provider_id(lower).build()), Some(query(None, None)));
        let foreign = node("n").provider_id("kind://n").build();
        assert_eq!((metadata_query(&foreign), metadata_without_machine(&foreign)), (None, None));
        assert_eq!(metadata_query(&node("n").provider_id(&format!("azure://{VM}")).build()), Some(query(Some(VM), None)));
        let unmanaged = node("n").label(LABEL_MANAGED, "false").build();
        assert_eq!(metadata_query(&unmanaged), None);
        assert!(metadata_without_machine(&unmanaged).is_some_and(|metadata| metadata.is_unmanaged));
    }
}
