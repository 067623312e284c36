//! Header fields that a reverse proxy removes and adds. Pure.
//!
//! In: heads. Out: heads without hop-by-hop fields (RFC 9110, section 7.6.1); a request has its client in `X-Forwarded-For`.
//! As `net/http/httputil.ReverseProxy`.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, HeaderValue, Uri, header,
    uri::{InvalidUri, PathAndQuery},
};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Fields that are about one connection, besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Removes the fields about one connection.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = connection.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse::<HeaderName>().ok());
    let named: Vec<HeaderName> = named.collect();
    named.iter().chain(&HOP_BY_HOP).for_each(|name| while headers.remove(name).is_some() {});
}

/// Adds the client to those that the request came from.
pub(super) fn add_client(headers: &mut HeaderMap, client: IpAddr) {
    let earlier = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<String> = earlier.map(str::to_owned).chain([client.to_string()]).collect();
    if let Ok(value) = HeaderValue::try_from(all.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Returns path and query alone: the target is always the same.
pub(super) fn origin_form(uri: &Uri) -> Result<Uri, InvalidUri> {
    uri.path_and_query().map_or("/", PathAndQuery::as_str).parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let field =
            |(name, value): &(&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        lines.iter().map(field).collect()
    }

    #[test]
    fn what_is_about_the_connection_goes() {
        let mut found = headers(&[
            ("connection", "close, X-Mine"),
            ("connection", "other"),
            ("x-mine", "1"),
            ("other", "2"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("host", "node:10356"),
            ("accept", "*/*"),
        ]);
        remove_hop_by_hop(&mut found);
        assert_eq!(found, headers(&[("host", "node:10356"), ("accept", "*/*")]));
    }

    #[test]
    fn the_client_comes_last() {
        let mut found = headers(&[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "2.2.2.2, 3.3.3.3")]);
        add_client(&mut found, "fd00::1".parse().unwrap());
        assert_eq!(found, headers(&[("x-forwarded-for", "1.1.1.1, 2.2.2.2, 3.3.3.3, fd00::1")]));
    }

    #[test]
    fn the_target_gets_path_and_query() {
        for (asked, expected) in [("/healthz?v=1", "/healthz?v=1"), ("http://other:1/x", "/x"), ("http://other", "/")] {
            assert_eq!(origin_form(&asked.parse().unwrap()).unwrap(), expected, "{asked}");
        }
    }
}
