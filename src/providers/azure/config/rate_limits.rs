//! Rate limits by client: `Entries`, and the keys that the documentation shows at the top level.
//!
//! The Go program reads only an object `Entries` (the documented keys are lost to a decoder's misunderstanding) and then limits
//! nothing. Here both forms count.

use std::collections::BTreeMap;

use super::{
    document::{Kind, Node},
    objects::RateLimit,
    reader::Reader,
    values::Value,
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
pub(super) fn read_entries(node: &Node, reader: &mut Reader<'_>) -> Option<BTreeMap<String, RateLimit>> {
    let Kind::Map(entries) = &node.kind else { return reader.wrong(node, &BTreeMap::<String, RateLimit>::kind()) };
    let mut limits = BTreeMap::new();
    for (client, value) in reader.known(entries, RATE_LIMIT_CLIENTS) {
        if let Some(limit) = reader.entry(client, |reader| RateLimit::read(value, reader)) {
            limits.insert(client.to_owned(), limit);
        }
    }
    Some(limits)
}
