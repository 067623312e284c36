//! Header with a bearer token. Pure.

use http::HeaderValue;

/// Returns the header with a token, marked as sensitive.
pub(super) fn bearer_header(token: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}
