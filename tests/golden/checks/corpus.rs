//! The files decode to what was recorded, and the simulator can hold it.

use std::collections::BTreeSet;

use cloud_controller_manager::sandbox::azure::{Azure, AzureOptions};
use serde_json::json;

use crate::golden::{
    case::{Action, State, Step, state},
    compare::differences,
    corpus::{Templates, case, cases},
};

#[test]
fn every_case_decodes() {
    let cases: Vec<_> = cases().iter().filter(|case| case.is_recorded).collect();
    assert_eq!(cases.len(), 89);
    assert_eq!(cases.iter().filter(|case| case.path.starts_with("azure-routes/")).count(), 4);
    assert_eq!(cases.iter().map(|case| case.steps.len()).sum::<usize>(), 229);
    assert_eq!(cases.iter().flat_map(|case| &case.steps).filter(|step| step.expect_failure).count(), 9);
    let mut documents = BTreeSet::new();
    for case in cases {
        let states = case.steps.iter().map(|step| &step.after).chain([&case.before]);
        documents.extend(states.flat_map(|state| state.values()).map(ToString::to_string));
    }
    assert_eq!(documents.len(), DOCUMENTS);
}

/// Different documents in the recording.
const DOCUMENTS: usize = 642;

#[test]
fn our_own_cases_are_exact() {
    let own: Vec<_> = cases().iter().filter(|case| !case.is_recorded).collect();
    assert_eq!(own.len(), 19);
    for case in own {
        let lenient =
            |step: &&Step| step.oddities.stale().next().is_some() || !step.oddities.unused_managed_public_ips.is_empty();
        assert_eq!(case.steps.iter().filter(lenient).count(), 0, "{}: oddities are what Go leaves behind", case.path);
    }
}

#[test]
fn what_a_step_does_is_recorded() {
    for case in cases() {
        for (number, step) in case.steps.iter().enumerate() {
            let before = number.checked_sub(1).map_or(&case.before, |number| &case.steps[number].after);
            for id in step.azure_delete.iter().map(|id| id.to_ascii_lowercase()) {
                assert!(before.contains_key(&id) && !step.after.contains_key(&id), "{}: {id}", case.path);
            }
            let at = format!("{} {}", case.path, step.name);
            for action in &step.actions {
                match action {
                    Action::Apply { service } => assert!(step.services.contains_key(service), "{at}: {service}"),
                    Action::Azure => assert!(step.azure_put.len() + step.azure_delete.len() > 0, "{at}"),
                    Action::CreateNodes => assert!(step.nodes.is_some(), "{at}"),
                    _ => {}
                }
            }
            assert_eq!(step.expect_failure, !step.failing().is_empty(), "{at}");
            for (key, service) in &step.services {
                assert!(service.metadata.uid.is_some() && step.outcomes.contains_key(key), "{at}: {key}");
            }
            for (rule, _) in step.oddities.stale() {
                let text = step.after.values().map(ToString::to_string).collect::<String>();
                assert!(text.contains(rule), "{at}: {rule}");
            }
            assert_eq!(step.oddities.stale().count(), step.oddities.stale_security_destinations.len(), "{at}");
        }
    }
}

#[test]
fn ids_and_names_are_filled_in() {
    let after = &case("azure-lb/external-tcp").steps[0].after;
    let id = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg-test/providers/Microsoft.Network/loadBalancers/kubernetes";
    let balancer = &after[&id.to_ascii_lowercase()];
    let name = "af669fcf0fbda5d98aa168d0777ef49d";
    assert_eq!((balancer["name"].as_str(), balancer["sku"]["name"].as_str()), (Some("kubernetes"), Some("Standard")));
    let rule = &balancer["properties"]["loadBalancingRules"][0];
    assert_eq!(rule["id"], format!("{id}/loadBalancingRules/{name}-TCP-80"));
    let frontend = format!("{id}/frontendIPConfigurations/{name}");
    assert_eq!(rule["properties"]["frontendIPConfiguration"]["id"], frontend);
    assert_eq!(rule["properties"]["enableFloatingIP"], true);
}

#[test]
fn templates_are_patched() {
    let templates = Templates::new(
        r#"{"prefixes": {}, "templates": {"a": {"x": 1, "y": {"z": [1], "w": 2}}, "b": {"$": "a", "x": null}}}"#,
    );
    let templates = templates.unwrap();
    let decoded = templates.decode(&json!([{"$": "b", "y": {"w": 3}}, {"n": null}]), None).unwrap();
    assert_eq!(decoded, json!([{"y": {"z": [1], "w": 3}}, {"n": null}]));
    let previous = json!({"k": 1, "l": 2});
    assert_eq!(templates.decode(&json!({"$": "previous", "l": 3}), Some(&previous)).unwrap(), json!({"k": 1, "l": 3}));
    for broken in [json!({"$": "c"}), json!({"$": "previous"}), json!({"$": 1}), json!([{"k": {"$": "previous"}}])] {
        assert!(templates.decode(&broken, None).is_err(), "{broken}");
    }
}

#[test]
fn the_simulator_holds_every_recorded_state() {
    let azure = Azure::new(AzureOptions::default());
    let mut checked = BTreeSet::new();
    for case in cases() {
        let before = [("before", &case.before)].into_iter();
        for (step, recorded) in before.chain(case.steps.iter().map(|step| (step.name.as_str(), &step.after))) {
            if checked.insert(recorded.values().map(ToString::to_string).collect::<String>()) {
                azure.load(recorded.values().cloned().collect()).unwrap();
                same(&format!("{} {step}", case.path), recorded, &state(azure.dump()));
            }
        }
    }
}

fn same(at: &str, expected: &State, found: &State) {
    let differences = differences(expected, found);
    assert!(differences.is_empty(), "{at}: {} differences, the first: {}", differences.len(), differences[0]);
}
