//! Server side of a transport: a script of HTTP responses.
//!
//! Lines `===` separate the responses. The first line of each is its status; headers follow, one a line, up to an empty line; the rest
//! is the body. The responses are returned in order, and the last one repeatedly.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use cloud_controller_manager::providers::azure::transport::{ArmTransport, ArmTransportError};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};

const SEPARATOR: &[u8] = b"\n===\n";
/// Maximum number of headers of a response, as in HTTP clients.
const MAX_HEADERS: usize = 100;
/// Maximum number of responses of a script. Further text belongs to the last one.
const MAX_RESPONSES: usize = 16;

/// Responses to return.
pub struct Script {
    responses: Vec<(StatusCode, HeaderMap, Bytes)>,
    next: AtomicUsize,
}

impl Script {
    /// Parses a script. Any bytes are a valid script.
    pub fn shared(data: &[u8]) -> Arc<Self> {
        let mut responses = Vec::new();
        let mut rest = Some(data);
        while let Some(text) = rest.take() {
            let cut = text.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
            let cut = cut.filter(|_| responses.len() + 1 < MAX_RESPONSES);
            rest = cut.map(|at| &text[at + SEPARATOR.len()..]);
            responses.push(response(&text[..cut.unwrap_or(text.len())]));
        }
        Arc::new(Self { responses, next: AtomicUsize::new(0) })
    }
}

fn line<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    let (line, rest) = text.split_at(end);
    *text = rest.get(1..).unwrap_or_default();
    line
}

fn response(mut text: &[u8]) -> (StatusCode, HeaderMap, Bytes) {
    let status = std::str::from_utf8(line(&mut text)).ok().and_then(|text| text.trim().parse::<u16>().ok());
    let status = status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::OK);
    let mut headers = HeaderMap::new();
    while headers.len() < MAX_HEADERS && !text.is_empty() {
        let line = line(&mut text);
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = HeaderValue::from_bytes(value.get(1..).unwrap_or_default().trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            headers.append(name, value);
        }
    }
    (status, headers, Bytes::copy_from_slice(text))
}

#[async_trait::async_trait]
impl ArmTransport for Script {
    async fn send(&self, _: Request<Bytes>) -> Result<Response<Bytes>, ArmTransportError> {
        let index = self.next.fetch_add(1, Ordering::Relaxed).min(self.responses.len() - 1);
        let (status, headers, body) = self.responses[index].clone();
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

/// Runs `work` to its end on a paused clock, so that waits take no time.
pub fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(work);
}
