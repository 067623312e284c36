//! ARM types of the simulator: the parts embedded in their documents, the styles of their etags, their responses to writes,
//! and the lists that ARM derives on reading.
//!
//! It is the only such table; everything else is written for all types alike.

/// Style of a type's etags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtagStyle {
    /// `W/"<uuid>"`.
    Weak,
    /// `"<number>"`.
    Number,
    /// The type has none.
    None,
}

/// Responses of a type to long-running writes. Upstream: Azure's responses as recorded in `pkg/azclient/*/testdata` of
/// kubernetes-sigs/cloud-provider-azure.
#[derive(Debug, PartialEq, Eq)]
pub struct Manner {
    /// `provisioningState` from a PUT that creates (201) until the operation has ended; `None`: the response is final.
    /// `Succeeded` is no proof: load balancers show it while their operations go on.
    pub creating: Option<&'static str>,
    /// Response to a PUT or PATCH that changes (200).
    pub changing: Option<&'static str>,
    /// Status of the response to a DELETE that starts an operation; `None`: the response is final.
    pub deleting: Option<u16>,
    /// Properties that a document lacks until the operation that creates it has succeeded.
    pub until_done: &'static [&'static str],
}

/// Responses of most types of the network provider.
const NETWORK: Manner =
    Manner { creating: Some("Updating"), changing: Some("Updating"), deleting: Some(202), until_done: &[] };
const LOAD_BALANCER: Manner = Manner { creating: Some("Succeeded"), changing: Some("Succeeded"), ..NETWORK };
const PUBLIC_IP: Manner = Manner { changing: Some("Succeeded"), until_done: &["ipAddress"], ..NETWORK };
const PUBLIC_IP_PREFIX: Manner = Manner { until_done: &["ipPrefix"], ..NETWORK };
/// Responses for interfaces, which are written at once and deleted by an operation that begins with 200.
const INTERFACE: Manner = Manner { creating: None, changing: None, deleting: Some(200), until_done: &[] };
const COMPUTE: Manner = Manner { creating: Some("Creating"), ..NETWORK };
const GROUP: Manner = Manner { creating: None, changing: None, ..NETWORK };
const AT_ONCE: Manner = Manner { deleting: None, ..GROUP };

/// A type of documents.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// `Microsoft.Network/loadBalancers`, as ARM spells it.
    pub name: &'static str,
    /// Lists under `properties` whose elements are resources of their own: the list's name is the type segment.
    pub parts: &'static [&'static str],
    /// Style of the etag.
    pub etag: EtagStyle,
    /// Whether a write must have `location`.
    pub located: bool,
    /// Responses to long-running writes.
    pub manner: &'static Manner,
}

/// A list, or single reference, that ARM fills in when a document is read.
#[derive(Debug, PartialEq, Eq)]
pub struct BackReference {
    /// Type of the target, lower-case.
    pub target: &'static str,
    /// Property that lists the sources.
    pub property: &'static str,
    /// End of the type of the sources, lower-case.
    pub source: &'static str,
    /// Whether the property is a list.
    pub many: bool,
    /// Whether it is kept in the canonical form of recorded documents.
    pub canonical: bool,
}

const fn kind(
    name: &'static str,
    parts: &'static [&'static str],
    etag: EtagStyle,
    located: bool,
    manner: &'static Manner,
) -> Kind {
    Kind { name, parts, etag, located, manner }
}

use EtagStyle::{None as NoEtag, Number, Weak};

/// Backend pools, the part most others refer to.
pub const POOLS: &str = "microsoft.network/loadbalancers/backendaddresspools";
/// Frontends of load balancers.
pub const FRONTENDS: &str = "microsoft.network/loadbalancers/frontendipconfigurations";

pub static KINDS: &[Kind] = &[
    kind("Microsoft.Resources/resourceGroups", &[], NoEtag, true, &GROUP),
    kind("Microsoft.Compute/virtualMachineScaleSets", &[], Number, true, &COMPUTE),
    kind("Microsoft.Compute/virtualMachineScaleSets/virtualMachines", &[], Number, true, &COMPUTE),
    kind(
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces",
        &["ipConfigurations"],
        Weak,
        false,
        &INTERFACE,
    ),
    kind(
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/ipConfigurations/publicIPAddresses",
        &[],
        Weak,
        false,
        &PUBLIC_IP,
    ),
    kind("Microsoft.Compute/virtualMachines", &[], Number, true, &COMPUTE),
    kind("Microsoft.Compute/availabilitySets", &[], NoEtag, true, &AT_ONCE),
    kind("Microsoft.Compute/disks", &[], NoEtag, true, &AT_ONCE),
    kind("Microsoft.Network/networkInterfaces", &["ipConfigurations"], Weak, true, &INTERFACE),
    kind("Microsoft.Network/publicIPAddresses", &[], Weak, true, &PUBLIC_IP),
    kind("Microsoft.Network/publicIPPrefixes", &[], Weak, true, &PUBLIC_IP_PREFIX),
    kind(
        "Microsoft.Network/loadBalancers",
        &[
            "frontendIPConfigurations",
            "backendAddressPools",
            "loadBalancingRules",
            "probes",
            "inboundNatRules",
            "inboundNatPools",
            "outboundRules",
        ],
        Weak,
        true,
        &LOAD_BALANCER,
    ),
    kind("Microsoft.Network/networkSecurityGroups", &["securityRules", "defaultSecurityRules"], Weak, true, &NETWORK),
    kind("Microsoft.Network/routeTables", &["routes"], Weak, true, &NETWORK),
    kind("Microsoft.Network/virtualNetworks", &["subnets"], Weak, true, &NETWORK),
    kind("Microsoft.Network/privateLinkServices", &["ipConfigurations", "privateEndpointConnections"], Weak, true, &NETWORK),
    kind("Microsoft.Network/privateEndpoints", &[], Weak, true, &NETWORK),
];

/// References that are derived on reading.
pub static BACK_REFERENCES: &[BackReference] = &[
    single("microsoft.network/publicipaddresses", "ipConfiguration", "ipconfigurations", true),
    many("microsoft.network/publicipprefixes", "publicIPAddresses", "/publicipaddresses", false),
    many("microsoft.network/networksecuritygroups", "subnets", "/subnets", false),
    many("microsoft.network/networksecuritygroups", "networkInterfaces", "/networkinterfaces", false),
    many("microsoft.network/routetables", "subnets", "/subnets", false),
    many("microsoft.compute/availabilitysets", "virtualMachines", "/virtualmachines", true),
    many(FRONTENDS, "loadBalancingRules", "/loadbalancingrules", false),
    many(FRONTENDS, "inboundNatRules", "/inboundnatrules", false),
    many(FRONTENDS, "outboundRules", "/outboundrules", false),
    many(POOLS, "loadBalancingRules", "/loadbalancingrules", false),
    many(POOLS, "outboundRules", "/outboundrules", false),
    many(POOLS, "backendIPConfigurations", "/networkinterfaces/ipconfigurations", true),
    many("microsoft.network/loadbalancers/probes", "loadBalancingRules", "/loadbalancingrules", false),
];

const fn many(target: &'static str, property: &'static str, source: &'static str, canonical: bool) -> BackReference {
    BackReference { target, property, source, many: true, canonical }
}

const fn single(target: &'static str, property: &'static str, source: &'static str, canonical: bool) -> BackReference {
    BackReference { target, property, source, many: false, canonical }
}

/// Returns the type of this name, ignoring letter case.
pub fn kind_of(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name.eq_ignore_ascii_case(name))
}

/// Returns the responses to writes of a type, by its name in any letter case.
pub fn manner_of(name: &str) -> &'static Manner {
    kind_of(name).map_or(&AT_ONCE, |kind| kind.manner)
}

/// Returns the type whose documents embed parts of type `name`, and the list they are in.
pub fn part_of(name: &str) -> Option<(&'static Kind, &'static str)> {
    let (parent, list) = name.rsplit_once('/')?;
    let kind = kind_of(parent)?;
    let list = kind.parts.iter().find(|part| part.eq_ignore_ascii_case(list))?;
    Some((kind, list))
}

/// Returns the references that are derived for documents or parts of type `name` (lower-case).
pub fn back_references(name: &str) -> impl Iterator<Item = &'static BackReference> {
    BACK_REFERENCES.iter().filter(move |reference| reference.target == name)
}
