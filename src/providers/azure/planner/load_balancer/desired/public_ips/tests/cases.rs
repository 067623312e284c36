use serde_json::{Value, json};

use super::fixtures::*;
use crate::providers::azure::{
    config::LoadBalancerSku,
    model::ResourceId,
    planner::load_balancer::spec::{IpFamily, ServiceSpec},
};

fn refusal(world: &World, spec: ServiceSpec) -> String {
    let identity = spec.identity.clone();
    let outcome = world.plan(&[ensure(spec)], &[]);
    assert!(outcome.writes.is_empty() && outcome.releases.is_empty() && outcome.assigned.is_empty(), "{outcome:?}");
    outcome.services[&identity].clone().unwrap_err().to_string()
}

#[test]
fn basic_public_ips_have_no_sku_zones_or_prefix_and_edge_zones_have_no_zones() {
    let mut world = World::of(vec![]);
    world.settings.sku = LoadBalancerSku::Basic;
    let spec = with("web", |spec| {
        spec.families = vec![IpFamily::V6];
        spec.public_ip.prefix.v6 = Some("/x/p".into());
    });
    let document = serde_json::to_value(&world.plan(&[ensure(spec)], &[]).writes[0].document).unwrap();
    assert_eq!([&document["sku"], &document["zones"], &document["properties"]["publicIPPrefix"]], [&Value::Null; 3]);
    assert_eq!(document["properties"]["publicIPAllocationMethod"], "Dynamic");
    world.settings.sku = LoadBalancerSku::Standard;
    world.settings.extended_location = Some("edge".into());
    let document = serde_json::to_value(&world.plan(&[ensure(service("web"))], &[]).writes[0].document).unwrap();
    assert_eq!(document["extendedLocation"], json!({"name": "edge", "type": "EdgeZone"}));
    assert_eq!(document["zones"], Value::Null);
}

#[test]
fn a_public_ip_is_chosen_by_name_then_prefix_then_address_then_generated() {
    let world = World::of(vec![
        pip("Mine", "20.0.0.1", &Value::Null, &json!({})),
        pip("mine6", "2001:db8::1", &Value::Null, &json!({})),
        pip_in("/subscriptions/SUB/resourceGroups/other", "theirs", "20.0.0.2", &Value::Null, &json!({})),
    ]);
    let target = |spec: ServiceSpec, family| {
        let (name, outcome) = (spec.identity.key.clone(), world.plan(&[ensure(spec)], &[]));
        let name = name.rsplit('/').next().unwrap().to_owned();
        wanted(&outcome, &name, family).map(str::to_owned)
    };
    let named = with("web", |spec| {
        spec.public_ip.name.v4 = Some("mine".into());
        spec.public_ip.prefix.v4 = Some("/x/pfx".into());
    });
    assert_eq!(target(named, IpFamily::V4).as_deref(), Some("Mine"));
    let mut prefix = pinned("web", "20.0.0.1");
    prefix.public_ip.prefix.v4 = Some("/x/pfx".into());
    assert_eq!(target(prefix, IpFamily::V4), Some(name_of("web") + "-pfx"));
    assert_eq!(target(pinned("web", "20.0.0.1"), IpFamily::V4).as_deref(), Some("Mine"));
    let mut six = pinned("web", "2001:DB8:0::1");
    six.families = vec![IpFamily::V6];
    assert_eq!(target(six, IpFamily::V6).as_deref(), Some("mine6"));
    assert_eq!(target(service("web"), IpFamily::V4), Some(name_of("web")));
    let dual = with("web", |spec| spec.families = vec![IpFamily::V4, IpFamily::V6]);
    assert_eq!(target(dual, IpFamily::V6), Some(name_of("web") + "-IPv6"));
    assert_eq!(target(with("web", |spec| spec.internal = true), IpFamily::V4), None);
    let mut there = pinned("web", "20.0.0.2");
    there.public_ip.group = ResourceId::parse("/subscriptions/sub/resourceGroups/Other").unwrap();
    assert_eq!(target(there, IpFamily::V4).as_deref(), Some("theirs"));
}

#[test]
fn what_does_not_exist_or_fit_is_refused_with_the_annotation() {
    let world = World::of(vec![
        pip("mine6", "2001:db8::1", &Value::Null, &json!({})),
        pip_in("/subscriptions/SUB/resourceGroups/other", "theirs", "20.0.0.2", &Value::Null, &json!({})),
    ]);
    let named = |name: &str| with("web", |spec| spec.public_ip.name.v4 = Some(name.into()));
    for (spec, expected) in [
        (named("theirs"), "azure-pip-name: resource group `RG` has no public IP `theirs`"),
        (named("mine6"), "azure-pip-name: public IP `mine6` is of IPv6; name one of IPv4"),
        (pinned("web", "20.0.0.2"), "azure-load-balancer-ipv4: resource group `RG` has no public IP"),
    ] {
        let text = refusal(&world, spec);
        assert!(text.starts_with(&format!("service.beta.kubernetes.io/{expected}")), "{text}");
    }
}

#[test]
fn a_public_ip_that_a_front_end_has_but_the_list_lacks_is_not_made_anew() {
    let mut world = World::of(vec![]);
    let id = format!("{RG}/providers/Microsoft.Network/publicIPAddresses/{}", name_of("web"));
    let balancer = json!({"properties": {"frontendIPConfigurations": [{"properties": {"publicIPAddress": {"id": id}}}]}});
    world.observed.load_balancers = vec![serde_json::from_value(balancer).unwrap()];
    assert!(refusal(&world, service("web")).starts_with("public IP: a front end refers to"));
}

#[test]
fn services_cause_writes_of_their_own_part() {
    let mut network = World::of(vec![pip(&name_of("a"), "20.0.0.1", &used_by("default/a,default/b"), &json!({}))]);
    let (a, b, c) = (service("a"), pinned("b", "20.0.0.1"), pinned("c", "20.0.0.1"));
    let labeled = with("a", |spec| spec.public_ip.dns_label = Some("web".into()));
    let mut tagged = b.clone();
    tagged.public_ip.tags.insert("team".into(), "blue".into());
    for (case, requests, expected) in [
        ("a Service is added", vec![ensure(a.clone()), ensure(b.clone()), ensure(c)], "c"),
        ("a DNS label", vec![ensure(labeled), ensure(b.clone())], "a"),
        ("tags", vec![ensure(a.clone()), ensure(tagged)], "b"),
        ("a Service leaves", vec![ensure(a.clone()), remove(&b)], "b"),
    ] {
        let writes = network.plan(&requests, &[]).writes;
        assert_eq!((writes.len(), &writes[0].causes), (1, &vec![who(expected)]), "{case}");
        assert_eq!(writes[0].services.len(), requests.len(), "{case}");
    }
    network.settings.tags.insert("cost".into(), "42".into());
    let writes = network.plan(&[ensure(a), ensure(b)], &[]).writes;
    assert_eq!(writes[0].causes, [who("a"), who("b")], "no part of a Service differs");
}

#[test]
fn services_are_added_behind_those_that_are_there_and_leave_without_disturbing_them() {
    let shared = name_of("a");
    let mut world = World::of(vec![pip(&shared, "20.0.0.1", &used_by("default/a"), &json!({}))]);
    let (a, b, c) = (service("a"), pinned("b", "20.0.0.1"), pinned("c", "20.0.0.1"));
    let outcome = world.settle(&[ensure(c.clone()), ensure(b)], std::slice::from_ref(&a));
    assert_eq!((outcome.writes.len(), &outcome.writes[0].services), (1, &vec![who("b"), who("c")]));
    assert_eq!(world.tags(&shared)["k8s-azure-service"], "default/a,default/b,default/c");

    // One Service is deleted, another one moves: one write removes both names.
    let outcome = world.settle(&[remove(&a), ensure(service("b"))], std::slice::from_ref(&c));
    assert_eq!(outcome.writes.len(), 2);
    assert_eq!(world.tags(&shared)["k8s-azure-service"], "default/c");
    let outcome = world.settle(&[remove(&c)], &[service("b")]);
    assert_eq!((outcome.writes.len(), outcome.releases.len()), (0, 1));
    assert_eq!(world.names(), [name_of("b")]);
}

#[test]
fn another_clusters_public_ip_gets_and_loses_only_the_name() {
    let tags = json!({"k8s-azure-service": "default/other", "k8s-azure-cluster-name": "elsewhere"});
    let of_namesake = json!({"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "elsewhere"});
    let mut world =
        World::of(vec![pip("theirs", "20.0.0.1", &tags, &json!({})), pip("alike", "20.0.0.2", &of_namesake, &json!({}))]);
    world.settings.tags = [("env".to_owned(), "prod".to_owned())].into();
    let spec = pinned("web", "20.0.0.1");
    world.settle(&[ensure(spec.clone())], &[]);
    assert_eq!(world.tags("theirs")["k8s-azure-service"], "default/other,default/web");
    assert_eq!(world.tags("theirs").len(), 2);
    let outcome = world.settle(&[remove(&spec)], &[]);
    assert_eq!((world.tags("theirs")["k8s-azure-service"].as_str(), outcome.releases.len()), ("default/other", 0));
    // The other cluster's Service of the same name keeps its public IP.
    assert_eq!(world.tags("alike")["k8s-azure-service"], "default/web");
}

#[test]
fn in_a_group_that_nobody_names_the_generated_name_has_to_prove_ownership() {
    let there = "/subscriptions/SUB/resourceGroups/other";
    let mut world = World::of(vec![
        pip_in(there, &name_of("web"), "20.0.0.1", &used_by("default/web"), &json!({})),
        pip_in(there, "kubernetes-a0000", "20.0.0.2", &used_by("default/web"), &json!({})),
    ]);
    world.settle(&[ensure(service("web"))], &[]);
    let mut groups: Vec<_> = world.observed.public_ips.iter().map(|pip| pip.id.clone().unwrap()).collect();
    groups.sort();
    assert_eq!(groups.len(), 2);
    assert!(groups[1].ends_with("other/providers/Microsoft.Network/publicIPAddresses/kubernetes-a0000"), "{groups:?}");
}

#[test]
fn tags_are_written_where_the_public_ip_is() {
    let there = "/subscriptions/SUB/resourceGroups/other";
    let mut spec = service("web");
    spec.public_ip.group = ResourceId::parse(there).unwrap();
    let world = World::of(vec![pip(&name_of("a"), "20.0.0.1", &used_by("default/a,default/web"), &json!({}))]);
    let outcome = world.plan(&[ensure(spec)], &[]);
    let ids: Vec<_> = outcome.writes.iter().map(|change| change.id.resource_group().unwrap()).collect();
    assert_eq!(ids, ["other", "RG"]);
    assert_eq!(outcome.writes[1].etag.as_deref(), Some("e1"));
}

#[test]
fn both_families_are_released_and_keep_their_addresses_when_names_change_places() {
    let name = name_of("web");
    let dual = with("web", |spec| spec.families = vec![IpFamily::V4, IpFamily::V6]);
    let six = with("web", |spec| spec.families = vec![IpFamily::V6]);
    let mut world = World::of(vec![]);
    world.settle(&[ensure(dual.clone())], &[]);
    assert_eq!(world.names(), [name.clone(), name.clone() + "-IPv6"]);
    let address = world.get(&(name.clone() + "-IPv6")).unwrap().properties.clone().unwrap().ip_address;

    world.settle(&[ensure(six)], &[]);
    assert_eq!(world.names(), [name.clone() + "-IPv6"]);
    assert_eq!(world.get(&(name.clone() + "-IPv6")).unwrap().properties.clone().unwrap().ip_address, address);
    world.settle(&[ensure(dual.clone())], &[]);
    world.settle(&[ensure(service("web"))], &[]);
    assert_eq!(world.names(), [name.as_str()]);

    // A single-stack IPv6 Service has the unsuffixed name.
    let mut world = World::of(vec![pip(&name, "2001:db8::7", &used_by("default/web"), &json!({}))]);
    let outcome = world.settle(&[ensure(dual.clone())], &[]);
    assert_eq!(wanted(&outcome, "web", IpFamily::V6), Some(name.as_str()));
    assert_eq!(wanted(&outcome, "web", IpFamily::V4), Some((name + "-IPv4").as_str()));
    assert_eq!(world.settle(&[remove(&dual)], &[]).releases.len(), 2);
}

/// Azure rejects a name that ends with a hyphen after it was shortened. The name for IPv6 of a dual-stack Service has a suffix, so a public
/// IP with the shortened name may exist.
#[test]
fn cut_names_of_public_ips_are_repaired_or_kept() {
    let letters = "p".repeat(73 - name_of("web").len());
    let cut = format!("{}-{letters}", name_of("web"));
    let prefixed = with("web", |spec| {
        spec.families = vec![IpFamily::V6];
        spec.public_ip.prefix.v6 = Some(format!("/x/{letters}-rest"));
    });
    let (repaired, six) = (format!("{cut}_"), format!("{cut}--IPv6"));
    let existing = pip(&six, "2001:db8::7", &used_by("default/web"), &json!({}));
    for (public_ips, expected) in [(vec![], repaired), (vec![existing], six)] {
        let outcome = World::of(public_ips).plan(&[ensure(prefixed.clone())], &[]);
        assert_eq!(wanted(&outcome, "web", IpFamily::V6), Some(expected.as_str()));
    }
}

#[test]
fn other_ip_tags_need_a_new_public_ip_unless_that_loses_what_was_not_asked_for() {
    let name = name_of("web");
    let tagged = |tags: &[(&str, &str)]| {
        with("web", |spec| {
            spec.public_ip.ip_tags = Some(tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
        })
    };
    let existing = json!({"ipTags": [{"ipTagType": "a", "tag": "1"}, {"ipTagType": "b", "tag": "2"}]});
    let world = |services: &str| World::of(vec![pip(&name, "20.0.0.1", &used_by(services), &existing.clone())]);
    assert_eq!(world("default/web").settle(&[ensure(tagged(&[("b", "2"), ("a", "1")]))], &[]).releases, []);
    assert_eq!(world("default/web").settle(&[ensure(service("web"))], &[]).releases, []);

    let mut anew = world("default/web");
    let outcome = anew.settle(&[ensure(tagged(&[("a", "2")]))], &[]);
    assert_eq!((outcome.writes.len(), outcome.releases.len(), outcome.assigned.len()), (0, 1, 0));
    assert!(outcome.recreated.contains(&(who("web"), IpFamily::V4)) && outcome.services[&who("web")].is_ok());
    assert_ne!(anew.get(&name).unwrap().properties.clone().unwrap().ip_address.as_deref(), Some("20.0.0.1"));

    // The public IP is shared by its tag, shared by the request of another Service, or selected by its address.
    let mut chosen = tagged(&[("a", "2")]);
    chosen.pinned.v4 = Some("20.0.0.1".parse().unwrap());
    for (services, spec, others) in [
        ("default/web,default/b", tagged(&[("a", "2")]), vec![]),
        ("default/web", tagged(&[("a", "2")]), vec![pinned("b", "20.0.0.1")]),
        ("default/web", chosen, vec![]),
    ] {
        let outcome = world(services).settle(&[ensure(spec)], &others);
        let (retained, assigned) = (outcome.retained.len(), outcome.assigned.len() - others.len());
        assert_eq!((outcome.writes.len(), outcome.releases.len(), retained, assigned), (0, 0, 1, 1));
    }
    let mut in_place = world("default/web");
    in_place.settings.mutate_ip_tags = true;
    let outcome = in_place.settle(&[ensure(tagged(&[]))], &[]);
    assert_eq!((outcome.writes.len(), outcome.releases.len()), (1, 0));
    assert_eq!(outcome.writes[0].document.properties.clone().unwrap().ip_tags, Some(vec![]));
}

#[test]
fn what_others_select_or_something_else_uses_is_not_deleted() {
    let name = name_of("a");
    let mut world = World::of(vec![pip(&name, "20.0.0.1", &used_by("default/a"), &json!({}))]);
    // The other Service selects the address but is not in the list. The list still proves that the cluster owns the public IP.
    let outcome = world.settle(&[remove(&service("a"))], &[pinned("b", "20.0.0.1")]);
    assert_eq!(outcome.releases, []);
    assert_eq!(world.tags(&name)["k8s-azure-service"], "default/b");

    let frontend = format!("{RG}/providers/Microsoft.Network/loadBalancers/kubernetes/frontendIPConfigurations/f");
    let nic = format!("{RG}/providers/Microsoft.Network/networkInterfaces/n/ipConfigurations/c");
    let balancer = json!({"id": format!("{RG}/providers/Microsoft.Network/loadBalancers/Kubernetes"), "properties": {
        "frontendIPConfigurations": [{"id": frontend, "properties": {}}],
        "outboundRules": [{"properties": {"frontendIPConfigurations": [{"id": frontend.to_uppercase().replace("/SUBSCRIPTIONS", "/subscriptions")}]}}]}});
    for (properties, expected) in [
        (json!({"natGateway": {"id": "/x"}}), false),
        (json!({"ipConfiguration": {"id": nic}}), false),
        (json!({"ipConfiguration": {"id": frontend}}), false),
        (json!({"ipConfiguration": {"id": format!("{frontend}-gone")}}), true),
        (json!({"ipConfiguration": {"id": frontend.replace("kubernetes", "gone")}}), true),
    ] {
        let mut world = World::of(vec![pip(&name, "20.0.0.1", &used_by("default/a"), &properties.clone())]);
        world.observed.load_balancers = vec![serde_json::from_value(balancer.clone()).unwrap()];
        let outcome = world.plan(&[remove(&service("a"))], &[]);
        let counts = (outcome.releases.len(), outcome.retained.len());
        assert_eq!(counts, (usize::from(expected), usize::from(!expected)), "{properties}");
    }
}

#[test]
fn a_service_made_anew_under_the_same_name_takes_over_the_list_and_not_the_public_ip() {
    let (old, mut new) = (service("web"), service("web"));
    new.identity = crate::providers::azure::planner::load_balancer::naming::identity("default", "web", "another-uid");
    for asks in [vec![remove(&old), ensure(new.clone())], vec![ensure(new.clone()), remove(&old)], vec![ensure(new.clone())]]
    {
        let mut world = World::of(vec![pip(&name_of("web"), "20.0.0.1", &used_by("default/web"), &json!({}))]);
        world.settle(&asks, &[]);
        assert_eq!(world.names(), [format!("kubernetes-{}", new.identity.name_prefix)]);
        // The removal of the old Service is requested again later.
        world.settle(&[remove(&old)], std::slice::from_ref(&new));
        assert_eq!(world.names().len(), 1);
    }
}

#[test]
fn of_different_tags_those_of_the_first_in_the_list_count() {
    let spec = |name: &str, value: &str| {
        let mut spec = if name == "a" { service(name) } else { pinned(name, "20.0.0.1") };
        spec.public_ip.tags = [("x".to_owned(), value.to_owned()), (name.to_owned(), "1".to_owned())].into();
        spec
    };
    let mut world = World::of(vec![pip(&name_of("a"), "20.0.0.1", &used_by("default/a"), &json!({}))]);
    world.settle(&[ensure(spec("b", "2"))], &[spec("a", "1")]);
    assert_eq!(world.tags(&name_of("a"))["x"], "1");
    assert_eq!(world.settle(&[ensure(spec("a", "1"))], &[spec("b", "2")]).writes, []);
    world.settings.system_tags = vec!["k8s-".into()];
    world.settle(&[ensure(spec("a", "1"))], &[]);
    let tags = world.tags(&name_of("a"));
    assert_eq!(tags.keys().collect::<Vec<_>>(), ["a", "k8s-azure-cluster-name", "k8s-azure-service", "x"]);
}

#[test]
fn basic_public_ips_become_standard_ones_as_soon_as_nothing_basic_uses_them() {
    let named = |user: Option<&str>, sku: &str, name: &str| {
        let user = user.map_or(Value::Null, |user| json!({"id": format!("{RG}/providers/Microsoft.Network/{user}")}));
        let mut basic = pip(name, "20.0.0.1", &used_by("default/web"), &json!({"ipConfiguration": user}));
        basic.sku.get_or_insert_default().name = Some(sku.into());
        basic.properties.get_or_insert_default().public_ip_allocation_method = Some("Dynamic".into());
        basic
    };
    let own = name_of("web");
    let sku = |world: &World| world.get(&own).unwrap().sku.clone().unwrap().name.unwrap();
    let method = |world: &World| world.get(&own).unwrap().properties.clone().unwrap().public_ip_allocation_method.unwrap();
    let frontend = Some("loadBalancers/kubernetes/frontendIPConfigurations/web");
    for user in [None, frontend] {
        let mut world = World::of(vec![named(user, "Basic", &own)]);
        let first = world.settle(&[ensure(service("web"))], &[]);
        assert_eq!((first.writes.len(), sku(&world), method(&world)), (1, "Standard".to_owned(), "Static".to_owned()));
        assert_eq!(wanted(&first, "web", IpFamily::V4), Some(own.as_str()));
    }
    let balancer = |name: &str, sku: &str| {
        let id = format!("{RG}/providers/Microsoft.Network/loadBalancers/{name}");
        serde_json::from_value(json!({"id": id, "name": name, "sku": {"name": sku}})).unwrap()
    };
    let mut world = World::of(vec![named(frontend, "Basic", &own)]);
    world.observed.load_balancers = vec![balancer("kubernetes", "Basic")];
    for first in ["web", "other"] {
        let outcome = world.plan(&[ensure(service(first))], &[service("web")]);
        let change = outcome.writes.iter().find(|change| change.id.name() == own).unwrap();
        assert_eq!(change.services, [who(first)], "everybody waits until the address stays");
        let properties = change.document.properties.as_ref().unwrap();
        let sku = change.document.sku.as_ref().unwrap().name.as_deref();
        assert_eq!((properties.public_ip_allocation_method.as_deref(), sku), (Some("Static"), Some("Basic")));
        assert!(!outcome.assigned.contains_key(&(who(first), IpFamily::V4)) || first == "other");
    }
    let outcome = world.plan(&[ensure(service("web"))], &[]);
    world.apply(&outcome);
    assert_eq!(method(&world), "Static");
    let outcome = world.plan(&[ensure(service("web"))], &[]);
    assert!(outcome.writes.is_empty() && outcome.releases.is_empty() && outcome.assigned.is_empty());
    assert!(outcome.recreated.contains(&(who("web"), IpFamily::V4)), "first the basic load balancer goes");
    for user in ["networkInterfaces/nic/ipConfigurations/a", "loadBalancers/theirs/frontendIPConfigurations/a"] {
        let mut world = World::of(vec![named(Some(user), "Basic", &own)]);
        world.observed.load_balancers = vec![balancer("theirs", "Basic")];
        assert!(refusal(&world, service("web")).contains("is of the basic SKU"), "{user}");
    }
    let world = World::of(vec![named(frontend, "StandardV2", &own)]);
    assert!(world.plan(&[ensure(service("web"))], &[]).writes.is_empty(), "other SKUs are left alone");
}
