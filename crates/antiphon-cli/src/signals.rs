//! SIGTERM and SIGINT. The first signal means to end in order, a second one to end at once.

use std::io;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals that ask a process to end.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// The last one, and when it came.
    last: Option<(i32, Instant)>,
}

/// Of two in so short a time one is meant: `timeout` and others send theirs to the process and to its group,
/// Ctrl-C goes to a witness and to its node, and the witness passes it on.
pub(super) const SAME_SIGNAL_WITHIN: Duration = Duration::from_millis(500);

impl Signals {
    /// Must be called on a tokio runtime. From here on the process does not end by them.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            last: None,
        })
    }

    /// The next signal's number.
    pub(super) async fn next(&mut self) -> i32 {
        loop {
            let signal = tokio::select! {
                _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
                _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            };
            let now = Instant::now();
            let is_same = |(last, at): (i32, Instant)| last == signal && now - at < SAME_SIGNAL_WITHIN;
            if !self.last.is_some_and(is_same) {
                self.last = Some((signal, now));
                return signal;
            }
        }
    }
}
