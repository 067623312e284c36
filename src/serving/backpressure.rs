//! Stops reading from clients that do not accept responses, and closes their connections.
//!
//! In: the stream of a connection. Out: a stream that blocks reads while written bytes are not sent, and fails if that takes
//! longer than [`SEND`]. Otherwise, a client could send requests without accepting the responses, which would accumulate.

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

/// Stream that blocks reads while written bytes are not sent.
#[derive(Debug)]
pub(super) struct BackpressureStream<S> {
    stream: S,
    /// Timer that runs since a write was blocked.
    behind: Option<Pin<Box<Sleep>>>,
    /// Waker of the reader that waits until all is sent.
    reader: Option<Waker>,
}

impl<S> BackpressureStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, behind: None, reader: None }
    }

    /// Returns `polled` if it is ready. Otherwise, the write is blocked, and fails when the timer expires.
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
    async fn reads_wait_until_all_is_written() {
        let (ours, mut theirs) = duplex(8);
        let mut ours = BackpressureStream::new(ours);
        theirs.write_all(b"get").await.unwrap();
        ours.write_all(b"12345678").await.unwrap();
        assert!(ours.write(b"9").now_or_never().is_none());
        let (mut reader, mut writer) = split(ours);
        let reading = tokio::spawn(async move {
            let mut request = [0; 3];
            reader.read_exact(&mut request).await.unwrap();
            (reader, request)
        });
        tokio::task::yield_now().await;
        assert!(!reading.is_finished(), "the peer has not read the response");
        let mut response = [0; 8];
        theirs.read_exact(&mut response).await.unwrap();
        writer.write_all(b"9").await.unwrap();
        writer.flush().await.unwrap();
        assert_eq!(&reading.await.unwrap().1, b"get");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unread_response_ends_the_connection() {
        let (ours, _theirs) = duplex(8);
        let mut ours = BackpressureStream::new(ours);
        let start = Instant::now();
        let error = ours.write_all(b"123456789").await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, SEND));
    }
}
