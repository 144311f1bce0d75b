//! The hot loops of `bench multicast` and `bench slow`: one that sends, one that receives. Nothing else of
//! the benchmark runs per message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use antiphon::{Group, GroupSender, Run, SendError};
use tokio::time::Instant;

use super::Failed;
use super::words::Done;
use crate::usage;

/// After the end, so that the last member to end is measured under the same load as the first.
const RUN_ON: Duration = Duration::from_millis(300);

/// What to do.
pub(super) struct Load {
    pub(super) sends: bool,
    /// Whether it reads in the measured time.
    pub(super) reads: bool,
    pub(super) size: usize,
    pub(super) safe: bool,
    pub(super) warmup: Duration,
    pub(super) measured: Duration,
}

/// Counts deliveries at this member over the measured time, while it sends all it can if it is one that
/// sends.
pub(super) async fn run(
    group: &mut Group,
    load: &Load,
    mut progress: impl FnMut(u64),
) -> Result<Done, Failed> {
    let sending = load.sends.then(|| Sending::start(group.sender(), load));
    let sent = || sending.as_ref().map_or(0, |sending| sending.sent.load(Relaxed));
    let begins = Instant::now() + load.warmup;
    let ends = begins + load.measured;
    let mut counted = Counted::default();

    receive(group, begins, &mut counted, &mut progress).await?;
    let (sent_before, cpu_before, from) = (sent(), usage::own_cpu(), Instant::now());
    counted = Counted::default();
    if load.reads {
        receive(group, ends, &mut counted, &mut progress).await?;
    } else {
        tokio::time::sleep_until(ends).await;
    }
    let done = Done {
        seconds: from.elapsed().as_secs_f64(),
        sent: sent() - sent_before,
        received: counted.messages,
        bytes: counted.bytes,
        cpu_seconds: usage::between(cpu_before, usage::own_cpu()),
        views: counted.views,
        silent_seconds: counted.silent.as_secs_f64(),
        ..Done::default()
    };
    receive(group, ends + RUN_ON, &mut counted, &mut progress).await?;
    Ok(done)
}

#[derive(Default)]
struct Counted {
    messages: u64,
    bytes: u64,
    views: u64,
    silent: Duration,
}

/// Receives and counts until then.
async fn receive(
    group: &mut Group,
    until: Instant,
    counted: &mut Counted,
    progress: &mut impl FnMut(u64),
) -> Result<(), Failed> {
    let second = Duration::from_secs(1);
    let (mut tick, mut at_tick) = (Instant::now() + second, counted.messages);
    let (mut heard, mut at_heard) = (Instant::now(), counted.messages);
    loop {
        let now = Instant::now();
        if counted.messages > at_heard || now >= until {
            counted.silent = counted.silent.max(now - heard);
            (heard, at_heard) = (now, counted.messages);
        }
        if now >= until {
            return Ok(());
        }
        if now >= tick {
            progress(counted.messages - at_tick);
            (tick, at_tick) = (tick + second, counted.messages);
        }
        // Nothing may come for long: then the clock is looked at again at the next tick. No event is lost by
        // that.
        match tokio::time::timeout_at(tick.min(until), group.next_run()).await {
            Ok(Some(Run::Messages(messages))) => {
                counted.messages += messages.len() as u64;
                counted.bytes += messages.payloads().map(<[u8]>::len).sum::<usize>() as u64;
            }
            Ok(Some(_)) => counted.views += 1,
            Ok(None) => {
                return Err(Failed::run(
                    "the node was stopped or refused in the middle of a measurement",
                ));
            }
            Err(_) => {}
        }
    }
}

/// The task that sends; it ends when this is dropped.
struct Sending {
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Sending {
    fn start(sender: GroupSender, load: &Load) -> Self {
        let (sent, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let payload = vec![b'x'; load.size];
        if load.safe {
            tokio::spawn(send_safe(sender, payload, sent.clone(), stop.clone()));
        } else {
            tokio::spawn(send(sender, payload, sent.clone(), stop.clone()));
        }
        Self { sent, stop }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

async fn send(sender: GroupSender, payload: Vec<u8>, sent: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    while !stop.load(Relaxed) {
        let result = match sender.try_send(&payload) {
            Err(SendError::Full) => sender.send(&payload).await,
            result => result,
        };
        match result {
            Ok(_) => sent.fetch_add(1, Relaxed),
            // The receiving loop sees why.
            Err(_) => return,
        };
    }
}

async fn send_safe(sender: GroupSender, payload: Vec<u8>, sent: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    while !stop.load(Relaxed) {
        let result = match sender.try_send_safe(&payload) {
            Err(SendError::Full) => sender.send_safe(&payload).await,
            result => result,
        };
        match result {
            Ok(_) => sent.fetch_add(1, Relaxed),
            // The receiving loop sees why.
            Err(_) => return,
        };
    }
}
