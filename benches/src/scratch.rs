//! Files of a benchmark that nobody wants afterwards: data of peers, keys, sockets.
//!
//! All are in one folder of this process on tmpfs. It is removed when its parts are dropped, at SIGINT and
//! SIGTERM, and at the next start if even that did not happen.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::Failure;

/// Where they are.
const TMPFS: &str = "/dev/shm";
/// How the folder's name begins; then comes the process.
const PREFIX: &str = "antiphon-bench-";

/// A new folder of this user alone, removed with the value. Its path is short: that of a socket has 107 bytes
/// at most.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// An empty one. No other of this name may be there.
    pub(crate) fn new(name: &str) -> Result<Self, Failure> {
        Self::within(Path::new(TMPFS), name)
    }

    fn within(parent: &Path, name: &str) -> Result<Self, Failure> {
        let whole = whole(parent);
        make(&whole, true)?;
        let folder = whole.join(name);
        make(&folder, false)?;
        Ok(Self(folder))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A folder in it.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, Failure> {
        let folder = self.0.join(name);
        make(&folder, true)?;
        Ok(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is gone with the machine.
        let _ = std::fs::remove_dir_all(&self.0);
        if let Some(whole) = self.0.parent() {
            // Others may be in it.
            let _ = std::fs::remove_dir(whole);
        }
    }
}

/// All of this process.
fn whole(parent: &Path) -> PathBuf {
    parent.join(format!("{PREFIX}{}", std::process::id()))
}

fn make(folder: &Path, may_be_there: bool) -> Result<(), Failure> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(_) if may_be_there && folder.is_dir() => Ok(()),
        made => made.map_err(|error| format!("{}: {error}", folder.display())),
    }
}

/// Removes what is of this process, and of processes that are gone. Call it before the first [`Scratch`], and
/// before the process ends without dropping them.
pub(crate) fn sweep() {
    sweep_in(Path::new(TMPFS));
}

fn sweep_in(parent: &Path) {
    let is_left = |name: &str| {
        let process: Option<u32> = name.strip_prefix(PREFIX).and_then(|pid| pid.parse().ok());
        let is_gone = |pid: &u32| !Path::new(&format!("/proc/{pid}")).exists();
        process.is_some_and(|pid| pid == std::process::id() || is_gone(&pid))
    };
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_left)) {
        // What cannot be removed is gone with the machine.
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_gone_and_what_was_left_goes_at_the_next_start() {
        let parent = std::env::temp_dir().join(format!("antiphon-scratch-{}", std::process::id()));
        std::fs::create_dir_all(&parent).unwrap();
        let one = Scratch::within(&parent, "etcd").unwrap();
        let two = Scratch::within(&parent, "agents").unwrap();
        assert!(Scratch::within(&parent, "etcd").is_err(), "it is there");
        let inner = one.folder("1").unwrap();
        std::fs::write(inner.join("key"), "secret").unwrap();
        drop(one);
        assert!(!inner.exists() && two.path().is_dir());
        drop(two);
        assert_eq!(std::fs::read_dir(&parent).unwrap().count(), 0);

        std::mem::forget(Scratch::within(&parent, "left").unwrap());
        // No process has so high a number.
        for name in [
            "antiphon-bench-4294967295",
            "antiphon-bench-1",
            "antiphon-bench-x",
            "other",
        ] {
            std::fs::create_dir(parent.join(name)).unwrap();
        }
        sweep_in(&parent);
        let left = std::fs::read_dir(&parent)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut left: Vec<_> = left.collect();
        left.sort();
        std::fs::remove_dir_all(&parent).unwrap();
        assert_eq!(left, ["antiphon-bench-1", "antiphon-bench-x", "other"]);
    }
}
