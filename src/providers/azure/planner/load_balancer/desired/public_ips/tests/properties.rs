use proptest::prelude::*;
use serde_json::json;

use super::fixtures::*;
use crate::providers::azure::planner::load_balancer::{
    desired::ServiceRequest,
    spec::{IpFamily, ServiceSpec},
};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Asked,
    Other,
    Removed,
}

fn spec(name: &'static str) -> impl Strategy<Value = ServiceSpec> {
    let families = prop::sample::select(vec![vec![IpFamily::V4], vec![IpFamily::V6], vec![IpFamily::V4, IpFamily::V6]]);
    let addresses = vec!["20.0.0.101", "20.0.0.1", "20.0.0.2", "2001:db8::102"];
    let selection = prop::option::weighted(0.6, prop::sample::select(addresses));
    let label = prop::sample::select(vec![None, None, Some(""), Some("x"), Some("y")]);
    let tags = prop::sample::select(vec![None, None, Some(vec![]), Some(vec![("t".to_owned(), "1".to_owned())])]);
    (families, selection, label, tags, prop::bool::weighted(0.2), 0..3_u8).prop_map(
        move |(families, address, label, ip_tags, internal, extra)| {
            let mut spec = address.map_or_else(|| service(name), |address| pinned(name, address));
            spec.families = families;
            spec.internal = internal;
            spec.public_ip.dns_label = label.map(str::to_owned);
            spec.public_ip.ip_tags = ip_tags;
            if extra > 0 {
                spec.public_ip.tags = [("extra".to_owned(), extra.to_string())].into();
            }
            spec
        },
    )
}

fn step() -> impl Strategy<Value = Vec<(ServiceSpec, Fate)>> {
    let fate = || prop::sample::select(vec![Fate::Asked, Fate::Asked, Fate::Other, Fate::Removed]);
    ((spec("a"), fate()), (spec("b"), fate()), (spec("c"), fate())).prop_map(|(a, b, c)| vec![a, b, c])
}

fn split(step: &[(ServiceSpec, Fate)]) -> (Vec<ServiceRequest>, Vec<ServiceSpec>) {
    let asks = step.iter().filter_map(|(spec, fate)| match fate {
        Fate::Asked => Some(ensure(spec.clone())),
        Fate::Removed => Some(remove(spec)),
        Fate::Other => None,
    });
    let others = step.iter().filter(|(_, fate)| *fate == Fate::Other).map(|(spec, _)| spec.clone());
    (asks.collect(), others.collect())
}

fn world(mutate: bool) -> World {
    let foreign = json!({"k8s-azure-service": "default/other,default/a", "k8s-azure-cluster-name": "elsewhere"});
    let (mine, none) = (json!({"owner": "me"}), json!({}));
    let mut world = World::of(vec![pip("mine", "20.0.0.1", &mine, &none), pip("theirs", "20.0.0.2", &foreign, &none)]);
    world.settings.mutate_ip_tags = mutate;
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_history_settles_and_touches_nothing_of_others(steps in prop::collection::vec(step(), 1..5), mutate: bool) {
        let mut world = world(mutate);
        for step in &steps {
            let (asks, others) = split(step);
            let plan = world.plan(&asks, &others);
            let reversed: Vec<_> = asks.iter().rev().cloned().collect();
            prop_assert_eq!(&plan, &world.plan(&reversed, &others.iter().rev().cloned().collect::<Vec<_>>()));
            let written = plan.writes.iter().map(|change| &change.id);
            prop_assert!(plan.assigned.values().all(|id| written.clone().any(|put| put == id) || world.get(id.name()).is_some()));
            prop_assert!(plan.releases.iter().all(|release| !plan.assigned.values().any(|id| *id == release.id)));
            let others_want = others.iter().flat_map(|other| plan.assigned.iter().filter(|(key, _)| key.0 == other.identity));
            prop_assert!(others_want.into_iter().all(|(_, id)| plan.releases.iter().all(|release| release.id != *id)));
            world.settle(&asks, &others);
        }
        let mine = world.get("mine").unwrap();
        prop_assert_eq!(world.tags("mine"), [("owner".to_owned(), "me".to_owned())].into());
        prop_assert!(mine.extra.get("unknown").is_some() && mine.sku.as_ref().unwrap().name.as_deref() == Some("StandardV2"));
        prop_assert!(world.tags("theirs")["k8s-azure-service"].starts_with("default/other"));
        let last = steps.last().into_iter().flatten();
        world.settle(&last.map(|(spec, _)| remove(spec)).collect::<Vec<_>>(), &[]);
        prop_assert_eq!(world.names(), ["mine", "theirs"], "when all Services go, nothing that was made is left");
    }
}
