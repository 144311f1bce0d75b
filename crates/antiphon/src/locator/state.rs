//! A locator's file.
//!
//! ```text
//! antiphon locator 1
//! cluster shop
//! node 10.0.0.1:7400 1790000000 0123…ef a        address, when it was heard (Unix time), lineage or -, name
//! end 1 9f3c…                                    how many, and the XXH3-64 of all lines before
//! ```
//! It is replaced by renaming a new one over it. What does not end in an `end` that fits is damaged. So is
//! what begins almost as above, and a file of NUL bytes, which some file systems leave after a loss of power.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use antiphon_core::wire::Lineage;
use antiphon_core::wire::frame::cluster_tag;
use antiphon_core::{ConfigError, Located};

use crate::Error;

const FIRST: &str = "antiphon locator 1";
/// So begins such a file in every version.
const OURS: &str = "antiphon locator";
/// And so it goes on. Bits that a disk has flipped are looked for in all of it: what merely begins with much
/// the same words, as notes on locators may, differs in far more.
const BEGINNING: &[u8] = b"antiphon locator 1\ncluster ";
/// So many flipped bits of that are taken for damage.
const MAX_FLIPPED_BITS: u32 = 8;
/// Far more than the most nodes take.
const MAX_BYTES: u64 = 1 << 20;
/// Damaged files kept beside it. So many mean that an operator must look at the disk; and they must not fill
/// it up.
const MAX_ASIDE: usize = 16;

/// What the file holds, and what was wrong with it: a file that is damaged was set aside.
///
/// # Errors
/// If it cannot be read although it is there, is of another cluster, or is not a locator's: then it is left
/// as it is.
pub(super) fn load(path: &Path, cluster: &str, now: u64) -> Result<(Vec<Located>, Option<String>), Error> {
    let failed = |source| Error::State {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    match open(path) {
        Ok(file) => file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A folder that is not there would be noticed at the first write only.
            return match folder_of(path).metadata() {
                Ok(_) => Ok((Vec::new(), None)),
                Err(error) => Err(failed(error)),
            };
        }
        Err(error) => return Err(failed(error)),
    };
    // Whatever else it is, somebody may need it: a key, named by mistake.
    if !may_be_ours(&bytes) {
        return Err(ConfigError::Conflict {
            reason: format!(
                "{} is no state file of a locator and was left alone: its first line does not begin with {OURS:?}; \
                 name a file of the locator's own, or remove this one",
                path.display()
            ),
        }
        .into());
    }
    let parsed = match String::from_utf8(bytes) {
        Ok(text) if is_nul(text.as_bytes()) => Err("nothing is in it, or NUL bytes alone".to_owned()),
        Ok(text) if text.len() as u64 <= MAX_BYTES => parse(&text, now),
        _ => Err("it is no text, or larger than 1 MiB".to_owned()),
    };
    match parsed {
        Ok((theirs, _)) if theirs != cluster => Err(ConfigError::Conflict {
            reason: format!(
                "the state file {} is of a locator for cluster {theirs:?}, this one is for {cluster:?}: give each its own file",
                path.display()
            ),
        }
        .into()),
        Ok((_, located)) => Ok((located, None)),
        Err(problem) => {
            let aside = set_aside(path).map_err(failed)?;
            let problem = format!(
                "the state file {} is damaged ({problem}) and was set aside as {}; this locator starts knowing nobody",
                path.display(),
                aside.display()
            );
            Ok((Vec::new(), Some(problem)))
        }
    }
}

/// Whether a file, of which at most [`MAX_BYTES`] and one were read, is a locator's, or was before it was
/// damaged.
fn may_be_ours(bytes: &[u8]) -> bool {
    let beginning = &bytes[..bytes.len().min(OURS.len())];
    if OURS.as_bytes().starts_with(beginning) {
        return true;
    }
    let flipped = bytes.iter().zip(BEGINNING);
    let flipped: u32 = flipped.map(|(is, was)| (is ^ was).count_ones()).sum();
    let is_almost = bytes.len() >= BEGINNING.len() && flipped <= MAX_FLIPPED_BITS;
    is_almost || is_nul(bytes)
}

/// A longer file of zeros may be the image of a disk.
fn is_nul(bytes: &[u8]) -> bool {
    bytes.len() as u64 <= MAX_BYTES && bytes.iter().all(|byte| *byte == 0)
}

/// Gives the file a name that no file has, so that files set aside before stay as they are.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    for number in 0..MAX_ASIDE {
        let mut aside = path.as_os_str().to_owned();
        aside.push(match number {
            0 => ".damaged".to_owned(),
            number => format!(".damaged.{number}"),
        });
        let aside = PathBuf::from(aside);
        // Only one process can create the name. So the file that the rename replaces is empty, and of this
        // process.
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&aside)
        {
            Ok(_) => {
                fs::rename(path, &aside)?;
                return Ok(aside);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!(
        "it is damaged, and so many were set aside before it, as {0}.damaged to {0}.damaged.{1}: look why, and remove them",
        path.display(),
        MAX_ASIDE - 1
    )))
}

/// A device must not be moved away, and opening a pipe without a writer would wait.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Replaces the file.
pub(super) fn save(path: &Path, cluster: &str, located: &[Located], now: u64) -> io::Result<()> {
    let text = show(cluster, located, now);
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // A writer that was killed may have left it. A pipe would keep this one waiting, and through a link it
    // would overwrite another file.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The name is in the folder, which has a cache of its own.
    File::open(folder_of(path))?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn show(cluster: &str, located: &[Located], now: u64) -> String {
    let mut text = format!("{FIRST}\ncluster {cluster}\n");
    for node in located {
        let heard = now.saturating_sub(node.age.as_secs());
        let lineage = node
            .member_of
            .map_or_else(|| "-".to_owned(), |lineage| format!("{:032x}", lineage.0));
        text.push_str(&format!("node {} {heard} {lineage} {}\n", node.addr, node.name));
    }
    let end = format!("end {} {}\n", located.len(), digest(&text));
    text + &end
}

/// The digest that stands for a cluster's name in frames, of a longer text.
fn digest(text: &str) -> String {
    format!("{:016x}", u64::from_le_bytes(cluster_tag(text)))
}

fn parse(text: &str, now: u64) -> Result<(String, Vec<Located>), String> {
    let end = text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
    let (lines, end) = text.split_at(end);
    let mut rest = lines.lines();
    if rest.next() != Some(FIRST) {
        return Err(format!("its first line is not {FIRST:?}"));
    }
    let cluster = rest
        .next()
        .and_then(|line| line.strip_prefix("cluster "))
        .ok_or("its second line names no cluster")?;
    let located = rest
        .enumerate()
        .map(|(index, line)| node(line, now).ok_or(format!("line {} is no node", index + 3)))
        .collect::<Result<Vec<_>, _>>()?;
    if end != format!("end {} {}\n", located.len(), digest(lines)) {
        return Err("its last line does not fit what is before it".to_owned());
    }
    Ok((cluster.to_owned(), located))
}

fn node(line: &str, now: u64) -> Option<Located> {
    let mut fields = line.strip_prefix("node ")?.splitn(4, ' ');
    let addr: SocketAddr = fields.next()?.parse().ok()?;
    let heard: u64 = fields.next()?.parse().ok()?;
    let member_of = match fields.next()? {
        "-" => None,
        lineage => Some(Lineage(u128::from_str_radix(lineage, 16).ok()?)),
    };
    Some(Located {
        name: fields.next()?.to_owned(),
        addr,
        member_of,
        // A clock that went back makes nodes younger, not the file unreadable.
        age: Duration::from_secs(now.saturating_sub(heard)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000;

    fn some() -> Vec<Located> {
        let node = |name: &str, addr: &str, member_of, age| Located {
            name: name.to_owned(),
            addr: addr.parse().unwrap(),
            member_of,
            age: Duration::from_secs(age),
        };
        vec![
            node("a", "10.0.0.1:7400", Some(Lineage(7)), 3),
            node("name with spaces", "[fd00::2]:7400", None, 86_000),
        ]
    }

    /// A file in whose beginning so many bytes differ in one bit each.
    fn with_flipped_bits(bits: usize) -> Vec<u8> {
        let mut bytes = show("shop", &some(), NOW).into_bytes();
        bytes[..bits].iter_mut().for_each(|byte| *byte ^= 1);
        bytes
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("antiphon-state-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_saved_is_loaded_older_by_the_time_between() {
        let folder = Folder::new("saved");
        let path = folder.0.join("state");
        assert_eq!(load(&path, "shop", NOW).unwrap(), (Vec::new(), None));
        for _ in 0..2 {
            save(&path, "shop", &some(), NOW).unwrap();
        }
        let (located, problem) = load(&path, "shop", NOW + 10).unwrap();
        assert_eq!(problem, None);
        let ages: Vec<u64> = located.iter().map(|node| node.age.as_secs()).collect();
        assert_eq!(ages, [13, 86_010]);
        assert_eq!(located[1].name, "name with spaces");
        assert_eq!(
            load(&path, "shop", NOW - 100).unwrap().0[0].age,
            Duration::ZERO,
            "a clock that went back"
        );
        assert!(!folder.0.join("state.new").exists());
    }

    #[test]
    fn whatever_stands_in_the_way_of_the_new_file_is_replaced_and_not_written_to() {
        let folder = Folder::new("in-the-way");
        let (path, new, other) = (
            folder.0.join("state"),
            folder.0.join("state.new"),
            folder.0.join("other"),
        );
        fs::write(&other, "of somebody").unwrap();
        std::os::unix::fs::symlink(&other, &new).unwrap();
        save(&path, "shop", &some(), NOW).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody");
        let made = std::process::Command::new("mkfifo").arg(&new).status();
        assert!(made.expect("mkfifo runs").success());
        save(&path, "shop", &some(), NOW).unwrap();
        fs::write(&new, "half of a").unwrap();
        save(&path, "shop", &some(), NOW).unwrap();
        assert_eq!(load(&path, "shop", NOW).unwrap().0, some());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_path_that_is_no_text_is_written_where_it_is_read() {
        use std::os::unix::ffi::OsStrExt as _;
        let folder = Folder::new("no-text");
        let path = folder.0.join(std::ffi::OsStr::from_bytes(b"st\xff"));
        save(&path, "shop", &some(), NOW).unwrap();
        assert_eq!(load(&path, "shop", NOW).unwrap().0, some());
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_file_is_set_aside_whatever_is_wrong_with_it() {
        let folder = Folder::new("damaged");
        let path = folder.0.join("state");
        let good = show("shop", &some(), NOW);
        let mut damaged: Vec<Vec<u8>> = (0..good.len())
            .map(|length| good.as_bytes()[..length].to_vec())
            .collect();
        for index in (0..BEGINNING.len()).chain((BEGINNING.len()..good.len()).step_by(7)) {
            let mut flipped = good.clone().into_bytes();
            flipped[index] ^= 1_u8 << (index % 8);
            damaged.push(flipped);
        }
        damaged.push(with_flipped_bits(8));
        // After a loss of power.
        for length in [1, OURS.len(), good.len(), 1 << 20] {
            damaged.push(vec![0; length]);
        }
        damaged.push([FIRST.as_bytes(), &[0xff; 10]].concat());
        damaged.push([FIRST.as_bytes(), &vec![b'x'; 2 << 20]].concat());
        for bytes in damaged {
            fs::write(&path, &bytes).unwrap();
            let (located, problem) = load(&path, "shop", NOW).unwrap();
            assert!(
                located.is_empty() && problem.unwrap().contains("state.damaged"),
                "{:?}",
                String::from_utf8_lossy(&bytes)
            );
            assert!(!path.exists());
            let aside = folder.0.join("state.damaged");
            assert_eq!(fs::read(&aside).unwrap(), bytes);
            fs::remove_file(aside).unwrap();
        }
    }

    #[test]
    fn what_was_set_aside_before_is_never_overwritten_and_does_not_grow_for_ever() {
        let folder = Folder::new("aside");
        let path = folder.0.join("state");
        let damaged = |number: usize| format!("{FIRST}, damaged in way {number}");
        for number in 0..MAX_ASIDE {
            fs::write(&path, damaged(number)).unwrap();
            let (_, problem) = load(&path, "shop", NOW).unwrap();
            let suffix = if number == 0 {
                "state.damaged;"
            } else {
                &format!("state.damaged.{number};")
            };
            assert!(problem.unwrap().contains(suffix), "{suffix}");
        }
        fs::write(&path, "antiphon locator 1, one too many").unwrap();
        let error = load(&path, "shop", NOW).unwrap_err().to_string();
        assert!(
            error.contains("damaged.15") && error.contains("remove them"),
            "{error}"
        );
        assert!(path.exists(), "it is left where it is");
        for number in 1..MAX_ASIDE {
            let aside = folder.0.join(format!("state.damaged.{number}"));
            assert_eq!(fs::read_to_string(aside).unwrap(), damaged(number));
        }
        let first = folder.0.join("state.damaged");
        assert_eq!(fs::read_to_string(first).unwrap(), damaged(0));
    }

    #[test]
    fn a_file_of_another_cluster_or_a_missing_folder_is_an_error() {
        let folder = Folder::new("other");
        let path = folder.0.join("state");
        save(&path, "shop", &some(), NOW).unwrap();
        let error = load(&path, "bank", NOW).unwrap_err().to_string();
        assert!(error.contains("shop") && error.contains("bank"), "{error}");
        assert!(path.exists(), "it is not damaged");
        assert!(load(&folder.0.join("no/state"), "shop", NOW).is_err());
    }

    #[test]
    fn what_is_not_a_locators_is_refused_and_left_as_it_is() {
        let folder = Folder::new("foreign");
        let path = folder.0.join("key");
        let image = vec![0_u8; (1 << 20) + 1];
        for foreign in [
            &b"3f9a a key"[..],
            b"antiphon trace 1",
            &[0xff; 10],
            b"root:x:0:0:root:/root:/bin/bash\n",
            b"Antiphon locator, where: one on each of three hosts\n",
            b"Antiphon locator",
            b"\0\0\0\0 a program",
            &with_flipped_bits(9)[..],
            &image[..],
        ] {
            fs::write(&path, foreign).unwrap();
            let error = load(&path, "shop", NOW).unwrap_err().to_string();
            assert!(error.contains("was left alone"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), foreign);
        }
        let pipe = folder.0.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo runs").success());
        for none in [&pipe, &folder.0, Path::new("/dev/null")] {
            let error = load(none, "shop", NOW).unwrap_err().to_string();
            assert!(error.contains("no regular file"), "{error}");
            assert!(none.exists());
        }
    }
}
