//! Delivery of a response's body to the client: whole, byte by byte, or only half of it.
//!
//! In: a response and its pace. Out: for clients in process, the moment at which they have all of it; for a socket, the body
//! in frames. Both see the same.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http::Response;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::faults::Effect;
use crate::providers::azure::transport::ArmTransportError;

/// Lifetime of a connection after the first half of a body, so that the client gets that half.
const LAST_BREATH: Duration = Duration::from_millis(20);

/// Pace of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Whole,
    /// Byte by byte, with this delay between two.
    Slow(Duration),
    /// Half of it, then the connection breaks.
    Breaks,
    /// Half of it, then nothing more.
    Stalls,
}

impl Pace {
    /// Returns the pace that an effect makes.
    pub fn of(effect: Option<&Effect>) -> Self {
        match effect {
            Some(Effect::SlowBody(pause)) => Self::Slow(*pause),
            Some(Effect::BreakHalfway) => Self::Breaks,
            Some(Effect::StallHalfway) => Self::Stalls,
            _ => Self::Whole,
        }
    }
}

/// A response that is being delivered.
#[derive(Debug)]
pub struct Delivery {
    pub response: Response<Bytes>,
    /// Pace of the body.
    pub pace: Pace,
}

impl Delivery {
    /// Returns the response once all of it has arrived.
    pub async fn arrive(self) -> Result<Response<Bytes>, ArmTransportError> {
        match self.pace {
            Pace::Whole => Ok(self.response),
            Pace::Slow(pause) => {
                let length = u32::try_from(self.response.body().len()).unwrap_or(u32::MAX);
                tokio::time::sleep(pause.saturating_mul(length)).await;
                Ok(self.response)
            }
            Pace::Breaks => Err(ArmTransportError::NoAnswer(
                "connection lost in the middle of the answer, by an injected fault".to_owned(),
            )),
            Pace::Stalls => std::future::pending().await,
        }
    }

    /// Returns the response for a socket.
    pub fn framed(self) -> Response<PacedBody> {
        let pace = self.pace;
        self.response.map(|body| {
            let end = if matches!(pace, Pace::Breaks | Pace::Stalls) { body.len() / 2 } else { 0 };
            PacedBody { remaining: body, end, pace, pause: None }
        })
    }
}

/// Body that arrives at a pace. Its length is declared as if all of it arrived.
#[derive(Debug)]
pub struct PacedBody {
    remaining: Bytes,
    /// Number of bytes that arrive.
    end: usize,
    pace: Pace,
    pause: Option<Pin<Box<Sleep>>>,
}

impl PacedBody {
    fn wait(&mut self, time: Duration, context: &mut Context<'_>) -> Poll<()> {
        let sleep = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        std::task::ready!(sleep.as_mut().poll(context));
        self.pause = None;
        Poll::Ready(())
    }

    fn take(&mut self, length: usize) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(Some(Ok(Frame::data(self.remaining.split_to(length)))))
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.remaining.has_remaining() {
            return Poll::Ready(None);
        }
        let ready = self.remaining.len() - self.end;
        match self.pace {
            Pace::Slow(pause) => {
                std::task::ready!(self.wait(pause, context));
                self.take(1)
            }
            Pace::Breaks if ready == 0 => {
                std::task::ready!(self.wait(LAST_BREATH, context));
                Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())))
            }
            Pace::Stalls if ready == 0 => Poll::Pending,
            Pace::Whole | Pace::Breaks | Pace::Stalls => self.take(ready),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.remaining.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining.len() as u64)
    }
}
