//! What the comparison notices and what it does not.

use serde_json::{Value, json};

use crate::golden::{
    addresses::Addresses,
    case::{Oddities, State},
    compare::{Difference, differences},
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
        ("back-end port", |s| first(s, BALANCER, "loadBalancingRules")["backendPort"] = json!(1)),
        ("missing rule", |s| drop(list(s, BALANCER, "loadBalancingRules").pop())),
        ("extra rule", |s| {
            let rules = list(s, BALANCER, "loadBalancingRules");
            let mut extra = rules[0].clone();
            extra["name"] = json!("extra");
            rules.push(extra);
        }),
        ("renamed rule", |s| list(s, BALANCER, "loadBalancingRules")[0]["name"] = json!("other")),
        ("timeout", |s| first(s, BALANCER, "loadBalancingRules")["idleTimeoutInMinutes"] = json!(5)),
        ("floating IP", |s| {
            drop(first(s, BALANCER, "loadBalancingRules").as_object_mut().unwrap().remove("enableFloatingIP"))
        }),
        ("probe of a rule", |s| first(s, BALANCER, "loadBalancingRules")["probe"] = Value::Null),
        ("probe's port", |s| first(s, BALANCER, "probes")["port"] = json!(1)),
        ("probe's interval", |s| first(s, BALANCER, "probes")["intervalInSeconds"] = json!(6)),
        ("missing frontend", |s| drop(list(s, BALANCER, "frontendIPConfigurations").pop())),
        ("missing pool", |s| list(s, BALANCER, "backendAddressPools").clear()),
        ("member of a pool", |s| {
            drop(members(s).pop());
        }),
        ("SKU", |s| document(s, BALANCER)["sku"]["name"] = json!("Basic")),
        ("priority", |s| first(s, GROUP, "securityRules")["priority"] = json!(4000)),
        ("source", |s| first(s, GROUP, "securityRules")["sourceAddressPrefix"] = json!("10.0.0.0/8")),
        ("destination", |s| first(s, GROUP, "securityRules")["destinationAddressPrefix"] = json!("9.9.9.9")),
        ("ports of a security rule", |s| first(s, GROUP, "securityRules")["destinationPortRanges"] = json!(["1"])),
        ("missing security rule", |s| drop(list(s, GROUP, "securityRules").pop())),
        ("tag", |s| document(s, PUBLIC_IP)["tags"]["k8s-azure-service"] = json!("default/other")),
        ("extra tag", |s| document(s, PUBLIC_IP)["tags"]["extra"] = json!("x")),
        ("zones", |s| document(s, PUBLIC_IP)["zones"] = json!(["1"])),
        ("allocation method", |s| document(s, PUBLIC_IP)["properties"]["publicIPAllocationMethod"] = json!("Dynamic")),
        ("address", |s| document(s, PUBLIC_IP)["properties"]["ipAddress"] = json!("20.0.9.9")),
        ("state", |s| document(s, PUBLIC_IP)["properties"]["provisioningState"] = json!("Failed")),
        ("extra public IP", |s| {
            let mut extra = document(s, PUBLIC_IP).clone();
            extra["id"] = json!(extra["id"].as_str().unwrap().to_owned() + "-extra");
            s.extend(crate::golden::case::state([extra]));
        }),
        ("missing public IP", |s| {
            let id = s.keys().find(|id| id.contains("/publicipaddresses/")).unwrap().clone();
            s.remove(&id);
        }),
        ("membership of a machine", |s| {
            let configuration = first(s, "/networkInterfaces/", "ipConfigurations");
            configuration["loadBalancerBackendAddressPools"].as_array_mut().unwrap().clear();
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

#[test]
fn what_has_no_meaning_is_not_found() {
    let insignificant: &[(&str, Change)] = &[
        ("order", |s| {
            for name in ["loadBalancingRules", "probes", "frontendIPConfigurations", "backendAddressPools"] {
                list(s, BALANCER, name).reverse();
            }
            list(s, GROUP, "securityRules").reverse();
        }),
        ("order of members", |s| {
            members(s).reverse();
        }),
        ("case of ids", |s| {
            let probe = &mut first(s, BALANCER, "loadBalancingRules")["probe"]["id"];
            *probe = json!(probe.as_str().unwrap().to_ascii_uppercase().replacen("/SUBSCRIPTIONS/", "/subscriptions/", 1));
            document(s, BALANCER)["id"] = json!(document(s, BALANCER)["id"].as_str().unwrap().to_ascii_lowercase());
        }),
        ("empty lists", |s| {
            for (_, value) in first(s, GROUP, "securityRules").as_object_mut().unwrap() {
                if value == &json!([]) {
                    *value = Value::Null;
                }
            }
            document(s, BALANCER)["properties"]["inboundNatRules"] = json!([]);
        }),
        ("defaults", |s| {
            let rule = first(s, BALANCER, "loadBalancingRules").as_object_mut().unwrap();
            rule.retain(|_, value| ![json!(false), json!(4), json!("Default")].contains(value));
        }),
        ("allocation method of a public frontend", |s| {
            let frontends = list(s, BALANCER, "frontendIPConfigurations");
            let public = frontends.iter_mut().find(|one| !one["properties"]["publicIPAddress"].is_null()).unwrap();
            drop(public["properties"].as_object_mut().unwrap().remove("privateIPAllocationMethod"));
        }),
        ("etags", |s| document(s, BALANCER)["etag"] = json!("W/\"1\"")),
    ];
    let expected = recorded();
    for (what, change) in insignificant {
        let mut found = expected.clone();
        change(&mut found);
        assert_ne!(found, expected, "{what}: the change changes nothing");
        assert_eq!(differences(&expected, &found), [], "{what}");
    }
}

#[test]
fn a_difference_names_its_place() {
    let expected = recorded();
    let mut found = expected.clone();
    first(&mut found, GROUP, "securityRules")["priority"] = json!(4000);
    let [difference] = differences(&expected, &found).try_into().unwrap();
    let Difference { path, expected, found } = difference.clone();
    assert!(path.starts_with("$NET/networkSecurityGroups/nsg-test.properties.securityRules[k8s-azure-lb_allow_"), "{path}");
    assert!(path.ends_with("].properties.priority") && difference.to_string().contains("found    4000"), "{difference}");
    assert_eq!(found, Some(json!(4000)));
    assert!(expected.is_some_and(|expected| expected.is_u64()));
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
fn addresses_given_in_another_order_are_renamed() {
    let case = case("azure-lb/takeover-50");
    let expected = &case.steps[0].after;
    let found = swap(&swap(expected, "20.0.0.4", "20.0.0.9"), "10.224.0.11", "10.224.0.13");
    assert_ne!(differences(expected, &found), []);
    let mut addresses = Addresses::new(&case.before);
    assert_eq!(addresses.advance(expected, &found), []);
    assert_eq!(differences(expected, &addresses.rename_all(found.clone())), []);
    assert_eq!((addresses.rename("20.0.0.9"), addresses.rename("9.9.9.9")), ("20.0.0.4", "9.9.9.9"));
    assert_eq!(addresses.advance(expected, &found), [], "they stay");
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
fn an_unused_public_ip_may_be_gone() {
    let expected = recorded();
    let mut found = expected.clone();
    let id = found.keys().find(|id| id.contains("/publicipaddresses/")).unwrap().clone();
    found.remove(&id);
    let oddities = Oddities { unused_managed_public_ips: vec![id.to_ascii_uppercase()], ..Oddities::default() };
    let mut cleaned = Cleaned::default();
    assert_eq!(differences(&cleaned.adapt(&oddities, &expected, &found), &found), []);
    assert_eq!(differences(&cleaned.adapt(&oddities, &expected, &expected), &expected), []);
    assert_ne!(differences(&cleaned.adapt(&Oddities::default(), &expected, &found), &found), []);
}

#[test]
fn what_is_in_place_of_a_failing_service_does_not_matter() {
    let step = &case("azure-lb/takeover-50").steps[0];
    let uid = step.services["default/svc03-ext"].metadata.uid.clone().unwrap();
    let base = format!("a{}", uid.replace('-', "")).chars().take(32).collect::<String>();
    let failing = [Failing { key: "default/svc03-ext".to_owned(), base: base.clone() }];
    let mut found = step.after.clone();
    for name in ["loadBalancingRules", "probes"] {
        list(&mut found, BALANCER, name).retain(|part| !part["name"].as_str().unwrap().starts_with(&base));
    }
    assert_ne!(differences(&step.after, &found), []);
    let (expected, cut) = without(&failing, (step.after.clone(), found.clone()));
    assert_eq!(differences(&expected, &cut), []);
    list(&mut found, BALANCER, "probes").pop();
    let (expected, cut) = without(&failing, (step.after.clone(), found));
    assert_ne!(differences(&expected, &cut), [], "another Service's probe is missing");
}
