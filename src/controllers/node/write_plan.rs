//! Plan of the writes that the node controller would send now.
//!
//! In: every Node, and the metadata of its instance. Out: a [`WritePlan`]: the initialization of new Nodes, changed addresses of
//! the others, deprecated labels that follow stable ones. A Node whose metadata could not be read is listed as unread. A page
//! looks up a limited number of Nodes that are not ready: their instances may be missing from lists, and then each costs a
//! request.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeAddress};

use super::{NodeController, config::NodeControllerConfig, metadata_batcher::MetadataResult, plan};
use crate::{
    cloud_provider::{CloudError, PlannedWrite, WritePlan},
    controllers::ServiceScope,
    node::{
        addresses,
        initialize::{NodeInitialization, initialize},
        is_ready, name,
        patch::{self, NodeChanges},
        routes, taints,
    },
};

impl NodeController {
    /// Plans for the Nodes of this cloud, limited by `scope`.
    pub(super) async fn write_plan(&self, scope: &ServiceScope) -> WritePlan {
        let mut nodes = self.own_nodes();
        nodes.sort_by(|left, right| name(left).cmp(name(right)));
        let is_costly = |node: &Node| !is_ready(node) || taints::is_uninitialized(node);
        let omitted = scope.omit_nodes(&mut nodes, "that are not ready or not initialized", is_costly);
        let (new, initialized): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| taints::is_uninitialized(node));
        let instances = &self.metadata_batcher.instances;
        let described = instances.instance_metadata_batch(&new).await;
        let addressed = instances.instance_metadata_batch(&initialized).await;
        let mut plan = WritePlan { unread: omitted.into_iter().collect(), ..WritePlan::default() };
        new.iter().zip(&described).for_each(|(node, metadata)| plan.extend(plan_new(node, metadata, &self.config)));
        initialized.iter().zip(&addressed).for_each(|(node, metadata)| plan.extend(self.plan_initialized(node, metadata)));
        plan
    }

    fn plan_initialized(&self, node: &Arc<Node>, metadata: &MetadataResult) -> WritePlan {
        let mut plan = WritePlan::default();
        if let plan::NodeAction::UpdateLabels(changes) = plan::next_action(node, self.config.reconciles_beta_labels()) {
            plan.writes.push(update_labels(node, &changes));
        }
        let metadata = match metadata {
            Ok(Some(metadata)) => metadata,
            Ok(None) | Err(CloudError::InstanceNotFound | CloudError::ImplementedElsewhere) => return plan,
            Err(error) => {
                plan.unread.insert(format!("addresses of Node {:?}: {error}", name(node)));
                return plan;
            }
        };
        let outdated = self.label_changes(node, metadata);
        if !outdated.is_empty() {
            plan.writes.push(update_labels(node, &outdated));
        }
        match addresses::changed(node, &metadata.node_addresses) {
            Ok(None) => {}
            Ok(Some(new)) => {
                let (reason, body) = ("the cloud reports other addresses", patch::addresses(node, &new));
                plan.writes.push(PlannedWrite::patch("node", path(node, "/status"), reason, body));
            }
            Err(error) => {
                plan.refused.insert(format!("Node {:?}: {error}", name(node)));
            }
        }
        plan
    }
}

/// Plans the initialization of a Node with the uninitialized taint. `described` is the metadata of its instance.
fn plan_new(node: &Arc<Node>, described: &MetadataResult, config: &NodeControllerConfig) -> WritePlan {
    let mut plan = WritePlan::default();
    let line = |reason: &str| format!("Node {:?} waits for its initialization: {reason}", name(node));
    let metadata = match described {
        Ok(Some(metadata)) => metadata,
        Ok(None) => {
            plan.later.insert(line(plan::NO_INSTANCE));
            return plan;
        }
        Err(error) => {
            plan.unread.insert(line(&error.to_string()));
            return plan;
        }
    };
    match initialize(node, metadata, config.sets_beta_labels()) {
        Ok(planned) if plan::awaits_route(node, config.waits_for_routes) => {
            plan.extend(initialization(node, &routes::without_taint_removal(planned)));
            plan.later.insert(line("it needs a route to its Pods"));
        }
        Ok(planned) => plan.extend(initialization(node, &planned)),
        Err(error) => {
            plan.later.insert(line(&error.to_string()));
        }
    }
    plan
}

/// Plans two writes: the addresses, then everything else.
fn initialization(node: &Node, planned: &NodeInitialization) -> WritePlan {
    let status = planned.addresses.as_ref().map(|addresses| {
        let shown = |address: &NodeAddress| format!("{}={}", address.type_, address.address);
        let reason = format!("set the addresses {}", addresses.iter().map(shown).collect::<Vec<_>>().join(", "));
        PlannedWrite::patch("node", path(node, "/status"), reason, patch::addresses(node, addresses))
    });
    let rest = (!planned.changes.is_empty()).then(|| {
        let body = patch::node(node, &planned.changes);
        PlannedWrite::patch("node", path(node, ""), format!("initialize: {}", planned.changes), body)
    });
    let notes = planned.dropped_labels.iter().map(|label| format!("Node {:?}: {label}", name(node))).collect();
    WritePlan { writes: status.into_iter().chain(rest).collect(), notes, ..WritePlan::default() }
}

fn update_labels(node: &Node, changes: &NodeChanges) -> PlannedWrite {
    PlannedWrite::patch("node", path(node, ""), changes.to_string(), patch::node(node, changes))
}

fn path(node: &Node, part: &str) -> String {
    format!("/api/v1/nodes/{}{part}", name(node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cloud_provider::{self, AddressType, InstanceMetadata},
        node::{fixtures::*, well_known::*},
    };

    #[test]
    fn plan_of_new_nodes_says_what_they_wait_for() {
        let tainted = Arc::new(node("n").with(|n| {
            spec(n).taints = Some(vec![taint(TAINT_UNINITIALIZED, "NoSchedule"), taint("dedicated", "NoSchedule")]);
        }));
        let metadata = InstanceMetadata {
            provider_id: "fake://1".into(),
            zone: "z".into(),
            node_addresses: vec![cloud_provider::NodeAddress { type_: AddressType::InternalIP, address: "10.0.0.1".into() }],
            ..InstanceMetadata::default()
        };
        let found: MetadataResult = Ok(Some(metadata));
        let planned = |described: &MetadataResult, waits: bool| {
            let config = NodeControllerConfig { waits_for_routes: waits, ..NodeControllerConfig::default() };
            plan_new(&tainted, described, &config)
        };
        let lines = |plan: &WritePlan| plan.writes.iter().map(ToString::to_string).collect::<Vec<_>>();
        let addresses = "PATCH /api/v1/nodes/n/status: set the addresses InternalIP=10.0.0.1";
        let rest = "PATCH /api/v1/nodes/n: initialize: set the provider id fake://1; set the labels \
                    failure-domain.beta.kubernetes.io/zone=z, topology.kubernetes.io/zone=z";
        let whole = planned(&found, false);
        assert_eq!(lines(&whole), [addresses.to_owned(), format!("{rest}; leave the taints dedicated:NoSchedule")]);
        assert!(whole.later.is_empty() && whole.is_complete());
        let waiting = planned(&found, true);
        assert_eq!(lines(&waiting), [addresses, rest]);
        let prefix = "Node \"n\" waits for its initialization: ";
        assert_eq!(waiting.later, [format!("{prefix}it needs a route to its Pods")].into());
        assert_eq!(planned(&Err(CloudError::failed("HTTP 500")), false), WritePlan::unread(format!("{prefix}HTTP 500")));
        assert_eq!(planned(&Ok(None), false).later, [format!("{prefix}{}", plan::NO_INSTANCE)].into());
    }
}
