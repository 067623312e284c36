//! Decoding of the document in a response. Pure.

use bytes::Bytes;
use http::Response;
use serde::de::DeserializeOwned;

use super::{classify, error_body::one_line, request::RequestTemplate};
use crate::providers::azure::model::{ArmError, ArmErrorClass, ArmResult};

/// Returns the document in a successful response.
pub(super) fn decode<D: DeserializeOwned>(template: &RequestTemplate, response: &Response<Bytes>) -> ArmResult<D> {
    let body = response.body();
    serde_json::from_slice(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)).map_err(|error| ArmError {
        status: Some(response.status().as_u16()),
        correlation_id: classify::correlation_id(response),
        ..template
            .request_line()
            .error(ArmErrorClass::MalformedAnswer, one_line(&format!("the response is not the expected document: {error}")))
    })
}

/// Returns the error of a write that succeeded, but whose result could not be read.
pub(super) fn unread_result(template: &RequestTemplate, error: &ArmError) -> ArmError {
    ArmError {
        class: ArmErrorClass::OutcomeUnknown,
        message: format!("the write succeeded, but its result could not be read: {}", error.message),
        request: template.request_line().error(error.class, "").request,
        ..error.clone()
    }
}
