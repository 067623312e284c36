//! The admission policy of cloud-node-manager, decoded with the types of the API and evaluated for requests in the form of the API server.
//! `tests/e2e` tests the policy on an API server that has the API.

use std::collections::HashMap;

use cel::{Context, Env};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    core::v1::{NodeSpec, NodeStatus},
};
use serde::de::{Deserializer, Error as _, Visitor, value};
use serde_json::json;

use super::*;

const POLICY: &str = "cloud-node-manager/admission/policy.yaml";
const ACCOUNT: &str = "system:serviceaccount:kube-system:cloud-node-manager";
const CLAIM: &str = "authentication.kubernetes.io/node-name";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

fn policy() -> ValidatingAdmissionPolicy {
    serde_json::from_value(documents(POLICY).remove(0)).unwrap()
}

/// Evaluates an expression.
fn evaluate(expression: &str, context: &Context<'_, '_>) -> cel::Value {
    let program = Env::stdlib().compile(expression).unwrap_or_else(|error| panic!("{expression}: {error:?}"));
    program.execute(context).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

/// Returns the reason why the policy denies a request, or `None`.
fn refusal(request: &Value, object: &Value, old: &Value) -> Option<String> {
    messages(&policy(), 1, [request, object, old]).pop()
}

/// Returns the first `most` messages of a policy for a request, its object and the old object. The API server evaluates variables when they
/// are used. This function evaluates all, so none may fail.
pub(super) fn messages(policy: &ValidatingAdmissionPolicy, most: usize, values: [&Value; 3]) -> Vec<String> {
    let spec = policy.spec.clone().unwrap();
    let mut context = Context::default();
    for (name, value) in ["request", "object", "oldObject"].into_iter().zip(values) {
        context.add_variable(name, value).unwrap();
    }
    if !spec
        .match_conditions
        .unwrap()
        .iter()
        .all(|condition| evaluate(&condition.expression, &context) == cel::Value::Bool(true))
    {
        return Vec::new();
    }
    let mut variables: HashMap<String, cel::Value> = HashMap::new();
    for variable in spec.variables.unwrap() {
        context.add_variable_from_value("variables", variables.clone());
        variables.insert(variable.name, evaluate(&variable.expression, &context));
    }
    context.add_variable_from_value("variables", variables);
    let failed = spec
        .validations
        .unwrap()
        .into_iter()
        .filter(|validation| evaluate(&validation.expression, &context) != cel::Value::Bool(true));
    let messages = failed.take(most).filter_map(|validation| match validation.message_expression {
        Some(expression) => Some(text(&expression, &context)),
        None => validation.message,
    });
    messages.collect()
}

fn text(expression: &str, context: &Context<'_, '_>) -> String {
    match evaluate(expression, context) {
        cel::Value::String(text) => text.to_string(),
        other => panic!("{expression}: {other:?}"),
    }
}

/// Returns a write request of the pod on node-1.
fn request(operation: &str, resource: &str, subresource: &str, name: &str) -> Value {
    json!({
        "operation": operation, "name": name, "subResource": subresource,
        "resource": {"group": "", "version": "v1", "resource": resource},
        "userInfo": {"username": ACCOUNT, "groups": ["system:serviceaccounts"], "extra": {CLAIM: ["node-1"]}},
    })
}

/// Returns a Node before its initialization.
fn uninitialized_node() -> Value {
    json!({
        "metadata": {
            "name": "node-1", "labels": {"kubernetes.io/hostname": "node-1", "pool": "a"}, "annotations": {"a": "b"},
            "finalizers": ["f"], "resourceVersion": "1",
        },
        "spec": {
            "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"],
            "taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}, {"key": "quarantine", "effect": "NoExecute"}],
        },
        "status": {
            "capacity": {"cpu": "4"}, "nodeInfo": {"systemUUID": "u"},
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}],
        },
    })
}

/// Returns [`uninitialized_node`] with the value at a JSON pointer set, or removed for null.
fn with(pointer: &str, value: Value) -> Value {
    let mut node = uninitialized_node();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = node.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    let key = key.replace("~1", "/");
    if value.is_null() {
        parent.remove(&key)
    } else {
        parent.insert(key, value)
    };
    node
}

fn update(subresource: &str, object: &Value) -> Option<String> {
    refusal(&request("UPDATE", "nodes", subresource, "node-1"), object, &uninitialized_node())
}

#[test]
fn the_component_is_part_of_cloud_node_manager() {
    assert_eq!(component(NODE_MANAGER)["components"], json!(["admission"]));
    assert_eq!(component("cloud-node-manager/admission")["resources"], json!(["policy.yaml"]));

    let [policy, binding] = <[Value; 2]>::try_from(documents(POLICY)).unwrap();
    assert_eq!(binding["spec"], json!({"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}));
    assert_eq!(policy["spec"]["failurePolicy"], "Fail");
    // The policy covers every write that RBAC allows the account.
    let rules = policy["spec"]["matchConstraints"]["resourceRules"].as_array().unwrap();
    for (_, _, resource, ..) in NODE_MANAGER_CALLS {
        let covers = |rule: &Value| {
            rule["apiGroups"] == json!([""])
                && rule["resources"].as_array().unwrap().contains(&json!(resource))
                && rule["operations"] == json!(["CREATE", "UPDATE", "DELETE"])
        };
        assert!(rules.iter().any(covers), "{resource}");
    }
}

#[test]
fn writes_of_cloud_node_manager_are_admitted() {
    assert_eq!(update("", &uninitialized_node()), None);
    let mut initialized = uninitialized_node();
    initialized["spec"]["providerID"] = json!("azure:///subscriptions/s");
    initialized["spec"]["taints"] = json!([{"key": "quarantine", "effect": "NoExecute"}]);
    for label in [
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.azure.com/fault-domain",
        "topology.kubernetes.azure.com/sub-fault-domain",
        "topology.kubernetes.azure.com/interconnect-group",
    ] {
        initialized["metadata"]["labels"][label] = json!("x");
    }
    assert_eq!(update("", &initialized), None);
    assert_eq!(refusal(&request("UPDATE", "nodes", "", "node-1"), &initialized, &initialized), None, "a second time");
    assert_eq!(update("", &with("/spec/taints", json!([{"key": "quarantine", "effect": "NoExecute"}]))), None);
    assert_eq!(update("status", &with("/status/addresses", json!([{"type": "InternalIP", "address": "10.0.0.4"}]))), None);
    let mut announced = uninitialized_node();
    let conditions = announced["status"]["conditions"].as_array_mut().unwrap();
    conditions.insert(0, json!({"type": "NetworkUnavailable", "status": "True"}));
    assert_eq!(update("status", &announced), None);
}

#[test]
fn other_nodes_and_tokens_without_a_node_are_refused() {
    let own = request("UPDATE", "nodes", "status", "node-1");
    assert_eq!(refusal(&own, &uninitialized_node(), &uninitialized_node()), None);
    for (operation, name) in [("UPDATE", "node-2"), ("DELETE", "node-1"), ("DELETE", "node-2"), ("CREATE", "node-1")] {
        let old = if operation == "CREATE" { Value::Null } else { uninitialized_node() };
        let object = if operation == "DELETE" { Value::Null } else { uninitialized_node() };
        let denial = refusal(&request(operation, "nodes", "", name), &object, &old);
        assert_eq!(denial.as_deref(), Some("cloud-node-manager may change only its own node, node-1"), "{operation} {name}");
    }
    for extra in [json!({}), json!({CLAIM: [""]}), json!({"another": ["node-1"]}), Value::Null] {
        let mut unbound = own.clone();
        if extra.is_null() {
            unbound["userInfo"].as_object_mut().unwrap().remove("extra");
        } else {
            unbound["userInfo"]["extra"] = extra;
        }
        let denial = refusal(&unbound, &uninitialized_node(), &uninitialized_node()).unwrap();
        assert!(denial.contains("names no node"), "{denial}");
        // The policy does not apply to other accounts.
        for user in ["system:node:node-2", "system:serviceaccount:kube-system:cloud-controller-manager", "admin"] {
            let mut other = unbound.clone();
            other["userInfo"]["username"] = json!(user);
            other["name"] = json!("node-2");
            assert_eq!(refusal(&other, &Value::Null, &uninitialized_node()), None, "{user}");
        }
    }
}

#[test]
fn events_are_about_the_own_node() {
    let about = |kind: &str, name: &str| json!({"involvedObject": {"kind": kind, "name": name}});
    let denial = |operation: &str, event: &Value| refusal(&request(operation, "events", "", "e"), event, &Value::Null);
    for operation in ["CREATE", "UPDATE"] {
        assert_eq!(denial(operation, &about("Node", "node-1")), None);
        for event in [about("Node", "node-2"), about("Pod", "node-1"), json!({"involvedObject": {}})] {
            assert!(
                denial(operation, &event).is_some_and(|message| message.contains("events about its own node, node-1")),
                "{event}"
            );
        }
    }
    assert!(denial("DELETE", &Value::Null).is_some());
    let mut newer = request("CREATE", "events", "", "e");
    newer["resource"]["group"] = json!("events.k8s.io");
    assert!(refusal(&newer, &json!({"regarding": {"kind": "Node", "name": "node-2"}}), &Value::Null).is_some());
}

#[test]
fn everything_else_about_the_own_node_is_refused() {
    let uninitialized = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
    let quarantine = json!({"key": "quarantine", "effect": "NoExecute"});
    let rows = [
        ("/metadata/labels/pool", json!("b"), "labels"),
        ("/metadata/labels/pool", Value::Null, "labels"),
        ("/metadata/labels/node-role.kubernetes.io~1control-plane", json!(""), "labels"),
        ("/metadata/labels", Value::Null, "labels"),
        ("/metadata/annotations", json!({"a": "c"}), "annotations"),
        ("/metadata/annotations", Value::Null, "annotations"),
        ("/metadata/finalizers", json!([]), "finalizers"),
        ("/metadata/ownerReferences", json!([{"name": "o"}]), "owners"),
        ("/spec/taints", json!([uninitialized]), "taint"),
        ("/spec/taints", Value::Null, "taint"),
        ("/spec/taints", json!([quarantine, uninitialized, {"key": "x", "effect": "NoExecute"}]), "taint"),
        ("/spec/taints", json!([{"key": "quarantine", "effect": "NoSchedule"}, uninitialized]), "taint"),
        ("/status/conditions", json!([{"type": "Ready", "status": "False"}]), "NetworkUnavailable"),
        ("/status/conditions", Value::Null, "NetworkUnavailable"),
        ("/status/nodeInfo", json!({"systemUUID": "another"}), "status"),
    ];
    for (pointer, value, expected) in rows {
        for subresource in ["", "status"] {
            let denial = update(subresource, &with(pointer, value.clone()));
            assert!(denial.as_ref().is_some_and(|denial| denial.contains(expected)), "{pointer} {value}: {denial:?}");
        }
    }
    let old = with("/spec/providerID", json!("azure://1"));
    let new = with("/spec/providerID", json!("azure://2"));
    let denial = refusal(&request("UPDATE", "nodes", "", "node-1"), &new, &old);
    assert!(denial.is_some_and(|denial| denial.contains("providerID once")));
}

/// Deserializer that records the names of a struct's fields.
struct FieldNames<'a>(&'a mut Vec<&'static str>);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
        Err(value::Error::custom("not a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, value::Error> {
        self.0.extend(fields);
        Err(value::Error::custom("the names are recorded"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

fn fields<T: DeserializeOwned>() -> Vec<&'static str> {
    let mut names = Vec::new();
    assert!(T::deserialize(FieldNames(&mut names)).is_err());
    assert!(!names.is_empty());
    names
}

/// A new field of a later Kubernetes version fails this test once k8s-openapi has it.
#[test]
fn the_policy_covers_every_field_of_a_node() {
    let parts = [
        ("spec", fields::<NodeSpec>(), ["providerID", "taints"]),
        ("status", fields::<NodeStatus>(), ["addresses", "conditions"]),
    ];
    for (part, fields, may_change) in parts {
        for field in fields.into_iter().filter(|field| !may_change.contains(field)) {
            let denial = update("status", &with(&format!("/{part}/{field}"), json!("changed")));
            assert!(denial.is_some_and(|denial| denial.contains(part)), "{part}.{field} may change");
        }
    }
}
