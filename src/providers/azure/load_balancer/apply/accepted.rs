//! ARM's response to an accepted write of a load balancer, and the decision whether it replaces a read. Pure.
//!
//! In: the document that was sent, and ARM's response before the operation has ended. Out: whether the response has all that
//! a read after the operation would show, except for the etag. A load balancer has two kilobytes per Service, so reads after
//! each write would be most of the data that a large cluster receives. Only the next write needs the etag, and it reads
//! first.

use crate::providers::azure::model::{
    api, body,
    network::{ArmLoadBalancer, FrontendIpConfiguration},
};

/// Returns `true` if `answer` has all parts that were `sent`, and the addresses that ARM assigns to private frontends.
pub(super) fn is_whole(sent: &ArmLoadBalancer, answer: &ArmLoadBalancer) -> bool {
    parts(sent) == parts(answer) && frontends(answer).iter().all(has_address)
}

/// Returns `true` if writes of the two documents would have the same body.
pub(super) fn says_the_same(one: &ArmLoadBalancer, other: &ArmLoadBalancer) -> bool {
    let said = |document: &ArmLoadBalancer| body::of(&api::LOAD_BALANCERS, document).ok();
    said(one).is_some_and(|one| said(other) == Some(one))
}

fn frontends(document: &ArmLoadBalancer) -> &[FrontendIpConfiguration] {
    let properties = document.properties.as_ref();
    properties.and_then(|properties| properties.frontend_ip_configurations.as_deref()).unwrap_or_default()
}

/// Returns the numbers of frontends, rules, probes and pools.
fn parts(document: &ArmLoadBalancer) -> [usize; 4] {
    let Some(properties) = &document.properties else { return [0; 4] };
    let of = |rules: &Option<Vec<_>>| rules.as_ref().map_or(0, Vec::len);
    [
        frontends(document).len(),
        of(&properties.load_balancing_rules),
        properties.probes.as_ref().map_or(0, Vec::len),
        properties.backend_address_pools.as_ref().map_or(0, Vec::len),
    ]
}

/// Returns `true` if the frontend's address is known. A public frontend has the address of its public IP, which existed
/// before.
fn has_address(frontend: &FrontendIpConfiguration) -> bool {
    let Some(properties) = &frontend.properties else { return false };
    let has_text = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    properties.subnet.is_none() || has_text(&properties.private_ip_address)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn balancer(frontends: &Value, rules: &Value) -> ArmLoadBalancer {
        let properties = json!({"frontendIPConfigurations": frontends, "loadBalancingRules": rules, "probes": []});
        serde_json::from_value(json!({"id": "/a", "etag": "1", "properties": properties})).unwrap()
    }

    #[test]
    fn an_answer_suffices_when_it_has_all_parts_and_addresses() {
        let (public, rules) = (json!({"publicIPAddress": {"id": "/p"}}), json!([{"name": "r"}]));
        let internal = |address: &str| json!({"subnet": {"id": "/s"}, "privateIPAddress": address});
        let sent = balancer(&json!([{"properties": public}, {"properties": {"subnet": {"id": "/s"}}}]), &rules);
        let answer =
            |address: &str, rules| balancer(&json!([{"properties": public}, {"properties": internal(address)}]), rules);
        assert!(is_whole(&sent, &answer("10.0.0.4", &rules)));
        assert!(!is_whole(&sent, &answer("", &rules)), "no address yet");
        assert!(!is_whole(&sent, &sent), "no address yet");
        assert!(!is_whole(&sent, &answer("10.0.0.4", &json!([]))), "a rule is missing");
        assert!(!is_whole(&sent, &ArmLoadBalancer::default()), "an answer that is no load balancer");
    }

    #[test]
    fn who_is_in_pools_and_versions_say_nothing() {
        let with = |etag: &str, pool: Value, tags: &Value| -> ArmLoadBalancer {
            let properties = json!({"backendAddressPools": [{"name": "p", "etag": etag, "properties": pool}]});
            serde_json::from_value(json!({"etag": etag, "tags": tags, "properties": properties})).unwrap()
        };
        let members = |name: &str| json!({"backendIPConfigurations": [{"id": name}], "provisioningState": name});
        let addresses = |ip: &str| json!({"loadBalancerBackendAddresses": [{"name": "a", "properties": {"ipAddress": ip}}]});
        let one = with("1", members("/m"), &json!({}));
        assert!(says_the_same(&one, &with("2", members("/n"), &json!({}))));
        assert!(!says_the_same(&one, &with("1", members("/m"), &json!({"k": "v"}))), "somebody's tag");
        assert!(!says_the_same(
            &with("1", addresses("10.0.0.4"), &json!({})),
            &with("1", addresses("10.0.0.5"), &json!({}))
        ));
    }
}
