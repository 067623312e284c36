//! Tests of messages for users, of the retries after errors, and of the Services that errors name.

use std::{collections::BTreeSet, time::Duration};

use super::*;
use crate::providers::azure::{
    arm::ArmErrorEntry,
    model::ResourceId,
    planner::load_balancer::{
        desired::samples,
        naming,
        spec::{Protocol, ServiceIdentity, ServiceSpec},
    },
    samples::arm_error,
};

const REQUEST: &str = "PUT /subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/kubernetes";

fn error(class: ArmErrorClass, code: &str, message: &str) -> ArmError {
    ArmError { request: REQUEST.into(), correlation_id: Some("c-1".into()), ..arm_error(class, code, message) }
}

#[test]
fn a_message_has_the_request_arms_words_the_advice_and_the_id() {
    let full = error(ArmErrorClass::Invalid, "SubnetIsFull", "Subnet apps is full");
    let ErrorExplanation { reason, message } = explain(&full);
    assert_eq!(reason, "SubnetIsFull");
    assert!(message.starts_with(&format!("{REQUEST}: SubnetIsFull: Subnet apps is full. Free addresses")), "{message}");
    assert!(message.ends_with(" (correlation id c-1)"), "{message}");
}

#[test]
fn a_missing_permission_names_action_and_scope() {
    let refused = "The client 'a' does not have authorization to perform action 'Microsoft.Network/publicIPAddresses/write' over \
                   scope '/subscriptions/s/resourceGroups/g' or the scope is invalid.";
    let message = explain(&error(ArmErrorClass::Forbidden, "AuthorizationFailed", refused)).message;
    let advice =
        "Grant the action Microsoft.Network/publicIPAddresses/write on /subscriptions/s/resourceGroups/g to the identity";
    assert!(message.contains(advice), "{message}");
    assert!(explain(&error(ArmErrorClass::Forbidden, "LinkedAuthorizationFailed", "no")).message.contains("`join/action`"));
}

#[test]
fn the_next_move_follows_class_and_code() {
    for (class, code, next) in [
        (ArmErrorClass::QuotaExceeded, "PublicIPCountLimitReached", "invalid"),
        (ArmErrorClass::QuotaExceeded, "SomeNewLimitReached", "invalid"),
        (ArmErrorClass::Invalid, "SubnetIsFull", "invalid"),
        (ArmErrorClass::Invalid, "NobodyKnowsThis", "invalid"),
        // The Service that has the address may be about to be deleted.
        (ArmErrorClass::Invalid, "PrivateIPAddressIsAllocated", "failed"),
        (ArmErrorClass::Invalid, "DnsRecordInUse", "failed"),
        (ArmErrorClass::Forbidden, "AuthorizationFailed", "failed"),
        (ArmErrorClass::Forbidden, "ScopeLocked", "invalid"),
        (ArmErrorClass::ParentNotFound, "ResourceGroupBeingDeleted", "invalid"),
        (ArmErrorClass::Throttled, "TooManyRequests", "retry_after"),
        (ArmErrorClass::Busy, "ReferencedResourceNotProvisioned", "retry_after"),
        (ArmErrorClass::Conflict, "PreconditionFailed", "failed"),
        (ArmErrorClass::Transient, "", "failed"),
        (ArmErrorClass::OutcomeUnknown, "", "failed"),
        (ArmErrorClass::NotLeader, "", "not_leader"),
        (ArmErrorClass::NotLeader, "SubnetIsFull", "not_leader"),
        (ArmErrorClass::NotFound, "ResourceNotFound", "failed"),
    ] {
        let told = cloud_error("create it", error(class, code, "m"));
        assert_eq!(told.class(), next, "{class:?} {code}");
        assert!(told.to_string().contains(": create it: PUT /subscriptions/"), "{told}");
    }
    let waits = ArmError { retry_after: Some(Duration::from_secs(7)), ..error(ArmErrorClass::Throttled, "", "m") };
    assert!(matches!(cloud_error("x", waits), CloudError::RetryAfter { after, .. } if after.as_secs() == 7));
}

#[test]
fn a_code_inside_the_message_is_found_but_plain_words_are_not() {
    let nested =
        error(ArmErrorClass::Invalid, "InvalidTemplateDeployment", "it failed: SecurityRuleConflict: same priority");
    assert_eq!(explain(&nested).reason, "SecurityRuleConflict");
    assert_eq!(
        explain(&error(ArmErrorClass::Invalid, "Other", "the queue throttled the scopelocked item")).reason,
        "InvalidRequest"
    );
}

#[test]
fn the_table_is_sound_and_every_code_is_on_the_page() {
    let codes: Vec<_> = CODES.iter().flat_map(ArmErrorEntry::names).map(str::to_ascii_lowercase).collect();
    assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), codes.len(), "a code stands in one row");
    let reasons: BTreeSet<_> = CODES.iter().map(|row| row.reason).collect();
    assert_eq!(reasons.len(), CODES.len());
    assert!(CODES.iter().all(|row| row.fix.ends_with('.')));
    let page = reference_page();
    for row in CODES {
        let start = format!("| `{}` | `{}`", row.reason, row.codes[0].0);
        let lines: Vec<_> = page.lines().filter(|line| line.starts_with(&start)).collect();
        assert!(lines.len() == 1 && lines[0].matches('|').count() == 5, "{start}");
    }
}

fn services(count: u32) -> Vec<ServiceIdentity> {
    let uid = |number| format!("{number:08x}-8d7e-4b90-9a41-2c5d7e8f9a01");
    (0..count).map(|number| naming::identity("default", &format!("s{number}"), &uid(number))).collect()
}

#[test]
fn services_are_blamed_by_the_names_of_their_parts() {
    let all = services(500);
    let (first, second) = (&all[7].name_prefix, &all[300].name_prefix);
    for (message, keys) in [
        (format!("rule {first}-TCP-80 and rule {second}-TCP-80-IPv6 collide"), vec!["default/s300", "default/s7"]),
        (format!("front end '{}' is bad", first.to_uppercase()), vec!["default/s7"]),
        (format!("{REQUEST}/frontendIPConfigurations/{first}-apps refers to nothing"), vec!["default/s7"]),
        (format!("public IP kubernetes-{first} is in use; kubernetes-{first} again"), vec!["default/s7"]),
        // Truncated, because the cluster's name is long.
        (format!("public IP {}-{}-IPv6 is in use", "c".repeat(40), &second[..20]), vec!["default/s300"]),
        (format!("x{first} and {first}0 and a000"), vec![]),
        ("nobody".to_owned(), vec![]),
    ] {
        let blamed = named_services(&error(ArmErrorClass::Invalid, "X", &message), all.iter());
        assert_eq!(blamed.iter().map(|identity| identity.key.as_str()).collect::<Vec<_>>(), keys, "{message}");
    }
    let mut asked = error(ArmErrorClass::Invalid, "X", "no");
    asked.request =
        format!("PUT /subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/kubernetes-{first}");
    assert_eq!(named_services(&asked, all.iter()), [all[7].clone()]);
}

#[test]
fn a_cut_name_that_several_could_have_blames_nobody() {
    let twins: Vec<_> = ["00000000-8d7e-4b90-9a41-2c5d7e8f9a01", "00000000-8d7e-4b90-9a41-ffffffffffff"]
        .map(|uid| naming::identity("d", uid, uid))
        .into();
    let cut = error(ArmErrorClass::Invalid, "X", &format!("public IP c-{}", &twins[0].name_prefix[..18]));
    assert_eq!(named_services(&cut, twins.iter()), []);
}

#[test]
fn few_who_ask_for_what_the_message_mentions_are_suspected() {
    let numbered =
        |number: i32| samples::pinned(&format!("10.0.0.{}", 10 + number), samples::internal(&format!("s{number}")));
    let mut all: Vec<ServiceSpec> = (0..9).map(numbered).collect();
    all[3].ports.push(samples::port(Protocol::Tcp, 6666, 30666));
    all[4].access.tags.push("NoSuchTag".into());
    all[5].access.ranges.push("203.0.113.0/24".parse().unwrap());
    all[6].public_ip.dns_label = Some("taken".into());
    for spec in &mut all[..6] {
        spec.subnet = Some("apps".into());
    }
    for (message, keys) in [
        ("A rule with port 6666 is not allowed.", vec!["default/s3"]),
        ("port '30666', tag \"nosuchtag\": no", vec!["default/s3", "default/s4"]),
        ("PrivateIPAddressInUse: 10.0.0.12.", vec!["default/s2"]),
        ("the range [203.0.113.0/24] overlaps", vec!["default/s5"]),
        ("The label (taken) is in use; port 80", vec!["default/s6"]),
        ("port 80 is what all have, and subnet apps is what many have", vec![]),
        ("10.0.0.10, 10.0.0.11, 10.0.0.12, 10.0.0.13 and 10.0.0.14 are in use", vec![]),
        ("166660 and taken-too", vec![]),
        ("", vec![]),
    ] {
        let suspected = suspected_services(&error(ArmErrorClass::Invalid, "X", message), all.iter());
        assert_eq!(suspected.iter().map(|identity| identity.key.as_str()).collect::<Vec<_>>(), keys, "{message}");
    }
}

#[test]
fn the_public_ip_to_write_again_is_found() {
    let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/pip";
    let message = format!(
        "Cannot proceed with operation because resource {id} used by resource {} is not in Succeeded state. \
         Resource is in Failed state.",
        REQUEST.trim_start_matches("PUT ")
    );
    let found = |code: &str, message: &str| unprovisioned_public_ip(&error(ArmErrorClass::Busy, code, message));
    let wanted = ResourceId::parse(id).unwrap();
    assert_eq!(found("ReferencedResourceNotProvisioned", &message), Some(wanted.clone()));
    assert_eq!(found("RetryableError", &format!("ReferencedResourceNotProvisioned: ('{id}').")), Some(wanted));
    let told = |code: &str| cloud_error("x", error(ArmErrorClass::Busy, code, &message)).class();
    assert_eq!((told("ReferencedResourceNotProvisioned"), told("RetryableError")), ("failed", "retry_after"));
    assert_eq!(found("RetryableError", &message), None);
    assert_eq!(found("ReferencedResourceNotProvisioned", REQUEST), None);
}

#[tokio::test(start_paused = true)]
async fn a_delay_names_the_quota_or_the_share() {
    let clock = Clock::manual("2026-01-01T00:01:00Z".parse().unwrap());
    let (now, seconds) = (clock.now(), Duration::from_secs);
    let text = |share_since| {
        let (quota, subscription, until) = ("network-writes".to_owned(), "s".to_owned(), now + seconds(30));
        delay(&RequestDelay { quota, subscription, until, share_since }, "web", clock).unwrap()
    };
    assert!(text(None).contains("request quota network-writes of subscription s until 2026-01-01T00:01:30Z"));
    let share = text(Some(now - seconds(20)));
    let start =
        "Namespace web has used its share of the request quota network-writes of subscription s; since 2026-01-01T00:00:40Z";
    assert!(share.starts_with(start), "{share}");
}
