//! Builds an [`ObservedNetwork`] from documents.

use std::collections::BTreeSet;

use cloud_controller_manager::providers::azure::{
    model::{
        ResourceId,
        network::{PrivateLinkService, Subnet},
    },
    planner::load_balancer::observed::{ObservedNetwork, ObservedPrivateLinks},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cluster::PlanBatch;
use crate::golden::case::{Case, State};

/// Returns the state of Azure that the planner reads.
pub(super) fn observed(case: &Case, documents: &State, batch: &PlanBatch) -> ObservedNetwork {
    let group = batch.settings.security_group.as_ref().and_then(|id| documents.get(&id.key()));
    let networks: Vec<Value> = of_type("virtualNetworks", documents);
    let subnets = networks.iter().filter_map(|network| network["properties"]["subnets"].as_array()).flatten();
    let subnets = subnets.map(|subnet| serde_json::from_value::<Subnet>(subnet.clone()).unwrap());
    let zones: &[&str] = if case.region_zones { &["1", "2", "3"] } else { &[] };
    ObservedNetwork {
        load_balancers: of_type("loadBalancers", documents),
        public_ips: of_type("publicIPAddresses", documents),
        private_links: private_links(documents, batch),
        security_group: group.map(|group| serde_json::from_value(group.clone()).unwrap()),
        subnets: subnets.map(|subnet| (subnet.name.clone().unwrap_or_default().to_lowercase(), subnet)).collect(),
        zones: zones.iter().map(ToString::to_string).collect(),
        vm_sets: vm_sets(documents),
        namespace_labels: batch.namespaces.clone(),
        interface_limit_reached: false,
    }
}

/// Returns all private link services, and the resource groups that have no others.
fn private_links(documents: &State, batch: &PlanBatch) -> ObservedPrivateLinks {
    let services: Vec<PrivateLinkService> = of_type("privateLinkServices", documents);
    let ids = services.iter().filter_map(|link| ResourceId::parse(link.id.as_deref()?).ok()?.parent());
    let groups = ids.chain([batch.settings.private_link_group.clone()]).collect();
    ObservedPrivateLinks { services, groups }
}

fn of_type<T: DeserializeOwned>(kind: &str, documents: &State) -> Vec<T> {
    let kind = format!("Microsoft.Network/{kind}");
    let found = documents.values().filter(|document| document["type"] == kind);
    found.map(|document| serde_json::from_value(document.clone()).unwrap()).collect()
}

/// Returns the names of scale sets, and of availability sets with machines.
fn vm_sets(documents: &State) -> Vec<String> {
    let scale_sets = documents.values().filter(|document| document["type"] == "Microsoft.Compute/virtualMachineScaleSets");
    let scale_sets = scale_sets.filter_map(|document| document["id"].as_str());
    let machines = documents.values().filter_map(|document| document["properties"]["availabilitySet"]["id"].as_str());
    let names = scale_sets.chain(machines).filter_map(|id| id.rsplit('/').next());
    names.map(str::to_lowercase).collect::<BTreeSet<_>>().into_iter().collect()
}
