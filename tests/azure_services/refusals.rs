//! Reports of refused Services, their frequency, and how the Services recover or are deleted.

use std::time::Duration;

use cloud_controller_manager::{cloud_provider::CloudProvider, sandbox::azure::Fault};
use k8s_openapi::api::core::v1::{Event, Service};

use crate::azure_services::{
    cluster::{Cluster, MINUTE, TIMEOUT},
    services::{external, with},
};

/// Configures an unsupported feature.
fn unsupported(cluster: Cluster) -> Cluster {
    let by_pods = cluster.configured("loadBalancerBackendPoolConfigurationType", "podIP");
    by_pods.configured("serviceGatewayEnabled", true).configured("loadBalancerSku", "service")
}

fn refused() -> Service {
    let service = with(external("web"), "port_80_health-probe_port", "65536");
    with(service, "azure-load-balancer-inernal", "true")
}

/// Returns how often a warning with this text was reported about a Service.
fn report_count(cluster: &Cluster, name: &str, text: &str) -> i32 {
    let is_it = |event: &Event| {
        event.involved_object.name.as_deref() == Some(name) && event.message.as_deref().unwrap_or_default().contains(text)
    };
    cluster.server.list::<Event>().iter().filter(|event| is_it(event)).map(|event| event.count.unwrap_or(1)).sum()
}

#[tokio::test(start_paused = true)]
async fn a_repeated_refusal_is_reported_and_costs_no_request() {
    let cluster = Cluster::with_two_nodes();
    let _manager = cluster.start();
    tokio::time::sleep(MINUTE).await;
    cluster.create(&refused());
    tokio::time::sleep(MINUTE).await;
    let text = "service.beta.kubernetes.io/port_80_health-probe_port: port 65536 is out of range";
    let times = report_count(&cluster, "web", text);
    assert!((3..=5).contains(&times), "{times} times in a minute: {:?}", cluster.warnings("web"));
    assert!(report_count(&cluster, "web", "azure-load-balancer-inernal") > 0, "{:?}", cluster.warnings("web"));
    // The first Service causes one comparison of the pools. Retries send no request.
    cluster.azure().clear_requests();
    tokio::time::sleep(10 * MINUTE).await;
    assert!(report_count(&cluster, "web", text) > times, "{:?}", cluster.warnings("web"));
    let sent = cluster.azure().requests().into_iter().filter(|request| request.path.contains("Microsoft.Network"));
    assert_eq!(sent.map(|request| request.path).collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_removed_lock_is_noticed_within_seconds() {
    let cluster = Cluster::with_two_nodes();
    cluster.azure().add_fault(Fault::refuse(409, "ScopeLocked").method("PUT").path("*/publicIPAddresses/*"));
    cluster.create(&external("web"));
    let _manager = cluster.start();
    cluster.until_warned("web", "ScopeLocked").await;
    cluster.azure().faults().clear();
    let took = cluster.until_ready(10 * MINUTE).await;
    assert!(took <= Duration::from_secs(30), "15 s, and the writes: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_configuration_releases_unserved_services() {
    let cluster = unsupported(Cluster::with_two_nodes());
    let manager = cluster.start();
    cluster.create(&external("web"));
    tokio::time::sleep(5 * MINUTE).await;
    let problem = manager.provider.load_balancer().unwrap().problem().unwrap();
    assert!(problem.contains("serviceGatewayEnabled"), "{problem}");
    assert!(report_count(&cluster, "web", "serviceGatewayEnabled") > 0);
    cluster.remove("web").await;
    assert_eq!(cluster.writes(), [""; 0]);
}

/// The former controller may have ended before it recorded its resources in a status.
#[tokio::test(start_paused = true)]
async fn an_unsupported_configuration_deletes_nothing() {
    let (cluster, manager) = Cluster::with_two_nodes().serving(&[external("web")]).await;
    manager.stop().await;
    cluster.change("web", |web| web.status = None);
    let cluster = unsupported(cluster);
    let _manager = cluster.start();
    tokio::time::sleep(5 * MINUTE).await;
    cluster.azure().clear_requests();
    cluster.delete("web");
    tokio::time::sleep(TIMEOUT).await;
    assert!(cluster.service("web").is_some());
    assert_eq!(cluster.writes(), [""; 0]);
}
