//! The state of a machine at one point, as bytes that are read piece by piece.
//!
//! ```text
//!  Machine::snapshot ──► Snapshot ── clone for each joiner ──► read, read, … ──► chunks
//!                        at the point, cheap                   later, elsewhere, as fast as the joiner takes it
//! ```
//! | the state is | its snapshot is |
//! |---|---|
//! | bytes | [`Bytes`] |
//! | a persistent structure | a type of yours: a clone of it, and how far it was read |
//! | in a file, or behind a connection | a [`FromReader`]: whatever reads |
//! | not to be had | an `Err` of any of these |

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;

/// A machine's state at one point. A clone is cheap and is read by itself: each joiner gets one.
pub trait Snapshot: Clone + Send + 'static {
    /// The next bytes of the state, about so many at most; none at its end. The same at every member that
    /// took the snapshot at the same point, however they are cut. It is called without the machine's lock,
    /// where it may take long and wait: on a thread for blocking work.
    ///
    /// # Errors
    /// The state cannot be read. The joiner that was to get it is told so, and leaves; the group goes on.
    fn read(&mut self, about: usize) -> Result<Bytes, SnapshotError>;

    /// About how many bytes are left, for those that watch the progress: an estimate does.
    fn bytes(&self) -> u64;

    /// All that is left, at once.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_all(mut self) -> Result<Vec<u8>, SnapshotError> {
        let mut all = Vec::new();
        loop {
            let piece = self.read(1 << 20)?;
            if piece.is_empty() {
                return Ok(all);
            }
            all.extend_from_slice(&piece);
        }
    }
}

impl Snapshot for Bytes {
    fn read(&mut self, about: usize) -> Result<Bytes, SnapshotError> {
        Ok(self.split_to(about.min(self.len())))
    }

    fn bytes(&self) -> u64 {
        self.len() as u64
    }
}

/// A machine that cannot give its state says so when it is asked for it.
impl<S: Snapshot> Snapshot for Result<S, SnapshotError> {
    fn read(&mut self, about: usize) -> Result<Bytes, SnapshotError> {
        self.as_mut().map_err(|error| error.clone())?.read(about)
    }

    fn bytes(&self) -> u64 {
        self.as_ref().map_or(0, Snapshot::bytes)
    }
}

type Open = dyn Fn() -> io::Result<Box<dyn Read + Send>> + Send + Sync;

/// A state that is read from something: a file, a pipe, a decompressor.
///
/// It is [`Read`] and not `AsyncRead`: snapshots are read on a thread for blocking work, where waiting costs
/// nothing, and this crate knows no runtime. An `AsyncRead` of Tokio becomes one with `SyncIoBridge`.
pub struct FromReader {
    bytes: u64,
    open: Arc<Open>,
    reader: Option<Box<dyn Read + Send>>,
}

impl FromReader {
    /// What `open` opens, of about so many bytes. It is opened once for each joiner, when its first piece is
    /// read, and gives the same each time: that of the point at which the snapshot was taken.
    pub fn new<R: Read + Send + 'static>(
        bytes: u64,
        open: impl Fn() -> io::Result<R> + Send + Sync + 'static,
    ) -> Self {
        Self {
            bytes,
            open: Arc::new(move || Ok(Box::new(open()?))),
            reader: None,
        }
    }
}

/// From the beginning.
impl Clone for FromReader {
    fn clone(&self) -> Self {
        Self {
            bytes: self.bytes,
            open: self.open.clone(),
            reader: None,
        }
    }
}

impl fmt::Debug for FromReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromReader")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Snapshot for FromReader {
    fn read(&mut self, about: usize) -> Result<Bytes, SnapshotError> {
        let failed = |error: io::Error| SnapshotError {
            reason: error.to_string(),
        };
        if self.reader.is_none() {
            self.reader = Some((self.open)().map_err(failed)?);
        }
        let mut piece = Vec::with_capacity(about);
        if let Some(reader) = &mut self.reader {
            reader
                .take(about as u64)
                .read_to_end(&mut piece)
                .map_err(failed)?;
        }
        self.bytes = self.bytes.saturating_sub(piece.len() as u64);
        Ok(piece.into())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Why a state was not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotError {
    /// What is wrong with it. A joiner is told the first [`SnapshotError::MAX_BYTES`] of it.
    pub reason: String,
}

impl SnapshotError {
    /// What a joiner is told of a reason, in bytes.
    pub const MAX_BYTES: usize = 1024;
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for SnapshotError {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn a_state_of_a_reader_is_opened_by_each_that_reads_it() {
        static OPENED: AtomicUsize = AtomicUsize::new(0);
        let state: Vec<u8> = (0..100).collect();
        let expected = state.clone();
        let mut first = FromReader::new(100, move || {
            OPENED.fetch_add(1, Relaxed);
            Ok(io::Cursor::new(state.clone()))
        });
        assert_eq!(first.read(30).unwrap(), expected[..30]);
        assert_eq!(first.bytes(), 70);
        assert_eq!(first.clone().read_all().unwrap(), expected);
        assert_eq!(first.read_all().unwrap(), expected[30..]);
        assert_eq!(OPENED.load(Relaxed), 2);
    }

    #[test]
    fn a_state_that_cannot_be_opened_or_had_says_why() {
        let missing = FromReader::new(0, || Err::<io::Empty, _>(io::Error::other("no such file")));
        assert_eq!(missing.read_all().unwrap_err().reason, "no such file");
        let reason = "page 7".to_owned();
        let none: Result<Bytes, _> = Err(SnapshotError { reason });
        assert_eq!(none.read_all().unwrap_err().reason, "page 7");
    }
}
