//! What a conductor and its workers say to each other: JSON, one object a line. Both ends are this program.

use std::net::SocketAddr;
use std::path::PathBuf;

use antiphon::TransportCounters;
use antiphon::config::Patience;
use antiphon::{Dissemination, Order, Profile, TotalEngine, Transport};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The first line to a worker: the node it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::bench) struct Setup {
    pub(in crate::bench) cluster: String,
    pub(in crate::bench) name: String,
    pub(in crate::bench) bind: SocketAddr,
    pub(in crate::bench) seeds: Vec<SocketAddr>,
    /// How many members the group has when it is complete.
    pub(in crate::bench) members: usize,
    pub(in crate::bench) order: Order,
    pub(in crate::bench) engine: TotalEngine,
    pub(in crate::bench) dissemination: Dissemination,
    pub(in crate::bench) transport: Transport,
    pub(in crate::bench) max_datagram: Option<u16>,
    pub(in crate::bench) window_bytes: Option<u32>,
    /// Other than the library's.
    pub(in crate::bench) slow_after: Option<Patience>,
    pub(in crate::bench) profile: Profile,
    pub(in crate::bench) key_file: Option<PathBuf>,
    /// Made for this benchmark.
    pub(in crate::bench) key: Option<[u8; 32]>,
    pub(in crate::bench) insecure: bool,
    pub(in crate::bench) threads: u8,
    pub(in crate::bench) netns: Option<String>,
    /// Whether workers of other hosts are to be talked to.
    pub(in crate::bench) talks: bool,
    pub(in crate::bench) die_with: u32,
}

/// The lines to a worker after that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(in crate::bench) enum Ask {
    /// Measure; [`Say::Done`] answers.
    Measure {
        /// What.
        task: Task,
    },
    /// Tell the conductors of all nodes, one's own included.
    Tell {
        /// What.
        text: String,
    },
    /// Leave in order and end.
    Leave,
}

/// Something to measure. The first `senders` members of the group, by seniority, send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "snake_case")]
pub(in crate::bench) enum Task {
    /// As many messages as the group takes.
    Multicast {
        senders: usize,
        size: usize,
        safe: bool,
        warmup_ms: u64,
        measured_ms: u64,
    },
    /// As many messages as the group takes from all, while one member reads nothing of the measured time.
    Slow {
        size: usize,
        /// The member that stops, by seniority.
        stops: usize,
        /// Whether it stops reading, or is stopped as a whole by the conductor.
        how: Stop,
        warmup_ms: u64,
        measured_ms: u64,
    },
    /// Messages at fixed times.
    Latency {
        way: Way,
        senders: usize,
        size: usize,
        safe: bool,
        /// Bytes of the payloads that the first member sends all the time besides; 0 is none.
        bulk: usize,
        /// Between two messages of one sender.
        interval_ns: u64,
        warmup_ms: u64,
        measured_ms: u64,
    },
}

impl Task {
    /// How long it takes, warm-up included.
    pub(in crate::bench) fn whole_ms(&self) -> u64 {
        match self {
            Task::Multicast {
                warmup_ms,
                measured_ms,
                ..
            }
            | Task::Slow {
                warmup_ms,
                measured_ms,
                ..
            }
            | Task::Latency {
                warmup_ms,
                measured_ms,
                ..
            } => warmup_ms + measured_ms,
        }
    }
}

/// What stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stop {
    /// The application reads nothing; its node goes on.
    Reader,
    /// The process, as by SIGSTOP.
    Process,
}

impl Stop {
    /// As it is written.
    pub(in crate::bench) fn as_str(self) -> &'static str {
        match self {
            Stop::Reader => "reader",
            Stop::Process => "process",
        }
    }
}

/// What a latency is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::bench) enum Way {
    /// From the time a message was due until another member has it: needs one clock for both.
    One,
    /// From the time a message was due until its sender has the answer of the next member, a message of the
    /// group too.
    Round,
}

/// A line from a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(in crate::bench) enum Say {
    /// The group is complete, or was changed and is complete again.
    Complete {
        /// This node's place by seniority.
        rank: usize,
    },
    /// Every second of a measurement.
    Progress {
        /// Messages delivered in the last second.
        received: u64,
    },
    /// A measurement is over.
    Done { result: Done },
    /// What a conductor told all.
    Told { from: String, text: String },
    /// It cannot go on.
    Failed { reason: String },
}

/// What one node measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::bench) struct Done {
    pub(in crate::bench) name: String,
    pub(in crate::bench) rank: usize,
    /// How long it counted.
    pub(in crate::bench) seconds: f64,
    /// Messages it sent in that time.
    pub(in crate::bench) sent: u64,
    /// Messages it delivered in that time, its own included.
    pub(in crate::bench) received: u64,
    /// Their payload.
    pub(in crate::bench) bytes: u64,
    /// CPU time it took in that time, where the system tells.
    pub(in crate::bench) cpu_seconds: Option<f64>,
    /// Views that came in between: the figures are void.
    pub(in crate::bench) views: u64,
    /// The longest time in which it delivered nothing although it was meant to.
    #[serde(default)]
    pub(in crate::bench) silent_seconds: f64,
    /// Datagrams of the measurement and its warm-up.
    #[serde(default)]
    pub(in crate::bench) datagrams: Datagrams,
    /// What went in large payloads besides the messages.
    #[serde(default)]
    pub(in crate::bench) bulk_bytes_per_s: f64,
    /// Latencies of messages in nanoseconds, each with how many had it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::bench) latencies: Vec<(u64, u64)>,
}

/// Datagrams that carried parts of messages, and what became of frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::bench) struct Datagrams {
    /// Sent for the first time.
    pub(in crate::bench) sent: u64,
    /// Sent again because they were missing.
    pub(in crate::bench) repaired: u64,
    /// Frames that did not become whole.
    pub(in crate::bench) incomplete: u64,
    /// Frames dropped before they were sent, or when a path broke.
    pub(in crate::bench) dropped: u64,
}

impl Datagrams {
    pub(super) fn between(before: &TransportCounters, after: &TransportCounters) -> Self {
        Self {
            sent: after.segments_sent - before.segments_sent,
            repaired: after.segments_repaired - before.segments_repaired,
            incomplete: after.frames_incomplete - before.frames_incomplete,
            dropped: after.frames_dropped - before.frames_dropped,
        }
    }

    /// Of several nodes.
    pub(in crate::bench) fn sum(of: impl Iterator<Item = Self>) -> Self {
        of.fold(Self::default(), |sum, next| Self {
            sent: sum.sent + next.sent,
            repaired: sum.repaired + next.repaired,
            incomplete: sum.incomplete + next.incomplete,
            dropped: sum.dropped + next.dropped,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let ask = Ask::Measure {
            task: Task::Latency {
                way: Way::Round,
                senders: 1,
                size: 100,
                safe: true,
                bulk: 1 << 21,
                interval_ns: 5,
                warmup_ms: 1,
                measured_ms: 2,
            },
        };
        let line = serde_json::to_string(&ask).unwrap();
        assert_eq!(serde_json::from_str::<Ask>(&line).unwrap(), ask);
        let say = Say::Done {
            result: Done {
                latencies: vec![(7, 1)],
                ..Done::default()
            },
        };
        let line = serde_json::to_string(&say).unwrap();
        assert_eq!(serde_json::from_str::<Say>(&line).unwrap(), say);
    }
}
