//! What is half said: bodies, lines, commands and messages that are not whole, and what all of them take
//! together.
//!
//! What is half sent takes memory, and its client may leave it so. Many clients could take all that there is.
//! So what is not whole has [`MAX_BYTES`] together, counted as it arrives: a length that was only announced
//! takes nothing from others. Of what comes by lines, RESP or a WebSocket the first [`FREE_BYTES`] are not
//! counted: they belong to the connection.
//!
//! # When there is no room
//! To refuse what comes last would suit an attacker: a few connections with stale halves would keep each
//! honest client out. To have all of them wait would, too: each may hold a half and wait for the others. So
//! something gives way that has had its time: the oldest half, if it is older than [`UNDISTURBED`]. A body is
//! answered with 503; another connection is told why, and ends. What needs the room waits until then, which
//! is not long: younger ones are whole soon, or are older.
//!
//! An honest client on a slow link may have to give way, and is told that nothing happened. An attacker that
//! wants to keep others out must send [`MAX_BYTES`] in each [`UNDISTURBED`].

use std::collections::BTreeMap;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::Connection;

/// What all halves take.
const MAX_BYTES: usize = 64 << 20;
/// How long a half does not give way.
pub(super) const UNDISTURBED: Duration = Duration::from_secs(2);
/// What a connection may leave half said without being counted.
const FREE_BYTES: usize = 64 << 10;
/// What is counted at once of more.
const STEP_BYTES: usize = 64 << 10;

/// All halves. A cheap handle.
#[derive(Debug, Clone)]
pub(super) struct Halves(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Bytes, which are given in the order in which they are asked for.
    room: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// Halves that take something and may have to give way, in the order of their beginnings.
    halves: BTreeMap<u64, Entry>,
    /// Bytes that are waited for.
    wanted: usize,
    /// Bytes of halves that are giving way.
    leaving: usize,
}

#[derive(Debug)]
struct Entry {
    began: Instant,
    bytes: usize,
    told: Arc<Notify>,
}

/// Something that is not whole. Dropped, it takes nothing.
pub(super) struct Half {
    shared: Arc<Shared>,
    /// From the first bytes on.
    number: AtomicU64,
    bytes: AtomicUsize,
    told: Arc<Notify>,
}

/// Bytes that are waited for, as long as this is there.
struct Wanted<'a>(&'a Shared, usize);

/// It is the oldest, and others need the room.
pub(super) struct GivesWay;

impl Default for Halves {
    fn default() -> Self {
        Self::of(MAX_BYTES)
    }
}

impl Halves {
    pub(super) fn of(most: usize) -> Self {
        Self(Arc::new(Shared {
            room: Semaphore::new(most),
            state: Mutex::default(),
        }))
    }

    pub(super) fn begin(&self) -> Half {
        Half {
            shared: self.0.clone(),
            number: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            told: Arc::default(),
        }
    }

    /// How many bytes more may be taken at once.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.0.room.available_permits()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self, most: usize) -> bool {
        let state = self.0.state();
        let nothing = (state.wanted, state.leaving, state.halves.len()) == (0, 0, 0);
        nothing && self.room() == most
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Has the oldest halves give way that have had their time, as far as others want their room. Gives when
    /// to look again.
    fn clear(&mut self) -> Instant {
        let now = Instant::now();
        while self.wanted > self.leaving
            && let Some(oldest) = self.halves.first_entry()
        {
            let until = oldest.get().began + UNDISTURBED;
            if until > now {
                return until;
            }
            let oldest = oldest.remove();
            self.leaving += oldest.bytes;
            oldest.told.notify_one();
        }
        now + UNDISTURBED
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.state().wanted -= self.1;
    }
}

impl Half {
    /// Waits until there is room for so much more, and takes it.
    pub(super) async fn take(&self, more: usize) {
        let shared = &*self.shared;
        let mut room = pin!(shared.room.acquire_many(more as u32));
        let wanted = Wanted(shared, more);
        shared.state().wanted += more;
        let room = loop {
            tokio::select! {
                biased;
                room = &mut room => break room,
                // Looked at again when something has changed that is not seen here.
                () = async {
                    let until = shared.state().clear();
                    sleep_until(until).await;
                } => {}
            }
        };
        drop(wanted);
        let Ok(room) = room else {
            // Never closed.
            return;
        };
        room.forget();
        let before = self.bytes.fetch_add(more, Ordering::Relaxed);
        let mut state = shared.state();
        match state.halves.get_mut(&self.number.load(Ordering::Relaxed)) {
            Some(entry) => entry.bytes += more,
            // From now on it holds something.
            None if before == 0 => {
                state.last += 1;
                let number = state.last;
                self.number.store(number, Ordering::Relaxed);
                let entry = Entry {
                    began: Instant::now(),
                    bytes: more,
                    told: self.told.clone(),
                };
                state.halves.insert(number, entry);
            }
            // It is giving way, with this.
            None => state.leaving += more,
        }
    }

    pub(super) async fn gives_way(&self) -> GivesWay {
        self.told.notified().await;
        GivesWay
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        let mut state = self.shared.state();
        if state.halves.remove(self.number.get_mut()).is_none() {
            // It was told to give way, or had nothing.
            state.leaving -= bytes;
        }
        drop(state);
        self.shared.room.add_permits(bytes);
    }
}

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
    half: Option<Counting>,
    /// It gave way, or is over: nothing is counted, and what comes is thrown away.
    over: bool,
    gave_way: bool,
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

    /// So many bytes were no part of what is not whole.
    pub(super) fn other(&self, bytes: usize) {
        let mut inside = self.inside();
        inside.bytes = inside.bytes.saturating_sub(bytes);
    }

    /// What comes from now on is thrown away.
    pub(super) fn end(&self) {
        let mut inside = self.inside();
        (inside.over, inside.half) = (true, None);
    }

    /// Why nothing more is read, if the connection gave way.
    pub(super) fn gave_way(&self) -> Option<String> {
        self.inside().gave_way.then(|| {
            format!(
                "this was not whole after {} s, and others needed its room: send it again, faster",
                UNDISTURBED.as_secs()
            )
        })
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
            (inside.half, inside.over, inside.gave_way) = (None, true, true);
        }
        room
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
        this.said.inside().bytes += into.filled().len() - before;
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
