//! Login in a kubeconfig that never changes: a token, or a name with a password. Pure.
//!
//! In: the user of a kubeconfig. Out: the value of `Authorization`. kube can derive it, too, but depends on an interpreter
//! of JSON paths and of regular expressions for `auth-provider: gcp`, which client-go dropped with 1.26. Upstream: client-go
//! `transport/round_trippers.go`, `plugin/pkg/client/auth/plugins_providers.go`.

use http::HeaderValue;
use k8s_openapi::ByteString;
use kube::config::{AuthInfo, AuthProviderConfig};
use secrecy::ExposeSecret;

/// Returns the header, or `None` without a login. The error contains no secret.
pub(crate) fn authorization(user: &AuthInfo) -> Result<Option<HeaderValue>, String> {
    let text = match (&user.auth_provider, &user.username, &user.password, &user.token) {
        (Some(provider), ..) => format!("Bearer {}", provided_token(provider)?),
        (None, Some(name), Some(password), _) => {
            format!("Basic {}", base64(&format!("{name}:{}", password.expose_secret()))?)
        }
        (None, _, _, Some(token)) => format!("Bearer {}", token.expose_secret()),
        _ => return Ok(None),
    };
    let mut value =
        HeaderValue::try_from(text).map_err(|_| "the token has characters that no header may have".to_owned())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn provided_token(provider: &AuthProviderConfig) -> Result<&str, String> {
    match provider.name.as_str() {
        "oidc" => {
            let token = provider.config.get("id-token").map(String::as_str);
            token.ok_or_else(|| "auth-provider oidc: it has no id-token".to_owned())
        }
        name => Err(format!("auth-provider {name} is not supported; use an exec plugin")),
    }
}

/// Encodes text as Kubernetes encodes bytes.
fn base64(text: &str) -> Result<String, String> {
    let written = serde_json::to_value(ByteString(text.as_bytes().to_vec())).ok();
    written.and_then(|value| value.as_str().map(str::to_owned)).ok_or_else(|| "the password cannot be encoded".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_the_kubeconfig_are_sent() {
        let header = |text: &str| {
            let value = authorization(&serde_json::from_str(text).unwrap());
            value.map(|value| value.map(|value| (value.to_str().unwrap().to_owned(), value.is_sensitive())))
        };
        let secret = |text: &str| Ok(Some((text.to_owned(), true)));
        assert_eq!(header("{}"), Ok(None));
        assert_eq!(header(r#"{"username": "a"}"#), Ok(None));
        assert_eq!(header(r#"{"token": "t"}"#), secret("Bearer t"));
        assert_eq!(header(r#"{"username": "aladdin", "password": "opensesame"}"#), secret("Basic YWxhZGRpbjpvcGVuc2VzYW1l"));
        assert_eq!(header(r#"{"auth-provider": {"name": "oidc", "config": {"id-token": "i"}}}"#), secret("Bearer i"));
        for invalid in
            [r#"{"token": "a\nb"}"#, r#"{"auth-provider": {"name": "gcp"}}"#, r#"{"auth-provider": {"name": "oidc"}}"#]
        {
            assert!(header(invalid).is_err(), "{invalid}");
        }
    }
}
