//! Settings of load balancing from the configuration and the flags.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use super::{
    entries::{self, LoadBalancerEntry},
    naming,
    spec::{AdditionalIpPolicy, IpFamily, ServiceLimits},
    tag_list::{parse_tags, tag_value},
};
use crate::cloud_provider::{config::ClusterNetworks, load_balancer_class::LoadBalancerClasses};
use crate::providers::azure::{
    config::{AzureConfig, BackendPoolType, DriftPolicy, HealthProbeMode, LoadBalancerSku, VmType},
    model::{
        ResourceId,
        document::{ExtendedLocation, Extra},
        names, spelling,
    },
};

/// Inputs of the planner in addition to Services, Nodes and documents.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancerSettings {
    /// `--cluster-name`.
    pub cluster: String,
    /// Load balancer classes whose Services this manager serves.
    pub classes: LoadBalancerClasses,
    /// Addresses of Pods and Services, as far as flags name them.
    pub networks: ClusterNetworks,
    /// Resource group of the cluster, in the network subscription.
    pub group: ResourceId,
    /// Resource group of load balancers.
    pub load_balancer_group: ResourceId,
    /// Resource group of private link services, in the subscription of the instances.
    pub private_link_group: ResourceId,
    pub virtual_network: ResourceId,
    /// Name of the subnet of internal frontends.
    pub subnet: String,
    /// Network security group; `None`: the configuration names none.
    pub security_group: Option<ResourceId>,
    pub location: String,
    /// Whether the cloud is an Azure Stack, where any address may be that of a public IP.
    pub is_azure_stack: bool,
    /// Edge zone, if both of its fields are set.
    pub extended_location: Option<String>,
    /// SKU of load balancers and public IPs.
    pub sku: LoadBalancerSku,
    /// `loadBalancerName`; empty: the cluster's name.
    pub load_balancer_name: String,
    /// `multipleStandardLoadBalancerConfigurations`, if load balancers are standard; empty: there is one load balancer of each kind.
    pub entries: Vec<LoadBalancerEntry>,
    /// `moveServicesOnLabelChange`: whether an edit of labels alone moves Services.
    pub moves_by_labels: bool,
    /// Interval in which changes of endpoints are collected before the backend pools of single Services are updated.
    pub pool_update_interval: Duration,
    /// Kind of members of backend pools.
    pub pool_type: BackendPoolType,
    /// `preConfiguredBackendPoolLoadBalancerTypes`: whether pools of external and of internal load balancers are not changed.
    pub preconfigured: (bool, bool),
    /// Probes of Services with policy `Cluster`.
    pub probe_mode: HealthProbeMode,
    /// Port and path of the shared probe.
    pub shared_probe: (i32, String),
    /// Whether rules have `disableOutboundSnat`.
    pub disable_outbound_snat: bool,
    /// Whether control-plane Nodes are excluded from pools.
    pub exclude_control_plane: bool,
    /// Whether only instances of uniform scale sets count as Nodes.
    pub only_uniform: bool,
    /// Largest number of rules of a basic load balancer.
    pub maximum_rules: i32,
    /// Limit of the rules at one network interface, over all load balancers; `None`: no limit.
    pub interface_rules: Option<InterfaceRuleLimit>,
    /// `maximumPrivateLinkServiceCount`: largest number of private link services of one load balancer.
    pub private_links_per_load_balancer: usize,
    /// Limits of the shared resources that Services and namespaces may use.
    pub service_limits: ServiceLimits,
    /// Tags of shared resources (`tags` and `tagsMap` as one), in the spelling of the configuration.
    pub tags: BTreeMap<String, String>,
    /// Prefixes of the keys of tags that are kept; if there are any, other unlisted tags are removed.
    pub system_tags: Vec<String>,
    /// Whether IP tags of an existing public IP are changed in place.
    pub mutate_ip_tags: bool,
    /// Reaction to changes by other writers.
    pub drift_policy: DriftPolicy,
    /// Additional addresses that Services may claim.
    pub additional_public_ips: AdditionalIpPolicy,
    /// Resource groups, in addition to the cluster's own, in which Services may have public IPs; empty: every group.
    pub allowed_groups: Vec<String>,
    /// Whether a public IP that was not created for a Service must name the Service's namespace in a tag.
    ///
    /// A private address then needs the consent of the Service that has it.
    pub namespaces_are_enforced: bool,
    /// Fields of the configuration that request unsupported features: while there are any, no load balancer is changed.
    pub unsupported: Vec<&'static str>,
    /// Kind of the instances.
    pub vm_type: VmType,
    /// Primary scale set or availability set.
    pub primary_vm_set: String,
}

/// Azure's documented limit, "Rules per NIC (across all IPs on a NIC)". Azure may count rules differently from this program.
const INTERFACE_RULES: usize = 300;

/// Limit of the load balancing rules at one network interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceRuleLimit {
    pub count: usize,
    /// Whether `maximumNetworkInterfaceRuleCount` sets the limit. Otherwise, the limit applies after Azure rejected a request because of
    /// it.
    pub is_configured: bool,
}

impl LoadBalancerSettings {
    /// Returns the settings for the cluster called `cluster`.
    pub fn new(config: &AzureConfig, cluster: &str) -> Self {
        let or_own = |group: &str| if group.is_empty() { config.resource_group.clone() } else { group.to_owned() };
        let network = &config.network_resource_subscription_id;
        let subscription = if network.is_empty() { &config.subscription_id } else { network };
        let in_group = |group: &str| ResourceId::group_of(subscription, &or_own(group));
        let both = !config.extended_location_name.is_empty() && !config.extended_location_type.is_empty();
        let is_standard = config.load_balancer_sku == LoadBalancerSku::Standard;
        let preconfigured = config.pre_configured_backend_pool_load_balancer_types.as_str();
        let security_group = Some(config.security_group_name.as_str()).filter(|name| !name.is_empty());
        Self {
            cluster: cluster.to_owned(),
            classes: LoadBalancerClasses::default(),
            networks: ClusterNetworks::default(),
            group: in_group(""),
            load_balancer_group: in_group(&config.load_balancer_resource_group),
            private_link_group: ResourceId::group_of(
                &config.subscription_id,
                &or_own(&config.private_link_service_resource_group),
            ),
            virtual_network: in_group(&config.vnet_resource_group)
                .resource("Microsoft.Network/virtualNetworks", &[&config.vnet_name]),
            subnet: config.subnet_name.clone(),
            security_group: security_group.map(|name| {
                in_group(&config.security_group_resource_group).resource("Microsoft.Network/networkSecurityGroups", &[name])
            }),
            location: config.location.clone(),
            is_azure_stack: config.is_azure_stack(),
            extended_location: both.then(|| config.extended_location_name.clone()),
            sku: config.load_balancer_sku,
            load_balancer_name: config.load_balancer_name.clone(),
            entries: entries::entries(config),
            moves_by_labels: config.move_services_on_label_change,
            pool_update_interval: config.load_balancer_backend_pool_update_interval.0,
            pool_type: config.load_balancer_backend_pool_configuration_type,
            preconfigured: (matches!(preconfigured, "external" | "all"), matches!(preconfigured, "internal" | "all")),
            probe_mode: config.cluster_service_load_balancer_health_probe_mode,
            shared_probe: (
                config.cluster_service_shared_load_balancer_health_probe_port,
                config.cluster_service_shared_load_balancer_health_probe_path.clone(),
            ),
            disable_outbound_snat: is_standard && config.disable_outbound_snat.unwrap_or(false),
            exclude_control_plane: is_standard && config.exclude_master_from_standard_lb.unwrap_or(true),
            only_uniform: config.vm_type == VmType::Vmss
                && config.disable_availability_set_nodes
                && !config.enable_vmss_flex_nodes,
            maximum_rules: config.maximum_load_balancer_rule_count,
            interface_rules: interface_rules(config),
            private_links_per_load_balancer: usize::try_from(config.maximum_private_link_service_count).unwrap_or_default(),
            service_limits: service_limits(config),
            tags: tags(config),
            system_tags: split_list(&config.system_tags),
            mutate_ip_tags: config.enable_ip_tag_mutation_for_existing_public_ip,
            drift_policy: config.drift_policy,
            // An invalid text allows no address; the check of the configuration refuses the text anyway.
            additional_public_ips: match config.allowed_additional_public_ips.trim() {
                "" if config.multi_tenant => AdditionalIpPolicy::Within(Vec::new()),
                text => AdditionalIpPolicy::parse(text).unwrap_or(AdditionalIpPolicy::Within(Vec::new())),
            },
            allowed_groups: split_list(&config.allowed_public_ip_resource_groups),
            namespaces_are_enforced: config.enforce_public_ip_namespaces.unwrap_or(config.multi_tenant),
            unsupported: unsupported(config),
            vm_type: config.vm_type,
            primary_vm_set: match config.vm_type {
                VmType::Standard => config.primary_availability_set_name.clone(),
                VmType::Vmss | VmType::VmssFlex => config.primary_scale_set_name.clone(),
            },
        }
    }

    /// Returns the settings for a manager that serves `classes`.
    pub fn serving(self, classes: &LoadBalancerClasses) -> Self {
        Self { classes: classes.clone(), ..self }
    }

    /// Returns the settings for a cluster with `networks`.
    pub fn within(self, networks: &ClusterNetworks) -> Self {
        Self { networks: networks.clone(), ..self }
    }

    /// Returns `true` if there is a list of entries, with one entry or more.
    pub fn has_entries(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Returns the entries of the list; without a list, one entry that accepts every Service.
    pub fn all_entries(&self) -> Cow<'_, [LoadBalancerEntry]> {
        match self.has_entries() {
            true => Cow::Borrowed(&self.entries),
            false => Cow::Owned(vec![LoadBalancerEntry::implied(self.primary_name())]),
        }
    }

    /// Returns the name of the cluster's own external load balancer. With a list of entries, `loadBalancerName` does not count.
    pub fn primary_name(&self) -> &str {
        if self.load_balancer_name.is_empty() || self.has_entries() { &self.cluster } else { &self.load_balancer_name }
    }

    /// Returns `true` if Services belong on load balancers whose external name is `external`.
    pub fn has_entry(&self, external: &str) -> bool {
        match self.has_entries() {
            true => self.entries.iter().any(|entry| entry.is_called(external)),
            false => spelling::same_name(self.primary_name(), external),
        }
    }

    /// Returns the edge zone of new resources.
    pub fn edge_zone(&self) -> Option<ExtendedLocation> {
        let name = Some(self.extended_location.clone()?);
        Some(ExtendedLocation { name, kind: Some("EdgeZone".to_owned()), extra: Extra::new() })
    }

    /// Returns `true` if all Services of the cluster share the backend pool of this name.
    pub fn shares_pool(&self, name: &str) -> bool {
        IpFamily::ALL.iter().any(|family| spelling::same_name(&naming::pool(&self.cluster, *family), name))
    }

    /// Returns `true` if the controller deletes load balancers whose external name is `external`, and maintains their pools.
    pub fn manages(&self, external: &str) -> bool {
        self.sku != LoadBalancerSku::Standard || spelling::same_name(&self.cluster, external) || self.has_entry(external)
    }

    /// Returns the resource group `name` for the private link service of a Service.
    pub fn private_link_group_called(&self, name: &str) -> ResourceId {
        ResourceId::group_of(self.private_link_group.subscription(), name)
    }

    /// Returns `true` if Services may have public IPs in the resource group `name`.
    pub fn allows_group(&self, name: &str) -> bool {
        self.allowed_groups.is_empty() || self.names_group(name)
    }

    /// Returns `true` if Services may allocate public IPs from this prefix.
    ///
    /// If groups are listed or namespaces are enforced, the prefix must be in a listed group or in a group of the cluster.
    pub fn allows_prefix(&self, id: &ResourceId) -> bool {
        let is_open = self.allowed_groups.is_empty() && !self.namespaces_are_enforced;
        let is_own = spelling::same_name(id.subscription(), self.group.subscription());
        is_open || (is_own && id.parent().is_some_and(|group| self.names_group(group.name())))
    }

    fn names_group(&self, name: &str) -> bool {
        let own = [self.group.name(), self.load_balancer_group.name()];
        let mut named = self.allowed_groups.iter().map(String::as_str).chain(own);
        named.any(|group| spelling::same_name(group, name))
    }
}

fn unsupported(config: &AzureConfig) -> Vec<&'static str> {
    let asked = [
        (config.service_gateway_enabled, "serviceGatewayEnabled"),
        (
            config.load_balancer_backend_pool_configuration_type == BackendPoolType::PodIp,
            "loadBalancerBackendPoolConfigurationType podIP",
        ),
        (config.load_balancer_sku == LoadBalancerSku::Service, "loadBalancerSku service"),
    ];
    asked.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, field)| field).collect()
}

fn split_list(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Returns the limits of Services and namespaces. A field that is set wins over `multiTenant`; 0 means no limit.
fn service_limits(config: &AzureConfig) -> ServiceLimits {
    let limit = |field: Option<i32>, of_tenants: usize| match field {
        Some(count) => usize::try_from(count).ok().filter(|count| *count > 0),
        None => config.multi_tenant.then_some(of_tenants),
    };
    ServiceLimits {
        of_service: [
            limit(config.maximum_service_rule_count, 100),
            limit(config.maximum_service_source_range_count, 500),
            limit(config.maximum_service_security_rule_count, 100),
        ],
        namespace_factor: limit(config.maximum_namespace_factor, 4),
    }
}

/// Returns the limit of standard load balancers. A negative number means no limit.
fn interface_rules(config: &AzureConfig) -> Option<InterfaceRuleLimit> {
    let is_standard = config.load_balancer_sku == LoadBalancerSku::Standard;
    let limit = match usize::try_from(config.maximum_network_interface_rule_count).ok()? {
        0 => InterfaceRuleLimit { count: INTERFACE_RULES, is_configured: false },
        count => InterfaceRuleLimit { count, is_configured: true },
    };
    Some(limit).filter(|_| is_standard)
}

/// Returns `tags` overlaid by `tagsMap`, whose keys win in any letter case. Upstream: `pkg/provider/azure_utils.go`, `parseTags`.
///
/// Unlike upstream, this function omits invalid tags, because ARM would reject every document with them.
fn tags(config: &AzureConfig) -> BTreeMap<String, String> {
    let mut tags = parse_tags(&config.tags);
    for (key, value) in &config.tags_map {
        let (key, value) = (key.trim(), tag_value(value));
        if !key.is_empty() {
            tags.retain(|known, _| !spelling::same_name(known, key));
            tags.insert(key.to_owned(), value);
        }
    }
    tags.retain(|key, value| names::is_tag(key, value));
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_the_map_win_and_bad_pairs_count_for_nothing() {
        let config = AzureConfig {
            tags: format!("env=prod,team=a,bad,n= null ,a=b=c, =x,a/b=c,{}=x,long={}", "k".repeat(513), "v".repeat(257)),
            tags_map: [("Env".to_owned(), "map".to_owned()), ("owner".to_owned(), "me".to_owned())].into(),
            ..AzureConfig::default()
        };
        let tags = LoadBalancerSettings::new(&config, "kubernetes").tags;
        let tags: Vec<_> = tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(tags, [("Env", "map"), ("n", " null "), ("owner", "me"), ("team", "a")]);
    }

    #[test]
    fn the_name_of_the_cloud_says_whether_it_is_an_azure_stack() {
        for (cloud, is_disabled, expected) in [
            ("AzureStackCloud", false, true),
            (" azurestackcloud ", false, true),
            ("AzureStackCloud", true, false),
            ("AzurePublicCloud", false, false),
            ("", false, false),
        ] {
            let config =
                AzureConfig { cloud: cloud.into(), disable_azure_stack_cloud: is_disabled, ..AzureConfig::default() };
            assert_eq!(LoadBalancerSettings::new(&config, "kubernetes").is_azure_stack, expected, "{cloud:?}");
        }
    }

    #[test]
    fn what_is_not_built_is_named() {
        let config = AzureConfig { service_gateway_enabled: true, ..AzureConfig::default() };
        assert_eq!(LoadBalancerSettings::new(&config, "kubernetes").unsupported, ["serviceGatewayEnabled"]);
        assert!(LoadBalancerSettings::new(&AzureConfig::default(), "kubernetes").unsupported.is_empty());
    }

    #[test]
    fn one_switch_restricts_tenants_and_explicit_fields_win() {
        let settings = |config: &AzureConfig| LoadBalancerSettings::new(config, "kubernetes");
        let open = settings(&AzureConfig::default());
        assert_eq!(open.service_limits, ServiceLimits::default());
        assert_eq!(open.additional_public_ips, AdditionalIpPolicy::Any);
        assert!(open.allowed_groups.is_empty() && !open.namespaces_are_enforced);
        assert!(open.security_group.is_none() && open.exclude_control_plane && !open.disable_outbound_snat);
        let enforced = AzureConfig { enforce_public_ip_namespaces: Some(true), ..AzureConfig::default() };
        assert!(settings(&enforced).namespaces_are_enforced);
        let none = AdditionalIpPolicy::Within(Vec::new());
        let tenants = AzureConfig { multi_tenant: true, ..AzureConfig::default() };
        let closed = settings(&tenants);
        let limits = ServiceLimits { of_service: [Some(100), Some(500), Some(100)], namespace_factor: Some(4) };
        assert_eq!((closed.service_limits, closed.namespaces_are_enforced), (limits, true));
        assert_eq!(closed.additional_public_ips, none);
        let mixed = settings(&AzureConfig {
            maximum_service_rule_count: Some(0),
            maximum_service_security_rule_count: Some(7),
            maximum_namespace_factor: Some(0),
            enforce_public_ip_namespaces: Some(false),
            allowed_additional_public_ips: "any".into(),
            allowed_public_ip_resource_groups: " shared, other".into(),
            ..tenants
        });
        let limits = ServiceLimits { of_service: [None, Some(500), Some(7)], namespace_factor: None };
        assert_eq!((mixed.service_limits, mixed.namespaces_are_enforced), (limits, false));
        assert_eq!(mixed.allowed_groups, ["shared", "other"]);
        assert_eq!(mixed.additional_public_ips, AdditionalIpPolicy::Any);
    }
}
