//! Messages by UDP: they arrive whatever the network does to datagrams, and whoever is not one of us does no
//! harm.

mod common;
#[path = "common/relay.rs"]
mod relay;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use antiphon_core::Class;
use antiphon_core::wire::datagram::{Datagram, Hello, Segment, decode};
use antiphon_core::wire::frame::{FrameCodec, Kind, MAX_RECORDS_BYTES, OpenError};
use antiphon_net::udp::UdpTransport;
use antiphon_net::{Fault, Faults, Input, Inputs, Transport};
use common::{PATIENCE, codec, frame, send, tcp, udp};
use relay::Relay;

/// Sends numbered frames and checks that they come in order.
struct Traffic {
    sealer: FrameCodec,
    opener: FrameCodec,
    sent: u32,
    /// One more than the number of the last that came.
    got: u32,
    lost: u32,
}

impl Traffic {
    fn new() -> Self {
        Self {
            sealer: codec(1),
            opener: codec(2),
            sent: 0,
            got: 0,
            lost: 0,
        }
    }

    fn send(&mut self, from: &mut UdpTransport, to: SocketAddr, length: usize) {
        let mut records = vec![self.sent as u8; length.max(4)];
        records[..4].copy_from_slice(&self.sent.to_le_bytes());
        self.sent += 1;
        send(
            from,
            to,
            Class::Bulk,
            self.sealer.seal(Kind::Bulk, &records).into(),
        );
    }

    /// Takes what has come, at least something.
    async fn receive(&mut self, inputs: &mut Inputs) {
        let Input::Frames {
            connection, frames, ..
        } = common::next(inputs).await
        else {
            return;
        };
        connection.accepted();
        for frame in frames {
            let opened = self.opener.open(frame).expect("an authentic frame");
            let number = u32::from_le_bytes(opened.records[..4].try_into().expect("four bytes"));
            assert!(opened.records[4..].iter().all(|byte| *byte == number as u8));
            assert!(number >= self.got, "{number} came after {}", self.got);
            self.lost += number - self.got;
            self.got = number + 1;
        }
    }

    /// Sends and receives until messages go by UDP.
    async fn open(&mut self, a: &mut UdpTransport, to: SocketAddr, inputs: &mut Inputs) {
        let deadline = Instant::now() + PATIENCE;
        while a.counters().segments_sent == 0 {
            assert!(Instant::now() < deadline, "UDP was never used");
            self.send(a, to, 10);
            while self.got < self.sent {
                self.receive(inputs).await;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// How many segments have left, if they are at least so many; they are counted after they have left, and may
/// come first.
async fn segments_sent(from: &UdpTransport, at_least: u64) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let sent = from.counters().segments_sent;
        if sent >= at_least {
            return sent;
        }
        assert!(
            Instant::now() < deadline,
            "{sent} of {at_least} segments are counted"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn fault(to: SocketAddr, fault: Fault) -> Faults {
    Faults {
        peers: [(to, fault)].into(),
    }
}

#[tokio::test]
async fn frames_of_all_sizes_arrive_in_order_over_both_families() {
    for (bind, max_datagram) in [
        ("127.0.0.1:0", None),
        ("127.0.0.1:0", Some(1472)),
        ("[::1]:0", None),
        ("[::1]:0", Some(1232)),
    ] {
        let (mut a, _a_inputs, a_addr) = udp(bind, |config| config.max_datagram = max_datagram);
        let (b, mut b_inputs, b_addr) = udp(bind, |_| {});
        let mut traffic = Traffic::new();
        traffic.open(&mut a, b_addr, &mut b_inputs).await;
        for length in [
            0,
            1,
            1000,
            1148,
            1149,
            1388,
            1389,
            30_000,
            60_000,
            MAX_RECORDS_BYTES,
        ] {
            for _ in 0..20 {
                traffic.send(&mut a, b_addr, length);
            }
            while traffic.got < traffic.sent {
                traffic.receive(&mut b_inputs).await;
            }
        }
        let received = b.counters();
        segments_sent(&a, received.segments_received).await;
        let sent = a.counters();
        assert_eq!((sent.frames_dropped, traffic.lost), (0, 0));
        assert_eq!(sent.segments_sent, received.segments_received);
        if max_datagram.is_some() {
            assert!(sent.segments_sent > 20 * 100, "{sent:?}");
        }
        let from = wait_for_frames(&mut traffic, &mut a, b_addr, &mut b_inputs).await;
        assert_eq!(from, a_addr, "the sender's advertised address");
    }
}

async fn wait_for_frames(
    traffic: &mut Traffic,
    a: &mut UdpTransport,
    to: SocketAddr,
    inputs: &mut Inputs,
) -> SocketAddr {
    traffic.send(a, to, 10);
    match common::next(inputs).await {
        Input::Frames { from, .. } => from,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fifth_of_the_datagrams_lost_and_others_doubled_or_late_nearly_everything_arrives_and_in_order() {
    let (mut a, _a_inputs, _) = udp("127.0.0.1:0", |config| config.max_datagram = Some(1472));
    let (b, mut b_inputs, b_addr) = udp("127.0.0.1:0", |_| {});
    let relay = Relay::to(b_addr).await;
    let mut traffic = Traffic::new();
    traffic.open(&mut a, relay.addr, &mut b_inputs).await;
    relay.weather.lost.store(200, Ordering::Relaxed);
    relay.weather.doubled.store(50, Ordering::Relaxed);
    relay.weather.late.store(50, Ordering::Relaxed);
    for round in 0..30 {
        for length in [100, 5_000, 60_000] {
            traffic.send(&mut a, relay.addr, length + round);
        }
        // Also the tail of a burst, behind which nothing comes, must arrive; the very last one may be among
        // the lost.
        let enough = traffic.sent - 2;
        while round % 10 == 9 && traffic.got < enough {
            traffic.receive(&mut b_inputs).await;
        }
    }
    relay.weather.lost.store(0, Ordering::Relaxed);
    traffic.send(&mut a, relay.addr, 10);
    while traffic.got < traffic.sent {
        traffic.receive(&mut b_inputs).await;
    }
    let (sent, received) = (a.counters(), b.counters());
    assert!(sent.segments_repaired > 100, "{sent:?}");
    // What chance took again and again is left to the core, and counted.
    assert!(
        traffic.lost <= 3,
        "{} of {} frames lost",
        traffic.lost,
        traffic.sent
    );
    let counted = sent.frames_dropped + received.frames_incomplete;
    assert!(
        u64::from(traffic.lost) <= counted,
        "{} lost, {counted} counted",
        traffic.lost
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn when_udp_stops_passing_messages_go_by_tcp_and_when_it_passes_again_by_udp() {
    let (mut a, _a_inputs, _) = udp("127.0.0.1:0", |_| {});
    let (_b, mut b_inputs, b_addr) = udp("127.0.0.1:0", |_| {});
    let relay = Relay::to(b_addr).await;
    let mut traffic = Traffic::new();
    traffic.open(&mut a, relay.addr, &mut b_inputs).await;
    relay.weather.lost.store(1000, Ordering::Relaxed);
    let before = a.counters().segments_sent;
    traffic.send(&mut a, relay.addr, 10);
    let deadline = Instant::now() + PATIENCE;
    while a.counters().frames_dropped == 0 {
        assert!(Instant::now() < deadline, "the path was never given up");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The one on its way is lost; the core would have it sent again.
    traffic.send(&mut a, relay.addr, 10);
    while traffic.got < traffic.sent {
        traffic.receive(&mut b_inputs).await;
    }
    assert_eq!(traffic.lost, 1);
    assert_eq!(a.counters().segments_sent, before + 1);
    relay.weather.lost.store(0, Ordering::Relaxed);
    let deadline = Instant::now() + PATIENCE;
    while a.counters().segments_sent == before + 1 {
        assert!(Instant::now() < deadline, "UDP was never used again");
        traffic.send(&mut a, relay.addr, 10);
        while traffic.got < traffic.sent {
            traffic.receive(&mut b_inputs).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_path_passes_only_smaller_datagrams_messages_go_in_smaller_ones() {
    let (mut a, _a_inputs, _) = udp("127.0.0.1:0", |config| config.max_datagram = Some(1472));
    let (_b, mut b_inputs, b_addr) = udp("127.0.0.1:0", |_| {});
    let relay = Relay::to(b_addr).await;
    let mut traffic = Traffic::new();
    traffic.open(&mut a, relay.addr, &mut b_inputs).await;
    relay.weather.largest.store(1300, Ordering::Relaxed);
    // The last segment of each frame is small, and is reported.
    let before = traffic.got;
    let deadline = Instant::now() + PATIENCE;
    while traffic.got == before {
        assert!(Instant::now() < deadline, "nothing large arrives any more");
        traffic.send(&mut a, relay.addr, 3000);
        let receives = traffic.receive(&mut b_inputs);
        let _ = tokio::time::timeout(Duration::from_millis(20), receives).await;
    }
    let before = a.counters().segments_sent;
    while a.counters().segments_sent == before {
        assert!(Instant::now() < deadline, "UDP was never used again");
        traffic.send(&mut a, relay.addr, 3000);
        while traffic.got < traffic.sent {
            traffic.receive(&mut b_inputs).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_peer_that_has_no_udp_gets_its_messages_by_tcp_and_the_other_way() {
    let (mut a, mut a_inputs, a_addr) = udp("127.0.0.1:0", |_| {});
    let (mut b, mut b_inputs, b_addr) = tcp("127.0.0.1:0", |_| {});
    let mut traffic = Traffic::new();
    for _ in 0..100 {
        traffic.send(&mut a, b_addr, 1000);
    }
    while traffic.got < traffic.sent {
        traffic.receive(&mut b_inputs).await;
    }
    assert_eq!(a.counters().segments_sent, 0);
    send(
        &mut b,
        a_addr,
        Class::Bulk,
        frame(&mut codec(3), Kind::Bulk, "hello"),
    );
    assert!(matches!(common::next(&mut a_inputs).await, Input::Frames { .. }));
}

#[tokio::test]
async fn a_driver_that_takes_nothing_stops_the_sender_and_loses_nothing() {
    let (mut a, _a_inputs, _) = udp("127.0.0.1:0", |config| config.max_datagram = Some(1472));
    let (b, mut b_inputs, b_addr) = udp("127.0.0.1:0", |_| {});
    let mut traffic = Traffic::new();
    traffic.open(&mut a, b_addr, &mut b_inputs).await;
    // As much as a queue takes; two seconds are longer than a silent path is given.
    for _ in 0..130 {
        traffic.send(&mut a, b_addr, 60_000);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(b.counters().segments_received > 0);
    while traffic.got < traffic.sent {
        traffic.receive(&mut b_inputs).await;
    }
    assert_eq!((a.counters().frames_dropped, traffic.lost), (0, 0));
}

#[tokio::test]
async fn a_peer_that_starts_anew_is_sent_to_by_udp_again() {
    let (mut a, _a_inputs, _) = udp("127.0.0.1:0", |_| {});
    let (b, mut b_inputs, b_addr) = udp("127.0.0.1:0", |_| {});
    let mut traffic = Traffic::new();
    traffic.open(&mut a, b_addr, &mut b_inputs).await;
    Box::new(b).close(Duration::from_secs(1)).await;
    let (b, mut b_inputs, _) = udp(&b_addr.to_string(), |_| {});
    let deadline = Instant::now() + PATIENCE;
    while b.counters().segments_received == 0 {
        assert!(Instant::now() < deadline, "UDP was never used again");
        traffic.send(&mut a, b_addr, 10);
        let mut some = Vec::new();
        let wait = b_inputs.recv_many(&mut some, 8);
        let _ = tokio::time::timeout(Duration::from_millis(20), wait).await;
        for input in some {
            if let Input::Frames { connection, .. } = input {
                connection.accepted();
            }
        }
    }
}

#[tokio::test]
async fn what_was_sent_before_a_close_arrives() {
    let (mut a, _a_inputs, a_addr) = udp("127.0.0.1:0", |config| config.max_datagram = Some(1472));
    let (_b, mut b_inputs, b_addr) = udp("127.0.0.1:0", |_| {});
    let mut traffic = Traffic::new();
    traffic.open(&mut a, b_addr, &mut b_inputs).await;
    for _ in 0..50 {
        traffic.send(&mut a, b_addr, 60_000);
    }
    let closing = tokio::spawn(Box::new(a).close(Duration::from_secs(5)));
    while traffic.got < traffic.sent {
        traffic.receive(&mut b_inputs).await;
    }
    closing.await.expect("no panic");
    let again = UdpSocket::bind(a_addr);
    assert!(again.is_ok(), "the port is free again");
}

#[tokio::test]
async fn injected_faults_do_what_they_say() {
    let (mut a, _a_inputs, a_addr) = udp("127.0.0.1:0", |_| {});
    let (mut b, mut b_inputs, b_addr) = udp("127.0.0.1:0", |_| {});
    let mut traffic = Traffic::new();
    traffic.open(&mut a, b_addr, &mut b_inputs).await;
    let delay = Duration::from_millis(80);
    a.set_faults(fault(
        b_addr,
        Fault {
            delay,
            ..Fault::default()
        },
    ));
    let sent = Instant::now();
    traffic.send(&mut a, b_addr, 10);
    traffic.receive(&mut b_inputs).await;
    assert!(sent.elapsed() >= delay);
    a.set_faults(fault(
        b_addr,
        Fault {
            drop: 1.0,
            ..Fault::default()
        },
    ));
    traffic.send(&mut a, b_addr, 10);
    assert_eq!(a.counters().frames_faulted, 1);
    a.set_faults(Faults::default());
    let blocked = Fault {
        block: true,
        ..Fault::default()
    };
    b.set_faults(fault(a_addr, blocked));
    traffic.send(&mut a, b_addr, 10);
    tokio::time::sleep(Duration::from_millis(30)).await;
    let mut heard = Vec::new();
    let wait = b_inputs.recv_many(&mut heard, 1);
    assert!(
        tokio::time::timeout(Duration::from_millis(30), wait)
            .await
            .is_err()
    );
    b.set_faults(Faults::default());
    // The sender asks, and what was not heard is sent again.
    traffic.receive(&mut b_inputs).await;
    assert_eq!((traffic.got, traffic.lost), (traffic.sent, 1));
}

/// A socket of somebody who knows how datagrams look.
struct Stranger {
    socket: UdpSocket,
    node: SocketAddr,
}

impl Stranger {
    fn of(node: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("a timeout");
        Self { socket, node }
    }

    fn say(&self, datagram: &Datagram<'_>) {
        let mut bytes = Vec::new();
        datagram.encode(&mut bytes);
        self.socket.send_to(&bytes, self.node).expect("sent");
    }

    /// The answer's bytes, if there is one.
    fn answer(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 2000];
        let length = self.socket.recv(&mut buffer).ok()?;
        buffer.truncate(length);
        Some(buffer)
    }

    fn hello(&self, session: u64) -> Option<(u64, bool)> {
        let hello = Hello {
            session,
            flow: 77,
            advertised: self.node,
        };
        self.say(&Datagram::Hello(hello));
        match decode(&self.answer()?) {
            Ok(Datagram::Welcome(welcome)) => Some((welcome.session, welcome.open)),
            other => panic!("{other:?}"),
        }
    }
}

fn segment(session: u64, number: u64, bytes: &[u8]) -> Datagram<'_> {
    Datagram::Segment(Segment {
        session,
        number,
        behind: 0,
        length: bytes.len(),
        size: bytes.len(),
        index: 0,
        report_at_once: true,
        bytes,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_stay_silent_do_not_take_the_last_places() {
    let (_node, mut inputs, addr) = udp("127.0.0.1:0", |config| config.tcp.max_inbound = 4);
    tokio::task::spawn_blocking(move || {
        for _ in 0..5 {
            let stranger = Stranger::of(addr);
            let (cookie, _) = stranger.hello(0).expect("a welcome");
            assert_eq!(stranger.hello(cookie), Some((cookie, true)));
        }
    })
    .await
    .expect("no panic");
    let (mut peer, _peer_inputs, _) = udp("127.0.0.1:0", |_| {});
    Traffic::new().open(&mut peer, addr, &mut inputs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_leave_no_trace_and_a_peer_is_still_heard() {
    let (node, mut inputs, addr) = udp("127.0.0.1:0", |config| config.tcp.max_unauthenticated = 2);
    let (mut peer, _peer_inputs, _) = udp("127.0.0.1:0", |_| {});
    let mut traffic = Traffic::new();
    traffic.open(&mut peer, addr, &mut inputs).await;
    tokio::task::spawn_blocking(move || {
        let stranger = Stranger::of(addr);
        for _ in 0..100 {
            stranger
                .socket
                .send_to(b"GET / HTTP/1.1\r\n", addr)
                .expect("sent");
        }
        // A session that was never opened is answered by that, and by nothing larger than the question.
        stranger.say(&segment(4711, 1, &[9; 100]));
        let answer = stranger.answer().expect("an answer");
        assert_eq!(decode(&answer), Ok(Datagram::Unknown { session: 4711 }));
        let (cookie, open) = stranger.hello(0).expect("a welcome");
        assert!(!open, "not before it has shown that it hears us");
        // A cookie is good for the address that it was sent to.
        let other = Stranger::of(addr);
        assert_eq!(other.hello(cookie).map(|(_, open)| open), Some(false));
        other.say(&segment(cookie, 1, &[9; 100]));
        assert!(matches!(
            decode(&other.answer().expect("an answer")),
            Ok(Datagram::Unknown { .. })
        ));
        assert_eq!(stranger.hello(cookie), Some((cookie, true)));
        // Sessions that bring nothing authentic make room for one another, not for the peer's.
        for _ in 0..5 {
            let more = Stranger::of(addr);
            let (cookie, _) = more.hello(0).expect("a welcome");
            assert_eq!(more.hello(cookie), Some((cookie, true)));
        }
        stranger.say(&segment(cookie, 1, &[9; 100]));
        assert!(matches!(
            decode(&stranger.answer().expect("an answer")),
            Ok(Datagram::Unknown { .. })
        ));
    })
    .await
    .expect("no panic");
    assert!(node.counters().datagrams_refused >= 102);
    let before = peer.counters().segments_sent;
    for _ in 0..10 {
        traffic.send(&mut peer, addr, 1000);
    }
    while traffic.got < traffic.sent {
        traffic.receive(&mut inputs).await;
    }
    let sent = segments_sent(&peer, before + 10).await;
    assert_eq!(sent, before + 10, "its session was left alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_first_frame_the_core_refuses_is_over() {
    let (_node, mut inputs, addr) = udp("127.0.0.1:0", |_| {});
    let stranger = std::sync::Arc::new(Stranger::of(addr));
    let speaking = stranger.clone();
    let cookie = tokio::task::spawn_blocking(move || {
        let (cookie, _) = speaking.hello(0).expect("a welcome");
        assert_eq!(speaking.hello(cookie), Some((cookie, true)));
        speaking.say(&segment(cookie, 1, &[9; 100]));
        cookie
    })
    .await
    .expect("no panic");
    match common::next(&mut inputs).await {
        Input::Frames { connection, .. } => connection.refused(OpenError::NotAFrame),
        other => panic!("{other:?}"),
    }
    let answer = tokio::task::spawn_blocking(move || {
        stranger.say(&segment(cookie, 2, &[9; 100]));
        // A report of the first may come before.
        std::iter::from_fn(|| stranger.answer()).last()
    })
    .await
    .expect("no panic");
    assert_eq!(
        decode(&answer.expect("an answer")),
        Ok(Datagram::Unknown { session: cookie })
    );
}
