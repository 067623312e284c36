//! What the node controller would do to a Node, for people: pure.
//!
//! In: the Node, and what the cloud tells of its instance. Out: a [`NodePlan`], made by the functions whose results are written.

use std::fmt;

use k8s_openapi::api::core::v1::Node;

use super::{config::NodeControllerConfig, metadata::MetadataResult, plan};
use crate::node::{
    initialize::{NodeInitialization, initialize},
    patch::NodeChanges,
    routes,
};

/// What would be done to one Node.
#[derive(Debug, PartialEq)]
pub(super) enum NodePlan {
    /// It gets older labels that follow stable ones.
    UpdateLabels(NodeChanges),
    /// It is initialised.
    Initialize(NodeInitialization),
    /// It is initialised but for its taint, until there is a route to its Pods.
    AwaitRoute(NodeInitialization),
    /// It stays uninitialised, and why.
    Wait(String),
}

/// Looks at `node`, whose instance is as `described` if that was asked for.
pub(super) fn plan(node: &Node, described: Option<&MetadataResult>, config: &NodeControllerConfig) -> Option<NodePlan> {
    match plan::next_action(node, config.beta_labels) {
        plan::NodeAction::Nothing => None,
        plan::NodeAction::UpdateLabels(changes) => Some(NodePlan::UpdateLabels(changes)),
        plan::NodeAction::Initialize => Some(match described {
            None => NodePlan::Wait("the cloud was not asked about its instance".to_owned()),
            Some(Ok(None)) => NodePlan::Wait(plan::NO_INSTANCE.to_owned()),
            Some(Err(error)) => NodePlan::Wait(error.to_string()),
            Some(Ok(Some((metadata, id)))) => match initialize(node, metadata, *id, config.beta_labels) {
                Err(error) => NodePlan::Wait(error.to_string()),
                Ok(decided) if plan::awaits_route(node, config.waits_for_routes) => {
                    NodePlan::AwaitRoute(routes::without_taint_removal(decided))
                }
                Ok(decided) => NodePlan::Initialize(decided),
            },
        }),
    }
}

impl fmt::Display for NodePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UpdateLabels(changes) => write!(f, "{changes}"),
            Self::Initialize(decided) => write!(f, "initialise: {decided}"),
            Self::AwaitRoute(decided) => write!(f, "waits for a route to its Pods with its taint; until then: {decided}"),
            Self::Wait(why) => write!(f, "waits for its initialisation: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cloud_provider::{AddressType, CloudError, InstanceMetadata, NodeAddress},
        node::{fixtures::*, initialize::ProviderIdRequirement, well_known::*},
    };

    fn printed(node: &Node, described: Option<&MetadataResult>, waits: bool) -> String {
        let config = NodeControllerConfig { waits_for_routes: waits, ..NodeControllerConfig::default() };
        plan(node, described, &config).map(|plan| plan.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_is_written_and_what_waits_is_told() {
        let tainted = node("n").with(|n| {
            spec(n).taints = Some(vec![taint(TAINT_UNINITIALIZED, "NoSchedule"), taint("dedicated", "NoSchedule")]);
        });
        let metadata = InstanceMetadata {
            provider_id: "fake://1".into(),
            zone: "z".into(),
            node_addresses: vec![NodeAddress { type_: AddressType::InternalIP, address: "10.0.0.1".into() }],
            ..InstanceMetadata::default()
        };
        let told: MetadataResult = Ok(Some((metadata, ProviderIdRequirement::Required)));
        let whole = "set the addresses InternalIP=10.0.0.1; set the provider id fake://1; set the labels \
                     topology.kubernetes.io/zone=z";
        assert_eq!(
            printed(&tainted, Some(&told), false),
            format!("initialise: {whole}; leave the taints dedicated:NoSchedule")
        );
        assert_eq!(
            printed(&tainted, Some(&told), true),
            format!("waits for a route to its Pods with its taint; until then: {whole}")
        );
        let refused: MetadataResult = Err(CloudError::failed("HTTP 500"));
        assert_eq!(printed(&tainted, Some(&refused), false), "waits for its initialisation: HTTP 500");
        assert_eq!(
            printed(&tainted, Some(&Ok(None)), false),
            format!("waits for its initialisation: {}", plan::NO_INSTANCE)
        );
        let drifted = node("n").with(|n| n.metadata.labels = Some(labels(&[(LABEL_ZONE, "z")])));
        assert_eq!(printed(&drifted, None, false), "");
        let config = NodeControllerConfig { beta_labels: true, ..NodeControllerConfig::default() };
        let with_beta = plan(&drifted, None, &config).map(|plan| plan.to_string());
        assert_eq!(with_beta, Some(format!("set the labels {LABEL_ZONE_BETA}=z")));
        assert_eq!(printed(&node("n"), None, false), "");
    }
}
