//! The entries of the configuration that each stand for an external and an internal load balancer. Pure.
//!
//! In: `multipleStandardLoadBalancerConfigurations`. Out: [`LoadBalancerEntry`], with selectors ready to match. Without the list there is one
//! entry, which takes everything. Upstream: `pkg/provider/config/multi_slb.go`.

use std::collections::BTreeSet;

use super::labels::LabelMatcher;
use crate::providers::azure::{
    config::{AzureConfig, LoadBalancerSku, MultipleStandardLoadBalancer},
    model::spelling,
};

/// One element of the list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadBalancerEntry {
    /// Name of the external load balancer.
    pub name: String,
    /// The scale set or availability set whose Nodes belong to it.
    pub primary_vm_set: String,
    /// `allowServicePlacement` is false: no Service comes, and those that are there stay.
    pub is_closed: bool,
    /// Which Services, by their labels.
    pub service_selector: Option<LabelMatcher>,
    /// Which Services, by the labels of their Namespace.
    pub namespace_selector: Option<LabelMatcher>,
    /// Which Nodes; an empty selector is none, as upstream.
    pub node_selector: Option<LabelMatcher>,
}

impl LoadBalancerEntry {
    /// The entry that there is without a list.
    pub fn implied(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Whether its external load balancer is called `external`.
    pub fn is_called(&self, external: &str) -> bool {
        spelling::same_name(&self.name, external)
    }

    /// Whether it says which Services it is for.
    pub fn has_selector(&self) -> bool {
        self.service_selector.is_some() || self.namespace_selector.is_some()
    }
}

/// The entries that count: only standard load balancers can be several.
pub fn entries(config: &AzureConfig) -> Vec<LoadBalancerEntry> {
    let is_standard = config.load_balancer_sku == LoadBalancerSku::Standard;
    let list = config.multiple_standard_load_balancer_configurations.iter().filter(|_| is_standard);
    list.map(entry).collect()
}

fn entry(configured: &MultipleStandardLoadBalancer) -> LoadBalancerEntry {
    LoadBalancerEntry {
        name: configured.name.clone(),
        primary_vm_set: configured.primary_vm_set.clone(),
        is_closed: configured.allow_service_placement == Some(false),
        service_selector: configured.service_label_selector.as_ref().map(LabelMatcher::new),
        namespace_selector: configured.service_namespace_selector.as_ref().map(LabelMatcher::new),
        node_selector: configured.node_selector.as_ref().map(LabelMatcher::new).filter(|selector| !selector.is_empty()),
    }
}

/// Returns the keys of the labels that a selector of some entry looks at.
pub fn label_keys(
    entries: &[LoadBalancerEntry],
    selector: fn(&LoadBalancerEntry) -> Option<&LabelMatcher>,
) -> BTreeSet<&str> {
    entries.iter().filter_map(selector).flat_map(LabelMatcher::keys).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::config::decode;

    #[test]
    fn what_is_absent_selects_nothing_and_an_empty_selector_of_services_everything() {
        let text = "multipleStandardLoadBalancerConfigurations: [{name: a, primaryVMSet: p, serviceLabelSelector: {}, nodeSelector: {}}, \
                    {name: b, allowServicePlacement: false, nodeSelector: {matchLabels: {k: v}}}]";
        let config = decode(text).config;
        let found = entries(&config);
        assert_eq!(found[0].service_selector, Some(LabelMatcher::default()));
        assert_eq!((found[0].has_selector(), found[0].is_closed, &found[0].node_selector), (true, false, &None));
        assert_eq!((found[1].has_selector(), found[1].is_closed, found[1].node_selector.is_some()), (false, true, true));
        assert_eq!(label_keys(&found, |entry| entry.node_selector.as_ref()), BTreeSet::from(["k"]));
        let basic = AzureConfig { load_balancer_sku: LoadBalancerSku::Basic, ..config };
        assert!(entries(&basic).is_empty());
    }
}
