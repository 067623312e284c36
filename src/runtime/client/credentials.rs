//! Credentials that change while the process runs: a token in a file, and what an exec plugin gives.
//!
//! In: the user of a kubeconfig, or the pod's. Out: a layer that puts the newest credentials on each request. After 401 it gets new ones,
//! and when these are others it sends the request once more. A `tokenFile` goes before a `token`, which counts while the file cannot be
//! read; a plugin counts only where there is no other way to log in. Upstream: client-go `transport/round_trippers.go`,
//! `plugin/pkg/client/auth/exec`.

mod plugin;
mod token_file;

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header::AUTHORIZATION, request::Parts};
use kube::{client::Body, config::AuthInfo};
use tower::{BoxError, Layer, Service};

pub(super) use self::plugin::Plugin;
use self::token_file::TokenFile;
use super::request_metrics::RequestMetricsLayer;

/// Where credentials come from. Clones share what is known.
#[derive(Clone)]
pub(super) enum Credentials {
    /// The kubeconfig itself has them, or nobody asks for any.
    Fixed,
    /// A token in a file.
    File(Arc<TokenFile>),
    /// Whatever a plugin says.
    Plugin(Arc<Plugin>),
}

impl Credentials {
    /// Takes out of `user` what is not for kube to read.
    pub(super) fn take(user: &mut AuthInfo) -> Result<Self, String> {
        let (file, exec) = (user.token_file.take(), user.exec.take());
        if let Some(path) = file.filter(|path| !path.is_empty()) {
            let file = TokenFile::open(path.into(), user.token.is_some())?;
            return Ok(Self::File(Arc::new(file)));
        }
        let certificate = user.client_certificate_data.is_some() || user.client_certificate.is_some();
        let has_other = certificate || user.token.is_some() || user.username.is_some() || user.auth_provider.is_some();
        match exec.filter(|_| !has_other) {
            Some(exec) => Ok(Self::Plugin(Arc::new(Plugin::new(&exec)?))),
            None => Ok(Self::Fixed),
        }
    }

    /// The plugin that may give client certificates.
    pub(super) fn plugin(&self) -> Option<Arc<Plugin>> {
        match self {
            Self::Plugin(plugin) => Some(Arc::clone(plugin)),
            Self::Fixed | Self::File(_) => None,
        }
    }

    async fn current(&self) -> Result<Option<HeaderValue>, String> {
        match self {
            Self::Fixed => Ok(None),
            Self::File(file) => Ok(file.current()),
            Self::Plugin(plugin) => plugin.current().await,
        }
    }

    /// Whether there are others now than those that the server refused.
    async fn replace(&self, refused: Option<&HeaderValue>) -> bool {
        match self {
            Self::Fixed => false,
            Self::File(file) => file.read_again().as_ref() != refused,
            Self::Plugin(plugin) => plugin.replace(refused).await,
        }
    }
}

/// Puts [`Credentials`] on requests.
#[derive(Clone)]
pub(super) struct CredentialsLayer {
    credentials: Credentials,
    metrics: RequestMetricsLayer,
}

impl CredentialsLayer {
    pub(super) fn new(credentials: Credentials, metrics: RequestMetricsLayer) -> Self {
        Self { credentials, metrics }
    }
}

impl<S> Layer<S> for CredentialsLayer {
    type Service = WithCredentials<S>;

    fn layer(&self, inner: S) -> WithCredentials<S> {
        WithCredentials { inner, layer: self.clone() }
    }
}

/// See [`CredentialsLayer`].
#[derive(Clone)]
pub(super) struct WithCredentials<S> {
    inner: S,
    layer: CredentialsLayer,
}

impl<S, B> Service<Request<Body>> for WithCredentials<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        let layer = self.layer.clone();
        if matches!(layer.credentials, Credentials::Fixed) {
            let mut inner = inner;
            return Box::pin(inner.call(request));
        }
        Box::pin(layer.send(inner, request))
    }
}

impl CredentialsLayer {
    async fn send<S, B>(self, mut inner: S, request: Request<Body>) -> Result<Response<B>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    {
        let (parts, body) = request.into_parts();
        let copy = body.try_clone();
        let used = self.credentials.current().await?;
        let answer = inner.call(with(parts.clone(), body, used.clone())).await?;
        let Some(copy) = copy.filter(|_| answer.status() == StatusCode::UNAUTHORIZED) else { return Ok(answer) };
        if !self.credentials.replace(used.as_ref()).await {
            return Ok(answer);
        }
        let method = parts.method.clone();
        let renewed = self.credentials.current().await?;
        std::future::poll_fn(|context| inner.poll_ready(context)).await?;
        let answer = inner.call(with(parts, copy, renewed)).await;
        self.metrics.record_retry(&method, answer.as_ref().ok().map(Response::status));
        answer
    }
}

fn with(parts: Parts, body: Body, credentials: Option<HeaderValue>) -> Request<Body> {
    let mut request = Request::from_parts(parts, body);
    if let Some(header) = credentials {
        request.headers_mut().insert(AUTHORIZATION, header);
    }
    request
}

/// The header that carries a token; never shown.
fn bearer(token: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests;
