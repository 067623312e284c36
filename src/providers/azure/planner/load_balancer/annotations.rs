//! Table of the annotations of Services: key, accepted values, default, meaning. Readers and the reference page derive from the table.
//!
//! In: the annotations of a Service. Out: typed values, or a [`ServiceRefusal`] that names the key and what it accepts.
//! Upstream: `pkg/consts/consts.go`, `pkg/consts/helpers.go`.

use std::{collections::BTreeMap, marker::PhantomData};

use super::spec::ServiceRefusal;
use crate::runtime::text;

mod formats;
mod patterns;
mod policy;
mod reference;
mod unknown;

pub use formats::{
    AddressFormat, AddressListFormat, AnnotationFormat, AnyCaseTrueFormat, CommaListFormat, DnsLabelFormat, ExactTrueFormat,
    InvalidAnnotationText, IpTagListFormat, MOST_RANGES, NamespaceListFormat, PrefixIdFormat, ProbePathFormat,
    ProbePortFormat, ProbeProtocolFormat, RangeListFormat, ResourceGroupFormat, ResourceNameFormat, RestrictionFormat,
    ServiceTagListFormat, SpaceListFormat, SubnetFormat, TagListFormat, TextFormat, TrimmedTrueFormat, VmSetFormat,
    WholeNumberFormat, is_reserved,
};
pub use policy::admission_policy;
pub use reference::reference_page;
pub use unknown::{AnnotatedPorts, unknown_annotations, use_in};

macro_rules! prefix {
    () => {
        "service.beta.kubernetes.io/"
    };
}

/// Prefix of all keys.
pub const PREFIX: &str = prefix!();

pub type ServiceAnnotations = BTreeMap<String, String>;

/// Row of the table of annotations.
#[derive(Debug, Clone, Copy)]
pub struct AnnotationEntry {
    /// Key; `{p}` is the number of a port of the Service.
    pub key: &'static str,
    /// Section of the reference page.
    pub group: &'static str,
    /// Accepted values, for messages and the reference page.
    pub accepts: fn() -> String,
    /// Longest text that is read, in bytes.
    pub longest: usize,
    /// Regular expression (RE2) of accepted texts, for the admission policy; `None`: the policy does not match the text.
    pub pattern: fn() -> Option<&'static str>,
    /// Smallest and largest number; `None`: the value is not a number.
    pub bounds: fn() -> Option<(i32, i32)>,
    /// Predicate for texts that are refused for every Service.
    pub refuses: fn(&str) -> bool,
    /// Behavior without the annotation.
    pub default: &'static str,
    /// Meaning, for the reference page.
    pub doc: &'static str,
}

/// Annotation that a Service has once, with values of format `K`.
#[derive(Debug)]
pub struct AnnotationKey<K> {
    /// Key, including the prefix.
    pub key: &'static str,
    kind: PhantomData<fn() -> K>,
}

impl<K: AnnotationFormat> AnnotationKey<K> {
    /// Returns the value; `None`: the annotation is absent, or its text counts as absent.
    pub fn read<'a>(&self, annotations: &'a ServiceAnnotations) -> Result<Option<K::Value<'a>>, ServiceRefusal> {
        read::<K>(self.key, annotations)
    }

    /// Returns `true` if the annotation is present, whatever its value.
    pub fn is_given(&self, annotations: &ServiceAnnotations) -> bool {
        annotations.contains_key(self.key)
    }
}

/// Annotation that each port of a Service may have, with values of format `K`.
#[derive(Debug)]
pub struct PortAnnotationKey<K> {
    ending: &'static str,
    kind: PhantomData<fn() -> K>,
}

impl<K: AnnotationFormat> PortAnnotationKey<K> {
    /// Returns the key for a port of the Service, including the prefix.
    pub fn of(&self, port: i32) -> String {
        format!("{PREFIX}port_{port}_{}", self.ending)
    }

    /// Returns the value for a port; `None`: the annotation is absent, or its text counts as absent.
    pub fn read<'a>(&self, port: i32, annotations: &'a ServiceAnnotations) -> Result<Option<K::Value<'a>>, ServiceRefusal> {
        read::<K>(&self.of(port), annotations)
    }
}

/// Reads the text of an annotation; no other code does. A text that is too long or has control characters is refused unread.
fn read<'a, K: AnnotationFormat>(
    key: &str,
    annotations: &'a ServiceAnnotations,
) -> Result<Option<K::Value<'a>>, ServiceRefusal> {
    let Some(text) = annotations.get(key) else { return Ok(None) };
    let refusal = |found: String| ServiceRefusal {
        field: key.to_owned(),
        message: format!("expected {}, found {found}", K::accepts()),
    };
    if text.len() > K::LONGEST {
        let (length, longest) = (text.len(), K::LONGEST);
        return Err(refusal(format!("{length} bytes, of which at most {longest} are read: `{}`", excerpt(text))));
    }
    if text.contains(is_invisible) {
        return Err(refusal(format!("control characters in `{}`", excerpt(text))));
    }
    K::read(text).map_err(|InvalidAnnotationText(part)| refusal(format!("`{}`", excerpt(part))))
}

fn refuses<K: AnnotationFormat>(text: &str) -> bool {
    let key = "annotation";
    read::<K>(key, &[(key.to_owned(), text.to_owned())].into()).is_err()
}

/// Returns `true` for control characters, except blanks such as those between the lines of a list.
fn is_invisible(c: char) -> bool {
    c.is_control() && !c.is_ascii_whitespace()
}

/// Returns the beginning of a user's text for one line of a message: at most 64 characters.
pub fn excerpt(text: &str) -> String {
    const LONGEST: usize = 64;
    text::one_line(&text::excerpt(text, LONGEST))
}

/// Returns excerpts of the first texts of a user, and the number of the omitted texts.
pub fn excerpts<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 5;
    let mut texts = texts.into_iter();
    let mut all: Vec<String> = texts.by_ref().take(MOST).map(|text| format!("`{}`", excerpt(text))).collect();
    match texts.count() {
        0 => {}
        more => all.push(format!("and {more} more")),
    }
    all.join(", ")
}

macro_rules! annotations {
    (
        service { $($group:literal { $($name:ident: $kind:ty = $key:literal $default:literal $doc:literal;)* })* }
        port $port_group:literal { $($port_name:ident: $port_kind:ty = $ending:literal $port_default:literal $port_doc:literal;)* }
    ) => {
        $($(#[doc = $doc] pub const $name: AnnotationKey<$kind> = AnnotationKey { key: concat!(prefix!(), $key), kind: PhantomData };)*)*
        $(#[doc = $port_doc] pub const $port_name: PortAnnotationKey<$port_kind> = PortAnnotationKey { ending: $ending, kind: PhantomData };)*

        /// Annotations, in the order of the reference page.
        pub const ANNOTATIONS: &[AnnotationEntry] = &[
            $($(AnnotationEntry {
                key: concat!(prefix!(), $key), group: $group, accepts: <$kind as AnnotationFormat>::accepts,
                longest: <$kind as AnnotationFormat>::LONGEST, pattern: <$kind as AnnotationFormat>::pattern,
                bounds: <$kind as AnnotationFormat>::bounds, refuses: refuses::<$kind>,
                default: $default, doc: $doc,
            },)*)*
            $(AnnotationEntry {
                key: concat!(prefix!(), "port_{p}_", $ending), group: $port_group, accepts: <$port_kind as AnnotationFormat>::accepts,
                longest: <$port_kind as AnnotationFormat>::LONGEST, pattern: <$port_kind as AnnotationFormat>::pattern,
                bounds: <$port_kind as AnnotationFormat>::bounds, refuses: refuses::<$port_kind>,
                default: $port_default, doc: $port_doc,
            },)*
        ];

        /// Endings of the keys of ports.
        const PORT_ENDINGS: &[&str] = &[$($ending),*];
    };
}

annotations! {
service {
    "Kind of load balancer" {
        INTERNAL: ExactTrueFormat = "azure-load-balancer-internal" "external" "Internal load balancer with an address of the virtual network. Any other spelling of `true`, and any word that is not clearly a no, leaves the Service external, open only to the tags and ranges that are given.";
        INTERNAL_SUBNET: SubnetFormat = "azure-load-balancer-internal-subnet" "`subnetName` of the configuration" "Subnet of the internal address. Part of the names of front end, rules and probes.";
        MODE: VmSetFormat = "azure-load-balancer-mode" "the primary VM set" "Basic load balancers only: VM set whose load balancer is used, or `__auto__` for the least busy one.";
        CONFIGURATIONS: CommaListFormat = "azure-load-balancer-configurations" "every entry" "Names of the entries of `multipleStandardLoadBalancerConfigurations` that may take the Service, in any letter case. Not together with a pinned address or public IP.";
    }
    "Addresses" {
        IPV4: AddressFormat = "azure-load-balancer-ipv4" "`spec.loadBalancerIP`" "IPv4 address of the front end. External: that of an existing public IP. Services that pin the same address share a front end.";
        IPV6: AddressFormat = "azure-load-balancer-ipv6" "`spec.loadBalancerIP`" "IPv6 address of the front end.";
        SHARING_NAMESPACES: NamespaceListFormat = "azure-load-balancer-sharing-namespaces" "the Service's own" "With `enforcePublicIPNamespaces`: other namespaces whose Services may pin the private address of this internal Service, or `*`. Without it, Services of every namespace may. An invalid name is ignored. Only in this program.";
        ADDITIONAL_PUBLIC_IPS: AddressListFormat = "azure-additional-public-ips" "none" "Further addresses that route to the nodes: added to the status and to the security rules, not to the load balancer.";
    }
    "Public IPs" {
        RESOURCE_GROUP: ResourceGroupFormat = "azure-load-balancer-resource-group" "`resourceGroup` of the configuration" "Resource group of the Service's public IPs.";
        PIP_NAME: ResourceNameFormat = "azure-pip-name" "generated" "Name of an existing public IP. Overrides prefix and pinned address.";
        PIP_NAME_IPV6: ResourceNameFormat = "azure-pip-name-ipv6" "generated; for single-stack IPv6 `azure-pip-name`" "The same for IPv6.";
        PIP_PREFIX_ID: PrefixIdFormat = "azure-pip-prefix-id" "none" "Resource id of the public IP prefix from which a new public IP is taken. Changing it replaces the public IP.";
        PIP_PREFIX_ID_IPV6: PrefixIdFormat = "azure-pip-prefix-id-ipv6" "none; for single-stack IPv6 `azure-pip-prefix-id`" "The same for IPv6.";
        PIP_TAGS: TagListFormat = "azure-pip-tags" "none" "Tags of public IPs created by this program; they override those of the configuration. Ignored keys: those that begin with `k8s-azure-`, `service`, `kubernetes-cluster-name` and `kubernetes-dns-label-service`.";
        PIP_IP_TAGS: IpTagListFormat = "azure-pip-ip-tags" "left as they are" "IP tags of the public IP. Changing them replaces it, unless `enableIPTagMutationForExistingPublicIP` is set.";
        DNS_LABEL: DnsLabelFormat = "azure-dns-label-name" "left as it is" "DNS label of the public IP, also of one that a user created. An invalid label is ignored; an empty value removes a label that this Service has set on a public IP created by this program. Of Services that share a public IP, the one that it was created for has precedence.";
    }
    "Who may connect" {
        ALLOWED_SERVICE_TAGS: ServiceTagListFormat = "azure-allowed-service-tags" "the Internet (external), no rule (internal)" "Service tags whose addresses may connect. An invalid tag is ignored, and all traffic that is not allowed is then denied; an empty list denies all.";
        ALLOWED_IP_RANGES: RangeListFormat = "azure-allowed-ip-ranges" "the Internet (external), no rule (internal)" "Ranges that may connect. An invalid range is ignored, and all traffic that is not allowed is then denied; an empty list denies all. Not together with `spec.loadBalancerSourceRanges`.";
        SOURCE_RANGES: RangeListFormat = "load-balancer-source-ranges" "none" "Further ranges, as in `azure-allowed-ip-ranges`.";
        DENY_ALL: RestrictionFormat = "azure-deny-all-except-load-balancer-source-ranges" "`false`" "Deny all traffic that is not allowed, if at least one range is valid. With floating IP disabled, the deny rule covers only the Service's node ports.";
        DISABLE_NSG_RULE: RestrictionFormat = "azure-disable-load-balancer-nsg-rule" "`false`" "No security rules for the Service. With any other word than `true` or `false`, no traffic is allowed and deny rules stay.";
        SHARED_SECURITY_RULE: TextFormat = "azure-shared-securityrule" "" "Without effect, as upstream: security rules are always shared. Older documentation names it.";
    }
    "Rules" {
        IDLE_TIMEOUT: WholeNumberFormat<4, 100> = "azure-load-balancer-tcp-idle-timeout" "`4`" "Minutes after which idle connections end, on every rule.";
        DISABLE_TCP_RESET: AnyCaseTrueFormat = "azure-load-balancer-disable-tcp-reset" "`false`" "Let idle TCP connections end without a reset.";
        HA_PORTS: AnyCaseTrueFormat = "azure-load-balancer-enable-high-availability-ports" "`false`" "One rule for all ports and protocols. Internal standard load balancers only.";
        DISABLE_FLOATING_IP: AnyCaseTrueFormat = "azure-disable-load-balancer-floating-ip" "`false`" "Send traffic to node ports on addresses of nodes instead of to the front end's address.";
    }
    "Health probes" {
        PROBE_PROTOCOL: ProbeProtocolFormat = "azure-load-balancer-health-probe-protocol" "`tcp`" "Protocol of the probes. `appProtocol` of a port overrides it.";
        PROBE_REQUEST_PATH: ProbePathFormat = "azure-load-balancer-health-probe-request-path" "`/`" "Path of HTTP and HTTPS probes.";
        PROBE_INTERVAL: WholeNumberFormat<5, { i32::MAX }> = "azure-load-balancer-health-probe-interval" "`5`" "Seconds between two probes. Interval times number of probes must be less than 120.";
        PROBE_COUNT: WholeNumberFormat<2, { i32::MAX }> = "azure-load-balancer-health-probe-num-of-probe" "`2`" "Failed probes until a node gets no new connections.";
    }
    "Private link" {
        PLS_CREATE: TrimmedTrueFormat = "azure-pls-create" "`false`" "Private link service in front of the IPv4 front end. External Services need `azure-disable-load-balancer-floating-ip`. Without the annotation, one that is there stays as it is until its front end goes.";
        PLS_RESOURCE_GROUP: ResourceGroupFormat = "azure-pls-resource-group" "`privateLinkServiceResourceGroup` of the configuration" "Resource group of the private link service. Cannot be changed later.";
        PLS_NAME: ResourceNameFormat = "azure-pls-name" "`pls-` and the name of the front end" "Name of the private link service. Cannot be changed later, nor be that of another one. Services that share a front end share its private link service: only the one that owns it may have this annotation and those below.";
        PLS_SUBNET: ResourceNameFormat = "azure-pls-ip-configuration-subnet" "that of the Service, else `subnetName` of the configuration" "Subnet of its addresses.";
        PLS_ADDRESS_COUNT: WholeNumberFormat<1, 8> = "azure-pls-ip-configuration-ip-address-count" "`1`" "Number of its addresses.";
        PLS_ADDRESSES: SpaceListFormat = "azure-pls-ip-configuration-ip-address" "none" "Its fixed IPv4 addresses, of which the first is the primary one; the others are chosen by Azure.";
        PLS_FQDNS: SpaceListFormat = "azure-pls-fqdns" "none" "DNS names of the private link service.";
        PLS_PROXY_PROTOCOL: TrimmedTrueFormat = "azure-pls-proxy-protocol" "`false`" "Send the TCP proxy header. Replaces the probe of nodes with local endpoints by one per port.";
        PLS_VISIBILITY: SpaceListFormat = "azure-pls-visibility" "none" "Subscriptions that can see the private link service, or `*`.";
        PLS_AUTO_APPROVAL: SpaceListFormat = "azure-pls-auto-approval" "none" "Subscriptions whose connections need no approval.";
    }
}
port "Single ports" {
    NO_RULE: AnyCaseTrueFormat = "no_lb_rule" "`false`" "No load balancing rule and no probe for the port. Security rules still open it. Not with high-availability ports.";
    NO_PROBE: AnyCaseTrueFormat = "no_probe_rule" "`false`" "A rule without probe. Not with high-availability ports.";
    PORT_PROBE_PROTOCOL: ProbeProtocolFormat = "health-probe_protocol" "`appProtocol`, else the annotation for all ports" "Protocol of the port's probe.";
    PORT_PROBE_PORT: ProbePortFormat = "health-probe_port" "the port's node port" "Probed port: the node port of a Service port, given by name or number, or any other port of the nodes. With `externalTrafficPolicy: Local` the port gets its own probe.";
    PORT_PROBE_REQUEST_PATH: ProbePathFormat = "health-probe_request-path" "the annotation for all ports" "Path of HTTP and HTTPS probes.";
    PORT_PROBE_INTERVAL: WholeNumberFormat<5, { i32::MAX }> = "health-probe_interval" "the annotation for all ports" "Seconds between two probes. With `externalTrafficPolicy: Local`, `{p}` is `spec.healthCheckNodePort`.";
    PORT_PROBE_COUNT: WholeNumberFormat<2, { i32::MAX }> = "health-probe_num-of-probe" "the annotation for all ports" "Failed probes until a node gets no new connections; `{p}` as for the interval.";
}
}
