//! The container of health-probe-proxy: it fits its DaemonSet and the guide.

use super::*;

const COMPONENT: &str = "health-probe-proxy";

/// Returns the only change of the component.
fn change() -> Value {
    let [change] =
        <[Value; 1]>::try_from(yaml::parse::<Vec<Value>>(&read(&format!("{COMPONENT}/container.yaml"))).unwrap()).unwrap();
    change
}

/// Returns the container that the component adds.
pub(super) fn container() -> Container {
    let value = change()["value"].clone();
    assert_eq!(round_trip::<Container>(&value), value, "fields that Kubernetes does not know");
    serde_json::from_value(value).unwrap()
}

#[test]
fn the_component_adds_a_container_to_node_managers() {
    let component = component(COMPONENT);
    assert_eq!(component["resources"], Value::Null);
    let [patch] = component["patches"].as_array().unwrap().as_slice() else { panic!("{component}") };
    let set = daemon_set("daemonset.yaml");
    assert_eq!((&patch["path"], &patch["target"]["kind"]), (&"container.yaml".into(), &"DaemonSet".into()));
    assert_eq!(patch["target"]["name"].as_str(), set.metadata.name.as_deref());
    let change = change();
    assert_eq!((&change["op"], &change["path"]), (&"add".into(), &"/spec/template/spec/containers/-".into()));
    let pod = set.spec.template.spec.unwrap();
    assert_eq!(pod.host_network, Some(true), "the port is the Node's");
    assert!(pod.containers.iter().all(|other| other.name != container().name));
}

#[test]
fn the_proxy_is_confined_and_listens_on_the_documented_port() {
    let container = container();
    assert_confined(&container);
    let CliCommand::ProxyProbes(config) = start(&container) else { panic!("{:?}", container.args) };
    let [port] = <[_; 1]>::try_from(container.ports.unwrap()).unwrap();
    assert_eq!((i32::from(config.health_check_port), config.target_port), (port.container_port, 10256));
    let guide = fs::read_to_string("docs/guides/health-probe-proxy.md").unwrap();
    let setting = format!("`clusterServiceSharedLoadBalancerHealthProbePort: {}`", config.health_check_port);
    assert!(guide.contains(&setting), "{setting}");
}
