//! URLs of requests, and the check that URLs from responses have the origin to which tokens may be sent. Pure.

use std::{fmt::Write, net::IpAddr};

use reqwest::Url;

/// Returns `true` for bytes that are not escaped in a path: RFC 3986 unreserved, `/`, and the sub-delimiters that resource groups use.
fn plain_in_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/()$:@".contains(&byte)
}

/// Returns `true` for bytes that are not escaped in a query, including `$`, with which ARM's own parameters begin.
fn plain_in_query(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~$/".contains(&byte)
}

fn escape(target: &mut String, text: &str, plain: fn(u8) -> bool) {
    for byte in text.bytes() {
        if plain(byte) {
            target.push(char::from(byte));
        } else {
            let _ = write!(target, "%{byte:02X}");
        }
    }
}

/// Checks the base URL of a resource manager. The error names the accepted form.
pub(super) fn endpoint(text: &str) -> Result<Url, String> {
    let expected = "expected a URL such as https://management.azure.com/";
    let url = Url::parse(text.trim()).map_err(|error| format!("resource manager endpoint `{text}`: {error}; {expected}"))?;
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match url.scheme() {
        _ if host.is_empty() || !url.username().is_empty() || url.password().is_some() => {
            Err(format!("resource manager endpoint: {expected}, without a user or password"))
        }
        "https" => Ok(url),
        "http" if is_loopback => Ok(url),
        _ => Err(format!("resource manager endpoint `{text}`: tokens are sent over https only; {expected}")),
    }
}

/// Returns `{base}{path}?api-version={version}&{query}`, percent-encoded. `None` if the path is not valid.
pub(super) fn build(base: &Url, path: &str, version: &str, query: &[(&str, &str)]) -> Option<Url> {
    let has_dots = path.split('/').any(|segment| segment == "." || segment == "..");
    if !path.starts_with('/') || path.starts_with("//") || has_dots || path.chars().any(char::is_control) {
        return None;
    }
    let mut text = base.as_str().trim_end_matches('/').to_owned();
    escape(&mut text, path, plain_in_path);
    text.push_str("?api-version=");
    escape(&mut text, version, plain_in_query);
    for (name, value) in query {
        text.push('&');
        escape(&mut text, name, plain_in_query);
        text.push('=');
        escape(&mut text, value, plain_in_query);
    }
    Url::parse(&text).ok().filter(|url| url.origin() == base.origin())
}

/// Returns the URL `text` of a response, absolute or relative to `base`.
///
/// `None` if it has another origin than `base` (scheme, host, port) or contains a user: the token must not be sent there.
pub(super) fn follow(base: &Url, text: &str) -> Option<Url> {
    let url = base.join(text.trim()).ok()?;
    (url.origin() == base.origin() && url.username().is_empty() && url.password().is_none()).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm() -> Url {
        endpoint("https://management.azure.com/").unwrap()
    }

    #[test]
    fn endpoints_are_https_or_loopback() {
        for good in [
            "https://management.azure.com",
            "https://arm.local.azurestack.external:30024/",
            "http://127.0.0.1:8080",
            "http://[::1]:1",
        ] {
            assert!(endpoint(good).is_ok(), "{good}");
        }
        for bad in ["", "management.azure.com", "http://management.azure.com", "https://user:secret@host/", "file:///etc"] {
            let error = endpoint(bad).unwrap_err();
            assert!(error.contains("https") && !error.contains("secret"), "{bad}: {error}");
        }
    }

    #[test]
    fn urls_are_built_and_encoded() {
        let url = build(
            &arm(),
            "/subscriptions/s/resourceGroups/grün (a)/x",
            "2025-04-01",
            &[("$expand", "instanceView"), ("$filter", "a eq 'b&c'")],
        );
        assert_eq!(
            url.unwrap().as_str(),
            "https://management.azure.com/subscriptions/s/resourceGroups/gr%C3%BCn%20(a)/x?api-version=2025-04-01&$expand=instanceView&$filter=a%20eq%20%27b%26c%27"
        );
        let question = build(&arm(), "/a?b#c%2f", "v", &[]).unwrap();
        assert_eq!(question.path(), "/a%3Fb%23c%252f", "a name cannot add a query");
        for bad in ["", "a", "//evil.example/", "/a/../b", "/a\nb", "/./a"] {
            assert_eq!(build(&arm(), bad, "v", &[]), None, "{bad:?}");
        }
        let stack = endpoint("https://stack.example:444/arm/").unwrap();
        assert_eq!(build(&stack, "/s", "v", &[]).unwrap().as_str(), "https://stack.example:444/arm/s?api-version=v");
    }

    #[test]
    fn only_the_same_origin_is_followed() {
        for good in [
            "https://management.azure.com/x?$skiptoken=1",
            "https://MANAGEMENT.azure.com:443/x",
            "/x?api-version=1",
            " https://management.azure.com/x ",
        ] {
            assert!(follow(&arm(), good).is_some(), "{good}");
        }
        for bad in [
            "https://evil.example/x",
            "http://management.azure.com/x",
            "https://management.azure.com:8443/x",
            "https://management.azure.com@evil.example/x",
            "https://user@management.azure.com/x",
            "https://management.azure.com.evil.example/x",
            "//evil.example/x",
            "/\\evil.example/x",
            "javascript:alert(1)",
            "https://",
        ] {
            assert_eq!(follow(&arm(), bad), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_url_has_the_host_of_its_base(text in ".{0,60}", name in ".{0,20}") {
            if let Some(url) = follow(&arm(), &text) {
                proptest::prop_assert_eq!(url.host_str(), Some("management.azure.com"));
            }
            if let Some(url) = build(&arm(), &format!("/{name}"), "v", &[(&name, &text)]) {
                proptest::prop_assert_eq!(url.host_str(), Some("management.azure.com"));
                let values: Vec<_> = url.query_pairs().map(|(_, value)| value.into_owned()).collect();
                proptest::prop_assert_eq!(values, ["v".to_owned(), text.clone()]);
            }
        }
    }
}
