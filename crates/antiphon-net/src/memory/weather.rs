//! What lies between the nodes of a [`MemoryNetwork`]: time, loss, cuts; all of it by one seed.
//!
//! ```text
//!   send ─► fate: lost, or due at … ─► agenda ─► carry: waits until something is due ─► hub: arrives
//! ```
//! Without it frames arrive at once. With it each direction between two addresses has a [`Path`]. On a path
//! frames of one class, and what a lifeline carries, arrive in the order in which they were sent, as over
//! TCP. Loss takes frames and probes. It takes nothing from a lifeline, because the kernel sends again: the
//! bytes come later by [`SENT_AGAIN_AFTER`] for each time they are lost.
//!
//! A cut loses frames, those under way included. It holds back what a lifeline carries, its end included,
//! until the path works again.
//!
//! Time is the time of the tokio runtime [`Weather::carry`] runs on, in whole milliseconds, like the
//! runtime's timers. On a runtime with one thread whose clock is paused, all that happens is a function of
//! the seed and of what the nodes do. [`Weather::fingerprint`] tells two runs apart that differ in a bit.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::{Class, LifelineEvent, PathTrouble};
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::MemoryNetwork;
use super::hub::{Delivery, EndpointId, Hub};

/// One direction between two addresses.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// How long a frame takes; each its own time, in whole milliseconds, at least one.
    pub latency: RangeInclusive<Duration>,
    /// This part of the frames is lost, from 0.0 to 1.0.
    pub loss: f64,
    /// Nothing passes.
    pub cut: bool,
}

impl Default for Path {
    /// 1 to 2 ms, no loss.
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(1)..=Duration::from_millis(2),
            loss: 0.0,
            cut: false,
        }
    }
}

/// A [`MemoryNetwork`] on which frames take time and may be lost. Clones are the same network.
#[derive(Debug, Clone)]
pub struct Weather {
    network: MemoryNetwork,
    /// Something may be due earlier than before.
    sooner: Arc<Notify>,
}

/// Nothing under way stays longer than this on a path that works.
pub const MAX_LATENCY: Duration = Duration::from_secs(60);
/// After how long a kernel repeats what a lifeline lost.
pub const SENT_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// A lifeline loses the same bytes at most this often.
const MOST_TRIES: u32 = 8;
/// How long the writer of a lifeline waits for an answer, as over TCP.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(2);
/// After how long a node with a full queue is told again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Frames that may be under way in the whole network; more are lost.
const MAX_UNDER_WAY: usize = 1 << 16;

impl Weather {
    /// A network without nodes. Nothing arrives unless [`Weather::carry`] runs.
    pub fn new(seed: u64) -> Self {
        let network = MemoryNetwork::new();
        let sooner = Arc::new(Notify::new());
        network.lock().air = Some(Air::new(seed, sooner.clone()));
        Self { network, sooner }
    }

    /// Where nodes bind.
    pub fn network(&self) -> &MemoryNetwork {
        &self.network
    }

    /// Changes the path from one address to another.
    pub fn change(&self, from: SocketAddr, to: SocketAddr, change: impl FnOnce(&mut Path)) {
        let mut hub = self.network.lock();
        if let Some(air) = &mut hub.air {
            change(air.paths.entry((from, to)).or_default());
        }
        hub.clear_up();
    }

    /// All paths are as at first.
    pub fn clear(&self) {
        let mut hub = self.network.lock();
        if let Some(air) = &mut hub.air {
            air.paths.clear();
        }
        hub.clear_up();
    }

    /// Whether nothing passes from one address to the other.
    pub fn blocks(&self, from: SocketAddr, to: SocketAddr) -> bool {
        self.network.lock().blocks(from, to)
    }

    /// Ends the node at this address as a loss of power would: no other node is told, and nothing answers
    /// there until a node binds again. False if none is bound there.
    pub fn power_off(&self, addr: SocketAddr) -> bool {
        self.network.lock().power_off(addr)
    }

    /// A number from the seed.
    pub fn draw(&self) -> u64 {
        self.network.lock().air.as_mut().map_or(0, Air::draw)
    }

    /// Stands for all that has arrived or was lost so far: when, between which addresses, and each byte.
    pub fn fingerprint(&self) -> u64 {
        let hub = self.network.lock();
        hub.air.as_ref().map_or(0, |air| air.digest.finish())
    }

    /// Brings all frames to their destinations when their time has come; never returns. Time begins when this
    /// is first polled.
    pub async fn carry(&self) {
        let start = Instant::now();
        loop {
            let next = {
                let mut hub = self.network.lock();
                if let Some(air) = &mut hub.air {
                    air.start.get_or_insert(start);
                }
                hub.carry_due();
                hub.air.as_ref().and_then(Air::next_due)
            };
            tokio::select! {
                biased;
                () = self.sooner.notified() => {}
                () = until(next) => {}
            }
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// What arrives.
#[derive(Debug)]
pub(super) enum Parcel {
    Frame(Delivery),
    Probe {
        from: SocketAddr,
        to: SocketAddr,
        frame: Bytes,
    },
    /// Something of a lifeline may be read.
    Lifeline(u64),
    /// An endpoint hears of its own lifeline to this address.
    Answer {
        to: EndpointId,
        peer: SocketAddr,
        event: LifelineEvent,
        /// Only if this lifeline is still there.
        of: Option<u64>,
    },
    /// An endpoint hears that the endpoint at this address refuses it, or is gone.
    Trouble {
        to: EndpointId,
        peer: SocketAddr,
        trouble: PathTrouble,
        gone: Option<EndpointId>,
    },
}

/// What keeps its order, on each path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    Control,
    Bulk,
    Probes,
    Lifelines,
}

impl Lane {
    pub(super) fn of(class: Class) -> Self {
        match class {
            Class::Control => Lane::Control,
            Class::Bulk => Lane::Bulk,
        }
    }
}

/// All that is under way.
#[derive(Debug)]
pub(super) struct Air {
    start: Option<Instant>,
    paths: BTreeMap<(SocketAddr, SocketAddr), Path>,
    /// Hosts without power.
    pub(super) dark: BTreeSet<SocketAddr>,
    agenda: BTreeMap<(Duration, u64), Parcel>,
    /// When the last of each lane arrives.
    last: BTreeMap<(SocketAddr, SocketAddr, Lane), Duration>,
    next: u64,
    random: u64,
    digest: std::hash::DefaultHasher,
    sooner: Arc<Notify>,
}

impl Air {
    fn new(seed: u64, sooner: Arc<Notify>) -> Self {
        Self {
            start: None,
            paths: BTreeMap::new(),
            dark: BTreeSet::new(),
            agenda: BTreeMap::new(),
            last: BTreeMap::new(),
            next: 0,
            random: seed,
            digest: Default::default(),
            sooner,
        }
    }

    /// Since the start.
    pub(super) fn now(&self) -> Duration {
        self.start.map_or(Duration::ZERO, |start| start.elapsed())
    }

    fn next_due(&self) -> Option<Instant> {
        let ((due, _), _) = self.agenda.first_key_value()?;
        Some(self.start? + *due)
    }

    pub(super) fn pop_due(&mut self) -> Option<Parcel> {
        let now = self.now();
        let first = self.agenda.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub(super) fn blocks(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let dark = self.dark.contains(&from) || self.dark.contains(&to);
        dark || self.paths.get(&(from, to)).is_some_and(|path| path.cut)
    }

    /// When a frame or probe that is sent now arrives; `None` if it is lost.
    pub(super) fn arrival(&mut self, from: SocketAddr, to: SocketAddr, lane: Lane) -> Option<Duration> {
        let path = self.path(from, to);
        if self.agenda.len() >= MAX_UNDER_WAY || self.blocks(from, to) || self.is_lost(path.loss) {
            return None;
        }
        let at = self.now() + self.latency(&path);
        match lane {
            // Datagrams pass each other.
            Lane::Probes => Some(at),
            lane => Some(self.behind((from, to, lane), at)),
        }
    }

    /// When bytes that are written to a lifeline arrive. Lost bytes are sent again.
    pub(super) fn stream_arrival(&mut self, from: SocketAddr, to: SocketAddr) -> Duration {
        let path = self.path(from, to);
        let mut at = self.now() + self.latency(&path);
        let mut tries = 0;
        while tries < MOST_TRIES && self.is_lost(path.loss) {
            at += SENT_AGAIN_AFTER;
            tries += 1;
        }
        self.behind((from, to, Lane::Lifelines), at)
    }

    /// When one side sees that the other is gone: behind all that was sent.
    pub(super) fn end(&mut self, from: SocketAddr, to: SocketAddr) -> Duration {
        let at = self.now() + self.latency(&self.path(from, to));
        let last = [Lane::Control, Lane::Bulk].map(|lane| self.last.get(&(from, to, lane)).copied());
        last.into_iter().flatten().fold(at, Duration::max)
    }

    fn path(&self, from: SocketAddr, to: SocketAddr) -> Path {
        self.paths.get(&(from, to)).cloned().unwrap_or_default()
    }

    fn behind(&mut self, lane: (SocketAddr, SocketAddr, Lane), at: Duration) -> Duration {
        let last = self.last.entry(lane).or_default();
        *last = at.max(*last);
        *last
    }

    fn latency(&mut self, path: &Path) -> Duration {
        let millis = |wait: &Duration| wait.min(&MAX_LATENCY).as_millis().max(1) as u64;
        let (least, most) = (millis(path.latency.start()), millis(path.latency.end()));
        let more = most.saturating_sub(least) + 1;
        Duration::from_millis(least + self.draw() % more)
    }

    pub(super) fn schedule(&mut self, at: Duration, parcel: Parcel) {
        if self.agenda.first_key_value().is_none_or(|(next, _)| at < next.0) {
            self.sooner.notify_one();
        }
        self.next += 1;
        self.agenda.insert((at, self.next), parcel);
    }

    /// Answers a dial, or says that a lifeline is over: after a round trip, or late, when no answer comes.
    pub(super) fn answer(
        &mut self,
        (to, local): (EndpointId, SocketAddr),
        peer: SocketAddr,
        event: LifelineEvent,
        of: Option<u64>,
    ) {
        let at = match self.blocks(local, peer) || self.blocks(peer, local) {
            true => self.now() + GIVEN_UP_AFTER,
            false => {
                let there = self.stream_arrival(local, peer).saturating_sub(self.now());
                self.stream_arrival(peer, local) + there
            }
        };
        self.schedule(at, Parcel::Answer { to, peer, event, of });
    }

    /// Brings again, later, what a full queue did not take.
    pub(super) fn again(&mut self, parcel: Parcel) {
        let at = self.now() + AGAIN_AFTER;
        self.schedule(at, parcel);
    }

    pub(super) fn is_lost(&mut self, loss: f64) -> bool {
        loss > 0.0 && (self.draw() >> 11) as f64 / ((1u64 << 53) as f64) < loss
    }

    /// SplitMix64.
    pub(super) fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Takes it into the fingerprint.
    pub(super) fn note(&mut self, kind: u8, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let now = self.now();
        self.digest.write_u64(now.as_micros() as u64);
        self.digest.write_u8(kind);
        for addr in [from, to] {
            self.digest.write(addr.to_string().as_bytes());
        }
        self.digest.write(bytes);
    }
}

impl Hub {
    /// Everything whose time has come arrives.
    fn carry_due(&mut self) {
        while let Some(parcel) = self.air.as_mut().and_then(Air::pop_due) {
            self.arrives(parcel);
        }
    }
}
