//! What this node sends to one peer by UDP.
//!
//! ```text
//!                 hello ─► welcome ─► hello ─► welcome
//!  Looking ────────────────────────────────────────────► Open ──silence, "unknown session", too large──► Looking
//!  frames go by TCP                                      frames go by UDP             what was on its way is lost
//! ```
//! A hello is as large as the datagrams that are to follow. So an answer says three things: the peer takes
//! UDP, no firewall is in between, and datagrams of this size pass. Without an answer, frames go by TCP, and
//! the node tries a hello again from time to time while there is something to send. Frames that were on their
//! way when a path breaks are lost: some have arrived, and the core repairs what still matters.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use antiphon_wire::datagram::{Datagram, Hello, Report, SEGMENT_HEADER_BYTES, Segment, Welcome};
use antiphon_wire::frame::Frame;
use socket2::SockAddr;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::socket::{Offload, SMALLEST_DATAGRAM, sizes};
use super::window::{Again, Silence, Window, all};
use super::{Ports, Shared};
use crate::tcp::AbortOnDrop;

/// Frames that may wait for a window.
const QUEUE_FRAMES: usize = 4096;
/// Bytes that may wait for a window.
const QUEUE_BYTES: usize = 8 << 20;
/// Frames taken from the queue at a time.
const BATCH: usize = 64;
/// How long a hello waits for its answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(300);
/// Hellos of one size.
const TRIES: usize = 2;
/// The first wait after UDP did not pass; doubles up to [`MAX_BACK_OFF`].
const MIN_BACK_OFF: Duration = Duration::from_millis(500);
const MAX_BACK_OFF: Duration = Duration::from_secs(30);
/// A path that worked this long was a good one: the next search begins at once.
const GOOD_PATH: Duration = Duration::from_secs(5);
/// Answers that may wait: each replaces those before it.
const ANSWERS: usize = 64;
/// Slices of a send: a header and the bytes of each segment, which may cross from one part of the frame to
/// the next twice.
pub(super) const MAX_SLICES: usize = 64 * 2 + 2;

/// What the receiving task passes on to a flow.
#[derive(Debug)]
pub(super) enum Answer {
    Welcome(Welcome),
    Report(Report),
    UnknownSession,
}

/// The flows by their number.
#[derive(Debug, Default)]
pub(super) struct Flows {
    by_number: Mutex<BTreeMap<u64, Route>>,
}

#[derive(Debug)]
struct Route {
    answers: mpsc::Sender<Answer>,
    session: u64,
}

impl Flows {
    /// Passes an answer on. It is lost if there is no such flow, or if the flow has many answers that it did
    /// not look at.
    pub(super) fn pass(&self, flow: u64, answer: Answer) {
        if let Some(route) = self.lock().get(&flow) {
            // Reports are cumulative and welcomes repeated.
            let _ = route.answers.try_send(answer);
        }
    }

    /// A peer does not know this session.
    pub(super) fn unknown(&self, session: u64) {
        for route in self.lock().values().filter(|route| route.session == session) {
            // As above: the next segment brings the next such answer.
            let _ = route.answers.try_send(Answer::UnknownSession);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Route>> {
        self.by_number.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue of a flow, and its task.
#[derive(Debug)]
pub(super) struct Flow {
    queue: mpsc::Sender<Queued>,
    state: Arc<State>,
    pub(super) last_used: Instant,
    task: AbortOnDrop,
}

/// What queue and task share.
#[derive(Debug, Default)]
struct State {
    /// Whether frames go by UDP now. Held while a frame is queued, so that none is queued between a last look
    /// at the queue and the end of the path.
    open: Mutex<bool>,
    wanted: Notify,
    queued_bytes: AtomicUsize,
}

#[derive(Debug)]
struct Queued {
    frame: Frame,
    /// An injected delay: not to leave earlier.
    due: Option<Instant>,
}

impl Flow {
    pub(super) fn spawn(ports: Ports, to: SocketAddr) -> Self {
        Self::with_task(ports, to, |path| tokio::spawn(path.run()))
    }

    fn with_task(ports: Ports, to: SocketAddr, start: impl FnOnce(Path) -> JoinHandle<()>) -> Self {
        let (queue, receiver) = mpsc::channel(QUEUE_FRAMES);
        let state = Arc::new(State::default());
        let shared = ports.towards(to).clone();
        let path = Path {
            destination: shared.socket.destination(to).into(),
            shared,
            ports,
            to,
            queue: receiver,
            state: state.clone(),
            back_off: Duration::ZERO,
            headers: Vec::new(),
        };
        Self {
            queue,
            state,
            last_used: Instant::now(),
            task: AbortOnDrop(start(path)),
        }
    }

    /// Whether frames go by UDP now. If not, it is tried.
    pub(super) fn is_open(&self) -> bool {
        let open = *self.state.open();
        if !open {
            self.state.wanted.notify_one();
        }
        open
    }

    /// Queues a frame; false if there is no room.
    ///
    /// # Errors
    /// The frame, for TCP, if the path has just ended.
    pub(super) fn push(&mut self, frame: Frame, delay: Duration) -> Result<bool, Frame> {
        let open = self.state.open();
        if !*open {
            return Err(frame);
        }
        let length = frame.len();
        if self.state.queued_bytes.load(Ordering::Acquire) + length > QUEUE_BYTES {
            return Ok(false);
        }
        let due = (!delay.is_zero()).then(|| Instant::now() + delay);
        self.state.queued_bytes.fetch_add(length, Ordering::AcqRel);
        let taken = self.queue.try_send(Queued { frame, due }).is_ok();
        if !taken {
            self.state.queued_bytes.fetch_sub(length, Ordering::AcqRel);
        }
        Ok(taken)
    }

    /// Takes no more frames; the task ends when those it has have arrived.
    pub(super) fn finish(self) -> AbortOnDrop {
        self.task
    }
}

impl State {
    fn open(&self) -> MutexGuard<'_, bool> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task's side.
struct Path {
    ports: Ports,
    /// The socket to send from. It is chosen anew with each search, since routes change when links fail.
    shared: Arc<Shared>,
    to: SocketAddr,
    destination: SockAddr,
    queue: mpsc::Receiver<Queued>,
    state: Arc<State>,
    back_off: Duration,
    /// Used again for each send.
    headers: Vec<u8>,
}

/// A session at the peer.
struct Link {
    session: u64,
    /// Bytes of a segment.
    size: usize,
    window: usize,
    offload: Offload,
    answers: mpsc::Receiver<Answer>,
    _registered: Registered,
}

/// Answers find their way as long as this lives.
struct Registered {
    shared: Arc<Shared>,
    flow: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.flows.lock().remove(&self.flow);
    }
}

/// Why a path is not used any more.
enum End {
    /// The transport is closing, and everything has arrived.
    Finished,
    /// Nothing was sent for long: the path is closed, and its queue empty.
    Idle,
    Broken(&'static str),
}

impl Path {
    async fn run(mut self) {
        let mut told = false;
        while self.is_wanted().await {
            let Some(link) = self.look().await else {
                if !std::mem::replace(&mut told, true) {
                    tracing::info!(
                        target: "antiphon::net", to = %self.to,
                        "UDP does not pass, or the peer does not take it: messages go by TCP"
                    );
                }
                self.back_off = (self.back_off * 2).clamp(MIN_BACK_OFF, MAX_BACK_OFF);
                continue;
            };
            told = false;
            tracing::info!(target: "antiphon::net", to = %self.to, segment_bytes = link.size, "messages go by UDP");
            let opened = Instant::now();
            *self.state.open() = true;
            let end = self.serve(link).await;
            *self.state.open() = false;
            self.forget_queued();
            self.back_off = if opened.elapsed() >= GOOD_PATH {
                Duration::ZERO
            } else {
                (self.back_off * 2).clamp(MIN_BACK_OFF, MAX_BACK_OFF)
            };
            match end {
                End::Finished => return,
                End::Idle => {}
                End::Broken(why) => {
                    tracing::info!(target: "antiphon::net", to = %self.to, why, "messages go by TCP again");
                }
            }
        }
    }

    /// Waits until there is something to send, and for the back-off. False if the transport is closing.
    async fn is_wanted(&mut self) -> bool {
        let wanted = async {
            tokio::time::sleep(self.back_off).await;
            self.state.wanted.notified().await;
        };
        tokio::select! {
            () = wanted => true,
            // Nothing is queued while there is no path.
            None = self.queue.recv() => false,
        }
    }

    /// Says hello in the sizes that may pass, largest first.
    async fn look(&mut self) -> Option<Link> {
        self.shared = self.ports.towards(self.to).clone();
        self.destination = self.shared.socket.destination(self.to).into();
        let flow = getrandom::u64().ok()?;
        let (sender, mut answers) = mpsc::channel(ANSWERS);
        let route = Route {
            answers: sender,
            session: 0,
        };
        self.shared.flows.lock().insert(flow, route);
        let registered = Registered {
            shared: self.shared.clone(),
            flow,
        };
        let mut session = 0;
        let sizes = sizes(self.to, self.shared.config.max_datagram);
        // A welcome is no more to be believed than anything else.
        let possible = SMALLEST_DATAGRAM..=sizes[0];
        for size in sizes {
            for _ in 0..TRIES {
                if self.shared.tcp.faults.blocks(self.to) {
                    break;
                }
                match self.hello(session, flow, size) {
                    Err(error) if quinn_udp::is_msg_size_err(&error) => break,
                    // A buffer that is full now says nothing of the path: the next try follows.
                    Ok(()) | Err(_) => {}
                }
                let deadline = tokio::time::Instant::now() + ANSWER_WITHIN;
                while let Ok(Some(answer)) = tokio::time::timeout_at(deadline, answers.recv()).await {
                    let Answer::Welcome(welcome) = answer else {
                        continue;
                    };
                    if !possible.contains(&usize::from(welcome.size)) {
                        continue;
                    }
                    session = welcome.session;
                    if !welcome.open {
                        // If it is lost or too large, the next try follows.
                        let _ = self.hello(session, flow, usize::from(welcome.size));
                        continue;
                    }
                    if let Some(route) = self.shared.flows.lock().get_mut(&flow) {
                        route.session = session;
                    }
                    return Some(Link {
                        session,
                        size: usize::from(welcome.size) - SEGMENT_HEADER_BYTES,
                        window: welcome.window as usize,
                        offload: self.shared.socket.offload(),
                        answers,
                        _registered: registered,
                    });
                }
            }
        }
        None
    }

    fn hello(&self, session: u64, flow: u64, size: usize) -> io::Result<()> {
        let hello = Datagram::Hello(Hello {
            session,
            flow,
            advertised: self.shared.tcp.config.advertised,
        });
        let mut bytes = Vec::with_capacity(size);
        hello.encode(&mut bytes);
        bytes.resize(size.max(bytes.len()), 0);
        self.shared.socket.send_or_forget(self.to, &bytes)
    }

    async fn serve(&mut self, mut link: Link) -> End {
        let mut window = Window::new(Instant::now(), link.window);
        let mut backlog: VecDeque<Queued> = VecDeque::new();
        let mut received = Vec::with_capacity(BATCH);
        let mut again = Vec::new();
        let mut closing = false;
        let end = loop {
            let sent = self.send_backlog(&mut link, &mut window, &mut backlog).await;
            if let Err(error) = sent {
                break End::Broken(reason(&error));
            }
            if closing && backlog.is_empty() && window.is_empty() {
                break End::Finished;
            }
            let due = backlog.front().and_then(|queued| queued.due);
            let idle = window
                .is_empty()
                .then(|| Instant::now() + self.shared.tcp.config.idle_timeout);
            let wake = [window.deadline(), due.filter(|due| *due > Instant::now()), idle];
            let wake = wake.into_iter().flatten().min();
            tokio::select! {
                biased;
                answer = link.answers.recv() => match answer {
                    Some(Answer::Report(report)) => {
                        window.report(Instant::now(), &report, &mut again);
                        self.shared.tcp.counters.dropped(window.take_abandoned());
                        if window.is_narrow() {
                            break End::Broken("large datagrams do not arrive any more");
                        }
                        if let Err(error) = self.send_again(&mut link, &window, &mut again).await {
                            break End::Broken(reason(&error));
                        }
                    }
                    Some(Answer::UnknownSession) => break End::Broken("the peer does not know the session"),
                    Some(Answer::Welcome(_)) => {}
                    None => break End::Broken("its answers are lost"),
                },
                count = self.queue.recv_many(&mut received, BATCH), if backlog.is_empty() && !closing => {
                    closing = count == 0;
                    backlog.extend(received.drain(..));
                }
                () = until(wake), if wake.is_some() => {
                    let now = Instant::now();
                    if window.deadline().is_some_and(|deadline| deadline <= now) {
                        match window.silent(now) {
                            Silence::Ask(ask) => {
                                again.push(ask);
                                if let Err(error) = self.send_again(&mut link, &window, &mut again).await {
                                    break End::Broken(reason(&error));
                                }
                            }
                            Silence::Broken => break End::Broken("nothing is heard of the peer"),
                        }
                    } else if window.is_empty() && backlog.is_empty() && self.close_if_empty() {
                        break End::Idle;
                    }
                }
            }
        };
        let waiting: usize = backlog.iter().map(|queued| queued.frame.len()).sum();
        self.state.queued_bytes.fetch_sub(waiting, Ordering::AcqRel);
        self.shared
            .tcp
            .counters
            .dropped(backlog.len() as u64 + window.unsettled());
        end
    }

    /// Sends what the window allows.
    async fn send_backlog(
        &mut self,
        link: &mut Link,
        window: &mut Window,
        backlog: &mut VecDeque<Queued>,
    ) -> io::Result<()> {
        while let Some(queued) = backlog.front() {
            let length = queued.frame.len();
            let is_due = queued.due.is_none_or(|due| due <= Instant::now());
            if !is_due || !window.has_room(length, link.size) {
                break;
            }
            // It is the front.
            let Some(queued) = backlog.pop_front() else { break };
            self.state.queued_bytes.fetch_sub(length, Ordering::AcqRel);
            let number = window.send(Instant::now(), queued.frame.clone(), link.size);
            let count = length.div_ceil(link.size);
            let send = Again {
                number,
                frame: queued.frame,
                size: link.size,
                segments: all(count),
            };
            // Once nothing more may leave, the flow waits for an answer.
            let next = backlog.front().map(|queued| queued.frame.len());
            let ask = next.is_some_and(|length| !window.has_room(length, link.size));
            self.send_segments(link, &send, window.behind(number), ask)
                .await?;
            self.shared.counters.sent(count);
        }
        Ok(())
    }

    async fn send_again(
        &mut self,
        link: &mut Link,
        window: &Window,
        again: &mut Vec<Again>,
    ) -> io::Result<()> {
        let blocked = self.shared.tcp.faults.blocks(self.to);
        for send in again.drain(..).filter(|_| !blocked) {
            self.send_segments(link, &send, window.behind(send.number), true)
                .await?;
            self.shared.counters.repaired(send.segments.count_ones() as usize);
        }
        Ok(())
    }

    /// Sends segments of a frame: consecutive segments with one system call.
    async fn send_segments(
        &mut self,
        link: &mut Link,
        send: &Again,
        behind: u16,
        ask: bool,
    ) -> io::Result<()> {
        let length = send.frame.len();
        let segment_bytes = send.size + SEGMENT_HEADER_BYTES;
        let mut left = send.segments;
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let run = (!(left >> first)).trailing_zeros().min(64) as usize;
            let count = run.min(link.offload.segments_at_once(segment_bytes));
            self.headers.clear();
            for index in first..first + count {
                let bytes = (length - index * send.size).min(send.size);
                let segment = Segment {
                    session: link.session,
                    number: send.number,
                    behind,
                    length,
                    size: send.size,
                    index: index as u8,
                    report_at_once: ask && index + 1 == first + count && left & !run_of(first, count) == 0,
                    bytes: &[],
                };
                debug_assert!(bytes > 0);
                self.headers.extend_from_slice(&segment.header());
            }
            let headers = &self.headers;
            let control = (count > 1).then_some(segment_bytes);
            let sent = self
                .shared
                .socket
                .send(&self.destination, control, |transmit| {
                    let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                    let used = fill(&mut slices, headers, &send.frame, first * send.size, send.size);
                    transmit(&slices[..used])
                })
                .await;
            match sent {
                Ok(()) => left &= !run_of(first, count),
                // The same again, one by one.
                Err(error) if count > 1 && link.offload.is_refused(&self.destination, &error) => {}
                // Full queues of the device lose a datagram as the network does.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => left &= !run_of(first, count),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes no more frames, unless some wait: one that came just now is sent.
    fn close_if_empty(&self) -> bool {
        let mut open = self.state.open();
        *open = !self.queue.is_empty();
        !*open
    }

    fn forget_queued(&mut self) {
        let (mut lost, mut bytes) = (0, 0);
        while let Ok(queued) = self.queue.try_recv() {
            lost += 1;
            bytes += queued.frame.len();
        }
        self.state.queued_bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.shared.tcp.counters.dropped(lost);
    }
}

/// Puts each header and the bytes of its segment into `slices`; gives how many there are.
pub(super) fn fill<'a>(
    slices: &mut [IoSlice<'a>],
    headers: &'a [u8],
    frame: &'a Frame,
    mut start: usize,
    size: usize,
) -> usize {
    let mut used = 0;
    for header in headers.chunks_exact(SEGMENT_HEADER_BYTES) {
        slices[used] = IoSlice::new(header);
        used += 1;
        let end = (start + size).min(frame.len());
        let mut at = 0;
        for part in frame.parts() {
            let (from, to) = (start.max(at), end.min(at + part.len()));
            if from < to {
                slices[used] = IoSlice::new(&part[from - at..to - at]);
                used += 1;
            }
            at += part.len();
        }
        start = end;
    }
    used
}

fn run_of(first: usize, count: usize) -> u64 {
    all(count) << first
}

async fn until(wake: Option<Instant>) {
    if let Some(wake) = wake {
        tokio::time::sleep_until(wake.into()).await;
    }
}

fn reason(error: &io::Error) -> &'static str {
    if quinn_udp::is_msg_size_err(error) {
        "datagrams of this size do not pass any more"
    } else {
        tracing::debug!(target: "antiphon::net", %error, "cannot send a datagram");
        "the system does not send"
    }
}

#[cfg(test)]
mod tests {
    use antiphon_wire::Incarnation;
    use antiphon_wire::datagram::{Assembly, decode};
    use antiphon_wire::frame::{FrameCodec, Kind};
    use bytes::{Bytes, BytesMut};

    use super::super::{UdpConfig, UdpTransport, listen};
    use super::*;
    use crate::Transport as _;

    /// A flow to this address, with the task's side in the test's hands.
    fn by_hand(to: &str) -> (UdpTransport, Flow, Path) {
        let listeners = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let config = UdpConfig::new(listeners.0.local_addr().unwrap());
        let (transport, _) = UdpTransport::start(listeners, config).unwrap();
        let mut path = None;
        let flow = Flow::with_task(transport.ports.clone(), to.parse().unwrap(), |task| {
            path = Some(task);
            tokio::spawn(async {})
        });
        (transport, flow, path.unwrap())
    }

    #[tokio::test]
    async fn a_path_that_holds_a_frame_does_not_close_for_want_of_use_and_a_closed_one_leaves_it_to_tcp() {
        let (_transport, mut flow, mut path) = by_hand("127.0.0.1:9");
        let frame = || {
            let mut codec = FrameCodec::new("shop", None, Incarnation(1));
            codec.seal(Kind::Bulk, b"soup").into()
        };
        assert!(flow.push(frame(), Duration::ZERO).is_err());
        *path.state.open() = true;
        assert_eq!(flow.push(frame(), Duration::ZERO).ok(), Some(true));
        assert!(!path.close_if_empty() && flow.is_open());
        path.forget_queued();
        assert!(path.close_if_empty() && !flow.is_open());
        assert!(flow.push(frame(), Duration::ZERO).is_err());
    }

    #[tokio::test]
    async fn a_hello_that_the_system_does_not_take_now_says_nothing_of_the_path() {
        // A socket for IPv4 sends nothing there.
        let (_transport, _flow, mut path) = by_hand("[::1]:9");
        let looked = tokio::time::timeout(ANSWER_WITHIN / 2, path.look()).await;
        assert!(looked.is_err(), "given up at once");
    }

    #[tokio::test]
    async fn a_path_on_which_datagrams_cannot_be_cut_leaves_the_other_paths_of_the_socket_as_they_were() {
        // The system refuses port 0 with the error of a device that cannot cut.
        let (_transport, _flow, mut path) = by_hand("127.0.0.1:0");
        let offload = path.shared.socket.offload();
        if offload.segments_at_once(1000) == 1 {
            // Nor can the system.
            return;
        }
        let mut link = Link {
            session: 1,
            size: 1000,
            window: 1 << 20,
            offload,
            answers: mpsc::channel(1).1,
            _registered: Registered {
                shared: path.shared.clone(),
                flow: 1,
            },
        };
        let send = Again {
            number: 1,
            frame: Bytes::from(vec![1; 3000]).into(),
            size: 1000,
            segments: all(3),
        };
        assert!(path.send_segments(&mut link, &send, 0, false).await.is_err());
        assert_eq!(link.offload.segments_at_once(1000), 1);
        assert!(path.hello(0, 1, 1300).is_err());
        assert!(path.shared.socket.offload().segments_at_once(1000) > 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_flow_that_does_not_end_in_time_holds_no_port_after_the_close() {
        let (mut transport, mut flow, path) = by_hand("127.0.0.1:9");
        let (begins, begun) = tokio::sync::oneshot::channel();
        flow.task = AbortOnDrop(tokio::spawn(async move {
            let _path = path;
            begins.send(()).unwrap();
            // While this runs, the task is not ended by an abort.
            std::thread::sleep(Duration::from_millis(300));
            std::future::pending().await
        }));
        begun.await.unwrap();
        transport.flows.insert("127.0.0.1:9".parse().unwrap(), flow);
        let addr = transport.local_addr();
        Box::new(transport).close(Duration::ZERO).await;
        assert!(std::net::UdpSocket::bind(addr).is_ok());
    }

    #[test]
    fn a_frame_in_three_parts_is_cut_across_them_and_comes_out_the_same() {
        let block = Bytes::from((0..50_000u32).map(|at| at as u8).collect::<Vec<u8>>());
        let mut codec = FrameCodec::new("shop", None, Incarnation(1));
        let frame = codec.seal_around(Kind::Bulk, b"before", &block, b"after");
        assert!(frame.parts().iter().all(|part| !part.is_empty()));
        for size in [1024, 1444, 32_000, 65_000] {
            let count = frame.len().div_ceil(size);
            let mut headers = Vec::new();
            for index in 0..count {
                let segment = Segment {
                    session: 1,
                    number: 1,
                    behind: 0,
                    length: frame.len(),
                    size,
                    index: index as u8,
                    report_at_once: false,
                    bytes: &[],
                };
                headers.extend_from_slice(&segment.header());
            }
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let used = fill(&mut slices, &headers, &frame, 0, size);
            let sent: Vec<u8> = slices[..used]
                .iter()
                .flat_map(|slice| slice.iter().copied())
                .collect();
            let mut assembly = Assembly::new(1 << 20);
            for datagram in sent.chunks(size + SEGMENT_HEADER_BYTES) {
                let Ok(Datagram::Segment(segment)) = decode(datagram) else {
                    panic!("no segment")
                };
                assembly.insert(&segment, BytesMut::with_capacity);
            }
            assert_eq!(assembly.take(), Some(frame.to_bytes()));
        }
    }
}
