//! Addresses of frontends, as documents have them. Pure.

use std::net::IpAddr;

use crate::providers::azure::model::network::FrontendIpConfiguration;

/// What makes two Services share a front end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum FrontendAddress {
    /// A public IP, by lower-cased id.
    Public(String),
    /// A private address.
    Private(IpAddr),
}

/// The address of a front end; `None`: it has none yet.
pub(super) fn frontend_address(frontend: &FrontendIpConfiguration) -> Option<FrontendAddress> {
    let properties = frontend.properties.as_ref()?;
    match &properties.public_ip_address {
        Some(public) => Some(FrontendAddress::Public(public.id.as_deref()?.to_ascii_lowercase())),
        None => parse_address(properties.private_ip_address.as_ref()).map(FrontendAddress::Private),
    }
}

/// An address in a document.
pub(super) fn parse_address(text: Option<&String>) -> Option<IpAddr> {
    text?.parse().ok()
}
