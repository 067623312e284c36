//! Users named by a front proxy in request headers.
//!
//! In: headers, and the names of the headers to read. Out: the user, or none
//! (`k8s.io/apiserver/pkg/authentication/request/headerrequest`). The caller has verified that the
//! connection is that of a proxy.

use std::collections::BTreeMap;

use axum::http::HeaderMap;

use super::user::RequestUser;
use crate::serving::config::RequestHeaderNames;

/// Returns the user in the headers, or `None` without a user name.
pub(super) fn identify(headers: &HeaderMap, names: &RequestHeaderNames) -> Option<RequestUser> {
    let name = first(headers, &names.username_headers)?;
    let uid = first(headers, &names.uid_headers).unwrap_or_default();
    let groups = names.group_headers.iter().flat_map(|header| values(headers, header)).collect();
    Some(RequestUser { name, uid, groups, extra: extra(headers, &names.extra_headers_prefix) })
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = String> + use<'a> {
    headers.get_all(name.to_ascii_lowercase()).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned)
}

fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    names.iter().find_map(|name| values(headers, name).next().filter(|value| !value.is_empty()))
}

fn extra(headers: &HeaderMap, prefixes: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for prefix in prefixes.iter().map(|prefix| prefix.to_ascii_lowercase()) {
        for (name, value) in headers {
            let (Some(key), Ok(value)) = (name.as_str().strip_prefix(&prefix), value.to_str()) else { continue };
            extra.entry(unescape(key)).or_default().push(value.to_owned());
        }
    }
    extra
}

/// Decodes a key, which may contain characters that header names may not: those are percent-encoded. An invalid key is
/// unchanged.
fn unescape(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let Some(decoded) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else { return key.to_owned() };
        bytes.push(decoded);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned()).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(rows: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in rows {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn users() {
        let names = RequestHeaderNames {
            username_headers: vec!["X-Remote-User".to_owned(), "x-second".to_owned()],
            uid_headers: vec!["X-Remote-Uid".to_owned()],
            ..Default::default()
        };
        assert_eq!(identify(&headers(&[]), &names), None);
        assert_eq!(identify(&headers(&[("x-remote-user", ""), ("x-remote-group", "a")]), &names), None);
        assert_eq!(identify(&headers(&[("x-second", "bob")]), &names).unwrap().name, "bob");
        let all = headers(&[
            ("x-remote-user", "ann"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-scopes", "read"),
            ("x-remote-extra-scopes", "write"),
            ("x-remote-extra-acme.com%2fproject", "p"),
        ]);
        let user = identify(&all, &names).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("ann", "7"));
        assert_eq!(user.groups, ["a", "b"]);
        assert_eq!(user.extra["scopes"], ["read", "write"]);
        assert_eq!(user.extra["acme.com/project"], ["p"]);
    }

    #[test]
    fn keys() {
        for (key, expected) in
            [("a", "a"), ("a%2fb", "a/b"), ("a%2", "a%2"), ("a%zz", "a%zz"), ("%ff", "%ff"), ("a%2FB", "a/b")]
        {
            assert_eq!(unescape(key), expected);
        }
    }
}
