//! Probes by UDP, beside either transport, on the port number of the node; and whatever else comes there.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use antiphon_core::wire::frame::{Kind, MAX_PROBE_BYTES};
use antiphon_net::tcp::{TcpConfig, TcpTransport};
use antiphon_net::udp::{Greeted, greet, listen_for_probes};
use antiphon_net::{Fault, Faults, Input, Inputs, Transport};
use common::{PATIENCE, codec, frame, tcp, udp, wait_for};

/// A node whose frames go by TCP, with a socket for probes.
fn with_probes(bind: &str) -> (TcpTransport, Inputs, SocketAddr) {
    let (listener, socket) = listen_for_probes(bind.parse().expect("an address")).expect("a port");
    let addr = listener.local_addr().expect("a bound listener");
    let socket = socket.expect("the same port for UDP");
    assert_eq!(socket.local_addr().expect("a bound socket"), addr);
    let (mut transport, inputs) = TcpTransport::start(listener, TcpConfig::new(addr)).expect("a transport");
    transport.with_probes(vec![socket]).expect("a socket");
    (transport, inputs, addr)
}

async fn next_probe(inputs: &mut Inputs) -> bytes::Bytes {
    wait_for(inputs, |input| match input {
        Input::Probe { frame } => Some(frame),
        _ => None,
    })
    .await
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_probe_arrives_whatever_transport_either_side_has() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let (mut a, mut a_inputs, a_addr) = with_probes(bind);
        let (mut b, mut b_inputs, b_addr) = udp(bind, |_| {});
        let (c, mut c_inputs, c_addr) = with_probes(bind);
        // What a socket has room for is known once the runtime has looked.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let probe = |text: &str| frame(&mut codec(1), Kind::Probe, text).to_bytes();
        for (to, inputs) in [(b_addr, &mut b_inputs), (c_addr, &mut c_inputs)] {
            a.probe(to, probe("of a"));
            assert_eq!(next_probe(inputs).await, probe("of a"));
        }
        b.probe(a_addr, probe("of b"));
        assert_eq!(next_probe(&mut a_inputs).await, probe("of b"));
        assert_eq!(a.counters().probes_sent, 2);
        assert_eq!(b.counters().probes_received, 1);
        assert_eq!(c.counters().datagrams_refused, 0);
    }
}

#[tokio::test]
async fn a_hello_shows_that_udp_passes_to_a_node_that_takes_probes_alone() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let (node, _inputs, addr) = with_probes(bind);
        let (_other, _other_inputs, other_addr) = udp(bind, |_| {});
        let asker = SocketAddr::new(addr.ip(), 1);
        let greeted = greet(addr, asker, PATIENCE).await;
        assert!(matches!(greeted, Greeted::ForProbes { .. }), "{greeted:?}");
        let greeted = greet(other_addr, asker, PATIENCE).await;
        assert!(matches!(greeted, Greeted::Welcome { .. }), "{greeted:?}");
        assert_eq!(node.counters().probes_received, 0);
        // The same silence as behind a firewall.
        let blocked = SocketAddr::new(addr.ip(), 2);
        let mut node = node;
        let mut faults = Faults::default();
        faults.peers.insert(
            blocked,
            Fault {
                block: true,
                ..Fault::default()
            },
        );
        node.set_faults(faults);
        let greeted = greet(addr, blocked, Duration::from_millis(100)).await;
        assert!(matches!(greeted, Greeted::Silent), "{greeted:?}");
    }
}

/// On Linux each address of 127.0.0.0/8 is one of this host; a node that is bound to none has them all.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_hello_to_any_address_of_a_node_that_is_bound_to_none_is_answered_from_there() {
    for bind in ["0.0.0.0:0", "[::]:0"] {
        let (_node, _inputs, addr) = with_probes(bind);
        let (_other, _other_inputs, other_addr) = udp(bind, |_| {});
        let second = |addr: SocketAddr| SocketAddr::from(([127, 0, 0, 2], addr.port()));
        let greeted = greet(second(addr), addr, PATIENCE).await;
        assert!(matches!(greeted, Greeted::ForProbes { .. }), "{greeted:?}");
        let greeted = greet(second(other_addr), addr, PATIENCE).await;
        assert!(matches!(greeted, Greeted::Welcome { .. }), "{greeted:?}");
    }
}

#[tokio::test]
async fn what_is_no_probe_is_dropped_and_not_answered() {
    let (node, mut inputs, addr) = with_probes("127.0.0.1:0");
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    stranger
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("a time");
    let mut sealer = codec(1);
    let control = frame(&mut sealer, Kind::Control, "a vote").to_bytes();
    let large = frame(&mut sealer, Kind::Probe, &"x".repeat(MAX_PROBE_BYTES)).to_bytes();
    let good = frame(&mut sealer, Kind::Probe, "life").to_bytes();
    for datagram in [&b""[..], b"hello", &control, &large, &good[..40]] {
        stranger.send_to(datagram, addr).expect("it leaves");
    }
    until("all five are refused", || node.counters().datagrams_refused == 5).await;
    assert!(stranger.recv(&mut [0; 100]).is_err(), "an answer");
    stranger.send_to(&good, addr).expect("it leaves");
    assert_eq!(next_probe(&mut inputs).await, good);
}

#[tokio::test]
async fn a_flood_of_what_looks_like_probes_is_dropped_and_frames_still_arrive() {
    let (node, mut inputs, addr) = with_probes("127.0.0.1:0");
    let (mut peer, _peer_inputs, _) = tcp("127.0.0.1:0", |_| {});
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let probe = frame(&mut codec(9), Kind::Probe, "life").to_bytes();
    // More than the queue holds, and what the socket buffer takes of it.
    let deadline = Instant::now() + PATIENCE;
    while node.counters().probes_dropped == 0 {
        assert!(Instant::now() < deadline, "nothing is dropped");
        for _ in 0..64 {
            stranger.send_to(&probe, addr).expect("it leaves");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let control = frame(&mut codec(1), Kind::Control, "a vote");
    common::send(&mut peer, addr, antiphon_core::Class::Control, control);
    let mut probes = 0;
    wait_for(&mut inputs, |input| match input {
        Input::Frames { .. } => Some(()),
        _ => {
            probes += 1;
            None
        }
    })
    .await;
    assert!(probes <= 300, "{probes} came first");
}

#[tokio::test]
async fn a_port_that_is_taken_for_udp_costs_the_probes_alone() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let addr = taken.local_addr().expect("a bound socket");
    let (listener, socket) = listen_for_probes(addr).expect("TCP has the port free");
    assert!(socket.is_err());
    let (mut node, _inputs) = TcpTransport::start(listener, TcpConfig::new(addr)).expect("a transport");
    node.probe(addr, frame(&mut codec(1), Kind::Probe, "life").to_bytes());
    assert_eq!(node.counters().probes_dropped, 1);
    assert_eq!(node.counters().probes_sent, 0);
}

#[tokio::test]
async fn injected_faults_hold_for_probes_and_ports_are_free_after_the_end() {
    let (mut node, _inputs, addr) = with_probes("127.0.0.1:0");
    let (_peer, _peer_inputs, to) = with_probes("127.0.0.1:0");
    let blocked = Fault {
        block: true,
        ..Fault::default()
    };
    node.set_faults(Faults {
        peers: [(to, blocked)].into(),
    });
    node.probe(to, frame(&mut codec(1), Kind::Probe, "life").to_bytes());
    assert_eq!(
        (node.counters().probes_sent, node.counters().frames_faulted),
        (0, 1)
    );
    Box::new(node).close(Duration::from_secs(1)).await;
    let (_listener, socket) = listen_for_probes(addr).expect("the port is free");
    socket.expect("for both");
}
