//! What is half said: bodies, lines, commands and messages that are not whole, and what all of them take
//! together.
//!
//! What is half sent takes memory, and its client may leave it so. Many clients could take all that there is.
//! So what is not whole has [`MAX_BYTES`] together, counted as it arrives: a length that was only announced
//! takes nothing from others. [`counted`](super::counted) counts what comes by lines, RESP or a WebSocket,
//! `http/body.rs` bodies.
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
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until};

/// What all halves take.
const MAX_BYTES: usize = 64 << 20;
/// How long a half does not give way.
pub(super) const UNDISTURBED: Duration = Duration::from_secs(2);

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
