//! Leader migration: each controller writes under its own lease.

use cloud_controller_manager::sandbox::azure::topology::{Pool, PoolKind, Topology};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;

use crate::azure_routes::cluster::{Cluster, pass};

const SECOND: &str = "migration";

/// Another program holds the second lease, under which one controller runs.
#[tokio::test(start_paused = true)]
async fn routes_are_written_under_the_lease_of_their_controller() {
    for (moved, writes) in [("service-lb-controller", true), ("route-controller", false)] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let config = json!({
            "apiVersion": "controllermanager.config.k8s.io/v1", "kind": "LeaderMigrationConfiguration",
            "leaderName": SECOND, "controllerLeaders": [{"name": moved, "component": "*"}],
        });
        std::fs::write(file.path(), config.to_string()).unwrap();
        let cluster = Cluster::new(Topology::new().pool(Pool::new(PoolKind::Uniform, "pool1", 2)));
        let lease = json!({"metadata": {"name": SECOND, "namespace": "kube-system"}, "spec": {
            "holderIdentity": "kube-controller-manager", "leaseDurationSeconds": 3600, "leaseTransitions": 0,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"}});
        cluster.server.create::<Lease>(&serde_json::from_value(lease).unwrap());
        cluster.join();
        let named = format!("--leader-migration-config={}", file.path().display());
        let _replica = cluster.start_with(&["--enable-leader-migration", &named]);
        pass(60).await;
        if writes {
            cluster.assert_converged("the route controller leads");
        } else {
            assert!(cluster.routes().is_empty(), "another program's route controller leads");
        }
    }
}
