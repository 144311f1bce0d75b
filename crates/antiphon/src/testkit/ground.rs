//! What all machines of a world stand on: one clock, one network, one source of chance, one log.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use antiphon_net::memory::Weather;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Lines of the log that are kept.
pub const MAX_LOG: usize = 10_000;

/// What a task panicked with.
type Panic = Box<dyn Any + Send>;

#[derive(Debug)]
pub(super) struct Ground {
    pub(super) seed: u64,
    pub(super) weather: Weather,
    began: OnceLock<Instant>,
    log: Mutex<VecDeque<String>>,
    panic: Mutex<Option<Panic>>,
    panicked: Notify,
}

impl Ground {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            weather: Weather::new(seed),
            began: OnceLock::new(),
            log: Mutex::default(),
            panic: Mutex::default(),
            panicked: Notify::new(),
        }
    }

    /// Time begins, on the runtime that this is called on.
    pub(super) fn begin(&self) {
        self.began.get_or_init(Instant::now);
    }

    /// Since the beginning.
    pub(super) fn now(&self) -> Duration {
        self.began.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    pub(super) fn log(&self, line: &str) {
        let now = self.now();
        let mut log = lock(&self.log);
        if log.len() >= MAX_LOG {
            log.pop_front();
        }
        log.push_back(format!(
            "{:4}.{:03} s  {line}",
            now.as_secs(),
            now.subsec_millis()
        ));
    }

    pub(super) fn lines(&self) -> Vec<String> {
        lock(&self.log).iter().cloned().collect()
    }

    /// A task has panicked: the run ends with the first such panic.
    pub(super) fn panic(&self, panic: Panic) {
        lock(&self.panic).get_or_insert(panic);
        self.panicked.notify_one();
    }

    pub(super) async fn panicked(&self) -> Panic {
        loop {
            if let Some(panic) = lock(&self.panic).take() {
                return panic;
            }
            self.panicked.notified().await;
        }
    }
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
