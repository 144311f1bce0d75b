//! Frames by multicast on this host's loopback interface: over IPv4, since Linux has no route for the other
//! there.

mod common;

use std::net::{IpAddr, SocketAddr, UdpSocket};

use antiphon_core::wire::frame::{Kind, OpenError};
use antiphon_net::tcp::TcpTransport;
use antiphon_net::udp::MulticastConfig;
use antiphon_net::{Input, Inputs, Transport};
use common::{codec, frame, tcp, text, wait_for};

/// A group of its own for each test, on the loopback interface.
fn group(ip: &str, test: u16) -> MulticastConfig {
    let ip: IpAddr = ip.parse().expect("an address");
    // Tests of several runs at a time must not hear each other.
    let port = 20_000 + (std::process::id() % 5_000) as u16 * 8 + test;
    MulticastConfig::new(SocketAddr::new(ip, port), [127, 0, 0, 1].into())
}

fn listener(config: &MulticastConfig) -> (TcpTransport, Inputs) {
    let (mut transport, inputs, _) = tcp("127.0.0.1:0", |_| {});
    transport.join_multicast(config).expect("loopback does multicast");
    (transport, inputs)
}

#[tokio::test]
async fn a_frame_is_sent_once_and_heard_by_all_others_in_pieces_if_it_is_large() {
    let config = group("239.255.74.1", 0);
    let (mut a, mut a_inputs) = listener(&config);
    let (_b, b_inputs) = listener(&config);
    let (_c, c_inputs) = listener(&config);
    let (mut sealer, mut opener) = (codec(1), codec(2));
    let texts: Vec<String> = (0..20).map(|number| format!("{number:.<4000}")).collect();
    for text in &texts {
        a.multicast(frame(&mut sealer, Kind::Multicast, text));
    }
    for mut inputs in [b_inputs, c_inputs] {
        let mut heard = Vec::new();
        let mut fresh = codec(3);
        wait_for(&mut inputs, |input| {
            let Input::Frames {
                connection, frames, ..
            } = input
            else {
                return None;
            };
            connection.accepted();
            heard.extend(frames.into_iter().map(|frame| text(&mut fresh, frame)));
            (heard.len() == texts.len()).then_some(())
        })
        .await;
        assert_eq!(heard, texts);
    }
    // What comes back to its sender is nobody's: the next thing it hears is another's.
    let (mut d, _d_inputs) = listener(&config);
    d.multicast(frame(&mut codec(4), Kind::Multicast, "of another"));
    let first = wait_for(&mut a_inputs, |input| match input {
        Input::Frames { frames, .. } => Some(frames),
        _ => None,
    })
    .await;
    assert_eq!(text(&mut opener, first[0].clone()), "of another");
    assert_eq!(a.counters().frames_sent, 20);
}

#[tokio::test]
async fn strangers_at_the_address_end_their_own_streams_and_nobody_elses() {
    let config = group("239.255.74.2", 1);
    let (mut a, _a_inputs) = listener(&config);
    let (_b, mut b_inputs) = listener(&config);
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let stranger_socket = socket2::SockRef::from(&stranger);
    stranger_socket
        .set_multicast_if_v4(&[127, 0, 0, 1].into())
        .expect("the loopback interface");
    for length in [0, 3, 28, 200, 1400] {
        let sent = stranger.send_to(&vec![0xa7; length], config.group);
        assert_eq!(sent.ok(), Some(length));
    }
    let (mut foreign, _foreign_inputs) = listener(&config);
    let mut other =
        antiphon_core::wire::frame::FrameCodec::new("other", None, antiphon_core::wire::Incarnation(9));
    let (mut sealer, mut opener) = (codec(1), codec(2));
    let (mut refused, mut heard) = (0, 0);
    for number in 0..10 {
        foreign.multicast(frame(&mut other, Kind::Multicast, "foreign"));
        a.multicast(frame(&mut sealer, Kind::Multicast, &format!("ours {number}")));
    }
    wait_for(&mut b_inputs, |input| {
        let Input::Frames {
            connection, frames, ..
        } = input
        else {
            return None;
        };
        for frame in frames {
            match opener.open(frame) {
                Ok(opened) => {
                    connection.accepted();
                    assert_eq!(&opened.records[..], format!("ours {heard}").as_bytes());
                    heard += 1;
                }
                Err(error) => {
                    assert_eq!(error, OpenError::OtherCluster);
                    connection.refused(error);
                    refused += 1;
                }
            }
        }
        // The foreign cluster is heard, too.
        (heard == 10 && refused > 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn without_a_key_nothing_but_the_loopback_interface_is_taken_and_settings_that_cannot_be_are_refused() {
    let (mut confined, _inputs, _) = tcp("127.0.0.1:0", |config| config.loopback_only = true);
    let good = group("239.255.74.3", 2);
    confined.join_multicast(&good).expect("loopback");
    let with = |change: fn(&mut MulticastConfig)| {
        let mut config = good.clone();
        change(&mut config);
        config
    };
    let ipv6 = |index| {
        let mut config = MulticastConfig::new("[ff11::1]:7401".parse().expect("an address"), good.interface);
        config.interface_index = index;
        config
    };
    for (config, expected) in [
        (with(|config| config.interface = [10, 0, 0, 1].into()), "loopback"),
        (with(|config| config.interface = [0, 0, 0, 0].into()), "loopback"),
        (ipv6(1), "loopback"),
    ] {
        let error = confined.join_multicast(&config).expect_err(expected);
        assert!(error.to_string().contains(expected), "{config:?}: {error}");
    }
    let (mut free, _inputs, _) = tcp("127.0.0.1:0", |_| {});
    for (config, expected) in [
        (ipv6(0), "number of an interface"),
        (with(|config| config.hops = 0), "hops"),
        (with(|config| config.max_datagram = 20), "datagram"),
        (
            with(|config| config.group = ([127, 0, 0, 1], 1).into()),
            "multicast",
        ),
    ] {
        let error = free.join_multicast(&config).expect_err(expected);
        assert!(error.to_string().contains(expected), "{config:?}: {error}");
    }
}
