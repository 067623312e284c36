//! Rate limits by client: `Entries`, and the keys that the documentation shows at the top level.
//!
//! The Go program reads only an object `Entries` (its decoder loses the documented keys) and then limits nothing. This
//! program applies both forms.

use std::collections::BTreeMap;

use super::{
    document::{YamlNode, YamlValue},
    objects::ClientRateLimit,
    reader::FieldReader,
    values::FieldValue,
};

/// Clients that have limits of their own. Upstream: `pkg/azclient/*/custom.go` and the generated client factory.
pub const RATE_LIMIT_CLIENTS: &[&str] = &[
    "availabilitySetRateLimit",
    "containerServiceRateLimit",
    "deploymentRateLimit",
    "diskRateLimit",
    "interfaceRateLimit",
    "ipGroupRateLimit",
    "loadBalancerRateLimit",
    "natGatewayRateLimit",
    "privateDNSRateLimit",
    "privateEndpointRateLimit",
    "privateLinkServiceRateLimit",
    "publicIPAddressRateLimit",
    "routeTableRateLimit",
    "securityGroupRateLimit",
    "serviceGatewayRateLimit",
    "snapshotRateLimit",
    "storageAccountRateLimit",
    "subnetsRateLimit",
    "virtualMachineRateLimit",
    "virtualMachineScaleSetRateLimit",
    "virtualNetworkRateLimit",
];

/// Reads the object `Entries`.
pub(super) fn read_entries(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<BTreeMap<String, ClientRateLimit>> {
    let YamlValue::Map(entries) = &node.value else {
        return reader.type_error(node, &BTreeMap::<String, ClientRateLimit>::kind());
    };
    let mut limits = BTreeMap::new();
    for (client, value) in reader.known_entries(entries, RATE_LIMIT_CLIENTS) {
        if let Some(limit) = reader.entry(client, |reader| ClientRateLimit::read(value, reader)) {
            limits.insert(client.to_owned(), limit);
        }
    }
    Some(limits)
}
