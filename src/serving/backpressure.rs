//! Stops to read from clients that do not accept responses, and closes their connections.
//!
//! In: the stream of a connection. Out: a stream that returns nothing to read while written bytes have not gone out, and
//! fails if that takes longer than [`SEND`]. Without it, responses to requests that are sent one after the other and never
//! accepted would pile up without limit.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Time within which the other side must accept everything that was written.
const SEND: Duration = Duration::from_secs(30);

/// A stream with that rule.
#[derive(Debug)]
pub(super) struct BackpressureStream<S> {
    stream: S,
    /// Runs since something could not be written at once.
    behind: Option<Pin<Box<Sleep>>>,
    /// Wants to read once everything has gone out.
    reader: Option<Waker>,
}

impl<S> BackpressureStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, behind: None, reader: None }
    }

    /// Returns `polled` if it is ready. Else the stream is behind, and the task fails or is woken when the time is over.
    fn or_timed_out<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            return polled;
        }
        let behind = self.behind.get_or_insert_with(|| Box::pin(sleep(SEND)));
        let timed_out = || Err(io::Error::new(io::ErrorKind::TimedOut, "the answer was not taken in time"));
        behind.as_mut().poll(context).map(|()| timed_out())
    }

    fn caught_up(&mut self) {
        self.behind = None;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BackpressureStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.behind.is_none() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        self.reader = Some(context.waker().clone());
        self.or_timed_out(Poll::Pending, context)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BackpressureStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.or_timed_out(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.or_timed_out(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            self.caught_up();
        }
        self.or_timed_out(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.or_timed_out(ended, context)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex, split},
        time::Instant,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_read_until_all_is_written() {
        let (ours, mut theirs) = duplex(8);
        let mut ours = BackpressureStream::new(ours);
        theirs.write_all(b"ask").await.unwrap();
        ours.write_all(b"12345678").await.unwrap();
        assert!(ours.write(b"9").now_or_never().is_none());
        let (mut reader, mut writer) = split(ours);
        let reading = tokio::spawn(async move {
            let mut asked = [0; 3];
            reader.read_exact(&mut asked).await.unwrap();
            (reader, asked)
        });
        tokio::task::yield_now().await;
        assert!(!reading.is_finished(), "what was sent is not taken");
        let mut taken = [0; 8];
        theirs.read_exact(&mut taken).await.unwrap();
        writer.write_all(b"9").await.unwrap();
        writer.flush().await.unwrap();
        assert_eq!(&reading.await.unwrap().1, b"ask");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_taken_ends_the_connection() {
        let (ours, _theirs) = duplex(8);
        let mut ours = BackpressureStream::new(ours);
        let start = Instant::now();
        let error = ours.write_all(b"123456789").await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, SEND));
    }
}
