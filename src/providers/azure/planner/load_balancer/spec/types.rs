//! What a Service asks for, as plain values; and what keeps it from getting it. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use ipnet::IpNet;

use crate::providers::azure::model::ResourceId;

/// An IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    /// Both families, IPv4 first.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
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

/// One value for each family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PerFamily<T> {
    /// For IPv4.
    pub v4: T,
    /// For IPv6.
    pub v6: T,
}

impl<T> PerFamily<T> {
    /// The value for `family`.
    pub fn get(&self, family: IpFamily) -> &T {
        match family {
            IpFamily::V4 => &self.v4,
            IpFamily::V6 => &self.v6,
        }
    }
}

/// Who a Service is, as far as names and tags in Azure tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceIdentity {
    /// `<namespace>/<name>`, as in the tags of public IPs.
    pub key: String,
    /// `a` and the UID without dashes, cut to 32 characters: the beginning of its names.
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
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// Protocol of a health probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeProtocol {
    /// `Tcp`.
    Tcp,
    /// `Http`.
    Http,
    /// `Https`.
    Https,
}

/// A health probe, as asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeSpec {
    /// Protocol.
    pub protocol: ProbeProtocol,
    /// Port on the nodes.
    pub port: i32,
    /// Path, for HTTP and HTTPS.
    pub path: Option<String>,
    /// Seconds between two probes.
    pub interval: i32,
    /// Failures until a node is out.
    pub threshold: i32,
}

impl ProbeSpec {
    /// Interval of probes without an annotation, the shared one included.
    pub const DEFAULT_INTERVAL: i32 = 5;
    /// Threshold of the same probes.
    pub const DEFAULT_THRESHOLD: i32 = 2;
}

/// Which probe the rule of a port has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortProbe {
    /// None.
    None,
    /// Its own, named like the rule.
    Own(ProbeSpec),
    /// The Service's probe of nodes with local endpoints ([`ServiceSpec::local_probe`]).
    Local,
    /// The one that all Services with policy `Cluster` share.
    Shared,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    /// Protocol.
    pub protocol: Protocol,
    /// Port of the front end.
    pub port: i32,
    /// Port on the nodes; 0 when none is allocated.
    pub node_port: i32,
    /// Whether the port gets a load balancing rule (`port_<p>_no_lb_rule`).
    pub rule: bool,
    /// Its probe.
    pub probe: PortProbe,
}

/// What is asked of the public IPs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicIpSpec {
    /// Resource group.
    pub group: ResourceId,
    /// Names of existing ones.
    pub name: PerFamily<Option<String>>,
    /// Prefix to take new ones from, as written.
    pub prefix: PerFamily<Option<String>>,
    /// Tags beside the configured ones.
    pub tags: BTreeMap<String, String>,
    /// IP tags, type and value; `None`: not asked for, so never compared.
    pub ip_tags: Option<Vec<(String, String)>>,
    /// DNS label; `None`: left as it is; empty: removed.
    pub dns_label: Option<String>,
}

/// Who may reach the Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessControl {
    /// Service tags, in the order of the annotation.
    pub tags: Vec<String>,
    /// Address ranges, aggregated: none contains another, siblings are merged.
    pub ranges: Vec<IpNet>,
    /// Whether some range or service tag could not be read: then all but the valid ones is denied.
    pub has_invalid_ranges: bool,
    /// Whether all that is not allowed is denied by a rule.
    pub deny_all: bool,
    /// Whether no rule is wanted: `azure-disable-load-balancer-nsg-rule`.
    pub disabled: bool,
    /// Whether nobody is let in, while what denies stays: `azure-disable-load-balancer-nsg-rule` cannot be read, or the Service is
    /// external only because `azure-load-balancer-internal` is `True` instead of `true`, which must not open what was meant to be
    /// internal to the Internet.
    pub closed: bool,
}

/// What is asked of a private link service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateLinkSpec {
    /// Resource group.
    pub group: ResourceId,
    /// Whether an annotation names it.
    pub names_group: bool,
    /// Its name; `None`: that of the one that is there, else the generated one.
    pub name: Option<String>,
    /// Subnet of its addresses, when an annotation names one, and the annotation.
    pub subnet: Option<(&'static str, String)>,
    /// How many addresses it has.
    pub address_count: usize,
    /// Those of them that are fixed, in order; the first is the primary one.
    pub addresses: Vec<Ipv4Addr>,
    /// DNS names.
    pub fqdns: Vec<String>,
    /// Whether connections begin with the proxy header.
    pub proxy_protocol: bool,
    /// Subscriptions that can see it.
    pub visibility: Vec<String>,
    /// Subscriptions that are let in unasked.
    pub auto_approval: Vec<String>,
    /// The annotations that are given of those that only the Service that owns a private link service may have.
    pub owners_only: Vec<&'static str>,
}

/// What a Service asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSpec {
    /// Who.
    pub identity: ServiceIdentity,
    /// Whether it is another manager's of the cluster: what it has in shared documents stays, and nothing else is done for it.
    pub is_others: bool,
    /// Whether the load balancer is internal.
    pub internal: bool,
    /// Families of the front ends, in order; IPv4 alone when the Service names none.
    pub families: Vec<IpFamily>,
    /// Ports, in order.
    pub ports: Vec<PortSpec>,
    /// The probe of nodes with local endpoints, for `externalTrafficPolicy: Local`; the number is its health-check node port.
    pub local_probe: Option<ProbeSpec>,
    /// Whether it has back-end pools for itself: policy `Local`, where there are several load balancers.
    pub own_pool: bool,
    /// One rule for all ports (`azure-load-balancer-enable-high-availability-ports`, internal and standard only), with its probe.
    pub ha_ports: Option<PortProbe>,
    /// `SourceIP` instead of `Default`.
    pub client_ip_affinity: bool,
    /// Minutes, 4 to 100.
    pub idle_timeout: i32,
    /// Whether TCP connections are reset when idle.
    pub tcp_reset: bool,
    /// Whether rules use floating IP (IPv6 rules of internal load balancers never do).
    pub floating_ip: bool,
    /// Subnet of the internal front end, when the annotation names one.
    pub subnet: Option<String>,
    /// Addresses that the user pins: annotations, else `spec.loadBalancerIP`.
    pub pinned: PerFamily<Option<IpAddr>>,
    /// `azure-load-balancer-sharing-namespaces`: other namespaces whose Services may pin its private address, or `*`.
    pub sharing_namespaces: Vec<String>,
    /// Public IPs.
    pub public_ip: PublicIpSpec,
    /// `azure-additional-public-ips`.
    pub additional_ips: Vec<IpAddr>,
    /// Security rules.
    pub access: AccessControl,
    /// `azure-load-balancer-mode`, for basic load balancers.
    pub mode: Option<String>,
    /// `azure-load-balancer-configurations`: entries of the configuration, lower-cased; `None`: each that takes it.
    pub configurations: Option<Vec<String>>,
    /// Those of the Service's labels that some entry of the configuration looks at.
    pub labels: BTreeMap<String, String>,
    /// Those of its Namespace; `None`: those that were observed.
    pub namespace_labels: Option<BTreeMap<String, String>>,
    /// The private link service in front of its IPv4 front end.
    pub private_link: Option<PrivateLinkSpec>,
    /// Addresses in the Service's status.
    pub status_addresses: Vec<IpAddr>,
}

impl ServiceSpec {
    /// Whether it names its address of the family, or the public IP.
    pub fn pins(&self, family: IpFamily) -> bool {
        self.pinned.get(family).is_some() || (!self.internal && self.public_ip.name.get(family).is_some())
    }

    /// How many load balancing rules it has.
    pub fn rule_count(&self) -> usize {
        let by_family = if self.ha_ports.is_some() { 1 } else { self.ports.iter().filter(|port| port.rule).count() };
        by_family * self.families.len()
    }

    /// Returns the number of security rules that it needs on frontends of its own.
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
        // At machines, the rest is denied for each protocol, and probes are let in.
        let at_machines = if self.floating_ip { 0 } else { protocols + 1 };
        let denying = usize::from(denies_rest) * (1 + at_machines);
        families.into_iter().map(|family| protocols * sources(family) + denying).sum()
    }

    /// The namespace that it is in.
    pub fn namespace(&self) -> &str {
        self.identity.namespace()
    }

    /// Returns `true` if both request the same. The status is not part of it: its addresses are this program's.
    pub fn is_same_request(&self, other: &Self) -> bool {
        let request = |spec: &Self| Self { status_addresses: Vec::new(), ..spec.clone() };
        request(self) == request(other)
    }

    /// Whether Services of a namespace may pin its private address where namespaces are enforced.
    pub fn shares_with(&self, namespace: &str) -> bool {
        let is_allowed = |allowed: &String| allowed == "*" || allowed == namespace;
        self.namespace() == namespace || self.sharing_namespaces.iter().any(is_allowed)
    }

    /// Exactly two families.
    pub fn is_dual_stack(&self) -> bool {
        self.families.len() == 2
    }
}

/// Why a Service cannot have what it asks for, until somebody changes something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ServiceRefusal {
    /// Annotation or field, as the user writes it.
    pub field: String,
    /// What is wrong and what would be accepted.
    pub message: String,
}

/// What does not refuse a Service, but is probably not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceWarning {
    /// Reason of the event, one of [`reason`].
    pub reason: &'static str,
    /// Annotation or field, as the user writes it.
    pub field: String,
    /// What is strange and what it means.
    pub message: String,
}

/// Reasons of [`ServiceWarning`]s.
pub mod reason {
    /// Some of `spec.loadBalancerSourceRanges` is no range. As upstream.
    pub const INVALID_SOURCE_RANGES: &str = "InvalidSourceRanges";
    /// Some range of the annotations is none. As upstream.
    pub const INVALID_ALLOWED_IP_RANGES: &str = "InvalidAllowedIPRanges";
    /// Ranges of a family that the Service does not have, or a family without ranges. As upstream.
    pub const IP_RANGE_FAMILY_MISMATCH: &str = "IPRangeFamilyMismatch";
    /// `spec.loadBalancerSourceRanges` together with service tags. As upstream.
    pub const CONFLICT_CONFIGURATION: &str = "ConflictConfiguration";
    /// A known annotation or field that has no effect on this Service.
    pub const IGNORED_CONFIGURATION: &str = "IgnoredConfiguration";
    /// A restriction that cannot be read, and restricts therefore.
    pub const UNREADABLE_RESTRICTION: &str = "UnreadableRestriction";
    /// A health probe that nobody can answer.
    pub const UNANSWERED_PROBE: &str = "UnansweredHealthProbe";
    /// A key that nothing reads.
    pub const UNKNOWN_ANNOTATION: &str = "UnknownAnnotation";
}
