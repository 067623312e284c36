//! Header fields that a reverse proxy removes and adds. Pure.
//!
//! In: heads. Out: heads without hop-by-hop fields (RFC 9110, section 7.6.1); requests have their client in `X-Forwarded-For`.
//! Model: `net/http/httputil.ReverseProxy`.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, HeaderValue, Uri, header,
    uri::{InvalidUri, PathAndQuery},
};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Fields that concern one connection, in addition to those that `Connection` names.
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

/// Removes the fields that concern one connection.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = connection.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse::<HeaderName>().ok());
    let named: Vec<HeaderName> = named.collect();
    named.iter().chain(&HOP_BY_HOP).for_each(|name| while headers.remove(name).is_some() {});
}

/// Appends the client to `X-Forwarded-For`.
pub(super) fn add_client(headers: &mut HeaderMap, client: IpAddr) {
    let earlier = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<String> = earlier.map(str::to_owned).chain([client.to_string()]).collect();
    if let Ok(value) = HeaderValue::try_from(all.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Returns only path and query, because the target is always the same.
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
    fn hop_by_hop_fields_are_removed() {
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
    fn client_is_appended_to_forwarded_for() {
        let mut found = headers(&[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "2.2.2.2, 3.3.3.3")]);
        add_client(&mut found, "fd00::1".parse().unwrap());
        assert_eq!(found, headers(&[("x-forwarded-for", "1.1.1.1, 2.2.2.2, 3.3.3.3, fd00::1")]));
    }

    #[test]
    fn origin_form_has_only_path_and_query() {
        for (requested, expected) in [("/healthz?v=1", "/healthz?v=1"), ("http://other:1/x", "/x"), ("http://other", "/")] {
            assert_eq!(origin_form(&requested.parse().unwrap()).unwrap(), expected, "{requested}");
        }
    }
}
