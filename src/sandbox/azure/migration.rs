//! `POST migrateToIpBased`: network interfaces that list pools of a load balancer turn into addresses in these pools.
//!
//! Instances and models of scale sets keep listing the pools, as upstream's own clean-up afterwards implies
//! (`pkg/provider/azure_loadbalancer_backendpool.go`, `backendPoolTypeNodeIP.CleanupVMSetFromBackendPoolByCondition`).

use serde_json::{Value, json};

use super::{
    effects,
    handle::State,
    read,
    refusal::Refusal,
    request::Answer,
    shape,
    store::Store,
    write::{self, Write},
};
use crate::providers::azure::model::ResourceId;

const POOLS: &str = "backendAddressPools";
const INTERFACES: [&str; 2] =
    ["Microsoft.Network/networkInterfaces", "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces"];

/// Migrates the pools that the request names.
pub fn migrate(state: &mut State, write: &Write<'_>, id: &ResourceId) -> Result<Answer, Refusal> {
    let mut body = (*read::existing(state, id)?.body).clone();
    let names = write.request.document()?["pools"].take();
    for name in names.as_array().into_iter().flatten().filter_map(Value::as_str) {
        let missing = || Refusal::invalid("InvalidRequestFormat", format!("The load balancer has no pool {name}."));
        let mut pool = shape::part(&body, POOLS, name).cloned().ok_or_else(missing)?;
        let addresses = take_interfaces(&mut state.store, &id.child(POOLS, name));
        pool["properties"]["loadBalancerBackendAddresses"] = json!(addresses);
        shape::set_part(&mut body, POOLS, pool);
    }
    let stored = write::store(state, write, id, body)?;
    Ok(Answer { body: Some(json!({"migratedPools": names})), ..stored })
}

/// Removes all interfaces from a pool, and returns an entry for each of their addresses in it.
fn take_interfaces(store: &mut Store, pool: &ResourceId) -> Vec<Value> {
    let mut entries = Vec::new();
    let interfaces: Vec<Value> = INTERFACES.iter().flat_map(|kind| store.documents_of(kind)).collect();
    for interface in interfaces {
        let Some(Ok(id)) = interface["id"].as_str().map(ResourceId::parse) else { continue };
        let Some(mut body) = store.get(id.as_str()).map(|document| (*document.body).clone()) else { continue };
        let addresses = leave(&mut body, pool);
        if !addresses.is_empty() {
            effects::insert(store, &id, body);
            entries.extend(addresses.iter().map(|address| json!({"name": address, "properties": {"ipAddress": address}})));
        }
    }
    entries
}

/// Removes the pool from the IP configurations that list it, and returns their addresses.
fn leave(interface: &mut Value, pool: &ResourceId) -> Vec<String> {
    let mut addresses = Vec::new();
    for configuration in interface["properties"]["ipConfigurations"].as_array_mut().into_iter().flatten() {
        let Some(pools) = configuration["properties"]["loadBalancerBackendAddressPools"].as_array_mut() else { continue };
        let before = pools.len();
        pools.retain(|listed| !listed["id"].as_str().is_some_and(|id| pool.same_as(id)));
        if pools.len() < before {
            let address = configuration["properties"]["privateIPAddress"].as_str();
            addresses.extend(address.map(str::to_owned));
        }
    }
    addresses
}
