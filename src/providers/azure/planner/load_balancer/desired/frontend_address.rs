//! Addresses of frontends, as documents have them. Pure.

use std::net::IpAddr;

use crate::providers::azure::model::network::FrontendIpConfiguration;

/// Address of a frontend. Services with the same address share a frontend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum FrontendAddress {
    /// Id of a public IP, in lower case.
    Public(String),
    Private(IpAddr),
}

/// Returns the address of a frontend; `None` if it has none yet.
pub(super) fn frontend_address(frontend: &FrontendIpConfiguration) -> Option<FrontendAddress> {
    let properties = frontend.properties.as_ref()?;
    match &properties.public_ip_address {
        Some(public) => Some(FrontendAddress::Public(public.id.as_deref()?.to_ascii_lowercase())),
        None => parse_address(properties.private_ip_address.as_ref()).map(FrontendAddress::Private),
    }
}

/// Parses an address in a document; `None` if it is missing or invalid.
pub(super) fn parse_address(text: Option<&String>) -> Option<IpAddr> {
    text?.parse().ok()
}
