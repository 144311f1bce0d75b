//! The writer of stdout: a thread of its own behind a bounded queue.
//!
//! A task that has a line waits while the queue is full. So a slow reader slows down the reading of events,
//! which the library turns into back-pressure on the senders. The protocol itself never waits for stdout, nor
//! does the task that waits for a signal.
//!
//! Stdout may be non-blocking: that is a mode of the pipe or the terminal, which other processes have open,
//! too. Then the thread waits for room by itself.
//!
//! The thread notices only by writing that the reader has gone, or that nothing can be written for another
//! reason. Where nothing may be written for long ([`start_watched`]), a second thread waits for the end of
//! the reader: the kernel tells of a pipe without a reader, and of a terminal that was hung up, without a
//! write.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::watch;

/// Lines that wait to be written. With payloads of at most 60,000 bytes, a few ten MiB at worst.
const MAX_WAITING: usize = 256;
/// How often a full queue is tried again.
const RETRY: Duration = Duration::from_millis(2);
/// How long a reader may take for the last lines of a process that was told to end.
pub const LAST_LINES_WITHIN: Duration = Duration::from_secs(2);

/// Where lines go. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Stdout {
    lines: SyncSender<String>,
    closed: watch::Receiver<bool>,
}

/// The writing thread.
#[derive(Debug)]
pub struct Writer {
    thread: JoinHandle<()>,
    closed: watch::Receiver<bool>,
}

/// Starts the writing thread.
pub fn start(target: impl Write + Send + 'static) -> (Stdout, Writer) {
    // What a target is that may be no file, only another attempt tells.
    let wait = || {
        std::thread::sleep(RETRY);
        Ok(())
    };
    start_with(target, wait, Arc::new(watch::Sender::new(false)))
}

/// The same, and notices that the reader has gone also while there is nothing to write. Its second thread
/// ends with the reader or with the process.
///
/// # Errors
/// What the system says: too many open files.
pub fn start_watched(target: impl Write + AsFd + Send + 'static) -> io::Result<(Stdout, Writer)> {
    let close = Arc::new(watch::Sender::new(false));
    let (end, told) = (Arc::new(target.as_fd().try_clone_to_owned()?), close.clone());
    let room = end.clone();
    std::thread::spawn(move || {
        if until_unread(&end).is_ok() {
            told.send_replace(true);
        }
    });
    Ok(start_with(target, move || until_writable(&room), close))
}

fn start_with(
    target: impl Write + Send + 'static,
    wait: impl Fn() -> io::Result<()> + Send + 'static,
    close: Arc<watch::Sender<bool>>,
) -> (Stdout, Writer) {
    let (lines, waiting) = mpsc::sync_channel::<String>(MAX_WAITING);
    let closed = close.subscribe();
    let thread = std::thread::spawn(move || {
        let mut target = Waiting { target, wait };
        if let Err(error) = write_all(&mut target, &waiting) {
            // A reader that has gone away knows of it. A full disk must be told: somebody will look for the
            // node that has left.
            if error.kind() != io::ErrorKind::BrokenPipe {
                let _ = writeln!(io::stderr(), "antiphon: standard output: {error}");
            }
            // The task that watches `closed` ends the node.
            close.send_replace(true);
            // The queue is emptied, so that no task waits for a writer that cannot write.
            while waiting.recv().is_ok() {}
        }
    });
    let writer = Writer {
        thread,
        closed: closed.clone(),
    };
    (Stdout { lines, closed }, writer)
}

/// Returns when nobody can read what is written there. A file can always be read.
fn until_unread(end: &OwnedFd) -> rustix::io::Result<()> {
    loop {
        // Errors and hang-ups are told of whether they are asked for or not.
        let mut ends = [PollFd::new(end, PollFlags::empty())];
        match poll(&mut ends, None) {
            Ok(_) if !ends[0].revents().is_empty() => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns when there is room to write, or nobody reads any more.
fn until_writable(end: &OwnedFd) -> io::Result<()> {
    match poll(&mut [PollFd::new(end, PollFlags::OUT)], None) {
        // The next attempt to write tells what it is.
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A target that waits where there is no room yet. Each attempt says how much it has taken, so that nothing
/// is written twice.
struct Waiting<T, W> {
    target: T,
    wait: W,
}

impl<T, W: Fn() -> io::Result<()>> Waiting<T, W> {
    fn until_taken<R>(&mut self, mut attempt: impl FnMut(&mut T) -> io::Result<R>) -> io::Result<R> {
        loop {
            match attempt(&mut self.target) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (self.wait)()?,
                done => return done,
            }
        }
    }
}

impl<T: Write, W: Fn() -> io::Result<()>> Write for Waiting<T, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_taken(|target| target.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.until_taken(Write::flush)
    }
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
    pub async fn print(&self, line: String) {
        let mut line = line;
        // Retrying beats a queue that both sides can wait on asynchronously: a full queue means that the
        // reader of stdout is behind by hundreds of lines, and two milliseconds more do not matter to it.
        while let Err(TrySendError::Full(back)) = self.lines.try_send(line) {
            line = back;
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Returns when nobody reads stdout any more.
    pub async fn closed(&self) {
        let mut closed = self.closed.clone();
        if closed.wait_for(|closed| *closed).await.is_err() {
            // The thread ended in order, after the last line.
            std::future::pending::<()>().await;
        }
    }

    /// Whether nobody reads stdout any more.
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }
}

impl Writer {
    /// Waits until everything is written, or nobody reads any more; whether all was written. All [`Stdout`]s
    /// must be dropped before.
    ///
    /// # Cancel safety
    /// A question: dropping the future changes nothing.
    pub async fn written(&self) -> bool {
        while !self.thread.is_finished() {
            tokio::time::sleep(RETRY).await;
        }
        !*self.closed.borrow()
    }

    /// Waits until everything is written, but not for ever: a reader that has stopped reading must not keep a
    /// node that has left from ending. All [`Stdout`]s must be dropped before.
    pub fn finish(self, within: Duration) {
        let deadline = Instant::now() + within;
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(RETRY);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, Read as _};

    use super::*;
    use crate::testing::Paper;

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
        let target = Paper::default();
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
    async fn a_pipe_that_does_not_block_is_waited_for_and_takes_each_line_once() {
        for is_watched in [true, false] {
            let (reader, target) = io::pipe().unwrap();
            rustix::fs::fcntl_setfl(&target, rustix::fs::OFlags::NONBLOCK).unwrap();
            // As the program's own standard output, which gathers lines.
            let room = target.try_clone().unwrap();
            let (stdout, writer) = match is_watched {
                true => start_watched(target).unwrap(),
                false => start(io::LineWriter::new(target)),
            };
            let padding = "x".repeat(4096);
            // More than the pipe holds.
            for number in 0..100 {
                stdout.print(format!("{number} {padding}")).await;
            }
            drop(stdout);
            let full = async {
                while room_in(&room) {
                    tokio::time::sleep(RETRY).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), full).await.unwrap();
            drop(room);
            // The thread that waits for the end of the reader has the pipe open: it has no end.
            let read = std::thread::spawn(move || {
                let mut reader = io::BufReader::new(reader);
                let lines: Vec<_> = reader.by_ref().lines().take(100).map(Result::unwrap).collect();
                (lines, reader)
            });
            assert!(writer.written().await);
            let (lines, _reader) = read.join().unwrap();
            let numbers = lines
                .iter()
                .map(|line| line.split_once(' ').unwrap().0.parse::<u32>());
            assert!(numbers.eq((0..100).map(Ok)), "{is_watched}");
        }
    }

    fn room_in(pipe: &io::PipeWriter) -> bool {
        let mut asked = [PollFd::new(pipe, PollFlags::OUT)];
        poll(&mut asked, Some(&rustix::event::Timespec::default())).unwrap() > 0
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_is_noticed_while_nothing_is_written() {
        let (reader, target) = io::pipe().unwrap();
        let (stdout, writer) = start_watched(target).unwrap();
        stdout.print("the only line".to_owned()).await;
        let soon = tokio::time::timeout(Duration::from_millis(50), stdout.closed());
        assert!(soon.await.is_err(), "somebody reads");
        drop(reader);
        let closed = tokio::time::timeout(Duration::from_secs(10), stdout.closed());
        assert!(closed.await.is_ok());
        drop(stdout);
        assert!(!writer.written().await);
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_holds_up_nobody_who_waits_for_something_else() {
        // As much as a pipe holds, and the queue, and more.
        let (_reader, target) = io::pipe().unwrap();
        let (stdout, _writer) = start(target);
        let flood = async {
            for _ in 0..10 * MAX_WAITING {
                stdout.print("x".repeat(4096)).await;
            }
        };
        tokio::select! {
            () = flood => panic!("somebody reads"),
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
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
