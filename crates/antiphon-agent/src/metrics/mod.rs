//! What an agent counts, and what it and its node measure, for Prometheus.
//!
//! ```text
//!   sessions, connections ── count ──► Meters ─┐
//!   node's events ── follow ──► Meters         ├─► read: each family of FAMILIES ─► page ─► GET /metrics
//!   node's own status, asked when it is read ──┘
//! ```
//! Labels are words of this program: nothing that a client, a key, a group or a peer is called stands in one,
//! so the number of series does not grow with what programs do. `docs/metrics.md` lists the families.

mod families;
mod page;
mod read;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use antiphon::{Cluster, ClusterEvent, NodeView};
use antiphon_api::blocks::{Code, Failure};

pub(crate) use self::page::CONTENT_TYPE;
pub(crate) use self::read::read;

/// A word of a fixed list, as the value of a label.
pub(crate) trait Label: Copy + 'static {
    const ALL: &'static [Self];
    fn text(self) -> &'static str;
    fn index(self) -> usize;
}

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($variant),* }

        impl Label for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),*];

            fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    )*};
}

labels! {
    /// How a connection speaks.
    Carrier { Lines = "lines", Http = "http", WebSocket = "websocket", Resp = "resp" }
    /// Why a connection was not served.
    Refused {
        Full = "full",
        Strangers = "strangers",
        User = "user",
        Silent = "silent",
        Unspoken = "unspoken",
        Plain = "plain",
        Handshake = "handshake",
    }
    /// What was wrong with what a connection showed.
    Failed { Missing = "missing", Wrong = "wrong", Certificate = "certificate" }
    /// What a slow client was removed from.
    Removal { Group = "group", Node = "node" }
    /// How a reload went.
    Reload { Done = "done", Kept = "kept" }
    /// How a member was gone.
    Gone { Left = "left", Removed = "removed" }
}

/// A counter for each word of a list.
#[derive(Debug)]
pub(crate) struct Counts<L> {
    counts: Vec<AtomicU64>,
    of: PhantomData<L>,
}

impl<L: Label> Default for Counts<L> {
    fn default() -> Self {
        Self {
            counts: L::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            of: PhantomData,
        }
    }
}

impl<L: Label> Counts<L> {
    fn add(&self, label: L, count: u64) {
        self.counts[label.index()].fetch_add(count, Ordering::Relaxed);
    }

    fn subtract(&self, label: L) {
        self.counts[label.index()].fetch_sub(1, Ordering::Relaxed);
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = L::ALL.iter().zip(&self.counts);
        all.map(|(label, count)| (label.text(), count.load(Ordering::Relaxed)))
    }
}

/// What is counted while an agent runs.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    open: Counts<Carrier>,
    opened: Counts<Carrier>,
    refused: Counts<Refused>,
    failed: Counts<Failed>,
    slow: Counts<Removal>,
    reloads: Counts<Reload>,
    departed: Counts<Gone>,
    joined: AtomicU64,
    views: AtomicU64,
    incarnations: AtomicU64,
    messages: AtomicU64,
    malformed: AtomicU64,
    local_reads: AtomicU64,
    /// By command and outcome: both are words of this program.
    operations: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

impl Meters {
    /// A connection is served, as long as what this gives is there.
    pub(crate) fn connected(self: &Arc<Self>, carrier: Carrier) -> Connected {
        self.open.add(carrier, 1);
        self.opened.add(carrier, 1);
        Connected {
            meters: self.clone(),
            carrier,
        }
    }

    pub(crate) fn refused(&self, why: Refused) {
        self.refused.add(why, 1);
    }

    pub(crate) fn denied(&self, why: Failed) {
        self.failed.add(why, 1);
    }

    /// A client was removed because it did not read.
    pub(crate) fn slow(&self, from: Removal) {
        self.slow.add(from, 1);
    }

    pub(crate) fn reloaded(&self, how: Reload) {
        self.reloads.add(how, 1);
    }

    /// An operation was replied to.
    pub(crate) fn replied(&self, op: &'static str, error: Option<&Failure>) {
        let outcome = error.map_or("done", |failure| word(failure.code));
        let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        *operations.entry((op, outcome)).or_default() += 1;
    }

    /// A client's message was taken.
    pub(crate) fn said(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    /// A command made no sense.
    pub(crate) fn malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// A command read this node's copy of a map, and is no operation.
    pub(crate) fn read_here(&self) {
        self.local_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what happens to the node, until it ends.
    pub(crate) async fn follow(self: Arc<Self>, cluster: Cluster) {
        let mut events = cluster.events();
        while let Some(event) = events.next().await {
            match event {
                ClusterEvent::View(view) => self.changed(&view),
                ClusterEvent::Incarnation(_) => {
                    self.incarnations.fetch_add(1, Ordering::Relaxed);
                }
                // Some were missed: what follows is counted.
                ClusterEvent::Overrun => events = cluster.history().1,
                _ => {}
            }
        }
    }

    fn changed(&self, view: &NodeView) {
        self.views.fetch_add(1, Ordering::Relaxed);
        self.joined.fetch_add(view.joined.len() as u64, Ordering::Relaxed);
        for departure in &view.departed {
            let how = match departure.cause {
                antiphon::Cause::Left => Gone::Left,
                _ => Gone::Removed,
            };
            self.departed.add(how, 1);
        }
    }
}

/// A connection that is served.
#[derive(Debug)]
pub(crate) struct Connected {
    meters: Arc<Meters>,
    carrier: Carrier,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.meters.open.subtract(self.carrier);
    }
}

/// A code as it stands in replies.
fn word(code: Code) -> &'static str {
    match code {
        Code::Conflict => "conflict",
        Code::Timeout => "timeout",
        Code::Cancelled => "cancelled",
        Code::NotHeld => "not_held",
        Code::Lost => "lost",
        Code::Unavailable => "unavailable",
        Code::Refused => "refused",
        Code::Unknown => "unknown",
        Code::Failed => "failed",
        _ => "other",
    }
}

#[cfg(test)]
mod tests;
