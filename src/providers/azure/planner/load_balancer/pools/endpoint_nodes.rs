//! Which Nodes have endpoints of which Service, and when a change of that is due in back-end pools. Pure.
//!
//! In: EndpointSlices as they come and go, and moments. Out: for each Service that is asked about the Nodes of all its slices. What was answered stays
//! the answer until changes have gathered for an interval: however often endpoints move, a pool is written once in each.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::time::Instant;

/// The label that names the Service of an EndpointSlice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Nodes that may be behind a Service with policy `Local`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EndpointNodes {
    /// No EndpointSlice tells of the Service: those of all Nodes that may be behind load balancers.
    All,
    /// Only these, by name: a slice without endpoints leaves none.
    Only(Arc<BTreeSet<String>>),
}

impl EndpointNodes {
    /// Whether the Node of this name is one of them.
    pub fn contains(&self, node: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(nodes) => nodes.contains(node),
        }
    }
}

/// `namespace/name` of a Service, in lower case.
type ServiceKey = String;

/// See the module.
#[derive(Debug, Default)]
pub struct EndpointNodeIndex {
    /// The Nodes of each slice, by name of the slice.
    slices: HashMap<ServiceKey, BTreeMap<String, BTreeSet<String>>>,
    /// What was last answered, for Services that are asked about.
    published: BTreeMap<ServiceKey, EndpointNodes>,
    /// Services of which another answer is due since then.
    changed: BTreeSet<ServiceKey>,
    since: Option<Instant>,
    publications: u64,
}

impl EndpointNodeIndex {
    /// Takes note of a slice that is there now. `before`: the same slice as it was.
    pub fn replace(&mut self, before: Option<&EndpointSlice>, now_there: Option<&EndpointSlice>, now: Instant) {
        for slice in [before, now_there].into_iter().flatten() {
            let Some(key) = service_of(slice) else { continue };
            let name = slice.metadata.name.clone().unwrap_or_default();
            let is_there = now_there.is_some_and(|there| service_of(there).as_ref() == Some(&key));
            let nodes = now_there.filter(|_| is_there).map(nodes_of);
            self.put(key, name, nodes, now);
        }
    }

    fn put(&mut self, key: ServiceKey, slice: String, nodes: Option<BTreeSet<String>>, now: Instant) {
        let slices = self.slices.entry(key.clone()).or_default();
        match nodes {
            Some(nodes) => drop(slices.insert(slice, nodes)),
            None => drop(slices.remove(&slice)),
        }
        if slices.is_empty() {
            self.slices.remove(&key);
        }
        let is_asked_about = self.published.get(&key);
        if is_asked_about.is_some_and(|published| *published != self.current(&key)) {
            self.changed.insert(key);
            self.since.get_or_insert(now);
        }
    }

    fn current(&self, key: &str) -> EndpointNodes {
        self.slices
            .get(key)
            .map_or(EndpointNodes::All, |slices| EndpointNodes::Only(Arc::new(slices.values().flatten().cloned().collect())))
    }

    /// The Nodes of these Services, by their keys as given. A Service that nobody has asked about before is answered as it is now, and one
    /// that is not asked about any more is forgotten.
    pub fn nodes_of(&mut self, services: &BTreeSet<String>) -> BTreeMap<String, EndpointNodes> {
        let keys: BTreeSet<ServiceKey> = services.iter().map(|service| service.to_lowercase()).collect();
        self.published.retain(|key, _| keys.contains(key));
        for key in keys {
            if !self.published.contains_key(&key) {
                self.published.insert(key.clone(), self.current(&key));
                self.publications = self.publications.wrapping_add(1);
            }
        }
        let found = services.iter().map(|service| (service.clone(), self.published.get(&service.to_lowercase()).cloned()));
        found.filter_map(|(service, nodes)| Some((service, nodes?))).collect()
    }

    /// When the changes that have gathered are due; `None`: there are none.
    pub fn due(&self, interval: Duration) -> Option<Instant> {
        self.since.map(|since| since + interval)
    }

    /// From now on, all are answered as they are now. Answers whether that is another answer than before for somebody.
    pub fn publish(&mut self) -> bool {
        self.since = None;
        let mut differs = false;
        for key in std::mem::take(&mut self.changed) {
            let current = self.current(&key);
            if let Some(published) = self.published.get_mut(&key).filter(|published| **published != current) {
                *published = current;
                differs = true;
            }
        }
        self.publications = self.publications.wrapping_add(u64::from(differs));
        differs
    }

    /// Counts up whenever some answer is another one.
    pub fn publications(&self) -> u64 {
        self.publications
    }
}

fn service_of(slice: &EndpointSlice) -> Option<ServiceKey> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    Some(format!("{}/{name}", slice.metadata.namespace.as_deref().unwrap_or_default()).to_lowercase())
}

fn nodes_of(slice: &EndpointSlice) -> BTreeSet<String> {
    slice.endpoints.iter().flatten().filter_map(|endpoint| endpoint.node_name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    fn slice(name: &str, service: &str, nodes: &[&str]) -> EndpointSlice {
        let endpoints: Vec<_> = nodes.iter().map(|node| json!({"addresses": [], "nodeName": node})).collect();
        serde_json::from_value(json!({"addressType": "IPv4", "endpoints": endpoints,
            "metadata": {"namespace": "default", "name": name, "labels": {SERVICE_NAME: service}}}))
        .unwrap()
    }

    fn asked(index: &mut EndpointNodeIndex, service: &str) -> Option<Vec<String>> {
        let found = index.nodes_of(&[format!("default/{service}")].into());
        match found.into_values().next().unwrap() {
            EndpointNodes::All => None,
            EndpointNodes::Only(nodes) => Some(nodes.iter().cloned().collect()),
        }
    }

    #[test]
    fn all_slices_of_a_service_count_and_none_means_all_nodes() {
        let (mut index, now) = (EndpointNodeIndex::default(), Instant::now());
        assert_eq!(asked(&mut index, "web"), None);
        let step = |index: &mut EndpointNodeIndex, before: Option<&EndpointSlice>, there: Option<&EndpointSlice>| {
            index.replace(before, there, now);
            index.publish();
            asked(index, "web")
        };
        let (one, two) = (slice("one", "web", &["n1", "n2"]), slice("two", "web", &["n2", "n3"]));
        assert_eq!(step(&mut index, None, Some(&one)), Some(vec!["n1".into(), "n2".into()]));
        assert_eq!(step(&mut index, None, Some(&two)), Some(vec!["n1".into(), "n2".into(), "n3".into()]));
        let moved = slice("one", "web", &["n4"]);
        // `n2` has endpoints in the other slice still.
        assert_eq!(step(&mut index, Some(&one), Some(&moved)), Some(vec!["n2".into(), "n3".into(), "n4".into()]));
        let elsewhere = slice("two", "api", &["n9"]);
        assert_eq!(step(&mut index, Some(&two), Some(&elsewhere)), Some(vec!["n4".into()]));
        let empty = slice("one", "web", &[]);
        assert_eq!(step(&mut index, Some(&moved), Some(&empty)), Some(Vec::new()));
        assert_eq!(step(&mut index, Some(&empty), None), None);
        assert_eq!(asked(&mut index, "API"), Some(vec!["n9".into()]));
    }

    #[test]
    fn changes_gather_from_the_first_one_on() {
        let (mut index, start) = (EndpointNodeIndex::default(), Instant::now());
        let versions = [slice("one", "web", &["n1"]), slice("one", "web", &["n2"]), slice("one", "web", &["n3"])];
        index.replace(None, Some(&versions[0]), start);
        assert_eq!((index.due(INTERVAL), asked(&mut index, "web")), (None, Some(vec!["n1".into()])), "nobody had asked");
        let at = |seconds| start + Duration::from_secs(seconds);
        index.replace(Some(&versions[0]), Some(&versions[1]), at(5));
        index.replace(Some(&versions[1]), Some(&versions[2]), at(20));
        assert_eq!((index.due(INTERVAL), asked(&mut index, "web")), (Some(at(35)), Some(vec!["n1".into()])));
        let before = index.publications();
        assert!(index.publish() && index.publications() > before && index.due(INTERVAL).is_none());
        assert_eq!(asked(&mut index, "web"), Some(vec!["n3".into()]));

        // There and back again is no change.
        index.replace(Some(&versions[2]), Some(&versions[0]), at(40));
        index.replace(Some(&versions[0]), Some(&versions[2]), at(41));
        assert!(!index.publish());
        // What nobody asks about is forgotten.
        assert!(index.nodes_of(&BTreeSet::new()).is_empty() && index.published.is_empty());
    }
}
