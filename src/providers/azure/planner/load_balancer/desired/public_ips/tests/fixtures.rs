//! Services, public IPs and a simulated cloud that applies a [`PublicIpPlan`].

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::super::{PublicIpPlan, plan_public_ips};
use crate::providers::azure::{
    model::{ResourceId, network::PublicIpAddress},
    planner::load_balancer::{
        desired::{ServiceRequest, samples},
        naming,
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{IpFamily, ServiceIdentity, ServiceSpec},
    },
};

/// Resource group in the settings of the samples.
pub(super) const RG: &str = "/subscriptions/SUB/resourceGroups/RG";

pub(super) fn who(name: &str) -> ServiceIdentity {
    naming::identity("default", name, &format!("{name}-uid"))
}

/// Returns an external IPv4 Service without further requests.
pub(super) fn service(name: &str) -> ServiceSpec {
    samples::bare(who(name), ResourceId::parse(RG).unwrap())
}

pub(super) fn with(name: &str, change: impl FnOnce(&mut ServiceSpec)) -> ServiceSpec {
    let mut spec = service(name);
    change(&mut spec);
    spec
}

pub(super) fn pinned(name: &str, address: &str) -> ServiceSpec {
    samples::pinned(address, service(name))
}

pub(super) fn ensure(spec: ServiceSpec) -> ServiceRequest {
    ServiceRequest::Ensure(Arc::new(spec))
}

pub(super) fn remove(spec: &ServiceSpec) -> ServiceRequest {
    ServiceRequest::Delete(spec.identity.clone(), Some(Arc::new(spec.clone())))
}

/// Returns a public IP in the cluster's group, with `tags` and further `properties`.
pub(super) fn pip(name: &str, address: &str, tags: &Value, properties: &Value) -> PublicIpAddress {
    pip_in(RG, name, address, tags, properties)
}

pub(super) fn pip_in(group: &str, name: &str, address: &str, tags: &Value, properties: &Value) -> PublicIpAddress {
    let version = if address.contains(':') { "IPv6" } else { "IPv4" };
    let mut document = json!({
        "id": format!("{group}/providers/Microsoft.Network/publicIPAddresses/{name}"), "name": name, "etag": "e1",
        "location": "eastus", "sku": {"name": "StandardV2", "tier": "Regional"}, "tags": tags, "unknown": {"kept": [1]},
        "properties": {"ipAddress": address, "publicIPAddressVersion": version, "publicIPAllocationMethod": "Static",
            "ddosSettings": {"protectionMode": "VirtualNetworkInherited"}, "ipTags": []}
    });
    document["properties"].as_object_mut().unwrap().extend(properties.as_object().unwrap().clone());
    serde_json::from_value(document).unwrap()
}

/// Returns the tags of a managed public IP.
pub(super) fn used_by(services: &str) -> Value {
    json!({"k8s-azure-service": services, "k8s-azure-cluster-name": "kubernetes"})
}

/// Public IPs as ARM stores them.
pub(super) struct World {
    pub(super) observed: ObservedNetwork,
    pub(super) settings: LoadBalancerSettings,
    next: u8,
}

impl World {
    pub(super) fn of(pips: Vec<PublicIpAddress>) -> Self {
        let observed =
            ObservedNetwork { public_ips: pips, zones: vec!["1".into(), "2".into()], ..ObservedNetwork::default() };
        Self { observed, settings: samples::settings(), next: 100 }
    }

    pub(super) fn plan(&self, asks: &[ServiceRequest], others: &[ServiceSpec]) -> PublicIpPlan {
        let others: Vec<_> = others.iter().cloned().map(Arc::new).collect();
        plan_public_ips(&self.observed, asks, &others, &self.settings)
    }

    /// Applies the plan as if the load balancers had been written, too.
    pub(super) fn apply(&mut self, outcome: &PublicIpPlan) {
        for change in &outcome.writes {
            let mut document = change.document.clone();
            document.id = Some(change.id.as_str().to_owned());
            let properties = document.properties.get_or_insert_default();
            let is_six = properties.public_ip_address_version.as_deref() == Some("IPv6");
            if properties.ip_address.is_none() {
                self.next += 1;
                properties.ip_address = Some(format!("{}{}", if is_six { "2001:db8::" } else { "20.0.0." }, self.next));
            }
            self.remove(&change.id);
            self.observed.public_ips.push(document);
        }
        for release in &outcome.releases {
            self.remove(&release.id);
        }
    }

    fn remove(&mut self, id: &ResourceId) {
        self.observed.public_ips.retain(|pip| !pip.id.as_deref().unwrap().eq_ignore_ascii_case(id.as_str()));
    }

    /// Plans and applies until the plan has no changes. Returns the first plan.
    pub(super) fn settle(&mut self, asks: &[ServiceRequest], others: &[ServiceSpec]) -> PublicIpPlan {
        let first = self.plan(asks, others);
        self.apply(&first);
        for _ in 0..2 {
            let next = self.plan(asks, others);
            self.apply(&next);
        }
        let last = self.plan(asks, others);
        assert!(last.writes.is_empty() && last.releases.is_empty(), "not settled: {last:#?}");
        first
    }

    pub(super) fn get(&self, name: &str) -> Option<&PublicIpAddress> {
        self.observed.public_ips.iter().find(|pip| pip.name.as_deref() == Some(name))
    }

    pub(super) fn tags(&self, name: &str) -> BTreeMap<String, String> {
        let tags = self.get(name).unwrap().tags.clone().unwrap_or_default();
        tags.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect()
    }

    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.observed.public_ips.iter().map(|pip| pip.name.as_deref().unwrap()).collect();
        names.sort_unstable();
        names
    }
}

/// Returns the generated name of the Service's public IP.
pub(super) fn name_of(name: &str) -> String {
    format!("kubernetes-{}", who(name).name_prefix)
}

pub(super) fn wanted<'a>(outcome: &'a PublicIpPlan, name: &str, family: IpFamily) -> Option<&'a str> {
    outcome.assigned.get(&(who(name), family)).map(ResourceId::name)
}
