//! Tests of the index against a simple computation, and of its memory.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const INTERVAL: Duration = Duration::from_secs(30);

fn slice(name: &str, service: &str, nodes: &[&str]) -> EndpointSlice {
    let endpoints: Vec<_> = nodes.iter().map(|node| json!({"addresses": [], "nodeName": node})).collect();
    serde_json::from_value(json!({"addressType": "IPv4", "endpoints": endpoints,
        "metadata": {"namespace": "default", "name": name, "labels": {SERVICE_NAME: service}}}))
    .unwrap()
}

/// Slices of a cluster, and the index that follows them.
#[derive(Default)]
struct Cluster {
    slices: BTreeMap<String, EndpointSlice>,
    index: EndpointNodeIndex,
}

impl Cluster {
    fn put(&mut self, slice: &EndpointSlice, now: Instant) {
        let before = self.slices.insert(name_of(slice), slice.clone());
        self.index.replace(before.as_ref(), Some(slice), now);
    }

    fn delete(&mut self, name: &str, now: Instant) {
        let before = self.slices.remove(name);
        self.index.replace(before.as_ref(), None, now);
    }

    fn published(&mut self, service: &str) -> EndpointNodes {
        let slices = || self.slices.values().cloned().map(Arc::new).collect();
        self.index.nodes_of(&[format!("default/{service}")].into(), slices).into_values().next().unwrap()
    }

    /// Returns the Nodes of a Service, computed from all slices.
    fn naive(&self, service: &str) -> EndpointNodes {
        let key = format!("default/{service}").to_lowercase();
        let own: Vec<_> = self.slices.values().filter(|slice| service_of(slice).as_ref() == Some(&key)).collect();
        let nodes = own.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        let nodes = EndpointNodes::of(nodes.filter_map(|endpoint| endpoint.node_name.as_deref()));
        if own.is_empty() { EndpointNodes::All } else { nodes }
    }
}

#[test]
fn changes_gather_from_the_first_one_on() {
    let (mut cluster, start) = (Cluster::default(), Instant::now());
    let versions = [slice("one", "web", &["n1"]), slice("one", "web", &["n2"]), slice("one", "web", &["n3"])];
    cluster.put(&versions[0], start);
    let first = (cluster.index.due(INTERVAL), cluster.published("web"));
    assert_eq!(first, (None, EndpointNodes::of(["n1"])), "not requested before");
    let at = |seconds| start + Duration::from_secs(seconds);
    cluster.put(&versions[1], at(5));
    cluster.put(&versions[2], at(20));
    assert_eq!((cluster.index.due(INTERVAL), cluster.published("web")), (Some(at(35)), EndpointNodes::of(["n1"])));
    let before = cluster.index.publications();
    assert!(cluster.index.publish() && cluster.index.publications() > before && cluster.index.due(INTERVAL).is_none());
    assert_eq!(cluster.published("web"), EndpointNodes::of(["n3"]));

    // A change and its reversal before the publication are no change.
    cluster.put(&versions[0], at(40));
    cluster.put(&versions[2], at(41));
    assert!(!cluster.index.publish());
    // A Service that is no longer requested is forgotten.
    let none = cluster.index.nodes_of(&BTreeSet::new(), || panic!("nothing is new"));
    assert!(none.is_empty() && cluster.index.services.is_empty());
}

#[test]
fn endpoints_take_eight_bytes_each_and_those_of_unrequested_services_nothing() {
    let (mut cluster, now) = (Cluster::default(), Instant::now());
    let names: Vec<String> = (0..1_000).map(|node| format!("{node:0>225}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (0..50).for_each(|number| cluster.put(&slice(&format!("s{number}"), "web", &names), now));
    cluster.put(&slice("only", "api", &names), now);
    assert!(cluster.index.services.is_empty(), "nobody has requested it");
    let bytes = |nodes: &EndpointNodes| match nodes {
        EndpointNodes::All => 0,
        EndpointNodes::Only(nodes) => size_of_val::<[u64]>(nodes),
    };
    assert_eq!(bytes(&cluster.published("web")), 8_000);
    let service = cluster.index.services.get("default/web").unwrap();
    assert_eq!(service.slices.values().map(|nodes| size_of_val::<[u64]>(nodes)).sum::<usize>(), 50 * 8_000);

    let EndpointNodes::Only(published) = cluster.published("api") else { panic!("it has a slice") };
    let kept = cluster.index.services.get("default/api").unwrap().slices.get("only").unwrap();
    assert!(Arc::ptr_eq(&published, kept), "the Nodes of a single slice are kept once");
}

/// Returns operations: index of a slice; whether its Service is `web`; its Nodes, `None` to delete it; whether the changes
/// are published.
fn operations() -> impl Strategy<Value = Vec<(usize, bool, Option<Vec<usize>>, bool)>> {
    let nodes = proptest::option::weighted(0.8, proptest::collection::vec(0_usize..5, 0..5));
    proptest::collection::vec((0_usize..4, any::<bool>(), nodes, any::<bool>()), 0..40)
}

proptest! {
    #[test]
    fn the_index_agrees_with_the_naive_computation(operations in operations()) {
        let (mut cluster, now) = (Cluster::default(), Instant::now());
        let mut expected = cluster.published("web");
        for (name, is_web, nodes, publishes) in operations {
            let name = format!("s{name}");
            match nodes {
                Some(nodes) => {
                    let nodes: Vec<String> = nodes.iter().map(|node| format!("n{node}")).collect();
                    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
                    cluster.put(&slice(&name, if is_web { "web" } else { "api" }, &nodes), now);
                }
                None => cluster.delete(&name, now),
            }
            let naive = cluster.naive("web");
            prop_assert!(naive == expected || cluster.index.due(INTERVAL).is_some());
            if publishes {
                prop_assert_eq!(cluster.index.publish(), naive != expected);
                expected = naive;
            }
            prop_assert_eq!(cluster.published("web"), expected.clone());
        }
    }
}
