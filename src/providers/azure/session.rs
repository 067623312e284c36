//! Configuration in use: credentials, ARM client, budget, inventory and the parts built on them.
//!
//! In: a checked configuration and the process's parts. Out: a [`Session`] that is used until the configuration changes.
//! Building one sends only requests for the cloud's endpoints.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;

use super::{
    arm::{ArmClient, ArmClientDeps, ArmSettings, Budget, CredentialTokens},
    auth::{self, ArmConnection, ArmCredentials, AuthError, CloudEndpoints},
    config::AzureConfig,
    instances::AzureInstances,
    inventory::{Inventory, InventorySettings},
    load_balancer::engine::AzureLoadBalancers,
    planner::routes::settings::RouteSettings,
    pod_cidr_masks::AzurePodCidrMasks,
    routes::AzureRoutes,
    transport::ArmTransport,
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    metrics::Metrics,
    runtime::{clock::Clock, leader_election::Leadership, store::InformerStore},
    status::SessionStatus,
};

/// Dependencies from the process.
#[derive(Clone)]
pub struct SessionDeps {
    /// Transport to ARM and to the identity service.
    pub transport: Arc<dyn ArmTransport>,
    pub environment: BTreeMap<String, String>,
    /// Budget of every request. Outlives sessions: the remaining quotas do not change with the configuration.
    pub budget: Budget,
    /// Checked before every write but those of routes.
    pub leadership: Leadership,
    /// Checked before every write of routes.
    pub route_leadership: Leadership,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    pub nodes: InformerStore<Node>,
}

/// Session of one configuration.
pub struct Session {
    pub config: Arc<AzureConfig>,
    /// Endpoints of the cloud.
    pub cloud: CloudEndpoints,
    /// Client for the subscription of the machines.
    pub compute: ArmClient,
    /// Client for the subscription of the network resources.
    pub network: ArmClient,
    pub inventory: Arc<Inventory>,
    /// Instances of the provider contract.
    pub instances: Arc<AzureInstances>,
    /// Load balancers; `None` until the cluster's objects are known to the session.
    pub load_balancers: Option<Arc<AzureLoadBalancers>>,
    /// Routes of the provider contract.
    pub routes: Arc<AzureRoutes>,
    /// Sizes of pod CIDRs of the provider contract.
    pub pod_cidr_masks: Arc<AzurePodCidrMasks>,
    /// Credentials, for their expiry.
    pub credentials: ArmCredentials,
    budget: Budget,
}

impl Session {
    pub async fn open(config: Arc<AzureConfig>, surroundings: &SessionDeps) -> CloudResult<Self> {
        let SessionDeps { transport, environment, budget, leadership, route_leadership, metrics, clock, nodes } =
            surroundings;
        let connection = auth::connect(&config, environment, Arc::clone(transport), *clock).await;
        let ArmConnection { cloud, credentials } = connection.map_err(|error| auth_to_cloud_error(&error))?;
        let stored = credentials.clone();
        let settings =
            ArmSettings::configured(&config, &cloud.resource_manager, cloud.azure_stack).map_err(CloudError::invalid)?;
        let client = |tokens: CredentialTokens| {
            let parts = ArmClientDeps {
                transport: Arc::clone(transport),
                tokens: Arc::new(tokens),
                gate: Arc::new(budget.clone()),
                leadership: leadership.clone(),
                metrics: Arc::clone(metrics),
                clock: *clock,
            };
            ArmClient::new(settings.clone(), parts)
        };
        let compute = client(CredentialTokens::new(credentials.compute, credentials.auxiliary));
        // An auxiliary token is one of the network tenant, which this bearer is of already. Upstream sends that tenant's token in both
        // headers (`AuxiliaryTenants` in `pkg/azclient/factory_conf.go` is set for all clients); once is enough.
        let network = client(CredentialTokens::new(credentials.network, None));
        let inventory = Inventory::new(compute.clone(), InventorySettings::from_config(&config), *clock);
        let instances = Arc::new(AzureInstances::new(&config, Arc::clone(&inventory), *clock));
        let routes = RouteSettings::new(&config);
        let routes = AzureRoutes::new(
            routes,
            &network.with_leadership(route_leadership),
            Arc::clone(&inventory),
            nodes.clone(),
            Arc::clone(metrics),
            *clock,
        )
        .into();
        let pod_cidr_masks = AzurePodCidrMasks::new(compute.clone(), Arc::clone(&inventory), *clock).into();
        Ok(Self {
            config,
            cloud,
            compute,
            network,
            inventory,
            instances,
            routes,
            pod_cidr_masks,
            load_balancers: None,
            credentials: stored,
            budget: budget.clone(),
        })
    }

    /// Returns the longest time for which a cache may differ from Azure.
    pub fn longest_cache_ttl(&self) -> Duration {
        let config = &self.config;
        let ttls = [
            config.non_vmss_uniform_nodes_cache_ttl,
            config.vmss_cache_ttl,
            config.vmss_virtual_machines_cache_ttl,
            config.vmss_flex_cache_ttl,
            config.vmss_flex_vm_cache_ttl,
            config.vm_cache_ttl,
            config.availability_sets_cache_ttl,
            config.load_balancer_cache_ttl,
            config.nsg_cache_ttl,
            config.route_table_cache_ttl,
            config.public_ip_cache_ttl,
            config.pls_cache_ttl,
        ];
        ttls.into_iter().max().unwrap_or_default()
    }

    /// Returns the state of the session, for the status page.
    pub fn status(&self) -> SessionStatus {
        SessionStatus {
            subscription: self.config.subscription_id.clone(),
            resource_group: self.config.resource_group.clone(),
            resource_manager: self.cloud.resource_manager.clone(),
            inventory: self.inventory.status(),
            load_balancers: self.load_balancers.as_ref().map(|balancers| balancers.status()),
            routes: Some(self.routes.status()),
            request_budget: self.budget.status(),
        }
    }
}

fn auth_to_cloud_error(error: &AuthError) -> CloudError {
    if error.is_configuration() { CloudError::invalid(error.to_string()) } else { CloudError::failed(error.to_string()) }
}
