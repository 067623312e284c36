//! [`InstancesV2`] on the inventory: this module reads, the pure modules decide. Upstream:
//! `pkg/provider/azure_instances_v2.go`.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;

use super::{
    AzureInstances, EXISTENCE_MAX_AGE, LIST_MAX_AGE,
    describe::{self, DescribedNode},
    errors, existence,
    ownership::{self, NodeOwnership},
};
use crate::{
    cloud_provider::{CloudError, CloudResult, Existence, InstanceMetadata, InstancesV2, SecondLook},
    providers::azure::{
        inventory::{Freshness, MachineExistence},
        model::{LookupError, Machine, MachineQuery},
        node,
    },
};

type InstanceLookupResult = Result<Arc<Machine>, LookupError>;

#[async_trait]
impl InstancesV2 for AzureInstances {
    async fn instance_exists(&self, node: &Node) -> CloudResult<bool> {
        match self.existence(node).await {
            Existence::Exists => Ok(true),
            Existence::Gone => Ok(false),
            Existence::Unknown(reason) => Err(CloudError::Failed(reason)),
        }
    }

    async fn existence(&self, node: &Node) -> Existence {
        match ownership::of_node(node) {
            NodeOwnership::Unmanaged | NodeOwnership::Foreign | NodeOwnership::Unrecognized => Existence::Exists,
            NodeOwnership::Invalid(reason) => Existence::Unknown(reason),
            NodeOwnership::Azure(query) => {
                let sighting = self.machine_existence(node, &query).await;
                existence::decide(node, &sighting, &self.uuid_evidence.lock(), self.settings.grace, self.clock.wall())
            }
        }
    }

    /// Returns the verdict of lists on a missing machine. A machine that was recreated under the same name proves nothing about lists.
    async fn second_look(&self, node: &Node) -> SecondLook {
        let NodeOwnership::Azure(query) = ownership::of_node(node) else {
            return SecondLook::Silent("its machine is not known to be of Azure".to_owned());
        };
        match self.machine_existence(node, &query).await {
            MachineExistence::Gone => self.inventory.second_look(&query, LIST_MAX_AGE).await,
            MachineExistence::Unknown(reason) => SecondLook::Silent(reason),
            MachineExistence::Found(machine) => {
                SecondLook::Silent(format!("{} exists again, recreated under the same name", machine.id))
            }
        }
    }

    async fn is_unlisted(&self, node: &Node) -> CloudResult<bool> {
        match ownership::of_node(node) {
            NodeOwnership::Azure(query) if query.id.is_none() => {
                self.inventory.is_unlisted(&query, LIST_MAX_AGE).await.map_err(CloudError::Failed)
            }
            _ => Ok(false),
        }
    }

    async fn instance_shutdown(&self, node: &Node) -> CloudResult<bool> {
        let machine = self.existing_machine(node).await?;
        Ok(machine.is_some_and(|machine| existence::is_shut_down(node, &machine, &self.uuid_evidence.lock())))
    }

    async fn instance_runs(&self, node: &Node) -> CloudResult<bool> {
        let machine = self.existing_machine(node).await?;
        Ok(machine.is_some_and(|machine| existence::runs(node, &machine, &self.uuid_evidence.lock())))
    }

    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
        let metadata = self.metadata_of(&[node]).await.pop();
        metadata.unwrap_or_else(|| Err(CloudError::failed("the inventory did not answer")))
    }

    async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        self.metadata_of(&nodes.iter().map(Arc::as_ref).collect::<Vec<_>>()).await
    }
}

impl AzureInstances {
    /// Returns the machine of `node` from a fresh read; `None` if it is gone or the Node is not Azure's.
    async fn existing_machine(&self, node: &Node) -> CloudResult<Option<Arc<Machine>>> {
        match ownership::of_node(node) {
            NodeOwnership::Unmanaged | NodeOwnership::Foreign | NodeOwnership::Unrecognized => Ok(None),
            NodeOwnership::Invalid(reason) => Err(CloudError::Failed(reason)),
            NodeOwnership::Azure(query) => match self.machine_existence(node, &query).await {
                MachineExistence::Found(machine) => Ok(Some(machine)),
                MachineExistence::Gone => Ok(None),
                MachineExistence::Unknown(reason) => Err(CloudError::Failed(reason)),
            },
        }
    }

    /// Returns the state of the machine; if it seems to be another than `node`'s, it is read alone.
    async fn machine_existence(&self, node: &Node, query: &MachineQuery) -> MachineExistence {
        let seen = self.inventory.check_existence(query, EXISTENCE_MAX_AGE).await;
        let is_another = match &seen {
            MachineExistence::Found(machine) => {
                let mut scheme = self.uuid_evidence.lock();
                scheme.learn(node, machine);
                existence::is_other_machine(node, machine, &scheme)
            }
            MachineExistence::Gone | MachineExistence::Unknown(_) => false,
        };
        if is_another { self.inventory.check_existence_directly(query, EXISTENCE_MAX_AGE).await } else { seen }
    }

    /// Returns the metadata of all nodes: one lookup for all, and a second, uncached one for those whose machine was
    /// recreated since the first was read.
    async fn metadata_of(&self, nodes: &[&Node]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        let (owned, queries): (Vec<(usize, &Node)>, Vec<MachineQuery>) =
            nodes.iter().enumerate().filter_map(|(at, node)| Some(((at, *node), ownership::metadata_query(node)?))).unzip();
        let mut found = self.inventory.lookup(&queries, Freshness::Cached).await;
        self.learn_system_uuids(&owned, &found);
        self.reread_stale(&queries, &owned, &mut found).await;

        let mut metadata: Vec<_> = nodes.iter().map(|node| Ok(ownership::metadata_without_machine(node))).collect();
        for ((at, node), found) in owned.into_iter().zip(found) {
            metadata[at] = self.describe(node, found).map(Some);
        }
        metadata
    }

    fn learn_system_uuids(&self, owned: &[(usize, &Node)], found: &[InstanceLookupResult]) {
        let mut scheme = self.uuid_evidence.lock();
        for ((_, node), found) in owned.iter().zip(found) {
            if let Ok(machine) = found {
                scheme.learn(node, machine);
            }
        }
    }

    /// Rereads machines that may not be the ones their Nodes run on.
    async fn reread_stale(&self, queries: &[MachineQuery], owned: &[(usize, &Node)], found: &mut [InstanceLookupResult]) {
        let stale: Vec<usize> = {
            let scheme = self.uuid_evidence.lock();
            let is_stale = |at: &usize| match &found[*at] {
                Ok(machine) => existence::may_be_other_machine(owned[*at].1, machine, &scheme),
                Err(_) => false,
            };
            (0..found.len().min(owned.len())).filter(is_stale).collect()
        };
        if stale.is_empty() {
            return;
        }
        let stale_queries: Vec<MachineQuery> = stale.iter().map(|at| queries[*at].clone()).collect();
        let newer = self.inventory.lookup(&stale_queries, Freshness::Within(EXISTENCE_MAX_AGE)).await;
        stale.into_iter().zip(newer).for_each(|(at, newer)| found[at] = newer);
    }

    fn describe(&self, node: &Node, found: InstanceLookupResult) -> CloudResult<InstanceMetadata> {
        let machine = found.map_err(|error| errors::from_lookup(&error))?;
        let subject =
            DescribedNode { name: node::name(node), provider_id: node::provider_id(node), ipv6: node::has_ipv6(node) };
        let metadata = describe::metadata(&machine, self.settings.topology, subject);
        metadata.map_err(|error| CloudError::failed(error.to_string()))
    }
}
