//! A connection that ends when nothing has come, or nothing was taken, for too long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{IDLE_FOR, WRITE_WITHIN};
use crate::ways::Stream;

/// How many commands of a connection are served now: as long as there are any, it is not idle.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy(Arc<AtomicUsize>);

/// A command is served.
pub(super) struct Served(Busy);

impl Busy {
    pub(super) fn one_more(&self) -> Served {
        self.0.fetch_add(1, Ordering::Relaxed);
        Served(self.clone())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream whose reads and writes have their time.
pub(super) struct Paced<S> {
    stream: S,
    busy: Busy,
    read: Timer,
    write: Timer,
}

impl<S: Stream> Paced<S> {
    pub(super) fn new(stream: S, busy: Busy) -> Self {
        Self {
            stream,
            busy,
            read: Timer(None),
            write: Timer(None),
        }
    }
}

/// Runs while something is waited for.
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        within: Duration,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.0 = None;
            return done;
        }
        let timer = self
            .0
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + within)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: Stream> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let read = Pin::new(&mut self.stream).poll_read(context, into);
            let waits = read.is_pending();
            let read = self.read.watch(context, IDLE_FOR, read);
            if !waits || read.is_pending() || self.busy.0.load(Ordering::Relaxed) == 0 {
                return read;
            }
            self.read.0 = None;
        }
    }
}

impl<S: Stream> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.write.watch(context, WRITE_WITHIN, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.write.watch(context, WRITE_WITHIN, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_says_nothing_or_takes_nothing_is_let_go() {
        let (mut peer, stream) = duplex(64);
        let busy = Busy::default();
        let mut paced = Paced::new(stream, busy.clone());
        let served = busy.one_more();
        let waits = tokio::time::timeout(10 * IDLE_FOR, paced.read_u8());
        assert!(waits.await.is_err());
        drop(served);
        paced.read.0 = None;
        let begun = Instant::now();
        let quiet = paced.read_u8().await.unwrap_err();
        assert_eq!(
            (quiet.kind(), begun.elapsed()),
            (io::ErrorKind::TimedOut, IDLE_FOR)
        );
        let begun = Instant::now();
        let stuck = paced.write_all(&[0; 65]).await.unwrap_err();
        assert_eq!(
            (stuck.kind(), begun.elapsed()),
            (io::ErrorKind::TimedOut, WRITE_WITHIN)
        );
        // Each byte counts anew.
        peer.write_u8(7).await.unwrap();
        assert_eq!(paced.read_u8().await.unwrap(), 7);
    }
}
