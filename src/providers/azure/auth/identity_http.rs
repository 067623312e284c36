//! HTTP client for azure_identity on our [`ArmTransport`], which records the last response.
//!
//! The errors of azure_identity contain only the status and message of a failure. [`super::identity_answer`] evaluates the recorded
//! response instead. One `IdentityHttpClient` serves one fetch.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use azure_core::{
    Error, Result,
    error::ErrorKind,
    http::{AsyncRawResponse, Body, HttpClient, Request, headers::Headers},
};
use bytes::Bytes;
use parking_lot::Mutex;

use super::identity_answer::IdentityAnswer;
use crate::providers::azure::transport::ArmTransport;

/// Adapter of [`ArmTransport`] to azure_core.
pub(super) struct IdentityHttpClient {
    transport: Arc<dyn ArmTransport>,
    adfs: bool,
    last_response: Mutex<Option<IdentityAnswer>>,
}

impl fmt::Debug for IdentityHttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityHttp").field("adfs", &self.adfs).finish_non_exhaustive()
    }
}

impl IdentityHttpClient {
    /// Creates the client. With `adfs`, the path of Entra's token endpoint is replaced by that of AD FS.
    pub(super) fn new(transport: Arc<dyn ArmTransport>, adfs: bool) -> Self {
        Self { transport, adfs, last_response: Mutex::default() }
    }

    /// Takes the last response; `None` if nothing was sent.
    pub(super) fn last_response(&self) -> Option<IdentityAnswer> {
        self.last_response.lock().take()
    }

    fn translate(&self, request: &Request) -> Result<http::Request<Bytes>> {
        let bad = |reason: String| Error::with_message(ErrorKind::DataConversion, reason);
        let mut url = request.url().clone();
        if self.adfs {
            // The token endpoint of AD FS has no version in its path.
            let path = url.path().replace("/oauth2/v2.0/", "/oauth2/");
            url.set_path(&path);
        }
        let Body::Bytes(body) = request.body() else { return Err(bad("a streamed body cannot be sent".to_owned())) };
        let mut built = http::Request::builder().method(request.method().as_str()).uri(url.as_str());
        for (name, value) in request.headers().iter() {
            built = built.header(name.as_str(), value.as_str());
        }
        built.body(body.clone()).map_err(|error| bad(error.to_string()))
    }
}

#[async_trait]
impl HttpClient for IdentityHttpClient {
    async fn execute_request(&self, request: &Request) -> Result<AsyncRawResponse> {
        let result = self.transport.send(self.translate(request)?).await;
        *self.last_response.lock() = Some(result.clone());
        match result {
            Ok(response) => {
                let status = response.status().as_u16().into();
                Ok(AsyncRawResponse::from_bytes(status, Headers::new(), response.into_body()))
            }
            Err(error) => Err(Error::with_message(ErrorKind::Io, error.to_string())),
        }
    }
}
