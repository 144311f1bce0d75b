//! The service manager of an agent: what the manager hands over, and what it is told. The protocols are those
//! of systemd, as sd_listen_fds(3) and sd_notify(3) have them. Without a manager nothing of this happens.
//!
//! ```text
//!   LISTEN_FDS ─► sockets that listen already
//!   STATUS=… ◄── each view      READY=1 ◄── first primary view, and programs are served
//!   WATCHDOG=1 ◄── the node has answered a question in time
//!   RELOADING=1, READY=1 ◄── SIGHUP      STOPPING=1 ◄── it leaves
//! ```
//! An answer of the driver feeds the watchdog, through the same threads that serve programs. If the driver or
//! these threads hang, the manager hears nothing and ends the process.

use std::env::var;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use antiphon::{Cluster, ClusterEvent, NodeView, Observer};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::exit::Failed;

/// Sockets that may be handed over.
const MAX_SOCKETS: usize = 64;
/// A node is not asked more often for the watchdog.
const SHORTEST_BEAT: Duration = Duration::from_millis(10);

/// What hears of this process, if anything does.
#[derive(Debug)]
pub(super) struct Manager {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// It ends this process if it hears nothing for this long.
    watchdog: Option<Duration>,
    is_ready: AtomicBool,
}

impl Manager {
    /// The one that the environment names.
    pub(super) fn of_environment() -> Result<Self, Failed> {
        let to = match var("NOTIFY_SOCKET").ok().filter(|name| !name.is_empty()) {
            None => None,
            Some(name) => Some(socket(&name).map_err(|error| {
                Failed::usage(format!(
                    "NOTIFY_SOCKET={name}: {error}; expected the path of a datagram socket, or @ and a name"
                ))
            })?),
        };
        Ok(Self {
            to,
            watchdog: watchdog(var("WATCHDOG_USEC").ok(), var("WATCHDOG_PID").ok()),
            is_ready: AtomicBool::new(false),
        })
    }

    /// Tells the manager of a node that serves programs, until the node ends.
    pub(super) async fn attend(&self, cluster: Cluster) {
        if self.to.is_none() {
            return;
        }
        let observer = cluster.observer();
        let mut events = cluster.events();
        drop(cluster);
        self.say("STATUS=looks for its cluster");
        let beat = self.watchdog.map(|within| (within / 2).max(SHORTEST_BEAT));
        // Without a watchdog it never ticks.
        let each = beat.unwrap_or(Duration::from_secs(3600));
        let mut beats = interval_at(Instant::now(), each);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(ClusterEvent::View(view)) => self.changed(&view),
                    Some(ClusterEvent::Overrun) => events = observer.history().1,
                    Some(_) => {}
                    None => return,
                },
                _ = beats.tick(), if beat.is_some() => self.beat(&observer, each).await,
            }
        }
    }

    fn changed(&self, view: &NodeView) {
        let (members, number) = (view.members.len(), view.number);
        let status = match view.is_primary() {
            true => format!("STATUS=in view {number}, of {members} nodes"),
            false => format!("STATUS=without a majority, with {members} nodes: see `antiphon members`"),
        };
        match view.is_primary() && !self.is_ready.swap(true, Ordering::Relaxed) {
            true => self.say(&format!("READY=1\n{status}")),
            false => self.say(&status),
        }
    }

    async fn beat(&self, observer: &Observer, within: Duration) {
        if timeout(within, observer.examine())
            .await
            .is_ok_and(|answer| answer.is_ok())
        {
            self.say("WATCHDOG=1");
        }
    }

    /// What is configured is read again.
    pub(super) fn reloading(&self) {
        if self.is_ready.load(Ordering::Relaxed) {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
            self.say(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
        }
    }

    /// It was read, or not.
    pub(super) fn reloaded(&self) {
        if self.is_ready.load(Ordering::Relaxed) {
            self.say("READY=1");
        }
    }

    /// The node leaves.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=leaves its cluster");
    }

    /// A manager that does not read is not waited for.
    fn say(&self, lines: &str) {
        if let Some((socket, to)) = &self.to
            && let Err(error) = socket.send_to_addr(lines.as_bytes(), to)
        {
            tracing::debug!(target: "antiphon::agent", %error, lines, "the service manager was not told");
        }
    }
}

fn socket(name: &str) -> io::Result<(UnixDatagram, SocketAddr)> {
    let to = match name.strip_prefix('@') {
        None if name.starts_with('/') => SocketAddr::from_pathname(name)?,
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt as _;
            SocketAddr::from_abstract_name(name)?
        }
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, to))
}

/// How long the manager waits, if it waits for this process.
fn watchdog(micros: Option<String>, pid: Option<String>) -> Option<Duration> {
    let is_for_this = pid.is_none_or(|pid| pid == std::process::id().to_string());
    let micros = micros?.parse::<u64>().ok().filter(|micros| *micros > 0)?;
    is_for_this.then(|| Duration::from_micros(micros))
}

/// The sockets that a manager has handed to this process. Must be called once, before the process opens any
/// file: what it opens then has the numbers that are left.
pub(super) fn sockets() -> Result<Vec<OwnedFd>, Failed> {
    let own = std::process::id().to_string();
    match (var("LISTEN_FDS"), var("LISTEN_PID")) {
        (Ok(count), Ok(pid)) if pid == own => take(&count),
        // None, or for another process.
        _ => Ok(Vec::new()),
    }
}

#[cfg(target_os = "linux")]
fn take(count: &str) -> Result<Vec<OwnedFd>, Failed> {
    use std::os::fd::FromRawFd as _;
    const FIRST: i32 = 3;
    let wrong = |what: &str| Failed::usage(format!("LISTEN_FDS={count}: {what}"));
    let many = count.parse::<usize>().ok().filter(|many| *many <= MAX_SOCKETS);
    let many = many.ok_or_else(|| wrong(&format!("expected a number, of {MAX_SOCKETS} at most")))?;
    let numbers = FIRST..FIRST + many as i32;
    if let Some(missing) = numbers
        .clone()
        .find(|number| !std::path::Path::new(&format!("/proc/self/fd/{number}")).exists())
    {
        return Err(wrong(&format!("file {missing} is not open")));
    }
    let mut sockets = Vec::new();
    for number in numbers {
        // SAFETY: it is open, and by the manager's word it is this process's alone: nothing here has opened a
        // file before. No safe call takes a number from an environment.
        #[allow(unsafe_code)]
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| wrong(&error.to_string()))?;
        sockets.push(socket);
    }
    Ok(sockets)
}

#[cfg(not(target_os = "linux"))]
fn take(_: &str) -> Result<Vec<OwnedFd>, Failed> {
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_of_this_process_and_of_a_time_that_is_one() {
        let some = |text: &str| Some(text.to_owned());
        let own = std::process::id().to_string();
        assert_eq!(watchdog(some("1500000"), None), Some(Duration::from_millis(1500)));
        assert_eq!(
            watchdog(some("1500000"), Some(own)),
            Some(Duration::from_millis(1500))
        );
        for (micros, pid) in [
            (None, None),
            (some("0"), None),
            (some("x"), None),
            (some("1"), some("1")),
        ] {
            assert_eq!(watchdog(micros, pid), None);
        }
    }

    #[test]
    fn a_socket_of_a_manager_is_a_path_or_an_abstract_name() {
        assert!(socket("/run/x").is_ok() && socket("@x").is_ok());
        assert!(socket("x").is_err() && socket("vsock:2:1").is_err());
    }
}
