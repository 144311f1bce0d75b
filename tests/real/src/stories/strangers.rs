//! Strangers at the port: they must be refused, named in a log, and cost nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use antiphon_wire::Incarnation;
use antiphon_wire::frame::{ClusterKey, FrameCodec, Kind, WIRE_VERSION};

use super::*;
use crate::{Cluster, Event, Options, Process, Stage, Trace};

pub(super) const STORIES: &[Story] = &[
    once!(a_node_with_a_wrong_key_stays_out_and_the_log_says_so),
    once!(a_node_of_another_cluster_stays_out_and_the_log_says_so),
    once!(a_node_of_the_other_membership_engine_is_told_both_and_ends),
    once!(a_newer_wire_version_is_refused_and_the_log_says_which),
    once!(a_frame_without_the_key_is_refused_and_the_log_says_so),
    once!(random_bytes_at_the_port_do_no_harm),
    once!(a_length_of_four_gigabytes_is_refused_at_once),
    once!(connections_that_say_nothing_or_drip_are_closed_and_do_not_keep_members_out),
    once!(a_node_without_a_key_binds_only_loopback_unless_told_otherwise),
];

/// What a node may grow by while strangers are at its port.
const MEMORY_BYTES: u64 = 24 << 20;

/// Three members with a key that talk all the time; `ordeal` is done to them; nothing may have changed.
fn unimpressed_by(ordeal: impl FnOnce(&mut Cluster)) {
    unimpressed(Options::default(), ordeal);
}

fn unimpressed(options: Options, ordeal: impl FnOnce(&mut Cluster)) {
    let mut cluster = Cluster::on_loopback(
        3,
        Options {
            keyed: true,
            ..options
        },
    );
    let names = ["n1", "n2", "n3"];
    cluster.start(&names);
    cluster.until_together(&names, SOON);
    names.iter().for_each(|name| cluster.say(name, 300));
    cluster.until_delivered(&names, SOON);
    let view = cluster.look(|trace| trace.last("n1").node_view().map(|view| view.id.clone()));
    let before = names.map(|name| cluster.process(name).memory());
    let load = cluster.load(Duration::from_millis(20));
    ordeal(&mut cluster);
    load.end();
    cluster.until_delivered(&names, SOON);
    cluster.look(|trace| {
        for name in names {
            let run = trace.last(name);
            assert_eq!(
                run.node_view().map(|view| view.id.clone()),
                view,
                "the view changed: {}",
                run.summary()
            );
        }
    });
    for (name, before) in names.into_iter().zip(before) {
        let grown = cluster.process(name).memory().saturating_sub(before);
        assert!(grown < MEMORY_BYTES, "{name} grew by {} KiB", grown / 1024);
    }
    cluster.finish();
}

/// Whether a node's log or events mention one of these words, whatever their case.
fn mentions(trace: &Trace, name: &str, words: &[&str]) -> bool {
    let run = trace.last(name);
    let said = run.events.iter().filter_map(|(_, event)| match event {
        Event::Refused { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    run.log.iter().map(String::as_str).chain(said).any(|line| {
        let line = line.to_lowercase();
        words.iter().any(|word| line.contains(word))
    })
}

/// Some member, or the stranger itself, says one of these words.
fn somebody_says(trace: &Trace, words: &[&str]) -> bool {
    ["n1", "n2", "n3"].iter().any(|name| mentions(trace, name, words))
}

fn stranger_stays_out(cluster: &Cluster, words: &[&str]) {
    cluster.until("a log says why the stranger is refused", SOON, |trace| {
        somebody_says(trace, words) || mentions(trace, "n4", words)
    });
    cluster.throughout("the stranger is in no primary view", WATCHED, |trace| {
        !trace.last("n4").primary()
    });
}

/// Whoever started the stranger sees by its own output that it is turned away, and what for.
fn stranger_says_what_to_check(cluster: &Cluster) {
    cluster.until("the stranger says what to check", SOON, |trace| {
        trace.last("n4").said(|event| {
            matches!(event, Event::Forming { missing, reason: Some(reason), .. }
                if missing.iter().any(|seed| reason.contains(seed.as_str()))
                    && reason.contains("--key-file")
                    && reason.contains("--cluster"))
        })
    });
}

fn a_node_with_a_wrong_key_stays_out_and_the_log_says_so() {
    unimpressed_by(|cluster| {
        let key = cluster.file("wrong-key", &"a1".repeat(32));
        let mut command = cluster.command("n4");
        // The last one wins nowhere: build the command line with the other key in place.
        replace(&mut command, "--key-file", &key.to_string_lossy());
        let process = cluster.adopt("n4", command);
        stranger_stays_out(cluster, &["key"]);
        stranger_says_what_to_check(cluster);
        drop(process);
    });
}

fn a_node_of_another_cluster_stays_out_and_the_log_says_so() {
    unimpressed_by(|cluster| {
        let mut command = cluster.command("n4");
        replace(&mut command, "--cluster", "another");
        let process = cluster.adopt("n4", command);
        stranger_stays_out(
            cluster,
            &["another name", "another cluster", "other cluster", "cluster name"],
        );
        stranger_says_what_to_check(cluster);
        drop(process);
    });
}

fn a_node_of_the_other_membership_engine_is_told_both_and_ends() {
    /// What `antiphon node --help` promises of a node that the cluster refuses.
    const REFUSED: i32 = 3;
    for (engine, other) in [
        (Engine::Coordinator, Engine::Cut),
        (Engine::Cut, Engine::Coordinator),
    ] {
        let options = Options {
            membership: engine,
            ..Options::default()
        };
        unimpressed(options, |cluster| {
            let mut command = cluster.command("n4");
            replace(&mut command, "--membership", other.name());
            let process = cluster.adopt("n4", command);
            let status = process.exit(SOON).expect("it ends by itself");
            let log = cluster.look(|trace| trace.last("n4").log.join("\n"));
            assert_eq!(status.code(), Some(REFUSED), "{log}");
            let [theirs, its] = [engine, other].map(|engine| format!("`{}`", engine.name()));
            cluster.look(|trace| {
                let run = trace.last("n4");
                let told = |event: &Event| {
                    matches!(event, Event::Refused { group: None, reason, .. }
                        if reason.contains(&theirs) && reason.contains(&its) && reason.contains("membership"))
                };
                assert!(run.said(told), "{:?}", run.events);
                assert!(run.node_view().is_none(), "{}", run.summary());
            });
        });
    }
}

/// Replaces the value behind a flag.
fn replace(command: &mut std::process::Command, flag: &str, value: &str) {
    let program = command.get_program().to_owned();
    let mut arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let at = arguments
        .iter()
        .position(|argument| argument == flag)
        .expect("the flag is there");
    arguments[at + 1] = value.into();
    *command = std::process::Command::new(program);
    command.args(arguments);
}

/// A frame as it stands on a stream, changed by `change` before its length is put in front.
fn framed(cluster: &str, key: Option<&ClusterKey>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut codec = FrameCodec::new(cluster, key, Incarnation(77));
    let mut frame = codec.seal(Kind::Control, &[]).to_vec();
    change(&mut frame);
    let mut bytes = (frame.len() as u32).to_le_bytes().to_vec();
    bytes.extend(frame);
    bytes
}

/// Connects, writes, and reads until the node ends the connection; panics if it does not within the bound.
fn refused_within(bound: Duration, to: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(to).expect("the port is open");
    stream
        .set_read_timeout(Some(bound))
        .expect("the bound is not zero");
    // A node that has seen enough resets while the rest is being written.
    let _ = stream.write_all(bytes);
    let from = Instant::now();
    let mut answer = [0; 4096];
    loop {
        match stream.read(&mut answer) {
            Ok(0) => return,
            Ok(_) => assert!(from.elapsed() < bound, "{to} goes on answering a stranger"),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                panic!("{to} keeps a stranger's connection for {bound:?}");
            }
            Err(_) => return,
        }
    }
}

fn a_newer_wire_version_is_refused_and_the_log_says_which() {
    unimpressed_by(|cluster| {
        let key = ClusterKey::from_bytes([0x5e; 32]);
        let newer = framed(cluster.name(), Some(&key), |frame| frame[2] = WIRE_VERSION + 1);
        for name in ["n1", "n2", "n3"] {
            let mut stream = TcpStream::connect(cluster.address(name)).expect("the port is open");
            stream.write_all(&newer).expect("a frame fits into the buffers");
            drop(stream);
        }
        cluster.until("all say that the version is newer", SOON, |trace| {
            ["n1", "n2", "n3"]
                .iter()
                .all(|name| mentions(trace, name, &["version"]))
        });
    });
}

fn a_frame_without_the_key_is_refused_and_the_log_says_so() {
    unimpressed_by(|cluster| {
        let plain = framed(cluster.name(), None, |_| {});
        let mut stream = TcpStream::connect(cluster.address("n1")).expect("the port is open");
        stream.write_all(&plain).expect("a frame fits into the buffers");
        cluster.until("n1 says that the key is wrong", SOON, |trace| {
            mentions(trace, "n1", &["key"])
        });
    });
}

fn random_bytes_at_the_port_do_no_harm() {
    unimpressed_by(|cluster| {
        // A fixed sequence of noise (xorshift64), different in every connection.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..200 {
            let noise: Vec<u8> = std::iter::repeat_with(|| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .take(1 + round * 37)
            .collect();
            // Half of it behind a length that could be a frame's.
            let bytes = if round % 2 == 0 {
                noise
            } else {
                [&(noise.len() as u32).to_le_bytes()[..], &noise].concat()
            };
            let to = cluster.address(["n1", "n2", "n3"][round % 3]);
            let mut stream = TcpStream::connect(to).expect("the port is open");
            let _ = stream.write_all(&bytes);
        }
        // Frames that are right up to one flipped bit.
        let key = ClusterKey::from_bytes([0x5e; 32]);
        for bit in 0..448 {
            let flipped = framed(cluster.name(), Some(&key), |frame| {
                frame[bit / 8] ^= 1 << (bit % 8)
            });
            let mut stream = TcpStream::connect(cluster.address("n1")).expect("the port is open");
            let _ = stream.write_all(&flipped);
        }
    });
}

fn a_length_of_four_gigabytes_is_refused_at_once() {
    unimpressed_by(|cluster| {
        for name in ["n1", "n2", "n3"] {
            for length in [u32::MAX, 65_537, 0, 55] {
                let bytes = [&length.to_le_bytes()[..], &[0xa7, 0x1f, 1, 1], &[0; 64]].concat();
                refused_within(SOON, cluster.address(name), &bytes);
            }
        }
    });
}

fn connections_that_say_nothing_or_drip_are_closed_and_do_not_keep_members_out() {
    unimpressed_by(|cluster| {
        let to = cluster.address("n1");
        let mut loris: Vec<TcpStream> = (0..200).map_while(|_| TcpStream::connect(to).ok()).collect();
        assert!(loris.len() > 20, "the port takes strangers at all");
        let silent = TcpStream::connect(cluster.address("n2")).expect("the port is open");
        // A newcomer gets in all the same.
        cluster.until("the members are still together", SOON, |trace| {
            trace.together(&["n1", "n2", "n3"])
        });
        // One byte a while, of a length that is a frame's, until the node has had enough.
        let drip = 4096_u32.to_le_bytes();
        let until = Instant::now() + Duration::from_secs(60);
        let mut sent = 0;
        while !loris.is_empty() && Instant::now() < until {
            let byte = [drip.get(sent).copied().unwrap_or(0)];
            sent += 1;
            loris.retain_mut(|stream| stream.write_all(&byte).is_ok() && still_open(stream));
            cluster.throughout("the members stay together", Duration::from_millis(250), |trace| {
                trace.together(&["n1", "n2", "n3"])
            });
        }
        assert!(
            loris.is_empty(),
            "{} dripping connections are open after a minute",
            loris.len()
        );
        silent
            .set_read_timeout(Some(SOON))
            .expect("the bound is not zero");
        let mut silent = silent;
        assert!(
            !matches!(silent.read(&mut [0; 16]), Ok(1..)),
            "a silent stranger is not answered"
        );
        assert!(
            !still_open(&mut silent),
            "a silent connection is open after all this time"
        );
    });
}

/// Whether the node has not ended this connection.
fn still_open(stream: &mut TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    let open = loop {
        match stream.read(&mut [0; 256]) {
            Ok(0) => break false,
            Ok(_) => {}
            Err(error) => break error.kind() == std::io::ErrorKind::WouldBlock,
        }
    };
    let _ = stream.set_nonblocking(false);
    open
}

fn a_node_without_a_key_binds_only_loopback_unless_told_otherwise() {
    let stage = Stage::new();
    let mut command = std::process::Command::new(crate::program());
    command.args([
        "node",
        "--json",
        "--cluster",
        "real",
        "--name",
        "n1",
        "--bind",
        "0.0.0.0:7400",
    ]);
    command.args(["--advertise", "10.99.0.1:7400"]);
    let process = Process::start(&stage, "n1", command).expect("the program starts");
    let status = process.exit(SOON).expect("it ends by itself");
    assert!(
        !status.success(),
        "it took an open address without a key: {status}"
    );
    assert!(
        mentions(&stage.trace(), "n1", &["--insecure", "insecure"]),
        "{:?}",
        stage.trace().last("n1").log
    );
}
