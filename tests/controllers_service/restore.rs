//! Another writer changes finalizer and status of a settled Service.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::LoadBalancerIngress;

use super::*;

/// Changes the entries of the status.
fn change_ingress(world: &World, change: impl FnOnce(&mut Vec<LoadBalancerIngress>)) {
    world.server.update_with("default", "web", |service: &mut Service| {
        let balancer = service.status.as_mut().unwrap().load_balancer.as_mut().unwrap();
        change(balancer.ingress.as_mut().unwrap());
    });
}

fn host_name() -> LoadBalancerIngress {
    LoadBalancerIngress { hostname: Some("web.example.com".into()), ..LoadBalancerIngress::default() }
}

fn host_names(world: &World) -> Vec<String> {
    let status = world.service("web").and_then(|service| service.status).and_then(|status| status.load_balancer);
    let ingress = status.and_then(|status| status.ingress).unwrap_or_default();
    ingress.into_iter().filter_map(|entry| entry.hostname).collect()
}

fn strip(world: &World) {
    world.server.update_with("default", "web", |service: &mut Service| {
        service.metadata.finalizers = None;
        service.status = None;
    });
}

#[tokio::test(start_paused = true)]
async fn what_another_writer_removes_is_restored_at_once() {
    let (world, mut life) = settled().await;
    life.reasons();
    world.server.clear_requests();

    strip(&world);
    pass(1).await;
    world.assert_converged();
    assert_eq!(world.patches().len(), 1, "{:?}", world.patches());
    assert_eq!(world.cloud.call_count(CallName::EnsureLoadBalancer), 1, "the cloud is not involved");
    assert_eq!(life.reasons(), ["LoadBalancerStatusRestored"]);
    let text = life.metrics.render().unwrap();
    assert!(text.contains("cloud_controller_manager_service_drift_total{field=\"finalizer\"} 1"), "{text}");
    assert_eq!(life.controller.status().drift.len(), 1);

    world.server.clear_requests();
    pass(600).await;
    assert_eq!(world.patches(), []);
}

#[tokio::test(start_paused = true)]
async fn two_writers_do_not_fight_without_pauses() {
    let (world, _life) = settled().await;
    world.server.clear_requests();
    for _ in 0..600 {
        strip(&world);
        pass(1).await;
    }
    assert!((5..=9).contains(&world.patches().len()), "{}", world.patches().len());
    pass(301).await;
    world.assert_converged();
}

#[tokio::test(start_paused = true)]
async fn a_host_name_of_another_writer_is_kept_until_a_change() {
    let world = World::new();
    let mut life = world.start_with(0, Duration::from_secs(60));
    world.create("web");
    pass(3).await;
    life.reasons();
    world.server.clear_requests();

    change_ingress(&world, |ingress| ingress.push(host_name()));
    change_ingress(&world, |ingress| ingress[0].hostname = Some("pinned.example.com".into()));
    pass(600).await;
    assert_eq!(world.patches(), [], "neither at once nor after a comparison");
    assert_eq!(host_names(&world), ["pinned.example.com", "web.example.com"]);
    assert_eq!(life.reasons(), ["LoadBalancerStatusChanged"]);

    world.set_port("web", 8080);
    pass(3).await;
    world.assert_converged();
    assert_eq!(host_names(&world), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_address_is_added_to_those_of_others() {
    let (world, mut life) = settled().await;
    life.reasons();
    change_ingress(&world, |ingress| *ingress = vec![host_name()]);
    pass(1).await;
    world.assert_converged();
    assert_eq!(host_names(&world), ["web.example.com"]);
    assert_eq!(life.reasons(), ["LoadBalancerStatusRestored", "LoadBalancerStatusChanged"]);
    world.server.clear_requests();
    pass(600).await;
    assert_eq!(world.patches(), []);
}

#[tokio::test(start_paused = true)]
async fn a_start_writes_the_whole_list_of_addresses() {
    let (world, life) = settled().await;
    change_ingress(&world, |ingress| ingress.push(host_name()));
    pass(3).await;
    assert_eq!(host_names(&world), ["web.example.com"]);
    life.kill().await;
    let _life = world.start();
    pass(3).await;
    world.assert_converged();
    assert_eq!(host_names(&world), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizers_and_conditions_survive_every_patch() {
    for others in [1, 63, 64, 65, 150] {
        let (world, finalizer) = (World::new(), |number: usize| format!("example.com/f{number}"));
        let foreign: BTreeSet<String> = (0..others).map(finalizer).collect();
        let condition = |type_: &String| {
            let fields = serde_json::json!({"type": type_, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            serde_json::from_value(fields).unwrap()
        };
        world.create("web");
        world.server.update_with("default", "web", |service: &mut Service| {
            service.metadata.finalizers = Some(foreign.iter().cloned().collect());
            service.status.get_or_insert_default().conditions = Some(foreign.iter().map(condition).collect());
        });
        let check = |own_finalizers: usize, is_own_condition: bool| {
            let service = world.service("web").unwrap();
            let finalizers: BTreeSet<_> = service.metadata.finalizers.unwrap_or_default().into_iter().collect();
            let conditions = service.status.and_then(|status| status.conditions).unwrap_or_default();
            let types: BTreeSet<_> = conditions.into_iter().map(|condition| condition.type_).collect();
            assert!(finalizers.is_superset(&foreign) && finalizers.len() == others + own_finalizers, "{others}");
            assert!(types.is_superset(&foreign) && types.len() == others + usize::from(is_own_condition), "{others}");
        };
        let life = world.start();
        pass(5).await;
        assert_eq!(world.ips("web").len(), 1, "{others}");
        check(1, true);
        world.server.update_with("default", "web", |service: &mut Service| {
            *service = service.clone().service_type("ClusterIP");
        });
        pass(5).await;
        check(0, false);
        life.kill().await;
    }
}
