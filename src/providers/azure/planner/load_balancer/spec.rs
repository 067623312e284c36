//! Desired state of one Service: read from the object, its annotations and the settings, and validated.
//!
//! In: a Service. Out: a [`ServiceSpec`], or all [`ServiceRefusal`]s at once, each with the annotation or field and the accepted values.
//! Every validation error of load balancing arises here. [`parse_leniently`] never fails, because an invalid Service must remain deletable.
//! [`warnings`] returns the problems for which a Service is not refused.

mod access;
mod additional_ips;
mod addresses;
mod limits;
mod parser;
mod ports;
mod private_link;
mod probes;
mod public_ip;
pub mod ranges;
mod reader;
mod types;

pub use additional_ips::{
    AdditionalIpPolicy, ClusterAddresses, additional_ip_conflict, annotated_additional_ips, has_private_additional_ips,
};
pub use addresses::is_public;
pub use limits::ServiceLimits;
pub use parser::{identity_of, parse_leniently, parse_service, status_addresses, warnings};
pub use ports::MAX_PORTS;
pub use reader::refusal;
pub use types::{
    AccessControl, IpFamily, PerFamily, PortProbe, PortSpec, PrivateLinkSpec, ProbeProtocol, ProbeSpec, Protocol,
    PublicIpSpec, ServiceIdentity, ServiceRefusal, ServiceSpec, ServiceWarning, reason,
};

#[cfg(test)]
mod tests;
