//! Events for readers. Each is kept until all readers that were there have read it. They are bounded in
//! number and in bytes: beyond that the oldest go first, and a reader that lags is told how many it missed.

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// What waits for a reader: so many, and so many bytes together. One is kept whatever its size.
const MAX_WAITING: usize = 1024;
const MAX_BYTES: usize = 16 << 20;

/// The side that tells. Dropped, nothing follows.
pub(super) struct News<E>(Arc<Log<E>>);

/// A reader of what is told from its beginning on.
pub(super) struct Reader<E> {
    log: Arc<Log<E>>,
    /// The number of what it reads next.
    next: u64,
}

/// What a reader reads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read<E> {
    Event(E),
    /// So many were dropped.
    Missed(u64),
}

struct Log<E> {
    inside: Mutex<Inside<E>>,
    told: Notify,
}

struct Inside<E> {
    /// The number of the oldest entry.
    first: u64,
    entries: VecDeque<Entry<E>>,
    bytes: usize,
    readers: usize,
    ended: bool,
}

struct Entry<E> {
    event: E,
    bytes: usize,
    /// By so many readers.
    unread: usize,
}

impl<E> News<E> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Log::new(false)))
    }

    /// Tells all readers, of an event that takes so many bytes.
    pub(super) fn tell(&self, event: E, bytes: usize) {
        let mut inside = self.0.inside();
        let unread = inside.readers;
        if unread == 0 {
            return;
        }
        inside.bytes = inside.bytes.saturating_add(bytes);
        inside.entries.push_back(Entry { event, bytes, unread });
        while inside.entries.len() > MAX_WAITING || inside.bytes > MAX_BYTES && inside.entries.len() > 1 {
            inside.drop_oldest();
        }
        drop(inside);
        self.0.told.notify_waiters();
    }

    pub(super) fn reader(&self) -> Reader<E> {
        let mut inside = self.0.inside();
        inside.readers += 1;
        Reader {
            next: inside.end(),
            log: self.0.clone(),
        }
    }
}

impl<E> Drop for News<E> {
    fn drop(&mut self) {
        self.0.inside().ended = true;
        self.0.told.notify_waiters();
    }
}

impl<E> Reader<E> {
    /// Of what has ended.
    pub(super) fn of_nothing() -> Self {
        Self {
            log: Arc::new(Log::new(true)),
            next: 0,
        }
    }

    fn try_next(&mut self) -> Option<Option<Read<E>>>
    where
        E: Clone,
    {
        let mut inside = self.log.inside();
        if self.next < inside.first {
            let missed = inside.first - self.next;
            self.next = inside.first;
            return Some(Some(Read::Missed(missed)));
        }
        let at = (self.next - inside.first) as usize;
        let Some(entry) = inside.entries.get_mut(at) else {
            return inside.ended.then_some(None);
        };
        entry.unread -= 1;
        let event = entry.event.clone();
        self.next += 1;
        inside.forget_read();
        Some(Some(Read::Event(event)))
    }

    /// The next, or none after the last.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Option<Read<E>>
    where
        E: Clone,
    {
        loop {
            if let Some(next) = self.try_next() {
                return next;
            }
            let log = self.log.clone();
            let mut told = pin!(log.told.notified());
            // From here on nothing is missed.
            told.as_mut().enable();
            if let Some(next) = self.try_next() {
                return next;
            }
            told.await;
        }
    }
}

impl<E> Drop for Reader<E> {
    fn drop(&mut self) {
        let mut inside = self.log.inside();
        inside.readers = inside.readers.saturating_sub(1);
        let read = self.next.saturating_sub(inside.first) as usize;
        inside
            .entries
            .iter_mut()
            .skip(read)
            .for_each(|entry| entry.unread -= 1);
        inside.forget_read();
    }
}

impl<E> fmt::Debug for Reader<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl<E> Log<E> {
    fn new(ended: bool) -> Self {
        let inside = Mutex::new(Inside {
            first: 0,
            entries: VecDeque::new(),
            bytes: 0,
            readers: 0,
            ended,
        });
        Self {
            inside,
            told: Notify::new(),
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside<E>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E> Inside<E> {
    /// The number of what is told next.
    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn drop_oldest(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.first += 1;
            self.bytes = self.bytes.saturating_sub(entry.bytes);
        }
    }

    /// A reader has read all before its next event, so the events that all have read are at the front.
    fn forget_read(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.unread == 0) {
            self.drop_oldest();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_readers_read_all_and_what_all_have_read_is_forgotten() {
        let news = News::new();
        news.tell(0, 8);
        let (mut early, slow) = (news.reader(), news.reader());
        news.tell(1, 8);
        let mut late = news.reader();
        news.tell(2, 8);
        for event in [1, 2] {
            assert_eq!(early.next().await, Some(Read::Event(event)));
        }
        assert_eq!(late.next().await, Some(Read::Event(2)));
        assert_eq!(news.0.inside().entries.len(), 2, "one has not read them");
        drop(slow);
        assert_eq!(news.0.inside().entries.len(), 0);
        assert_eq!(news.0.inside().bytes, 0);
        let waits = tokio::spawn(async move { (early.next().await, early.next().await) });
        tokio::task::yield_now().await;
        news.tell(3, 8);
        drop(news);
        assert_eq!(waits.await.unwrap(), (Some(Read::Event(3)), None));
        assert_eq!(late.next().await, Some(Read::Event(3)));
        assert_eq!(late.next().await, None);
        assert_eq!(Reader::<u8>::of_nothing().next().await, None);
    }

    #[tokio::test]
    async fn what_waits_is_bounded_in_number_and_in_bytes() {
        let news = News::new();
        let mut slow = news.reader();
        for event in 0..2_000 {
            news.tell(event, 8);
        }
        assert_eq!(slow.next().await, Some(Read::Missed(2_000 - MAX_WAITING as u64)));
        assert_eq!(slow.next().await, Some(Read::Event(2_000 - MAX_WAITING)));
        for event in 0..100 {
            news.tell(event, 1 << 20);
            assert!(news.0.inside().bytes <= MAX_BYTES);
        }
        news.tell(100, MAX_BYTES + 1);
        assert!(matches!(slow.next().await, Some(Read::Missed(_))));
        assert_eq!(
            slow.next().await,
            Some(Read::Event(100)),
            "one is kept whatever its size"
        );
    }
}
