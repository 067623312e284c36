//! Provider of a cloud-node-manager, which reads its own machine from the metadata service or from ARM.
//!
//! In: a [`LocalConfig`]. Out: a `CloudProvider` for one Node. Upstream: `pkg/node` (`nodeprovider.go`, `nodearm.go`).

use std::{collections::BTreeMap, sync::Arc};

use super::{
    auth::ReqwestTransport,
    metadata::{self, LocalMachineCloud, MetadataService, PlainHttpTransport},
    provider::{AzureCloud, environment, has_fault_domain_label},
};
use crate::{
    cloud_provider::{CloudError, CloudProvider, CloudResult, LocalConfig, registry::ProviderConfig},
    runtime::host_name::host_name,
};

/// Environment variable with the name of the pod's Node, if the manifest sets it.
const NODE_NAME: &str = "NODE_NAME";

/// Builds the provider. With the metadata service, which needs no credentials, only `faultDomainLabel` is read from `--cloud-config`.
pub fn local_factory(config: &LocalConfig) -> CloudResult<Arc<dyn CloudProvider>> {
    let environment = environment();
    if config.use_instance_metadata {
        let service = MetadataService::new(metadata::address(&environment), Arc::new(PlainHttpTransport));
        let mut machine = LocalMachineCloud::new(service, config.max_age);
        machine.own_name = Some(own_name(&environment));
        machine.fault_domain_label = has_fault_domain_label(config.cloud_config.as_deref());
        return Ok(Arc::new(machine));
    }
    if config.cloud_config.is_none() {
        let advice =
            "--use-instance-metadata=false reads this machine from ARM, which needs a configuration: set --cloud-config";
        return Err(CloudError::invalid(advice));
    }
    let settings = ProviderConfig { cloud_config: config.cloud_config.clone(), ..ProviderConfig::default() };
    let transport = ReqwestTransport::new(&environment).map_err(|error| CloudError::invalid(error.to_string()))?;
    Ok(Arc::new(AzureCloud::for_one_node(&settings, environment, Arc::new(transport), config.max_age)?))
}

/// Returns the name of this machine: [`NODE_NAME`] if set, otherwise its host name, as upstream's `isCurrentInstance` does.
fn own_name(environment: &BTreeMap<String, String>) -> String {
    let reported = environment.get(NODE_NAME).filter(|name| !name.is_empty());
    reported.cloned().unwrap_or_else(host_name)
}
