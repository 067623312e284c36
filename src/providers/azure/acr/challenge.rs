//! Challenge of a registry to an unauthenticated client. Pure.
//!
//! In: the values of `WWW-Authenticate`. Out: the name of the service, and the URL at which a token is exchanged. It must be the
//! registry itself, because any receiver of the token can pull as this machine.

use azure_core::http::Url;

use super::image::global_host;

/// Maximum length of a challenge, in bytes.
const MAX_CHALLENGE: usize = 4_096;
/// Maximum length of a service's name, in bytes.
const MAX_SERVICE: usize = 256;
const SCHEME: &str = "bearer";

/// Challenge of a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryChallenge {
    pub service: String,
    /// URL of the token service.
    pub realm: String,
}

impl RegistryChallenge {
    /// Parses the headers: exactly one, `Bearer` with `realm` and `service`, quoted or not.
    pub fn parse(headers: &[&str]) -> Result<Self, String> {
        let [header] = headers else { return Err(format!("{} challenges; expected one of type Bearer", headers.len())) };
        if header.len() > MAX_CHALLENGE {
            return Err(format!("a challenge of more than {MAX_CHALLENGE} bytes"));
        }
        let (scheme, rest) = header.trim().split_once(char::is_whitespace).unwrap_or((header.trim(), ""));
        if scheme.to_ascii_lowercase() != SCHEME {
            return Err("a challenge of another type than Bearer".to_owned());
        }
        let mut challenge = Self::default();
        for (name, value) in parameters(rest).ok_or("a malformed challenge")? {
            let field = match name.as_str() {
                "service" => &mut challenge.service,
                "realm" => &mut challenge.realm,
                _ => continue,
            };
            if !std::mem::replace(field, value).is_empty() {
                return Err(format!("a challenge with more than one {name}"));
            }
        }
        let is_valid = |service: &str| service.len() <= MAX_SERVICE && service.bytes().all(|byte| byte.is_ascii_graphic());
        if challenge.service.is_empty() || challenge.realm.is_empty() || !is_valid(&challenge.service) {
            return Err("a challenge without realm or service".to_owned());
        }
        Ok(challenge)
    }
}

/// Parses `a=b, c="d"` into names in lower case and values; `None` if it is malformed.
fn parameters(text: &str) -> Option<Vec<(String, String)>> {
    let mut rest = text.trim();
    let mut found = Vec::new();
    loop {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim().to_ascii_lowercase();
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
            return None;
        }
        let (value, after) = value(after.trim_start())?;
        found.push((name, value.to_owned()));
        rest = match after.trim_start() {
            "" => return Some(found),
            after => after.strip_prefix(',')?,
        };
    }
}

/// Returns the value at the beginning, and the rest of the text. Quotes cannot be escaped: no URL and no host name contains one.
fn value(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"'),
        None => {
            let (value, after) = text.split_at(text.find(',').unwrap_or(text.len()));
            let is_valid = !value.trim().is_empty() && !value.contains(['"', '=', ' ']);
            is_valid.then_some((value.trim(), after))
        }
    }
}

/// Returns the URL at which `server` exchanges tokens.
///
/// The realm must be https, at that host or another host of the same registry: a regional host may name the global one. The
/// token is sent to `server` in any case.
pub fn exchange_url(realm: &str, server: &str) -> Result<String, String> {
    let url = Url::parse(realm).map_err(|_| "a realm that is not a URL".to_owned())?;
    let is_same_registry = url.host_str().is_some_and(|host| global_host(host) == global_host(server));
    let is_plain = url.port().is_none() && url.username().is_empty() && url.password().is_none();
    if url.scheme() != "https" || !is_same_registry || !is_plain {
        let host: String = url.host_str().unwrap_or_default().chars().take(MAX_SERVICE).collect();
        return Err(format!("a realm at {}://{host}; tokens are sent to https://{server} only", url.scheme()));
    }
    Ok(format!("https://{}/oauth2/exchange", server.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_or_not() {
        let expected =
            RegistryChallenge { service: "foo.azurecr.io".into(), realm: "https://foo.azurecr.io/oauth2/token".into() };
        for header in [
            r#"Bearer realm="https://foo.azurecr.io/oauth2/token",service="foo.azurecr.io""#,
            r#"bearer  service = "foo.azurecr.io" , realm = "https://foo.azurecr.io/oauth2/token""#,
            "BEARER realm=https://foo.azurecr.io/oauth2/token,service=foo.azurecr.io",
            r#"Bearer realm="https://foo.azurecr.io/oauth2/token",service=foo.azurecr.io,error="a=b, c""#,
        ] {
            assert_eq!(RegistryChallenge::parse(&[header]).as_ref(), Ok(&expected), "{header}");
        }
    }

    #[test]
    fn other_challenges_are_refused() {
        for (headers, message) in [
            (&[][..], "0 challenges"),
            (&["Bearer realm=a,service=b", "Basic realm=a"], "2 challenges"),
            (&[""], "another type"),
            (&["Basic realm=\"a\""], "another type"),
            (&["a"], "another type"),
            (&["Auth realm=\"https://test.azurecr.io/oauth2/token\",service=\"test.azurecr.io\""], "another type"),
            (&["Bearer"], "malformed"),
            (&["Bearer realm"], "malformed"),
            (&["Bearer realm=,service=b"], "malformed"),
            (&["Bearer realm=\"a,service=b"], "malformed"),
            (&["Bearer realm=\"a\" service=\"b\""], "malformed"),
            (&["Bearer realm=\"a\",service=\"b\","], "malformed"),
            (&["Bearer realm=\"a\",service=\"b\", Basic realm=\"c\""], "malformed"),
            (&["Bearer realm=\"a\""], "without realm or service"),
            (&["Bearer realm=\"\",service=\"b\""], "without realm or service"),
            (&["Bearer realm=\"test.azurecr.io\",service=\"\""], "without realm or service"),
            (&["Bearer realm=\"a\",service=\"b c\""], "without realm or service"),
            (&["Bearer realm=\"a\",service=\"b\",realm=\"c\""], "more than one realm"),
        ] {
            let error = RegistryChallenge::parse(headers).unwrap_err();
            assert!(error.contains(message), "{headers:?}: {error}");
        }
        assert!(RegistryChallenge::parse(&[&format!("Bearer realm={}", "a".repeat(MAX_CHALLENGE))]).is_err());
    }

    #[test]
    fn tokens_are_sent_to_the_registry_only() {
        for realm in ["https://foo.azurecr.io/oauth2/token", "https://FOO.azurecr.io:443", "https://foo.azurecr.io/?a=b#c"] {
            let url = exchange_url(realm, "Foo.azurecr.io");
            assert_eq!(url.as_deref(), Ok("https://foo.azurecr.io/oauth2/exchange"), "{realm}");
        }
        for realm in ["https://foo.azurecr.io/oauth2/token", "https://foo.westus.geo.azurecr.io/oauth2/token"] {
            let url = exchange_url(realm, "Foo.eastus2.geo.azurecr.io");
            assert_eq!(url.as_deref(), Ok("https://foo.eastus2.geo.azurecr.io/oauth2/exchange"), "{realm}");
            assert!(exchange_url(realm, "bar.eastus2.geo.azurecr.io").is_err(), "{realm}");
            assert!(exchange_url(realm, "foo.eastus2.geo.azurecr.cn").is_err(), "{realm}");
        }
        for realm in [
            "",
            "foo.azurecr.io",
            "/oauth2/token",
            "http://foo.azurecr.io/",
            "https://foo.azurecr.io:8443/",
            "https://user@foo.azurecr.io/",
            "https://:secret@foo.azurecr.io/",
            "https://bar.azurecr.io/",
            "https://azurecr.io/",
            "https://foo.azurecr.io.evil.example/",
            "https://foo.evil.geo.example/",
            "https://foo.eastus2.data.azurecr.io/",
            "https://foo.azurecr.io@evil.example/",
            "https://evil.example/foo.azurecr.io",
            "https://evil.example\\@foo.azurecr.io/",
            "file:///foo.azurecr.io",
        ] {
            assert!(exchange_url(realm, "foo.azurecr.io").is_err(), "{realm}");
        }
    }
}
