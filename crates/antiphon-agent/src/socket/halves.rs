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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    number: u64,
    began: Instant,
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
        let mut state = self.0.state();
        state.last += 1;
        Half {
            shared: self.0.clone(),
            number: state.last,
            began: Instant::now(),
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
        match state.halves.get_mut(&self.number) {
            Some(entry) => entry.bytes += more,
            None if before == 0 => {
                let entry = Entry {
                    began: self.began,
                    bytes: more,
                    told: self.told.clone(),
                };
                state.halves.insert(self.number, entry);
            }
            // It is giving way.
            None => {}
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
        if state.halves.remove(&self.number).is_none() {
            // It may have taken more since it was told.
            state.leaving = state.leaving.saturating_sub(bytes);
        }
        drop(state);
        self.shared.room.add_permits(bytes);
    }
}

/// A connection that may leave something half said, below what reads whole lines, commands or messages.
pub(super) struct Counted<S> {
    stream: S,
    halves: Halves,
    said: HalfSaid,
    half: Option<Arc<Half>>,
    /// Bytes that the half has taken.
    taken: usize,
    /// The half takes more.
    takes: Option<Takes>,
    /// The half is told to give way.
    told: Option<Takes>,
}

type Takes = Pin<Box<dyn Future<Output = Result<(), GivesWay>> + Send>>;

/// How much of a connection is half said: for its reader, which knows what is whole. A cheap handle.
#[derive(Debug, Clone, Default)]
pub(super) struct HalfSaid(Arc<(AtomicUsize, AtomicBool)>);

impl HalfSaid {
    /// Something is whole.
    pub(super) fn whole(&self) {
        self.0.0.store(0, Ordering::Relaxed);
    }

    /// Why nothing more is read, if the connection gave way.
    pub(super) fn gave_way(&self) -> Option<String> {
        let gave_way = self.0.1.load(Ordering::Relaxed);
        gave_way.then(|| {
            format!(
                "this was not whole after {} s, and others needed its room: send it again, faster",
                UNDISTURBED.as_secs()
            )
        })
    }

    fn bytes(&self) -> usize {
        self.0.0.load(Ordering::Relaxed)
    }
}

impl<S> Counted<S> {
    pub(super) fn new(stream: S, halves: &Halves) -> Self {
        Self {
            stream,
            halves: halves.clone(),
            said: HalfSaid::default(),
            half: None,
            taken: 0,
            takes: None,
            told: None,
        }
    }

    pub(super) fn said(&self) -> HalfSaid {
        self.said.clone()
    }

    /// Waits until there is room for what was read so far.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), GivesWay>> {
        let said = self.said.bytes();
        if said <= FREE_BYTES {
            // What it had is whole.
            (self.half, self.takes, self.told, self.taken) = (None, None, None, 0);
            return Poll::Ready(Ok(()));
        }
        let half = self.half.get_or_insert_with(|| Arc::new(self.halves.begin()));
        let told = self.told.get_or_insert_with(|| {
            let half = half.clone();
            Box::pin(async move { Err(half.gives_way().await) })
        });
        if told.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(GivesWay));
        }
        while said - FREE_BYTES > self.taken {
            let takes = self.takes.get_or_insert_with(|| {
                let half = half.clone();
                Box::pin(async move {
                    half.take(STEP_BYTES).await;
                    Ok(())
                })
            });
            ready!(takes.as_mut().poll(cx))?;
            self.takes = None;
            self.taken += STEP_BYTES;
        }
        Poll::Ready(Ok(()))
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
        if this.said.0.1.load(Ordering::Relaxed) {
            // The rest is thrown away.
            return Pin::new(&mut this.stream).poll_read(cx, into);
        }
        if ready!(this.poll_room(cx)).is_err() {
            (this.half, this.takes, this.told) = (None, None, None);
            this.said.0.1.store(true, Ordering::Relaxed);
            return Poll::Ready(Err(io::ErrorKind::StorageFull.into()));
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, into))?;
        let read = into.filled().len() - before;
        this.said.0.0.fetch_add(read, Ordering::Relaxed);
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
                    of.whole();
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
