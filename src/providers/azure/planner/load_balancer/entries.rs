//! Entries of the configuration, each for an external and an internal load balancer. Pure.
//!
//! In: `multipleStandardLoadBalancerConfigurations`. Out: [`LoadBalancerEntry`], with selectors ready to match. Without the list, there is
//! one entry, which accepts every Service. Upstream: `pkg/provider/config/multi_slb.go`.

use std::collections::BTreeSet;

use super::labels::LabelMatcher;
use crate::providers::azure::{
    config::{AzureConfig, LoadBalancerSku, MultipleStandardLoadBalancer},
    model::spelling,
};

/// Element of the list of load balancers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadBalancerEntry {
    /// Name of the external load balancer.
    pub name: String,
    /// Scale set or availability set whose Nodes belong to the load balancers.
    pub primary_vm_set: String,
    /// Whether `allowServicePlacement` is false: no Service is added, and existing Services remain.
    pub is_closed: bool,
    /// Selector of Services by their labels.
    pub service_selector: Option<LabelMatcher>,
    /// Selector of Services by the labels of their Namespace.
    pub namespace_selector: Option<LabelMatcher>,
    /// Selector of Nodes; an empty selector counts as none, as upstream.
    pub node_selector: Option<LabelMatcher>,
}

impl LoadBalancerEntry {
    /// Returns the only entry of a configuration without a list.
    pub fn implied(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Returns `true` if the external load balancer is called `external`.
    pub fn is_called(&self, external: &str) -> bool {
        spelling::same_name(&self.name, external)
    }

    /// Returns `true` if the entry selects Services by labels.
    pub fn has_selector(&self) -> bool {
        self.service_selector.is_some() || self.namespace_selector.is_some()
    }
}

/// Returns the configured entries if load balancers are standard, else none: only standard load balancers can be several.
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

/// Returns the keys of the labels that a selector of some entry reads.
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
