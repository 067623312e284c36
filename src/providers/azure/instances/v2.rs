//! [`InstancesV2`] on the inventory: asks, and lets the pure neighbours decide. Upstream: `pkg/provider/azure_instances_v2.go`.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;

use super::{
    AzureInstances, FRESH, Freshness, LISTS_STAND, LookupError, Machine, Sighting, Wanted,
    describe::{self, Subject},
    errors, existence,
    standing::{self, Standing},
};
use crate::{
    cloud_provider::{CloudError, CloudResult, Existence, InstanceMetadata, InstancesV2, SecondLook},
    providers::azure::node,
};

type Found = Result<Arc<Machine>, LookupError>;

#[async_trait]
impl InstancesV2 for AzureInstances {
    async fn instance_exists(&self, node: &Node) -> CloudResult<bool> {
        match self.existence(node).await {
            Existence::Exists => Ok(true),
            Existence::Gone => Ok(false),
            Existence::Unknown(why) => Err(CloudError::Failed(why)),
        }
    }

    async fn existence(&self, node: &Node) -> Existence {
        match standing::of(node) {
            Standing::Unmanaged | Standing::Foreign => Existence::Exists,
            Standing::Unreadable(why) => Existence::Unknown(why),
            Standing::Azure(wanted) => {
                let sighting = self.sighting(node, &wanted).await;
                existence::decide(node, &sighting, &self.scheme(), self.settings.grace, self.clock.wall())
            }
        }
    }

    /// A machine that was made anew under the same name is vouched for by that machine alone.
    async fn second_look(&self, node: &Node) -> SecondLook {
        let Standing::Azure(wanted) = standing::of(node) else {
            return SecondLook::Silent("its machine is not known to be of Azure".to_owned());
        };
        match self.sighting(node, &wanted).await {
            Sighting::Gone => self.machines.second_look(&wanted, LISTS_STAND).await,
            Sighting::Unknown(why) => SecondLook::Silent(why),
            Sighting::Found(machine) => {
                SecondLook::Silent(format!("{} is there, made anew under the same name", machine.id))
            }
        }
    }

    async fn instance_shutdown(&self, node: &Node) -> CloudResult<bool> {
        match standing::of(node) {
            Standing::Unmanaged | Standing::Foreign => Ok(false),
            Standing::Unreadable(why) => Err(CloudError::Failed(why)),
            Standing::Azure(wanted) => match self.sighting(node, &wanted).await {
                Sighting::Found(machine) => Ok(existence::is_shut_down(node, &machine, &self.scheme())),
                Sighting::Gone => Ok(false),
                Sighting::Unknown(why) => Err(CloudError::Failed(why)),
            },
        }
    }

    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
        let [told] = <[_; 1]>::try_from(self.metadata_of(&[node]).await)
            .map_err(|_| CloudError::failed("the inventory gave no answer"))?;
        told
    }

    async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        self.metadata_of(&nodes.iter().map(Arc::as_ref).collect::<Vec<_>>()).await
    }
}

impl AzureInstances {
    /// What is seen of the machine; when it seems to be another than `node`'s, it is looked at by itself.
    async fn sighting(&self, node: &Node, wanted: &Wanted) -> Sighting {
        let seen = self.machines.confirm(wanted, FRESH).await;
        let is_another = match &seen {
            Sighting::Found(machine) => {
                let mut scheme = self.scheme();
                scheme.learn(node, machine);
                existence::is_of_another(node, machine, &scheme)
            }
            Sighting::Gone | Sighting::Unknown(_) => false,
        };
        if is_another { self.machines.confirm_directly(wanted, FRESH).await } else { seen }
    }

    /// All at once: one look-up for all, and a second, fresh one for those whose machine was made anew since the first was read.
    async fn metadata_of(&self, nodes: &[&Node]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        let (places, wanted): (Vec<usize>, Vec<Wanted>) =
            nodes.iter().enumerate().filter_map(|(at, node)| Some((at, standing::metadata_source(node)?))).unzip();
        let mut found = self.machines.look_up(&wanted, Freshness::Cached).await;
        self.learn(&places, nodes, &found);
        self.look_again(&wanted, &places, nodes, &mut found).await;

        // An unmanaged Node is told nothing, which is not an error: it may initialise with the provider id it brings.
        let mut told: Vec<_> = nodes.iter().map(|_| Ok(Some(InstanceMetadata::default()))).collect();
        for (at, found) in places.into_iter().zip(found) {
            if let (Some(told), Some(node)) = (told.get_mut(at), nodes.get(at)) {
                *told = self.describe(node, found).map(Some);
            }
        }
        told
    }

    fn learn(&self, places: &[usize], nodes: &[&Node], found: &[Found]) {
        let mut scheme = self.scheme();
        for (place, found) in places.iter().zip(found) {
            if let (Some(node), Ok(machine)) = (nodes.get(*place), found) {
                scheme.learn(node, machine);
            }
        }
    }

    /// Asks afresh for machines that may not be the ones their Nodes run on.
    async fn look_again(&self, wanted: &[Wanted], places: &[usize], nodes: &[&Node], found: &mut [Found]) {
        let stale: Vec<usize> = {
            let scheme = self.scheme();
            let is_stale = |at: usize, found: &Found| {
                let node = places.get(at).and_then(|place| nodes.get(*place));
                matches!((node, found), (Some(node), Ok(machine)) if existence::may_be_of_another(node, machine, &scheme))
            };
            found.iter().enumerate().filter(|(at, found)| is_stale(*at, found)).map(|(at, _)| at).collect()
        };
        if stale.is_empty() {
            return;
        }
        let again: Vec<Wanted> = stale.iter().filter_map(|at| wanted.get(*at).cloned()).collect();
        for (at, newer) in stale.into_iter().zip(self.machines.look_up(&again, Freshness::Within(FRESH)).await) {
            if let Some(found) = found.get_mut(at) {
                *found = newer;
            }
        }
    }

    fn describe(&self, node: &Node, found: Found) -> CloudResult<InstanceMetadata> {
        let machine = found.map_err(|error| errors::of_look_up(&error))?;
        let subject = Subject { name: node::name(node), provider_id: node::provider_id(node), ipv6: node::has_ipv6(node) };
        let told = describe::metadata(&machine, self.settings.vm_type, subject);
        told.map_err(|error| CloudError::failed(error.to_string()))
    }
}
