//! The I/O of a witness: a file in memory between a node and the process that started it (the supervisor),
//! and the telling of a death (R10).
//!
//! ```text
//!   supervisor: Keeper ── inherited descriptor ──► node: LastVoteRecord
//!       │                                            │ write: in place of what was there, at once
//!       │ the child is gone (waited for)             ▼
//!       └─ Keeper::read ◄─────────────────────── the same memory: it has no queue and no end
//!            └─ Death ─ tell ──► each member, on a connection of its own, until it is taken
//! ```
//! The node holds a lock of the file as long as it may write there. The kernel releases the lock when the
//! last copy of the node's own descriptor is closed. That happens before anything can wait for the end of the
//! process. A supervisor may wait for another process than the one that wrote: a wrapper that started the
//! node, a parent that left it running as a daemon, or one of two copies of a fork. Such a supervisor finds
//! the lock held, and has no proof.
//!
//! What it proves, and why, is on the page of [`antiphon_core::witness`].
//!
//! The file begins with a mark that the supervisor sets. A node that is given any other file refuses it and
//! leaves it as it is. Then the file holds the length of a frame (4 bytes, little-endian) and the frame; a
//! length of 0, or no bytes at all, is nothing. A write is a system call and a copy of at most 64 KiB, and
//! waits for no process. If the process is killed in the middle of it, the frame's tag does not fit.

mod tell;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use antiphon_wire::frame::MAX_FRAME_BYTES;
use bytes::Bytes;

pub use tell::{Handed, tell};

/// What the file begins with.
const MARK: [u8; 16] = *b"antiphon vote 1\n";
/// Bytes of the length.
const LENGTH_BYTES: usize = 4;
/// Where the length is.
const START: u64 = MARK.len() as u64;

/// The node's side.
#[derive(Debug)]
pub struct LastVoteRecord {
    file: File,
}

impl LastVoteRecord {
    /// Opens what a supervisor made. It is not passed on to programs that this process starts.
    ///
    /// # Errors
    /// What the system says: it is not given to this process; `InvalidData` if no supervisor made it;
    /// `WouldBlock` if another node has it.
    pub fn open(path: &Path) -> io::Result<Self> {
        // The node opens its own file description: an inherited one does not hold the lock.
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut mark = [0; MARK.len()];
        let read = file.read_at(&mut mark, 0)?;
        if read < MARK.len() || mark != MARK {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "this is no memory that a supervisor made for its node (`antiphon node --witness` starts one)",
            ));
        }
        lock(&file)?;
        let last_vote = Self { file };
        // Nothing of an earlier holder may be left.
        last_vote.leave(None)?;
        Ok(last_vote)
    }

    /// Leaves this frame in place of what was left before. If that fails, nothing is left. This is no error:
    /// the node is without a witness until the next time.
    ///
    /// # Errors
    /// What was left before is still there and cannot be removed. The caller must let no vote leave the
    /// process any more.
    pub fn leave(&self, sealed: Option<&[u8]>) -> io::Result<()> {
        let Some(sealed) = sealed.filter(|sealed| (1..=MAX_FRAME_BYTES).contains(&sealed.len())) else {
            return self.file.set_len(START);
        };
        let mut bytes = Vec::with_capacity(LENGTH_BYTES + sealed.len());
        bytes.extend_from_slice(&(sealed.len() as u32).to_le_bytes());
        bytes.extend_from_slice(sealed);
        match self.file.write_all_at(&bytes, START) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.file.set_len(START)?;
                tracing::warn!(target: "antiphon::net", %error, "cannot leave the last vote to the witness: this node has none until the next vote");
                Ok(())
            }
        }
    }
}

/// Takes the lock, or fails with `WouldBlock`.
fn lock(file: &File) -> io::Result<()> {
    Ok(rustix::fs::flock(
        file,
        rustix::fs::FlockOperation::NonBlockingLockExclusive,
    )?)
}

/// The supervisor's side. It outlives the node.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub struct Keeper {
    file: File,
}

#[cfg(target_os = "linux")]
impl Keeper {
    /// Memory for the last-vote record of one node. Programs that this process starts from here on inherit
    /// it.
    ///
    /// # Errors
    /// What the system says: too many open files, or no memory.
    pub fn new() -> io::Result<Self> {
        let memory = rustix::fs::memfd_create("antiphon-last-vote", rustix::fs::MemfdFlags::empty())?;
        let file = File::from(memory);
        file.write_all_at(&MARK, 0)?;
        Ok(Self { file })
    }

    /// Where a program that this process starts finds it: the path for [`LastVoteRecord::open`]. It names
    /// nothing in any other process.
    pub fn path(&self) -> std::path::PathBuf {
        use std::os::fd::AsRawFd as _;
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// What was left; empty if nothing. To be called once the process that left it was waited for.
    ///
    /// # Errors
    /// `WouldBlock` if some process may still write there: then the node lives, whichever process was waited
    /// for. Otherwise what the system says, or `InvalidData` if it is nothing that a [`LastVoteRecord`]
    /// leaves.
    pub fn read(&self) -> io::Result<Bytes> {
        let own = OpenOptions::new().read(true).write(true).open(self.path())?;
        lock(&own)?;
        self.contents()
    }

    fn contents(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; LENGTH_BYTES + MAX_FRAME_BYTES];
        let mut read = 0;
        while read < bytes.len() {
            match self.file.read_at(&mut bytes[read..], START + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(read);
        let Some((length, frame)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
            return match read {
                0 => Ok(Bytes::new()),
                _ => Err(io::ErrorKind::InvalidData.into()),
            };
        };
        let length = u32::from_le_bytes(*length) as usize;
        let frame = frame.get(..length).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Bytes::copy_from_slice(frame))
    }
}
