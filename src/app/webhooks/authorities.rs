//! Authorities in webhook configurations, to which this process adds its own.
//!
//! In: names of configurations, an authority. Out: patches, each of which applies only to the version that was read.
//! [`with_authority`] decides about a bundle. Expired authorities are removed, and of the valid ones the newest few are
//! kept: restarts leave one each.

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig},
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::serving::{WebhookServiceName, WebhookServingConfig};

/// Maximum number of authorities in a bundle: more than there are replicas.
const MAX_AUTHORITIES: usize = 8;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// Writes the authority into every configuration that `config` names and that exists.
///
/// # Errors
///
/// Configurations that could not be written, with the reasons.
pub(super) async fn write_all(
    client: &kube::Client,
    config: &WebhookServingConfig,
    authority: &str,
    now: Timestamp,
) -> Result<(), String> {
    let mut problems = Vec::new();
    for name in &config.configurations {
        let (kind, name) = name.split_once('/').unwrap_or(("validating", name));
        let resource = match kind {
            "mutating" => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            _ => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
        };
        let api = Api::all_with(client.clone(), &resource);
        if let Err(error) = write(&api, name, &config.service, authority, now).await {
            problems.push(format!("--webhook-configurations {kind}/{name}: {error}"));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

async fn write(
    api: &Api<DynamicObject>,
    name: &str,
    service: &WebhookServiceName,
    authority: &str,
    now: Timestamp,
) -> Result<(), kube::Error> {
    // A missing configuration needs no authority.
    let Some(found) = api.get_opt(name).await? else { return Ok(()) };
    let webhooks = found.data["webhooks"].as_array().into_iter().flatten();
    let entries = webhooks.map(|webhook| serde_json::from_value(webhook["clientConfig"].clone()));
    let entries: Vec<WebhookClientConfig> = entries.collect::<Result<_, _>>().map_err(kube::Error::SerdeError)?;
    let changes = changes(&entries, service, authority, now);
    if changes.is_empty() {
        return Ok(());
    }
    let version = json!({"metadata": {"resourceVersion": found.resource_version()}});
    let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version["metadata"]["resourceVersion"]});
    let operations: Vec<Value> = std::iter::once(test).chain(changes).collect();
    let patch = serde_json::from_value(Value::from(operations)).map_err(kube::Error::SerdeError)?;
    api.patch(name, &PatchParams::default(), &Patch::<DynamicObject>::Json(patch)).await?;
    tracing::info!(name, "wrote the authority of the webhooks' certificate");
    Ok(())
}

/// Returns a JSON patch for the entries that lead to the Service and do not trust the authority.
fn changes(entries: &[WebhookClientConfig], service: &WebhookServiceName, authority: &str, now: Timestamp) -> Vec<Value> {
    let leads_here = |entry: &&WebhookClientConfig| {
        entry.service.as_ref().is_some_and(|found| found.name == service.name && found.namespace == service.namespace)
    };
    let entries = entries.iter().enumerate().filter(|(_, entry)| leads_here(entry));
    let change = |(at, entry): (usize, &WebhookClientConfig)| {
        let bundle = entry.ca_bundle.as_ref().map(|bundle| String::from_utf8_lossy(&bundle.0).into_owned());
        let bundle = with_authority(&bundle.unwrap_or_default(), authority, now)?;
        let path = format!("/webhooks/{at}/clientConfig/caBundle");
        Some(json!({"op": "add", "path": path, "value": ByteString(bundle.into_bytes())}))
    };
    entries.filter_map(change).collect()
}

/// Returns the bundle with the authority; `None` if it needs no change.
fn with_authority(bundle: &str, authority: &str, now: Timestamp) -> Option<String> {
    let blocks = bundle.split(BEGIN).skip(1).map(|rest| format!("{BEGIN}{rest}").trim().to_owned());
    let found: Vec<String> = blocks.collect();
    let authority = authority.trim();
    let mut retained: Vec<String> = found.iter().filter(|block| !has_expired(block, now)).cloned().collect();
    if !retained.iter().any(|block| block == authority) {
        retained.push(authority.to_owned());
    }
    let retained = retained.split_off(retained.len().saturating_sub(MAX_AUTHORITIES));
    (retained != found).then(|| retained.join("\n") + "\n")
}

/// Returns `true` if a certificate of this program has expired. Other certificates are kept.
fn has_expired(block: &str, now: Timestamp) -> bool {
    let read = || {
        let (_, pem) = x509_parser::pem::parse_x509_pem(block.as_bytes()).ok()?;
        let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
        Some(certificate.validity().not_after.timestamp() < now.as_second())
    };
    read().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use k8s_openapi::api::admissionregistration::v1::ServiceReference;

    use super::*;
    use crate::serving::SecureServingConfig;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    /// Returns a certificate that expires this many seconds after [`now`].
    fn authority(expires_in: i64) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        let after = std::time::Duration::from_secs(u64::try_from(now().as_second() + expires_in).unwrap());
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + after;
        params.self_signed(&key).unwrap().pem().trim().to_owned()
    }

    /// Returns a client of an API server with one configuration, `good`, which forbids reads of `forbidden`. Requests are recorded.
    fn api_server(requests: &Arc<Mutex<Vec<String>>>) -> kube::Client {
        let requests = Arc::clone(requests);
        let respond = move |request: http::Request<kube::client::Body>| {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            requests.lock().push(format!("{} {name}", request.method()));
            let status =
                |code: u16, reason: &str| json!({"status": "Failure", "message": name, "reason": reason, "code": code});
            let client = json!({"service": {"namespace": "kube-system", "name": "ccm"}});
            let (code, body) = match name.as_str() {
                "good" => (
                    200,
                    json!({"metadata": {"name": name, "resourceVersion": "1"}, "webhooks": [{"name": "w",
                    "clientConfig": client, "admissionReviewVersions": ["v1"], "sideEffects": "None"}]}),
                ),
                "forbidden" => (403, status(403, "Forbidden")),
                _ => (404, status(404, "NotFound")),
            };
            let body = http_body_util::Full::new(bytes::Bytes::from(body.to_string()));
            let response = http::Response::builder().status(code).body(body).unwrap();
            std::future::ready(Ok::<_, std::convert::Infallible>(response))
        };
        kube::Client::new(tower::service_fn(respond), "default")
    }

    #[tokio::test]
    async fn missing_and_forbidden_configurations_do_not_stop_others() {
        let requests = Arc::default();
        let client = api_server(&requests);
        let config = |names: &[&str]| WebhookServingConfig {
            names: Vec::new(),
            secure: SecureServingConfig::default(),
            service: WebhookServiceName { namespace: "kube-system".to_owned(), name: "ccm".to_owned() },
            configurations: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let authority = authority(60);
        let all = config(&["forbidden", "mutating/missing", "mutating/forbidden", "good"]);
        let error = write_all(&client, &all, &authority, now()).await.unwrap_err();
        assert!(error.contains("validating/forbidden") && error.contains("mutating/forbidden"), "{error}");
        assert!(!error.contains("missing"), "{error}");
        assert!(requests.lock().contains(&"PATCH good".to_owned()), "{requests:?}");
        write_all(&client, &config(&["missing", "good"]), &authority, now()).await.unwrap();
    }

    #[test]
    fn bundle_keeps_other_authorities_until_they_expire() {
        let (own, other, expired) = (authority(60), authority(60), authority(-60));
        let first = with_authority("", &own, now()).unwrap();
        assert_eq!(first, format!("{own}\n"));
        assert_eq!(with_authority(&first, &own, now()), None);
        let both = with_authority(&first, &other, now()).unwrap();
        assert_eq!(both, format!("{own}\n{other}\n"));
        assert_eq!((with_authority(&both, &own, now()), with_authority(&both, &other, now())), (None, None));
        assert_eq!(with_authority(&format!("{expired}\n{own}\n"), &own, now()), Some(first));
        let unreadable = format!("{BEGIN}\nx\n-----END CERTIFICATE-----\n");
        assert!(with_authority(&unreadable, &own, now()).unwrap().starts_with(&unreadable));
    }

    #[test]
    fn newest_authorities_are_kept() {
        let all: Vec<String> = (0..MAX_AUTHORITIES + 1).map(|_| authority(60)).collect();
        let bundle = all.iter().fold(String::new(), |bundle, authority| with_authority(&bundle, authority, now()).unwrap());
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
        let authority = authority(60);
        let patch = changes(&[others, url, ours.clone()], &service, &authority, now());
        let bundle = json!(ByteString(format!("{authority}\n").into_bytes()));
        assert_eq!(patch, [json!({"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": bundle})]);
        let trusted = WebhookClientConfig { ca_bundle: Some(ByteString(format!("{authority}\n").into_bytes())), ..ours };
        assert_eq!(changes(&[trusted], &service, &authority, now()), Vec::<Value>::new());
    }
}
