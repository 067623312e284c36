//! Names of classes and stages, and pages of this and other versions.

use serde_json::json;

use super::*;

#[test]
fn names_round_trip() {
    for name in ["Invalid", "invalid", "Failed", "retry_after", "Forbidden", "Conflict", "Ensuring"] {
        assert_eq!(json!(FailureClass::named(name)), name);
        assert_eq!(matches!(FailureClass::named(name), FailureClass::Other(_)), name == "Ensuring", "{name}");
    }
    for name in ["refused", "waiting for the lease", "waiting for back-end pools"] {
        let stage: PipelineStage = serde_json::from_value(json!(name)).unwrap();
        assert_eq!((json!(stage), stage.to_string()), (json!(name), name.to_owned()));
    }
    assert_eq!(serde_json::from_value::<PipelineStage>(json!("later")).unwrap(), PipelineStage::Unknown);
}

#[test]
fn page_round_trips() {
    let list = json!({"list": "LIST virtualMachines", "id": "/s", "items": 1, "ageSeconds": 2,
        "lastError": null, "lastErrorClass": null, "lastErrorAgeSeconds": null});
    let page = json!({
        "version": "v1", "leading": true, "shadow": false, "leaderMigration": null, "notRunning": {"route": "off"},
        "informers": {"nodes": {"synced": true, "objects": 1, "error": null}, "services": null, "namespaces": null, "endpointslices": null},
        "cloudProvider": {"name": "x", "state": "down", "problem": null, "details": {"free": ["form"]}},
        "controllers": [],
    });
    let status: ManagerStatus = serde_json::from_value(page.clone()).unwrap();
    assert_eq!((json!(status), status.details()), (page.clone(), None));
    let mut page = page;
    page["cloudProvider"]["details"] =
        json!({"refusedConfiguration": null, "session": {"inventory": {"lists": [list], "machines": {"uniform": 2}}}});
    let status: ManagerStatus = serde_json::from_value(page).unwrap();
    let InventoryStatus { lists, machines, .. } = &status.details().unwrap().session.inventory;
    assert_eq!((json!(lists), lists[0].items), (json!([list]), Some(1)));
    assert_eq!(json!(machines), json!({"flexible": 0, "missing": 0, "other": 0, "uniform": 2}));
    let table =
        json!({"ageSeconds": 1, "exists": null, "rejected": ["r"], "routes": 3, "table": "/t", "waiting": 0, "writes": 2});
    for routes in [json!({"problem": "no table"}), table] {
        assert_eq!(json!(serde_json::from_value::<RoutesStatus>(routes.clone()).unwrap()), routes);
    }
}

#[test]
fn session_of_another_shape_is_readable() {
    let session = json!({"subscription": "s", "routes": "off", "inventory": {"machines": null, "waiting": 1}});
    let page = json!({"cloudProvider": {"details": {"session": session}}, "controllers": []});
    let status: ManagerStatus = serde_json::from_value(page).unwrap();
    let SessionStatus { subscription, routes, inventory, .. } = &status.details().unwrap().session;
    assert_eq!((subscription.as_str(), routes), ("s", &None));
    assert_eq!((&inventory.machines, inventory.waiting), (&MachineCounts::default(), 1));
}
