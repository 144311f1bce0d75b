//! One connection that this node sends frames on.
//!
//! ```text
//!  Waiting ──frame──► (back-off) ──► Dialling ──► Connected
//!    │  ▲                               │             │  │
//!   idle └──────── trouble, queue lost ◄┴─────────────┘ idle ──► closed, and the task ends: the next frame starts another
//! ```
//! Frames that were queued when a dial fails or a connection breaks are lost: they are as old as the trouble,
//! and the core repairs what still matters.
//!
//! On some paths large packets vanish and small ones pass: the end of a tunnel drops them, and nobody is
//! told. There a dial succeeds, heartbeats pass, and each connection breaks at the first large frame. So when
//! two in a row were made and broke soon since nothing was acknowledged, the next one has narrow segments,
//! and those after it, until one ends otherwise.
//!
//! The driver hands over together what it sends in one turn. If that is little, and nothing waits before it,
//! the driver writes it at once: at light load the way over a queue and a task costs as much time as the core
//! itself. More is left to the task, which on a runtime with several threads writes while the driver goes on.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon_core::{Class, PathTrouble};
use antiphon_wire::frame::Frame;
use antiphon_wire::stream::{PREFIX_BYTES, length_prefix};
use tokio::net::TcpStream;
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{AbortOnDrop, Common, Counted, connect_from, preamble, socket, strangers};
use crate::{Input, Lack};

/// Frames that may wait for a connection.
const QUEUE_FRAMES: usize = 4096;
/// Frames written with one system call.
const BATCH: usize = 64;
/// The driver itself writes at most this much: below it a task costs more than its share of the work is
/// worth.
const DIRECT_BYTES: usize = 4 << 10;
/// The first wait after a failure; doubles up to [`MAX_BACK_OFF`].
const MIN_BACK_OFF: Duration = Duration::from_millis(20);
/// Short: a peer that starts is found this soon, and one refused dial costs next to nothing.
const MAX_BACK_OFF: Duration = Duration::from_millis(500);
/// The longest wait if the peer takes the connection and closes it soon, as a peer with too many connections
/// does.
const MAX_BUSY_BACK_OFF: Duration = Duration::from_secs(4);
/// A connection that lived this long was a good one: the next failure starts from the shortest wait.
const GOOD_CONNECTION: Duration = Duration::from_secs(1);

/// Bytes that may wait for a connection.
fn queue_bytes(class: Class) -> usize {
    match class {
        Class::Control => 2 << 20,
        Class::Bulk => 8 << 20,
    }
}

/// The queue of a connection, and its task.
#[derive(Debug)]
pub(super) struct Outbound {
    class: Class,
    /// Handed over in this turn.
    fresh: Vec<Queued>,
    queue: mpsc::Sender<Queued>,
    queued_bytes: Arc<AtomicUsize>,
    line: Arc<Mutex<Line>>,
    task: AbortOnDrop,
}

#[derive(Debug)]
pub(super) struct Queued {
    frame: Frame,
    /// An injected delay: not to leave earlier.
    due: Option<Instant>,
    /// Bytes of it, and of its length before it, that are written.
    written: usize,
}

/// What both sides know of the connection.
#[derive(Debug)]
struct Line {
    /// While there is one.
    stream: Option<Arc<TcpStream>>,
    /// The task has something to write, or frames wait for it: new frames must not overtake them.
    busy: bool,
    /// When something was sent last.
    used: Instant,
    /// The failure of a write outside the task: the system reports it once.
    failed: Option<Failure>,
}

impl Outbound {
    pub(super) fn spawn(common: Arc<Common>, to: SocketAddr, class: Class) -> Self {
        Self::with_task(common, to, class, |path| tokio::spawn(path.run()))
    }

    fn with_task(
        common: Arc<Common>,
        to: SocketAddr,
        class: Class,
        start: impl FnOnce(Path) -> JoinHandle<()>,
    ) -> Self {
        let (queue, receiver) = mpsc::channel(QUEUE_FRAMES);
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let line = Arc::new(Mutex::new(Line {
            stream: None,
            busy: true,
            used: Instant::now(),
            failed: None,
        }));
        let alive = common.alive.subscribe();
        let path = Path {
            common,
            to,
            class,
            queue: receiver,
            queued_bytes: queued_bytes.clone(),
            alive,
            line: line.clone(),
            back_off: Duration::ZERO,
            misled: false,
            swallowed: Swallowed::default(),
        };
        Self {
            class,
            fresh: Vec::new(),
            queue,
            queued_bytes,
            line,
            task: AbortOnDrop(start(path)),
        }
    }

    /// Whether it still takes frames. A connection that was idle for long does not.
    pub(super) fn is_open(&self) -> bool {
        !self.queue.is_closed()
    }

    /// Takes a frame, to leave with the next [`Outbound::flush`]; false if there is no room.
    pub(super) fn push(&mut self, frame: Frame, delay: Duration) -> bool {
        let length = frame.len();
        if self.queued_bytes.load(Ordering::Acquire) + length > queue_bytes(self.class)
            || self.fresh.len() >= self.queue.capacity()
        {
            return false;
        }
        self.queued_bytes.fetch_add(length, Ordering::AcqRel);
        self.fresh.push(Queued {
            frame,
            due: (!delay.is_zero()).then(|| Instant::now() + delay),
            written: 0,
        });
        true
    }

    /// The frames that wait to be flushed, for another connection.
    pub(super) fn take_fresh(&mut self) -> Vec<Queued> {
        std::mem::take(&mut self.fresh)
    }

    /// Takes the frames that another connection was to send.
    pub(super) fn adopt(&mut self, fresh: Vec<Queued>) {
        let bytes = fresh.iter().map(|queued| queued.frame.len()).sum();
        self.queued_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.fresh = fresh;
    }

    /// Whether something waits to be flushed.
    pub(super) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Writes the taken frames, if it may and they are few, or leaves them to the task. Returns whether it
    /// wrote, and the frames that are refused because the connection has just ended for want of use.
    pub(super) fn flush(&mut self, may_write: bool) -> (bool, Vec<Frame>) {
        let bytes: usize = self.fresh.iter().map(|queued| queued.frame.len()).sum();
        let mut batch = Batch::default();
        self.fresh.drain(..).for_each(|queued| batch.push(queued));
        let mut line = lock(&self.line);
        let mut wrote = false;
        if let Some(stream) = line.stream.as_ref().filter(|_| may_write && !line.busy)
            && bytes <= DIRECT_BYTES
            && batch.frames.iter().all(|(queued, _)| queued.due.is_none())
        {
            wrote = true;
            // The task writes the rest, or the rest meets the end of the connection with it.
            match stream.try_write_vectored(&batch.slices(Instant::now())) {
                Ok(written) => batch.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => line.failed = Some(Failure::of(&error)),
            }
            line.used = Instant::now();
        }
        let mut left = 0;
        let mut refused = Vec::new();
        line.busy |= !batch.frames.is_empty();
        for queued in batch.into_rest() {
            let length = queued.frame.len();
            match self.queue.try_send(queued) {
                Ok(()) => left += length,
                Err(error) => refused.push(error.into_inner().frame),
            }
        }
        self.queued_bytes.fetch_sub(bytes - left, Ordering::AcqRel);
        (wrote, refused)
    }

    /// Since when nothing was sent. None while it is not connected, or has something to send.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        let line = lock(&self.line);
        (line.stream.is_some() && !line.busy && !self.has_fresh()).then_some(line.used)
    }

    /// The round trip of the present connection as the system measured it; none without a connection, or
    /// where the system does not say.
    pub(super) fn rtt(&self) -> Option<Duration> {
        socket::round_trip(lock(&self.line).stream.as_deref()?)
    }

    /// Takes no more frames; the task ends when those it has are sent.
    pub(super) fn finish(mut self) -> AbortOnDrop {
        self.flush(false);
        self.task
    }
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task's side.
struct Path {
    common: Arc<Common>,
    to: SocketAddr,
    class: Class,
    queue: mpsc::Receiver<Queued>,
    queued_bytes: Arc<AtomicUsize>,
    alive: broadcast::Receiver<SocketAddr>,
    line: Arc<Mutex<Line>>,
    back_off: Duration,
    /// The last connection was dialled on news of the peer, and was no good: the next news is not believed at
    /// once.
    misled: bool,
    swallowed: Swallowed,
}

/// How many connections in a row were made, and broke soon since nothing was acknowledged.
#[derive(Debug, Default, Clone, Copy)]
struct Swallowed(u8);

impl Swallowed {
    /// One has ended that lasted so long.
    fn note(&mut self, failure: Failure, lasted: Duration, user_timeout: Duration) {
        let timed_out = matches!(failure, Failure::Path(PathTrouble::TimedOut));
        self.0 = match timed_out {
            true if lasted < 3 * user_timeout => self.0.saturating_add(1),
            true => 1,
            false => 0,
        };
    }

    /// Whether large packets may vanish on the path.
    fn is_suspicious(self) -> bool {
        self.0 >= 2
    }
}

/// Why a connection is not used any more.
enum End {
    /// Nothing was sent for long: the queue is closed, and empty.
    Idle,
    /// The transport is closing and everything was written.
    Finished,
    Failed(Failure),
}

/// Why a connection could not be made, or has ended.
#[derive(Debug, Clone, Copy)]
enum Failure {
    /// Something on the way to the peer.
    Path(PathTrouble),
    /// What this host lacks. It says nothing of the peer.
    Own,
}

impl Failure {
    fn of(error: &io::Error) -> Self {
        match Lack::of(error) {
            None => Failure::Path(trouble(error)),
            Some(lack) if lack.is_of_one_way() => Failure::Path(PathTrouble::TimedOut),
            Some(_) => Failure::Own,
        }
    }
}

impl Path {
    async fn run(mut self) {
        while let Some(first) = self.next().await {
            let mut batch = Batch::default();
            batch.push(first);
            let on_news = self.wait_before_dialling().await;
            let mut longest = MAX_BACK_OFF;
            let failure = match self.dial().await {
                Ok(stream) => {
                    let connected = Instant::now();
                    let _open = Counted::new(&self.common);
                    let end = self.serve(&stream, &mut batch).await;
                    let failed = self.hang_up();
                    if connected.elapsed() >= GOOD_CONNECTION {
                        self.back_off = Duration::ZERO;
                        self.misled = false;
                    } else {
                        longest = MAX_BUSY_BACK_OFF;
                        self.misled = on_news;
                    }
                    match end {
                        End::Idle | End::Finished => return,
                        End::Failed(failure) => {
                            let failure = failed.unwrap_or(failure);
                            let user_timeout = self.common.config.user_timeout;
                            self.swallowed.note(failure, connected.elapsed(), user_timeout);
                            failure
                        }
                    }
                }
                Err(failure) => failure,
            };
            self.forget_queued(batch);
            // News from before the failure says nothing about now. News since then does, also if it came
            // before there was anything to send: a newcomer at this address dials first and waits for our
            // answer.
            self.alive = self.alive.resubscribe();
            self.back_off = (self.back_off * 2).clamp(MIN_BACK_OFF, longest);
            tracing::debug!(target: "antiphon::net", to = %self.to, class = ?self.class, ?failure, "no connection");
            let Failure::Path(trouble) = failure else {
                continue;
            };
            let input = Input::PathTrouble { to: self.to, trouble };
            if self.common.inputs.urgent.send(input).await.is_err() {
                return;
            }
        }
    }

    /// Nothing is written to the connection any more. Returns the failure of a write outside the task.
    fn hang_up(&self) -> Option<Failure> {
        let mut line = lock(&self.line);
        line.stream = None;
        line.busy = true;
        line.failed.take()
    }

    /// The next frame, without a connection. `None`: there will be no more.
    async fn next(&mut self) -> Option<Queued> {
        let idle_timeout = self.idle_timeout();
        loop {
            match tokio::time::timeout(idle_timeout, self.queue.recv()).await {
                Ok(queued) => return queued,
                Err(_) if self.close_if_empty() => return None,
                // A frame came while the timer rang.
                Err(_) => {}
            }
        }
    }

    /// Takes no more frames, unless some wait.
    ///
    /// The driver drops a closed queue with its task. So a queue that holds a frame must not close: the frame
    /// would be gone, and no counter would say so. [`Outbound::flush`] queues frames while it holds the line,
    /// so none comes between the look and the close. A frame that comes later is refused, and goes to a new
    /// connection.
    fn close_if_empty(&mut self) -> bool {
        let _line = lock(&self.line);
        let empty = self.queue.is_empty();
        if empty {
            self.queue.close();
        }
        empty
    }

    fn idle_timeout(&self) -> Duration {
        match self.class {
            Class::Control => self.common.config.idle_control_timeout,
            Class::Bulk => self.common.config.idle_timeout,
        }
    }

    /// Waits for the back-off, with jitter, or until the peer itself dials us. Returns whether the peer
    /// dialled. It does not wait for that if the last connection made so was closed soon: two nodes that are
    /// too busy to take connections would wake each other for ever.
    async fn wait_before_dialling(&mut self) -> bool {
        if self.back_off.is_zero() {
            return false;
        }
        let jitter = f64::from(getrandom::u32().unwrap_or(0)) / f64::from(u32::MAX);
        let wait = tokio::time::sleep(self.back_off.mul_f64(0.5 + jitter / 2.0));
        tokio::pin!(wait);
        loop {
            tokio::select! {
                () = &mut wait => return false,
                peer = self.alive.recv(), if !self.misled => match peer {
                    Ok(peer) if peer == self.to => return true,
                    // Among so much news there may have been ours.
                    Err(broadcast::error::RecvError::Lagged(_)) => return true,
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Closed) => {
                        (&mut wait).await;
                        return false;
                    }
                },
            }
        }
    }

    async fn dial(&self) -> Result<Arc<TcpStream>, Failure> {
        let config = &self.common.config;
        let narrow = self.swallowed.is_suspicious();
        let dialled = async {
            self.common.faults.unblocked(self.to).await;
            connect_from(socket::dialling(self.to, narrow)?, self.to).await
        };
        let stream = match tokio::time::timeout(config.connect_timeout, dialled).await {
            Err(_) => return Err(Failure::Path(PathTrouble::TimedOut)),
            Ok(Err(error)) => {
                self.common.lacks.note(&self.common.inputs, &error);
                return Err(Failure::of(&error));
            }
            Ok(Ok(stream)) => stream,
        };
        socket::tune_outbound(&stream, self.class, config).map_err(|error| Failure::of(&error))?;
        if narrow {
            tracing::info!(target: "antiphon::net", to = %self.to, "large packets may vanish on this path: this connection sends small ones");
        }
        Ok(Arc::new(stream))
    }

    async fn serve(&mut self, stream: &Arc<TcpStream>, batch: &mut Batch) -> End {
        let hello = preamble::encode(self.common.config.advertised);
        if let Err(error) = write_all(stream, &hello).await {
            return End::Failed(Failure::of(&error));
        }
        let idle_timeout = self.idle_timeout();
        let mut received = Vec::with_capacity(BATCH);
        // Set when it rings, not with every frame: that costs more than the frame.
        let mut idle = pin!(tokio::time::sleep(idle_timeout));
        loop {
            let written = self.write(stream, batch).await;
            let bytes = batch.take_bytes();
            self.queued_bytes.fetch_sub(bytes, Ordering::AcqRel);
            if let Err(error) = written {
                return End::Failed(Failure::of(&error));
            }
            {
                let mut line = lock(&self.line);
                // A ring of the timer below does not count as use: otherwise it would never find the
                // connection unused.
                if bytes > 0 {
                    line.used = Instant::now();
                }
                line.busy = !self.queue.is_empty();
                line.stream.get_or_insert_with(|| stream.clone());
            }
            tokio::select! {
                count = self.queue.recv_many(&mut received, BATCH) => {
                    if count == 0 {
                        return End::Finished;
                    }
                    received.drain(..).for_each(|queued| batch.push(queued));
                }
                error = unexpected(stream) => {
                    if strangers::is_agent_port(&error) {
                        // If the driver is gone, nobody needs to know.
                        let input = Input::AgentPort { to: self.to };
                        let _ = self.common.inputs.urgent.send(input).await;
                    }
                    return End::Failed(Failure::of(&error));
                }
                () = &mut idle => {
                    let mut line = lock(&self.line);
                    let until = line.used + idle_timeout;
                    if !line.busy && until <= Instant::now() {
                        line.stream = None;
                        // Not busy, so the queue is empty, and while the line is held it stays so: see
                        // `close_if_empty`.
                        self.queue.close();
                        return End::Idle;
                    }
                    idle.as_mut().reset(until);
                }
            }
        }
    }

    /// Writes the batch with as few system calls as the kernel allows.
    async fn write(&self, stream: &TcpStream, batch: &mut Batch) -> io::Result<()> {
        while let Some(due) = batch.front_due() {
            if let Some(due) = due {
                tokio::time::sleep_until(due).await;
            }
            let now = Instant::now();
            stream.writable().await?;
            match stream.try_write_vectored(&batch.slices(now)) {
                Ok(written) => batch.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn forget_queued(&mut self, mut batch: Batch) {
        let mut lost = batch.frames.len() as u64;
        let mut bytes = batch.take_bytes();
        while let Ok(queued) = self.queue.try_recv() {
            lost += 1;
            bytes += queued.frame.len();
        }
        self.queued_bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.common.counters.dropped(lost);
    }
}

/// Frames on their way into one socket, each behind its length.
#[derive(Debug, Default)]
struct Batch {
    frames: VecDeque<(Queued, [u8; PREFIX_BYTES])>,
    /// Bytes of the first frame and its length that are written.
    written: usize,
    /// Bytes of frames that were added since the last accounting.
    bytes: usize,
}

impl Batch {
    fn push(&mut self, queued: Queued) {
        self.bytes += queued.frame.len();
        if self.frames.is_empty() {
            self.written = queued.written;
        }
        let prefix = length_prefix(queued.frame.len());
        self.frames.push_back((queued, prefix));
    }

    /// The frames that are not wholly written.
    fn into_rest(mut self) -> impl Iterator<Item = Queued> {
        if let Some((first, _)) = self.frames.front_mut() {
            first.written = self.written;
        }
        self.frames.into_iter().map(|(queued, _)| queued)
    }

    /// When the first frame may leave; the outer `None` if there is none.
    fn front_due(&self) -> Option<Option<Instant>> {
        self.frames.front().map(|(queued, _)| queued.due)
    }

    /// What may leave now and is not written yet.
    fn slices(&self, now: Instant) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(self.frames.len() * 4);
        let mut skip = self.written;
        let due = |queued: &Queued| queued.due.is_none_or(|due| due <= now);
        for (queued, prefix) in self.frames.iter().take_while(|(queued, _)| due(queued)) {
            let [head, body, tail] = queued.frame.parts();
            for part in [&prefix[..], head, body, tail] {
                if skip >= part.len() {
                    skip -= part.len();
                } else {
                    slices.push(IoSlice::new(&part[skip..]));
                    skip = 0;
                }
            }
        }
        slices
    }

    fn advance(&mut self, written: usize) {
        self.written += written;
        while let Some((queued, _)) = self.frames.front() {
            let length = PREFIX_BYTES + queued.frame.len();
            if self.written < length {
                return;
            }
            self.written -= length;
            self.frames.pop_front();
        }
    }

    /// The bytes added since the last call; they are no longer queued.
    fn take_bytes(&mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns when the other side does what it never does to a connection that it only receives on: end it, or
/// write.
pub(super) async fn unexpected(stream: &TcpStream) -> io::Error {
    let mut said = [0; strangers::TELLING_BYTES];
    loop {
        if let Err(error) = stream.readable().await {
            return error;
        }
        match stream.try_read(&mut said) {
            Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
            Ok(length) => return strangers::unexpected(&said[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return error,
        }
    }
}

fn trouble(error: &io::Error) -> PathTrouble {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => PathTrouble::Refused,
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            PathTrouble::TimedOut
        }
        _ => PathTrouble::Lost,
    }
}

#[cfg(test)]
mod tests {
    use antiphon_core::wire::Incarnation;
    use antiphon_core::wire::frame::{FrameCodec, Kind};
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::super::{TcpConfig, TcpTransport, listen};
    use super::*;
    use crate::Transport as _;

    /// A peer with too many connections closes what it takes, and dials itself all the time.
    #[tokio::test]
    async fn a_peer_that_is_too_busy_is_dialled_ever_more_seldom_although_it_dials() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let node = listener.local_addr().unwrap();
        let (mut transport, mut inputs) = TcpTransport::start(listener, TcpConfig::new(node)).unwrap();
        let busy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = busy.local_addr().unwrap();
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = taken.clone();
        let takes = tokio::spawn(async move {
            while let Ok((stream, _)) = busy.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                drop(stream);
            }
        });
        let dials = tokio::spawn(async move {
            loop {
                let mut stream = TcpStream::connect(node).await.unwrap();
                stream.write_all(&preamble::encode(peer)).await.unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let hears = tokio::spawn(async move {
            let mut some = Vec::new();
            while inputs.recv_many(&mut some, 64).await > 0 {
                some.clear();
            }
        });
        let mut codec = FrameCodec::new("test", None, Incarnation(1));
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            transport.send(peer, Class::Control, codec.seal(Kind::Control, b"beat").into());
            transport.flush();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Two after 0, 40, 160, 640 ms and so on, less the jitter. Were all its dials believed, there would
        // be hundreds.
        let taken = taken.load(Ordering::Relaxed);
        assert!((4..=16).contains(&taken), "dialled {taken} times");
        [takes, dials, hears]
            .iter()
            .for_each(tokio::task::JoinHandle::abort);
    }

    /// A control connection that is idle after ten milliseconds, with the task's side in the test's hands.
    async fn by_hand() -> (TcpTransport, Outbound, Path, TcpListener) {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut config = TcpConfig::new(listener.local_addr().unwrap());
        config.idle_control_timeout = Duration::from_millis(10);
        let (transport, _) = TcpTransport::start(listener, config).unwrap();
        let peer = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut path = None;
        let outbound = Outbound::with_task(
            transport.common(),
            peer.local_addr().unwrap(),
            Class::Control,
            |task| {
                path = Some(task);
                tokio::spawn(async {})
            },
        );
        (transport, outbound, path.unwrap(), peer)
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_path_on_which_two_connections_in_a_row_were_not_answered_has_narrow_segments() {
        let (_transport, _outbound, mut path, _peer) = by_hand().await;
        let user_timeout = Duration::from_secs(2);
        for (trouble, lasted, narrow) in [
            (PathTrouble::TimedOut, 3600, false),
            (PathTrouble::TimedOut, 3, true),
            (PathTrouble::TimedOut, 2, true),
            (PathTrouble::Lost, 2, false),
            (PathTrouble::TimedOut, 2, false),
            (PathTrouble::TimedOut, 60, false),
        ] {
            let lasted = Duration::from_secs(lasted);
            path.swallowed.note(Failure::Path(trouble), lasted, user_timeout);
            let Ok(stream) = path.dial().await else {
                panic!("there is a listener");
            };
            let mss = socket2::SockRef::from(&*stream).tcp_mss().unwrap();
            assert_eq!(mss <= 1200, narrow, "{trouble:?} after {lasted:?}: {mss}");
        }
    }

    fn frame() -> Frame {
        FrameCodec::new("test", None, Incarnation(1))
            .seal(Kind::Control, b"beat")
            .into()
    }

    #[tokio::test]
    async fn a_frame_that_comes_just_when_a_connection_was_idle_for_long_is_refused_for_another_connection() {
        let (_transport, mut outbound, mut path, _peer) = by_hand().await;
        let stream = path.dial().await.ok().unwrap();
        let end = path.serve(&stream, &mut Batch::default()).await;
        assert!(matches!(end, End::Idle));
        // The task has let go of the line, and done nothing since.
        assert!(outbound.push(frame(), Duration::ZERO));
        let (wrote, refused) = outbound.flush(true);
        assert!(!wrote && !outbound.is_open());
        assert_eq!(refused.len(), 1);
        assert!(path.next().await.is_none());
    }

    #[tokio::test]
    async fn a_queue_that_holds_a_frame_does_not_close_for_want_of_use() {
        let (_transport, mut outbound, mut path, _peer) = by_hand().await;
        assert!(outbound.push(frame(), Duration::ZERO));
        assert!(outbound.flush(true).1.is_empty());
        // The timer rings, and only then does the task see the frame.
        assert!(!path.close_if_empty() && outbound.is_open());
        assert!(path.next().await.is_some());
        assert!(path.next().await.is_none() && !outbound.is_open());
        assert!(outbound.push(frame(), Duration::ZERO));
        assert_eq!(outbound.flush(true).1.len(), 1);
    }
}
