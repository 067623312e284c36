//! Documents of the network provider: load balancers, public IPs, security groups, routes, interfaces, subnets, private link
//! services with their connections.
//!
//! Upstream: the structures of `armnetwork` that `pkg/provider` reads and writes; see [`super::document`] for what becomes of the
//! rest.

use std::sync::Arc;

use ipnet::IpNet;
use serde_json::Value;

use super::{
    ResourceId,
    document::{ArmSku, ExtendedLocation, Extra, SubResource, Tags, documents, identified},
    spelling::{is_word, same_id},
};

documents! {
    /// A load balancer with all its parts.
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
    /// See [`ArmLoadBalancer`].
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
    /// An address of a load balancer.
    FrontendIpConfiguration extra "Extra::of_part" {
        id: String,
        name: String,
        zones: Vec<String>,
        properties: FrontendIpConfigurationProperties,
    }
    /// See [`FrontendIpConfiguration`].
    FrontendIpConfigurationProperties extra "Extra::of_part" {
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
    /// Where a rule sends its traffic.
    BackendAddressPool extra "Extra::of_part" {
        id: String,
        name: String,
        etag: String,
        properties: BackendAddressPoolProperties,
    }
    /// See [`BackendAddressPool`].
    BackendAddressPoolProperties {
        provisioning_state: String,
        backend_ip_configurations: Vec<SubResource> = "backendIPConfigurations",
        load_balancer_backend_addresses: Vec<BackendAddress>,
        virtual_network: SubResource,
        load_balancing_rules: Vec<SubResource>,
        outbound_rules: Vec<SubResource>,
    }
    /// A member that is listed by its address.
    BackendAddress {
        name: String,
        properties: BackendAddressProperties,
    }
    /// See [`BackendAddress`].
    BackendAddressProperties {
        ip_address: String,
        virtual_network: SubResource,
        network_interface_ip_configuration: SubResource = "networkInterfaceIPConfiguration",
    }
    /// One port of a Service.
    LoadBalancingRule extra "Extra::of_part" {
        id: String,
        name: String,
        properties: LoadBalancingRuleProperties,
    }
    /// See [`LoadBalancingRule`].
    LoadBalancingRuleProperties extra "Extra::of_part" {
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
    /// How members are found healthy.
    Probe extra "Extra::of_part" {
        id: String,
        name: String,
        properties: ProbeProperties,
    }
    /// See [`Probe`].
    ProbeProperties extra "Extra::of_part" {
        protocol: String,
        port: i64,
        request_path: String,
        interval_in_seconds: i64,
        probe_threshold: i64,
        load_balancing_rules: Vec<SubResource>,
    }
    /// Source address translation for members.
    OutboundRule extra "Extra::of_part" {
        id: String,
        name: String,
        properties: OutboundRuleProperties,
    }
    /// See [`OutboundRule`].
    OutboundRuleProperties extra "Extra::of_part" {
        frontend_ip_configurations: Vec<SubResource> = "frontendIPConfigurations",
        backend_address_pool: SubResource,
    }
    /// A public address.
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
    /// See [`PublicIpAddress`].
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
    /// Names of a public address.
    DnsSettings {
        domain_name_label: String,
    }
    /// Where a public address comes from.
    IpTag {
        ip_tag_type: String,
        tag: String,
    }
    /// A security group.
    NetworkSecurityGroup {
        id: String,
        name: String,
        location: String,
        tags: Tags,
        etag: String,
        properties: Arc<NetworkSecurityGroupProperties>,
    }
    /// See [`NetworkSecurityGroup`].
    NetworkSecurityGroupProperties {
        provisioning_state: String,
        security_rules: Vec<SecurityRule>,
        subnets: Vec<SubResource>,
        network_interfaces: Vec<SubResource>,
    }
    /// A rule of a security group.
    SecurityRule extra "Extra::of_part" {
        id: String,
        name: String,
        properties: SecurityRuleProperties,
    }
    /// See [`SecurityRule`].
    SecurityRuleProperties extra "Extra::of_part" {
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
    /// A route table.
    RouteTable {
        id: String,
        name: String,
        location: String,
        tags: Tags,
        etag: String,
        properties: RouteTableProperties,
    }
    /// See [`RouteTable`].
    RouteTableProperties {
        routes: Vec<ArmRoute>,
    }
    /// A route.
    ArmRoute {
        id: String,
        name: String,
        properties: RouteProperties,
    }
    /// See [`ArmRoute`].
    RouteProperties {
        address_prefix: String,
        next_hop_type: String,
        next_hop_ip_address: String,
    }
    /// A network interface, of a machine or of an instance of a scale set.
    NetworkInterface {
        etag: String,
        properties: NetworkInterfaceProperties,
    }
    /// See [`NetworkInterface`].
    NetworkInterfaceProperties {
        provisioning_state: String,
        ip_configurations: Vec<NetworkInterfaceIpConfiguration>,
    }
    /// An IP configuration of a network interface.
    NetworkInterfaceIpConfiguration {
        properties: NetworkInterfaceIpConfigurationProperties,
    }
    /// See [`NetworkInterfaceIpConfiguration`].
    NetworkInterfaceIpConfigurationProperties {
        primary: bool,
        private_ip_address_version: String = "privateIPAddressVersion",
        load_balancer_backend_address_pools: Vec<SubResource>,
    }
    /// A subnet.
    Subnet {
        id: String,
        name: String,
        etag: String,
        properties: SubnetProperties,
    }
    /// See [`Subnet`].
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
    /// See [`PrivateLinkService`].
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
    /// See [`PrivateLinkIpConfiguration`].
    PrivateLinkIpConfigurationProperties {
        primary: bool,
        private_ip_address: String = "privateIPAddress",
        private_ip_address_version: String = "privateIPAddressVersion",
        private_ip_allocation_method: String = "privateIPAllocationMethod",
        subnet: SubResource,
    }
    /// Who may see a private link service, or is let in unasked.
    PrivateLinkSubscriptions {
        subscriptions: Vec<String>,
    }
    /// A private endpoint that is connected, or wants to be.
    PrivateEndpointConnection {
        id: String,
        name: String,
        properties: PrivateEndpointConnectionProperties,
    }
    /// See [`PrivateEndpointConnection`].
    PrivateEndpointConnectionProperties {
        private_link_service_connection_state: PrivateLinkConnectionState,
    }
    /// How far a connection got.
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

/// State of a resource whose last write failed.
const FAILED: &str = "Failed";

fn is_basic(sku: Option<&ArmSku>) -> bool {
    is_word(sku.and_then(|sku| sku.name.as_deref()), "Basic")
}

impl ArmLoadBalancer {
    /// Returns its parts, to be changed. The first change copies them if another document shares them.
    pub fn properties_mut(&mut self) -> &mut LoadBalancerProperties {
        Arc::make_mut(self.properties.get_or_insert_default())
    }

    /// Returns `true` if ARM could not carry out its last write.
    pub fn has_failed(&self) -> bool {
        is_word(self.properties.as_ref().and_then(|properties| properties.provisioning_state.as_deref()), FAILED)
    }

    /// Returns `true` if its SKU says basic.
    pub fn is_basic(&self) -> bool {
        is_basic(self.sku.as_ref())
    }
}

impl PublicIpAddress {
    /// Returns `true` if ARM could not carry out its last write.
    pub fn has_failed(&self) -> bool {
        is_word(self.properties.as_ref().and_then(|properties| properties.provisioning_state.as_deref()), FAILED)
    }

    /// Returns `true` if its SKU says basic.
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

    /// Returns `true` if private link services may be in it: not with network policies for them, which are the default.
    pub fn lets_links_in(&self) -> bool {
        let properties = self.properties.as_ref();
        is_word(properties.and_then(|it| it.private_link_service_network_policies.as_deref()), "Disabled")
    }
}

impl NetworkSecurityGroup {
    /// Returns its parts, to be changed. The first change copies them if another document shares them.
    pub fn properties_mut(&mut self) -> &mut NetworkSecurityGroupProperties {
        Arc::make_mut(self.properties.get_or_insert_default())
    }

    /// Returns `true` if ARM could not carry out its last write.
    pub fn has_failed(&self) -> bool {
        is_word(self.properties.as_ref().and_then(|properties| properties.provisioning_state.as_deref()), FAILED)
    }
}

impl PrivateLinkService {
    /// Returns `true` if ARM could not carry out its last write.
    pub fn has_failed(&self) -> bool {
        is_word(self.properties.as_ref().and_then(|properties| properties.provisioning_state.as_deref()), FAILED)
    }

    /// Returns the frontends that it leads to.
    pub fn frontends(&self) -> impl Iterator<Item = &str> {
        let listed =
            self.properties.iter().flat_map(|properties| properties.load_balancer_frontend_ip_configurations.iter());
        listed.flatten().filter_map(|frontend| frontend.id.as_deref())
    }

    /// Returns `true` if it leads to the frontend `id`.
    pub fn leads_to(&self, id: &str) -> bool {
        self.frontends().any(|frontend| same_id(frontend, id))
    }

    /// Returns the load balancers of those frontends.
    pub fn load_balancers(&self) -> impl Iterator<Item = ResourceId> {
        self.frontends().filter_map(|frontend| ResourceId::parse(frontend).ok()?.parent())
    }

    /// Returns the connections of the service.
    pub fn connections(&self) -> &[PrivateEndpointConnection] {
        let listed = self.properties.as_ref().and_then(|properties| properties.private_endpoint_connections.as_deref());
        listed.unwrap_or_default()
    }
}

impl PrivateEndpointConnection {
    /// Returns `true` if traffic flows through it.
    pub fn is_approved(&self) -> bool {
        let state = self.properties.as_ref().and_then(|it| it.private_link_service_connection_state.as_ref());
        is_word(state.and_then(|state| state.status.as_deref()), "Approved")
    }
}
