//! Deadlines of every wait for the API server.
//!
//! In: a request. Out: its [`RequestDeadlines`] (pure), and a response whose head and body keep them. The time a request
//! waits for the rate limit does not count: these limits begin when it leaves.
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

/// Longer than a busy API server takes, shorter than the 45 s within which a hung one must be detected.
pub(super) const HEAD: Duration = Duration::from_secs(30);
/// Longer than the API server itself gives a write (`--request-timeout`), which may wait for several admission webhooks.
///
/// A write that is abandoned too soon takes effect nevertheless, and is sent again forever.
const HEAD_OF_WRITE: Duration = Duration::from_secs(65);
/// Between two pieces of an answer that has begun.
const NEXT_BYTES: Duration = Duration::from_secs(15);
/// The API server itself gives an ordinary request 60 s (`--request-timeout`).
const WHOLE: Duration = Duration::from_secs(90);
/// Longer than the interval of bookmarks, about a minute. HTTP/2 pings show whether the connection is alive.
const SILENCE: Duration = Duration::from_secs(90);
/// Shorter, because HTTP/1.1 has no pings, and a proxy may keep a connection open that leads nowhere: only a new request
/// shows that.
const SILENCE_UNPROVEN: Duration = Duration::from_secs(40);
/// Requested duration of a watch there: the server ends it, with a bookmark just before, sooner than this silence would.
const UNPROVEN_SECONDS: u32 = 35;
/// Time that a watch may exceed its requested duration.
const OVERTIME: Duration = Duration::from_secs(15);
/// Assumed duration of a watch that requests none: more than the API server grants.
const UNSAID: Duration = Duration::from_secs(3600);

/// A body within its limits.
pub(in crate::runtime) type BoxedResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// The API server took longer than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::runtime) enum DeadlineExceeded {
    /// Not even the head of an answer came.
    #[error("no response from the API server within {0:?}")]
    Head(Duration),
    /// The answer stopped half-way.
    #[error("the API server's response stalled for {NEXT_BYTES:?}")]
    Silence,
    /// The answer came, but too slowly.
    #[error("the API server's response was incomplete after {WHOLE:?}")]
    Whole,
}

/// Class of a request, which determines its deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtime) enum RequestDeadlines {
    /// A single answer to a read.
    Read,
    /// A single answer to a write.
    Write,
    /// A stream of changes that lasts as long as this.
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

    /// Returns the deadlines of the next bytes, and of all of them.
    fn for_body(self, version: Version) -> (Duration, Duration) {
        match self {
            Self::Read | Self::Write => (NEXT_BYTES, WHOLE),
            Self::Watch(whole) if version == Version::HTTP_2 => (SILENCE, whole),
            Self::Watch(whole) => (SILENCE_UNPROVEN, whole),
        }
    }
}

/// Returns `uri` of a watch with a duration so short that it ends in good order where no ping proves the connection.
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

/// Waits for `request` within `limits`; its body then keeps to them. `silent` is called when a watch was ended for its silence.
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
