//! What was refused, logged once in a while: a host that floods the port must not flood the log as well.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use antiphon_wire::datagram::DatagramError;
use antiphon_wire::frame::OpenError;
use antiphon_wire::stream::StreamError;

/// Between two lines of one cause.
const QUIET: Duration = Duration::from_secs(5);

/// Counts refusals and logs each cause at most every five seconds. Clones count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    count: AtomicU64,
    causes: Mutex<BTreeMap<&'static str, Cause>>,
}

#[derive(Debug)]
struct Cause {
    logged: Instant,
    suppressed: u64,
}

impl Refusals {
    pub(crate) fn count(&self) -> u64 {
        self.shared.count.load(Ordering::Relaxed)
    }

    /// The core refused a frame.
    pub(crate) fn frame(&self, remote: SocketAddr, error: OpenError) {
        let (cause, text) = match error {
            OpenError::NotAFrame => ("not-a-frame", "it sent something that is no frame of this protocol".to_owned()),
            OpenError::Version(version) => (
                "wire-version",
                format!(
                    "it speaks wire version {version}, which this build does not: update whichever side is older"
                ),
            ),
            OpenError::OtherCluster => ("other-cluster", "it belongs to a cluster of another name".to_owned()),
            OpenError::Key => (
                "wrong-key",
                "it uses another cluster key, or one side has a key and the other has none: give both the same \
                 --key-file"
                    .to_owned(),
            ),
            OpenError::BadTag => ("bad-tag", "a frame was damaged or forged, or sealed with another key".to_owned()),
            _ => ("refused", format!("{error:?}")),
        };
        self.note(cause, remote, &text);
    }

    /// The bytes were no stream of frames.
    pub(crate) fn stream(&self, remote: SocketAddr, error: &StreamError) {
        self.note("not-a-stream", remote, &error.to_string());
    }

    /// A program spoke, and took this port for an agent's.
    pub(crate) fn program(&self, remote: SocketAddr) {
        let text = "a program speaks at this node's port: it should connect to an agent's --listen";
        self.note("program", remote, text);
    }

    /// A datagram was none of ours. Any host can send those: they are no connections, and counted elsewhere.
    pub(crate) fn datagram(&self, remote: SocketAddr, error: &DatagramError) {
        if let Some(suppressed) = self.may_log("not-a-datagram") {
            tracing::warn!(target: "antiphon::net", %remote, suppressed, "datagram refused: {error}");
        }
    }

    pub(crate) fn slow(&self, remote: SocketAddr, within: Duration) {
        self.note(
            "slow",
            remote,
            &format!("it brought no authentic frame within {} s", within.as_secs_f32()),
        );
    }

    pub(crate) fn limit(&self, remote: SocketAddr, limit: &'static str) {
        self.note(limit, remote, "there are too many connections");
    }

    fn note(&self, cause: &'static str, remote: SocketAddr, text: &str) {
        self.shared.count.fetch_add(1, Ordering::Relaxed);
        if let Some(suppressed) = self.may_log(cause) {
            tracing::warn!(target: "antiphon::net", %remote, cause, suppressed, "connection refused: {text}");
        }
    }

    /// The settings forbid this dial; no other node is refused.
    pub(crate) fn not_loopback(&self, to: SocketAddr) {
        if let Some(suppressed) = self.may_log("not-loopback") {
            tracing::error!(
                target: "antiphon::net", %to, suppressed,
                "not dialled: without a key only loopback addresses are; give --key-file, or --insecure if the network is trusted"
            );
        }
    }

    /// The system did not hand over a connection. Most likely its dialler has given up meanwhile.
    pub(crate) fn not_accepted(&self, error: &io::Error) {
        if let Some(suppressed) = self.may_log("not-accepted") {
            tracing::warn!(target: "antiphon::net", %error, suppressed, "cannot accept a connection");
        }
    }

    /// How many lines of this cause were not written since the last line, if one may be written now.
    fn may_log(&self, cause: &'static str) -> Option<u64> {
        let now = Instant::now();
        let mut causes = self.shared.causes.lock().unwrap_or_else(PoisonError::into_inner);
        match causes.get_mut(cause) {
            Some(seen) if now.duration_since(seen.logged) < QUIET => {
                seen.suppressed += 1;
                None
            }
            Some(seen) => {
                let suppressed = std::mem::take(&mut seen.suppressed);
                seen.logged = now;
                Some(suppressed)
            }
            None => {
                causes.insert(
                    cause,
                    Cause {
                        logged: now,
                        suppressed: 0,
                    },
                );
                Some(0)
            }
        }
    }
}
