//! Bodies of responses, sent in small pieces.
//!
//! In: a body, and a guard to hold until the body is sent. Out: the same bytes. For each response that the client does not
//! accept, the connection buffers one piece instead of the whole. The guard counts a response as in flight until its last
//! piece.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// Size of a piece in bytes, about that of a TLS record.
const CHUNK_SIZE: usize = 16 * 1024;

/// Body that is sent in pieces, and then drops the guard `H`.
#[derive(Debug)]
pub(super) struct ChunkedBody<H> {
    inner: Body,
    rest: Bytes,
    _guard: H,
}

impl<H> ChunkedBody<H> {
    pub(super) fn new(inner: Body, guard: H) -> Self {
        Self { inner, rest: Bytes::new(), _guard: guard }
    }

    fn next_chunk(&mut self) -> Frame<Bytes> {
        Frame::data(self.rest.split_to(self.rest.len().min(CHUNK_SIZE)))
    }
}

impl<H: Unpin> hyper::body::Body for ChunkedBody<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.next_chunk())));
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| match frame.into_data() {
                Ok(data) => {
                    self.rest = data;
                    self.next_chunk()
                }
                Err(trailers) => trailers,
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(inner.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use hyper::body::Body as _;

    use super::*;

    #[tokio::test]
    async fn pieces_are_small_and_the_whole_is_the_same() {
        for length in [0, 1, CHUNK_SIZE, CHUNK_SIZE + 1, 5 * CHUNK_SIZE + 7] {
            let text: String = (0..length).map(|number| char::from(b'a' + u8::try_from(number % 26).unwrap())).collect();
            let mut body = ChunkedBody::new(Body::from(text.clone()), ());
            let mut seen = Vec::new();
            while let Some(frame) = body.frame().await {
                let piece = frame.unwrap().into_data().unwrap();
                assert!(piece.len() <= CHUNK_SIZE);
                seen.extend_from_slice(&piece);
                assert_eq!(body.size_hint().exact(), Some((length - seen.len()) as u64));
            }
            assert_eq!(String::from_utf8(seen).unwrap(), text);
            assert!(body.is_end_stream());
        }
    }
}
