//! A connection whose bytes are counted, as long as they are no whole line, command or message.
//!
//! The layer lies below what reads these, and knows only how many bytes came; its reader says what is whole
//! ([`HalfSaid::whole`]). The first [`FREE_BYTES`] of what is not whole belong to the connection; for more it
//! waits until there is room ([`halves`](super::halves)), before it reads on. If it has to give way, reading
//! fails, and [`HalfSaid::gave_way`] says why.
//!
//! It also gives way if no byte comes for [`REST_WITHIN`] while something is half said: its reader waits by
//! [`HalfSaid::rest`]. A connection that has said nothing half may be idle as long as it likes.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};

use super::Connection;
use super::halves::{GivesWay, Half, Halves, UNDISTURBED};

/// What a connection may leave half said without being counted.
const FREE_BYTES: usize = 64 << 10;
/// What is counted at once of more.
const STEP_BYTES: usize = 64 << 10;
/// How long no byte may come of the rest of what is half said.
const REST_WITHIN: Duration = Duration::from_secs(60);

/// A connection that may leave something half said, below what reads whole lines, commands or messages.
pub(super) struct Counted<S> {
    stream: S,
    said: HalfSaid,
}

/// What a connection has half said: for its reader, which knows what is whole. A cheap handle.
#[derive(Clone)]
pub(super) struct HalfSaid {
    halves: Halves,
    inside: Arc<Mutex<Inside>>,
}

#[derive(Default)]
struct Inside {
    bytes: usize,
    /// When the last of them came.
    last: Option<Instant>,
    half: Option<Counting>,
    /// It gave way, or is over: nothing is counted, and what comes is thrown away.
    over: bool,
    /// Why it gave way.
    gave_way: Option<String>,
}

/// A half that is counted.
struct Counting {
    half: Arc<Half>,
    taken: usize,
    /// It takes more.
    takes: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// It is told to give way.
    told: Pin<Box<dyn Future<Output = GivesWay> + Send>>,
}

impl HalfSaid {
    pub(super) fn new(halves: &Halves) -> Self {
        Self {
            halves: halves.clone(),
            inside: Arc::default(),
        }
    }

    /// Something is whole, and so many bytes were read behind it. It takes nothing from others any more,
    /// however long it waits for its turn.
    pub(super) fn whole(&self, behind: usize) {
        let mut inside = self.inside();
        (inside.bytes, inside.half) = (behind, None);
    }

    /// What was taken for whole is not: so many bytes are kept of it, and behind it.
    pub(super) fn half(&self, bytes: usize) {
        let mut inside = self.inside();
        (inside.bytes, inside.last) = (bytes, Some(Instant::now()));
    }

    /// Something came that is no part of what is half said, of which there are so many bytes.
    pub(super) fn other(&self, bytes: usize) {
        self.inside().bytes = bytes;
    }

    /// What comes from now on is thrown away.
    pub(super) fn end(&self) {
        let mut inside = self.inside();
        (inside.over, inside.half) = (true, None);
    }

    /// Why nothing more is read, if the connection gave way.
    pub(super) fn gave_way(&self) -> Option<String> {
        self.inside().gave_way.clone()
    }

    /// Reads, but does not wait for ever for the rest of what is half said. None: it did not come, and the
    /// connection gave way.
    ///
    /// # Cancel safety
    /// That of `read`.
    pub(super) async fn rest<T>(&self, read: impl Future<Output = T>) -> Option<T> {
        let mut read = pin!(read);
        let mut since = Instant::now();
        loop {
            if let Ok(read) = timeout_at(since + REST_WITHIN, &mut read).await {
                return Some(read);
            }
            let inside = &mut *self.inside();
            match inside.last {
                _ if inside.bytes == 0 => since = Instant::now(),
                Some(last) if last > since => since = last,
                _ => {
                    let within = REST_WITHIN.as_secs();
                    inside.give_way(format!(
                        "the rest of this did not come within {within} s: send it again"
                    ));
                    return None;
                }
            }
        }
    }

    /// Returns when the connection has to give way, and says why. It is for a reader that waits for something
    /// else: nobody would notice otherwise, because the connection is not read meanwhile.
    pub(super) async fn gives_way(&self) -> String {
        poll_fn(|cx| self.inside().poll_gives_way(cx)).await;
        too_slow()
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for what was read so far.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<(), GivesWay>> {
        let inside = &mut *self.inside();
        let counted = inside.bytes.saturating_sub(FREE_BYTES);
        if inside.over || counted == 0 {
            inside.half = None;
            return Poll::Ready(Ok(()));
        }
        let counting = inside
            .half
            .get_or_insert_with(|| Counting::of(self.halves.begin()));
        let room = counting.poll(counted, cx);
        if let Poll::Ready(Err(GivesWay)) = &room {
            inside.give_way(too_slow());
        }
        room
    }
}

fn too_slow() -> String {
    format!(
        "this was not whole after {} s, and others needed its room: send it again, faster",
        UNDISTURBED.as_secs()
    )
}

impl Inside {
    fn poll_gives_way(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(counting) = &mut self.half else {
            return Poll::Pending;
        };
        ready!(counting.told.as_mut().poll(cx));
        self.give_way(too_slow());
        Poll::Ready(())
    }

    fn came(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.last = Some(Instant::now());
    }

    fn give_way(&mut self, reason: String) {
        (self.half, self.over, self.gave_way) = (None, true, Some(reason));
    }
}

impl Counting {
    fn of(half: Half) -> Self {
        let half = Arc::new(half);
        let of = half.clone();
        Self {
            half,
            taken: 0,
            takes: None,
            told: Box::pin(async move { of.gives_way().await }),
        }
    }

    fn poll(&mut self, counted: usize, cx: &mut Context<'_>) -> Poll<Result<(), GivesWay>> {
        if let Poll::Ready(gives_way) = self.told.as_mut().poll(cx) {
            return Poll::Ready(Err(gives_way));
        }
        while counted > self.taken {
            let takes = self.takes.get_or_insert_with(|| {
                let half = self.half.clone();
                Box::pin(async move { half.take(STEP_BYTES).await })
            });
            ready!(takes.as_mut().poll(cx));
            self.takes = None;
            self.taken += STEP_BYTES;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S> Counted<S> {
    pub(super) fn new(stream: S, halves: &Halves) -> Self {
        let said = HalfSaid::new(halves);
        Self { stream, said }
    }

    pub(super) fn said(&self) -> HalfSaid {
        self.said.clone()
    }
}

impl<S: Connection> Connection for Counted<S> {
    fn has_ended(&self) -> bool {
        self.stream.has_ended()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if ready!(this.said.poll_room(cx)).is_err() {
            return Poll::Ready(Err(io::ErrorKind::StorageFull.into()));
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, into))?;
        let read = into.filled().len() - before;
        if read > 0 {
            this.said.inside().came(read);
        } else if into.remaining() > 0 {
            // The rest of a half does not come any more, but the connection may still be written to.
            this.said.end();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const MOST: usize = 4 * STEP_BYTES;

    /// Reads all that comes; why it ends.
    fn reads(counted: Counted<tokio::io::DuplexStream>) -> tokio::task::JoinHandle<Option<String>> {
        tokio::spawn(async move {
            let mut counted = counted;
            let mut bytes = vec![0; 10_000];
            let of = counted.said();
            while counted.read(&mut bytes).await.is_ok_and(|length| length > 0) {
                // An end of line makes all whole.
                if bytes.contains(&b'\n') {
                    of.whole(0);
                    bytes.fill(0);
                }
            }
            of.gave_way()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_half_gives_way_and_what_is_whole_takes_nothing() {
        let halves = Halves::of(MOST);
        let mut all = Vec::new();
        for _ in 0..4 {
            let (mut near, far) = duplex(1 << 20);
            let read = reads(Counted::new(far, &halves));
            near.write_all(&vec![b'x'; FREE_BYTES + 1000]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            all.push((near, read));
        }
        // They have had their time, and nobody needs their room.
        tokio::time::sleep(10 * UNDISTURBED).await;
        assert!(all.iter().all(|(_, read)| !read.is_finished()) && halves.room() == 0);
        let (mut near, far) = duplex(1 << 20);
        let honest = reads(Counted::new(far, &halves));
        near.write_all(&vec![b'x'; FREE_BYTES + 20_000]).await.unwrap();
        near.write_all(b"\n").await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let finished: Vec<bool> = all.iter().map(|(_, read)| read.is_finished()).collect();
        assert_eq!(finished, [true, false, false, false]);
        // The others go on, and what they said is whole some day.
        for (mut near, read) in all.drain(1..) {
            near.write_all(b"x\nx").await.unwrap();
            drop(near);
            assert_eq!(read.await.unwrap(), None);
        }
        let (_, told) = all.pop().unwrap();
        assert!(told.await.unwrap().unwrap().contains("send it again"));
        drop(near);
        assert_eq!(honest.await.unwrap(), None);
        assert!(halves.is_empty(MOST));
    }

    /// A line that is whole waits for its turn, and nothing is read meanwhile.
    #[tokio::test(start_paused = true)]
    async fn what_is_whole_gives_its_room_back_before_more_is_read() {
        let halves = Halves::of(MOST);
        let (mut near, far) = duplex(1 << 20);
        let mut counted = Counted::new(far, &halves);
        let length = FREE_BYTES + 2 * STEP_BYTES;
        near.write_all(&vec![b'x'; length + 1]).await.unwrap();
        let mut bytes = vec![0; length];
        counted.read_exact(&mut bytes).await.unwrap();
        counted.read_exact(&mut bytes[..1]).await.unwrap();
        assert_eq!(halves.room(), MOST - 2 * STEP_BYTES);
        counted.said().whole(0);
        assert!(halves.is_empty(MOST));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_half_said_when_a_program_has_said_all_takes_nothing() {
        let halves = Halves::of(MOST);
        let (mut near, far) = duplex(1 << 20);
        let mut counted = Counted::new(far, &halves);
        near.write_all(&vec![b'x'; FREE_BYTES + 1]).await.unwrap();
        let mut bytes = vec![0; FREE_BYTES + 1];
        counted.read_exact(&mut bytes).await.unwrap();
        near.write_all(b"x").await.unwrap();
        counted.read_exact(&mut bytes[..1]).await.unwrap();
        assert_eq!(halves.room(), MOST - STEP_BYTES);
        near.shutdown().await.unwrap();
        assert_eq!(counted.read(&mut bytes).await.unwrap(), 0);
        assert!(halves.is_empty(MOST));
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_what_is_half_said_is_waited_for_as_long_as_some_of_it_comes() {
        let (mut near, far) = duplex(1 << 10);
        let mut counted = Counted::new(far, &Halves::of(MOST));
        let said = counted.said();
        let mut bytes = [0; 3];
        let writes = async {
            // Nothing is half said before the first byte.
            for pause in [10 * REST_WITHIN, REST_WITHIN * 9 / 10, REST_WITHIN * 9 / 10] {
                tokio::time::sleep(pause).await;
                near.write_all(b"x").await.unwrap();
            }
        };
        let ((), read) = tokio::join!(writes, said.rest(counted.read_exact(&mut bytes)));
        assert!(matches!(read, Some(Ok(3))));
        let since = Instant::now();
        assert!(said.rest(counted.read_u8()).await.is_none());
        assert!(said.gave_way().unwrap().contains("did not come within 60 s"));
        assert!(since.elapsed() < REST_WITHIN * 11 / 10);
    }

    #[tokio::test(start_paused = true)]
    async fn little_is_not_counted_and_much_is_as_long_as_it_is_not_whole() {
        let halves = Halves::of(MOST);
        let (mut near, far) = duplex(1 << 20);
        let read = reads(Counted::new(far, &halves));
        for _ in 0..100 {
            near.write_all(&vec![b'x'; FREE_BYTES - 10_000]).await.unwrap();
            near.write_all(b"\n").await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(halves.room(), MOST);
        near.write_all(&vec![b'x'; FREE_BYTES + 2 * STEP_BYTES])
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(halves.room() < MOST);
        near.write_all(b"\n").await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        near.write_all(b"x").await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(halves.is_empty(MOST));
        drop(near);
        assert_eq!(read.await.unwrap(), None);
    }
}
