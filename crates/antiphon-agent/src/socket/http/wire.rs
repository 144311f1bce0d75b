//! The bytes below HTTP: what was read to tell that it is HTTP, and the times that hyper does not watch.
//!
//! - A request's head that has begun is whole within [`HEAD_WITHIN`], or the connection ends: no client holds
//!   a place by sending a byte now and then.
//! - A client that reads nothing for [`READ_WITHIN`] is sent away, and its session learns why.
//! - A client that has ended its sending counts as gone [`END_AFTER`] later. Until then it is answered, since
//!   some clients end their sending behind their last request.
//! - While a request is answered, this module notices that its client has gone, whatever the client sent
//!   ahead. hyper looks for the end only if nothing waits to be read; a lock would then be waited for, and
//!   taken, for nobody.
//! - The connection's end waits a moment for the client's end, so that the client gets an answer that came
//!   before all of its body was read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use antiphon::clients::Departure;
use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::socket::{Connection, LOOK_EACH, PART_WITHIN, READ_WITHIN, slow};

/// For a request's head, from its first byte on.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// For the answer to a client that sends nothing any more.
const END_AFTER: Duration = Duration::from_millis(250);
/// Bytes read at once of input that is thrown away.
const UNWANTED_BYTES: usize = 4096;

/// Where a connection is between its requests.
#[derive(Debug)]
pub(super) struct Pace {
    phase: AtomicU8,
}

/// No request has begun.
const IDLE: u8 = 0;
/// Bytes of a head have come.
const HEAD: u8 = 1;
/// A request is being answered.
const BUSY: u8 = 2;
/// The client does not read.
const SLOW: u8 = 3;

impl Pace {
    pub(super) fn new() -> Arc<Self> {
        let phase = AtomicU8::new(IDLE);
        Arc::new(Self { phase })
    }

    /// A request is being answered, as long as this is there.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.phase.store(BUSY, Ordering::Relaxed);
        Busy(self.clone())
    }

    fn is(&self, phase: u8) -> bool {
        self.phase.load(Ordering::Relaxed) == phase
    }

    fn step(&self, from: u8, to: u8) -> bool {
        let step = self
            .phase
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        step.is_ok()
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Busy(Arc<Pace>);

impl Busy {
    /// How its session ends, if the client was sent away because it did not read.
    pub(super) fn departure(&self) -> Option<Departure> {
        self.0.is(SLOW).then(slow)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.step(BUSY, IDLE);
    }
}

/// A connection below HTTP.
pub(super) struct Wire<S> {
    stream: S,
    /// Read before it was known that this is HTTP.
    first: Bytes,
    pace: Arc<Pace>,
    head: Timer,
    write: Timer,
    look: Timer,
    ended: Timer,
    /// hyper waits for bytes, or for their end.
    is_read: bool,
    end: Timer,
    is_shut: bool,
}

impl<S: Connection> Wire<S> {
    pub(super) fn new(stream: S, first: Vec<u8>, pace: Arc<Pace>) -> Self {
        Self {
            stream,
            first: first.into(),
            pace,
            head: Timer::default(),
            write: Timer::default(),
            look: Timer::default(),
            ended: Timer::default(),
            is_read: false,
            end: Timer::default(),
            is_shut: false,
        }
    }

    /// Fails if a request is being answered and its client has gone.
    fn look(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.is_read || !self.pace.is(BUSY) {
            self.look.stop();
            return Ok(());
        }
        self.look.start(LOOK_EACH);
        while self.look.poll(context).is_ready() {
            if self.stream.has_ended() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.look.stop();
            self.look.start(LOOK_EACH);
        }
        Ok(())
    }

    /// What writing gave; an error if it has given nothing for too long.
    fn paced<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write.stop();
            return written;
        }
        self.write.start(READ_WITHIN);
        ready!(self.write.poll(context));
        self.pace.phase.store(SLOW, Ordering::Relaxed);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: Connection> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = into.filled().len();
        let read = match this.first.is_empty() {
            true => Pin::new(&mut this.stream).poll_read(context, into)?,
            false => {
                let length = this.first.len().min(into.remaining());
                into.put_slice(&this.first[..length]);
                this.first.advance(length);
                Poll::Ready(())
            }
        };
        this.is_read = read.is_pending();
        match read {
            Poll::Ready(()) if into.filled().len() > before => {
                if this.pace.step(IDLE, HEAD) {
                    this.head.stop();
                    this.head.start(HEAD_WITHIN);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(()) if this.pace.is(BUSY) => {
                this.is_read = true;
                this.ended.start(END_AFTER);
                this.ended.poll(context).map(Ok)
            }
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending if this.pace.is(HEAD) => {
                ready!(this.head.poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: Connection> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.paced(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.paced(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper comes by here each time that it looks after the connection.
        self.look(context)?;
        // TLS holds back what its client does not take.
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.paced(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.end.start(PART_WITHIN);
        if !this.is_shut {
            match Pin::new(&mut this.stream).poll_shutdown(context)? {
                Poll::Ready(()) => this.is_shut = true,
                // TLS says goodbye, which its client may not take.
                Poll::Pending => return this.end.poll(context).map(Ok),
            }
        }
        // A socket that is closed with something unread takes away what was written.
        loop {
            let mut unwanted = [0; UNWANTED_BYTES];
            let mut unwanted = ReadBuf::new(&mut unwanted);
            match Pin::new(&mut this.stream).poll_read(context, &mut unwanted) {
                Poll::Ready(Ok(())) if !unwanted.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
            // A client that goes on sending is not waited for either.
            if this.end.poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
        }
        this.end.poll(context).map(Ok)
    }
}

/// A time that is over some day, if it was started.
#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Unless it runs.
    fn start(&mut self, after: Duration) {
        self.0
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + after)));
    }

    fn stop(&mut self) {
        self.0 = None;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some(sleep) => sleep.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    impl Connection for DuplexStream {
        fn has_ended(&self) -> bool {
            false
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_has_begun_is_whole_in_time_or_the_connection_ends() {
        let (_client, stream) = duplex(64);
        let pace = Pace::new();
        let mut wire = Wire::new(stream, b"GET".to_vec(), pace.clone());
        let mut bytes = [0; 64];
        let begun = Instant::now();
        assert_eq!(wire.read(&mut bytes).await.unwrap(), 3);
        assert_eq!(
            wire.read(&mut bytes).await.unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert_eq!(begun.elapsed(), HEAD_WITHIN);
        // Not while it is answered, which may take as long as it does.
        let _busy = pace.busy();
        let waits = tokio::time::timeout(10 * HEAD_WITHIN, wire.read(&mut bytes));
        assert!(waits.await.is_err());
    }

    /// TLS to a client that takes nothing: it takes what is written, and cannot get rid of it.
    struct Stuck;

    impl Connection for Stuck {
        fn has_ended(&self) -> bool {
            false
        }
    }

    impl AsyncRead for Stuck {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Stuck {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_tls_cannot_get_rid_of_is_not_waited_for() {
        let pace = Pace::new();
        let busy = pace.busy();
        let mut wire = Wire::new(Stuck, Vec::new(), pace);
        let begun = Instant::now();
        wire.write_all(b"answer").await.unwrap();
        let flushed = wire.flush().await.unwrap_err();
        assert_eq!(
            (flushed.kind(), begun.elapsed()),
            (io::ErrorKind::TimedOut, READ_WITHIN)
        );
        assert!(busy.departure().is_some());
        wire.shutdown().await.unwrap();
        assert_eq!(begun.elapsed(), READ_WITHIN + PART_WITHIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_nothing_any_more_has_a_moment_for_its_answer() {
        let (client, stream) = duplex(64);
        let pace = Pace::new();
        let mut wire = Wire::new(stream, Vec::new(), pace.clone());
        let busy = pace.busy();
        drop(client);
        let begun = Instant::now();
        let mut bytes = [0; 64];
        assert_eq!(wire.read(&mut bytes).await.unwrap(), 0);
        assert_eq!(begun.elapsed(), END_AFTER);
        // Between requests nobody waits for one.
        drop(busy);
        assert_eq!(wire.read(&mut bytes).await.unwrap(), 0);
        assert_eq!(begun.elapsed(), END_AFTER);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_trickle_do_not_prolong_a_head() {
        let (mut client, stream) = duplex(64);
        let mut wire = Wire::new(stream, b"GET".to_vec(), Pace::new());
        tokio::spawn(async move {
            while client.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let begun = Instant::now();
        let mut bytes = [0; 64];
        while wire.read(&mut bytes).await.is_ok() {}
        assert!(begun.elapsed() <= HEAD_WITHIN + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_sent_away_and_one_that_takes_some_is_not() {
        let (mut client, stream) = duplex(64);
        let pace = Pace::new();
        let busy = pace.busy();
        let mut wire = Wire::new(stream, Vec::new(), pace);
        let reading = tokio::spawn(async move {
            for _ in 0..10 {
                tokio::time::sleep(READ_WITHIN / 2).await;
                client.read_u8().await.unwrap();
            }
            client
        });
        wire.write_all(&[0; 74]).await.unwrap();
        let _client = reading.await.unwrap();
        assert!(busy.departure().is_none());
        let begun = Instant::now();
        let written = wire.write_all(&[0; 64]).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(busy.departure().is_some() && begun.elapsed() == READ_WITHIN);
    }
}
