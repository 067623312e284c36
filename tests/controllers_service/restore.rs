//! Another writer changes finalizer and status of a settled Service.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::LoadBalancerIngress;

use super::*;

/// Changes the entries of the status.
fn change_ingress(cluster: &Cluster, change: impl FnOnce(&mut Vec<LoadBalancerIngress>)) {
    cluster.server.update_with("default", "web", |service: &mut Service| {
        let balancer = service.status.as_mut().unwrap().load_balancer.as_mut().unwrap();
        change(balancer.ingress.as_mut().unwrap());
    });
}

fn host_name() -> LoadBalancerIngress {
    LoadBalancerIngress { hostname: Some("web.example.com".into()), ..LoadBalancerIngress::default() }
}

fn host_names(cluster: &Cluster) -> Vec<String> {
    let status = cluster.service("web").and_then(|service| service.status).and_then(|status| status.load_balancer);
    let ingress = status.and_then(|status| status.ingress).unwrap_or_default();
    ingress.into_iter().filter_map(|entry| entry.hostname).collect()
}

fn strip(cluster: &Cluster) {
    cluster.server.update_with("default", "web", |service: &mut Service| {
        service.metadata.finalizers = None;
        service.status = None;
    });
}

#[tokio::test(start_paused = true)]
async fn removals_of_another_writer_are_restored_at_once() {
    let (cluster, mut replica) = settled().await;
    replica.reasons();
    cluster.server.clear_requests();

    strip(&cluster);
    pass(1).await;
    cluster.assert_converged();
    assert_eq!(cluster.patches().len(), 1, "{:?}", cluster.patches());
    assert_eq!(cluster.cloud.call_count(CallName::EnsureLoadBalancer), 1, "the cloud is not involved");
    assert_eq!(replica.reasons(), ["LoadBalancerStatusRestored"]);
    let text = replica.metrics.render().unwrap();
    assert!(text.contains("cloud_controller_manager_service_drift_total{field=\"finalizer\"} 1"), "{text}");
    assert_eq!(replica.controller.status().drift.len(), 1);

    cluster.server.clear_requests();
    pass(600).await;
    assert_eq!(cluster.patches(), []);
}

#[tokio::test(start_paused = true)]
async fn two_writers_do_not_fight_without_pauses() {
    let (cluster, _replica) = settled().await;
    cluster.server.clear_requests();
    for _ in 0..600 {
        strip(&cluster);
        pass(1).await;
    }
    assert!((5..=9).contains(&cluster.patches().len()), "{}", cluster.patches().len());
    pass(301).await;
    cluster.assert_converged();
}

#[tokio::test(start_paused = true)]
async fn a_host_name_of_another_writer_is_kept_until_a_change() {
    let cluster = Cluster::new();
    let mut replica = cluster.start_with(0, Duration::from_secs(60));
    cluster.create("web");
    pass(3).await;
    replica.reasons();
    cluster.server.clear_requests();

    change_ingress(&cluster, |ingress| ingress.push(host_name()));
    change_ingress(&cluster, |ingress| ingress[0].hostname = Some("pinned.example.com".into()));
    pass(600).await;
    assert_eq!(cluster.patches(), [], "neither at once nor after a comparison");
    assert_eq!(host_names(&cluster), ["pinned.example.com", "web.example.com"]);
    assert_eq!(replica.reasons(), ["LoadBalancerStatusChanged"]);

    cluster.set_port("web", 8080);
    pass(3).await;
    cluster.assert_converged();
    assert_eq!(host_names(&cluster), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_address_is_added_to_those_of_others() {
    let (cluster, mut replica) = settled().await;
    replica.reasons();
    change_ingress(&cluster, |ingress| *ingress = vec![host_name()]);
    pass(1).await;
    cluster.assert_converged();
    assert_eq!(host_names(&cluster), ["web.example.com"]);
    assert_eq!(replica.reasons(), ["LoadBalancerStatusRestored", "LoadBalancerStatusChanged"]);
    cluster.server.clear_requests();
    pass(600).await;
    assert_eq!(cluster.patches(), []);
}

#[tokio::test(start_paused = true)]
async fn a_start_writes_the_whole_list_of_addresses() {
    let (cluster, replica) = settled().await;
    change_ingress(&cluster, |ingress| ingress.push(host_name()));
    pass(3).await;
    assert_eq!(host_names(&cluster), ["web.example.com"]);
    replica.kill().await;
    let _replica = cluster.start();
    pass(3).await;
    cluster.assert_converged();
    assert_eq!(host_names(&cluster), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizers_and_conditions_survive_every_patch() {
    for others in [1, 63, 64, 65, 150] {
        let (cluster, finalizer) = (Cluster::new(), |number: usize| format!("example.com/f{number}"));
        let foreign: BTreeSet<String> = (0..others).map(finalizer).collect();
        let condition = |type_: &String| {
            let fields = serde_json::json!({"type": type_, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            serde_json::from_value(fields).unwrap()
        };
        cluster.create("web");
        cluster.server.update_with("default", "web", |service: &mut Service| {
            service.metadata.finalizers = Some(foreign.iter().cloned().collect());
            service.status.get_or_insert_default().conditions = Some(foreign.iter().map(condition).collect());
        });
        let check = |own_finalizers: usize, is_own_condition: bool| {
            let service = cluster.service("web").unwrap();
            let finalizers: BTreeSet<_> = service.metadata.finalizers.unwrap_or_default().into_iter().collect();
            let conditions = service.status.and_then(|status| status.conditions).unwrap_or_default();
            let types: BTreeSet<_> = conditions.into_iter().map(|condition| condition.type_).collect();
            assert!(finalizers.is_superset(&foreign) && finalizers.len() == others + own_finalizers, "{others}");
            assert!(types.is_superset(&foreign) && types.len() == others + usize::from(is_own_condition), "{others}");
        };
        let replica = cluster.start();
        pass(5).await;
        assert_eq!(cluster.ips("web").len(), 1, "{others}");
        check(1, true);
        cluster.server.update_with("default", "web", |service: &mut Service| {
            *service = service.clone().service_type("ClusterIP");
        });
        pass(5).await;
        check(0, false);
        replica.kill().await;
    }
}
