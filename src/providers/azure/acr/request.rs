//! Request of the kubelet, and the response to it. Pure.
//!
//! In: a `CredentialProviderRequest`, bounded. Out: its fields, or an error; and a `CredentialProviderResponse` as text.

use std::{collections::BTreeMap, fmt, time::Duration};

use azure_core::credentials::Secret;
use serde::Deserialize;
use serde_json::json;

use crate::flags::duration;

/// Supported version of the protocol.
const VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";
const REQUEST: &str = "CredentialProviderRequest";
/// Maximum length of an image's name, in bytes. Registries allow far fewer.
const MAX_IMAGE: usize = 4_096;
/// Maximum number of characters of untrusted text that are repeated.
const MAX_SHOWN: usize = 64;

/// Request for credentials of an image, with the service account of the Pod.
#[derive(Clone)]
pub struct ImageCredentialRequest {
    pub image: String,
    /// Token of the Pod's service account; empty if the kubelet sends none.
    pub service_account_token: Secret,
    /// Annotations of the service account that the kubelet is configured to send.
    pub annotations: BTreeMap<String, String>,
}

impl fmt::Debug for ImageCredentialRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageCredentialRequest").field("image", &self.image).finish_non_exhaustive()
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct KubeletRequest {
    api_version: String,
    kind: String,
    image: Option<String>,
    service_account_token: Option<String>,
    service_account_annotations: Option<BTreeMap<String, String>>,
}

impl ImageCredentialRequest {
    /// Parses a request. The error repeats only its version and kind.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        // The parser's own error may quote the input, and with it a token.
        let malformed = || format!("expected a {REQUEST} in JSON");
        // The parser would also accept the fields as the elements of a list.
        let text = Some(text).filter(|text| text.trim_ascii_start().starts_with(b"{")).ok_or_else(malformed)?;
        let request: KubeletRequest = serde_json::from_slice(text).map_err(|_| malformed())?;
        if (request.api_version.as_str(), request.kind.as_str()) != (VERSION, REQUEST) {
            let (version, kind) = (shown(&request.api_version), shown(&request.kind));
            return Err(format!("{kind:?} of {version:?} is not supported; expected {REQUEST} of {VERSION}"));
        }
        let image = request.image.unwrap_or_default();
        if image.is_empty() || image.len() > MAX_IMAGE || image.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(format!("image: expected the name of an image, at most {MAX_IMAGE} bytes, without spaces"));
        }
        Ok(Self {
            image,
            service_account_token: Secret::new(request.service_account_token.unwrap_or_default()),
            annotations: request.service_account_annotations.unwrap_or_default(),
        })
    }
}

fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

/// User name and password of a registry.
#[derive(Clone)]
pub(super) struct RegistryLogin {
    pub(super) username: String,
    pub(super) password: Secret,
}

impl RegistryLogin {
    /// Returns the login for registries that allow anonymous pulls.
    pub(super) fn anonymous() -> Self {
        Self { username: String::new(), password: Secret::new(String::new()) }
    }
}

/// Returns the response with logins by the pattern of registries, which the kubelet may cache for `cached`.
pub(super) fn response(logins: &BTreeMap<String, RegistryLogin>, cached: Duration) -> String {
    let login = |login: &RegistryLogin| json!({"username": login.username, "password": login.password.secret()});
    let auth: BTreeMap<_, _> = logins.iter().map(|(pattern, found)| (pattern, login(found))).collect();
    let response = json!({
        "kind": "CredentialProviderResponse", "apiVersion": VERSION,
        "cacheKeyType": "Registry", "cacheDuration": duration::format(cached), "auth": auth,
    });
    response.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &str) -> Result<ImageCredentialRequest, String> {
        let text = format!(r#"{{"apiVersion":"{VERSION}","kind":"{REQUEST}"{fields}}}"#);
        ImageCredentialRequest::parse(text.as_bytes())
    }

    #[test]
    fn known_fields_are_read_and_others_ignored() {
        let read =
            request(r#","image":"a/b:c","serviceAccountToken":"pl4nt3d","serviceAccountAnnotations":{"a":"b"},"x":1"#)
                .unwrap();
        assert_eq!((read.image.as_str(), read.service_account_token.secret()), ("a/b:c", "pl4nt3d"));
        assert_eq!(read.annotations["a"], "b");
        assert!(!format!("{read:?}").contains("pl4nt3d"));
        let read = request(r#","image":"a","serviceAccountToken":null,"serviceAccountAnnotations":null"#).unwrap();
        assert_eq!((read.service_account_token.secret(), read.annotations.len()), ("", 0));
    }

    #[test]
    fn errors_of_bad_requests_omit_their_content() {
        let other = |version: &str, kind: &str| format!(r#"{{"apiVersion":"{version}","kind":"{kind}","image":"a"}}"#);
        for (text, message) in [
            (String::new(), "expected a CredentialProviderRequest in JSON"),
            ("[]".to_owned(), "expected a CredentialProviderRequest in JSON"),
            (r#"{"serviceAccountToken":{"x":"pl4nt3d"}}"#.to_owned(), "expected a CredentialProviderRequest in JSON"),
            (r#"{"serviceAccountToken":"pl4nt3d" pl4nt3d"#.to_owned(), "expected a CredentialProviderRequest in JSON"),
            ("{}".to_owned(), "\"\" of \"\" is not supported"),
            (other("credentialprovider.kubelet.k8s.io/v1beta1", REQUEST), "v1beta1\" is not supported; expected"),
            (other(VERSION, "CredentialProviderResponse"), "\"CredentialProviderResponse\" of"),
            (other(VERSION, "CredentialProviderFoo"), "\"CredentialProviderFoo\" of"),
            (other("foo.k8s.io/v1", REQUEST), "of \"foo.k8s.io/v1\""),
            (other(&"v".repeat(500), REQUEST), "is not supported"),
        ] {
            let error = ImageCredentialRequest::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(message) && !error.contains("pl4nt3d") && error.len() < 300, "{text}: {error}");
        }
        for fields in ["", r#","image":"""#, r#","image":null"#, r#","image":"a b""#, r#","image":"a\nb""#] {
            assert!(request(fields).unwrap_err().starts_with("image: "), "{fields}");
        }
        let long = "a".repeat(MAX_IMAGE + 1);
        assert!(request(&format!(r#","image":"{long}""#)).unwrap_err().starts_with("image: "));
    }
}
