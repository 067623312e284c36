//! Labels for machine type, zone and region after a Node was initialized.

use super::*;

async fn resized(reconcile_labels: bool) -> World {
    let config = node::NodeControllerConfig { reconcile_labels, beta_labels: true, ..node::NodeControllerConfig::default() };
    let mut world = World::start_with(server(), cloud(&["n"]), Leadership::unopposed(), config).await;
    world.server.create(&tainted("n"));
    world.until_initialized("n").await;
    pass(600).await;
    assert_eq!(outdated(&world), (0.0, 0.0));
    world.reasons();
    world.cloud.change_instance("n", |spec| {
        spec.instance_type = "fake.large".into();
        spec.zone = "fake-zone-2".into();
    });
    world
}

/// The metric of outdated labels, for the machine type and the zone.
fn outdated(world: &World) -> (f64, f64) {
    world.node.observe();
    let of = |label: &str| world.metrics.outdated_node_labels.with_label_values(&[label]).get();
    (of(LABEL_INSTANCE_TYPE), of(LABEL_ZONE))
}

fn label(world: &World, key: &str) -> String {
    world.node("n").unwrap().metadata.labels.unwrap()[key].clone()
}

#[tokio::test(start_paused = true)]
async fn outdated_labels_are_reported_once_per_change() {
    let mut world = resized(false).await;
    world.server.clear_requests();
    pass(3000).await;
    assert_eq!((world.reasons(), outdated(&world)), (vec!["NodeLabelsOutdated"], (1.0, 1.0)));
    assert_eq!(world.writes(), [], "the labels are kept");
    world.cloud.change_instance("n", |spec| spec.zone = "fake-zone-1".into());
    pass(3000).await;
    assert_eq!((world.reasons(), outdated(&world)), (vec!["NodeLabelsOutdated"], (1.0, 0.0)));
    world.server.update_with::<Node>("", "n", |node| {
        node.metadata.labels.as_mut().unwrap().insert(LABEL_INSTANCE_TYPE.into(), "fake.large".into());
    });
    pass(3000).await;
    assert_eq!((world.reasons(), outdated(&world)), (vec![], (0.0, 0.0)));
}

#[tokio::test(start_paused = true)]
async fn labels_follow_the_instance_on_request() {
    let mut world = resized(true).await;
    pass(600).await;
    assert_eq!((world.reasons(), outdated(&world)), (vec!["NodeLabelsUpdated"], (0.0, 0.0)));
    let expected = [
        (LABEL_INSTANCE_TYPE, "fake.large"),
        (LABEL_INSTANCE_TYPE_BETA, "fake.large"),
        (LABEL_ZONE, "fake-zone-2"),
        (LABEL_ZONE_BETA, "fake-zone-2"),
    ];
    for (key, value) in expected {
        assert_eq!(label(&world, key), value, "{key}");
    }
    world.server.update_with::<Node>("", "n", |node| {
        node.metadata.labels.as_mut().unwrap().insert(LABEL_ZONE.into(), "edited".into());
    });
    pass(600).await;
    assert_eq!((label(&world, LABEL_ZONE), label(&world, LABEL_ZONE_BETA)), ("fake-zone-2".into(), "fake-zone-2".into()));
}
