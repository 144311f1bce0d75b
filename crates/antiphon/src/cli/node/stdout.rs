//! The writer of stdout: a thread of its own behind a bounded queue.
//!
//! Whoever has a line waits while the queue is full. A slow reader so slows down the reading of events, which the library
//! turns into back-pressure on the senders; the protocol itself never waits for stdout.

use std::io::{self, Write};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Lines that wait to be written. With payloads of at most 60,000 bytes, a few ten MiB at worst.
const MAX_WAITING: usize = 256;
/// How often a full queue is tried again.
const RETRY: Duration = Duration::from_millis(2);

/// Where lines go. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Stdout {
    lines: SyncSender<String>,
    closed: watch::Receiver<bool>,
}

/// The writing thread.
#[derive(Debug)]
pub(crate) struct Writer {
    thread: JoinHandle<()>,
}

/// Starts the writing thread.
pub(crate) fn start(mut target: impl Write + Send + 'static) -> (Stdout, Writer) {
    let (lines, waiting) = mpsc::sync_channel::<String>(MAX_WAITING);
    let (close, closed) = watch::channel(false);
    let thread = std::thread::spawn(move || {
        if write_all(&mut target, &waiting).is_err() {
            // The reader has gone away. Whoever watches `closed` ends the node.
            close.send_replace(true);
            // Nobody is made to wait for a writer that cannot write.
            while waiting.recv().is_ok() {}
        }
    });
    (Stdout { lines, closed }, Writer { thread })
}

fn write_all(target: &mut impl Write, waiting: &mpsc::Receiver<String>) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Ok(line) = waiting.recv() {
        buffer.clear();
        let batch = std::iter::once(line).chain(std::iter::from_fn(|| waiting.try_recv().ok()));
        for line in batch.take(MAX_WAITING) {
            buffer.extend_from_slice(line.as_bytes());
            buffer.push(b'\n');
        }
        target.write_all(&buffer)?;
        target.flush()?;
    }
    Ok(())
}

impl Stdout {
    /// Writes a line, waiting for room.
    pub(crate) async fn print(&self, line: String) {
        let mut line = line;
        // Retrying beats a queue that both sides can wait on asynchronously: a full queue means that the reader of
        // stdout is behind by hundreds of lines, and two milliseconds more do not matter to it.
        while let Err(TrySendError::Full(back)) = self.lines.try_send(line) {
            line = back;
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Returns when nobody reads stdout any more.
    pub(crate) async fn closed(&self) {
        let mut closed = self.closed.clone();
        if closed.wait_for(|closed| *closed).await.is_err() {
            // The thread ended in order, after the last line.
            std::future::pending::<()>().await;
        }
    }

    /// Whether nobody reads stdout any more.
    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }
}

impl Writer {
    /// Waits until everything is written, but not for ever: a reader that has stopped reading must not keep a node that
    /// has left from ending. All [`Stdout`]s must be dropped before.
    pub(crate) fn finish(self, within: Duration) {
        let deadline = Instant::now() + within;
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(RETRY);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn lines_are_written_in_order_and_all_before_the_end() {
        let target = Shared::default();
        let (stdout, writer) = start(target.clone());
        for number in 0..1000 {
            stdout.print(number.to_string()).await;
        }
        drop(stdout);
        writer.finish(Duration::from_secs(10));
        let text = String::from_utf8(target.0.lock().unwrap().clone()).unwrap();
        assert!(text.lines().map(|line| line.parse::<u32>().unwrap()).eq(0..1000));
    }

    #[tokio::test]
    async fn a_reader_that_went_away_is_noticed_and_makes_nobody_wait() {
        let (stdout, writer) = start(Broken);
        for _ in 0..10 * MAX_WAITING {
            stdout.print(String::new()).await;
        }
        stdout.closed().await;
        assert!(stdout.is_closed());
        drop(stdout);
        writer.finish(Duration::from_secs(10));
    }
}
