use serde_json::{Value, json};

use super::*;
use crate::providers::azure::samples::arm_error;

const NET: &str = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network";

fn id(text: &str) -> ResourceId {
    ResourceId::parse(&format!("{NET}/{text}")).unwrap()
}

fn balancer(frontends: &[Value]) -> ArmLoadBalancer {
    serde_json::from_value(json!({"properties": {"frontendIPConfigurations": frontends}})).unwrap()
}

fn external(name: &str, public_ip: &str) -> Value {
    json!({"id": format!("{NET}/loadBalancers/lb/frontendIPConfigurations/{name}"), "name": name,
           "properties": {"publicIPAddress": {"id": format!("{NET}/publicIPAddresses/{public_ip}")}}})
}

#[test]
fn a_load_balancer_attaches_and_frees_public_ips() {
    let lb = |frontend: &str| format!("{NET}/loadBalancers/lb/frontendIPConfigurations/{frontend}");
    let balancer = balancer(&[external("a", "one"), json!({"id": lb("in"), "properties": {}})]);
    let attachments = attachments(&balancer);
    for (name, user, expected) in [
        ("one", None, Some(Some("a"))),
        ("ONE", Some(lb("a")), Some(Some("a"))),
        ("one", Some(lb("b")), Some(Some("a"))),
        ("two", Some(lb("a")), Some(None)),
        ("two", Some(lb("a").to_uppercase()), Some(None)),
        ("two", None, None),
        ("two", Some(format!("{NET}/loadBalancers/lb2/frontendIPConfigurations/a")), None),
        ("two", Some(format!("{NET}/networkInterfaces/n/ipConfigurations/a")), None),
    ] {
        let user = user.map(|user| json!({"id": user}));
        let public_ip = json!({"id": format!("{NET}/publicIPAddresses/{name}"), "properties": {"ipConfiguration": user}});
        let public_ip: PublicIpAddress = serde_json::from_value(public_ip).unwrap();
        let became = on_public_ip(&id("loadBalancers/LB"), &attachments, &public_ip);
        let became = became.map(|user| user.and_then(|user| user.id));
        assert_eq!(became, expected.map(|user| user.map(lb)), "{name}");
    }
}

#[test]
fn a_pool_replaces_the_one_of_its_name() {
    let pool = |name: &str, etag: &str| -> BackendAddressPool {
        serde_json::from_value(json!({"name": name, "etag": etag})).unwrap()
    };
    let mut balancer = ArmLoadBalancer::default();
    for (name, etag) in [("a", "1"), ("b", "2"), ("A", "3")] {
        put_pool(&mut balancer, name, pool(name, etag));
    }
    assert_eq!(balancer.properties_mut().backend_address_pools.take().unwrap(), [pool("A", "3"), pool("b", "2")]);
}

#[test]
fn what_is_doubtful_depends_on_how_far_the_write_got() {
    use ArmErrorClass::*;
    let target = NetworkCacheKey::LoadBalancer(id("loadBalancers/lb"));
    let references = || vec![NetworkCacheKey::SecurityGroup];
    let error = |class, code| arm_error(class, code, "");
    for class in [Throttled, Unauthorized, Forbidden, NotLeader] {
        assert_eq!(invalidated_by(&error(class, ""), &target, references), [], "{class:?}");
    }
    for class in [Conflict, Busy, OutcomeUnknown, MalformedAnswer, Transient, Invalid, QuotaExceeded] {
        assert_eq!(invalidated_by(&error(class, ""), &target, references), std::slice::from_ref(&target), "{class:?}");
    }
    for (class, code) in [(NotFound, ""), (ParentNotFound, ""), (Invalid, "InvalidResourceReference")] {
        let both = [target.clone(), NetworkCacheKey::SecurityGroup];
        assert_eq!(invalidated_by(&error(class, code), &target, references), both, "{class:?}");
    }
}

#[test]
fn a_load_balancer_refers_to_public_ips_and_subnets() {
    let subnet =
        |network: &str| json!({"properties": {"subnet": {"id": format!("{NET}/virtualNetworks/{network}/subnets/apps")}}});
    let balancer = balancer(&[external("a", "one"), subnet("V"), subnet("other")]);
    let expected = [NetworkCacheKey::PublicIp(id("publicIPAddresses/one")), NetworkCacheKey::Subnet("apps".to_owned())];
    assert_eq!(referenced_keys(&balancer, &id("virtualNetworks/v")), expected);
}
