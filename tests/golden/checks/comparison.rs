//! Tests of the comparison of states.

use serde_json::{Value, json};

use crate::golden::{case::State, compare::differences, corpus::case};

type Change = fn(&mut State);

fn document<'a>(state: &'a mut State, part: &str) -> &'a mut Value {
    let part = part.to_ascii_lowercase();
    let mut found = state.iter_mut().filter(|(id, _)| id.contains(&part));
    found.next().unwrap_or_else(|| panic!("nothing like {part}")).1
}

fn list<'a>(state: &'a mut State, part: &str, list: &str) -> &'a mut Vec<Value> {
    document(state, part)["properties"][list].as_array_mut().unwrap()
}

fn first<'a>(state: &'a mut State, part: &str, name: &str) -> &'a mut Value {
    &mut list(state, part, name)[0]["properties"]
}

/// Returns the members of a pool with several machines.
fn members(state: &mut State) -> &mut Vec<Value> {
    let pools = list(state, BALANCER, "backendAddressPools").iter_mut();
    let mut members = pools.filter_map(|pool| pool["properties"]["backendIPConfigurations"].as_array_mut());
    members.find(|members| members.len() > 1).unwrap()
}

/// Returns a recorded state with fifty Services of all kinds.
fn recorded() -> State {
    case("azure-lb/takeover-50").steps[0].after.clone()
}

const BALANCER: &str = "/loadBalancers/kubernetes";
const GROUP: &str = "/networkSecurityGroups/";
const PUBLIC_IP: &str = "/publicIPAddresses/";

#[test]
fn every_planted_difference_is_found() {
    let planted: &[(&str, Change)] = &[
        ("port of a rule", |s| first(s, BALANCER, "loadBalancingRules")["frontendPort"] = json!(1)),
        ("missing rule", |s| drop(list(s, BALANCER, "loadBalancingRules").pop())),
        ("renamed rule", |s| list(s, BALANCER, "loadBalancingRules")[0]["name"] = json!("other")),
        ("timeout", |s| first(s, BALANCER, "loadBalancingRules")["idleTimeoutInMinutes"] = json!(5)),
        ("floating IP", |s| {
            drop(first(s, BALANCER, "loadBalancingRules").as_object_mut().unwrap().remove("enableFloatingIP"))
        }),
        ("probe of a rule", |s| first(s, BALANCER, "loadBalancingRules")["probe"] = Value::Null),
        ("missing pool", |s| list(s, BALANCER, "backendAddressPools").clear()),
        ("member of a pool", |s| drop(members(s).pop())),
        ("SKU", |s| document(s, BALANCER)["sku"]["name"] = json!("Basic")),
        ("ports of a security rule", |s| first(s, GROUP, "securityRules")["destinationPortRanges"] = json!(["1"])),
        ("tag", |s| document(s, PUBLIC_IP)["tags"]["k8s-azure-service"] = json!("default/other")),
        ("extra tag", |s| document(s, PUBLIC_IP)["tags"]["extra"] = json!("x")),
        ("allocation method", |s| document(s, PUBLIC_IP)["properties"]["publicIPAllocationMethod"] = json!("Dynamic")),
        ("state", |s| document(s, PUBLIC_IP)["properties"]["provisioningState"] = json!("Failed")),
        ("missing public IP", |s| {
            let id = s.keys().find(|id| id.contains("/publicipaddresses/")).unwrap().clone();
            s.remove(&id);
        }),
    ];
    let expected = recorded();
    for (difference, change) in planted {
        let mut found = expected.clone();
        change(&mut found);
        assert_ne!(differences(&expected, &found), [], "{difference}");
        assert_ne!(differences(&found, &expected), [], "{difference}, in reverse");
    }
}
