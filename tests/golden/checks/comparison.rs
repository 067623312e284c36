//! What the comparison notices and what it does not.

use serde_json::{Value, json};

use crate::golden::{
    addresses::Addresses,
    case::{Oddities, State},
    compare::differences,
    corpus::case,
    tolerance::{Cleaned, Failing, without},
};

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

/// The machines of a pool that has some.
fn members(state: &mut State) -> &mut Vec<Value> {
    let pools = list(state, BALANCER, "backendAddressPools").iter_mut();
    let mut members = pools.filter_map(|pool| pool["properties"]["backendIPConfigurations"].as_array_mut());
    members.find(|members| members.len() > 1).unwrap()
}

/// Fifty Services of all kinds.
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
    for (what, change) in planted {
        let mut found = expected.clone();
        change(&mut found);
        assert_ne!(differences(&expected, &found), [], "{what}");
        assert_ne!(differences(&found, &expected), [], "{what}, the other way round");
    }
}

/// Exchanges two texts everywhere in a state.
fn swap(state: &State, one: &str, other: &str) -> State {
    let quoted = |text: &str| format!("\"{text}\"");
    let exchanged = |value: &Value| {
        let text = value.to_string().replace(&quoted(one), "\"?\"").replace(&quoted(other), &quoted(one));
        serde_json::from_str(&text.replace("\"?\"", &quoted(other))).unwrap()
    };
    state.iter().map(|(id, document)| (id.clone(), exchanged(document))).collect()
}

#[test]
fn an_address_that_is_not_kept_is_lost() {
    let case = case("azure-lb/takeover-50");
    let expected = &case.steps[0].after;
    let found = swap(&swap(expected, "20.0.0.4", "20.0.0.9"), "10.224.0.11", "10.224.0.13");
    let mut addresses = Addresses::new(&case.before);
    assert_eq!(addresses.advance(expected, &found), []);
    assert_eq!((addresses.rename("20.0.0.9"), addresses.rename("9.9.9.9")), ("20.0.0.4", "9.9.9.9"));
    let lost = addresses.advance(expected, expected);
    assert_eq!(lost.len(), 4, "a Service that gets another address has lost one: {lost:?}");
}

#[test]
fn a_wrong_destination_is_not_renamed_away() {
    let case = case("azure-lb/takeover-50");
    let expected = &case.steps[0].after;
    let mut found = expected.clone();
    let rules = document(&mut found, GROUP);
    *rules = swap(&crate::golden::case::state([rules.clone()]), "20.0.0.4", "20.0.0.9").into_values().next().unwrap();
    let mut addresses = Addresses::new(&case.before);
    assert_eq!(addresses.advance(expected, &found), []);
    assert_ne!(differences(expected, &addresses.rename_all(found)), []);
}

fn group(rules: &Value) -> State {
    crate::golden::case::state([json!({
        "id": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkSecurityGroups/n",
        "type": "Microsoft.Network/networkSecurityGroups", "properties": {"securityRules": rules},
    })])
}

fn rule(name: &str, priority: u64, destinations: &[&str]) -> Value {
    let properties = match destinations {
        [single] => json!({"priority": priority, "destinationAddressPrefix": single, "destinationAddressPrefixes": []}),
        many => json!({"priority": priority, "destinationAddressPrefixes": many}),
    };
    json!({"name": name, "properties": properties})
}

#[test]
fn listed_leftovers_may_be_gone_and_nothing_else() {
    let oddities =
        Oddities { stale_security_destinations: vec!["a -> 1".to_owned(), "b -> 2".to_owned()], ..Oddities::default() };
    let expected = group(&json!([rule("a", 500, &["1", "9"]), rule("b", 501, &["2"]), rule("c", 502, &["3"])]));
    let cases = [
        ("kept", json!([rule("a", 500, &["9", "1"]), rule("b", 501, &["2"]), rule("c", 502, &["3"])]), true),
        ("cleaned", json!([rule("a", 500, &["9"]), rule("c", 502, &["3"])]), true),
        ("one of them", json!([rule("a", 500, &["9", "1"]), rule("c", 502, &["3"])]), true),
        ("a priority that became free", json!([rule("a", 500, &["9"]), rule("c", 501, &["3"])]), true),
        ("another priority", json!([rule("a", 500, &["9"]), rule("c", 503, &["3"])]), false),
        ("a priority in use", json!([rule("a", 500, &["1", "9"]), rule("b", 501, &["2"]), rule("c", 503, &["3"])]), false),
        ("too much", json!([rule("a", 500, &["9"])]), false),
        ("the wrong one", json!([rule("a", 500, &["1"]), rule("b", 501, &["2"]), rule("c", 502, &["3"])]), false),
        ("one more", json!([rule("a", 500, &["1", "9", "8"]), rule("b", 501, &["2"]), rule("c", 502, &["3"])]), false),
    ];
    for (what, found, accepted) in cases {
        let found = group(&found);
        let adapted = Cleaned::default().adapt(&oddities, &expected, &found);
        assert_eq!(differences(&adapted, &found).is_empty(), accepted, "{what}");
    }
    let none = Cleaned::default().adapt(&Oddities::default(), &expected, &group(&json!([])));
    assert_eq!(none, expected, "nothing is listed");
}

#[test]
fn parts_of_others_matter_beside_a_failing_service() {
    let step = &case("azure-lb/takeover-50").steps[0];
    let uid = step.services["default/svc03-ext"].metadata.uid.clone().unwrap();
    let base: String = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
    let mut found = step.after.clone();
    let probes = list(&mut found, BALANCER, "probes");
    let position = probes.iter().position(|probe| !probe["name"].as_str().unwrap().starts_with(&base)).unwrap();
    probes.remove(position);
    let failing = [Failing { key: "default/svc03-ext".to_owned(), base }];
    let (expected, found) = without(&failing, (step.after.clone(), found));
    assert_ne!(differences(&expected, &found), []);
}
