//! Frames over TCP and in memory: they arrive, and whoever is not one of us does no harm.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use antiphon_core::wire::frame::{FrameCodec, Kind, OpenError};
use antiphon_core::wire::stream::length_prefix;
use antiphon_core::{Class, LifelineEvent, PathTrouble};
use antiphon_net::memory::MemoryNetwork;
use antiphon_net::tcp::{Reached, TcpTransport, enquire};
use antiphon_net::{Connection, Fault, Faults, Input, Inputs, Transport};
use bytes::Bytes;
use common::{PATIENCE, codec, frame, send, tcp, text, wait_for};

#[tokio::test]
async fn frames_arrive_in_order_with_the_senders_advertised_address_over_both_families() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let (mut a, _a_inputs, a_addr) = tcp(bind, |_| {});
        let (_b, mut b_inputs, b_addr) = tcp(bind, |_| {});
        let (mut sealer, mut opener) = (codec(1), codec(2));
        for class in [Class::Control, Class::Bulk] {
            let kind = if class == Class::Control {
                Kind::Control
            } else {
                Kind::Bulk
            };
            for i in 0..1000 {
                a.send(b_addr, class, frame(&mut sealer, kind, &format!("frame {i}")));
            }
            a.flush();
            let mut expected = 0;
            wait_for(&mut b_inputs, |input| {
                let Input::Frames {
                    from,
                    connection,
                    frames,
                } = input
                else {
                    return None;
                };
                assert_eq!(from, a_addr);
                connection.accepted();
                for frame in frames {
                    assert_eq!(text(&mut opener, frame), format!("frame {expected}"));
                    expected += 1;
                }
                (expected == 1000).then_some(())
            })
            .await;
        }
        assert_eq!(a.counters().frames_sent, 2000);
        assert_eq!(a.counters().frames_dropped, 0);
    }
}

/// Little is written at once, much is left to a task: neither overtakes the other, and nothing is cut short
/// where the system takes only a part.
#[tokio::test]
async fn turns_of_all_sizes_arrive_in_order_whoever_writes_them() {
    /// The last one does not wait.
    const TURNS: usize = 3003;
    let (mut a, _a_inputs, _) = tcp("127.0.0.1:0", |_| {});
    let (_b, mut b_inputs, b_addr) = tcp("127.0.0.1:0", |_| {});
    let (mut sealer, mut opener) = (codec(1), codec(2));
    let sizes = [10, 100, 40_000, 10, 3000, 60_000, 2000, 2000, 100, 5000, 10];
    let content = |number: usize| format!("{number}:{}", "x".repeat(sizes[number % sizes.len()]));
    let (mut number, mut expected) = (0, 0);
    for turn in 0..TURNS {
        let before = number;
        for _ in 0..turn % 4 {
            let bulk = frame(&mut sealer, Kind::Bulk, &content(number));
            a.send(b_addr, Class::Bulk, bulk);
            number += 1;
        }
        a.flush();
        // Now the task gets to run, now it does not; and now the line is empty again.
        match turn % 7 {
            0 => tokio::task::yield_now().await,
            3 if number > before => {
                wait_for(&mut b_inputs, |input| {
                    take(input, &mut opener, &mut expected, &content);
                    (expected == number).then_some(())
                })
                .await;
            }
            _ => {}
        }
    }
    wait_for(&mut b_inputs, |input| {
        take(input, &mut opener, &mut expected, &content);
        (expected == number).then_some(())
    })
    .await;
    assert_eq!(a.counters().frames_dropped, 0);
}

fn take(input: Input, opener: &mut FrameCodec, expected: &mut usize, content: &impl Fn(usize) -> String) {
    let Input::Frames {
        connection, frames, ..
    } = input
    else {
        return;
    };
    connection.accepted();
    for frame in frames {
        assert!(text(opener, frame) == content(*expected), "frame {expected}");
        *expected += 1;
    }
}

#[tokio::test]
async fn a_peer_that_is_not_there_is_refused_and_one_that_goes_is_lost() {
    let (mut a, mut a_inputs, _) = tcp("127.0.0.1:0", |_| {});
    let (b, mut b_inputs, b_addr) = tcp("127.0.0.1:0", |_| {});
    let mut sealer = codec(1);
    send(
        &mut a,
        b_addr,
        Class::Control,
        frame(&mut sealer, Kind::Control, "hello"),
    );
    wait_for(&mut b_inputs, |input| {
        matches!(input, Input::Frames { .. }).then_some(())
    })
    .await;
    drop((b, b_inputs));
    let trouble = |input| match input {
        Input::PathTrouble { to, trouble } if to == b_addr => Some(trouble),
        _ => None,
    };
    assert_eq!(wait_for(&mut a_inputs, trouble).await, PathTrouble::Lost);
    send(
        &mut a,
        b_addr,
        Class::Control,
        frame(&mut sealer, Kind::Control, "anyone?"),
    );
    assert_eq!(wait_for(&mut a_inputs, trouble).await, PathTrouble::Refused);
}

#[tokio::test]
async fn a_peer_that_comes_back_is_reached_again() {
    let (mut a, _a_inputs, _) = tcp("127.0.0.1:0", |_| {});
    let (b, _, b_addr) = tcp("127.0.0.1:0", |_| {});
    Box::new(b).close(Duration::ZERO).await;
    let mut sealer = codec(1);
    send(
        &mut a,
        b_addr,
        Class::Control,
        frame(&mut sealer, Kind::Control, "too early"),
    );
    let (_b, mut b_inputs, _) = tcp(&b_addr.to_string(), |_| {});
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "never reached again");
        send(
            &mut a,
            b_addr,
            Class::Control,
            frame(&mut sealer, Kind::Control, "again"),
        );
        let mut got = Vec::new();
        let received = tokio::time::timeout(Duration::from_millis(50), b_inputs.recv_many(&mut got, 1)).await;
        if matches!((received, got.first()), (Ok(1), Some(Input::Frames { .. }))) {
            return;
        }
    }
}

#[tokio::test]
async fn a_blocked_peer_hears_and_says_nothing_until_it_is_unblocked() {
    let (mut a, mut a_inputs, a_addr) = tcp("127.0.0.1:0", |_| {});
    let (mut b, mut b_inputs, b_addr) = tcp("127.0.0.1:0", |_| {});
    let (mut c, _c_inputs, _) = tcp("127.0.0.1:0", |_| {});
    let (mut sealer, mut opener) = (codec(1), codec(9));
    a.set_faults(Faults {
        peers: [(
            b_addr,
            Fault {
                block: true,
                ..Fault::default()
            },
        )]
        .into(),
    });
    send(
        &mut a,
        b_addr,
        Class::Control,
        frame(&mut sealer, Kind::Control, "lost"),
    );
    send(
        &mut b,
        a_addr,
        Class::Control,
        frame(&mut codec(2), Kind::Control, "held"),
    );
    send(
        &mut c,
        a_addr,
        Class::Control,
        frame(&mut codec(3), Kind::Control, "heard"),
    );
    let first = |input| match input {
        Input::Frames {
            mut frames,
            connection,
            ..
        } => {
            connection.accepted();
            Some(frames.remove(0))
        }
        _ => None,
    };
    assert_eq!(text(&mut opener, wait_for(&mut a_inputs, first).await), "heard");
    a.set_faults(Faults::default());
    send(
        &mut a,
        b_addr,
        Class::Control,
        frame(&mut sealer, Kind::Control, "after"),
    );
    assert_eq!(text(&mut opener, wait_for(&mut b_inputs, first).await), "after");
    assert_eq!(a.counters().frames_faulted, 1);
}

#[tokio::test]
async fn injected_delay_and_loss_do_what_they_say() {
    let (mut a, _a_inputs, _) = tcp("127.0.0.1:0", |_| {});
    let (_b, mut b_inputs, b_addr) = tcp("127.0.0.1:0", |_| {});
    let mut sealer = codec(1);
    let frames = |input| matches!(input, Input::Frames { .. }).then_some(());
    let delay = Duration::from_millis(80);
    a.set_faults(Faults {
        peers: [(
            b_addr,
            Fault {
                delay,
                ..Fault::default()
            },
        )]
        .into(),
    });
    let sent = Instant::now();
    send(
        &mut a,
        b_addr,
        Class::Bulk,
        frame(&mut sealer, Kind::Bulk, "slow"),
    );
    wait_for(&mut b_inputs, frames).await;
    assert!(sent.elapsed() >= delay);
    a.set_faults(Faults {
        peers: [(
            b_addr,
            Fault {
                drop: 1.0,
                ..Fault::default()
            },
        )]
        .into(),
    });
    send(
        &mut a,
        b_addr,
        Class::Bulk,
        frame(&mut sealer, Kind::Bulk, "lost"),
    );
    assert_eq!(a.counters().frames_faulted, 1);
}

/// What a stranger reads once this side has closed: an end or a reset, in bounded time.
fn is_closed(mut stranger: TcpStream) -> bool {
    stranger.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    match stranger.read(&mut [0]) {
        Ok(0) => true,
        Ok(_) => panic!("nobody writes to a dialler"),
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

fn stranger(addr: SocketAddr, says: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(addr).expect("the port is open");
    stream.write_all(says).expect("it takes bytes");
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_closed_and_a_peer_is_still_heard() {
    let (node, mut inputs, addr) = tcp("127.0.0.1:0", |config| {
        config.authenticate_within = Duration::from_millis(300)
    });
    let mut foreign = frame(&mut codec(5), Kind::Control, "from the future")
        .to_bytes()
        .to_vec();
    foreign[2] = 200;
    let strangers = [
        ("a length of 4 GiB", stranger(addr, &[0xff; 4])),
        ("random bytes", stranger(addr, &[0x5a; 4096])),
        ("another protocol", stranger(addr, b"SSH-2.0-OpenSSH_9.9\r\n")),
        (
            "a newer wire version",
            stranger(addr, &[&length_prefix(foreign.len())[..], &foreign].concat()),
        ),
        ("silence", stranger(addr, b"")),
        ("a slow loris", stranger(addr, &length_prefix(foreign.len()))),
    ];
    for (what, stream) in strangers {
        let closed = tokio::task::spawn_blocking(move || is_closed(stream))
            .await
            .expect("no panic");
        assert!(closed, "{what} was not closed");
    }
    assert_eq!(node.counters().connections_refused, 6);
    let (mut peer, _peer_inputs, _) = tcp("127.0.0.1:0", |_| {});
    send(
        &mut peer,
        addr,
        Class::Control,
        frame(&mut codec(1), Kind::Control, "hello"),
    );
    wait_for(&mut inputs, |input| {
        matches!(input, Input::Frames { .. }).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_first_frame_the_core_refuses_is_closed_whatever_the_cause() {
    closed_at_once(OpenError::Key).await;
    // Harmless by multicast only.
    closed_at_once(OpenError::Stranger).await;
}

async fn closed_at_once(cause: OpenError) {
    let (node, mut inputs, addr) = tcp("127.0.0.1:0", |_| {});
    let wrong = frame(&mut codec(5), Kind::Control, "sealed with another key").to_bytes();
    let stream = stranger(addr, &[&length_prefix(wrong.len())[..], &wrong].concat());
    wait_for(&mut inputs, |input| match input {
        Input::Frames { connection, .. } => {
            assert!(!connection.is_multicast());
            connection.refused(cause);
            Some(())
        }
        _ => None,
    })
    .await;
    assert!(
        tokio::task::spawn_blocking(move || is_closed(stream))
            .await
            .expect("no panic")
    );
    assert_eq!(node.counters().connections_refused, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_not_read_on_before_the_core_has_judged_what_it_brought() {
    for kind in [Kind::Control, Kind::Bulk, Kind::Lifeline] {
        let (node, mut inputs, addr) = tcp("127.0.0.1:0", |_| {});
        let sealed = frame(&mut codec(5), kind, &"x".repeat(1000)).to_bytes();
        let says = [&length_prefix(sealed.len())[..], &sealed]
            .concat()
            .repeat(8 << 10);
        // It waits once the system takes no more, until this side closes.
        let speaks = tokio::task::spawn_blocking(move || stranger(addr, b"").write_all(&says).is_ok());
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (first, connection) = drain(&mut inputs).await;
        assert!((1..=256 << 10).contains(&first), "{first} bytes by {kind:?}");
        // A verdict that is none says that it may go on.
        connection.refused(OpenError::Replayed);
        let (second, connection) = drain(&mut inputs).await;
        assert!((1..=256 << 10).contains(&second), "{second} bytes by {kind:?}");
        connection.accepted();
        let (rest, _) = drain(&mut inputs).await;
        assert!(rest > 7 << 20, "{rest} bytes by {kind:?}");
        assert!(speaks.await.expect("no panic"));
        drop(node);
    }
}

/// All bytes that come before a pause, and the connection that brought them.
async fn drain(inputs: &mut Inputs) -> (usize, Connection) {
    let (mut bytes, mut from) = (0, None);
    let mut some = Vec::new();
    let pause = Duration::from_millis(300);
    while let Ok(1..) = tokio::time::timeout(pause, inputs.recv_many(&mut some, 64)).await {
        for input in some.drain(..) {
            match input {
                Input::Frames {
                    connection, frames, ..
                } => {
                    bytes += frames.iter().map(Bytes::len).sum::<usize>();
                    from = Some(connection);
                }
                Input::Lifeline {
                    event: LifelineEvent::Record { record, .. },
                    connection,
                } => {
                    bytes += record.len();
                    from = connection;
                }
                // The stranger's end.
                _ => {}
            }
        }
    }
    (bytes, from.expect("it brought something"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_silent_connections_does_not_keep_a_member_out() {
    let (node, mut inputs, addr) = tcp("127.0.0.1:0", |config| config.max_unauthenticated = 2);
    let oldest = stranger(addr, b"");
    let held = [stranger(addr, b""), stranger(addr, b"")];
    assert!(
        tokio::task::spawn_blocking(move || is_closed(oldest))
            .await
            .expect("no panic")
    );
    assert_eq!(node.counters().connections_refused, 1);
    let (mut peer, _peer_inputs, _) = tcp("127.0.0.1:0", |_| {});
    send(
        &mut peer,
        addr,
        Class::Control,
        frame(&mut codec(1), Kind::Control, "hello"),
    );
    wait_for(&mut inputs, |input| {
        matches!(input, Input::Frames { .. }).then_some(())
    })
    .await;
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_enquiry_that_makes_room_before_it_was_looked_at_is_not_told_that_it_was_taken() {
    let (node, mut inputs, addr) = tcp("127.0.0.1:0", |config| config.max_unauthenticated = 1);
    let question = frame(&mut codec(5), Kind::Control, "what would you say?").to_bytes();
    let enquirer = tokio::spawn(async move { enquire(addr, addr, &question, PATIENCE).await });
    let arrived = |input| match input {
        Input::Frames { connection, .. } => Some(connection),
        _ => None,
    };
    let unjudged = wait_for(&mut inputs, arrived).await;
    let newcomer = stranger(addr, b"");
    let reached = enquirer.await.expect("no panic");
    assert!(matches!(reached, Reached::Closed), "{reached:?}");
    assert_eq!(node.counters().connections_refused, 1);
    drop((unjudged, newcomer));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_connections_than_allowed_are_turned_away() {
    let (node, _inputs, addr) = tcp("127.0.0.1:0", |config| config.max_inbound = 2);
    let held = [stranger(addr, b""), stranger(addr, b"")];
    let third = stranger(addr, b"");
    assert!(
        tokio::task::spawn_blocking(move || is_closed(third))
            .await
            .expect("no panic")
    );
    assert_eq!(node.counters().connections_refused, 1);
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_stay_silent_do_not_take_the_last_places() {
    let (_node, mut inputs, addr) = tcp("127.0.0.1:0", |config| {
        config.max_inbound = 16;
        config.authenticate_within = Duration::from_secs(3600);
    });
    let held: Vec<_> = (0..40).map(|_| stranger(addr, b"")).collect();
    let (mut peer, _peer_inputs, _) = tcp("127.0.0.1:0", |_| {});
    let (mut sealer, mut heard) = (codec(1), Vec::new());
    let deadline = Instant::now() + PATIENCE;
    // A peer that comes before the ended ones are gone is turned away, and comes again.
    while heard.is_empty() {
        assert!(Instant::now() < deadline, "no place for a peer");
        send(
            &mut peer,
            addr,
            Class::Control,
            frame(&mut sealer, Kind::Control, "hello"),
        );
        let wait = inputs.recv_many(&mut heard, 1);
        let _ = tokio::time::timeout(Duration::from_millis(50), wait).await;
    }
    drop(held);
}

/// A stranger that says this, and the connection by which it came.
async fn heard(addr: SocketAddr, kind: Kind, inputs: &mut Inputs) -> (TcpStream, Connection) {
    let sealed = frame(&mut codec(5), kind, "once").to_bytes();
    let stream = stranger(addr, &[&length_prefix(sealed.len())[..], &sealed].concat());
    let connection = wait_for(inputs, |input| match input {
        Input::Frames { connection, .. } => Some(connection),
        Input::Lifeline { connection, .. } => connection,
        _ => None,
    })
    .await;
    (stream, connection)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_for_bulk_keeps_its_place_for_as_long_as_its_dialler_would() {
    let (node, mut inputs, addr) = tcp("127.0.0.1:0", |config| {
        config.max_inbound = 4;
        config.idle_control_timeout = Duration::from_millis(100);
    });
    let mut held = Vec::new();
    for _ in 0..4 {
        let (stream, connection) = heard(addr, Kind::Bulk, &mut inputs).await;
        connection.accepted();
        held.push((stream, connection));
    }
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let newcomer = stranger(addr, b"");
        let turned_away = tokio::task::spawn_blocking(move || is_closed(newcomer)).await;
        assert!(turned_away.expect("no panic"));
    }
    assert_eq!(node.counters().connections_refused, 3);
    assert!(held.iter().all(|(_, connection)| !connection.is_closed()));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_fall_silent_after_an_authentic_frame_do_not_take_the_last_places() {
    let (_node, mut inputs, addr) = tcp("127.0.0.1:0", |config| {
        config.max_inbound = 8;
        config.idle_control_timeout = Duration::from_millis(100);
    });
    let mut held = Vec::new();
    for _ in 0..8 {
        let (stream, connection) = heard(addr, Kind::Control, &mut inputs).await;
        connection.accepted();
        held.push(stream);
    }
    let (mut peer, _peer_inputs, _) = tcp("127.0.0.1:0", |_| {});
    let (mut sealer, mut got) = (codec(1), Vec::new());
    let deadline = Instant::now() + PATIENCE;
    // A peer that comes before there is room is turned away, and comes again.
    while got.is_empty() {
        assert!(Instant::now() < deadline, "no place for a peer");
        send(
            &mut peer,
            addr,
            Class::Control,
            frame(&mut sealer, Kind::Control, "hello"),
        );
        let wait = inputs.recv_many(&mut got, 1);
        let _ = tokio::time::timeout(Duration::from_millis(50), wait).await;
    }
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_falls_silent_is_closed_after_twice_the_idle_time_unless_it_is_a_lifeline() {
    let (node, mut inputs, addr) = tcp("127.0.0.1:0", |config| {
        config.idle_timeout = Duration::from_millis(200);
        config.idle_control_timeout = Duration::from_millis(200);
    });
    let (mut lifeline, watched) = heard(addr, Kind::Lifeline, &mut inputs).await;
    watched.accepted();
    for kind in [Kind::Control, Kind::Bulk] {
        let (stream, connection) = heard(addr, kind, &mut inputs).await;
        connection.accepted();
        let closed = tokio::task::spawn_blocking(move || is_closed(stream))
            .await
            .expect("no panic");
        assert!(closed, "{kind:?}");
    }
    assert_eq!(node.counters().connections_refused, 2);
    lifeline
        .set_read_timeout(Some(Duration::from_millis(10)))
        .expect("a timeout");
    let read = lifeline.read(&mut [0]).map_err(|error| error.kind());
    assert!(
        matches!(read, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)),
        "{read:?}"
    );
}

#[tokio::test]
async fn without_a_key_no_address_beyond_this_host_is_dialled() {
    let (mut node, _inputs, _) = tcp("127.0.0.1:0", |config| config.loopback_only = true);
    let abroad = "192.0.2.1:7400".parse().expect("an address");
    send(
        &mut node,
        abroad,
        Class::Control,
        frame(&mut codec(1), Kind::Control, "secret"),
    );
    assert_eq!(node.counters().frames_dropped, 1);
    assert_eq!(node.counters().frames_sent, 0);
}

#[tokio::test]
async fn in_memory_frames_arrive_and_absent_peers_are_refused_until_they_appear() {
    let network = MemoryNetwork::new();
    let addr = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
    let (mut a, mut a_inputs) = network.bind(addr(1)).expect("free");
    assert!(network.bind(addr(1)).is_err(), "an address is taken once");
    let mut sealer = codec(1);
    send(
        &mut a,
        addr(2),
        Class::Control,
        frame(&mut sealer, Kind::Control, "anyone?"),
    );
    wait_for(&mut a_inputs, |input| {
        matches!(
            input,
            Input::PathTrouble {
                trouble: PathTrouble::Refused,
                ..
            }
        )
        .then_some(())
    })
    .await;
    let (b, mut b_inputs) = network.bind(addr(2)).expect("free");
    send(
        &mut a,
        addr(2),
        Class::Control,
        frame(&mut sealer, Kind::Control, "hello"),
    );
    wait_for(&mut b_inputs, |input| {
        matches!(input, Input::Frames { from, .. } if from == addr(1)).then_some(())
    })
    .await;
    drop(b);
    wait_for(&mut a_inputs, |input| {
        matches!(
            input,
            Input::PathTrouble {
                trouble: PathTrouble::Lost,
                ..
            }
        )
        .then_some(())
    })
    .await;
}

#[tokio::test]
async fn connections_that_carried_nothing_for_long_are_closed_and_the_next_frame_opens_another() {
    let (mut a, _a_inputs, _) = tcp("127.0.0.1:0", |config| {
        config.idle_timeout = Duration::from_millis(500);
        config.idle_control_timeout = Duration::from_millis(500);
    });
    let (b, mut b_inputs, b_addr) = tcp("127.0.0.1:0", |_| {});
    let mut sealer = codec(1);
    for round in 0..3 {
        send(
            &mut a,
            b_addr,
            Class::Control,
            frame(&mut sealer, Kind::Control, "control"),
        );
        send(
            &mut a,
            b_addr,
            Class::Bulk,
            frame(&mut sealer, Kind::Bulk, "bulk"),
        );
        let mut came = 0;
        wait_for(&mut b_inputs, |input| {
            if let Input::Frames {
                connection, frames, ..
            } = input
            {
                connection.accepted();
                came += frames.len();
            }
            (came == 2).then_some(())
        })
        .await;
        // Counted at both ends, as long as they are open.
        assert_eq!(a.counters().connections, 2, "round {round}");
        until_all_closed(&a, &b).await;
    }
    assert_eq!(a.counters().frames_dropped, 0);
}

async fn until_all_closed(a: &TcpTransport, b: &TcpTransport) {
    let deadline = Instant::now() + PATIENCE;
    while a.counters().connections + b.counters().connections > 0 {
        assert!(Instant::now() < deadline, "open: {:?}", a.counters());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whoever writes, and however often the connection was used before.
#[tokio::test]
async fn connections_that_were_used_again_are_closed_when_that_is_long_ago() {
    let timeout = Duration::from_millis(900);
    for content in ["little", &"much".repeat(2000)] {
        let (mut a, _a_inputs, _) = tcp("127.0.0.1:0", |config| {
            config.idle_timeout = timeout;
            config.idle_control_timeout = timeout;
        });
        let (b, mut b_inputs, b_addr) = tcp("127.0.0.1:0", |_| {});
        let mut sealer = codec(1);
        for _ in 0..12 {
            send(
                &mut a,
                b_addr,
                Class::Bulk,
                frame(&mut sealer, Kind::Bulk, content),
            );
            wait_for(&mut b_inputs, |input| {
                let Input::Frames { connection, .. } = input else {
                    return None;
                };
                connection.accepted();
                Some(())
            })
            .await;
            tokio::time::sleep(timeout / 9).await;
            assert_eq!(a.counters().connections, 1, "it is in use");
        }
        until_all_closed(&a, &b).await;
        assert_eq!(a.counters().frames_dropped, 0);
    }
}

/// Of many peers met once, the connections unused for long are closed when another is dialled; those in use
/// are not.
#[tokio::test]
async fn of_many_control_connections_those_unused_for_long_make_room() {
    let timeout = Duration::from_secs(10);
    let (mut a, _a_inputs, _) = tcp("127.0.0.1:0", |config| {
        config.idle_control_timeout = timeout;
        config.quiet_control = 2;
    });
    let mut peers = Vec::new();
    for _ in 0..3 {
        peers.push(tcp("127.0.0.1:0", |_| {}));
    }
    let mut sealer = codec(1);
    let mut say =
        async |a: &mut TcpTransport,
               (_, inputs, addr): &mut (TcpTransport, antiphon_net::Inputs, SocketAddr)| {
            send(a, *addr, Class::Control, frame(&mut sealer, Kind::Control, "met"));
            wait_for(inputs, |input| {
                let Input::Frames { connection, .. } = input else {
                    return None;
                };
                connection.accepted();
                Some(())
            })
            .await;
        };
    say(&mut a, &mut peers[0]).await;
    say(&mut a, &mut peers[1]).await;
    let second = Instant::now();
    say(&mut a, &mut peers[2]).await;
    // Unless this host stood still meanwhile, none of the others was quiet for long.
    if second.elapsed() < timeout / 5 {
        assert_eq!(a.counters().connections, 3, "none was quiet for long enough");
    }
    tokio::time::sleep(timeout * 2 / 5).await;
    say(&mut a, &mut peers[0]).await;
    say(&mut a, &mut peers[2]).await;
    let late = tcp("127.0.0.1:0", |_| {});
    peers.push(late);
    say(&mut a, &mut peers[3]).await;
    // Long before the idle time would close it, which it would.
    while peers[1].0.counters().connections > 0 {
        assert!(second.elapsed() < timeout * 4 / 5, "the quiet one is still open");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for still in [0, 2, 3] {
        assert_eq!(peers[still].0.counters().connections, 1, "peer {still}");
    }
    // What comes next opens it again.
    say(&mut a, &mut peers[1]).await;
    assert_eq!(a.counters().frames_dropped, 0);
}
