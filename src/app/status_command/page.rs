//! Reads of a manager's pages, from the leader's pod through the API server, or from an address.
//!
//! In: the source. Out: origin and text of the page, or the reason why it could not be read, with a remedy.

use std::{sync::Arc, time::Duration};

use http::Request;
use kube::{Client, Config, config::AuthInfo};
use rustls::pki_types::{CertificateDer, pem::PemObject};

use super::{
    leader,
    view::{LeaseView, cleaned},
};
use crate::{
    cli::{StatusOptions, StatusUrl},
    metrics::Metrics,
    runtime::client::{KubeClients, with_causes},
    status::ManagerStatus,
};

/// Path of the page.
const PATH: &str = "/statusz?format=json";

/// Maximum wait for a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the origin and the content of the status page.
pub(super) async fn status(
    client: Option<&Client>,
    options: &StatusOptions,
    lease: Option<&LeaseView>,
) -> Result<(String, ManagerStatus), String> {
    let (source, text) = text(client, options, lease, PATH).await?;
    let page = serde_json::from_str(&text).and_then(|page| serde_json::from_value(cleaned(page)));
    let page = page.map_err(|error| {
        format!("{source}: the response is not the status page of this program, or it is of another version: {error}")
    })?;
    Ok((source, page))
}

/// Returns the origin and the text of any page of the leader, or of the manager behind `--url`.
pub(super) async fn text(
    client: Option<&Client>,
    options: &StatusOptions,
    lease: Option<&LeaseView>,
    page: &str,
) -> Result<(String, String), String> {
    if let Some(url) = &options.url {
        let of_url = |reason: String| format!("{}: {reason}", url.url);
        let request_client = self::client(config(url)?, &options.kube_api.user_agent_base).map_err(of_url)?;
        let text = fetch(&request_client, page).await.map_err(|error| of_url(with_causes(&error)))?;
        return Ok((url.url.to_string(), text));
    }
    let client = client.ok_or("no connection to the API server; name a manager with --url")?;
    let holder = lease.and_then(|lease| lease.holder.as_deref()).ok_or("no leader found; name a manager with --url")?;
    let namespace = &options.lease.0;
    let pod = leader::pod(client, namespace, holder, options.port).await?;
    let path = format!("/api/v1/namespaces/{namespace}/pods/https:{}:{}/proxy{page}", pod.name, pod.port);
    let text = fetch(client, &path).await.map_err(|error| explained(&error, namespace, &pod))?;
    Ok((format!("pod {namespace}/{}", pod.name), text))
}

async fn fetch(client: &Client, path: &str) -> Result<String, kube::Error> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match tokio::time::timeout(TIMEOUT, client.request_text(request)).await {
        Ok(body) => body,
        Err(_) => Err(kube::Error::Service(format!("no response within {TIMEOUT:?}").into())),
    }
}

fn client(config: Config, user_agent: &str) -> Result<Client, String> {
    let metrics = Metrics::new().map_err(|error| error.to_string())?;
    let clients = KubeClients::for_server(config, user_agent, Arc::new(metrics))?;
    clients.for_component("status").map_err(|error| with_causes(&error))
}

fn config(url: &StatusUrl) -> Result<Config, String> {
    let mut config = Config::new(url.url.clone());
    config.accept_invalid_certs = url.insecure;
    if let Some(file) = &url.authority {
        let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let found = read.map_err(|error| format!("--certificate-authority {}: {error}", file.display()))?;
        config.root_cert = Some(found.into_iter().map(|certificate| certificate.as_ref().to_vec()).collect());
    }
    if let Some(file) = &url.token_file {
        let text = std::fs::read_to_string(file).map_err(|error| format!("--token-file {}: {error}", file.display()))?;
        // Editors and `echo` end a file with a line feed.
        config.auth_info = AuthInfo { token: Some(text.trim().to_owned().into()), ..AuthInfo::default() };
    }
    Ok(config)
}

/// Returns an error message with a remedy. The API server's proxy does not pass credentials on, so the pod gets an anonymous
/// request.
fn explained(error: &kube::Error, namespace: &str, pod: &leader::LeaderPod) -> String {
    let message = with_causes(error);
    let is_refused = matches!(error, kube::Error::Api(status) if [401, 403].contains(&status.code));
    let port = pod.port;
    let instead = format!(
        "run `kubectl -n {namespace} port-forward pod/{} {port}` and set --url https://localhost:{port} --token-file FILE \
         --insecure-skip-tls-verify",
        pod.name
    );
    match (is_refused, message.contains("pods/proxy")) {
        (true, true) => format!("{message}; the right to get pods/proxy is missing, or {instead}"),
        (true, false) => format!("{message}; the API server's proxy passes no credentials to the pod: {instead}"),
        (false, _) => format!("pod {namespace}/{} on port {port}: {message}", pod.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_may_end_with_a_line_feed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a-token\n").unwrap();
        let at = |path: &std::path::Path| StatusUrl {
            url: http::Uri::from_static("https://localhost:1"),
            token_file: Some(path.to_owned()),
            authority: None,
            insecure: true,
        };
        let read = serde_json::to_value(config(&at(file.path())).unwrap().auth_info).unwrap();
        assert_eq!(read["token"], "a-token");
        let missing = config(&at(std::path::Path::new("/nowhere/token"))).unwrap_err();
        assert!(missing.starts_with("--token-file /nowhere/token: "), "{missing}");
    }
}
