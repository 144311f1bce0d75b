//! Where consoles are: one socket for each running node, in a directory that only its user can enter.
//!
//! ```text
//!   $ANTIPHON_RUNTIME_DIR/              if that is set, and then nowhere else
//!   $XDG_RUNTIME_DIR/antiphon/          if that is set
//!   /run/antiphon/                      for root
//!   /tmp/antiphon-UID/                  for others
//!       CLUSTER.NODE.PID.sock           letters, digits, - and _ of the names, 20 of each
//! ```
//! The names are for people; a node tells its full name in its `hello`.
//!
//! # Invariants
//! - A socket is its user's alone from the moment it is there, in whatever directory.
//! - If several processes find a dead socket at one path, one of them replaces it, and the others find the
//!   new socket. For that they take turns.
//! - A node that ends removes the file that it made, and none that has taken its place.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::{Pid, geteuid, test_kill_process};

/// Clients that may wait to be accepted.
#[cfg(target_os = "linux")]
const BACKLOG: i32 = 128;
/// Letters of each name in the name of a socket: paths of sockets have 107 bytes at most.
const NAME_BYTES: usize = 20;
/// Sockets of one name and process that are tried.
const MAX_TWINS: u32 = 100;
/// Files looked at in a directory.
const MAX_FILES: usize = 10_000;
/// How long a process waits for its turn in a directory; others need microseconds, unless one of them means
/// harm.
const TURN_WITHIN: Duration = Duration::from_millis(500);

/// The directories in which nodes of this user may have their sockets. The first is the one that a node of
/// this environment would choose.
pub fn directories() -> Vec<PathBuf> {
    if let Some(only) = std::env::var_os("ANTIPHON_RUNTIME_DIR").filter(|only| !only.is_empty()) {
        return vec![PathBuf::from(only)];
    }
    let uid = geteuid();
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut directories: Vec<PathBuf> = given
        .filter(|given| given.is_absolute())
        .map(|given| given.join("antiphon"))
        .into_iter()
        .collect();
    if uid.is_root() {
        directories.push(PathBuf::from("/run/antiphon"));
    }
    directories.push(PathBuf::from(format!("/tmp/antiphon-{}", uid.as_raw())));
    directories
}

/// A socket that a node listens at. Dropped, it removes the file that it made.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    /// Which file it made: device and number.
    file: (u64, u64),
}

impl Socket {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Another process may have removed the file or the directory, and may have made another one.
        let _turn = Turn::take(&self.path);
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Which file is at a path.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// The turn to change the sockets of a directory: a lock on the directory. A process sees that a socket is
/// dead, removes it and makes another one; without the turn it could remove a socket that another process has
/// made meanwhile. A process that does not get the turn in time goes on without it, and so does one where
/// directories cannot be locked.
struct Turn {
    _directory: File,
}

impl Turn {
    /// In the directory of this path.
    fn take(path: &Path) -> Option<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = File::open(parent.unwrap_or(Path::new("."))).ok()?;
        let deadline = Instant::now() + TURN_WITHIN;
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    return Some(Self {
                        _directory: directory,
                    });
                }
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(_) => return None,
            }
        }
    }
}

/// Listens in the first directory that can be used.
pub(crate) fn listen(cluster: &str, node: &str) -> io::Result<(UnixListener, Socket)> {
    let mut first_error = None;
    for directory in directories() {
        match listen_in(&directory, cluster, node) {
            Ok(listening) => return Ok(listening),
            Err(error) => {
                let error = io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

fn listen_in(directory: &Path, cluster: &str, node: &str) -> io::Result<(UnixListener, Socket)> {
    prepare(directory)?;
    remove_stale(directory);
    let stem = format!("{}.{}.{}", safe(cluster), safe(node), std::process::id());
    for twin in 1..=MAX_TWINS {
        let name = match twin {
            1 => format!("{stem}.sock"),
            twin => format!("{stem}.{twin}.sock"),
        };
        match listen_at(&directory.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            done => return done,
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// Listens at this path. A socket there that nobody listens at is replaced; anything else is left alone.
pub(crate) fn listen_at(path: &Path) -> io::Result<(UnixListener, Socket)> {
    let _turn = Turn::take(path);
    let listener = match bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead(path) => {
            std::fs::remove_file(path)?;
            bind(path)?
        }
        bound => bound?,
    };
    let socket = Socket {
        path: path.to_owned(),
        file: identity(path)?,
    };
    listener.set_nonblocking(true)?;
    Ok((listener, socket))
}

/// Listens at a path where nothing is. The file has the mode that its socket had before: at no time is it
/// open to others, and nothing is done by its name, which may lead elsewhere by then.
#[cfg(target_os = "linux")]
fn bind(path: &Path) -> io::Result<UnixListener> {
    use rustix::net::SocketFlags;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = File::from(rustix::net::socket_with(
        family,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?);
    socket.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(OwnedFd::from(socket).into())
}

/// Listens at a path where nothing is. Others may connect before the file has its mode: the console checks
/// the user of each client all the same.
#[cfg(not(target_os = "linux"))]
fn bind(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Makes the directory if it is not there, and refuses one that others could have made or can enter.
fn prepare(directory: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check(directory)
}

/// Whether a directory is this user's alone.
fn check(directory: &Path) -> io::Result<()> {
    let found = std::fs::symlink_metadata(directory)?;
    if !found.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is no directory"));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it belongs to user {}", found.uid()),
        ));
    }
    if found.mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "others can enter it (mode {:03o}); `chmod 700` it",
                found.mode() & 0o777
            ),
        ));
    }
    Ok(())
}

/// The sockets in this user's directories, without those of processes that are gone. Whether somebody listens
/// there, connecting tells: a process may be stopped, or have the number of one that was killed.
pub fn running() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in directories() {
        if check(&directory).is_err() {
            continue;
        }
        remove_stale(&directory);
        found.extend(sockets(&directory));
    }
    found.sort();
    found.dedup();
    found
}

/// What keeps nodes of this user from having consoles in those directories, a sentence each. A directory that
/// is not there yet keeps none: the node makes it.
pub fn problems() -> Vec<String> {
    let directories = directories();
    let problem = |directory: &PathBuf| {
        let shown = directory.display();
        match check(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = directory.parent()?;
                // Where there is another directory, a node has its console in that one.
                (directories.len() == 1 && !parent.as_os_str().is_empty() && !parent.is_dir()).then(|| {
                    format!(
                        "{shown} cannot be made, since {} is no directory",
                        parent.display()
                    )
                })
            }
            Err(error) => Some(format!("{shown}: {error}")),
            Ok(()) => None,
        }
    };
    directories.iter().filter_map(problem).collect()
}

/// Whether a socket may be that of a node with this name in this cluster, as far as its own name tells.
pub fn may_be(path: &Path, cluster: Option<&str>, node: Option<&str>) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let mut parts = name.split('.');
    let mut fits = |wanted: Option<&str>| {
        let part = parts.next();
        wanted.is_none_or(|wanted| part == Some(&safe(wanted)))
    };
    let (cluster, node) = (fits(cluster), fits(node));
    cluster && node
}

fn sockets(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .take(MAX_FILES)
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .filter(|path| std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()))
        .collect()
}

/// Removes the sockets of processes that are gone.
fn remove_stale(directory: &Path) {
    for path in sockets(directory) {
        // A socket that is bound and not listened at yet refuses, too: its process lives.
        let is_stale = || process_of(&path).is_some_and(|pid| !is_alive(pid)) && is_dead(&path);
        if is_stale() {
            let _turn = Turn::take(&path);
            if is_stale() {
                let _ = std::fs::remove_file(&path);
            }
        }
    }
}

/// Whether this is a socket that nobody listens at. Connecting to a file of another kind is refused as well.
/// On other systems than Linux a full queue refuses, too: there the socket of a stopped process that many
/// have connected to looks dead.
fn is_dead(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    is_socket && matches!(connect_at_once(path), Err(Errno::CONNREFUSED))
}

/// Connects, or fails, without a wait. The queue of a process that is stopped may be full, and a connect that
/// blocks would wait there until that process runs again.
fn connect_at_once(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&socket, true)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// The process in the name of a socket.
fn process_of(path: &Path) -> Option<Pid> {
    let name = path.file_name()?.to_str()?;
    Pid::from_raw(name.split('.').nth(2)?.parse().ok()?)
}

fn is_alive(pid: Pid) -> bool {
    !matches!(test_kill_process(pid), Err(Errno::SRCH))
}

/// A name as it may be part of a file's name.
fn safe(name: &str) -> String {
    let kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let letters = name.chars().map(|c| if kept(c) { c } else { '_' });
    letters.take(NAME_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    #[cfg(target_os = "linux")]
    use std::sync::mpsc;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("antiphon-place-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn each_node_has_a_socket_of_its_own_that_goes_with_it() {
        let directory = scratch("own");
        let (_one, first) = listen_in(&directory, "tea", "a").unwrap();
        let (_two, second) = listen_in(&directory, "tea", "a").unwrap();
        let (_three, odd) = listen_in(&directory, "../ö", &"x".repeat(64)).unwrap();
        assert_eq!(sockets(&directory).len(), 3);
        assert_eq!(
            odd.path().parent(),
            Some(&*directory),
            "names do not lead elsewhere"
        );
        assert!(may_be(first.path(), Some("tea"), Some("a")) && may_be(first.path(), None, None));
        assert!(!may_be(first.path(), Some("tea"), Some("b")) && !may_be(first.path(), Some("a"), None));
        assert!(may_be(odd.path(), Some("../ö"), Some(&"x".repeat(64))));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&directory), mode(first.path())), (0o700, 0o600));
        let path = second.path().to_owned();
        drop(second);
        assert!(!path.exists() && first.path().exists());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_lives_is_not() {
        let directory = scratch("stale");
        prepare(&directory).unwrap();
        // No process has this number: it is above the highest that Linux gives.
        let stale = directory.join("tea.b.2000000000.sock");
        drop(UnixListener::bind(&stale).unwrap());
        // Of a living process that does not listen (yet).
        let quiet = directory.join(format!("tea.c.{}.sock", std::process::id()));
        drop(UnixListener::bind(&quiet).unwrap());
        let other = directory.join("notes.txt");
        std::fs::write(&other, "x").unwrap();
        let (_one, live) = listen_in(&directory, "tea", "a").unwrap();
        assert!(!stale.exists());
        assert!(quiet.exists() && other.exists() && live.path().exists());
        let (_two, replaced) = listen_at(&quiet).unwrap();
        assert!(
            listen_at(replaced.path()).is_err(),
            "one that is listened at is not replaced"
        );
        assert!(listen_at(&other).is_err() && other.exists());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn of_many_that_find_a_dead_socket_one_takes_its_place() {
        let directory = scratch("turns");
        prepare(&directory).unwrap();
        for round in 0..50 {
            let path = directory.join(format!("{round}.sock"));
            drop(UnixListener::bind(&path).unwrap());
            let start = std::sync::Barrier::new(4);
            let try_it = || {
                start.wait();
                listen_at(&path).ok()
            };
            let taken = std::thread::scope(|scope| {
                let tries = [(); 4].map(|()| scope.spawn(try_it));
                tries.map(|tried| tried.join().unwrap())
            });
            assert_eq!(taken.iter().flatten().count(), 1, "round {round}");
            assert!(!is_dead(&path), "round {round}");
            drop(taken);
            assert!(!path.exists());
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    // Elsewhere a full queue refuses.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_place_of_a_stopped_process_whose_queue_is_full_is_taken_and_not_waited_for() {
        let directory = scratch("full");
        prepare(&directory).unwrap();
        // Named as one whose process is gone, too, for those that look for such.
        let path = directory.join("tea.b.2000000000.sock");
        let listener = UnixListener::bind(&path).unwrap();
        // Linux takes the last word for how many may wait.
        rustix::net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        while let Ok(socket) = connect_at_once(&path) {
            waiting.push(socket);
            assert!(waiting.len() < 5000, "the queue has no end");
        }
        let (told, tries) = mpsc::channel();
        let tried = path.clone();
        std::thread::spawn(move || {
            let _ = told.send(listen_at(&tried).map(drop).map_err(|error| error.kind()));
            remove_stale(tried.parent().unwrap());
            let _ = told.send(Ok(()));
        });
        let within = Duration::from_secs(10);
        assert_eq!(tries.recv_timeout(within), Ok(Err(io::ErrorKind::AddrInUse)));
        assert_eq!(tries.recv_timeout(within), Ok(Ok(())));
        assert!(path.exists(), "its process lives");
        drop(listener);
        assert!(listen_at(&path).is_ok(), "and now it does not");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_node_that_ends_leaves_the_socket_of_one_that_has_its_place() {
        let directory = scratch("place");
        prepare(&directory).unwrap();
        let path = directory.join("x.sock");
        let (_one, first) = listen_at(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (_two, second) = listen_at(&path).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let directory = scratch("open");
        prepare(&directory).unwrap();
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = listen_in(&directory, "tea", "a").unwrap_err();
        assert!(error.to_string().contains("755"), "{error}");
        std::fs::remove_dir_all(&directory).unwrap();
        let elsewhere = scratch("elsewhere");
        prepare(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &directory).unwrap();
        let error = listen_in(&directory, "tea", "a").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        std::fs::remove_file(&directory).unwrap();
        std::fs::remove_dir_all(&elsewhere).unwrap();
    }
}
