//! Responses that several pages share.

use axum::{
    body::Body,
    http::{
        HeaderValue, StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use serde_json::json;

/// Delay in seconds after which a client may retry a request that was refused because of the number of requests.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

pub(super) fn refuse(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": {}, "code": code.as_u16(),
    });
    (code, axum::Json(status)).into_response()
}

pub(super) fn too_many_requests(message: &str) -> Response {
    let mut response = refuse(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
    response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    response
}

pub(super) fn plain(code: StatusCode, body: impl Into<Body>) -> Response {
    (code, [(CONTENT_TYPE, "text/plain; charset=utf-8")], body.into()).into_response()
}

pub(super) fn status_response((code, body): (u16, String)) -> Response {
    plain(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
}
