//! Decision whether a document may be written as planned. Pure.

use crate::providers::azure::{
    arm::Precondition,
    load_balancer::observe::CachedVersion,
    model::network::{ArmLoadBalancer, BackendAddressPool, PublicIpAddress},
};

/// Decision about a planned write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteDecision {
    Send,
    /// Read the document first: its etag is outdated, but the rest should be as planned.
    ReadFirst,
    /// Do not send the write, for this reason.
    Refuse(&'static str),
}

/// Version of the document that a write was planned on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlannedVersion<'a> {
    /// The document did not exist.
    Absent,
    /// The document had this etag; `None`: ARM sent it without an etag.
    Version(Option<&'a str>),
}

impl<'a> PlannedVersion<'a> {
    /// Returns the version of a document with this id and etag. A document from ARM has an id.
    pub(super) fn of(id: Option<&str>, etag: Option<&'a str>) -> Self {
        let etag = etag.filter(|etag| !etag.is_empty());
        if id.is_none() && etag.is_none() { PlannedVersion::Absent } else { PlannedVersion::Version(etag) }
    }

    pub(super) fn etag(self) -> Option<&'a str> {
        match self {
            PlannedVersion::Absent => None,
            PlannedVersion::Version(etag) => etag,
        }
    }

    /// Returns the condition for the write of a document that now has this etag.
    pub(super) fn precondition_with(self, etag: Option<&str>) -> Precondition<'_> {
        match self {
            PlannedVersion::Absent => Precondition::Absent,
            PlannedVersion::Version(_) => Precondition::unchanged(etag),
        }
    }
}

/// Decides about a write that was planned on `planned`. A document without an etag is read first, because no condition
/// guards it.
pub(super) fn decide(planned: PlannedVersion<'_>, known: &CachedVersion) -> WriteDecision {
    let known_etag = known.etag.as_ref().map(|etag| etag.as_deref().filter(|etag| !etag.is_empty()));
    match (known_etag, planned) {
        _ if known.invalidated => WriteDecision::Refuse("what is known of it is in doubt"),
        (None, PlannedVersion::Absent) => WriteDecision::Send,
        (None, PlannedVersion::Version(_)) => WriteDecision::Refuse("it does not exist any more"),
        (Some(_), PlannedVersion::Absent) => WriteDecision::Refuse("it exists by now"),
        (Some(etag), PlannedVersion::Version(planned)) if etag != planned => {
            WriteDecision::Refuse("it has been written since it was planned")
        }
        (Some(etag), _) if known.etag_stale || etag.is_none() => WriteDecision::ReadFirst,
        (Some(_), _) => WriteDecision::Send,
    }
}

/// Returns `true` if a public IP is unchanged in everything that decides about it. Its attachment is the load balancers'
/// concern.
pub(super) fn same_public_ip(before: &PublicIpAddress, now: &PublicIpAddress) -> bool {
    let bare = |document: &PublicIpAddress| {
        let mut document = PublicIpAddress { id: None, etag: None, ..document.clone() };
        if let Some(properties) = &mut document.properties {
            (properties.provisioning_state, properties.ip_configuration) = (None, None);
        }
        document
    };
    bare(before) == bare(now)
}

/// Returns `true` if a load balancer is unchanged except for the members of its pools.
pub(super) fn same_load_balancer(before: &ArmLoadBalancer, now: &ArmLoadBalancer) -> bool {
    comparable(before) == comparable(now)
}

fn comparable(document: &ArmLoadBalancer) -> serde_json::Value {
    let mut document = ArmLoadBalancer { id: None, etag: None, ..document.clone() };
    if document.properties.is_some() {
        let properties = document.properties_mut();
        properties.provisioning_state = None;
        for pool in properties.backend_address_pools.iter_mut().flatten() {
            *pool = BackendAddressPool { name: pool.name.take(), ..BackendAddressPool::default() };
        }
    }
    let mut value = serde_json::to_value(document).unwrap_or_default();
    strip(&mut value);
    value
}

/// Removes etags and states, which parts of a document also have.
fn strip(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.retain(|name, _| name != "etag" && name != "provisioningState");
            fields.values_mut().for_each(strip);
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(strip),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(etag: Option<&str>, doubted: bool, stale: bool) -> CachedVersion {
        CachedVersion {
            etag: etag.map(|etag| Some(etag.to_owned())),
            invalidated: doubted,
            etag_stale: stale,
            absent: false,
        }
    }

    #[test]
    fn only_what_was_planned_on_the_known_version_is_sent() {
        let refused = |verdict| matches!(verdict, WriteDecision::Refuse(_));
        let (new, first) = (PlannedVersion::Absent, PlannedVersion::Version(Some("1")));
        assert_eq!(decide(new, &known(None, false, false)), WriteDecision::Send);
        assert_eq!(decide(first, &known(Some("1"), false, false)), WriteDecision::Send);
        assert_eq!(decide(first, &known(Some("1"), false, true)), WriteDecision::ReadFirst);
        assert!(refused(decide(first, &known(Some("2"), false, true))));
        assert!(refused(decide(first, &known(None, false, false))));
        assert!(refused(decide(new, &known(Some("1"), false, false))), "it exists by now");
        assert!(refused(decide(first, &known(Some("1"), true, false))));
        assert!(refused(decide(new, &known(None, true, false))), "it may exist by now");
    }

    #[test]
    fn a_document_without_an_etag_is_not_a_new_one() {
        for etag in [None, Some(String::new())] {
            let without = CachedVersion { etag: Some(etag.clone()), ..CachedVersion::default() };
            let planned = PlannedVersion::of(Some("/lb"), etag.as_deref());
            assert_eq!(planned.precondition_with(planned.etag()), Precondition::Exists, "{etag:?}");
            assert_eq!(decide(planned, &without), WriteDecision::ReadFirst, "{etag:?}");
            assert!(matches!(decide(PlannedVersion::Absent, &without), WriteDecision::Refuse(_)), "{etag:?}");
        }
        assert_eq!(PlannedVersion::of(None, None).precondition_with(None), Precondition::Absent);
        assert_eq!(PlannedVersion::of(None, Some("1")).precondition_with(Some("1")), Precondition::Version("1"));
    }

    #[test]
    fn a_public_ip_is_the_same_whatever_it_is_attached_to() {
        let document = |value| serde_json::from_value::<PublicIpAddress>(value).unwrap();
        let before = document(json!({"id": "/a", "etag": "1", "tags": {"a": "b"}, "properties": {"ipAddress": "20.0.0.1"}}));
        let attached = json!({"id": "/A", "etag": "2", "tags": {"a": "b"}, "properties": {"ipAddress": "20.0.0.1",
            "provisioningState": "Succeeded", "ipConfiguration": {"id": "/f"}}});
        assert!(same_public_ip(&before, &document(attached)));
        for (field, value) in [("tags", json!({"a": "c"})), ("zones", json!(["1"])), ("new", json!(1))] {
            let mut other = json!({"tags": {"a": "b"}, "properties": {"ipAddress": "20.0.0.1"}});
            other[field] = value;
            assert!(!same_public_ip(&before, &document(other)), "{field}");
        }
    }

    #[test]
    fn a_load_balancer_is_the_same_whoever_is_in_its_pools() {
        let document = |members: &str, rule: &str, etag: &str| -> ArmLoadBalancer {
            let pool = json!({"name": "p", "etag": etag, "properties": {"backendIPConfigurations": [{"id": members}]}});
            let rules = json!([{"name": rule, "etag": etag, "properties": {"provisioningState": etag}}]);
            let nat = json!([{"name": "n", "etag": etag, "properties": {"provisioningState": etag}}]);
            let properties = json!({"backendAddressPools": [pool], "loadBalancingRules": rules, "inboundNatRules": nat});
            serde_json::from_value(json!({"id": "/a", "etag": etag, "properties": properties})).unwrap()
        };
        assert!(same_load_balancer(&document("/m", "r", "1"), &document("/n", "r", "2")));
        assert!(!same_load_balancer(&document("/m", "r", "1"), &document("/m", "s", "1")));
    }
}
