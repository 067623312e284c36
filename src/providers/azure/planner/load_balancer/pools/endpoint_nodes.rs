//! Nodes with endpoints of each Service, and the time at which changes of these are due in backend pools. Pure.
//!
//! In: changes of EndpointSlices, and times. Out: for each requested Service, the Nodes of all its slices. Changes gather
//! for an interval before they are published, so that a pool is written at most once per interval. Users of the cluster
//! write the slices. The index therefore keeps only slices of requested Services, with a digest of 8 bytes per Node, and a
//! changed slice costs time proportional to its own size. The slices of a Service are merged once per interval.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::time::Instant;

use crate::cloud_provider::endpoint_digests::{digest, digests};

/// Label of an EndpointSlice with the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Nodes that may be behind a Service with policy `Local`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EndpointNodes {
    /// Every Node that may be behind load balancers, because the Service has no EndpointSlice.
    All,
    /// Nodes of the slices, as sorted digests of their names. Empty if no slice has endpoints.
    Only(Arc<[u64]>),
}

impl EndpointNodes {
    /// Returns the Nodes with these names.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Only(in_order(names.into_iter().map(digest).collect()))
    }

    /// Returns `true` if the Node of this name may be behind the Service.
    pub fn contains(&self, node: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(nodes) => nodes.binary_search(&digest(node)).is_ok(),
        }
    }
}

/// Returns each digest once, in ascending order.
fn in_order(mut digests: Vec<u64>) -> Arc<[u64]> {
    digests.sort_unstable();
    digests.dedup();
    digests.into()
}

/// Key of a Service, `namespace/name`, in lower case.
type ServiceKey = String;

/// Endpoints of one requested Service.
#[derive(Debug)]
struct ServiceEndpoints {
    /// Digests of the Nodes of each slice, in order, by name of the slice.
    slices: BTreeMap<String, Arc<[u64]>>,
    published: EndpointNodes,
}

impl ServiceEndpoints {
    /// Returns the endpoints of `slices`, which are published immediately.
    fn of<'a>(slices: impl Iterator<Item = &'a EndpointSlice>) -> Self {
        let slices = slices.map(|slice| (name_of(slice), digests(slice).into())).collect();
        let mut endpoints = Self { slices, published: EndpointNodes::All };
        endpoints.publish();
        endpoints
    }

    /// Replaces the Nodes of a slice; `None` removes the slice. Returns `true` if they changed.
    fn put(&mut self, slice: String, nodes: Option<Arc<[u64]>>) -> bool {
        match nodes {
            Some(new) => self.slices.insert(slice, Arc::clone(&new)) != Some(new),
            None => self.slices.remove(&slice).is_some(),
        }
    }

    /// Returns the Nodes of all slices. A single slice is shared, not copied.
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

    /// Publishes the present Nodes. Returns `true` if they changed.
    fn publish(&mut self) -> bool {
        let present = self.present();
        std::mem::replace(&mut self.published, present) != self.published
    }
}

/// Published Nodes of requested Services, and changes that are not published yet.
#[derive(Debug, Default)]
pub struct EndpointNodeIndex {
    services: BTreeMap<ServiceKey, ServiceEndpoints>,
    /// Services with slices that changed since the last publication.
    changed: BTreeSet<ServiceKey>,
    since: Option<Instant>,
    publications: u64,
}

impl EndpointNodeIndex {
    /// Records the change of a slice, given its versions before and after the change. `None` is a slice that does not exist.
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

    /// Returns the published Nodes of `services`, by their keys as given.
    ///
    /// A Service that is new here is read from `slices`, which returns all slices. A Service that is no longer requested is
    /// forgotten.
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

    /// Returns the time at which the gathered changes are due, or `None` without changes.
    pub fn due(&self, interval: Duration) -> Option<Instant> {
        self.since.map(|since| since + interval)
    }

    /// Publishes the present Nodes of all requested Services. Returns `true` if those of some Service changed.
    pub fn publish(&mut self) -> bool {
        self.since = None;
        let mut differs = false;
        for key in std::mem::take(&mut self.changed) {
            differs |= self.services.get_mut(&key).is_some_and(ServiceEndpoints::publish);
        }
        self.publications = self.publications.wrapping_add(u64::from(differs));
        differs
    }

    /// Returns the number of changes of published Nodes.
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
