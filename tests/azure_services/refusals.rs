//! What is told of a Service that gets nothing, how often, and how it ends.

use std::time::Duration;

use cloud_controller_manager::{cloud_provider::CloudProvider, sandbox::azure::Fault};
use k8s_openapi::api::core::v1::{Event, Service};

use crate::azure_services::{
    cluster::{Cluster, MINUTE, PATIENCE},
    services::{external, with},
};

/// With a configuration that is not built.
fn unsupported(cluster: Cluster) -> Cluster {
    let by_pods = cluster.configured("loadBalancerBackendPoolConfigurationType", "podIP");
    by_pods.configured("serviceGatewayEnabled", true).configured("loadBalancerSku", "service")
}

fn refused() -> Service {
    let service = with(external("web"), "port_80_health-probe_port", "65536");
    with(service, "azure-load-balancer-inernal", "true")
}

/// How often a warning with this text has been told about a Service.
fn told(cluster: &Cluster, name: &str, text: &str) -> i32 {
    let is_it = |event: &Event| {
        event.involved_object.name.as_deref() == Some(name) && event.message.as_deref().unwrap_or_default().contains(text)
    };
    cluster.server.list::<Event>().iter().filter(|event| is_it(event)).map(|event| event.count.unwrap_or(1)).sum()
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_again_and_again_and_costs_no_request() {
    let cluster = Cluster::with_two_nodes();
    let _life = cluster.start();
    tokio::time::sleep(MINUTE).await;
    cluster.create(&refused());
    tokio::time::sleep(MINUTE).await;
    let text = "service.beta.kubernetes.io/port_80_health-probe_port: port 65536 is out of range";
    let times = told(&cluster, "web", text);
    assert!((3..=5).contains(&times), "{times} times in a minute: {:?}", cluster.warnings("web"));
    assert!(told(&cluster, "web", "azure-load-balancer-inernal") > 0, "{:?}", cluster.warnings("web"));
    // The first Service has the pools looked at once; trying again asks for nothing.
    cluster.azure().clear_requests();
    tokio::time::sleep(10 * MINUTE).await;
    assert!(told(&cluster, "web", text) > times, "{:?}", cluster.warnings("web"));
    let asked = cluster.azure().requests().into_iter().filter(|request| request.path.contains("Microsoft.Network"));
    assert_eq!(asked.map(|request| request.path).collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_removed_lock_is_noticed_within_seconds() {
    let cluster = Cluster::with_two_nodes();
    cluster.azure().add_fault(Fault::refuse(409, "ScopeLocked").method("PUT").path("*/publicIPAddresses/*"));
    cluster.create(&external("web"));
    let _life = cluster.start();
    cluster.until_warned("web", "ScopeLocked").await;
    cluster.azure().faults().clear();
    let took = cluster.until_ready(10 * MINUTE).await;
    assert!(took <= Duration::from_secs(30), "15 s, and the writes: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_configuration_keeps_no_service_that_never_got_anything() {
    let cluster = unsupported(Cluster::with_two_nodes());
    let life = cluster.start();
    cluster.create(&external("web"));
    tokio::time::sleep(5 * MINUTE).await;
    let problem = life.provider.load_balancer().unwrap().problem().unwrap();
    assert!(problem.contains("serviceGatewayEnabled"), "{problem}");
    assert!(told(&cluster, "web", "serviceGatewayEnabled") > 0);
    cluster.remove("web").await;
    assert_eq!(cluster.writes(), [""; 0]);
}

/// The former controller may have died before it could say what it had made.
#[tokio::test(start_paused = true)]
async fn an_unsupported_configuration_takes_nothing_away() {
    let (cluster, life) = Cluster::with_two_nodes().serving(&[external("web")]).await;
    life.stop().await;
    cluster.change("web", |web| web.status = None);
    let cluster = unsupported(cluster);
    let _life = cluster.start();
    tokio::time::sleep(5 * MINUTE).await;
    cluster.azure().clear_requests();
    cluster.delete("web");
    tokio::time::sleep(PATIENCE).await;
    assert!(cluster.service("web").is_some());
    assert_eq!(cluster.writes(), [""; 0]);
}
