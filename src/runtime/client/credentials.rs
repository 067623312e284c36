//! Credentials that change while the process runs: a token in a file, and those of an exec plugin.
//!
//! In: the user of a kubeconfig, or the pod's. Out: requests with the newest credentials. After 401, newer credentials are
//! read, and if they differ, the request is sent once more. A `tokenFile` takes precedence over a `token`, which is used
//! while the file is unreadable. A plugin is used only without other credentials. Upstream: client-go
//! `transport/round_trippers.go`, `plugin/pkg/client/auth/exec`.

mod exec_plugin;
mod static_login;
mod token_file;

use std::sync::Arc;

use http::{HeaderValue, Request, Response, StatusCode, header::AUTHORIZATION, request::Parts};
use kube::{client::Body, config::AuthInfo};
use tower::{BoxError, Service, ServiceExt};

use self::token_file::TokenFile;
pub(super) use self::{exec_plugin::ExecPlugin, static_login::authorization as static_login};
use super::request_metrics::RequestMetrics;

/// Source of credentials. Clones share its cache.
#[derive(Clone)]
pub(super) enum KubeCredentials {
    /// Credentials in the kubeconfig itself, or none.
    Static,
    /// A token in a file.
    TokenFile(Arc<TokenFile>),
    /// Credentials of an exec plugin.
    ExecPlugin(Arc<ExecPlugin>),
}

impl KubeCredentials {
    /// Removes the credentials from `user` that kube must not read, and returns them.
    pub(super) fn take_from(user: &mut AuthInfo) -> Result<Self, String> {
        let (file, exec) = (user.token_file.take(), user.exec.take());
        if let Some(path) = file.filter(|path| !path.is_empty()) {
            let file = TokenFile::open(path.into(), user.token.is_some())?;
            return Ok(Self::TokenFile(Arc::new(file)));
        }
        let certificate = user.client_certificate_data.is_some() || user.client_certificate.is_some();
        let has_other = certificate || user.token.is_some() || user.username.is_some() || user.auth_provider.is_some();
        match exec.filter(|_| !has_other) {
            Some(exec) => Ok(Self::ExecPlugin(Arc::new(ExecPlugin::new(&exec)?))),
            None => Ok(Self::Static),
        }
    }

    /// Returns the plugin that may issue client certificates.
    pub(super) fn exec_plugin(&self) -> Option<Arc<ExecPlugin>> {
        match self {
            Self::ExecPlugin(plugin) => Some(Arc::clone(plugin)),
            Self::Static | Self::TokenFile(_) => None,
        }
    }

    async fn current(&self) -> Result<Option<HeaderValue>, String> {
        match self {
            Self::Static => Ok(None),
            Self::TokenFile(file) => Ok(file.current()),
            Self::ExecPlugin(plugin) => plugin.current().await,
        }
    }

    /// Returns `true` if the credentials now differ from those that the server refused.
    async fn renew_after_refusal(&self, refused: Option<&HeaderValue>) -> bool {
        match self {
            Self::Static => false,
            Self::TokenFile(file) => file.reread().as_ref() != refused,
            Self::ExecPlugin(plugin) => plugin.renew_after_refusal(refused).await,
        }
    }
}

/// Sends `request` to `inner` with `credentials`, and once more if they are rejected and newer credentials differ.
pub(super) async fn send_with<S, B>(
    credentials: KubeCredentials,
    metrics: RequestMetrics,
    inner: S,
    request: Request<Body>,
) -> Result<Response<B>, BoxError>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone,
{
    if matches!(credentials, KubeCredentials::Static) {
        return inner.oneshot(request).await;
    }
    let (parts, body) = request.into_parts();
    let copy = body.try_clone();
    let used = credentials.current().await?;
    let response = inner.clone().oneshot(with_authorization(parts.clone(), body, used.clone())).await?;
    let Some(copy) = copy.filter(|_| response.status() == StatusCode::UNAUTHORIZED) else { return Ok(response) };
    if !credentials.renew_after_refusal(used.as_ref()).await {
        return Ok(response);
    }
    let method = parts.method.clone();
    let renewed = credentials.current().await?;
    let response = inner.oneshot(with_authorization(parts, copy, renewed)).await;
    metrics.record_retry(&method, response.as_ref().ok().map(Response::status));
    response
}

fn with_authorization(parts: Parts, body: Body, credentials: Option<HeaderValue>) -> Request<Body> {
    let mut request = Request::from_parts(parts, body);
    if let Some(header) = credentials {
        request.headers_mut().insert(AUTHORIZATION, header);
    }
    request
}

#[cfg(test)]
mod tests;
