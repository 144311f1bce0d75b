//! A connection that is read, written and watched at the same time, each by a hand of its own.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;

use super::{Connection, LOOK_EACH};

/// One of the hands that hold a connection.
#[derive(Clone)]
pub(super) struct Hand(Arc<Mutex<Box<dyn Connection>>>);

impl Hand {
    pub(super) fn new(connection: Box<dyn Connection>) -> Self {
        Self(Arc::new(Mutex::new(connection)))
    }

    /// Returns when the other end sends nothing any more, also while nobody reads what it has sent. TCP tells
    /// of that only behind what the buffers of both sockets hold.
    pub(super) async fn ended(&self) {
        loop {
            sleep(LOOK_EACH).await;
            if self.connection().has_ended() {
                return;
            }
        }
    }

    fn connection(&self) -> MutexGuard<'_, Box<dyn Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Hand {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut **self.connection()).poll_read(context, into)
    }
}

impl AsyncWrite for Hand {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut **self.connection()).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut **self.connection()).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut **self.connection()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut **self.connection()).poll_shutdown(context)
    }
}
