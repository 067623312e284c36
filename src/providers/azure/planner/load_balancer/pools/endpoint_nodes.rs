//! Which Nodes have endpoints of which Service, and when a change of that is due in back-end pools. Pure.
//!
//! In: EndpointSlices as they come and go, and moments. Out: for each requested Service the Nodes of all its slices. A published set remains
//! until changes have gathered for an interval: however often endpoints move, a pool is written once in each. Slices are written by the users of the
//! cluster: only those of requested Services are kept, each Node as a digest of 8 bytes, and a changed slice costs time proportional to its own size. The
//! slices of a Service are put together once in an interval.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::time::Instant;

use crate::cloud_provider::endpoint_digests::{digest, digests};

/// The label that names the Service of an EndpointSlice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Nodes that may be behind a Service with policy `Local`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EndpointNodes {
    /// The Service has no EndpointSlice: those of all Nodes that may be behind load balancers.
    All,
    /// Only these, by digest of the name, in order: a slice without endpoints leaves none.
    Only(Arc<[u64]>),
}

impl EndpointNodes {
    /// Returns the Nodes with these names.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Only(in_order(names.into_iter().map(digest).collect()))
    }

    /// Whether the Node of this name is one of them.
    pub fn contains(&self, node: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(nodes) => nodes.binary_search(&digest(node)).is_ok(),
        }
    }
}

/// Returns each of the digests once, in order.
fn in_order(mut digests: Vec<u64>) -> Arc<[u64]> {
    digests.sort_unstable();
    digests.dedup();
    digests.into()
}

/// `namespace/name` of a Service, in lower case.
type ServiceKey = String;

/// Endpoints of one requested Service.
#[derive(Debug)]
struct ServiceEndpoints {
    /// Digests of the Nodes of each slice, in order, by name of the slice.
    slices: BTreeMap<String, Arc<[u64]>>,
    published: EndpointNodes,
}

impl ServiceEndpoints {
    /// Returns the endpoints of `slices`, published at once.
    fn of<'a>(slices: impl Iterator<Item = &'a EndpointSlice>) -> Self {
        let slices = slices.map(|slice| (name_of(slice), digests(slice).into())).collect();
        let mut endpoints = Self { slices, published: EndpointNodes::All };
        endpoints.publish();
        endpoints
    }

    /// Replaces the Nodes of a slice; `None`: it is gone. Returns whether they are others than before.
    fn put(&mut self, slice: String, nodes: Option<Arc<[u64]>>) -> bool {
        match nodes {
            Some(new) => self.slices.insert(slice, Arc::clone(&new)) != Some(new),
            None => self.slices.remove(&slice).is_some(),
        }
    }

    /// Returns the Nodes of all slices. Those of a single slice are not copied.
    fn present(&self) -> EndpointNodes {
        let mut slices = self.slices.values();
        match (slices.next(), slices.len()) {
            (None, _) => EndpointNodes::All,
            (Some(only), 0) => EndpointNodes::Only(Arc::clone(only)),
            (Some(_), _) => {
                EndpointNodes::Only(in_order(self.slices.values().flat_map(|nodes| nodes.iter().copied()).collect()))
            }
        }
    }

    /// Publishes the present Nodes. Returns whether they are others than before.
    fn publish(&mut self) -> bool {
        let present = self.present();
        std::mem::replace(&mut self.published, present) != self.published
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct EndpointNodeIndex {
    /// Requested Services.
    services: BTreeMap<ServiceKey, ServiceEndpoints>,
    /// Services of which a slice has changed since the last publication.
    changed: BTreeSet<ServiceKey>,
    since: Option<Instant>,
    publications: u64,
}

impl EndpointNodeIndex {
    /// Takes note of a slice that is there now. `before`: the same slice as it was.
    pub fn replace(&mut self, before: Option<&EndpointSlice>, now_there: Option<&EndpointSlice>, now: Instant) {
        for slice in [before, now_there].into_iter().flatten() {
            let Some(key) = service_of(slice) else { continue };
            let Some(service) = self.services.get_mut(&key) else { continue };
            let is_there = now_there.is_some_and(|there| service_of(there).as_ref() == Some(&key));
            if service.put(name_of(slice), now_there.filter(|_| is_there).map(|there| digests(there).into())) {
                self.changed.insert(key);
                self.since.get_or_insert(now);
            }
        }
    }

    /// Returns the Nodes of these Services, by their keys as given. A Service that is new here is read from `slices`, all that there are; one that
    /// is no longer requested is forgotten.
    pub fn nodes_of(
        &mut self,
        services: &BTreeSet<String>,
        slices: impl FnOnce() -> Vec<Arc<EndpointSlice>>,
    ) -> BTreeMap<String, EndpointNodes> {
        let keys: BTreeSet<ServiceKey> = services.iter().map(|service| service.to_lowercase()).collect();
        self.services.retain(|key, _| keys.contains(key));
        let new: BTreeSet<_> = keys.into_iter().filter(|key| !self.services.contains_key(key)).collect();
        if !new.is_empty() {
            self.publications = self.publications.wrapping_add(1);
            self.begin(new, &slices());
        }
        let found = services.iter().map(|service| (service.clone(), self.services.get(&service.to_lowercase())));
        found.filter_map(|(service, endpoints)| Some((service, endpoints?.published.clone()))).collect()
    }

    fn begin(&mut self, new: BTreeSet<ServiceKey>, slices: &[Arc<EndpointSlice>]) {
        let mut by_service: BTreeMap<ServiceKey, Vec<&EndpointSlice>> = BTreeMap::new();
        for slice in slices {
            if let Some(key) = service_of(slice).filter(|key| new.contains(key)) {
                by_service.entry(key).or_default().push(slice);
            }
        }
        for key in new {
            let slices = by_service.remove(&key).unwrap_or_default();
            self.services.insert(key, ServiceEndpoints::of(slices.into_iter()));
        }
    }

    /// When the changes that have gathered are due; `None`: there are none.
    pub fn due(&self, interval: Duration) -> Option<Instant> {
        self.since.map(|since| since + interval)
    }

    /// Publishes the present Nodes of all requested Services. Returns whether some Service has others than before.
    pub fn publish(&mut self) -> bool {
        self.since = None;
        let mut differs = false;
        for key in std::mem::take(&mut self.changed) {
            differs |= self.services.get_mut(&key).is_some_and(ServiceEndpoints::publish);
        }
        self.publications = self.publications.wrapping_add(u64::from(differs));
        differs
    }

    /// Counts up whenever a published set is another one.
    pub fn publications(&self) -> u64 {
        self.publications
    }
}

fn name_of(slice: &EndpointSlice) -> String {
    slice.metadata.name.clone().unwrap_or_default()
}

fn service_of(slice: &EndpointSlice) -> Option<ServiceKey> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    Some(format!("{}/{name}", slice.metadata.namespace.as_deref().unwrap_or_default()).to_lowercase())
}

#[cfg(test)]
mod tests;
