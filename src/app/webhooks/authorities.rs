//! The authorities in webhook configurations: which stand there, and writing one's own beside them.
//!
//! In: names of configurations, an authority. Out: patches, each of which holds only for the version that was read. What a bundle should
//! be is decided by [`with_authority`]. Authorities that have ended go, and of those that count the newest few stay: restarts
//! leave one each.

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::serving::{WebhookServiceName, WebhookServingConfig};

/// Authorities in a bundle: more than there are replicas.
const MOST: usize = 8;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// A kind of webhook configuration.
trait HasClientConfigs: Clone + Serialize + DeserializeOwned + std::fmt::Debug {
    fn client_configs(&self) -> Vec<&WebhookClientConfig>;
}

impl HasClientConfigs for ValidatingWebhookConfiguration {
    fn client_configs(&self) -> Vec<&WebhookClientConfig> {
        self.webhooks.iter().flatten().map(|webhook| &webhook.client_config).collect()
    }
}

impl HasClientConfigs for MutatingWebhookConfiguration {
    fn client_configs(&self) -> Vec<&WebhookClientConfig> {
        self.webhooks.iter().flatten().map(|webhook| &webhook.client_config).collect()
    }
}

/// Writes the authority into every configuration of that name, of either kind. The error names the first that cannot be written.
pub(super) async fn write_all(
    client: &kube::Client,
    config: &WebhookServingConfig,
    authority: &str,
    now: Timestamp,
) -> Result<(), String> {
    for name in &config.configurations {
        let (kind, name) = name.split_once('/').unwrap_or(("validating", name));
        let written = match kind {
            "mutating" => {
                let api = Api::<MutatingWebhookConfiguration>::all(client.clone());
                write(&api, name, &config.service, authority, now).await
            }
            _ => {
                let api = Api::<ValidatingWebhookConfiguration>::all(client.clone());
                write(&api, name, &config.service, authority, now).await
            }
        };
        written.map_err(|error| format!("--webhook-configurations {kind}/{name}: {error}"))?;
    }
    Ok(())
}

async fn write<K>(
    api: &Api<K>,
    name: &str,
    service: &WebhookServiceName,
    authority: &str,
    now: Timestamp,
) -> Result<(), kube::Error>
where
    K: HasClientConfigs + kube::Resource,
{
    let found = api.get(name).await?;
    let changes = changes(&found.client_configs(), service, authority, now);
    if changes.is_empty() {
        return Ok(());
    }
    let version = json!({"metadata": {"resourceVersion": found.resource_version()}});
    let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version["metadata"]["resourceVersion"]});
    let operations: Vec<Value> = std::iter::once(test).chain(changes).collect();
    let patch = serde_json::from_value(Value::from(operations)).map_err(kube::Error::SerdeError)?;
    api.patch(name, &PatchParams::default(), &Patch::<K>::Json(patch)).await?;
    tracing::info!(name, "wrote the authority of the webhooks' certificate");
    Ok(())
}

/// A JSON patch for the entries that lead to the Service and do not trust the authority.
fn changes(entries: &[&WebhookClientConfig], service: &WebhookServiceName, authority: &str, now: Timestamp) -> Vec<Value> {
    let leads_here = |entry: &&WebhookClientConfig| {
        entry.service.as_ref().is_some_and(|found| found.name == service.name && found.namespace == service.namespace)
    };
    let entries = entries.iter().enumerate().filter(|(_, entry)| leads_here(entry));
    let change = |(at, entry): (usize, &&WebhookClientConfig)| {
        let bundle = entry.ca_bundle.as_ref().map(|bundle| String::from_utf8_lossy(&bundle.0).into_owned());
        let bundle = with_authority(&bundle.unwrap_or_default(), authority, now)?;
        let path = format!("/webhooks/{at}/clientConfig/caBundle");
        Some(json!({"op": "add", "path": path, "value": ByteString(bundle.into_bytes())}))
    };
    entries.filter_map(change).collect()
}

/// The bundle with the authority; `None`: it is there, and nothing has to go.
fn with_authority(bundle: &str, authority: &str, now: Timestamp) -> Option<String> {
    let blocks = bundle.split(BEGIN).skip(1).map(|rest| format!("{BEGIN}{rest}").trim().to_owned());
    let found: Vec<String> = blocks.collect();
    let authority = authority.trim();
    let mut kept: Vec<String> = found.iter().filter(|block| !has_ended(block, now)).cloned().collect();
    if !kept.iter().any(|block| block == authority) {
        kept.push(authority.to_owned());
    }
    let kept = kept.split_off(kept.len().saturating_sub(MOST));
    (kept != found).then(|| kept.join("\n") + "\n")
}

/// What is no certificate of this program is somebody else's, and stays.
fn has_ended(block: &str, now: Timestamp) -> bool {
    let read = || {
        let (_, pem) = x509_parser::pem::parse_x509_pem(block.as_bytes()).ok()?;
        let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
        Some(certificate.validity().not_after.timestamp() < now.as_second())
    };
    read().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::ServiceReference;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    /// A certificate that ends so many seconds after now.
    fn authority(ends: i64) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        let after = std::time::Duration::from_secs(u64::try_from(now().as_second() + ends).unwrap());
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + after;
        params.self_signed(&key).unwrap().pem().trim().to_owned()
    }

    #[test]
    fn an_authority_stands_beside_others_until_it_ends() {
        let (one, two, ended) = (authority(60), authority(60), authority(-60));
        let first = with_authority("", &one, now()).unwrap();
        assert_eq!(first, format!("{one}\n"));
        assert_eq!(with_authority(&first, &one, now()), None);
        let both = with_authority(&first, &two, now()).unwrap();
        assert_eq!(both, format!("{one}\n{two}\n"));
        assert_eq!((with_authority(&both, &one, now()), with_authority(&both, &two, now())), (None, None));
        assert_eq!(with_authority(&format!("{ended}\n{one}\n"), &one, now()), Some(first));
        let strange = format!("{BEGIN}\nx\n-----END CERTIFICATE-----\n");
        assert!(with_authority(&strange, &one, now()).unwrap().starts_with(&strange));
    }

    #[test]
    fn of_many_the_newest_stay() {
        let all: Vec<String> = (0..MOST + 1).map(|_| authority(60)).collect();
        let bundle = all.iter().fold(String::new(), |bundle, one| with_authority(&bundle, one, now()).unwrap());
        assert_eq!(bundle, all[1..].join("\n") + "\n");
    }

    #[test]
    fn only_entries_that_lead_to_the_service_change() {
        let entry = |name: &str| WebhookClientConfig {
            service: Some(ServiceReference {
                name: name.to_owned(),
                namespace: "kube-system".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let (ours, others, url) = (entry("ccm"), entry("other"), WebhookClientConfig::default());
        let service = WebhookServiceName { namespace: "kube-system".to_owned(), name: "ccm".to_owned() };
        let one = authority(60);
        let patch = changes(&[&others, &url, &ours], &service, &one, now());
        let bundle = json!(ByteString(format!("{one}\n").into_bytes()));
        assert_eq!(patch, [json!({"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": bundle})]);
        let trusted = WebhookClientConfig { ca_bundle: Some(ByteString(format!("{one}\n").into_bytes())), ..ours };
        assert_eq!(changes(&[&trusted], &service, &one, now()), Vec::<Value>::new());
    }
}
