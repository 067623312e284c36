//! Lookup of the lease's holder and its pod.

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, Client, Resource,
    api::ListParams,
    core::{Request, request},
};
use serde_json::Value;

use super::view::LeaseView;
use crate::runtime::client::with_causes;

/// Part of the name of a manager's container, in the manifests and charts of both programs.
const CONTAINER: &str = "cloud-controller-manager";

/// Maximum number of pods that are searched.
const MAX_PODS: u32 = 1000;

/// Pod of a manager, and the port that it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaderPod {
    pub(super) name: String,
    pub(super) port: u16,
}

pub(super) async fn lease(
    client: &Client,
    (namespace, name): &(String, String),
    now: jiff::Timestamp,
) -> Result<LeaseView, String> {
    let lease = Api::<Lease>::namespaced(client.clone(), namespace).get(name).await.map_err(|error| with_causes(&error))?;
    let spec = lease.spec.unwrap_or_default();
    let age = spec.renew_time.map(|time| now.as_second() - time.0.as_second());
    let lasts = i64::from(spec.lease_duration_seconds.unwrap_or_default());
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    Ok(LeaseView { is_held: holder.is_some() && age.is_some_and(|age| age <= lasts), holder, renewed_seconds_ago: age })
}

pub(super) async fn pod(client: &Client, namespace: &str, holder: &str, port: u16) -> Result<LeaderPod, String> {
    let pods = pods(client, namespace).await.map_err(|error| with_causes(&error))?;
    let found = choose(&pods, holder, port);
    found.ok_or_else(|| format!("no pod in {namespace} is {holder:?}, which holds the lease; --url names a manager"))
}

/// Lists the pods as untyped values: few of their fields are read, and their type is the largest of Kubernetes.
async fn pods(client: &Client, namespace: &str) -> Result<Vec<Value>, kube::Error> {
    let request = Request::new(Pod::url_path(&(), Some(namespace))).list(&ListParams::default().limit(MAX_PODS));
    let request = request.map_err(|error: request::Error| kube::Error::BuildRequest(error))?;
    let mut list = client.request::<Value>(request).await?;
    match list["items"].take() {
        Value::Array(pods) => Ok(pods),
        _ => Ok(Vec::new()),
    }
}

/// Returns the leader's pod. The holder's identity is its host name and a random suffix; pods on the host's network have the
/// host name of their Node.
fn choose(pods: &[Value], holder: &str, usual_port: u16) -> Option<LeaderPod> {
    let host = holder.rsplit_once('_').map_or(holder, |(host, _)| host);
    let on_node = |pod: &&Value| {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let is_running = pod["status"]["phase"] == "Running";
        is_running && port(pod, usual_port).is_some() && (node == host || node.split('.').next() == Some(host))
    };
    let named = pods.iter().find(|pod| name(pod) == host);
    let found = named.or_else(|| pods.iter().find(on_node))?;
    Some(LeaderPod { name: name(found).to_owned(), port: port(found, usual_port).unwrap_or(usual_port) })
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the port of the manager's container; `None` if the pod has no such container.
fn port(pod: &Value, usual: u16) -> Option<u16> {
    let is_manager = |container: &&Value| container["name"].as_str().is_some_and(|name| name.contains(CONTAINER));
    let container = items(&pod["spec"]["containers"]).find(is_manager)?;
    let mut words = items(&container["args"]).chain(items(&container["command"])).filter_map(Value::as_str);
    let flag = words.find_map(|word| word.strip_prefix("--secure-port="));
    let declared =
        || items(&container["ports"]).find_map(|port| port["containerPort"].as_u64().and_then(|port| port.try_into().ok()));
    Some(flag.and_then(|port| port.parse().ok()).or_else(declared).unwrap_or(usual))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "a value written in place")]
    fn pod(name: &str, node: &str, container: Value) -> Value {
        json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container]}, "status": {"phase": "Running"}})
    }

    #[test]
    fn the_holder_is_found_by_its_host_name() {
        let manager = |more: Value| {
            let mut container = json!({"name": "cloud-controller-manager"});
            container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            container
        };
        let pods = [
            pod("dns", "a", json!({"name": "dns"})),
            pod("ccm-1", "a", manager(json!({"ports": [{"containerPort": 10268}]}))),
            pod(
                "ccm-2",
                "b.example",
                manager(json!({"args": ["--v=2", "--secure-port=1"], "ports": [{"containerPort": 2}]})),
            ),
            pod("ccm-3", "c", manager(json!({}))),
        ];
        for (holder, expected) in [
            ("a_1", Some(("ccm-1", 10268))),
            ("b_1", Some(("ccm-2", 1))),
            ("b.example_1", Some(("ccm-2", 1))),
            ("ccm-3_1", Some(("ccm-3", 10258))),
            ("c", Some(("ccm-3", 10258))),
            ("d_1", None),
        ] {
            let expected = expected.map(|(name, port)| LeaderPod { name: name.to_owned(), port });
            assert_eq!(choose(&pods, holder, 10258), expected, "{holder}");
        }
    }
}
