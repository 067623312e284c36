//! Instances, by node, by name and by provider id; routes to them.

use super::*;
use crate::cloud_provider::{AddressType, Existence, NodeAddress, Route, RouteChanges};

fn with_id(name: &str, id: &str) -> Node {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"providerID": id}})).unwrap()
}

fn address(type_: AddressType, address: &str) -> NodeAddress {
    NodeAddress { type_, address: address.into() }
}

const INSTANCES: &str = "
instances:
  plain: {}
  full: {providerID: 'fake://zone-b/vm-7', instanceType: big, zone: b, region: r, labels: {rack: '7'},
         addresses: [{type: ExternalIP, address: 203.0.113.9}]}
  off: {powerState: stopped}
  gone: {existence: gone}
  unclear: {existence: unknown}
  other: {managed: false}
generatedInstances:
  - {namePrefix: gen-, count: 300, zones: [a, b], addressRange: 10.9.0.0/16, template: {instanceType: small}}
";

#[test]
fn a_cluster_with_nodes_of_another_cloud_is_refused() {
    let refusal = |yaml: &str, ids: &[&str]| {
        let nodes: Vec<_> = ids.iter().map(|id| Arc::new(with_id("worker-1", id))).collect();
        cloud(yaml).refuses_cluster(&nodes)
    };
    const LISTED: &str = "instances: {a: {providerID: 'kind://docker/a'}}";
    for (yaml, ids, is_refused) in [
        ("{}", &[][..], false),
        ("{}", &["", "fake://worker-1", "fake://zone/vm"], false),
        ("{}", &["", "azure:///subscriptions/s"], true),
        ("{}", &["fake://worker-1", "kind://docker/a"], true),
        ("{}", &["without a scheme"], true),
        (LISTED, &["kind://docker/a"], false),
        (LISTED, &["kind://docker/b"], true),
        ("allowForeignNodes: true", &["azure:///subscriptions/s"], false),
    ] {
        let reason = refusal(yaml, ids);
        assert_eq!(reason.is_some(), is_refused, "{yaml} {ids:?}: {reason:?}");
    }
    let reason = refusal("{}", &["azure:///subscriptions/s"]).unwrap();
    for part in ["Node worker-1", "azure:///subscriptions/s", "--cloud-provider", "allowForeignNodes"] {
        assert!(reason.contains(part), "{reason}");
    }
}

#[tokio::test]
async fn existence_and_power_follow_the_configuration() {
    let cloud = cloud(INSTANCES);
    let v2 = cloud.instances_v2().unwrap();
    let failed = |result: &str| result.starts_with("Err(Failed");
    for (node, existence, shutdown, metadata) in [
        (node("plain"), "Exists", "Ok(false)", "Ok(true)"),
        (node("full"), "Exists", "Ok(false)", "Ok(true)"),
        (with_id("full", "fake://zone-b/vm-7"), "Exists", "Ok(false)", "Ok(true)"),
        (with_id("full", "fake://full"), "Gone", "Err(InstanceNotFound)", "Err(InstanceNotFound)"),
        (with_id("renamed", "fake://plain"), "Exists", "Ok(false)", "Ok(true)"),
        (node("off"), "Exists", "Ok(true)", "Ok(true)"),
        (node("gone"), "Gone", "Err(InstanceNotFound)", "Err(InstanceNotFound)"),
        (node("absent"), "Gone", "Err(InstanceNotFound)", "Err(InstanceNotFound)"),
        (node("unclear"), "Unknown", "Err(Failed", "Err(Failed"),
        (node("other"), "Exists", "Ok(false)", "Ok(false)"),
        (with_id("plain", "azure:///subscriptions/x"), "Exists", "Ok(false)", "Ok(false)"),
        (node("gen-0"), "Exists", "Ok(false)", "Ok(true)"),
        (node("gen-299"), "Exists", "Ok(false)", "Ok(true)"),
        (node("gen-300"), "Gone", "Err(InstanceNotFound)", "Err(InstanceNotFound)"),
        (node("gen-007"), "Gone", "Err(InstanceNotFound)", "Err(InstanceNotFound)"),
    ] {
        let seen = format!("{:?}", v2.existence(&node).await);
        assert!(seen.starts_with(existence), "{node:?}: {seen}");
        let seen = format!("{:?}", v2.instance_shutdown(&node).await);
        assert!(seen == shutdown || failed(shutdown) && failed(&seen), "{node:?}: {seen}");
        let seen = format!("{:?}", v2.instance_metadata(&node).await.map(|metadata| metadata.is_some()));
        assert!(seen == metadata || failed(metadata) && failed(&seen), "{node:?}: {seen}");
    }
}

#[tokio::test]
async fn metadata_matches_the_configuration() {
    let cloud = cloud(INSTANCES);
    let v2 = cloud.instances_v2().unwrap();
    let full = v2.instance_metadata(&node("full")).await.unwrap().unwrap();
    assert_eq!(full.provider_id, "fake://zone-b/vm-7");
    assert_eq!((full.instance_type.as_str(), full.zone.as_str(), full.region.as_str()), ("big", "b", "r"));
    assert_eq!(full.node_addresses, [address(AddressType::ExternalIP, "203.0.113.9")]);
    assert_eq!(full.additional_labels["rack"], "7");

    let generated = v2.instance_metadata(&node("gen-257")).await.unwrap().unwrap();
    assert_eq!((generated.provider_id.as_str(), generated.zone.as_str()), ("fake://gen-257", "b"));
    let expected = [address(AddressType::InternalIP, "10.9.1.2"), address(AddressType::Hostname, "gen-257")];
    assert_eq!(generated.node_addresses, expected);
    cloud.set_power("gen-257", PowerState::Stopped);
    assert_eq!(v2.instance_shutdown(&node("gen-257")).await, Ok(true));
    assert_eq!(v2.instance_metadata(&node("gen-257")).await, Ok(Some(generated)), "generated fields are kept");
    cloud.remove_instance("gen-257");
    assert_eq!(v2.existence(&node("gen-257")).await, Existence::Gone);

    let node_with_ips =
        json!({"metadata": {"name": "plain", "annotations": {"alpha.kubernetes.io/provided-node-ip": "10.1.2.3, fd00::3"}}});
    let with_ips = v2.instance_metadata(&serde_json::from_value(node_with_ips).unwrap()).await.unwrap().unwrap();
    let expected = [
        address(AddressType::InternalIP, "10.1.2.3"),
        address(AddressType::InternalIP, "fd00::3"),
        address(AddressType::Hostname, "plain"),
    ];
    assert_eq!(with_ips.node_addresses, expected);
}

fn route(target: &str, cidr: &str) -> Route {
    Route { target_node: target.into(), destination_cidr: cidr.into(), ..Route::default() }
}

#[tokio::test]
async fn routes_are_per_cluster_and_blackholes_without_instance() {
    let cloud = cloud("{instances: {a: {}, b: {}}, routes: {enableNodeAddresses: true}}");
    let routes = CloudProvider::routes(&cloud).unwrap();
    let mut to_a = route("a", "10.244.1.0/24");
    to_a.target_node_addresses = vec![address(AddressType::InternalIP, "10.0.0.1")];
    routes.create_route("one", "uid-a", &to_a).await.unwrap();
    routes.create_route("one", "uid-a", &to_a).await.unwrap();
    assert_eq!(cloud.write_count(), 1, "an existing route is not written again");
    routes.create_route("two", "uid-a", &to_a).await.unwrap();
    let listed = routes.list_routes("one").await.unwrap();
    let [only] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((only.name.as_str(), only.blackhole, only.enable_node_addresses), ("one-uid-a-10.244.1.0_24", false, true));
    assert_eq!(only.target_node_addresses, to_a.target_node_addresses);

    let refused = |result: CloudResult<()>| result.unwrap_err().to_string();
    assert!(
        refused(routes.create_route("one", "x", &route("b", "10.244.1.77/24")).await).contains("\"a\""),
        "same destination"
    );
    assert!(refused(routes.create_route("one", "x", &route("z", "10.244.9.0/24")).await).contains("no instance"));
    assert!(refused(routes.create_route("one", "x", &route("b", "pods")).await).contains("not a CIDR"));

    cloud.remove_instance("a");
    let black = routes.list_routes("one").await.unwrap();
    assert!(black[0].blackhole);
    routes.delete_route("one", &black[0]).await.unwrap();
    routes.delete_route("one", &black[0]).await.unwrap();
    assert_eq!(cloud.routes().len(), 1, "the other cluster keeps its route");
}

#[tokio::test]
async fn route_batch_deletes_first_and_continues_after_a_failure() {
    let cloud = cloud("{anyInstance: {}, calls: {createRoute: {error: no, objects: [b]}}}");
    let routes = CloudProvider::routes(&cloud).unwrap();
    routes.create_route("c", "old", &route("old", "10.244.1.0/24")).await.unwrap();
    cloud.clear_calls();
    let create = ["a", "b", "c"].iter().zip(1..).map(|(name, i)| (String::new(), route(name, &format!("10.244.{i}.0/24"))));
    let changes = RouteChanges { delete: routes.list_routes("c").await.unwrap(), create: create.collect() };
    let outcomes = routes.apply_routes("c", &changes).await;
    assert_eq!(outcomes.deleted, [Ok(())]);
    assert_eq!(outcomes.created, [Ok(()), Err(CloudError::failed("no")), Ok(())]);
    let targets: Vec<_> = cloud.routes().into_iter().map(|route| route.target_node).collect();
    assert_eq!(targets, ["a", "c"]);
    assert_eq!(cloud.objects_of(CallName::ApplyRoutes), ["1 deleted, 3 created"]);
}
