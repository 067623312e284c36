//! Documents of ARM, with and without fields that we do not model: a read and a write through the client change nothing.

use std::collections::BTreeMap;

use cloud_controller_manager::{
    providers::azure::{
        arm::Precondition,
        model::{ApiType, ResourceId, api, compute, network},
    },
    runtime::clock::Clock,
    sandbox::azure::{AzureOptions, topology::Topology, world::World},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::golden::{case::State, corpus, replica};

/// Converts a document from JSON to its type and back.
fn round_trip<D: DeserializeOwned + Serialize>(document: &Value) -> Value {
    let typed: D = serde_json::from_value(document.clone()).expect("a document");
    serde_json::to_value(typed).expect("a value")
}

type RoundTrip = fn(&Value) -> Value;

const TYPES: [(&ApiType, RoundTrip); 7] = [
    (&api::SCALE_SETS, round_trip::<compute::VirtualMachineScaleSet>),
    (&api::SCALE_SET_VMS, round_trip::<compute::VirtualMachineScaleSetVm>),
    (&api::INTERFACES, round_trip::<network::NetworkInterface>),
    (&api::PUBLIC_IPS, round_trip::<network::PublicIpAddress>),
    (&api::LOAD_BALANCERS, round_trip::<network::ArmLoadBalancer>),
    (&api::SECURITY_GROUPS, round_trip::<network::NetworkSecurityGroup>),
    (&api::ROUTE_TABLES, round_trip::<network::RouteTable>),
];

/// Returns `value` with an unknown field in every object.
fn with_unknown_fields(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: serde_json::Map<_, _> =
                fields.iter().map(|(key, value)| (key.clone(), with_unknown_fields(value))).collect();
            fields.insert("zzUnknown".to_owned(), json!({"deep": [1, null, {"true": 1.5}], "": ""}));
            Value::Object(fields)
        }
        Value::Array(items) => Value::Array(items.iter().map(with_unknown_fields).collect()),
        other => other.clone(),
    }
}

/// Returns every recorded document of a modeled type once.
fn recorded() -> Vec<(&'static (&'static ApiType, RoundTrip), Value)> {
    let mut found = BTreeMap::new();
    let states = corpus::cases()
        .iter()
        .flat_map(|case| std::iter::once(&case.before).chain(case.steps.iter().map(|step| &step.after)));
    for (id, document) in states.flat_map(State::iter) {
        let id = ResourceId::parse(id).expect("an id");
        if let Some(kind) = TYPES.iter().find(|(kind, _)| id.is_type(kind.resource_type)) {
            found.insert(document.to_string(), (kind, document.clone()));
        }
    }
    found.into_values().collect()
}

#[test]
fn recorded_documents_keep_unknown_fields() {
    let recorded = recorded();
    for (kind, _) in &TYPES {
        let seen = recorded.iter().any(|((found, _), _)| found == kind);
        assert!(seen, "no document of type {}", kind.resource_type);
    }
    for ((kind, round_trip), document) in recorded {
        assert_eq!(round_trip(&document), document, "{}", kind.resource_type);
        // Tags are a map of texts, so an unknown field is not valid there.
        let mut extended = with_unknown_fields(&document);
        if let Some(tags) = document.get("tags") {
            extended["tags"] = tags.clone();
        }
        assert_eq!(round_trip(&extended), extended, "{}", kind.resource_type);
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_that_is_read_and_written_back_is_as_before() {
    let clock = Clock::manual("2026-01-01T00:00:00Z".parse().expect("a time"));
    let cloud = World::new(Topology::new(), AzureOptions::default(), clock).expect("a cloud");
    let client = replica::session(cloud.azure(), clock, &cloud.config(), Vec::new()).await.0.network;
    let group = cloud.topology().group_id();
    let id = group.resource(api::SECURITY_GROUPS.resource_type, &["strange"]);
    let document = json!({
        "id": id, "name": "strange", "type": api::SECURITY_GROUPS.resource_type, "location": cloud.topology().location,
        "tags": {"a": "b"}, "future": {"deep": [1, {"x": 1.5}]},
        "properties": {"provisioningState": "Succeeded", "flushConnection": true, "securityRules": [], "futureList": [{"y": []}]},
    });
    cloud.azure().put_document(document).expect("a document");
    let before = cloud.azure().document(id.as_str()).expect("the document");
    let read: network::NetworkSecurityGroup = client.get(&api::SECURITY_GROUPS, &id, &[]).await.expect("a read");
    let written =
        client.put(&api::SECURITY_GROUPS, &id, Precondition::unchanged(read.etag.as_deref()), &read).await.expect("a write");
    assert_ne!(written.etag, read.etag, "the write changes the etag");
    let after = cloud.azure().document(id.as_str()).expect("the document");
    assert_eq!(without_etags(after), without_etags(before));
}

/// Removes the etags of a document and of its parts.
fn without_etags(mut document: Value) -> Value {
    match &mut document {
        Value::Object(fields) => {
            fields.remove("etag");
            fields.values_mut().for_each(|value| *value = without_etags(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_etags(item.take())),
        _ => {}
    }
    document
}
