//! Directories of nodes' own, and what killed ones left.
//!
//! A node holds a lock on a file in its directory for as long as it lives; the kernel releases the lock
//! however the node ends. So if nobody holds the lock of a directory, its node was killed, and the next node
//! that makes a directory of its own removes it. A node touches only directories of the same user, with names
//! like a node's own, and with a lock in them. The lock file gets its name only when the lock is held: so no
//! node takes a directory that is being made for one that was left behind.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use antiphon::Incarnation;
use rustix::fs::{FlockOperation, flock};

const LOCK: &str = ".lock";
const PREFIX: &str = "antiphon-";

/// A directory is its node's as long as this lives.
#[derive(Debug)]
pub(super) struct Claim {
    _lock: File,
}

/// Of this incarnation's directory.
pub(super) fn name(incarnation: Incarnation) -> String {
    format!("{PREFIX}{incarnation}")
}

/// Makes a node's own directory, and removes those that killed nodes left beside it.
pub(super) fn make(path: &Path) -> io::Result<Claim> {
    if let Some(beside) = path.parent() {
        remove_left_behind(beside);
    }
    fs::DirBuilder::new().mode(0o700).create(path)?;
    let unnamed = path.join(".lock.part");
    let lock = OpenOptions::new().write(true).create_new(true).open(&unnamed)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    fs::rename(&unnamed, path.join(LOCK))?;
    Ok(Claim { _lock: lock })
}

/// What cannot be removed stays, for somebody else or the next time.
fn remove_left_behind(beside: &Path) {
    let entries = fs::read_dir(beside).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| is_own(path)) {
        let Ok(lock) = OpenOptions::new().write(true).open(path.join(LOCK)) else {
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            tracing::info!(target: "antiphon::node", directory = %path.display(), "removing what a killed node left");
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Whether a path is named like a node's own directory and is one of this user.
fn is_own(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    let named = name.as_deref().and_then(|name| name.strip_prefix(PREFIX));
    let named = named.is_some_and(|rest| rest.len() == 32 && rest.chars().all(|c| c.is_ascii_hexdigit()));
    // Not through a link, which somebody else may have put there.
    named && fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir() && is_mine(&metadata))
}

fn is_mine(metadata: &fs::Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_node_left_is_removed_and_nothing_else() {
        let root = std::env::temp_dir().join(format!("antiphon-left-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        let place = |number: u128| root.join(name(Incarnation(number)));
        let alive = make(&place(1)).unwrap();
        let killed = make(&place(2)).unwrap();
        fs::write(place(2).join("g-1.1-a-7"), b"large").unwrap();
        drop(killed);
        fs::create_dir(place(3)).unwrap();
        let other = root.join("antiphon-data");
        fs::create_dir(&other).unwrap();
        fs::write(other.join(LOCK), b"").unwrap();
        let _mine = make(&place(4)).unwrap();
        assert!(!place(2).exists(), "its node is gone");
        assert!(place(1).exists(), "its node lives");
        assert!(
            place(3).exists() && other.exists(),
            "without a lock, or of another name"
        );
        drop(alive);
        fs::remove_dir_all(&root).unwrap();
    }
}
