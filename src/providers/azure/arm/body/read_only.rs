//! Table of the fields that only ARM writes, by type of document.
//!
//! A path names a field; on the way it passes through every element of a list. The fields of expanded references are
//! omitted: no document that is written afterwards is read with `$expand`, but for `instanceView`. Source: `readOnly` in
//! azure-rest-api-specs, by way of the models of `azure-mgmt-network` 33.1 and `azure-mgmt-compute` 39.0.

use std::sync::LazyLock;

use crate::providers::azure::arm::{ApiType, api};

/// Read-only fields of one type.
#[derive(Debug)]
pub struct ReadOnlyFields {
    /// Type of the document.
    pub kind: &'static ApiType,
    /// Paths of the fields, sorted.
    pub paths: Vec<String>,
}

impl ReadOnlyFields {
    fn new(&(kind, own, properties, parts): &TypeRow) -> Self {
        let of_parts = parts.iter().flat_map(|(part, fields)| {
            let common = COMMON.map(|field| format!("properties.{part}.{field}"));
            common.into_iter().chain(fields.iter().map(move |field| format!("properties.{part}.properties.{field}")))
        });
        let properties = properties.iter().map(|field| format!("properties.{field}"));
        let own = COMMON.iter().chain(own).map(|field| (*field).to_owned());
        let mut paths: Vec<String> = own.chain(properties).chain(of_parts).collect();
        paths.sort_unstable();
        Self { kind, paths }
    }
}

/// Returns the fields of this type; `None`: nothing is known of it.
pub fn of(kind: &ApiType) -> Option<&'static ReadOnlyFields> {
    TABLE.iter().find(|fields| fields.kind == kind)
}

/// Read-only fields of all types.
pub static TABLE: LazyLock<Vec<ReadOnlyFields>> = LazyLock::new(|| ROWS.iter().map(ReadOnlyFields::new).collect());

/// Fields of every document, and of every part that has a version of its own.
const COMMON: [&str; 3] = ["etag", "properties.provisioningState", "type"];

type FieldNames = &'static [&'static str];

/// Type, other fields of the document and of its `properties`, and parts with other fields of their `properties`.
type TypeRow = (&'static ApiType, FieldNames, FieldNames, &'static [(&'static str, FieldNames)]);

/// A pool's, in its load balancer and by itself.
const POOL: FieldNames = &[
    "backendIPConfigurations",
    "inboundNatRules",
    "loadBalancerBackendAddresses.properties.inboundNatRulesPortMapping",
    "loadBalancingRules",
    "outboundRule",
    "outboundRules",
];

const ROWS: &[TypeRow] = &[
    (
        &api::LOAD_BALANCERS,
        &["name"],
        &["resourceGuid"],
        &[
            ("backendAddressPools", POOL),
            ("frontendIPConfigurations", &["inboundNatPools", "inboundNatRules", "loadBalancingRules", "outboundRules"]),
            ("inboundNatPools", &[]),
            ("inboundNatRules", &["backendIPConfiguration"]),
            ("loadBalancingRules", &[]),
            ("outboundRules", &[]),
            ("probes", &["loadBalancingRules"]),
        ],
    ),
    (&api::BACKEND_POOLS, &[], POOL, &[]),
    (&api::PUBLIC_IPS, &["name"], &["ipConfiguration", "resourceGuid", "upgradedToV2"], &[]),
    (
        &api::SECURITY_GROUPS,
        &["name"],
        &["defaultSecurityRules", "flowLogs", "networkInterfaces", "resourceGuid", "subnets"],
        &[("securityRules", &[])],
    ),
    (&api::ROUTE_TABLES, &["name"], &["resourceGuid", "subnets"], &[("routes", &["hasBgpOverride"])]),
    (
        &api::PRIVATE_LINK_SERVICES,
        &["name"],
        &["alias", "networkInterfaces", "privateEndpointConnections", "resourceGuid"],
        &[("ipConfigurations", &[])],
    ),
    (
        &api::SUBNETS,
        &[],
        &[
            "delegations.etag",
            "delegations.properties.actions",
            "delegations.properties.provisioningState",
            "ipConfigurationProfiles",
            "ipConfigurations",
            "privateEndpoints",
            "purpose",
            "resourceNavigationLinks",
            "serviceAssociationLinks",
            "serviceEndpoints.provisioningState",
        ],
        &[("applicationGatewayIPConfigurations", &[])],
    ),
    (
        &api::INTERFACES,
        &["name"],
        &[
            "defaultOutboundConnectivityEnabled",
            "dnsSettings.appliedDnsServers",
            "dnsSettings.internalDomainNameSuffix",
            "dnsSettings.internalFqdn",
            "dscpConfiguration",
            "hostedWorkloads",
            "macAddress",
            "primary",
            "privateEndpoint",
            "resourceGuid",
            "tapConfigurations",
            "virtualMachine",
            "vnetEncryptionSupported",
        ],
        &[("ipConfigurations", &["privateLinkConnectionProperties"])],
    ),
    (
        &api::SCALE_SETS,
        &["id", "identity.principalId", "identity.tenantId", "name", "systemData"],
        &[
            "timeCreated",
            "uniqueId",
            "virtualMachineProfile.storageProfile.imageReference.exactVersion",
            "virtualMachineProfile.timeCreated",
        ],
        &[],
    ),
    (
        &api::SCALE_SET_VMS,
        &[
            "id",
            "identity.principalId",
            "identity.tenantId",
            "instanceId",
            "name",
            "resources",
            "sku",
            "systemData",
            "zones",
        ],
        &[
            "instanceView",
            "latestModelApplied",
            "modelDefinitionApplied",
            "storageProfile.imageReference.exactVersion",
            "timeCreated",
            "virtualMachineResourceId",
            "vmId",
        ],
        &[],
    ),
];
