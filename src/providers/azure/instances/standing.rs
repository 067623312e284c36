//! Whose a Node is, and how its machine is to be found: pure.
//!
//! In: a Node. Out: its [`Standing`], with the [`Wanted`] to look it up by. Upstream: `pkg/provider/azure_instances_v2.go`,
//! `azure_wrap.go` (`IsNodeUnmanaged`, `IsNodeUnmanagedByProviderID`).

use k8s_openapi::api::core::v1::Node;

use super::provider_id::{self, Reading};
use crate::providers::azure::{inventory::Wanted, node};

/// Whose a Node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Its label says that Azure does not know it: it exists, and nothing is known of it.
    Unmanaged,
    /// Its provider id is not of Azure: it exists, as far as anybody here can tell.
    Foreign,
    /// Its provider id is of Azure but names no machine, and why: nothing may be concluded.
    Unreadable(String),
    /// Its machine is looked up by this.
    Azure(Wanted),
}

/// Whose `node` is.
pub fn of(node: &Node) -> Standing {
    if node::is_unmanaged(node) {
        return Standing::Unmanaged;
    }
    match node::provider_id(node).map(provider_id::read) {
        Some(Reading::Foreign) => Standing::Foreign,
        Some(Reading::Unreadable(why)) => Standing::Unreadable(why),
        Some(Reading::Machine(id)) => Standing::Azure(Wanted { id: Some(id), ..by_name(node) }),
        None => Standing::Azure(by_name(node)),
    }
}

/// How the machine is found whose metadata `node` should have; `None` when it has none. A provider id that names no machine of
/// Azure does not matter here: upstream asks by name.
pub fn metadata_source(node: &Node) -> Option<Wanted> {
    match of(node) {
        Standing::Unmanaged => None,
        Standing::Azure(wanted) => Some(wanted),
        Standing::Foreign | Standing::Unreadable(_) => Some(by_name(node)),
    }
}

fn by_name(node: &Node) -> Wanted {
    Wanted { node_name: node::name(node).to_owned(), id: None, resource_group: node::external_resource_group(node) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::{
        arm::ResourceId,
        node::{LABEL_MANAGED, LABEL_RESOURCE_GROUP, fixtures::node},
    };

    const VM: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/n";

    fn wanted(id: Option<&str>, group: Option<&str>) -> Wanted {
        let id = id.map(|id| ResourceId::parse(id).unwrap());
        Wanted { node_name: "n".into(), id, resource_group: group.map(str::to_owned) }
    }

    #[test]
    fn label_then_provider_id_then_name() {
        let azure = format!("azure://{VM}");
        let cases = [
            (node("n"), Standing::Azure(wanted(None, None))),
            (node("n").provider_id(""), Standing::Azure(wanted(None, None))),
            (node("n").provider_id(&azure), Standing::Azure(wanted(Some(VM), None))),
            (node("n").label(LABEL_RESOURCE_GROUP, "Other"), Standing::Azure(wanted(None, Some("other")))),
            (node("n").provider_id("kind://n"), Standing::Foreign),
            (node("n").provider_id("azure://n"), Standing::Foreign),
            (node("n").provider_id(&azure).label(LABEL_MANAGED, "False"), Standing::Unmanaged),
            (node("n").label(LABEL_MANAGED, "true"), Standing::Azure(wanted(None, None))),
        ];
        for (node, expected) in cases {
            let node = node.build();
            assert_eq!(of(&node), expected, "{node:?}");
        }
        let unreadable = node("n").provider_id(&azure.replace("virtualMachines", "disks")).build();
        assert!(matches!(of(&unreadable), Standing::Unreadable(_)));
    }

    #[test]
    fn metadata_is_asked_for_by_name_when_the_provider_id_does_not_help() {
        assert_eq!(metadata_source(&node("n").provider_id("kind://n").build()), Some(wanted(None, None)));
        assert_eq!(metadata_source(&node("n").provider_id(&format!("azure://{VM}")).build()), Some(wanted(Some(VM), None)));
        assert_eq!(metadata_source(&node("n").label(LABEL_MANAGED, "false").build()), None);
    }
}
