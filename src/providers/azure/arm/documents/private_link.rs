//! Documents of private link services, with their connections.
//!
//! Upstream: the structures of `armnetwork` that `pkg/provider/azure_privatelinkservice.go` reads and writes; see [`super::document`]
//! for what becomes of the rest.

use super::{
    ResourceId,
    document::{ExtendedLocation, SubResource, Tags, documents, identified},
    spelling::is_word,
};

documents! {
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

identified! { PrivateLinkService, }

impl PrivateLinkService {
    /// Returns `true` if ARM could not carry out its last write.
    pub fn has_failed(&self) -> bool {
        is_word(self.properties.as_ref().and_then(|properties| properties.provisioning_state.as_deref()), "Failed")
    }

    /// Returns the frontends that it leads to.
    pub fn frontends(&self) -> impl Iterator<Item = &str> {
        let listed =
            self.properties.iter().flat_map(|properties| properties.load_balancer_frontend_ip_configurations.iter());
        listed.flatten().filter_map(|frontend| frontend.id.as_deref())
    }

    /// Returns `true` if it leads to the frontend `id`.
    pub fn leads_to(&self, id: &str) -> bool {
        self.frontends().any(|frontend| super::spelling::same_id(frontend, id))
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
