//! The file for messages that a joiner holds beyond its memory bound.
//!
//! It has no name: the joiner removes it from its directory as soon as it is open, so the system frees it
//! when this process ends, however it ends. Only its owner may read it. The runtime's threads for blocking
//! work read and write it, one operation at a time; the task goes on meanwhile.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;

use antiphon_replica::{Spill, SpillId};
use bytes::Bytes;

use crate::host::Host;

/// What a read or write came to.
pub(super) type Outcome = Result<Bytes, String>;

type Work = Pin<Box<dyn Future<Output = (Option<File>, Outcome)> + Send>>;

pub(super) struct SpillFile {
    dir: PathBuf,
    file: Option<File>,
    work: Option<(SpillId, Work)>,
}

impl SpillFile {
    /// A file in this directory, made when it is needed.
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            file: None,
            work: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.work.is_none()
    }

    /// Begins this. Only while it is idle.
    pub(super) fn begin(&mut self, host: &Host, id: SpillId, spill: Spill) {
        let (host, dir, file) = (host.clone(), self.dir.clone(), self.file.take());
        let work = async move { host.blocking(move || work(&dir, file, spill)).await };
        self.work = Some((id, Box::pin(work)));
    }

    /// What was begun is done; never if nothing was.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub(super) async fn done(&mut self) -> (SpillId, Outcome) {
        let Some((id, work)) = &mut self.work else {
            return std::future::pending().await;
        };
        let (id, (file, outcome)) = (*id, work.await);
        self.work = None;
        self.file = file;
        (id, outcome)
    }

    /// Nothing in it is needed any more: the system takes its space back.
    pub(super) fn clear(&mut self, host: &Host) {
        if let Some(file) = self.file.take() {
            let host = host.clone();
            // To free a long file takes a while.
            host.clone()
                .spawn(async move { host.blocking(move || drop(file)).await });
        }
    }
}

fn work(dir: &Path, file: Option<File>, spill: Spill) -> (Option<File>, Outcome) {
    let file = match file.map_or_else(|| open(dir), Ok) {
        Ok(file) => file,
        Err(error) => {
            let dir = dir.display();
            return (
                None,
                Err(format!("cannot make a file in {dir} for what is held: {error}")),
            );
        }
    };
    let outcome = perform(&file, spill).map_err(|error| {
        let dir = dir.display();
        format!("the file in {dir} for what is held: {error}")
    });
    (Some(file), outcome)
}

fn perform(file: &File, spill: Spill) -> io::Result<Bytes> {
    match spill {
        Spill::Write { at, bytes } => file.write_all_at(&bytes, at).map(|()| Bytes::new()),
        Spill::Read { at, length } => {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, at)?;
            Ok(bytes.into())
        }
    }
}

/// A new file without a name.
fn open(dir: &Path) -> io::Result<File> {
    let number = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
    let path = dir.join(format!("antiphon-{number:016x}"));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        // Never a file that somebody else has put there.
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_no_name_and_gives_back_what_was_written() {
        let dir = std::env::temp_dir().join(format!("antiphon-spill-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let write = |at, bytes: &'static [u8]| Spill::Write {
            at,
            bytes: bytes.into(),
        };
        let (file, written) = work(&dir, None, write(10, b"second"));
        assert_eq!(written, Ok(Bytes::new()));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "nobody finds it");
        let (file, _) = work(&dir, file, write(0, b"first"));
        let (file, read) = work(&dir, file, Spill::Read { at: 10, length: 6 });
        assert_eq!(read, Ok(Bytes::from("second")));
        let (_, read) = work(&dir, file, Spill::Read { at: 10, length: 7 });
        let reason = read.unwrap_err();
        assert!(reason.contains(&dir.display().to_string()), "{reason}");
        std::fs::remove_dir(&dir).unwrap();
        let (_, written) = work(&dir, None, write(0, b"first"));
        assert!(written.unwrap_err().contains("cannot make a file"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_disk_that_is_full_is_an_error() {
        let full = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/full")
            .unwrap();
        let write = Spill::Write {
            at: 0,
            bytes: Bytes::from_static(b"all"),
        };
        let (_, written) = work(Path::new("/dev"), Some(full), write);
        assert!(written.unwrap_err().contains("No space left"));
    }
}
