//! Header of the PROXY protocol at the beginning of a connection, versions 1 and 2. Pure.
//!
//! In: the bytes that have arrived so far. Out: length and source of the header, its absence, or that more bytes are needed to
//! decide. Specification: <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum length of an accepted header: more than any load balancer sends, and small enough to buffer for every connection.
pub const LONGEST: usize = 4096;
/// Maximum length of a header of version 1, with its line end.
const LONGEST_LINE: usize = 107;
const LINE: &[u8] = b"PROXY ";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Length of the fixed part: signature, version and command, family, length.
const FIXED: usize = 16;

/// Beginning of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyHeader {
    /// More bytes are needed to decide.
    Incomplete,
    /// Connection without a header: the bytes are the client's own.
    Absent,
    Present {
        /// Length of the header in bytes; the client's own bytes follow.
        length: usize,
        /// Source in the header; `None` for checks by the load balancer itself and for families without an address.
        source: Option<IpAddr>,
    },
    /// Header that is not valid, for this reason.
    Malformed(&'static str),
}

/// Reads the header at the beginning of `bytes`.
pub fn parse(bytes: &[u8]) -> ProxyHeader {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(found, expected)| found == expected);
    for (start, read) in [(LINE, line as fn(&[u8]) -> ProxyHeader), (SIGNATURE, binary)] {
        if begins(start) {
            return if bytes.len() < start.len() { ProxyHeader::Incomplete } else { read(bytes) };
        }
    }
    ProxyHeader::Absent
}

fn line(bytes: &[u8]) -> ProxyHeader {
    let within = &bytes[..bytes.len().min(LONGEST_LINE)];
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        let full = within.len() == LONGEST_LINE;
        return if full { ProxyHeader::Malformed("the line does not end") } else { ProxyHeader::Incomplete };
    };
    let Ok(text) = std::str::from_utf8(&within[LINE.len()..end]) else {
        return ProxyHeader::Malformed("the line is not valid UTF-8");
    };
    match source_in_line(text) {
        Some(source) => ProxyHeader::Present { length: end + 2, source },
        None => ProxyHeader::Malformed("the line does not name a family, two addresses and two ports"),
    }
}

/// Returns the source in a line; `None` if the line is malformed.
fn source_in_line(text: &str) -> Option<Option<IpAddr>> {
    let words: Vec<&str> = text.split(' ').collect();
    // Receivers must ignore the rest of the line for a connection of unknown kind.
    if words[0] == "UNKNOWN" {
        return Some(None);
    }
    let [family, source, destination, from, to] = words[..] else { return None };
    let addresses = [source, destination].map(|address| address.parse::<IpAddr>().ok());
    let of_family = |address: &Option<IpAddr>| match family {
        "TCP4" => address.is_some_and(|address| address.is_ipv4()),
        "TCP6" => address.is_some_and(|address| address.is_ipv6()),
        _ => false,
    };
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok();
    (addresses.iter().all(of_family) && is_port(from) && is_port(to)).then_some(addresses[0])
}

fn binary(bytes: &[u8]) -> ProxyHeader {
    let Some(fixed) = bytes.first_chunk::<FIXED>() else { return ProxyHeader::Incomplete };
    let (version, command, family) = (fixed[12] >> 4, fixed[12] & 0xf, fixed[13] >> 4);
    let length = FIXED + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if version != 2 {
        return ProxyHeader::Malformed("the version is not 2");
    }
    if command > 1 {
        return ProxyHeader::Malformed("the command is neither LOCAL nor PROXY");
    }
    if length > LONGEST {
        return ProxyHeader::Malformed("it is longer than 4096 bytes");
    }
    let Some(body) = bytes.get(FIXED..length) else { return ProxyHeader::Incomplete };
    // LOCAL is a connection of the load balancer itself, whose addresses must be ignored.
    match if command == 0 { Some(None) } else { source(family, body) } {
        Some(source) => ProxyHeader::Present { length, source },
        None => ProxyHeader::Malformed("it is too short for its addresses"),
    }
}

/// Returns the source in the addresses of a binary header; `None` if they are truncated.
fn source(family: u8, body: &[u8]) -> Option<Option<IpAddr>> {
    /// Length of two addresses and two ports.
    const IPV4: usize = 12;
    const IPV6: usize = 36;
    const UNIX: usize = 216;
    match family {
        1 => body.get(..IPV4)?.first_chunk::<4>().map(|address| Some(Ipv4Addr::from(*address).into())),
        2 => body.get(..IPV6)?.first_chunk::<16>().map(|address| Some(Ipv6Addr::from(*address).into())),
        3 => body.get(..UNIX).map(|_| None),
        _ => Some(None),
    }
}

#[cfg(test)]
mod tests;
