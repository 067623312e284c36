//! What is told of a Service that gets nothing, how often, and how it ends.

use std::time::Duration;

use cloud_controller_manager::sandbox::azure::AzureOptions;
use k8s_openapi::api::core::v1::{Event, Service};

use crate::{
    cluster::{Cluster, alone, two_nodes},
    services::{external, with},
};

const MINUTE: Duration = Duration::from_secs(60);

fn cluster() -> Cluster {
    Cluster::new(two_nodes(), AzureOptions::default())
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

#[test]
fn a_refusal_is_told_again_and_again_and_costs_no_request() {
    alone(async {
        let cluster = cluster();
        let life = cluster.start();
        tokio::time::sleep(MINUTE).await;
        cluster.azure().clear_requests();
        cluster.create(&refused());
        tokio::time::sleep(MINUTE).await;
        let text = "service.beta.kubernetes.io/port_80_health-probe_port: port 65536 is out of range";
        let times = told(&cluster, "web", text);
        assert!((3..=5).contains(&times), "{times} times in a minute: {:?}", cluster.warnings("web"));
        assert!(told(&cluster, "web", "azure-load-balancer-inernal") > 0, "{:?}", cluster.warnings("web"));
        let asked = cluster.azure().requests().into_iter().filter(|request| request.path.contains("Microsoft.Network"));
        assert_eq!(asked.map(|request| request.path).collect::<Vec<_>>(), [""; 0]);
        life.stop().await;
    });
}
