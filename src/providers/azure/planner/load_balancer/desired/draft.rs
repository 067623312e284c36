//! Load balancer during planning: the document from ARM, the changed document, and the reasons. Pure.

use std::collections::{BTreeSet, HashMap};

use crate::providers::azure::model::{
    ResourceId,
    network::{
        ArmLoadBalancer, BackendAddressPool, FrontendIpConfiguration, LoadBalancerProperties, LoadBalancingRule, Probe,
    },
};

pub(super) struct LoadBalancerDraft<'a> {
    pub(super) id: ResourceId,
    /// Whether the name is that of an internal load balancer.
    pub(super) internal: bool,
    /// Name without the suffix of internal load balancers.
    pub(super) external_name: String,
    /// Whether the name is one that the controller gives. Other load balancers are changed only where names of parts prove ownership.
    pub(super) is_ours: bool,
    /// Whether it has, or had, parts of Services, under a name that no load balancer of the cluster has now.
    pub(super) is_former: bool,
    /// Pools that were added for rules from a former load balancer, by name in lower case.
    pub(super) moved_pools: BTreeSet<String>,
    /// Document from ARM; `None` if the load balancer does not exist.
    pub(super) before: Option<&'a ArmLoadBalancer>,
    /// Document with the changes that were planned so far.
    pub(super) after: ArmLoadBalancer,
    /// Descriptions of the changes; empty if there are none.
    pub(super) reasons: Vec<String>,
}

impl LoadBalancerDraft<'_> {
    pub(super) fn properties_mut(&mut self) -> &mut LoadBalancerProperties {
        self.after.properties_mut()
    }

    /// Returns the frontends of the changed document.
    pub(super) fn frontends(&self) -> &[FrontendIpConfiguration] {
        frontends(&self.after)
    }

    /// Removes the frontends with these ids, in lower case, and returns them.
    pub(super) fn remove_frontends(&mut self, ids: &BTreeSet<String>) -> Vec<FrontendIpConfiguration> {
        let is_removed = |part: &FrontendIpConfiguration| ids.contains(&self.frontend_id(part).to_ascii_lowercase());
        let (removed, remaining): (Vec<_>, Vec<_>) = self.frontends().iter().cloned().partition(is_removed);
        if !removed.is_empty() {
            self.properties_mut().frontend_ip_configurations = Some(remaining);
        }
        removed
    }

    /// Returns the frontends that ARM sent.
    pub(super) fn frontends_before(&self) -> &[FrontendIpConfiguration] {
        self.before.map(frontends).unwrap_or_default()
    }

    /// Returns the rules of the changed document.
    pub(super) fn rules(&self) -> &[LoadBalancingRule] {
        rules(&self.after)
    }

    /// Returns the rules that ARM sent.
    pub(super) fn rules_before(&self) -> &[LoadBalancingRule] {
        self.before.map(rules).unwrap_or_default()
    }

    /// Returns the id of a frontend: ARM's, or the future id of a new frontend.
    pub(super) fn frontend_id(&self, frontend: &FrontendIpConfiguration) -> String {
        let composed = || self.id.child("frontendIPConfigurations", frontend.name.as_deref().unwrap_or_default());
        frontend.id.clone().unwrap_or_else(|| composed().as_str().to_owned())
    }
}

pub(super) fn frontends(document: &ArmLoadBalancer) -> &[FrontendIpConfiguration] {
    let properties = document.properties.as_ref();
    properties.and_then(|properties| properties.frontend_ip_configurations.as_deref()).unwrap_or_default()
}

pub(super) fn rules(document: &ArmLoadBalancer) -> &[LoadBalancingRule] {
    let properties = document.properties.as_ref();
    properties.and_then(|properties| properties.load_balancing_rules.as_deref()).unwrap_or_default()
}

pub fn pools(document: &ArmLoadBalancer) -> &[BackendAddressPool] {
    let properties = document.properties.as_ref();
    properties.and_then(|properties| properties.backend_address_pools.as_deref()).unwrap_or_default()
}

pub(super) fn probes(document: &ArmLoadBalancer) -> &[Probe] {
    document.properties.as_ref().and_then(|properties| properties.probes.as_deref()).unwrap_or_default()
}

const RULE: &str = "load balancing rule";
const OUTBOUND_RULE: &str = "outbound rule";
pub(super) const NAT_POOL: &str = "inbound NAT pool";

/// Part or resource that uses a frontend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrontendUse {
    /// `load balancing rule`, `outbound rule`, `inbound NAT rule`, `inbound NAT pool` or `private link service`.
    pub kind: &'static str,
    pub name: String,
}

impl FrontendUse {
    /// Creates the use by the private link service `name`.
    pub(super) fn of_link(name: String) -> Self {
        Self { kind: "private link service", name }
    }

    /// Returns `true` if the user is a load balancing rule, whose name can identify a Service.
    pub(super) fn is_rule(&self) -> bool {
        self.kind == RULE
    }

    pub(super) fn is_outbound_rule(&self) -> bool {
        self.kind == OUTBOUND_RULE
    }
}

/// Returns the uses of each frontend by its id in lower case.
pub(super) fn uses_by_frontend(document: &ArmLoadBalancer) -> HashMap<String, Vec<FrontendUse>> {
    let mut uses: HashMap<String, Vec<FrontendUse>> = HashMap::new();
    for (id, user) in frontend_uses(document) {
        uses.entry(id).or_default().push(user);
    }
    uses
}

/// Returns every use of a frontend, with the frontend's id in lower case.
pub(super) fn frontend_uses(document: &ArmLoadBalancer) -> Vec<(String, FrontendUse)> {
    let Some(properties) = &document.properties else { return Vec::new() };
    let mut uses = Vec::new();
    let mut add = |kind, name: Option<&str>, id: Option<&str>| {
        let user = FrontendUse { kind, name: name.unwrap_or_default().to_owned() };
        uses.extend(id.map(|id| (id.to_ascii_lowercase(), user)));
    };
    for rule in rules(document) {
        let frontend = rule.properties.as_ref().and_then(|properties| properties.frontend_ip_configuration.as_ref());
        add(RULE, rule.name.as_deref(), frontend.and_then(|id| id.id.as_deref()));
    }
    for rule in properties.outbound_rules.iter().flatten() {
        for frontend in rule.properties.iter().flat_map(|properties| properties.frontend_ip_configurations.iter().flatten())
        {
            add(OUTBOUND_RULE, rule.name.as_deref(), frontend.id.as_deref());
        }
    }
    for (kind, list) in [("inbound NAT rule", &properties.inbound_nat_rules), (NAT_POOL, &properties.inbound_nat_pools)] {
        for part in list.iter().flatten() {
            add(kind, part["name"].as_str(), part["properties"]["frontendIPConfiguration"]["id"].as_str());
        }
    }
    uses
}
