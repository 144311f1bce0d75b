//! The way of events to a program that reads lines. They become text where they happen, and the writer takes
//! many lines at a time.
//!
//! A line costs its bytes and nothing else: no allocation, and no wake of a task while the writer is busy.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon_api::Event;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Bytes of what a program is told that wait for the writer.
pub(crate) const MAX_BYTES: usize = 256 << 10;
/// The most bytes of a buffer that are kept when there was nothing to say for [`KEPT_FOR`].
const KEPT_BYTES: usize = 4 << 10;
/// With a shorter time, the buffers of a program that is told much now and then would be made anew each time.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The end that text goes into. Lines of several tasks do not mix.
#[derive(Debug, Clone)]
pub(crate) struct Pipe(Arc<End>);

/// The last one to go ends the text.
#[derive(Debug)]
struct End(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Bytes that wait to be taken; the last line may go beyond.
    most: usize,
    state: Mutex<State>,
    arrived: Notify,
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    text: Vec<u8>,
    /// Nothing comes any more.
    ended: bool,
    /// Nobody reads any more.
    closed: bool,
}

/// The end that text is taken from.
#[derive(Debug)]
pub(crate) struct Text {
    shared: Arc<Shared>,
    taken: Vec<u8>,
    written: usize,
}

/// Both ends, between which so many bytes wait.
pub(crate) fn pipe(most: usize) -> (Pipe, Text) {
    let shared = Arc::new(Shared {
        most,
        state: Mutex::default(),
        arrived: Notify::new(),
        room: Notify::new(),
    });
    let text = Text {
        shared: shared.clone(),
        taken: Vec::new(),
        written: 0,
    };
    (Pipe(Arc::new(End(shared))), text)
}

impl Pipe {
    /// Appends a line, waiting while much waits already.
    pub(crate) async fn print(&self, event: &Event) {
        let line = |text: &mut Vec<u8>| {
            event.write_line(text);
            false
        };
        self.fill(line).await;
    }

    /// Appends what `next` writes, again and again as long as it says that there is more, waiting while much
    /// waits already.
    pub(crate) async fn fill(&self, mut next: impl FnMut(&mut Vec<u8>) -> bool) {
        let shared = &self.0.0;
        while !shared.try_fill(&mut next) {
            let mut room = pin!(shared.room.notified());
            // From here on no room is missed.
            room.as_mut().enable();
            if shared.try_fill(&mut next) {
                return;
            }
            room.await;
        }
    }
}

impl Shared {
    /// Whether all is written, or the reader is gone.
    fn try_fill(&self, next: &mut impl FnMut(&mut Vec<u8>) -> bool) -> bool {
        let mut state = self.state();
        let (was_empty, mut more) = (state.text.is_empty(), true);
        while more && !state.closed && state.text.len() < self.most {
            more = next(&mut state.text);
        }
        let (closed, is_empty) = (state.closed, state.text.is_empty());
        drop(state);
        if was_empty && !is_empty {
            self.arrived.notify_one();
        }
        closed || !more
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.arrived.notify_one();
    }
}

impl Text {
    /// Waits until there is something to write. False: it has ended.
    ///
    /// # Cancel safety
    /// No byte is lost if the future is dropped.
    pub(crate) async fn ready(&mut self) -> bool {
        loop {
            match self.take() {
                Some(has_text) => return has_text,
                None if self.taken.capacity() > KEPT_BYTES => {
                    if timeout(KEPT_FOR, self.shared.arrived.notified()).await.is_err() {
                        self.shrink();
                    }
                }
                None => self.shared.arrived.notified().await,
            }
        }
    }

    /// Gives memory back: thousands of quiet programs must not keep the memory for all that they were told
    /// once.
    fn shrink(&mut self) {
        self.taken.shrink_to(KEPT_BYTES);
        self.shared.state().text.shrink_to(KEPT_BYTES);
    }

    /// True: there is something to write. False: nothing more comes. None: that is not known yet.
    fn take(&mut self) -> Option<bool> {
        if !self.left().is_empty() {
            return Some(true);
        }
        self.written = 0;
        self.taken.clear();
        let mut state = self.shared.state();
        if state.text.is_empty() {
            return state.ended.then_some(false);
        }
        std::mem::swap(&mut self.taken, &mut state.text);
        drop(state);
        self.shared.room.notify_waiters();
        Some(true)
    }

    /// What is to be written next.
    pub(crate) fn left(&self) -> &[u8] {
        &self.taken[self.written.min(self.taken.len())..]
    }

    /// So many bytes of it were written.
    pub(crate) fn advance(&mut self, written: usize) {
        self.written += written;
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.closed = true;
        state.text = Vec::new();
        drop(state);
        self.shared.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn rest(mut text: Text) -> Vec<u8> {
        let mut all = Vec::new();
        while text.ready().await {
            // Byte by byte, as a socket that is almost full.
            let byte = text.left()[0];
            all.push(byte);
            text.advance(1);
        }
        all
    }

    #[tokio::test]
    async fn lines_come_in_their_order_and_the_end_after_the_last() {
        let (pipe, text) = pipe(MAX_BYTES);
        pipe.print(&Event::Overrun).await;
        let other = pipe.clone();
        other.print(&Event::Left).await;
        drop((pipe, other));
        let all = String::from_utf8(rest(text).await).unwrap();
        assert_eq!(all, "{\"event\":\"overrun\"}\n{\"event\":\"left\"}\n");
    }

    #[tokio::test]
    async fn a_writer_waits_while_much_waits_and_no_longer_when_nobody_reads() {
        let (pipe, mut text) = pipe(MAX_BYTES);
        let block = |text: &mut Vec<u8>| {
            text.extend_from_slice(&[b'x'; MAX_BYTES]);
            false
        };
        pipe.fill(block).await;
        let wait = Duration::from_millis(20);
        assert!(timeout(wait, pipe.fill(block)).await.is_err());
        let writes = tokio::spawn({
            let pipe = pipe.clone();
            async move { pipe.fill(block).await }
        });
        assert!(text.ready().await);
        writes.await.unwrap();
        assert_eq!(text.left().len(), MAX_BYTES);
        let waits = tokio::spawn(async move { pipe.fill(block).await });
        drop(text);
        waits.await.unwrap();
    }

    #[tokio::test]
    async fn what_was_not_written_when_a_write_was_given_up_comes_next() {
        let (pipe, mut text) = pipe(MAX_BYTES);
        pipe.print(&Event::Left).await;
        assert!(text.ready().await);
        text.advance(3);
        drop(pipe);
        assert_eq!(rest(text).await, b"vent\":\"left\"}\n");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn no_line_and_no_wake_up_is_lost_between_threads() {
        const LINES: usize = 2000;
        let (pipe, text) = pipe(MAX_BYTES);
        let writers = ["a", "b", "c"].map(|writer| {
            let pipe = pipe.clone();
            tokio::spawn(async move {
                for number in 0..LINES {
                    let line = |text: &mut Vec<u8>| {
                        // Long ones, so that they wait for room.
                        text.extend_from_slice(format!("{writer} {number} {}\n", "x".repeat(500)).as_bytes());
                        false
                    };
                    pipe.fill(line).await;
                    if number % 100 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        });
        drop(pipe);
        let read = tokio::spawn(async move {
            let (mut text, mut all) = (text, Vec::new());
            while text.ready().await {
                let some = text.left().len().min(7000);
                all.extend_from_slice(&text.left()[..some]);
                text.advance(some);
            }
            all
        });
        let all = timeout(Duration::from_secs(60), read).await.unwrap().unwrap();
        for writer in writers {
            writer.await.unwrap();
        }
        let all = String::from_utf8(all).unwrap();
        for writer in ["a", "b", "c"] {
            let of_it = all.lines().filter(|line| line.starts_with(writer));
            let numbers: Vec<usize> = of_it
                .map(|line| line.split(' ').nth(1).unwrap().parse().unwrap())
                .collect();
            assert_eq!(numbers, (0..LINES).collect::<Vec<_>>());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_reader_keeps_no_large_buffers() {
        let (pipe, mut text) = pipe(MAX_BYTES);
        let block = |text: &mut Vec<u8>| {
            text.extend_from_slice(&[b'x'; MAX_BYTES]);
            false
        };
        pipe.fill(block).await;
        assert!(text.ready().await);
        text.advance(MAX_BYTES);
        assert!(timeout(KEPT_FOR / 2, text.ready()).await.is_err());
        assert!(text.taken.capacity() >= MAX_BYTES);
        assert!(timeout(KEPT_FOR * 2, text.ready()).await.is_err());
        assert!(text.taken.capacity() <= KEPT_BYTES);
    }
}
