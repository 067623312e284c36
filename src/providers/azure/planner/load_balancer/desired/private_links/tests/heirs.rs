//! Private link services whose owner does not use the frontend anymore.

use super::*;
use crate::providers::azure::planner::load_balancer::annotations::{
    PLS_ADDRESS_COUNT, PLS_ADDRESSES, PLS_AUTO_APPROVAL, PLS_FQDNS, PLS_PROXY_PROTOCOL, PLS_SUBNET, PLS_VISIBILITY,
};

fn with_all_options() -> ServiceSpec {
    let all = |link: &mut PrivateLinkSpec| {
        link.address_count = 2;
        link.addresses = vec!["10.0.1.7".parse().unwrap()];
        link.subnet = Some((PLS_SUBNET.key, "apps".into()));
        link.fqdns = vec!["a.example".into()];
        link.proxy_protocol = true;
        link.visibility = vec!["*".into()];
        link.auto_approval = vec!["s1".into()];
        link.owners_only = vec![PLS_SUBNET.key, PLS_FQDNS.key, PLS_PROXY_PROTOCOL.key];
    };
    at("10.0.0.9", linked("a", all))
}

fn guest(name: &str, change: impl FnOnce(&mut PrivateLinkSpec)) -> ServiceSpec {
    at("10.0.0.9", linked(name, change))
}

/// Returns the state after Service `a` left its frontend and its private link service to these Services.
fn orphaned(heirs: &[ServiceSpec]) -> Scene {
    let owner = with_all_options();
    let plain_heirs: Vec<_> =
        heirs.iter().map(|heir| guest(heir.identity.key.trim_start_matches("default/"), |_| {})).collect();
    let mut scene = Scene::settled(&[std::slice::from_ref(&owner), &plain_heirs].concat());
    scene.requests = vec![remove(&owner)];
    scene.others = plain_heirs.into_iter().map(Arc::new).collect();
    assert!(scene.granted().is_empty(), "the frontend remains");
    scene.write();
    scene.observed.subnets.values_mut().for_each(|subnet| {
        subnet.properties.as_mut().unwrap().private_link_service_network_policies = Some("Enabled".to_owned());
    });
    scene.asking(heirs).beside(&[])
}

/// Annotations of an heir, and the fields that change with the reason.
type HeirCase = (&'static [&'static str], fn(&mut PrivateLinkSpec), &'static [&'static str], &'static str);

const HEIRS: [HeirCase; 8] = [
    (&[PLS_FQDNS.key], |link| link.fqdns = vec!["b.example".into()], &["fqdns"], "other DNS names"),
    (&[PLS_FQDNS.key], |link| link.fqdns = vec!["A.example".into()], &[], ""),
    (&[PLS_PROXY_PROTOCOL.key], |_| {}, &["enableProxyProtocol"], "switch the proxy header off"),
    (&[PLS_VISIBILITY.key], |link| link.visibility = vec!["s2".into()], &["visibility"], OTHER_SUBSCRIPTIONS),
    (&[PLS_AUTO_APPROVAL.key], |_| {}, &["autoApproval"], OTHER_SUBSCRIPTIONS),
    (&[PLS_ADDRESS_COUNT.key], |link| link.address_count = 3, &["ipConfigurations"], "other addresses: 3 in subnet apps"),
    (
        &[PLS_ADDRESSES.key],
        |link| link.addresses = vec!["10.0.1.8".parse().unwrap()],
        &["ipConfigurations"],
        "other addresses: 2 in subnet apps",
    ),
    (
        &[PLS_SUBNET.key],
        |link| link.subnet = Some((PLS_SUBNET.key, "nodes".into())),
        &["ipConfigurations"],
        "other addresses: 2 in subnet nodes",
    ),
];

#[test]
fn an_heir_changes_the_fields_of_its_annotations_only() {
    for (keys, change, fields, reason) in HEIRS {
        let heir = guest("b", |link| {
            change(link);
            link.owners_only = keys.to_vec();
        });
        let mut scene = orphaned(std::slice::from_ref(&heir));
        let (before, tags) = (scene.properties(), scene.link().tags.clone());
        let plan = scene.granted();
        let reasons: Vec<_> = plan.writes.iter().flat_map(|change| change.reasons.clone()).collect();
        assert_eq!(reasons, Some(reason.to_owned()).filter(|reason| !reason.is_empty()).into_iter().collect::<Vec<_>>());
        assert_eq!(plan.subnets.len(), usize::from(keys == [PLS_SUBNET.key]), "policies only of a subnet that is named");
        scene.write();
        let after = scene.properties();
        let names = ["fqdns", "enableProxyProtocol", "visibility", "autoApproval", "ipConfigurations"];
        let changed: Vec<_> = names.into_iter().filter(|name| before[name] != after[name]).collect();
        assert_eq!(changed, fields, "{keys:?}");
        assert_eq!(scene.link().tags, tags, "the owner can return");
        assert!(scene.granted().is_empty(), "{keys:?}");
    }
}

#[test]
fn a_number_of_addresses_keeps_the_fixed_ones() {
    let heir = guest("b", |link| (link.address_count, link.owners_only) = (3, vec![PLS_ADDRESS_COUNT.key]));
    let mut scene = orphaned(&[heir]);
    scene.write();
    let addresses = &scene.properties()["ipConfigurations"];
    let fixed: Vec<_> = addresses.as_array().unwrap().iter().map(|part| &part["properties"]["privateIPAddress"]).collect();
    assert_eq!(fixed, [&json!("10.0.1.7"), &Value::Null, &Value::Null]);
}

#[test]
fn the_only_heir_with_options_is_granted_and_a_second_is_refused() {
    let picky = |name: &str| guest(name, |link| (link.fqdns, link.owners_only) = (vec!["x".into()], vec![PLS_FQDNS.key]));
    let plan = orphaned(&[guest("b", |_| {}), picky("c")]).granted();
    assert_eq!(plan.writes[0].reasons, ["other DNS names"]);
    let refused = orphaned(&[picky("b"), picky("c")]).refused();
    let [refusal] = refused.as_slice() else { panic!("{refused:?}") };
    assert!(refusal.starts_with("default/c: ") && refusal.contains("belongs to Service default/b"), "{refusal}");
}

#[test]
fn a_guest_changes_no_orphan_at_the_frontend_of_a_living_service() {
    let owner = at("10.0.0.9", internal("a"));
    let picky = guest("b", |link| (link.visibility, link.owners_only) = (vec!["*".into()], vec![PLS_VISIBILITY.key]));
    let with_link = guest("a", |_| {});
    let mut scene = Scene::settled(&[with_link.clone(), guest("b", |_| {})]);
    set(scene.link(), |document| document["tags"]["k8s-azure-owner-service"] = json!("default/deleted"));
    let refused = scene.asking(std::slice::from_ref(&picky)).beside(std::slice::from_ref(&owner)).refused();
    assert!(refused.len() == 1 && refused[0].contains("belongs to Service default/a"), "{refused:?}");
    let plain_guest = scene.asking(&[guest("b", |_| {})]).beside(std::slice::from_ref(&owner)).granted();
    assert!(plain_guest.writes.is_empty(), "{plain_guest:?}");
    let visible = guest("a", |link| (link.visibility, link.owners_only) = (vec!["*".into()], vec![PLS_VISIBILITY.key]));
    let by_owner = scene.asking(&[visible, guest("b", |_| {})]).beside(&[]).granted();
    assert_eq!(by_owner.writes.len(), 1, "the owner of the frontend may");
    let both = scene.asking(&[with_link, picky]).beside(&[]).refused();
    assert!(both.len() == 1 && both[0].starts_with("default/b: "), "{both:?}");
}
