//! Endpoints and token audience of a cloud. Pure.
//!
//! In: the configured name, the endpoint file of `AZURE_ENVIRONMENT_FILEPATH`, the response of `/metadata/endpoints`. Out: a
//! [`CloudEndpoints`], or an error about the document. Upstream: `pkg/azclient/cloud.go`.

use std::collections::BTreeMap;

use azure_core::http::Url;
use serde::Deserialize;
use serde_json::Value as Json;

const STACK: &str = "AzureStackCloud";

/// Endpoints of a cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudEndpoints {
    /// Canonical name, or the configured one if it is not built in.
    pub name: String,
    /// Address of ARM: `https://management.azure.com`, without a slash at the end.
    pub resource_manager: String,
    /// Audience of tokens for ARM. Built-in audiences end with a slash.
    pub audience: String,
    /// Address of the token endpoints: `https://login.microsoftonline.com/`, with a slash at the end.
    pub login_endpoint: String,
    /// Whether the cloud is Azure Stack, with old API versions and without zones.
    pub azure_stack: bool,
    /// Whether AD FS issues the tokens instead of Entra.
    pub adfs: bool,
    /// Suffix of the names of container registries: `azurecr.io`, without a leading dot; empty if the cloud has no registries.
    pub registry_suffix: String,
}

struct BuiltInCloud {
    names: &'static [&'static str],
    resource_manager: &'static str,
    audience: &'static str,
    login_endpoint: &'static str,
    registry_suffix: &'static str,
}

/// Built-in clouds. The first name is canonical; the first row applies to unknown names.
const BUILT_IN: &[BuiltInCloud] = &[
    BuiltInCloud {
        names: &["AzurePublicCloud", "AzureCloud", ""],
        resource_manager: "https://management.azure.com",
        audience: "https://management.core.windows.net/",
        login_endpoint: "https://login.microsoftonline.com/",
        registry_suffix: "azurecr.io",
    },
    BuiltInCloud {
        names: &["AzureChinaCloud"],
        resource_manager: "https://management.chinacloudapi.cn",
        audience: "https://management.core.chinacloudapi.cn/",
        login_endpoint: "https://login.chinacloudapi.cn/",
        registry_suffix: "azurecr.cn",
    },
    BuiltInCloud {
        names: &["AzureUSGovernmentCloud", "AzureUSGovernment"],
        resource_manager: "https://management.usgovcloudapi.net",
        audience: "https://management.core.usgovcloudapi.net/",
        login_endpoint: "https://login.microsoftonline.us/",
        registry_suffix: "azurecr.us",
    },
];

impl CloudEndpoints {
    /// Returns the cloud with this name, ignoring case and surrounding spaces. An unknown name has the endpoints of the public
    /// cloud.
    pub fn named(name: &str) -> Self {
        let name = name.trim();
        let existing = BUILT_IN.iter().find(|row| row.names.iter().any(|existing| existing.eq_ignore_ascii_case(name)));
        let row = existing.unwrap_or(&BUILT_IN[0]);
        Self {
            name: if existing.is_some() { row.names[0].to_owned() } else { name.to_owned() },
            resource_manager: row.resource_manager.to_owned(),
            audience: row.audience.to_owned(),
            login_endpoint: row.login_endpoint.to_owned(),
            azure_stack: name.eq_ignore_ascii_case(STACK),
            adfs: false,
            registry_suffix: row.registry_suffix.to_owned(),
        }
    }

    /// Returns the scope of tokens for ARM. It has two slashes after an audience that ends with one, as Entra requires.
    pub fn scope(&self) -> String {
        format!("{}/.default", self.audience)
    }

    /// Returns this cloud, overridden by the endpoint file. ARM's endpoint and audience apply only together.
    pub fn with_environment_file(mut self, document: &str) -> Result<Self, String> {
        let fields: BTreeMap<String, Json> =
            serde_json::from_str(document).map_err(|error| format!("not a JSON object: {error}"))?;
        let text = |name: &str| {
            let found = fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.and_then(|(_, value)| value.as_str()).unwrap_or_default()
        };
        let (endpoint, audience) = (text("resourceManagerEndpoint"), text("tokenAudience"));
        if !endpoint.is_empty() && !audience.is_empty() {
            self.resource_manager = without_slash(endpoint);
            self.audience = audience.to_owned();
        }
        Ok(self.with_overrides(text("activeDirectoryEndpoint"), text("containerRegistryDNSSuffix")))
    }

    /// Returns this cloud with another login endpoint and registry suffix, each ignored if empty.
    fn with_overrides(mut self, login_endpoint: &str, registry_suffix: &str) -> Self {
        if !login_endpoint.is_empty() {
            self.login_endpoint = with_slash(login_endpoint);
        }
        if !registry_suffix.is_empty() {
            self.registry_suffix = registry_suffix.trim().trim_start_matches('.').to_ascii_lowercase();
        }
        self
    }

    /// Returns this cloud with the endpoints of the entry `name` in the response of `requested_endpoint`. An empty name selects
    /// the first entry.
    ///
    /// `None` if the response does not contain that name.
    pub fn with_metadata(mut self, name: &str, requested_endpoint: &str, response: &[u8]) -> Result<Option<Self>, String> {
        let entries: Vec<CloudMetadataEntry> =
            serde_json::from_slice(response).map_err(|error| format!("not a list of clouds: {error}"))?;
        let name = name.trim();
        let Some(entry) = entries.into_iter().find(|entry| name.is_empty() || entry.name.eq_ignore_ascii_case(name)) else {
            return Ok(None);
        };
        self.resource_manager =
            without_slash(if entry.resource_manager.is_empty() { requested_endpoint } else { &entry.resource_manager });
        if let Some(audience) = entry.authentication.audiences.into_iter().find(|audience| !audience.is_empty()) {
            self.audience = audience;
        }
        Ok(Some(self.with_overrides(&entry.authentication.login_endpoint, &entry.suffixes.acr_login_server)))
    }

    /// Checks that the endpoints are URLs, and that the login endpoint, which receives secrets, is https.
    pub fn check(&self) -> Result<(), String> {
        let scheme = |text: &str| Url::parse(text).ok().filter(Url::has_host).map(|url| url.scheme().to_owned());
        match (scheme(&self.resource_manager).as_deref(), scheme(&self.login_endpoint).as_deref()) {
            (Some("http" | "https"), Some("https")) => Ok(()),
            (Some("http" | "https"), _) => Err(format!("login endpoint `{}` is not an https URL", self.login_endpoint)),
            _ => Err(format!("resource manager endpoint `{}` is not a URL", self.resource_manager)),
        }
    }
}

/// Returns the URL of `/metadata/endpoints` for a configured `resourceManagerEndpoint`.
pub(super) fn metadata_url(resource_manager_endpoint: &str) -> String {
    format!("{}/metadata/endpoints?api-version=2019-05-01", without_slash(resource_manager_endpoint))
}

fn without_slash(url: &str) -> String {
    url.trim().trim_end_matches('/').to_owned()
}

fn with_slash(url: &str) -> String {
    without_slash(url) + "/"
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct CloudMetadataEntry {
    name: String,
    resource_manager: String,
    authentication: CloudAuthentication,
    suffixes: CloudSuffixes,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct CloudSuffixes {
    acr_login_server: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct CloudAuthentication {
    audiences: Vec<String>,
    login_endpoint: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_trimmed_and_ignore_case() {
        let (arm, login) = ("https://management.azure.com", "https://login.microsoftonline.com/");
        let (gov_arm, gov_login) = ("https://management.usgovcloudapi.net", "https://login.microsoftonline.us/");
        let rows = [
            ("", "AzurePublicCloud", arm, login),
            (" azurecloud ", "AzurePublicCloud", arm, login),
            ("AZURECHINACLOUD", "AzureChinaCloud", "https://management.chinacloudapi.cn", "https://login.chinacloudapi.cn/"),
            ("AzureUSGovernment", "AzureUSGovernmentCloud", gov_arm, gov_login),
            ("azurestackcloud", "azurestackcloud", arm, login),
            ("AzureGermanCloud", "AzureGermanCloud", arm, login),
        ];
        for (configured, name, arm, login) in rows {
            let cloud = CloudEndpoints::named(configured);
            assert_eq!((&*cloud.name, &*cloud.resource_manager, &*cloud.login_endpoint), (name, arm, login), "{configured}");
            assert_eq!(cloud.azure_stack, configured == "azurestackcloud");
            assert_eq!(cloud.check(), Ok(()));
        }
        assert_eq!(CloudEndpoints::named("").scope(), "https://management.core.windows.net//.default");
        let china = CloudEndpoints::named("AzureChinaCloud");
        assert_eq!(china.scope(), "https://management.core.chinacloudapi.cn//.default");
    }

    #[test]
    fn the_endpoint_file_replaces_endpoint_and_audience() {
        let stack = || CloudEndpoints::named("AzureStackCloud");
        let both = r#"{"ResourceManagerEndpoint":"https://arm.local/","tokenAudience":"https://aud","activeDirectoryEndpoint":"https://login.local","containerRegistryDNSSuffix":".ACR.local","x":{"y":1}}"#;
        let cloud = stack().with_environment_file(both).unwrap();
        assert_eq!((&*cloud.resource_manager, &*cloud.login_endpoint), ("https://arm.local", "https://login.local/"));
        assert_eq!(cloud.audience, "https://aud");
        assert_eq!((&*cloud.registry_suffix, &*stack().registry_suffix), ("acr.local", "azurecr.io"));
        let half = stack().with_environment_file(r#"{"resourceManagerEndpoint":"https://arm.local/"}"#).unwrap();
        assert_eq!(half, stack(), "an endpoint without an audience does not count");
        assert!(stack().with_environment_file("[]").is_err());
        assert!(stack().with_environment_file("").is_err());
    }

    #[test]
    fn metadata_is_matched_by_name() {
        let response = br#"[
            {"name":"A","resourceManager":"https://a/","authentication":{"audiences":["https://aud-a"],"loginEndpoint":"https://login-a"},"suffixes":{"acrLoginServer":"registry.a"}},
            {"name":"B","authentication":{"audiences":["","https://aud-b","https://other"]}}]"#;
        let cloud_of = |name: &str| CloudEndpoints::named("").with_metadata(name, "https://asked/", response).unwrap();
        for (name, arm, audience, login) in [
            ("", "https://a", "https://aud-a", "https://login-a/"),
            ("a", "https://a", "https://aud-a", "https://login-a/"),
            (" B ", "https://asked", "https://aud-b", "https://login.microsoftonline.com/"),
        ] {
            let cloud = cloud_of(name).unwrap();
            assert_eq!((&*cloud.resource_manager, &*cloud.audience, &*cloud.login_endpoint), (arm, audience, login));
        }
        assert_eq!(cloud_of("C"), None);
        assert_eq!(["A", "B"].map(|name| cloud_of(name).unwrap().registry_suffix), ["registry.a", "azurecr.io"]);
        assert!(CloudEndpoints::named("").with_metadata("", "https://x", b"<html>").is_err());
        assert_eq!(metadata_url("https://x/"), "https://x/metadata/endpoints?api-version=2019-05-01");
    }

    #[test]
    fn secrets_are_sent_to_https_endpoints_only() {
        for (arm, login, good) in [
            ("http://127.0.0.1:1", "https://x/", true),
            ("https://x", "http://x/", false),
            ("x", "https://x/", false),
            ("https://x", "", false),
        ] {
            let (resource_manager, login_endpoint) = (arm.to_owned(), login.to_owned());
            let cloud = CloudEndpoints { resource_manager, login_endpoint, ..CloudEndpoints::named("") };
            assert_eq!(cloud.check().is_ok(), good, "{arm} {login}");
        }
    }
}
