//! Documents of the network provider: load balancers, public IPs, security groups, routes, interfaces, subnets, private link
//! services with their connections.
//!
//! Upstream: the structures of `armnetwork` that `pkg/provider` reads and writes. [`super::document`] preserves other fields.

use std::sync::Arc;

use ipnet::IpNet;
use serde_json::Value;

use super::{
    ResourceId,
    document::{ArmSku, ExtendedLocation, Extra, SubResource, Tags, documents, identified},
    spelling::{is_word, same_id},
};

documents! {
    /// Load balancer with all its parts.
    ArmLoadBalancer {
        id: String,
        name: String,
        location: String,
        extended_location: ExtendedLocation,
        tags: Tags,
        etag: String,
        sku: ArmSku,
        properties: Arc<LoadBalancerProperties>,
    }
    /// Properties of an [`ArmLoadBalancer`].
    LoadBalancerProperties {
        provisioning_state: String,
        frontend_ip_configurations: Vec<FrontendIpConfiguration> = "frontendIPConfigurations",
        backend_address_pools: Vec<BackendAddressPool>,
        load_balancing_rules: Vec<LoadBalancingRule>,
        probes: Vec<Probe>,
        outbound_rules: Vec<OutboundRule>,
        inbound_nat_rules: Vec<Value>,
        inbound_nat_pools: Vec<Value>,
    }
    /// Frontend IP configuration: an address of a load balancer.
    FrontendIpConfiguration extra "Extra::of_part" {
        id: String,
        name: String,
        zones: Vec<String>,
        properties: FrontendIpConfigurationProperties,
    }
    /// Properties of a [`FrontendIpConfiguration`].
    FrontendIpConfigurationProperties extra "Extra::of_part_properties" {
        private_ip_address: String = "privateIPAddress",
        private_ip_address_version: String = "privateIPAddressVersion",
        private_ip_allocation_method: String = "privateIPAllocationMethod",
        public_ip_address: SubResource = "publicIPAddress",
        subnet: SubResource,
        gateway_load_balancer: SubResource,
        load_balancing_rules: Vec<SubResource>,
        outbound_rules: Vec<SubResource>,
        inbound_nat_rules: Vec<SubResource>,
        inbound_nat_pools: Vec<SubResource>,
    }
    /// Backend pool, the target of a rule's traffic.
    BackendAddressPool extra "Extra::of_part" {
        id: String,
        name: String,
        etag: String,
        properties: BackendAddressPoolProperties,
    }
    /// Properties of a [`BackendAddressPool`].
    BackendAddressPoolProperties {
        provisioning_state: String,
        backend_ip_configurations: Vec<SubResource> = "backendIPConfigurations",
        load_balancer_backend_addresses: Vec<BackendAddress>,
        virtual_network: SubResource,
        load_balancing_rules: Vec<SubResource>,
        outbound_rules: Vec<SubResource>,
    }
    /// Member of a pool that is listed by its address.
    BackendAddress {
        name: String,
        properties: BackendAddressProperties,
    }
    /// Properties of a [`BackendAddress`].
    BackendAddressProperties {
        ip_address: String,
        virtual_network: SubResource,
        network_interface_ip_configuration: SubResource = "networkInterfaceIPConfiguration",
    }
    /// Load balancing rule: one port of a Service.
    LoadBalancingRule extra "Extra::of_part" {
        id: String,
        name: String,
        properties: LoadBalancingRuleProperties,
    }
    /// Properties of a [`LoadBalancingRule`].
    LoadBalancingRuleProperties extra "Extra::of_part_properties" {
        protocol: String,
        frontend_port: i64,
        backend_port: i64,
        enable_floating_ip: bool = "enableFloatingIP",
        enable_tcp_reset: bool,
        disable_outbound_snat: bool,
        load_distribution: String,
        idle_timeout_in_minutes: i64,
        frontend_ip_configuration: SubResource = "frontendIPConfiguration",
        backend_address_pool: SubResource,
        backend_address_pools: Vec<SubResource>,
        probe: SubResource,
    }
    /// Health probe of the pool members.
    Probe extra "Extra::of_part" {
        id: String,
        name: String,
        properties: ProbeProperties,
    }
    /// Properties of a [`Probe`].
    ProbeProperties extra "Extra::of_part_properties" {
        protocol: String,
        port: i64,
        request_path: String,
        interval_in_seconds: i64,
        probe_threshold: i64,
        load_balancing_rules: Vec<SubResource>,
    }
    /// Outbound rule: source address translation for pool members.
    OutboundRule extra "Extra::of_part" {
        id: String,
        name: String,
        properties: OutboundRuleProperties,
    }
    /// Properties of an [`OutboundRule`].
    OutboundRuleProperties extra "Extra::of_part_properties" {
        frontend_ip_configurations: Vec<SubResource> = "frontendIPConfigurations",
        backend_address_pool: SubResource,
    }
    /// Public IP, which frontends reference.
    PublicIpAddress {
        id: String,
        name: String,
        location: String,
        extended_location: ExtendedLocation,
        zones: Vec<String>,
        tags: Tags,
        etag: String,
        sku: ArmSku,
        properties: PublicIpAddressProperties,
    }
    /// Properties of a [`PublicIpAddress`].
    PublicIpAddressProperties {
        provisioning_state: String,
        ip_address: String,
        public_ip_address_version: String = "publicIPAddressVersion",
        public_ip_allocation_method: String = "publicIPAllocationMethod",
        public_ip_prefix: SubResource = "publicIPPrefix",
        idle_timeout_in_minutes: i64,
        dns_settings: DnsSettings,
        ip_tags: Vec<IpTag>,
        ip_configuration: SubResource,
        nat_gateway: SubResource,
    }
    /// DNS names of a public IP.
    DnsSettings {
        domain_name_label: String,
    }
    /// IP tag, which selects the range of a public IP.
    IpTag {
        ip_tag_type: String,
        tag: String,
    }
    /// Network security group with its rules.
    NetworkSecurityGroup {
        id: String,
        name: String,
        location: String,
        tags: Tags,
        etag: String,
        properties: Arc<NetworkSecurityGroupProperties>,
    }
    /// Properties of a [`NetworkSecurityGroup`].
    NetworkSecurityGroupProperties {
        provisioning_state: String,
        security_rules: Vec<SecurityRule>,
        subnets: Vec<SubResource>,
        network_interfaces: Vec<SubResource>,
    }
    /// Rule of a network security group.
    SecurityRule extra "Extra::of_part" {
        id: String,
        name: String,
        properties: SecurityRuleProperties,
    }
    /// Properties of a [`SecurityRule`].
    SecurityRuleProperties extra "Extra::of_part_properties" {
        description: String,
        access: String,
        direction: String,
        priority: i64,
        protocol: String,
        source_address_prefix: String,
        source_address_prefixes: Vec<String>,
        source_port_range: String,
        source_port_ranges: Vec<String>,
        destination_address_prefix: String,
        destination_address_prefixes: Vec<String>,
        destination_application_security_groups: Vec<SubResource>,
        destination_port_range: String,
        destination_port_ranges: Vec<String>,
    }
    /// Route table of a subnet.
    RouteTable {
        id: String,
        name: String,
        location: String,
        tags: Tags,
        etag: String,
        properties: RouteTableProperties,
    }
    /// Properties of a [`RouteTable`].
    RouteTableProperties {
        routes: Vec<ArmRoute>,
    }
    /// Route of a route table.
    ArmRoute {
        id: String,
        name: String,
        properties: RouteProperties,
    }
    /// Properties of an [`ArmRoute`].
    RouteProperties {
        address_prefix: String,
        next_hop_type: String,
        next_hop_ip_address: String,
    }
    /// Network interface of a machine or of an instance of a scale set.
    NetworkInterface {
        etag: String,
        properties: NetworkInterfaceProperties,
    }
    /// Properties of a [`NetworkInterface`].
    NetworkInterfaceProperties {
        provisioning_state: String,
        ip_configurations: Vec<NetworkInterfaceIpConfiguration>,
    }
    /// IP configuration of a network interface.
    NetworkInterfaceIpConfiguration {
        properties: NetworkInterfaceIpConfigurationProperties,
    }
    /// Properties of a [`NetworkInterfaceIpConfiguration`].
    NetworkInterfaceIpConfigurationProperties {
        primary: bool,
        private_ip_address_version: String = "privateIPAddressVersion",
        load_balancer_backend_address_pools: Vec<SubResource>,
    }
    /// Subnet of a virtual network.
    Subnet {
        id: String,
        name: String,
        etag: String,
        properties: SubnetProperties,
    }
    /// Properties of a [`Subnet`].
    SubnetProperties {
        address_prefix: String,
        address_prefixes: Vec<String>,
        private_link_service_network_policies: String,
    }
    /// Private link service, through which private endpoints of other networks reach a frontend.
    PrivateLinkService {
        id: String,
        name: String,
        location: String,
        extended_location: ExtendedLocation,
        tags: Tags,
        etag: String,
        properties: PrivateLinkServiceProperties,
    }
    /// Properties of a [`PrivateLinkService`].
    PrivateLinkServiceProperties {
        provisioning_state: String,
        load_balancer_frontend_ip_configurations: Vec<SubResource>,
        ip_configurations: Vec<PrivateLinkIpConfiguration>,
        enable_proxy_protocol: bool,
        fqdns: Vec<String>,
        visibility: PrivateLinkSubscriptions,
        auto_approval: PrivateLinkSubscriptions,
        private_endpoint_connections: Vec<PrivateEndpointConnection>,
    }
    /// Address from which a private link service reaches the frontend.
    PrivateLinkIpConfiguration {
        id: String,
        name: String,
        properties: PrivateLinkIpConfigurationProperties,
    }
    /// Properties of a [`PrivateLinkIpConfiguration`].
    PrivateLinkIpConfigurationProperties {
        primary: bool,
        private_ip_address: String = "privateIPAddress",
        private_ip_address_version: String = "privateIPAddressVersion",
        private_ip_allocation_method: String = "privateIPAllocationMethod",
        subnet: SubResource,
    }
    /// Subscriptions that can see a private link service, or whose connections are approved automatically.
    PrivateLinkSubscriptions {
        subscriptions: Vec<String>,
    }
    /// Connection, or requested connection, of a private endpoint.
    PrivateEndpointConnection {
        id: String,
        name: String,
        properties: PrivateEndpointConnectionProperties,
    }
    /// Properties of a [`PrivateEndpointConnection`].
    PrivateEndpointConnectionProperties {
        private_link_service_connection_state: PrivateLinkConnectionState,
    }
    /// State of a connection.
    PrivateLinkConnectionState {
        status: String,
    }
}

identified! {
    ArmLoadBalancer,
    FrontendIpConfiguration,
    BackendAddressPool,
    PublicIpAddress,
    ArmRoute,
    PrivateLinkService,
}

/// Provisioning state of a resource whose last write failed.
const FAILED: &str = "Failed";

fn is_basic(sku: Option<&ArmSku>) -> bool {
    is_word(sku.and_then(|sku| sku.name.as_deref()), "Basic")
}

impl ArmLoadBalancer {
    /// Returns the properties for changes. Copies them first if another document shares them.
    pub fn properties_mut(&mut self) -> &mut LoadBalancerProperties {
        Arc::make_mut(self.properties.get_or_insert_default())
    }

    /// Returns `true` if ARM reports that the last write failed.
    pub fn has_failed(&self) -> bool {
        is_word(self.properties.as_ref().and_then(|properties| properties.provisioning_state.as_deref()), FAILED)
    }

    /// Returns `true` if the SKU is Basic.
    pub fn is_basic(&self) -> bool {
        is_basic(self.sku.as_ref())
    }
}

impl PublicIpAddress {
    /// Returns `true` if ARM reports that the last write failed.
    pub fn has_failed(&self) -> bool {
        is_word(self.properties.as_ref().and_then(|properties| properties.provisioning_state.as_deref()), FAILED)
    }

    /// Returns `true` if the SKU is Basic.
    pub fn is_basic(&self) -> bool {
        is_basic(self.sku.as_ref())
    }
}

impl Subnet {
    /// Returns the address ranges of the subnet.
    pub fn ranges(&self) -> Vec<IpNet> {
        let texts = |properties: &'_ SubnetProperties| {
            let prefixes = properties.address_prefixes.iter().flatten();
            properties.address_prefix.iter().chain(prefixes).cloned().collect::<Vec<_>>()
        };
        self.properties.iter().flat_map(texts).filter_map(|text| text.parse().ok()).collect()
    }

    /// Returns `true` if private link services are allowed in the subnet. Network policies for them, the default, prevent it.
    pub fn allows_private_links(&self) -> bool {
        let properties = self.properties.as_ref();
        is_word(properties.and_then(|it| it.private_link_service_network_policies.as_deref()), "Disabled")
    }
}

impl NetworkSecurityGroup {
    /// Returns the properties for changes. Copies them first if another document shares them.
    pub fn properties_mut(&mut self) -> &mut NetworkSecurityGroupProperties {
        Arc::make_mut(self.properties.get_or_insert_default())
    }

    /// Returns `true` if ARM reports that the last write failed.
    pub fn has_failed(&self) -> bool {
        is_word(self.properties.as_ref().and_then(|properties| properties.provisioning_state.as_deref()), FAILED)
    }
}

impl PrivateLinkService {
    /// Returns `true` if ARM reports that the last write failed.
    pub fn has_failed(&self) -> bool {
        is_word(self.properties.as_ref().and_then(|properties| properties.provisioning_state.as_deref()), FAILED)
    }

    /// Returns the IDs of the frontends behind the service.
    pub fn frontends(&self) -> impl Iterator<Item = &str> {
        let listed =
            self.properties.iter().flat_map(|properties| properties.load_balancer_frontend_ip_configurations.iter());
        listed.flatten().filter_map(|frontend| frontend.id.as_deref())
    }

    /// Returns `true` if the frontend `id` is behind the service.
    pub fn leads_to(&self, id: &str) -> bool {
        self.frontends().any(|frontend| same_id(frontend, id))
    }

    /// Returns the load balancers of the frontends behind the service.
    pub fn load_balancers(&self) -> impl Iterator<Item = ResourceId> {
        self.frontends().filter_map(|frontend| ResourceId::parse(frontend).ok()?.parent())
    }

    /// Returns the connections of private endpoints to the service.
    pub fn connections(&self) -> &[PrivateEndpointConnection] {
        let listed = self.properties.as_ref().and_then(|properties| properties.private_endpoint_connections.as_deref());
        listed.unwrap_or_default()
    }
}

impl PrivateEndpointConnection {
    /// Returns `true` if the connection is approved, so that it carries traffic.
    pub fn is_approved(&self) -> bool {
        let state = self.properties.as_ref().and_then(|it| it.private_link_service_connection_state.as_ref());
        is_word(state.and_then(|state| state.status.as_deref()), "Approved")
    }
}
