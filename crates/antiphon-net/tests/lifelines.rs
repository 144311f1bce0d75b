//! R9 with real processes and real kernels: only the end of a process gives a FIN.
#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use antiphon_core::wire::Incarnation;
use antiphon_core::wire::frame::Kind;
use antiphon_core::{Class, DialId, LifelineCommand, LifelineEnd, LifelineEvent};
use antiphon_net::memory::MemoryNetwork;
use antiphon_net::{Fault, Faults, Input, Inputs, Transport};
use bytes::Bytes;
use common::{codec, frame, tcp, text, wait_for};

const WATCHER: Incarnation = Incarnation(7);
const DIAL: DialId = DialId(1);

/// What a test does as the watched process, when this binary is started again with `WATCHED_BY` set.
#[test]
#[ignore = "runs in a child process of the tests below"]
fn watched_process() {
    let Ok(watcher) = std::env::var("WATCHED_BY") else {
        return;
    };
    let watcher: SocketAddr = watcher.parse().expect("an address");
    let behaviour = std::env::var("BEHAVIOUR").expect("what to do");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let (mut transport, mut inputs, addr) = tcp("127.0.0.1:0", |_| {});
        transport.lifeline(LifelineCommand::Open {
            dial: DIAL,
            to: WATCHER,
            addr: watcher,
        });
        wait_for(&mut inputs, |input| {
            matches!(
                input,
                Input::Lifeline {
                    event: LifelineEvent::Opened { .. },
                    ..
                }
            )
            .then_some(())
        })
        .await;
        let mut codec = codec(1);
        for record in ["hello", "vote"] {
            let record = frame(&mut codec, Kind::Lifeline, record).to_bytes();
            assert_eq!(
                transport.lifeline(LifelineCommand::Write { dial: DIAL, record }),
                None
            );
        }
        println!("\nwatched at {addr}");
        match behaviour.as_str() {
            "live" => std::future::pending().await,
            "reset" => {
                transport.lifeline(LifelineCommand::Reset { dial: DIAL });
                std::future::pending().await
            }
            "drop" => {
                drop(transport);
                std::future::pending().await
            }
            "exit" => std::process::exit(0),
            // The runtime and all it holds are dropped, then the process ends.
            "return" => {}
            other => panic!("no such behaviour: {other}"),
        }
    });
}

/// A watched process. Killed when dropped.
struct Watched {
    child: Child,
    addr: SocketAddr,
}

impl Watched {
    fn start(watcher: SocketAddr, behaviour: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "watched_process", "--ignored", "--nocapture"])
            .env("WATCHED_BY", watcher.to_string())
            .env("BEHAVIOUR", behaviour)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child process");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let line = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("watched at ").map(str::to_owned));
        let addr = line.expect("it opens its lifeline").parse().expect("an address");
        Self { child, addr }
    }

    fn signal(&self, signal: &str) {
        let done = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()
            .expect("kill");
        assert!(done.success());
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All records up to the end, and how it ended.
async fn watch_to_the_end(inputs: &mut Inputs) -> (Vec<String>, LifelineEnd) {
    let mut opener = codec(2);
    let mut records = Vec::new();
    let end = wait_for(inputs, |input| match input {
        Input::Lifeline {
            event: LifelineEvent::Record { record, .. },
            connection,
        } => {
            records.push(text(&mut opener, record));
            connection.expect("a record's connection").accepted();
            None
        }
        Input::Lifeline {
            event: LifelineEvent::Ended { end, .. },
            ..
        } => Some(end),
        _ => None,
    })
    .await;
    (records, end)
}

async fn ends(behaviour: &str, signals: &[&str]) -> LifelineEnd {
    let (_transport, mut inputs, addr) = tcp("127.0.0.1:0", |_| {});
    let watched = Watched::start(addr, behaviour);
    for signal in signals {
        watched.signal(signal);
    }
    let (records, end) = watch_to_the_end(&mut inputs).await;
    assert_eq!(records, ["hello", "vote"], "records come before the end");
    end
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_is_proven_dead_with_its_last_vote() {
    assert_eq!(ends("live", &["-KILL"]).await, LifelineEnd::Fin);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_while_stopped_is_proven_dead() {
    assert_eq!(ends("live", &["-STOP", "-KILL"]).await, LifelineEnd::Fin);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_exits_without_cleaning_up_is_proven_dead() {
    assert_eq!(ends("exit", &[]).await, LifelineEnd::Fin);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lifeline_reset_by_code_proves_nothing() {
    assert_eq!(ends("reset", &[]).await, LifelineEnd::Broken);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transport_dropped_in_a_living_process_proves_nothing() {
    assert_eq!(ends("drop", &[]).await, LifelineEnd::Broken);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_dropped_before_the_process_ends_proves_nothing() {
    assert_eq!(ends("return", &[]).await, LifelineEnd::Broken);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_process_behind_a_cut_cable_is_seen_only_after_the_heal() {
    let (mut transport, mut inputs, addr) = tcp("127.0.0.1:0", |_| {});
    let watched = Watched::start(addr, "live");
    let mut opener = codec(2);
    for expected in ["hello", "vote"] {
        let record = wait_for(&mut inputs, |input| match input {
            Input::Lifeline {
                event: LifelineEvent::Record { record, .. },
                connection,
            } => {
                connection.expect("a record's connection").accepted();
                Some(record)
            }
            _ => None,
        })
        .await;
        assert_eq!(text(&mut opener, record), expected);
    }
    let cut = Faults {
        peers: [(
            watched.addr,
            Fault {
                block: true,
                ..Fault::default()
            },
        )]
        .into(),
    };
    transport.set_faults(cut);
    watched.signal("-KILL");
    // Other peers are heard; a whole second process lives and dies meanwhile.
    let other = Watched::start(addr, "exit");
    let (records, end) = watch_to_the_end(&mut inputs).await;
    assert_eq!(
        (records, end),
        (vec!["hello".to_owned(), "vote".to_owned()], LifelineEnd::Fin)
    );
    drop(other);
    transport.set_faults(Faults::default());
    let (records, end) = watch_to_the_end(&mut inputs).await;
    assert_eq!((records.len(), end), (0, LifelineEnd::Fin));
}

#[tokio::test]
async fn a_watcher_that_writes_or_goes_fails_the_lifeline() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let (mut transport, mut inputs, _) = tcp("127.0.0.1:0", |_| {});
    for (attempt, writes) in [(DialId(1), true), (DialId(2), false)] {
        let addr = listener.local_addr().expect("an address");
        transport.lifeline(LifelineCommand::Open {
            dial: attempt,
            to: WATCHER,
            addr,
        });
        let (stream, _) = listener.accept().await.expect("a connection");
        wait_for(&mut inputs, |input| {
            matches!(
                input,
                Input::Lifeline {
                    event: LifelineEvent::Opened { .. },
                    ..
                }
            )
            .then_some(())
        })
        .await;
        if writes {
            stream.writable().await.expect("writable");
            assert_eq!(stream.try_write(b"!").expect("written"), 1);
        } else {
            drop(stream);
        }
        wait_for(&mut inputs, |input| match input {
            Input::Lifeline {
                event: LifelineEvent::Failed { dial },
                ..
            } => (dial == attempt).then_some(()),
            _ => None,
        })
        .await;
    }
}

#[tokio::test]
async fn a_lifeline_that_cannot_take_a_record_is_reset_before_anything_else_leaves() {
    // A watcher that never reads: the kernel's buffers fill up.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let (mut transport, mut inputs, _) = tcp("127.0.0.1:0", |_| {});
    transport.lifeline(LifelineCommand::Open {
        dial: DIAL,
        to: WATCHER,
        addr: listener.local_addr().expect("an address"),
    });
    wait_for(&mut inputs, |input| {
        matches!(
            input,
            Input::Lifeline {
                event: LifelineEvent::Opened { .. },
                ..
            }
        )
        .then_some(())
    })
    .await;
    let (stream, _) = listener.accept().expect("a connection");
    let record: Bytes = codec(1).seal(Kind::Lifeline, &[0; 60_000]);
    let failed = (0..10_000).find_map(|_| {
        transport.lifeline(LifelineCommand::Write {
            dial: DIAL,
            record: record.clone(),
        })
    });
    assert_eq!(failed, Some(LifelineEvent::Failed { dial: DIAL }));
    drop(inputs);
    // Once what was written is read, the end is an error, never a plain end.
    let end = tokio::task::spawn_blocking(move || std::io::copy(&mut &stream, &mut std::io::sink()))
        .await
        .expect("no panic");
    assert!(end.is_err(), "a FIN after a record cut short: {end:?}");
}

#[tokio::test]
async fn in_memory_only_a_kill_gives_a_fin() {
    for (kill, expected) in [(true, LifelineEnd::Fin), (false, LifelineEnd::Broken)] {
        let network = MemoryNetwork::new();
        let any: SocketAddr = "10.0.0.1:0".parse().expect("an address");
        let (watcher, mut watcher_inputs) = network.bind(any).expect("free");
        let (mut watched, _watched_inputs) = network.bind(any).expect("free");
        let opened = watched.lifeline(LifelineCommand::Open {
            dial: DIAL,
            to: WATCHER,
            addr: watcher.local_addr(),
        });
        assert!(matches!(opened, Some(LifelineEvent::Opened { .. })));
        let record = frame(&mut codec(1), Kind::Lifeline, "hello").to_bytes();
        assert_eq!(
            watched.lifeline(LifelineCommand::Write { dial: DIAL, record }),
            None
        );
        if kill {
            assert!(network.kill(watched.local_addr()));
            watched.send(
                watcher.local_addr(),
                Class::Control,
                frame(&mut codec(1), Kind::Control, "a ghost"),
            );
        } else {
            drop(watched);
        }
        let (records, end) = watch_to_the_end(&mut watcher_inputs).await;
        assert_eq!((records, end), (vec!["hello".to_owned()], expected));
    }
}
