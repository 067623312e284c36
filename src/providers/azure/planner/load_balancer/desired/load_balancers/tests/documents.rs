//! Documents in cases that no recording has.

use super::*;

fn as_json(document: &ArmLoadBalancer) -> serde_json::Value {
    serde_json::to_value(document).unwrap()
}

#[test]
fn without_the_subnet_annotation_the_address_stays_only_when_the_default_subnet_has_it() {
    for (address, kept) in [("10.0.1.9", None), ("10.0.0.9", Some("10.0.0.9"))] {
        let mut there = made(&[&ServiceSpec { subnet: Some("apps".into()), ..internal("web") }]);
        let frontends = there.load_balancers[0].properties_mut().frontend_ip_configurations.as_mut().unwrap();
        frontends[0].properties.as_mut().unwrap().private_ip_address = Some(address.into());
        let outcome = plan(&there, &[ensure(&internal("web"))]);
        let document = as_json(put(&outcome, "kubernetes-internal"));
        let frontends = &document["properties"]["frontendIPConfigurations"];
        assert_eq!(frontends.as_array().map(Vec::len), Some(1));
        assert_eq!(frontends[0]["name"], internal("web").identity.name_prefix);
        assert_eq!(frontends[0]["properties"]["privateIPAddress"].as_str(), kept, "{address}");
    }
}

#[test]
fn edge_zones_have_no_zones() {
    let edge = LoadBalancerSettings { extended_location: Some("edge".into()), ..settings() };
    let outcome = plan_with(&observed(Vec::new()), &[ensure(&internal("web"))], &edge);
    let document = as_json(put(&outcome, "kubernetes-internal"));
    assert_eq!(document["extendedLocation"], json!({"name": "edge", "type": "EdgeZone"}));
    assert_eq!(document["properties"]["frontendIPConfigurations"][0].get("zones"), None);
}

#[test]
fn tags_change_only_where_services_are() {
    let tagged = LoadBalancerSettings { tags: [("env".to_owned(), "prod".to_owned())].into(), ..settings() };
    let before = made(&[&service("web"), &internal("int")]);
    let outcome = plan_with(&before, &[ensure(&service("web"))], &tagged);
    assert_eq!(outcome.changes.len(), 1);
    assert_eq!(outcome.changes[0].reasons, ["change tags"]);
}
