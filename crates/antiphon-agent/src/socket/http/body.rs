//! The body of a request, read whole, and what all bodies take together.
//!
//! A body that is half sent takes memory, and its client may leave it so. Many clients could take all that
//! there is. So bodies that are not whole have [`MAX_BYTES`] together, counted as they arrive: a length that
//! was only announced takes nothing from others.
//!
//! # When there is no room
//! To refuse the body that comes last would suit an attacker: a few connections with stale halves would keep
//! each honest client out. To have all of them wait would, too: each may hold a half and wait for the others.
//! So a body gives way that has had its time: the oldest one, if it is older than [`UNDISTURBED`]. It is
//! answered with 503. The body that needs the room waits until then, which is not long: younger ones are
//! whole soon, or are older.
//!
//! An honest client on a slow link may have to give way, and is told that nothing happened. An attacker that
//! wants to keep others out must send [`MAX_BYTES`] in each [`UNDISTURBED`].

use std::collections::BTreeMap;
use std::fmt::Display;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use super::problem::Problem;
use super::{BODY_WITHIN, MAX_BODY_BYTES};

/// What bodies that are not whole take, of all connections.
const MAX_BYTES: usize = 64 << 20;
/// How long a body does not give way.
const UNDISTURBED: Duration = Duration::from_secs(2);
/// The least that a body takes.
const LEAST_BYTES: usize = 1 << 10;

/// The body of a request, of which nothing was read.
pub(super) struct Unread {
    body: Incoming,
    bodies: Bodies,
}

/// All bodies that are not whole. A cheap handle.
#[derive(Debug, Clone)]
pub(super) struct Bodies(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Bytes, which are given in the order in which they are asked for.
    room: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// Bodies that take something and may have to give way, in the order of their beginnings.
    halves: BTreeMap<u64, Entry>,
    /// Bytes that are waited for.
    wanted: usize,
    /// Bytes of bodies that are giving way.
    leaving: usize,
}

#[derive(Debug)]
struct Entry {
    began: Instant,
    bytes: usize,
    told: Arc<Notify>,
}

/// A body that is not whole. Dropped, it takes nothing.
struct Half {
    shared: Arc<Shared>,
    number: u64,
    began: Instant,
    bytes: AtomicUsize,
    told: Arc<Notify>,
}

/// Bytes that are waited for, as long as this is there.
struct Wanted<'a>(&'a Shared, usize);

/// It is the oldest, and others need the room.
struct GivesWay;

impl Unread {
    pub(super) fn new(body: Incoming, bodies: &Bodies) -> Self {
        let bodies = bodies.clone();
        Self { body, bodies }
    }

    /// The whole body.
    pub(super) async fn read(self) -> Result<Bytes, Problem> {
        self.bodies.read(self.body).await
    }
}

impl Bodies {
    pub(super) fn new() -> Self {
        Self::of(MAX_BYTES)
    }

    fn of(most: usize) -> Self {
        Self(Arc::new(Shared {
            room: Semaphore::new(most),
            state: Mutex::default(),
        }))
    }

    async fn read(&self, body: impl Body<Data = Bytes, Error: Display>) -> Result<Bytes, Problem> {
        // Then nothing of it is read.
        if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
            return Err(too_large());
        }
        let half = self.begin();
        let read = async {
            tokio::select! {
                whole = half.collect(body) => whole,
                GivesWay = half.gives_way() => Err(gave_way()),
            }
        };
        timeout(BODY_WITHIN, read).await.unwrap_or_else(|_| {
            let reason = format!("the body was not whole within {} s", BODY_WITHIN.as_secs());
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", reason))
        })
    }

    fn begin(&self) -> Half {
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
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Has the oldest bodies give way that have had their time, as far as others want their room. Gives when
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
    /// The body as one piece: many short ones would take more than they have.
    async fn collect(&self, body: impl Body<Data = Bytes, Error: Display>) -> Result<Bytes, Problem> {
        let announced = body.size_hint().exact();
        let longest = announced.map_or(MAX_BODY_BYTES, |length| length as usize);
        let (mut body, mut whole) = (pin!(body), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|error| Problem::refused(format!("the body cannot be read: {error}")))?;
            // Trailers say nothing here.
            let Ok(data) = frame.into_data() else { continue };
            let length = whole.len() + data.len();
            if length > MAX_BODY_BYTES {
                return Err(too_large());
            }
            let before = whole.capacity();
            if length > before {
                let after = (2 * before).max(LEAST_BYTES).min(longest).max(length);
                self.take(after - before).await;
                whole.reserve_exact(after - whole.len());
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.into())
    }

    /// Waits until there is room for so much more, and takes it.
    async fn take(&self, more: usize) {
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

    async fn gives_way(&self) -> GivesWay {
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

fn too_large() -> Problem {
    let reason = format!("a body has at most {MAX_BODY_BYTES} bytes: send it in parts");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", reason)
}

fn gave_way() -> Problem {
    Problem::unavailable(format!(
        "the body was not whole after {} s, and others needed its room: send it again, faster",
        UNDISTURBED.as_secs()
    ))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A body that is being read, and where its bytes come from: it is whole when that is dropped.
    struct Sent(mpsc::UnboundedSender<usize>, JoinHandle<Result<Bytes, Problem>>);

    impl Sent {
        async fn begin(bodies: &Bodies, bytes: usize) -> Self {
            let (sender, pieces) = mpsc::unbounded_channel::<usize>();
            let frames = stream::unfold(pieces, async |mut pieces| {
                let frame = Frame::data(Bytes::from(vec![b'x'; pieces.recv().await?]));
                Some((Ok::<_, Infallible>(frame), pieces))
            });
            let bodies = bodies.clone();
            let read = tokio::spawn(async move { bodies.read(StreamBody::new(frames)).await });
            let sent = Self(sender, read);
            sent.more(bytes).await;
            sent
        }

        async fn more(&self, bytes: usize) {
            let _ = self.0.send(bytes);
            // Less than any time here.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }

        /// How many bytes it had, or the status.
        async fn end(self) -> Result<usize, u16> {
            drop(self.0);
            let read = self.1.await.unwrap();
            read.map(|whole| whole.len())
                .map_err(|problem| problem.status.as_u16())
        }
    }

    fn is_empty(bodies: &Bodies, most: usize) -> bool {
        let state = bodies.0.state();
        let nothing = (state.wanted, state.leaving, state.halves.len()) == (0, 0, 0);
        nothing && bodies.0.room.available_permits() == most
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_slow_gives_way_to_one_that_needs_the_room() {
        const MOST: usize = 300_000;
        let bodies = Bodies::of(MOST);
        let mut slow = Vec::new();
        for _ in 0..3 {
            slow.push(Sent::begin(&bodies, 100_000).await);
        }
        // They have had their time, and nobody needs their room.
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(slow.iter().filter(|sent| sent.1.is_finished()).count(), 0);
        // Half of one is enough, so one gives way: the oldest.
        let honest = Sent::begin(&bodies, 50_000).await;
        honest.more(20_000).await;
        assert_eq!(honest.end().await, Ok(70_000));
        let mut slow = slow.into_iter();
        assert_eq!(slow.next().unwrap().end().await, Err(503));
        for other in slow {
            other.more(1000).await;
            assert_eq!(other.end().await, Ok(101_000));
        }
        assert!(is_empty(&bodies, MOST));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_young_does_not_give_way_and_the_other_waits() {
        const MOST: usize = 300_000;
        let bodies = Bodies::of(MOST);
        let first = Sent::begin(&bodies, 200_000).await;
        tokio::time::sleep(SECOND / 2).await;
        let second = Sent::begin(&bodies, 100_000).await;
        let begun = Instant::now();
        let third = Sent::begin(&bodies, 50_000).await;
        tokio::time::sleep(SECOND).await;
        assert!(!first.1.is_finished() && !second.1.is_finished());
        // The first is whole in its time: it made the room.
        assert_eq!(first.end().await, Ok(200_000));
        assert_eq!(third.end().await, Ok(50_000));
        assert!(begun.elapsed() < UNDISTURBED);
        assert_eq!(second.end().await, Ok(100_000));
        assert!(is_empty(&bodies, MOST));
    }

    #[tokio::test(start_paused = true)]
    async fn many_that_want_more_than_there_is_are_all_answered() {
        const MOST: usize = 2 << 20;
        let bodies = Bodies::of(MOST);
        let begun = Instant::now();
        let mut all = Vec::new();
        for _ in 0..20 {
            let sent = Sent::begin(&bodies, 400_000).await;
            sent.more(400_000).await;
            all.push(sent);
        }
        let (mut whole, mut gave_way) = (0, 0);
        for sent in all {
            match sent.end().await {
                Ok(length) => whole += usize::from(length == 800_000),
                Err(status) => gave_way += usize::from(status == 503),
            }
        }
        assert_eq!(whole + gave_way, 20);
        assert!(whole > 0 && begun.elapsed() < BODY_WITHIN);
        assert!(is_empty(&bodies, MOST));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_body_takes_is_about_its_length_however_it_is_cut() {
        const MOST: usize = 1 << 20;
        let bodies = Bodies::of(MOST);
        let sent = Sent::begin(&bodies, 1).await;
        for _ in 1..10_000 {
            let _ = sent.0.send(1);
        }
        sent.more(1).await;
        let taken = MOST - bodies.0.room.available_permits();
        assert!((10_000..=2 * 10_002).contains(&taken), "{taken}");
        assert_eq!(sent.end().await, Ok(10_001));
        // One that is silent ends in time, and one that is too long at once.
        let silent = Sent::begin(&bodies, 1).await;
        tokio::time::sleep(BODY_WITHIN).await;
        assert!(is_empty(&bodies, MOST));
        assert_eq!(silent.end().await, Err(408));
        assert_eq!(
            Sent::begin(&bodies, MAX_BODY_BYTES + 1).await.end().await,
            Err(413)
        );
        assert_eq!(
            Sent::begin(&bodies, MAX_BODY_BYTES).await.end().await,
            Ok(MAX_BODY_BYTES)
        );
    }
}
