//! The loops of `bench latency`: a thread that sends at fixed times, and a task that takes the times of what
//! arrives.
//!
//! A message carries the time at which it was *due*, not the time at which it was sent. If the cluster stands
//! still, the messages that pile up meanwhile are late from their due time on, and count so (no coordinated
//! omission). A thread of its own keeps the times, since the runtime's timers are accurate to a millisecond
//! only.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use antiphon::{Event, Group, GroupSender, Message, Outcome, SendError};
use bytes::{Bytes, BytesMut};
use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::Failed;
use super::words::{Done, Way};
use crate::usage;

/// Events taken at a time.
const BATCH: usize = 256;
/// After the end: answers that are on their way still count.
const RUN_ON: Duration = Duration::from_millis(300);
/// Between two tries when the group takes no message.
const RETRY: Duration = Duration::from_micros(50);
/// Kind, rank of the sender, due time.
pub(super) const MIN_SIZE: usize = 1 + 2 + 8;

const QUESTION: u8 = 1;
const ANSWER: u8 = 2;

/// What to do.
pub(super) struct Pace {
    pub(super) way: Way,
    pub(super) rank: usize,
    pub(super) members: usize,
    pub(super) senders: usize,
    pub(super) size: usize,
    pub(super) safe: bool,
    /// Bytes of the payloads that the first member sends besides; 0 is none.
    pub(super) bulk: usize,
    pub(super) interval: Duration,
    pub(super) warmup: Duration,
    pub(super) measured: Duration,
}

/// Nanoseconds on the clock that all processes of this host share.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Never negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Takes latencies of messages due in the measured time.
pub(super) async fn run(
    group: &mut Group,
    pace: &Pace,
    mut progress: impl FnMut(u64),
) -> Result<Done, Failed> {
    let sending = (pace.rank < pace.senders).then(|| Sending::start(group.sender(), pace));
    let bulk = (pace.bulk > 0 && pace.rank == 0).then(|| Bulk::start(group.sender(), pace.bulk));
    let answers = group.sender();
    let from_ns = now_ns() + pace.warmup.as_nanos() as u64;
    let to_ns = from_ns + pace.measured.as_nanos() as u64;
    let ends = Instant::now() + pace.warmup + pace.measured;
    let until = ends + RUN_ON;
    let second = Duration::from_secs(1);
    let mut tick = Instant::now() + second;
    let mut since_tick = 0;
    let cpu_before = usage::own_cpu();
    let began = Instant::now();
    let mut done = Done {
        seconds: pace.measured.as_secs_f64(),
        ..Done::default()
    };
    // From a microsecond to a minute, to three digits; what takes longer counts as a minute.
    let mut histogram = Histogram::<u64>::new_with_bounds(1_000, 60_000_000_000, 3)
        .map_err(|error| Failed::run(format!("histogram: {error}")))?;
    let mut events = Vec::with_capacity(BATCH);
    while Instant::now() < until {
        if Instant::now() >= tick {
            progress(since_tick);
            (tick, since_tick) = (tick + second, 0);
        }
        let Ok(taken) = tokio::time::timeout_at(tick.min(until), group.next_batch(&mut events, BATCH)).await
        else {
            continue;
        };
        if taken == 0 {
            return Err(Failed::run(
                "the node was stopped or refused in the middle of a measurement",
            ));
        }
        let arrived_ns = now_ns();
        for event in events.drain(..) {
            let Event::Message(message) = event else {
                done.views += 1;
                continue;
            };
            since_tick += 1;
            let Some(stamp) = Stamp::read(&message) else {
                continue;
            };
            let counts = match pace.way {
                Way::One => stamp.kind == QUESTION && message.ticket.is_none(),
                Way::Round => stamp.kind == ANSWER && stamp.rank == pace.rank,
            };
            if counts && (from_ns..to_ns).contains(&stamp.due_ns) {
                done.received += 1;
                done.bytes += message.payload.len() as u64;
                histogram.saturating_record(arrived_ns.saturating_sub(stamp.due_ns).max(1_000));
            }
            let asked = pace.way == Way::Round && stamp.kind == QUESTION;
            if asked && (stamp.rank + 1) % pace.members == pace.rank {
                let answer = Stamp {
                    kind: ANSWER,
                    ..stamp
                };
                // Refused only if the group is over, which the next batch tells.
                let answer = answer.write(pace.size);
                let _ = if pace.safe {
                    answers.send_safe(answer).await.map(drop)
                } else {
                    answers.send(answer).await.map(drop)
                };
            }
        }
    }
    done.bulk_bytes_per_s = bulk.map_or(0.0, |bulk| {
        bulk.bytes.load(Relaxed) as f64 / began.elapsed().as_secs_f64()
    });
    done.sent = sending.map_or(0, |sending| sending.sent.load(Relaxed));
    // The CPU time of the whole, as a share of the measured part.
    done.cpu_seconds = usage::between(cpu_before, usage::own_cpu())
        .map(|cpu| cpu * done.seconds / began.elapsed().as_secs_f64());
    done.latencies = histogram
        .iter_recorded()
        .map(|step| (step.value_iterated_to(), step.count_at_value()))
        .collect();
    Ok(done)
}

/// A task that sends large payloads, each as soon as the one before is delivered, until it is dropped.
struct Bulk {
    bytes: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Bulk {
    fn start(sender: GroupSender, size: usize) -> Self {
        let bytes = Arc::new(AtomicU64::new(0));
        let delivered = bytes.clone();
        let payload = Bytes::from(vec![0; size]);
        let task = tokio::spawn(async move {
            // Refused only if the group is over, which the reader of its events finds out.
            while let Ok(receipt) = sender.send_bytes(payload.clone()).await {
                if receipt.delivered().await == Outcome::Delivered {
                    delivered.fetch_add(payload.len() as u64, Relaxed);
                }
            }
        });
        Self { bytes, task }
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What every message of this benchmark begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    kind: u8,
    /// The rank of the member that asks.
    rank: usize,
    /// On the clock of the member that asks.
    due_ns: u64,
}

impl Stamp {
    fn write(self, size: usize) -> Bytes {
        let mut payload = BytesMut::zeroed(size.max(MIN_SIZE));
        payload[0] = self.kind;
        // At most 100 nodes, so it fits.
        payload[1..3].copy_from_slice(&(self.rank as u16).to_le_bytes());
        payload[3..11].copy_from_slice(&self.due_ns.to_le_bytes());
        payload.freeze()
    }

    fn read(message: &Message) -> Option<Self> {
        let (kind, rest) = message.payload.split_first()?;
        let (rank, rest) = rest.split_first_chunk::<2>()?;
        let due_ns = rest.first_chunk::<8>()?;
        Some(Self {
            kind: *kind,
            rank: u16::from_le_bytes(*rank).into(),
            due_ns: u64::from_le_bytes(*due_ns),
        })
    }
}

/// The thread that sends; it ends soon after this is dropped.
struct Sending {
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Sending {
    fn start(sender: GroupSender, pace: &Pace) -> Self {
        let (sent, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let interval_ns = pace.interval.as_nanos() as u64;
        // Senders take turns within an interval: together they send evenly.
        let first_ns = now_ns() + interval_ns * pace.rank as u64 / pace.senders.max(1) as u64;
        let whole_ns = (pace.warmup + pace.measured).as_nanos() as u64;
        let (rank, size, safe) = (pace.rank, pace.size, pace.safe);
        std::thread::spawn({
            let (sent, stop) = (sent.clone(), stop.clone());
            move || {
                #[cfg(target_os = "linux")]
                // Wakes on time instead of 50 µs late; without it (refused by nobody) only less exact.
                let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
                let last_ns = first_ns + whole_ns;
                let mut due_ns = first_ns;
                while due_ns < last_ns && !stop.load(Relaxed) {
                    let now = now_ns();
                    if now < due_ns {
                        std::thread::sleep(Duration::from_nanos(due_ns - now));
                        continue;
                    }
                    let stamp = Stamp {
                        kind: QUESTION,
                        rank,
                        due_ns,
                    };
                    let question = stamp.write(size);
                    let sent_now = if safe {
                        sender.try_send_safe(question).map(drop)
                    } else {
                        sender.try_send(question).map(drop)
                    };
                    match sent_now {
                        Ok(()) => {
                            sent.fetch_add(1, Relaxed);
                            due_ns += interval_ns;
                        }
                        Err(SendError::Full) => std::thread::sleep(RETRY),
                        // The receiving loop sees why.
                        Err(_) => return,
                    }
                }
            }
        });
        Self { sent, stop }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}
