//! Validates the form of a request before authentication. Pure.
//!
//! In: method and target. Out: nothing, or the refusal. Valid requests are short enough for comparison, review, logs
//! and messages.

use http::{Method, StatusCode, Uri};

/// Maximum length of a path. The longest paths contain the name of a health check, which is bounded.
const PATH_LIMIT: usize = 256;
/// Maximum length of a query, which is sufficient to exclude every health check by name.
const QUERY_LIMIT: usize = 2048;

/// Methods that correspond to a verb of RBAC, as the value of `Allow`.
pub(super) const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Reason why a request is refused before authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedRequest {
    /// HTTP status code of the response.
    pub code: StatusCode,
    /// `reason` of the Status.
    pub reason: &'static str,
    /// Description of the accepted form.
    pub message: &'static str,
}

/// Checks method and target.
pub fn check(method: &Method, uri: &Uri) -> Result<(), MalformedRequest> {
    if !METHODS.split(", ").any(|supported| method == supported) {
        let message = "unknown method; accepted: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
        return Err(MalformedRequest { code: StatusCode::METHOD_NOT_ALLOWED, reason: "MethodNotAllowed", message });
    }
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    if path.len() > PATH_LIMIT || query.len() > QUERY_LIMIT {
        let message = "the target is too long; accepted: a path of up to 256 bytes and a query of up to 2048";
        return Err(MalformedRequest { code: StatusCode::URI_TOO_LONG, reason: "RequestURITooLong", message });
    }
    if !path.starts_with('/') || !path.bytes().all(in_path) {
        let message = "the path has characters that are not those of a URL's path (RFC 3986)";
        return Err(MalformedRequest { code: StatusCode::BAD_REQUEST, reason: "BadRequest", message });
    }
    Ok(())
}

/// Returns `true` for a pchar of RFC 3986, or a slash.
fn in_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%/".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(method: &str, target: &str) -> Option<u16> {
        let (method, uri) = (Method::from_bytes(method.as_bytes()).unwrap(), target.parse().unwrap());
        check(&method, &uri).err().map(|malformed| malformed.code.as_u16())
    }

    #[test]
    fn forms() {
        let (path, query) = ("a".repeat(PATH_LIMIT - 1), "a".repeat(QUERY_LIMIT));
        let rows = [
            ("GET", "/healthz".to_owned(), None),
            ("PUT", "/debug/flags/v".to_owned(), None),
            ("OPTIONS", "/a-b/c%20d:e@f".to_owned(), None),
            ("GET", format!("/{path}?{query}"), None),
            ("GET", format!("/{path}a"), Some(414)),
            ("GET", format!("/?{query}a"), Some(414)),
            ("GET", "/{a}".to_owned(), Some(400)),
            ("GET", "/a\"b".to_owned(), Some(400)),
            ("OPTIONS", "*".to_owned(), Some(400)),
            ("get", "/healthz".to_owned(), Some(405)),
            ("TRACE", "/healthz".to_owned(), Some(405)),
            ("CONNECT", "example.com:80".to_owned(), Some(405)),
            ("PROPFIND", "/healthz".to_owned(), Some(405)),
        ];
        for (method, target, expected) in rows {
            assert_eq!(code(method, &target), expected, "{method} {target}");
        }
        assert_eq!(code(&"A".repeat(950_000), "/"), Some(405));
    }

    #[test]
    fn the_message_names_the_limits() {
        let long: Uri = "/".repeat(PATH_LIMIT + 1).parse().unwrap();
        let message = check(&Method::GET, &long).unwrap_err().message;
        assert!(message.contains(&PATH_LIMIT.to_string()) && message.contains(&QUERY_LIMIT.to_string()), "{message}");
        assert!(check(&Method::TRACE, &long).unwrap_err().message.ends_with(METHODS));
    }
}
