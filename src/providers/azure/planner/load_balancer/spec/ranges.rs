//! Address ranges. Pure. Upstream: `pkg/util/iputil`.

use std::net::IpAddr;

use ipnet::IpNet;

/// Parses a range in CIDR notation without host bits. The error is the trimmed text.
pub fn parse(text: &str) -> Result<IpNet, &str> {
    let text = text.trim();
    range(text).ok_or(text)
}

fn range(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let bits: u8 = length.parse().ok().filter(|bits: &u8| bits.to_string() == length)?;
    let range = IpNet::new(address.parse::<IpAddr>().ok()?, bits).ok()?;
    (range.trunc() == range).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_ranges_are_accepted() {
        for (text, want) in [
            (" 10.0.0.0/8 ", Ok("10.0.0.0/8")),
            ("2001:DB8::/32", Ok("2001:db8::/32")),
            ("0.0.0.0/0", Ok("0.0.0.0/0")),
            ("192.0.2.7/32", Ok("192.0.2.7/32")),
            ("10.0.0.1/8", Err("10.0.0.1/8")),
            ("10.0.0.0", Err("10.0.0.0")),
            ("10.0.0.0/33", Err("10.0.0.0/33")),
            ("10.0.0.0/08", Err("10.0.0.0/08")),
            ("10.0.0.0/+8", Err("10.0.0.0/+8")),
            ("010.0.0.0/8", Err("010.0.0.0/8")),
            ("fe80::%eth0/64", Err("fe80::%eth0/64")),
            (" ", Err("")),
        ] {
            assert_eq!(parse(text).map(|range| range.to_string()), want.map(str::to_owned), "{text}");
        }
    }
}
