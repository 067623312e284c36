//! Tests that all events are documented, and of their messages.

use std::collections::BTreeSet;

use super::*;
use crate::providers::azure::{
    model::{ArmErrorClass, ResourceId},
    planner::load_balancer::desired::load_balancers::RetainedFrontend,
    samples::arm_error,
};

#[test]
fn events_are_documented_once_and_as_they_are() {
    let reasons: BTreeSet<_> = EVENTS.iter().map(|doc| doc.reason).collect();
    assert_eq!(reasons.len(), EVENTS.len());
    let service = Service::default();
    let error = arm_error(ArmErrorClass::Invalid, "SubnetIsFull", "full");
    let mut all: Vec<_> = ArmCallKind::ALL.iter().map(|call| call_failed(&service, *call, &error)).collect();
    assert!(all.iter().all(|event| event.message.starts_with("PUT /x: SubnetIsFull: full. ")));
    all.push(kept_frontend(&service, &RetainedFrontend { id: "fe".into(), uses: Vec::new() }));
    let id = ResourceId::group_of("s", "g").resource("Microsoft.Network/publicIPAddresses", &["a"]);
    let reasons = vec!["NAT gateway `n` uses it".into()];
    let kept = PublicIpRelease { id, etag: None, reasons, services: Vec::new(), is_notice: false };
    all.push(kept_public_ip(&service, &kept));
    assert!(all.last().unwrap().message.ends_with("/publicIPAddresses/a is kept unchanged: NAT gateway `n` uses it"));
    let notice = kept_public_ip(&service, &PublicIpRelease { is_notice: true, ..kept });
    assert!(notice.message.ends_with("/publicIPAddresses/a: NAT gateway `n` uses it"), "{notice:?}");
    let id = ResourceId::group_of("s", "g").resource("Microsoft.Network/privateLinkServices", &["l"]);
    let reasons = vec!["its front end goes".into()];
    let gone = PrivateLinkDeletion { id: id.clone(), document: Default::default(), reasons, services: Vec::new() };
    all.push(connections_cut(&service, &gone));
    assert!(all.last().unwrap().message.ends_with("/privateLinkServices/l is deleted: its front end goes"));
    all.push(private_link_notice(&service, &PrivateLinkNotice::LeftBehind(id.clone())));
    all.push(private_link_notice(&service, &PrivateLinkNotice::NameTaken(id)));
    assert!(all.last().unwrap().message.ends_with("leads to another front end and is left alone: choose another name"));

    for reason in [
        reason::INVALID_SOURCE_RANGES,
        reason::INVALID_ALLOWED_IP_RANGES,
        reason::IP_RANGE_FAMILY_MISMATCH,
        reason::CONFLICT_CONFIGURATION,
        reason::UNREADABLE_RESTRICTION,
        reason::IGNORED_CONFIGURATION,
        reason::UNANSWERED_PROBE,
        reason::UNKNOWN_ANNOTATION,
    ] {
        let event = spec_warning(&service, &ServiceWarning { reason, field: "spec.x".into(), message: "is odd".into() });
        assert_eq!(event.message, "spec.x: is odd");
        all.push(event);
    }
    all.extend([provider_id_conflict(&Node::default(), "n1"), no_nodes_of_family(&service, IpFamily::V6)]);
    all.extend([crowded_interfaces(&service, "more than 300"), addresses_not_recorded(&service)]);
    all.extend([drifted(&service, "somebody else changed it"), repair_delayed(&service, "again and again")]);
    assert_eq!(all.len(), EVENTS.len());
    for event in all {
        assert!(EVENTS.iter().any(|doc| doc.reason == event.reason && doc.type_ == event.type_), "{}", event.reason);
    }
}
