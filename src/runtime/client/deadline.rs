//! Deadlines of every wait for the API server.
//!
//! In: a request. Out: its [`RequestDeadlines`] (pure), and a response whose head and body keep them. The limits start
//! when the request is sent, so the wait for the rate limit does not count.
//!
//! | wait | limit | then |
//! | --- | --- | --- |
//! | head of a response to a read | [`HEAD`] | the request fails |
//! | head of a response to a write | [`HEAD_OF_WRITE`] | the request fails |
//! | next bytes of an ordinary response | [`NEXT_BYTES`] | the request fails |
//! | an ordinary response in all | [`WHOLE`] | the request fails |
//! | next bytes of a watch on HTTP/2 | [`SILENCE`] | the watch ends, as if the server had ended it |
//! | next bytes of a watch on HTTP/1.1 | [`SILENCE_UNPROVEN`] | the watch ends in the same way |
//! | a watch in all | its `timeoutSeconds` + [`OVERTIME`] | the watch ends in the same way |

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Response, Uri, Version};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep_until};
use tower::BoxError;

/// Deadline of the head of a response to a read.
///
/// It is longer than a busy API server takes, and shorter than the 45 s within which a hung API server must be detected.
pub(super) const HEAD: Duration = Duration::from_secs(30);
/// Deadline of the head of a response to a write, which may wait for several admission webhooks.
///
/// It is longer than the API server's own limit (`--request-timeout`). A write that is cancelled earlier may take effect,
/// and would be repeated forever.
const HEAD_OF_WRITE: Duration = Duration::from_secs(65);
/// Deadline of the next bytes of a response.
const NEXT_BYTES: Duration = Duration::from_secs(15);
/// Deadline of a whole response. The API server limits ordinary requests to 60 s (`--request-timeout`).
const WHOLE: Duration = Duration::from_secs(90);
/// Deadline of the next bytes of a watch on HTTP/2, whose pings prove the connection.
///
/// It is longer than the interval of bookmarks, which is about a minute.
const SILENCE: Duration = Duration::from_secs(90);
/// Deadline of the next bytes of a watch on HTTP/1.1.
///
/// It is shorter because HTTP/1.1 has no pings, and a proxy may keep a dead connection open, which only a new request
/// detects.
const SILENCE_UNPROVEN: Duration = Duration::from_secs(40);
/// Requested duration of a watch on HTTP/1.1. The server ends the watch before this deadline, with a bookmark.
const UNPROVEN_SECONDS: u32 = 35;
/// Time that a watch may exceed its requested duration.
const OVERTIME: Duration = Duration::from_secs(15);
/// Assumed duration of a watch without a requested duration, which is more than the API server permits.
const UNSAID: Duration = Duration::from_secs(3600);

/// Body that ends or fails at its deadlines.
pub(in crate::runtime) type BoxedResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// Error of an exceeded deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::runtime) enum DeadlineExceeded {
    /// Missing head of the response.
    #[error("no response from the API server within {0:?}")]
    Head(Duration),
    /// Response that stopped before its end.
    #[error("the API server's response stalled for {NEXT_BYTES:?}")]
    Silence,
    /// Response that was too slow as a whole.
    #[error("the API server's response was incomplete after {WHOLE:?}")]
    Whole,
}

/// Class of a request, which determines its deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtime) enum RequestDeadlines {
    /// Response to a read.
    Read,
    /// Response to a write.
    Write,
    /// Stream of changes with this duration.
    Watch(Duration),
}

impl RequestDeadlines {
    /// Returns the deadlines of a request with this method and query.
    pub(in crate::runtime) fn of(method: &Method, query: Option<&str>) -> Self {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Self::Write;
        }
        let pairs = || query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        if !pairs().any(|(name, value)| name == "watch" && matches!(value, "true" | "1")) {
            return Self::Read;
        }
        let timeout_seconds = pairs().find(|(name, _)| *name == "timeoutSeconds").and_then(|(_, value)| value.parse().ok());
        Self::Watch(timeout_seconds.map_or(UNSAID, |seconds: u32| Duration::from_secs(seconds.into())) + OVERTIME)
    }

    /// Returns the deadline of the head.
    fn for_head(self) -> Duration {
        if self == Self::Write { HEAD_OF_WRITE } else { HEAD }
    }

    /// Returns the deadlines of the next bytes, and of the whole body.
    fn for_body(self, version: Version) -> (Duration, Duration) {
        match self {
            Self::Read | Self::Write => (NEXT_BYTES, WHOLE),
            Self::Watch(whole) if version == Version::HTTP_2 => (SILENCE, whole),
            Self::Watch(whole) => (SILENCE_UNPROVEN, whole),
        }
    }
}

/// Returns `uri` of a watch with a short duration, so that the server ends the watch before its deadline without pings.
pub(in crate::runtime) fn shorten_watch(uri: &Uri) -> Uri {
    with_parameter(uri, "timeoutSeconds", UNPROVEN_SECONDS)
}

/// Returns `uri` with this value of a parameter of its query, in place of any other.
pub(in crate::runtime) fn with_parameter(uri: &Uri, name: &str, value: u32) -> Uri {
    let is_other = |pair: &&str| pair.split_once('=').is_none_or(|(key, _)| key != name);
    let other_pairs = uri.query().unwrap_or_default().split('&').filter(is_other);
    let query = other_pairs.fold(format!("{name}={value}"), |query, pair| format!("{query}&{pair}"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{}?{query}", uri.path()).parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// Waits for the response within `limits`, which also apply to its body. `silent` is called if a watch ends because of
/// silence.
pub(in crate::runtime) async fn with_deadlines<B, E>(
    limits: RequestDeadlines,
    request: impl Future<Output = Result<Response<B>, E>>,
    silent: impl Fn() + Send + 'static,
) -> Result<Response<BoxedResponseBody>, BoxError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    E: Into<BoxError>,
{
    let head = limits.for_head();
    let response =
        tokio::time::timeout(head, request).await.map_err(|_| DeadlineExceeded::Head(head))?.map_err(Into::into)?;
    let (silence, whole) = limits.for_body(response.version());
    Ok(response.map(|body| {
        let now = Instant::now();
        let inner = body.map_err(Into::into).boxed_unsync();
        let timer = Box::pin(sleep_until(now + silence.min(whole)));
        DeadlineBody { inner, deadlines: limits, silence, end: now + whole, timer, on_silence: Box::new(silent) }
            .boxed_unsync()
    }))
}

struct DeadlineBody {
    inner: BoxedResponseBody,
    deadlines: RequestDeadlines,
    silence: Duration,
    end: Instant,
    timer: Pin<Box<Sleep>>,
    on_silence: Box<dyn Fn() + Send>,
}

impl Body for DeadlineBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if Instant::now() < self.end
            && let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context)
        {
            let next = (Instant::now() + self.silence).min(self.end);
            self.timer.as_mut().reset(next);
            return Poll::Ready(frame);
        }
        std::task::ready!(self.timer.as_mut().poll(context));
        let over = Instant::now() >= self.end;
        Poll::Ready(match self.deadlines {
            RequestDeadlines::Read | RequestDeadlines::Write => {
                Some(Err(if over { DeadlineExceeded::Whole } else { DeadlineExceeded::Silence }.into()))
            }
            RequestDeadlines::Watch(_) if over => None,
            RequestDeadlines::Watch(_) => {
                (self.on_silence)();
                None
            }
        })
    }
}

#[cfg(test)]
mod tests;
