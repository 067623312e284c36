//! Tests of the client and its cache on the simulated metadata service of a machine, with a paused clock.

use tokio::time::Instant;

use super::{
    super::{arm::test_doubles::FixedResponses, node::fixtures::node},
    *,
};
use crate::{
    cloud_provider::AddressType,
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::azure::{
        Azure, AzureOptions, Effect, Fault,
        topology::{Pool, PoolKind, Topology},
        world::World,
    },
};

const INSTANCE: &str = "/metadata/instance";
const LOAD_BALANCER: &str = "/metadata/loadbalancer";

/// Returns a machine with public addresses of both families, and its metadata service.
fn machine() -> (World, Azure, LocalMachineCloud) {
    let topology = Topology::new().dual_stack().pool(Pool::new(PoolKind::Uniform, "pool1", 1).zones(&["2"]).public_ips());
    let simulation = World::new(topology, AzureOptions::immediate(), Clock::System).unwrap();
    let metadata = simulation.machine_metadata("pool1000000", Vec::new()).unwrap();
    let machine = LocalMachineCloud::new(MetadataService::new(ADDRESS, metadata.transport()), MAX_AGE);
    (simulation, metadata, machine)
}

async fn read(machine: &LocalMachineCloud) -> CloudResult<InstanceMetadata> {
    machine.instance_metadata(&node("pool1000000").build()).await.map(Option::unwrap)
}

fn count(metadata: &Azure, path: &str) -> usize {
    metadata.count(|request| request.path == path)
}

fn externals(metadata: &InstanceMetadata) -> usize {
    metadata.node_addresses.iter().filter(|address| address.type_ == AddressType::ExternalIP).count()
}

#[tokio::test(start_paused = true)]
async fn any_number_of_callers_causes_two_requests_a_minute() {
    let (simulation, metadata, machine) = machine();
    let all = futures::future::join_all((0..20).map(|_| read(&machine))).await;
    let first = all[0].clone().unwrap();
    assert!(all.into_iter().all(|result| result == Ok(first.clone())));
    assert_eq!(first.provider_id, simulation.machine("pool1000000").unwrap().provider_id(&simulation.topology()));
    assert_eq!((first.zone.as_str(), first.region.as_str()), ("eastus-2", "eastus"));
    assert_eq!((first.node_addresses.len(), externals(&first)), (5, 2));
    assert_eq!((count(&metadata, INSTANCE), count(&metadata, LOAD_BALANCER)), (1, 1));

    tokio::time::advance(Duration::from_secs(59)).await;
    read(&machine).await.unwrap();
    assert_eq!(count(&metadata, INSTANCE), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    read(&machine).await.unwrap();
    assert_eq!((count(&metadata, INSTANCE), count(&metadata, LOAD_BALANCER)), (2, 2));
    let agents = metadata.requests().into_iter().map(|request| request.user_agent);
    assert!(agents.into_iter().all(|agent| agent == "cloud-node-manager"));
}

#[tokio::test(start_paused = true)]
async fn a_malformed_document_is_reported_on_one_line() {
    for body in [format!("\"{}\"", "x".repeat(1 << 19)), "{\"compute\": \"two\\nlines\"}".to_owned()] {
        let machine =
            LocalMachineCloud::new(MetadataService::new(ADDRESS, Arc::new(FixedResponses(move || body.clone()))), MAX_AGE);
        let error = read(&machine).await.unwrap_err().to_string();
        assert!(error.contains("not the requested document") && error.len() < 500, "{} bytes", error.len());
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_callers_share_a_failure() {
    let (_, metadata, machine) = machine();
    metadata.add_fault(Fault::refuse(400, "bad").path(INSTANCE));
    metadata.add_fault(Fault::new(Effect::Delay(Duration::from_secs(1))));
    let all = futures::future::join_all((0..20).map(|_| read(&machine))).await;
    assert!(all.iter().all(Result::is_err));
    assert_eq!(count(&metadata, INSTANCE), 1);
}

#[tokio::test(start_paused = true)]
async fn public_addresses_neither_delay_a_node_nor_flap() {
    let (_, metadata, machine) = machine();
    metadata.add_fault(Fault::refuse(500, "broken").path(LOAD_BALANCER));
    let begun = Instant::now();
    assert_eq!(externals(&read(&machine).await.unwrap()), 0);
    assert!(begun.elapsed() <= Duration::from_secs(6));
    metadata.faults().clear();
    tokio::time::advance(MAX_AGE).await;
    assert_eq!(externals(&read(&machine).await.unwrap()), 2);
    metadata.add_fault(Fault::new(Effect::Garbage).path(LOAD_BALANCER));
    tokio::time::advance(MAX_AGE).await;
    assert_eq!(externals(&read(&machine).await.unwrap()), 2, "the cached addresses are kept");
    metadata.faults().clear();
    metadata.add_fault(Fault::refuse(404, "none").path(LOAD_BALANCER));
    tokio::time::advance(MAX_AGE).await;
    assert_eq!(externals(&read(&machine).await.unwrap()), 0, "the service reports none");
}

#[tokio::test(start_paused = true)]
async fn an_unmanaged_node_causes_no_request() {
    let (_, metadata, machine) = machine();
    let unmanaged = node("n").label(node::LABEL_MANAGED, "false").build();
    let expected = InstanceMetadata { is_unmanaged: true, ..InstanceMetadata::default() };
    assert_eq!(machine.instance_metadata(&unmanaged).await, Ok(Some(expected)));
    assert!(metadata.requests().is_empty());
}

/// Reads over a socket, as in production.
#[tokio::test]
async fn the_plain_transport_reaches_a_service() {
    let (_, metadata, _) = machine();
    let stop = Shutdown::new();
    let address = metadata.serve_plain(([127, 0, 0, 1], 0).into(), &stop).await.unwrap();
    let service = MetadataService::new(&format!("http://{address}/"), Arc::new(PlainHttpTransport));
    assert_eq!(externals(&read(&LocalMachineCloud::new(service, MAX_AGE)).await.unwrap()), 2);
    stop.begin();
}

#[test]
fn the_environment_can_replace_the_address() {
    let environment = |value: &str| BTreeMap::from([(ENDPOINT_VARIABLE.to_owned(), value.to_owned())]);
    assert_eq!(address(&environment("http://localhost:1")), "http://localhost:1");
    assert_eq!(address(&environment("")), ADDRESS);
    assert_eq!(address(&BTreeMap::new()), ADDRESS);
}

#[tokio::test(start_paused = true)]
async fn the_node_of_another_machine_is_refused() {
    let (_, _, machine) = machine();
    let request =
        async |machine: &LocalMachineCloud, name: &str| machine.instance_metadata(&node(name).build()).await.map(drop);
    for own in ["pool1000000", "POOL1000000", "pool1_0"] {
        assert_eq!(request(&machine, own).await, Ok(()), "{own}");
    }
    let error = request(&machine, "pool1000001").await.unwrap_err().to_string();
    assert!(error.contains("called \"pool1000000\", and not \"pool1000001\""), "{error}");
    let renamed = LocalMachineCloud { own_name: Some("Renamed".to_owned()), ..machine };
    assert_eq!(request(&renamed, "renamed").await, Ok(()), "the name from the environment");
    assert!(request(&renamed, "pool1000001").await.is_err());
}
