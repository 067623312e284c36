//! CAs of callers: one set for clients, another for front proxies.
//!
//! In: PEM bundles from files, or the data of ConfigMap `kube-system/extension-apiserver-authentication`. Out:
//! [`CallerAuthorities`], or the name of the invalid key.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

use super::{ca_bundle::CaBundle, client_certificate, request_header, user::AuthenticationResult};
use crate::{runtime::text::truncate, serving::config::RequestHeaderNames};

/// Maximum length of a proxy's name in messages, in bytes.
const NAME_LIMIT: usize = 64;

/// Front proxy, whose request headers name the user.
#[derive(Debug, Clone)]
pub(super) struct FrontProxy {
    pub(super) bundle: CaBundle,
    pub(super) names: RequestHeaderNames,
}

impl FrontProxy {
    /// Returns the user that the headers name, if the connection's certificate is that of a proxy.
    pub(super) fn identify(
        &self,
        headers: &HeaderMap,
        chain: &[CertificateDer<'static>],
        now: Timestamp,
    ) -> AuthenticationResult {
        let Some(leaf) = chain.first() else { return Ok(None) };
        self.bundle.verify(chain, now).map_err(|error| format!("the certificate is not that of a front proxy: {error}"))?;
        let name = client_certificate::subject(leaf)?.common_name;
        if !self.names.allowed_names.is_empty() && !self.names.allowed_names.contains(&name) {
            return Err(
                format!("the front proxy {:?} is not in the list of allowed names", truncate(&name, NAME_LIMIT)).into()
            );
        }
        Ok(request_header::identify(headers, &self.names))
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct CallerAuthorities {
    pub(super) client: Option<CaBundle>,
    pub(super) front_proxy: Option<FrontProxy>,
}

impl CallerAuthorities {
    /// Parses the data of the ConfigMap. Authorities of missing keys are omitted.
    pub(super) fn from_config_map(data: &BTreeMap<String, String>) -> Result<Self, String> {
        let bundle = |key: &str| match data.get(key).filter(|pem| !pem.is_empty()) {
            None => Ok(None),
            Some(pem) => CaBundle::parse(pem.as_bytes()).map(Some).map_err(|error| format!("key {key}: {error}")),
        };
        let names = RequestHeaderNames {
            allowed_names: list(data, "requestheader-allowed-names")?,
            username_headers: list(data, "requestheader-username-headers")?,
            uid_headers: list(data, "requestheader-uid-headers")?,
            group_headers: list(data, "requestheader-group-headers")?,
            extra_headers_prefix: list(data, "requestheader-extra-headers-prefix")?,
        };
        let front_proxy = bundle("requestheader-client-ca-file")?.map(|bundle| FrontProxy { bundle, names });
        Ok(Self { client: bundle("client-ca-file")?, front_proxy })
    }

    /// Prefers the authorities from files to those of the cluster.
    pub(super) fn or(self, cluster: Self) -> Self {
        Self { client: self.client.or(cluster.client), front_proxy: self.front_proxy.or(cluster.front_proxy) }
    }
}

fn list(data: &BTreeMap<String, String>, key: &str) -> Result<Vec<String>, String> {
    match data.get(key).filter(|text| !text.is_empty()) {
        None => Ok(Vec::new()),
        Some(text) => serde_json::from_str(text).map_err(|_| format!("key {key}: not a JSON list of strings")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
        rows.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn ca() -> String {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn absent_keys_leave_out_what_they_configure() {
        let ca = ca();
        let none = CallerAuthorities::from_config_map(&data(&[])).unwrap();
        assert!(none.client.is_none() && none.front_proxy.is_none());
        let client = CallerAuthorities::from_config_map(&data(&[("client-ca-file", &ca)])).unwrap();
        assert!(client.client.is_some() && client.front_proxy.is_none());
        let rows =
            [("requestheader-client-ca-file", ca.as_str()), ("requestheader-username-headers", "[\"X-Remote-User\"]")];
        let proxy = CallerAuthorities::from_config_map(&data(&rows)).unwrap().or(client);
        assert!(proxy.client.is_some());
        assert_eq!(proxy.front_proxy.unwrap().names.username_headers, ["X-Remote-User"]);
    }

    #[test]
    fn a_wrong_key_is_named() {
        let rows = [
            ("client-ca-file", "nonsense", "no CERTIFICATE block"),
            (
                "requestheader-client-ca-file",
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "CA certificate",
            ),
            ("requestheader-group-headers", "x-remote-group", "JSON list"),
        ];
        for (key, value, expected) in rows {
            let error = CallerAuthorities::from_config_map(&data(&[(key, value)])).unwrap_err();
            assert!(error.contains(key) && error.contains(expected), "{error}");
        }
    }
}
