//! Tests of the guarantees of the fake cloud.

mod configuration;
mod instances;
mod load_balancers;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use serde_json::json;

use super::*;
use crate::{
    cloud_provider::{CloudError, conformance},
    runtime::{leader_election::Leadership, shutdown::Shutdown},
};

fn node(name: &str) -> Node {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn nodes(names: &[&str]) -> Vec<Arc<Node>> {
    names.iter().map(|name| Arc::new(node(name))).collect()
}

fn service_with(name: &str, spec: &serde_json::Value) -> Service {
    let metadata = json!({"namespace": "default", "name": name, "uid": format!("{name}-uid")});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn service(name: &str) -> Service {
    service_with(name, &json!({"ports": [{"port": 80, "nodePort": 30080}]}))
}

fn cloud(yaml: &str) -> FakeCloud {
    FakeCloud::new(FakeConfig::parse(yaml).unwrap())
}

fn context(leadership: Leadership) -> ProviderContext {
    conformance::context(leadership, Shutdown::new(), &[], &[]).unwrap()
}
