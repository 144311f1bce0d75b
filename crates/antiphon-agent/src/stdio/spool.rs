//! Payloads that are too large for a line of stdout: each is a file of its own, which the line names.
//!
//! With `--spool DIR` the node puts the files there, and never removes one: they belong to the reader of the
//! lines. Without it, they are in a directory of the node's own, which only its user can read. The node
//! removes that directory when it ends; after a kill, the next node on this host that makes such a directory
//! removes it ([`own`]). A file is complete as soon as it has its name: the node writes it under another name
//! first. A payload that cannot be written is printed like any other, so nothing is lost by a full disk.

mod own;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use antiphon::{Incarnation, MAX_PAYLOAD_BYTES, Message};

use antiphon_api::Payload;

/// How many names are tried for one file: others may write into the same directory.
const MAX_TRIES: u32 = 1000;

/// Where large payloads go.
#[derive(Debug)]
pub struct Spool {
    place: Place,
    /// Payloads that are being written now.
    writing: AtomicUsize,
}

#[derive(Debug)]
enum Place {
    /// The reader's.
    Given(PathBuf),
    /// This node's own.
    Own { path: PathBuf, made: Mutex<Made> },
}

/// Whether a directory is there.
#[derive(Debug)]
enum Made {
    /// It will be with the first file.
    NotYet,
    Yes(#[expect(dead_code, reason = "it is held, not looked at")] own::Claim),
    /// It was removed, for good.
    Over,
}

impl Spool {
    /// Nothing is made or written yet.
    pub fn new(given: Option<&Path>, incarnation: Incarnation) -> Self {
        let place = match given {
            Some(path) => Place::Given(path.to_owned()),
            None => Place::Own {
                path: std::env::temp_dir().join(own::name(incarnation)),
                made: Mutex::new(Made::NotYet),
            },
        };
        Self {
            place,
            writing: AtomicUsize::new(0),
        }
    }

    /// The payload for a line: itself, or the file that it is in. Takes as long as the disk does.
    pub fn payload(&self, group: &str, message: &Message) -> Payload {
        if message.payload.len() <= MAX_PAYLOAD_BYTES {
            return Payload::from_bytes(&message.payload);
        }
        let name = [
            group,
            &message.view.to_string(),
            &message.sender.name,
            &message.seq.to_string(),
        ]
        .map(plain);
        self.writing.fetch_add(1, Ordering::Relaxed);
        let written = self.write(&name.join("-"), &message.payload);
        self.writing.fetch_sub(1, Ordering::Relaxed);
        match written {
            Ok(path) => Payload::File {
                file: path.to_string_lossy().into_owned(),
                bytes: Some(message.payload.len() as u64),
            },
            Err(error) => {
                tracing::error!(
                    target: "antiphon::node", %error, directory = %self.directory().display(), bytes = message.payload.len(),
                    "cannot write a payload to a file; it follows on stdout. Make room there, or give another --spool"
                );
                Payload::from_bytes(&message.payload)
            }
        }
    }

    /// Whether a line waits for the disk.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.load(Ordering::Relaxed) > 0
    }

    fn directory(&self) -> &Path {
        match &self.place {
            Place::Given(path) | Place::Own { path, .. } => path,
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        let directory = self.directory();
        if let Place::Own { path, made } = &self.place {
            let mut made = made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match *made {
                Made::NotYet => *made = Made::Yes(own::make(path)?),
                Made::Yes(_) => {}
                Made::Over => return Err(io::Error::other("the node has ended")),
            }
        }
        let directory = directory.canonicalize()?;
        for count in 0..MAX_TRIES {
            let name = if count == 0 {
                name.to_owned()
            } else {
                format!("{name}.{count}")
            };
            let part = directory.join(format!(".{name}.part"));
            let whole = directory.join(name);
            let mut file = match create(&part) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            let written = file.write_all(bytes).and_then(|()| name_it(&part, &whole));
            match written {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    // What is left of the try is this node's.
                    let _ = fs::remove_file(&part);
                }
                Err(error) => {
                    let _ = fs::remove_file(&part);
                    return Err(error);
                }
                Ok(()) => return Ok(whole),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Removes what is this node's own.
    pub fn clean_up(&self) {
        let Place::Own { path, made } = &self.place else {
            return;
        };
        let mut made = made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if matches!(std::mem::replace(&mut *made, Made::Over), Made::Yes(_))
            && let Err(error) = fs::remove_dir_all(path)
        {
            // Nobody may read it any more.
            let _ = writeln!(
                io::stderr(),
                "antiphon: warning: cannot remove {}: {error}",
                path.display()
            );
        }
    }
}

/// A part of a file's name.
fn plain(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
    text.chars().map(|c| if harmless(c) { c } else { '_' }).collect()
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Gives a complete file its name, unless another has it.
fn name_it(part: &Path, whole: &Path) -> io::Result<()> {
    drop(create(whole)?);
    fs::rename(part, whole).inspect_err(|_| {
        let _ = fs::remove_file(whole);
    })
}

/// A file as a payload: not empty and not above `limit`. The error says what to do.
pub(crate) fn check_file(path: &Path, limit: u64) -> Result<(), String> {
    let metadata =
        fs::metadata(path).map_err(|error| format!("cannot read the file {}: {error}", path.display()))?;
    if !metadata.is_file() {
        return Err(format!("{} is no regular file", path.display()));
    }
    if metadata.len() > limit {
        return Err(format!(
            "the file {} has {} bytes, and a payload at most {limit}; start all members with a larger --max-object, or send it in parts",
            path.display(),
            metadata.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool(given: Option<&Path>, number: u128) -> Spool {
        Spool::new(given, Incarnation(number << 64 | u128::from(std::process::id())))
    }

    #[test]
    fn each_payload_has_a_file_of_its_own_and_those_of_the_node_go_with_it() {
        let own = spool(None, 1);
        let first = own.write("g-1.1-a-7", b"one").unwrap();
        let second = own.write("g-1.1-a-7", b"two").unwrap();
        assert_ne!(first, second);
        assert_eq!(fs::read(&first).unwrap(), b"one");
        assert_eq!(fs::read(&second).unwrap(), b"two");
        let directory = first.parent().unwrap().to_owned();
        let named = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let parts = named.filter(|name| name.to_string_lossy().ends_with(".part"));
        assert_eq!(parts.count(), 0, "no parts are left");
        own.clean_up();
        assert!(!directory.exists());
        assert!(own.write("g-1.1-a-8", b"three").is_err() && !directory.exists());
    }

    #[test]
    fn files_in_a_directory_that_was_given_stay() {
        let directory = std::env::temp_dir().join(format!("antiphon-spool-test-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let given = spool(Some(&directory), 2);
        let path = given.write("x", b"one").unwrap();
        given.clean_up();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        fs::remove_dir_all(&directory).unwrap();
        assert!(given.write("x", b"one").is_err(), "it is not made anew");
    }

    #[test]
    fn names_of_groups_and_nodes_are_no_paths() {
        assert_eq!(plain("../../etc/x y-é"), ".._.._etc_x_y__");
    }

    #[test]
    fn a_file_that_cannot_be_sent_is_refused_with_the_reason() {
        let missing = check_file(Path::new("/nonexistent/file"), 10).unwrap_err();
        assert!(missing.contains("/nonexistent/file"), "{missing}");
        assert!(
            check_file(&std::env::temp_dir(), 10)
                .unwrap_err()
                .contains("regular file")
        );
        let path = std::env::temp_dir().join(format!("antiphon-send-test-{}", std::process::id()));
        fs::write(&path, b"eleven byte").unwrap();
        let large = check_file(&path, 10).unwrap_err();
        assert!(
            large.contains("11 bytes") && large.contains("--max-object"),
            "{large}"
        );
        assert_eq!(check_file(&path, 11), Ok(()));
        fs::remove_file(&path).unwrap();
    }
}
