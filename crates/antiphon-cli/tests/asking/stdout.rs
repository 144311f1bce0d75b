//! What becomes of programs whose standard output nobody reads, or nobody reads any more.

use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::common::{Bench, PATIENCE, end_of, free_addrs, spoken_to};
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

/// A node that says this to a client, takes its question, and then says no more.
fn mute_node(path: &std::path::Path, says: String) -> mpsc::Receiver<()> {
    let listener = UnixListener::bind(path).unwrap();
    let (said, is_said) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let hello =
            r#"{"answer":"hello","v":1,"cluster":"tea","node":"a","addrs":[],"pid":1,"build":"9.0.0"}"#;
        writeln!(stream, "{hello}").unwrap();
        assert_ne!(stream.read(&mut [0; 4096]).unwrap(), 0, "the question");
        stream.write_all(says.as_bytes()).unwrap();
        let _ = said.send(());
        let _ = stream.read(&mut [0; 4096]);
    });
    is_said
}

#[test]
fn a_signal_that_cuts_off_an_answer_is_how_its_command_ends() {
    for command in ["view", "members"] {
        let bench = Bench::new();
        let path = bench.directory.join("mute.sock");
        let is_said = mute_node(&path, String::new());
        let asking = bench
            .program()
            .args([command, "--json", "--console", path.to_str().unwrap()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        is_said.recv_timeout(PATIENCE).expect("it asks");
        // Not SIGINT: where these tests run in the background, a shell has it ignored.
        kill_process(Pid::from_child(&asking), Signal::TERM).unwrap();
        assert_eq!(end_of(asking).signal(), Some(Signal::TERM.as_raw()), "{command}");
    }
}

/// A pipe that holds as many empty lines as it can.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    while writer.write(b"\n").is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}

#[test]
fn a_watcher_that_is_told_to_end_writes_what_it_was_told_first() {
    const TOLD: usize = 100;
    let bench = Bench::new();
    let path = bench.directory.join("mute.sock");
    let event = "{\"answer\":\"happened\",\"at_ms\":1,\"event\":\"left\"}\n";
    let is_said = mute_node(&path, format!("{{\"answer\":\"now\"}}\n{}", event.repeat(TOLD)));
    let (mut reader, writer) = full_pipe();
    let watching = bench
        .program()
        .args(["view", "--watch", "--json", "--console", path.to_str().unwrap()])
        .stdout(Stdio::from(writer))
        .spawn()
        .unwrap();
    is_said.recv_timeout(PATIENCE).expect("it asks");
    // It takes what was said, which nobody sees.
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&watching), Signal::TERM).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(end_of(watching).success());
    assert_eq!(text.lines().filter(|line| !line.is_empty()).count(), TOLD);
}

#[test]
fn an_agent_whose_log_nobody_reads_takes_new_tokens_at_each_signal() {
    let bench = Bench::new();
    let tokens = bench.directory.join("tokens");
    let token = |number: u32| format!("{number:032}");
    let put = |number| {
        std::fs::write(&tokens, token(number)).unwrap();
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    put(1);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut program = bench.program();
    program.args([
        "agent",
        "--json",
        "--cluster",
        "tea",
        "--name",
        "a",
        "--bind",
        "127.0.0.1:0",
    ]);
    program.args(["--profile", "local", "--listen", "127.0.0.1:0", "--token-file"]);
    program.arg(&tokens).stderr(writer);
    let agent = spoken_to(program);
    let serving = agent.event(|line| line["event"] == "serving");
    let addr = serving["addrs"][0].as_str().unwrap();
    let admitted = |number| {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "AUTH {}\r\n", token(number)).unwrap();
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        first == *b"+"
    };
    assert!(admitted(1));
    for number in [2, 3] {
        put(number);
        agent.signal(Signal::HUP);
        let deadline = Instant::now() + PATIENCE;
        while !admitted(number) {
            assert!(Instant::now() < deadline, "token {number} is not in force");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!admitted(number - 1));
    }
}

#[test]
fn a_node_whose_standard_input_does_not_block_takes_what_comes_late() {
    let bench = Bench::new();
    let (input, mut to_node) = std::io::pipe().unwrap();
    fcntl_setfl(&input, OFlags::NONBLOCK).unwrap();
    let mut program = bench.program();
    program.args([
        "node",
        "--cluster",
        "tea",
        "--name",
        "a",
        "--bind",
        "127.0.0.1:0",
        "--profile",
        "local",
    ]);
    let mut node = program
        .arg("--json")
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (told, lines) = mpsc::channel();
    let output = BufReader::new(node.stdout.take().unwrap());
    std::thread::spawn(move || {
        output
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| told.send(line))
    });
    let until = |event: &str| while !lines.recv_timeout(PATIENCE).expect(event).contains(event) {};
    until("\"event\":\"view\"");
    to_node.write_all(b"{\"leave\":{}}\n").unwrap();
    until("\"event\":\"left\"");
    assert!(end_of(node).success());
}

#[test]
fn a_locator_whose_output_is_not_read_serves_and_ends_when_it_is_told_to() {
    let bench = Bench::new();
    let addr = free_addrs(1)[0];
    let (_reader, writer) = full_pipe();
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
