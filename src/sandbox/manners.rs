//! Responses that are sent incompletely or slowly.
//!
//! In: a complete response and a [`Manner`]. Out: the same response, of which only half arrives, or which arrives byte by
//! byte. [`super::watch`] decides what a manner does to the events of a watch.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Response, header};
use http_body_util::BodyExt;

use super::faults::Manner;

/// Sends `response` in this manner. Streams pass.
pub(super) async fn applied(manner: Manner, response: Response<Body>) -> Response<Body> {
    let pause = match manner {
        Manner::Half => None,
        Manner::Trickle(pause) => Some(pause),
        Manner::Whole | Manner::Expired | Manner::WithoutBookmarks => return response,
    };
    // Only a complete response has a known length; a watch has none.
    let existing = hyper::body::Body::size_hint(response.body()).exact().is_some();
    if !existing {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    parts.headers.insert(header::CONTENT_LENGTH, bytes.len().into());
    Response::from_parts(parts, pause.map_or_else(|| half(&bytes), |pause| trickle(bytes.clone(), pause)))
}

fn half(bytes: &Bytes) -> Body {
    let first = stream::iter([Ok::<_, Infallible>(bytes.slice(..bytes.len() / 2))]);
    Body::from_stream(first.chain(stream::pending()))
}

fn trickle(bytes: Bytes, pause: Duration) -> Body {
    let pieces = stream::unfold(0, move |at| {
        let piece = (at < bytes.len()).then(|| bytes.slice(at..=at));
        async move {
            let piece = piece?;
            tokio::time::sleep(pause).await;
            Some((Ok::<_, Infallible>(piece), at + 1))
        }
    });
    Body::from_stream(pieces)
}
