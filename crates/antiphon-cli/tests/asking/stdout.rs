//! What becomes of programs whose standard output nobody reads, or nobody reads any more.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::common::{Bench, PATIENCE, end_of, free_addrs};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

/// A node of which more is told than anybody reads: the receiver hears when it is not taken any more.
fn talkative_node(path: &std::path::Path) -> mpsc::Receiver<()> {
    let listener = UnixListener::bind(path).unwrap();
    let (stalled, is_stalled) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let hello =
            r#"{"answer":"hello","v":1,"cluster":"tea","node":"a","addrs":[],"pid":1,"build":"9.0.0"}"#;
        writeln!(stream, "{hello}").unwrap();
        let event = r#"{"answer":"happened","at_ms":1,"event":"left"}"#;
        while writeln!(stream, "{event}").is_ok() {}
        let _ = stalled.send(());
        // The connection stays.
        let _ = stream.read(&mut [0; 4096]);
        std::thread::sleep(PATIENCE);
    });
    is_stalled
}

#[test]
fn a_watcher_whose_output_is_not_read_ends_when_it_is_told_to() {
    let bench = Bench::new();
    let path = bench.directory.join("talkative.sock");
    let is_stalled = talkative_node(&path);
    let watching = bench
        .program()
        .args(["view", "--watch", "--json", "--console", path.to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    is_stalled
        .recv_timeout(PATIENCE)
        .expect("nobody reads, so it is not taken");
    kill_process(Pid::from_child(&watching), Signal::TERM).unwrap();
    assert!(end_of(watching).success());
}

#[test]
fn a_locator_whose_output_is_not_read_serves_and_ends_when_it_is_told_to() {
    let bench = Bench::new();
    let addr = free_addrs(1)[0];
    // A pipe that is full already.
    let (_reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    let locator = bench
        .program()
        .args(["locator", "--cluster", "tea", "--bind", &addr.to_string()])
        .stdout(Stdio::from(writer))
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(addr).is_err() {
        assert!(Instant::now() < deadline, "it does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    // It listens before it would say so.
    std::thread::sleep(Duration::from_millis(200));
    kill_process(Pid::from_child(&locator), Signal::TERM).unwrap();
    assert!(end_of(locator).success());
}
