//! Backend pools of a single Service: created and removed with its rules, and refused if two would have the same name.

use std::sync::Arc;

use super::*;
use crate::providers::azure::{config::BackendPoolType, planner::load_balancer::naming::identity};

/// Returns the Service with policy `Local` among several load balancers.
fn local(spec: ServiceSpec) -> ServiceSpec {
    ServiceSpec { own_pool: true, ..spec }
}

/// Returns a Service whose UID begins with `digit`.
fn named(namespace: &str, name: &str, digit: u8) -> ServiceSpec {
    let uid = format!("{digit}1111111-8d7e-4b90-9a41-2c5d7e8f9a01");
    local(ServiceSpec { identity: identity(namespace, name, &uid), ..service(name) })
}

fn pool_names(document: &ArmLoadBalancer) -> Vec<&str> {
    draft::pools(document).iter().filter_map(|pool| pool.name.as_deref()).collect()
}

/// Returns the pools that rules use.
fn used_pools(document: &ArmLoadBalancer) -> BTreeSet<String> {
    let rules = draft::rules(document).iter().filter_map(|rule| rule.properties.as_ref());
    let ids = rules.filter_map(|properties| properties.backend_address_pool.as_ref()?.resource_id());
    ids.map(|id| id.name().to_owned()).collect()
}

#[test]
fn rules_and_pools_change_in_one_write_both_ways() {
    let (cluster, other) = (service("web"), service("other"));
    let there = made(&[&cluster, &other]);
    let to_local = plan(&there, &[ensure(&local(cluster.clone()))]);
    assert_eq!(pool_names(put(&to_local, "kubernetes")), ["kubernetes", "default-web"]);
    assert!(used_pools(put(&to_local, "kubernetes")).contains("default-web"));
    let there = applied(&there, &to_local);
    assert!(plan(&there, &[ensure(&local(cluster.clone()))]).changes.is_empty(), "twice");

    let back = plan(&there, &[ensure(&cluster)]);
    assert_eq!(pool_names(put(&back, "kubernetes")), ["kubernetes"]);
    assert_eq!(used_pools(put(&back, "kubernetes")), BTreeSet::from(["kubernetes".to_owned()]));
    assert!(back.changes[0].reasons.contains(&"remove back-end pool default-web".to_owned()), "{:?}", back.changes);
}

#[test]
fn each_family_has_a_pool_and_the_one_of_a_family_that_goes_goes_too() {
    let dual = local(ServiceSpec { families: vec![IpFamily::V4, IpFamily::V6], ..service("web") });
    let there = made(&[&dual, &service("other")]);
    assert_eq!(pool_names(&there.load_balancers[0]), ["kubernetes", "default-web", "default-web-ipv6"]);
    let single = ServiceSpec { families: vec![IpFamily::V4], ..dual };
    let left = plan(&there, &[ensure(&single)]);
    assert_eq!(pool_names(put(&left, "kubernetes")), ["kubernetes", "default-web"]);
    let only_v6 = made(&[&local(ServiceSpec { families: vec![IpFamily::V6], ..service("web") })]);
    assert_eq!(pool_names(&only_v6.load_balancers[0]), ["default-web-ipv6"]);
}

#[test]
fn a_pool_that_others_use_or_nobody_led_to_stays() {
    let web = local(service("web"));
    let mut there = made(&[&web, &service("other")]);
    let pool = network("loadBalancers/kubernetes/backendAddressPools/default-web");
    let outbound = json!([{"name": "out", "properties": {"backendAddressPool": {"id": pool}}}]);
    there.load_balancers[0].properties_mut().outbound_rules = serde_json::from_value(outbound).unwrap();
    assert!(pool_names(put(&plan(&there, &[remove(&web)]), "kubernetes")).contains(&"default-web"));

    // A pool of a user, or one that the Go CCM has left.
    let mut there = made(&[&service("web"), &service("other")]);
    let pools = there.load_balancers[0].properties_mut().backend_address_pools.as_mut().unwrap();
    pools.push(serde_json::from_value(json!({"name": "default-web", "properties": {}})).unwrap());
    assert!(pool_names(put(&plan(&there, &[remove(&service("web"))]), "kubernetes")).contains(&"default-web"));
}

#[test]
fn the_second_service_with_the_name_of_a_pool_is_refused() {
    let (first, second) = (named("a-b", "c", 1), named("a", "b-c", 2));
    let both = plan(&observed(Vec::new()), &[ensure(&first), ensure(&second)]);
    let refused: Vec<_> = [&first, &second].into_iter().filter(|spec| both.services[&spec.identity].is_err()).collect();
    assert_eq!(refused.len(), 1, "{:?}", both.services);

    let there = made(&[&first]);
    let others = [Arc::new(first.clone())];
    let late = plan_load_balancers(&there, &[ensure(&second)], &others, &public_ips(&[&second]), &settings());
    assert_eq!(refusal(&late, &second).field, "metadata.name");
    assert!(refusal(&late, &second).message.contains("a-b/c has the back-end pool a-b-c already"), "{:?}", late.services);
    let again = plan_load_balancers(&there, &[ensure(&first)], &[Arc::new(second)], &public_ips(&[&first]), &settings());
    assert!(again.changes.is_empty() && again.services[&first.identity].is_ok(), "who has it keeps it");

    let v6 = ServiceSpec { families: vec![IpFamily::V6], ..named("default", "web", 3) };
    let v4 = named("default", "web-ipv6", 4);
    let late = plan_load_balancers(&made(&[&v6]), &[ensure(&v4)], &[Arc::new(v6)], &public_ips(&[&v4]), &settings());
    assert!(refusal(&late, &v4).message.contains("default/web has"), "{:?}", late.services);
}

#[test]
fn names_that_are_taken_are_refused_and_long_ones_shortened() {
    let own = |name: &str, namespace: &str| named(namespace, name, 5);
    let mut settings = settings();
    settings.cluster = "prod-web".to_owned();
    let taken = plan_with(&observed(Vec::new()), &[ensure(&own("web", "prod"))], &settings);
    assert!(refusal(&taken, &own("web", "prod")).message.contains("that of all Services"), "{:?}", taken.services);
    let long = own(&"n".repeat(40), &"s".repeat(40));
    let there = made(&[&long]);
    let names = pool_names(&there.load_balancers[0]);
    assert!(names.len() == 1 && names[0].len() == 80, "{names:?}");
    assert!(plan(&there, &[ensure(&long)]).changes.is_empty(), "twice");
    let shared = ServiceSpec { own_pool: false, ..long };
    assert_eq!(pool_names(put(&plan(&there, &[ensure(&shared)]), "kubernetes")), ["kubernetes"]);
}

#[test]
fn a_service_without_rules_has_no_pool() {
    let mut quiet = local(service("web"));
    quiet.ports.iter_mut().for_each(|port| port.rule = false);
    let there = made(&[&quiet, &service("other")]);
    assert_eq!(pool_names(&there.load_balancers[0]), ["kubernetes"]);
    let settings = LoadBalancerSettings { cluster: "prod-web".into(), ..settings() };
    let namesake = ServiceSpec { ports: quiet.ports, ..named("prod", "web", 6) };
    let outcome = plan_with(&observed(Vec::new()), &[ensure(&namesake)], &settings);
    assert!(outcome.services[&namesake.identity].is_ok(), "{:?}", outcome.services);
}

/// A Service moves because it is requested, or together with another one.
#[test]
fn pools_leave_a_former_load_balancer_with_their_services() {
    let settings = LoadBalancerSettings { pool_type: BackendPoolType::NodeIp, ..settings() };
    let former = LoadBalancerSettings { load_balancer_name: "old".into(), ..settings.clone() };
    let (web, other) = (local(service("web")), service("other"));
    let everybody = [ensure(&web), ensure(&other)];
    let there = applied(&observed(Vec::new()), &plan_with(&observed(Vec::new()), &everybody, &former));
    assert_eq!(pool_names(&there.load_balancers[0]), ["kubernetes", "default-web"]);
    let moved = plan_load_balancers(&there, &[ensure(&other)], &[Arc::new(web.clone())], &public_ips(&[&other]), &settings);
    assert!(deletes(&moved, "old"), "{:?}", moved.changes);
    assert_eq!(pool_names(put(&moved, "kubernetes")).len(), 2);

    let shared = ServiceSpec { own_pool: false, ..web };
    let asked = plan_with(&there, &[ensure(&shared), ensure(&other)], &settings);
    assert!(deletes(&asked, "old"), "{:?}", asked.changes);
    assert_eq!(pool_names(put(&asked, "kubernetes")), ["kubernetes"]);
    let alone = plan_with(&there, &[ensure(&shared)], &settings);
    assert_eq!(pool_names(put(&alone, "kubernetes")), ["kubernetes"]);
}
