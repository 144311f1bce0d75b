//! What this host refuses a node: it is found first, said once, and nobody else is blamed for it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::common::{Bench, free_addrs, list, spoken_to};
use super::doctor::newcomer;

/// The program where `ulimit` is called so first.
pub(super) fn limited(bench: &Bench, ulimit: &str, arguments: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit {ulimit} && exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_antiphon"))
        .args(arguments.split_whitespace())
        .env("ANTIPHON_RUNTIME_DIR", bench.directory.join("antiphon"))
        .stdin(Stdio::null());
    command
}

#[test]
fn a_node_without_a_file_to_open_blames_its_limit_once_and_none_of_its_seeds() {
    let bench = Bench::new();
    let addrs = free_addrs(3);
    let seeds = format!("--seeds {}", list(&addrs));
    let healthy = [("a", addrs[0]), ("b", addrs[1])].map(|(name, addr)| bench.node(name, addr, &seeds));
    healthy.iter().for_each(|node| drop(node.view_of(2)));
    let settings = newcomer(addrs[2], &addrs);
    let mut command = limited(&bench, "-n 16", &format!("node --json {settings}"));
    command.stderr(Stdio::piped());
    let poor = spoken_to(command);
    // It is told again after five seconds: dozens of attempts have failed by then.
    for _ in 0..2 {
        let forming = poor.event(|line| line["event"] == "forming");
        assert_eq!(forming["reason"], serde_json::Value::Null, "{forming}");
    }
    poor.kill();
    let told = poor.log();
    let lines: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("antiphon::net"))
        .collect();
    assert_eq!(lines.len(), 1, "{told}");
    for part in [
        "may not open more files",
        "takes up to 45",
        "LimitNOFILE",
        "to 90",
    ] {
        assert!(lines[0].contains(part), "{part}: {told}");
    }
    assert!(told.contains("may open 16 files"), "also at its start: {told}");
}

#[test]
fn the_doctor_says_that_the_limit_of_open_files_is_too_low() {
    let bench = Bench::new();
    let addrs = free_addrs(3);
    let output = limited(
        &bench,
        "-n 40",
        &format!("doctor --within 1s {}", newcomer(addrs[2], &addrs)),
    )
    .output()
    .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let step = told.lines().find(|line| line.contains(" files: ")).expect(&told);
    assert!(step.starts_with("failed") && step.contains("up to 45"), "{told}");
    assert_eq!(output.status.code(), Some(1), "{told}");
}

#[test]
fn a_low_soft_limit_is_raised_to_the_hard_one() {
    let bench = Bench::new();
    let addrs = free_addrs(1);
    let settings = format!("node --json {}", newcomer(addrs[0], &addrs));
    let mut command = limited(&bench, "-Sn 16", &settings);
    command.stderr(Stdio::piped());
    let node = spoken_to(command);
    node.view_of(1);
    node.kill();
    let told = node.log();
    assert!(!told.contains("files"), "{told}");
}

/// A connection of a program that has said this, and the first of what it is told; nothing if it only ends.
fn said(addr: SocketAddr, what: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut told = [0; 4096];
    // An error is the end of the connection, too: unless it is a time that is over.
    let read = match stream
        .write_all(what.as_bytes())
        .and_then(|()| stream.read(&mut told))
    {
        Ok(read) => read,
        Err(error) => {
            let is_late = error.kind() == std::io::ErrorKind::WouldBlock;
            assert!(!is_late, "no answer and no end");
            0
        }
    };
    (stream, String::from_utf8_lossy(&told[..read]).into_owned())
}

#[test]
fn programs_that_leave_connections_behind_leave_an_agent_its_files() {
    let bench = Bench::new();
    let addrs = free_addrs(1);
    let settings = newcomer(addrs[0], &addrs);
    let settings = format!("agent --json --listen 127.0.0.1:0 {settings}");
    let mut command = limited(&bench, "-n 128", &settings);
    command.stderr(Stdio::piped());
    let agent = spoken_to(command);
    let serving = agent.event(|line| line["event"] == "serving");
    let addr: SocketAddr = serving["addrs"][0].as_str().unwrap().parse().unwrap();
    let held: Vec<(TcpStream, String)> = (0..140).map(|_| said(addr, "{\"hello\":{\"id\":0}}\n")).collect();
    let welcome = |told: &str| told.contains("\"welcome\"");
    let served = held.iter().filter(|(_, told)| welcome(told)).count();
    assert!((20..64).contains(&served), "{served} of {}", held.len());
    // What watches the agent gets its answer all the same, and so does a node.
    let probe = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert!(said(addr, probe).1.starts_with("HTTP/1.1 200 "));
    let probe = probe.replace("livez", "readyz");
    assert!(said(addr, &probe).1.starts_with("HTTP/1.1 "));
    let _node = TcpStream::connect(addrs[0]).unwrap();
    agent.kill();
    let told = agent.log();
    assert!(told.contains("may open 128 files, so at most"), "{told}");
    assert!(!told.contains("may not open more files"), "{told}");
    assert!(!told.contains("cannot accept a program"), "{told}");
}
