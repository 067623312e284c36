//! Desired state of a Service as plain values, and the reasons for refusing a Service. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use ipnet::IpNet;

use crate::providers::azure::model::ResourceId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    V4,
    V6,
}

impl IpFamily {
    /// Both families, IPv4 first.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { IpFamily::V4 } else { IpFamily::V6 }
    }
}

/// ARM's spelling: `IPv4`, `IPv6`.
impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IpFamily::V4 => "IPv4",
            IpFamily::V6 => "IPv6",
        })
    }
}

/// Pair of values, one for each IP family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PerFamily<T> {
    pub v4: T,
    pub v6: T,
}

impl<T> PerFamily<T> {
    /// Returns the value for `family`.
    pub fn get(&self, family: IpFamily) -> &T {
        match family {
            IpFamily::V4 => &self.v4,
            IpFamily::V6 => &self.v6,
        }
    }
}

/// Identity of a Service in the names and tags of Azure resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceIdentity {
    /// `<namespace>/<name>`, as in the tags of public IPs.
    pub key: String,
    /// `a` and the UID without dashes, cut to 32 characters: the prefix of the names of all parts of the Service.
    pub name_prefix: String,
}

impl ServiceIdentity {
    /// Returns the namespace of the Service.
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map(|(namespace, _)| namespace).unwrap_or_default()
    }
}

/// Protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// Protocol of a health probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeProtocol {
    Tcp,
    Http,
    Https,
}

/// Desired health probe of a load balancing rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeSpec {
    pub protocol: ProbeProtocol,
    /// Probed port of the Nodes.
    pub port: i32,
    /// Path, for HTTP and HTTPS.
    pub path: Option<String>,
    /// Seconds between two probes.
    pub interval: i32,
    /// Failed probes until a Node gets no new connections.
    pub threshold: i32,
}

impl ProbeSpec {
    /// Seconds between two probes without an annotation, also of the shared probe.
    pub const DEFAULT_INTERVAL: i32 = 5;
    /// Failed probes without an annotation, also of the shared probe.
    pub const DEFAULT_THRESHOLD: i32 = 2;
}

/// Health probe of the load balancing rule of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortProbe {
    None,
    /// Probe of this port alone, named like the rule.
    Own(ProbeSpec),
    /// Probe of Nodes with local endpoints ([`ServiceSpec::local_probe`]).
    Local,
    /// Probe that all Services with policy `Cluster` share.
    Shared,
}

/// Port of a Service, with its rule and probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    pub protocol: Protocol,
    /// Port of the frontend.
    pub port: i32,
    /// Port on the Nodes; 0: none is allocated.
    pub node_port: i32,
    /// Whether the port gets a load balancing rule (`port_<p>_no_lb_rule`).
    pub rule: bool,
    pub probe: PortProbe,
}

/// Desired properties of the public IPs of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicIpSpec {
    /// Resource group of the public IPs.
    pub group: ResourceId,
    /// Names of existing public IPs that the Service uses.
    pub name: PerFamily<Option<String>>,
    /// Prefix that new public IPs are allocated from, as written in the annotation.
    pub prefix: PerFamily<Option<String>>,
    /// Tags in addition to those of the configuration.
    pub tags: BTreeMap<String, String>,
    /// IP tags as pairs of type and value; `None`: not requested, so never compared.
    pub ip_tags: Option<Vec<(String, String)>>,
    /// DNS label; `None`: the label is not changed; empty: the label is removed.
    pub dns_label: Option<String>,
}

/// Access restrictions of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessControl {
    /// Service tags, in the order of the annotation.
    pub tags: Vec<String>,
    /// Address ranges, aggregated: none contains another, siblings are merged.
    pub ranges: Vec<IpNet>,
    /// Whether a range or service tag is invalid: then all sources except the valid ones are denied.
    pub has_invalid_ranges: bool,
    /// Whether a rule denies all sources that are not allowed.
    pub deny_all: bool,
    /// Whether the Service has no security rules: `azure-disable-load-balancer-nsg-rule`.
    pub disabled: bool,
    /// Whether no source is allowed, while rules that deny remain.
    ///
    /// The reason is that `azure-disable-load-balancer-nsg-rule` cannot be read, or that the Service is external only because
    /// `azure-load-balancer-internal` is `True` instead of `true`: a Service that was meant to be internal must not be open to the
    /// Internet.
    pub closed: bool,
}

/// Desired private link service of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateLinkSpec {
    /// Resource group of the private link service.
    pub group: ResourceId,
    /// Whether an annotation names the resource group.
    pub names_group: bool,
    /// Name; `None`: the name of the existing private link service, else the generated name.
    pub name: Option<String>,
    /// Annotation that names the subnet of the addresses, and the subnet; `None`: no annotation names a subnet.
    pub subnet: Option<(&'static str, String)>,
    /// Number of addresses, fixed or not.
    pub address_count: usize,
    /// Fixed addresses, in order; the first is the primary address.
    pub addresses: Vec<Ipv4Addr>,
    pub fqdns: Vec<String>,
    /// Whether connections begin with the proxy header.
    pub proxy_protocol: bool,
    /// Subscriptions that can see the private link service; `*`: every subscription.
    pub visibility: Vec<String>,
    /// Subscriptions whose connections are approved automatically.
    pub auto_approval: Vec<String>,
    /// Given annotations that only the Service that owns the private link service may have.
    pub owners_only: Vec<&'static str>,
}

/// Desired state of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSpec {
    pub identity: ServiceIdentity,
    /// Whether another manager of the cluster serves the Service: its parts of shared documents remain, and nothing else is done for it.
    pub is_others: bool,
    pub internal: bool,
    /// Families of the frontends, IPv4 first; IPv4 alone if the Service names none.
    pub families: Vec<IpFamily>,
    /// Ports, in the order of the Service.
    pub ports: Vec<PortSpec>,
    /// Probe of Nodes with local endpoints, for `externalTrafficPolicy: Local`; its port is the health-check node port.
    pub local_probe: Option<ProbeSpec>,
    /// Whether the Service has its own backend pools: policy `Local`, where there are several load balancers.
    pub own_pool: bool,
    /// Probe of the single rule for all ports (`azure-load-balancer-enable-high-availability-ports`, internal and standard only).
    ///
    /// `None`: each port has its own rule.
    pub ha_ports: Option<PortProbe>,
    /// Whether the load distribution is `SourceIP` instead of `Default`.
    pub client_ip_affinity: bool,
    /// Idle timeout of connections in minutes, 4 to 100.
    pub idle_timeout: i32,
    /// Whether TCP connections are reset when idle.
    pub tcp_reset: bool,
    /// Whether rules use floating IP (IPv6 rules of internal load balancers never do).
    pub floating_ip: bool,
    /// Subnet of the internal frontend, if the annotation names one.
    pub subnet: Option<String>,
    /// Addresses that the user pins: those of annotations, else `spec.loadBalancerIP`.
    pub pinned: PerFamily<Option<IpAddr>>,
    /// `azure-load-balancer-sharing-namespaces`: other namespaces whose Services may pin the private address of this Service, or `*`.
    pub sharing_namespaces: Vec<String>,
    pub public_ip: PublicIpSpec,
    /// `azure-additional-public-ips`.
    pub additional_ips: Vec<IpAddr>,
    pub access: AccessControl,
    /// `azure-load-balancer-mode`, for basic load balancers.
    pub mode: Option<String>,
    /// `azure-load-balancer-configurations`: names of entries of the configuration, in lower case; `None`: every entry that accepts the
    /// Service.
    pub configurations: Option<Vec<String>>,
    /// Labels of the Service that a selector of some entry of the configuration reads.
    pub labels: BTreeMap<String, String>,
    /// Labels of the Namespace that a selector of some entry reads; `None`: the observed labels count.
    pub namespace_labels: Option<BTreeMap<String, String>>,
    /// Private link service of the IPv4 frontend.
    pub private_link: Option<PrivateLinkSpec>,
    /// Addresses in the Service's status.
    pub status_addresses: Vec<IpAddr>,
}

impl ServiceSpec {
    /// Returns `true` if the Service pins its address of `family`, or names the public IP.
    pub fn pins(&self, family: IpFamily) -> bool {
        self.pinned.get(family).is_some() || (!self.internal && self.public_ip.name.get(family).is_some())
    }

    /// Returns the number of load balancing rules, over all families.
    pub fn rule_count(&self) -> usize {
        let by_family = if self.ha_ports.is_some() { 1 } else { self.ports.iter().filter(|port| port.rule).count() };
        by_family * self.families.len()
    }

    /// Returns the number of security rules that the Service needs on its own frontends.
    pub fn security_rule_count(&self) -> usize {
        let AccessControl { tags, ranges, has_invalid_ranges, deny_all, disabled, closed } = &self.access;
        if *disabled {
            return 0;
        }
        let protocols = self.ports.iter().map(|port| port.protocol).collect::<BTreeSet<_>>().len();
        let of_additional = self.additional_ips.iter().map(|address| IpFamily::of(*address));
        let families: BTreeSet<IpFamily> = self.families.iter().copied().chain(of_additional).collect();
        let is_open = !self.internal && tags.is_empty() && ranges.is_empty() && !has_invalid_ranges;
        let sources = |family: IpFamily| {
            let has_ranges = ranges.iter().any(|range| IpFamily::of(range.addr()) == family);
            if *closed { 0 } else { tags.len() + usize::from(is_open || has_ranges) }
        };
        let denies_rest = *has_invalid_ranges || (*deny_all && !ranges.is_empty());
        // Rules at instances: one for each protocol denies the rest, and one allows the probes.
        let at_machines = if self.floating_ip { 0 } else { protocols + 1 };
        let denying = usize::from(denies_rest) * (1 + at_machines);
        families.into_iter().map(|family| protocols * sources(family) + denying).sum()
    }

    pub fn namespace(&self) -> &str {
        self.identity.namespace()
    }

    /// Returns `true` if both specs request the same. Status addresses are not compared, because this program writes them.
    pub fn is_same_request(&self, other: &Self) -> bool {
        let request = |spec: &Self| Self { status_addresses: Vec::new(), ..spec.clone() };
        request(self) == request(other)
    }

    /// Returns `true` if Services of `namespace` may pin the private address of this Service where namespaces are enforced.
    pub fn shares_with(&self, namespace: &str) -> bool {
        let is_allowed = |allowed: &String| allowed == "*" || allowed == namespace;
        self.namespace() == namespace || self.sharing_namespaces.iter().any(is_allowed)
    }

    pub fn is_dual_stack(&self) -> bool {
        self.families.len() == 2
    }
}

/// Problem for which a Service is refused until the Service or the configuration changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ServiceRefusal {
    /// Annotation or field, as the user writes it.
    pub field: String,
    /// Description of the problem, with the accepted values.
    pub message: String,
}

/// Problem for which a Service is not refused, such as a setting without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceWarning {
    /// Reason of the event, one of [`reason`].
    pub reason: &'static str,
    /// Annotation or field, as the user writes it.
    pub field: String,
    /// Description of the problem and its effect.
    pub message: String,
}

/// Event reasons of [`ServiceWarning`]s.
pub mod reason {
    /// Invalid range in `spec.loadBalancerSourceRanges`. As upstream.
    pub const INVALID_SOURCE_RANGES: &str = "InvalidSourceRanges";
    /// Invalid range in an annotation. As upstream.
    pub const INVALID_ALLOWED_IP_RANGES: &str = "InvalidAllowedIPRanges";
    /// Ranges of a family that the Service does not have, or a family without ranges. As upstream.
    pub const IP_RANGE_FAMILY_MISMATCH: &str = "IPRangeFamilyMismatch";
    /// `spec.loadBalancerSourceRanges` together with service tags. As upstream.
    pub const CONFLICT_CONFIGURATION: &str = "ConflictConfiguration";
    /// A known annotation or field that has no effect on this Service.
    pub const IGNORED_CONFIGURATION: &str = "IgnoredConfiguration";
    /// Restriction that cannot be read, and therefore restricts.
    pub const UNREADABLE_RESTRICTION: &str = "UnreadableRestriction";
    /// Health probe that no component on the Nodes can answer.
    pub const UNANSWERED_PROBE: &str = "UnansweredHealthProbe";
    /// Annotation key that no component reads.
    pub const UNKNOWN_ANNOTATION: &str = "UnknownAnnotation";
}
