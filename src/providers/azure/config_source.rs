//! Sources of the configuration: a file, a Secret, or both; `reload` reads them again, `reference` is the page about them.
//!
//! In: paths, names, a client. Out: [`ConfigTexts`] or a [`ConfigLoadError`] that says what to create or permit. Decides
//! nothing about the content.

mod reference;
mod reload;

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio::io::AsyncReadExt;

use super::config::{
    CloudConfigType, ConfigFinding, ConfigTexts, DecodedConfig, EnvironmentOverrides, MAX_BYTES, merge, sources_to_read,
};
use crate::cloud_provider::config::SecretRef;

pub use reference::reference_page;
pub use reload::{INTERVAL, follow};

/// Returns upstream's default Secret. Upstream: `pkg/azclient/configloader`.
pub fn default_secret() -> SecretRef {
    SecretRef { namespace: "kube-system".into(), name: "azure-cloud-provider".into(), key: "cloud-config".into() }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigSource {
    /// `--cloud-config`.
    pub file: Option<PathBuf>,
    /// The Secret, when its flags are set.
    pub secret: Option<SecretRef>,
}

/// Reason why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigLoadError {
    /// A user must set a flag, or create or correct something.
    #[error("{0}")]
    Unusable(String),
    /// The content is wrong: at least one finding is an error.
    #[error("the configuration cannot be used:\n{}", lines(.0))]
    Invalid(Vec<ConfigFinding>),
    /// The API server did not respond; a retry may help.
    #[error("{0}")]
    Unavailable(String),
}

/// Formats one finding per line.
fn lines(findings: &[ConfigFinding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Loader of a configuration. May be called repeatedly.
#[derive(Clone)]
pub struct ConfigLoader {
    pub source: ConfigSource,
    pub client: Option<kube::Client>,
    pub environment: EnvironmentOverrides,
    /// Whether warnings are errors.
    pub is_strict: bool,
}

impl ConfigLoader {
    /// Reads and checks the configuration.
    pub async fn load(&self) -> Result<DecodedConfig, ConfigLoadError> {
        self.merged(&self.texts().await?)
    }

    fn merged(&self, texts: &ConfigTexts) -> Result<DecodedConfig, ConfigLoadError> {
        merge(texts, &self.environment, self.is_strict).map_err(ConfigLoadError::Invalid)
    }

    /// Reads the file and, unless the file excludes it, the Secret.
    pub async fn texts(&self) -> Result<ConfigTexts, ConfigLoadError> {
        let file =
            match &self.source.file {
                Some(path) => Some(read_text(path).await.map_err(|problem| {
                    ConfigLoadError::Unusable(format!("--cloud-config {}: {problem}", path.display()))
                })?),
                None => None,
            };
        let secret = match &self.source.secret {
            Some(secret) if sources_to_read(file.as_deref()) != CloudConfigType::File => {
                Some(self.read_secret(secret).await?)
            }
            _ => None,
        };
        if file.is_none() && secret.is_none() {
            let advice = "no configuration: set --cloud-config to a file or --cloud-config-secret-name to a Secret";
            return Err(ConfigLoadError::Unusable(advice.to_owned()));
        }
        Ok(ConfigTexts { file, secret })
    }

    async fn read_secret(&self, at: &SecretRef) -> Result<String, ConfigLoadError> {
        let Some(client) = &self.client else {
            return Err(ConfigLoadError::Unusable(format!("{at} cannot be read without access to the API server")));
        };
        let api: Api<Secret> = Api::namespaced(client.clone(), &at.namespace);
        let secret = api.get(&at.name).await.map_err(|error| secret_error(at, &error))?;
        text_in(&secret, at).map_err(ConfigLoadError::Unusable)
    }
}

fn secret_error(at: &SecretRef, error: &kube::Error) -> ConfigLoadError {
    let SecretRef { namespace, name, key } = at;
    match error {
        kube::Error::Api(status) if status.code == 404 => ConfigLoadError::Unusable(format!(
            "{at} does not exist; create it: kubectl -n {namespace} create secret generic {name} --from-file={key}=azure.json"
        )),
        kube::Error::Api(status) if status.code == 401 || status.code == 403 => ConfigLoadError::Unusable(format!(
            "{at} may not be read; permit it with a Role in {namespace} and a RoleBinding to this program's ServiceAccount: \
             apiGroups [\"\"], resources [secrets], resourceNames [{name}], verbs [get]"
        )),
        // The error quotes the response, which holds the Secret.
        kube::Error::SerdeError(_) => {
            ConfigLoadError::Unavailable(format!("{at} could not be read: the response is not a Secret"))
        }
        error => ConfigLoadError::Unavailable(format!("{at} could not be read: {error}")),
    }
}

/// Returns the text at the key. The error names the existing keys, never their values.
fn text_in(secret: &Secret, at: &SecretRef) -> Result<String, String> {
    let data = secret.data.as_ref();
    let found = data.and_then(|data| data.get(&at.key)).filter(|bytes| !bytes.0.is_empty());
    let Some(bytes) = found else {
        let keys = data.map(|data| data.keys().map(String::as_str).collect::<Vec<_>>().join(", ")).unwrap_or_default();
        let key = &at.key;
        return Err(format!(
            "{at} has nothing under the key {key}; its keys: {keys}; set --cloud-config-key or add the key"
        ));
    };
    let text = std::str::from_utf8(&bytes.0).map(str::to_owned);
    text.map_err(|_| format!("{at}: the key {} holds something else than UTF-8 text", at.key))
}

/// Returns the text of a file, truncated beyond the maximum length.
///
/// # Errors
///
/// Returns the problem with the file, without its path.
pub async fn read_text(path: &Path) -> Result<String, String> {
    let file = tokio::fs::File::open(path).await.map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    // One byte more than the decoder accepts, so that it refuses a longer file.
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).await.map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}

#[cfg(test)]
mod tests;
