//! [`Instances`] and [`Zones`] on the inventory, for callers of the older interfaces. Upstream:
//! `pkg/provider/azure_instances_v1.go`, `azure_zones.go`.
//!
//! These know no Node, only its name or provider id, so that labels have no say: a machine in another resource group is found by
//! its provider id alone.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;

use super::{
    AzureInstances, EXISTENCE_MAX_AGE, Machine, MachineExistence, MachineQuery,
    describe::{self, DescribedNode},
    existence,
    provider_id::{self, ParsedProviderId},
};
use crate::cloud_provider::{CloudError, CloudResult, Instances, NodeAddress, Zone, Zones};

/// Returns the query for a provider ID; `None` if it is not Azure's.
fn query_by_provider_id(provider_id: &str) -> CloudResult<Option<MachineQuery>> {
    if provider_id.is_empty() {
        return Err(CloudError::failed("the provider id is empty: the node is not initialised yet"));
    }
    match provider_id::parse(provider_id) {
        ParsedProviderId::Foreign => Ok(None),
        ParsedProviderId::Invalid(reason) => Err(CloudError::Failed(reason)),
        ParsedProviderId::Machine(id) => {
            Ok(Some(MachineQuery { node_name: String::new(), id: Some(id), resource_group: None }))
        }
    }
}

fn query_by_name(name: &str) -> MachineQuery {
    MachineQuery { node_name: name.to_owned(), id: None, resource_group: None }
}

fn failed(error: impl std::fmt::Display) -> CloudError {
    CloudError::failed(error.to_string())
}

impl AzureInstances {
    /// Returns the machine with this provider id; `None`: it is none of Azure's.
    async fn by_provider_id(&self, provider_id: &str) -> CloudResult<Option<Arc<Machine>>> {
        match query_by_provider_id(provider_id)? {
            Some(query) => self.machine(query).await.map(Some),
            None => Ok(None),
        }
    }

    fn addresses_of(machine: &Machine, name: &str) -> CloudResult<Vec<NodeAddress>> {
        describe::addresses(machine, DescribedNode { name, provider_id: None, ipv6: false }).map_err(failed)
    }

    fn zone_of(&self, machine: &Machine) -> CloudResult<Zone> {
        describe::zone(machine, self.settings.topology).map_err(failed)
    }
}

#[async_trait]
impl Instances for AzureInstances {
    async fn node_addresses(&self, name: &str) -> CloudResult<Vec<NodeAddress>> {
        Self::addresses_of(self.machine(query_by_name(name)).await?.as_ref(), name)
    }

    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> CloudResult<Vec<NodeAddress>> {
        match self.by_provider_id(provider_id).await? {
            Some(machine) => Self::addresses_of(&machine, &describe::node_name(&machine)),
            None => Ok(Vec::new()),
        }
    }

    async fn instance_id(&self, name: &str) -> CloudResult<String> {
        provider_id::instance_id(&self.machine(query_by_name(name)).await?.id).map_err(failed)
    }

    async fn instance_type(&self, name: &str) -> CloudResult<String> {
        Ok(self.machine(query_by_name(name)).await?.vm_size.clone())
    }

    async fn instance_type_by_provider_id(&self, provider_id: &str) -> CloudResult<String> {
        let machine = self.by_provider_id(provider_id).await?;
        Ok(machine.map(|machine| machine.vm_size.clone()).unwrap_or_default())
    }

    async fn current_node_name(&self, hostname: &str) -> CloudResult<String> {
        Ok(hostname.to_lowercase())
    }

    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> CloudResult<bool> {
        let Some(query) = query_by_provider_id(provider_id)? else { return Ok(true) };
        match self.lookup.check_existence(&query, EXISTENCE_MAX_AGE).await {
            MachineExistence::Found(_) => Ok(true),
            MachineExistence::Gone => Ok(false),
            MachineExistence::Unknown(reason) => Err(CloudError::Failed(reason)),
        }
    }

    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> CloudResult<bool> {
        // Upstream: without a provider id nothing is shut down.
        if provider_id.is_empty() {
            return Ok(false);
        }
        let Some(query) = query_by_provider_id(provider_id)? else { return Ok(false) };
        match self.lookup.check_existence(&query, EXISTENCE_MAX_AGE).await {
            MachineExistence::Found(machine) => {
                Ok(existence::is_shut_down(&Node::default(), &machine, &self.uuid_evidence()))
            }
            MachineExistence::Gone => Ok(false),
            MachineExistence::Unknown(reason) => Err(CloudError::Failed(reason)),
        }
    }
}

#[async_trait]
impl Zones for AzureInstances {
    async fn get_zone(&self) -> CloudResult<Zone> {
        let hostname = gethostname::gethostname().to_string_lossy().to_lowercase();
        self.get_zone_by_node_name(&hostname).await
    }

    async fn get_zone_by_provider_id(&self, provider_id: &str) -> CloudResult<Zone> {
        match self.by_provider_id(provider_id).await? {
            Some(machine) => self.zone_of(&machine),
            None => Ok(Zone::default()),
        }
    }

    async fn get_zone_by_node_name(&self, name: &str) -> CloudResult<Zone> {
        self.zone_of(self.machine(query_by_name(name)).await?.as_ref())
    }
}
