//! Labels for machine type, zone and region after the initialization of a Node.

use super::{node::BetaLabels, *};

/// Upstream: `getNodeModifiersFromCloudProvider`. Its end-to-end suite waits for these labels.
#[tokio::test(start_paused = true)]
async fn deprecated_labels_are_set_at_initialization() {
    const SET: [&str; 3] = ["fake-zone-1", "fake-region", "fake.standard"];
    let edited = ["edited", SET[1], SET[2]];
    assert_eq!(node::NodeControllerConfig::default().beta_labels, BetaLabels::Initial);
    for (beta_labels, initial, later) in [
        (BetaLabels::Omitted, [""; 3], ["edited", "", ""]),
        (BetaLabels::Initial, SET, edited),
        (BetaLabels::Reconciled, SET, SET),
    ] {
        let config = node::NodeControllerConfig { beta_labels, ..node::NodeControllerConfig::default() };
        let cluster = Cluster::start_with(server(), cloud(&["n"]), Leadership::unopposed(), config).await;
        cluster.server.create(&tainted("n"));
        cluster.until_initialized("n").await;
        assert_eq!(cluster.writes().len(), 2, "{beta_labels:?}");
        assert_eq!(deprecated(&cluster), initial, "{beta_labels:?}");
        cluster.server.update_with::<Node>("", "n", |node| {
            node.metadata.labels.as_mut().unwrap().insert(LABEL_ZONE_BETA.into(), "edited".into());
        });
        pass(3000).await;
        assert_eq!(deprecated(&cluster), later, "{beta_labels:?}");
    }
}

/// Returns the deprecated labels for zone, region and machine type.
fn deprecated(cluster: &Cluster) -> [String; 3] {
    let labels = cluster.node("n").unwrap().metadata.labels.unwrap();
    [LABEL_ZONE_BETA, LABEL_REGION_BETA, LABEL_INSTANCE_TYPE_BETA].map(|key| labels.get(key).cloned().unwrap_or_default())
}

async fn resized(reconcile_labels: bool, beta_labels: BetaLabels) -> Cluster {
    let config = node::NodeControllerConfig { reconcile_labels, beta_labels, ..node::NodeControllerConfig::default() };
    let mut cluster = Cluster::start_with(server(), cloud(&["n"]), Leadership::unopposed(), config).await;
    cluster.server.create(&tainted("n"));
    cluster.until_initialized("n").await;
    pass(600).await;
    assert_eq!(outdated(&cluster), (0.0, 0.0));
    cluster.reasons();
    cluster.cloud.change_instance("n", |spec| {
        spec.instance_type = "fake.large".into();
        spec.zone = "fake-zone-2".into();
    });
    cluster
}

/// Returns the metric of outdated labels for machine type and zone.
fn outdated(cluster: &Cluster) -> (f64, f64) {
    cluster.node.observe();
    let of = |label: &str| cluster.metrics.outdated_node_labels.with_label_values(&[label]).get();
    (of(LABEL_INSTANCE_TYPE), of(LABEL_ZONE))
}

fn label(cluster: &Cluster, key: &str) -> String {
    cluster.node("n").unwrap().metadata.labels.unwrap()[key].clone()
}

#[tokio::test(start_paused = true)]
async fn outdated_labels_are_reported_once_per_change() {
    let mut cluster = resized(false, BetaLabels::Reconciled).await;
    cluster.server.clear_requests();
    pass(3000).await;
    assert_eq!((cluster.reasons(), outdated(&cluster)), (vec!["NodeLabelsOutdated"], (1.0, 1.0)));
    assert_eq!(cluster.writes(), [], "the labels are kept");
    cluster.cloud.change_instance("n", |spec| spec.zone = "fake-zone-1".into());
    pass(3000).await;
    assert_eq!((cluster.reasons(), outdated(&cluster)), (vec!["NodeLabelsOutdated"], (1.0, 0.0)));
    cluster.server.update_with::<Node>("", "n", |node| {
        node.metadata.labels.as_mut().unwrap().insert(LABEL_INSTANCE_TYPE.into(), "fake.large".into());
    });
    pass(3000).await;
    assert_eq!((cluster.reasons(), outdated(&cluster)), (vec![], (0.0, 0.0)));
}

#[tokio::test(start_paused = true)]
async fn labels_follow_the_instance_on_request() {
    for beta_labels in [BetaLabels::Initial, BetaLabels::Reconciled] {
        let mut cluster = resized(true, beta_labels).await;
        pass(600).await;
        assert_eq!((cluster.reasons(), outdated(&cluster)), (vec!["NodeLabelsUpdated"], (0.0, 0.0)));
        let expected = [
            (LABEL_INSTANCE_TYPE, "fake.large"),
            (LABEL_INSTANCE_TYPE_BETA, "fake.large"),
            (LABEL_ZONE, "fake-zone-2"),
            (LABEL_ZONE_BETA, "fake-zone-2"),
        ];
        for (key, value) in expected {
            assert_eq!(label(&cluster, key), value, "{key}");
        }
        cluster.server.update_with::<Node>("", "n", |node| {
            node.metadata.labels.as_mut().unwrap().insert(LABEL_ZONE.into(), "edited".into());
        });
        pass(600).await;
        assert_eq!(
            (label(&cluster, LABEL_ZONE), label(&cluster, LABEL_ZONE_BETA)),
            ("fake-zone-2".into(), "fake-zone-2".into())
        );
    }
}
