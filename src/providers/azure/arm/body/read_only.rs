//! The fields that only ARM writes, by type of document. The one table.
//!
//! A path names a field; on the way it goes through every element of a list. What a reference would show if it were expanded is left
//! out: nobody here reads with `$expand` what is written afterwards, but for `instanceView`. Source: `readOnly` in
//! azure-rest-api-specs, by way of the models of `azure-mgmt-network` 33.1 and `azure-mgmt-compute` 39.0.

use crate::providers::azure::arm::{ApiType, api};

/// See the module.
#[derive(Debug)]
pub struct ReadOnlyFields {
    /// Whose.
    pub kind: &'static ApiType,
    /// Where they are.
    pub paths: &'static [&'static str],
}

/// The fields of this type; `None`: nothing is known of it.
pub fn of(kind: &ApiType) -> Option<&'static ReadOnlyFields> {
    TABLE.iter().find(|fields| fields.kind == kind)
}

/// All of them.
pub static TABLE: &[ReadOnlyFields] = &[
    ReadOnlyFields {
        kind: &api::LOAD_BALANCERS,
        paths: &[
            "etag",
            "name",
            "properties.backendAddressPools.etag",
            "properties.backendAddressPools.properties.backendIPConfigurations",
            "properties.backendAddressPools.properties.inboundNatRules",
            "properties.backendAddressPools.properties.loadBalancerBackendAddresses.properties.inboundNatRulesPortMapping",
            "properties.backendAddressPools.properties.loadBalancingRules",
            "properties.backendAddressPools.properties.outboundRule",
            "properties.backendAddressPools.properties.outboundRules",
            "properties.backendAddressPools.properties.provisioningState",
            "properties.backendAddressPools.type",
            "properties.frontendIPConfigurations.etag",
            "properties.frontendIPConfigurations.properties.inboundNatPools",
            "properties.frontendIPConfigurations.properties.inboundNatRules",
            "properties.frontendIPConfigurations.properties.loadBalancingRules",
            "properties.frontendIPConfigurations.properties.outboundRules",
            "properties.frontendIPConfigurations.properties.provisioningState",
            "properties.frontendIPConfigurations.type",
            "properties.inboundNatPools.etag",
            "properties.inboundNatPools.properties.provisioningState",
            "properties.inboundNatPools.type",
            "properties.inboundNatRules.etag",
            "properties.inboundNatRules.properties.backendIPConfiguration",
            "properties.inboundNatRules.properties.provisioningState",
            "properties.inboundNatRules.type",
            "properties.loadBalancingRules.etag",
            "properties.loadBalancingRules.properties.provisioningState",
            "properties.loadBalancingRules.type",
            "properties.outboundRules.etag",
            "properties.outboundRules.properties.provisioningState",
            "properties.outboundRules.type",
            "properties.probes.etag",
            "properties.probes.properties.loadBalancingRules",
            "properties.probes.properties.provisioningState",
            "properties.probes.type",
            "properties.provisioningState",
            "properties.resourceGuid",
            "type",
        ],
    },
    ReadOnlyFields {
        kind: &api::BACKEND_POOLS,
        paths: &[
            "etag",
            "properties.backendIPConfigurations",
            "properties.inboundNatRules",
            "properties.loadBalancerBackendAddresses.properties.inboundNatRulesPortMapping",
            "properties.loadBalancingRules",
            "properties.outboundRule",
            "properties.outboundRules",
            "properties.provisioningState",
            "type",
        ],
    },
    ReadOnlyFields {
        kind: &api::PUBLIC_IPS,
        paths: &[
            "etag",
            "name",
            "properties.ipConfiguration",
            "properties.provisioningState",
            "properties.resourceGuid",
            "properties.upgradedToV2",
            "type",
        ],
    },
    ReadOnlyFields {
        kind: &api::SECURITY_GROUPS,
        paths: &[
            "etag",
            "name",
            "properties.defaultSecurityRules",
            "properties.flowLogs",
            "properties.networkInterfaces",
            "properties.provisioningState",
            "properties.resourceGuid",
            "properties.securityRules.etag",
            "properties.securityRules.properties.provisioningState",
            "properties.securityRules.type",
            "properties.subnets",
            "type",
        ],
    },
    ReadOnlyFields {
        kind: &api::ROUTE_TABLES,
        paths: &[
            "etag",
            "name",
            "properties.provisioningState",
            "properties.resourceGuid",
            "properties.routes.etag",
            "properties.routes.properties.hasBgpOverride",
            "properties.routes.properties.provisioningState",
            "properties.routes.type",
            "properties.subnets",
            "type",
        ],
    },
    ReadOnlyFields {
        kind: &api::INTERFACES,
        paths: &[
            "etag",
            "name",
            "properties.defaultOutboundConnectivityEnabled",
            "properties.dnsSettings.appliedDnsServers",
            "properties.dnsSettings.internalDomainNameSuffix",
            "properties.dnsSettings.internalFqdn",
            "properties.dscpConfiguration",
            "properties.hostedWorkloads",
            "properties.ipConfigurations.etag",
            "properties.ipConfigurations.properties.privateLinkConnectionProperties",
            "properties.ipConfigurations.properties.provisioningState",
            "properties.ipConfigurations.type",
            "properties.macAddress",
            "properties.primary",
            "properties.privateEndpoint",
            "properties.provisioningState",
            "properties.resourceGuid",
            "properties.tapConfigurations",
            "properties.virtualMachine",
            "properties.vnetEncryptionSupported",
            "type",
        ],
    },
    ReadOnlyFields {
        kind: &api::SCALE_SETS,
        paths: &[
            "etag",
            "id",
            "identity.principalId",
            "identity.tenantId",
            "name",
            "properties.provisioningState",
            "properties.timeCreated",
            "properties.uniqueId",
            "properties.virtualMachineProfile.storageProfile.imageReference.exactVersion",
            "properties.virtualMachineProfile.timeCreated",
            "systemData",
            "type",
        ],
    },
    ReadOnlyFields {
        kind: &api::SCALE_SET_VMS,
        paths: &[
            "etag",
            "id",
            "identity.principalId",
            "identity.tenantId",
            "instanceId",
            "name",
            "properties.instanceView",
            "properties.latestModelApplied",
            "properties.modelDefinitionApplied",
            "properties.provisioningState",
            "properties.storageProfile.imageReference.exactVersion",
            "properties.timeCreated",
            "properties.virtualMachineResourceId",
            "properties.vmId",
            "resources",
            "sku",
            "systemData",
            "type",
            "zones",
        ],
    },
];
