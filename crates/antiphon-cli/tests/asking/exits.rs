//! Each command's `--help` has a table of exit codes: those that it ends with, each of them, and no others.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::PipeWriter;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use super::common::{Bench, PATIENCE, free_addrs, key};
use rustix::process::Signal;

/// The codes in the table.
pub(super) fn documented(bench: &Bench, command: &str) -> BTreeSet<i32> {
    let help = bench.text(&format!("{command} --help"));
    let table = help
        .split_once("Exit codes:")
        .unwrap_or_else(|| panic!("{command} has no table: {help}"))
        .1;
    let numbered = table
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    numbered
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect()
}

/// What commands end with.
fn seen(bench: &Bench, commands: &[String]) -> BTreeSet<i32> {
    let code = |command: &String| {
        let output = bench.run(command);
        assert!(
            !String::from_utf8_lossy(&output.stderr).contains("panicked"),
            "{command}"
        );
        output.status.code().unwrap_or_else(|| panic!("{command}"))
    };
    commands.iter().map(code).collect()
}

/// How a command ends whose output cannot be written.
pub(super) fn unread(bench: &Bench, command: &str) -> i32 {
    ends(bench, command, nobody_reads(), Stdio::null())
        .code()
        .unwrap()
}

fn nobody_reads() -> PipeWriter {
    let (_, writer) = std::io::pipe().unwrap();
    writer
}

fn ends(bench: &Bench, command: &str, stdout: PipeWriter, stderr: impl Into<Stdio>) -> ExitStatus {
    let mut program = bench.program();
    program
        .args(command.split_whitespace())
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr);
    program.status().unwrap()
}

#[test]
fn whoever_asks_a_node_ends_with_what_help_says() {
    let bench = Bench::new();
    let (_nodes, addrs) = bench.cluster(2);
    let settings = format!(
        "--cluster tea --name a --bind {} --seeds {}",
        addrs[0],
        super::common::list(&addrs)
    );
    for (command, good) in [
        ("members", "members --node a".to_owned()),
        ("why", "why b --node a".to_owned()),
        ("view", "view --node a".to_owned()),
        ("doctor", format!("doctor --within 1s {settings}")),
    ] {
        let failing = match command {
            "doctor" => format!(
                "doctor --within 1s --cluster tea --name x --bind {} --found",
                addrs[0]
            ),
            "why" => "why b --node zz".to_owned(),
            command => format!("{command} --node zz"),
        };
        let wrong = match command {
            "doctor" => "doctor --cluster tea".to_owned(),
            // Two nodes run here.
            "why" => "why b".to_owned(),
            command => command.to_owned(),
        };
        let unknown = format!("{command} --unknown");
        let mut codes = seen(&bench, &[good.clone(), failing, wrong, unknown]);
        codes.insert(unread(&bench, &good));
        assert_eq!(codes, documented(&bench, command), "{command}");
    }
}

#[test]
fn a_node_that_is_asked_for_and_does_not_run_here_is_told_from_those_that_do() {
    let bench = Bench::new();
    let (nodes, _) = bench.cluster(2);
    for asked in [
        "members --node zz",
        "why a --node a --cluster coffee",
        "recover --from zz --yes",
    ] {
        let output = bench.run(asked);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        for (node, name) in nodes.iter().zip(["a", "b"]) {
            let line = format!("--node {name} --cluster tea");
            assert!(
                error.contains(&line) && error.contains(&format!("process {}", node.child.id())),
                "{asked}: {error}"
            );
        }
        assert!(!error.contains("Start one"), "{error}");
    }
}

#[test]
fn a_key_is_made_or_not_with_what_help_says() {
    let bench = Bench::new();
    let file = key(&bench, "key");
    let new = bench.directory.join("new");
    let commands = [
        format!("key {}", new.display()),
        format!("key {}", file.display()),
        "key".to_owned(),
    ];
    assert_eq!(seen(&bench, &commands), documented(&bench, "key"));
}

#[test]
fn a_locator_ends_with_what_help_says() {
    let bench = Bench::new();
    let addr = free_addrs(1)[0];
    let state = bench.directory.join("state");
    let key = key(&bench, "key");
    let start = |arguments: &str| {
        let locator = bench.spoken_to(&format!("locator --cluster tea --json --bind {addr} {arguments}"));
        locator.event(|line| line["event"] == "ready");
        locator
    };
    let mut codes = BTreeSet::new();
    let first = start(&format!("--state {}", state.display()));
    for (arguments, expected) in [
        (String::new(), 1),
        (
            format!(
                "--bind 127.0.0.1:0 --state {}/none/state",
                bench.directory.display()
            ),
            1,
        ),
        (format!("--bind 127.0.0.1:0 --state {}", key.display()), 2),
        (
            format!("--bind 127.0.0.1:0 --key-file {}/none", bench.directory.display()),
            2,
        ),
        ("--bind 10.1.2.3:7".to_owned(), 2),
    ] {
        let bind = if arguments.contains("--bind") {
            String::new()
        } else {
            format!("--bind {addr}")
        };
        let command = format!("locator --cluster tea {bind} {arguments}");
        assert_eq!(
            seen(&bench, std::slice::from_ref(&command)),
            BTreeSet::from([expected]),
            "{command}"
        );
        codes.insert(expected);
    }
    first.signal(Signal::TERM);
    codes.insert(first.exit().code().unwrap());
    let of_another = format!(
        "locator --cluster coffee --bind {addr} --state {}",
        state.display()
    );
    assert_eq!(seen(&bench, &[of_another]), BTreeSet::from([2]));

    // Its last lines find no room: nobody reads, and it waits for two seconds. A second signal does not.
    let (_reader, writer) = std::io::pipe().unwrap();
    fill(&writer);
    let mut program = bench.program();
    let arguments = format!("locator --cluster tea --json --bind {addr}");
    let mut silent = program
        .args(arguments.split_whitespace())
        .stdout(writer)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until_it_listens(addr);
    let pid = rustix::process::Pid::from_child(&silent);
    let signal = |signal| rustix::process::kill_process(pid, signal).unwrap();
    signal(Signal::TERM);
    // Of another kind it counts at once.
    signal(Signal::INT);
    // Which of two that come together is the second, nobody knows.
    match code_of(silent.wait().unwrap()) {
        130 | 143 => codes.insert(130),
        other => panic!("{other}"),
    };
    assert_eq!(codes, documented(&bench, "locator"));
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().expect("it ended by itself")
}

/// Writes until nothing fits any more.
fn fill(pipe: &std::io::PipeWriter) {
    use std::io::Write as _;
    let copy = File::from(std::os::fd::OwnedFd::from(pipe.try_clone().unwrap()));
    let flags = rustix::fs::fcntl_getfl(pipe).unwrap();
    rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while (&copy).write(&[b'\n'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(pipe, flags).unwrap();
}

fn until_it_listens(addr: std::net::SocketAddr) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while std::net::TcpStream::connect(addr).is_err() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How a command ends whose output and complaints go to a pipe that nobody reads.
fn unheard(bench: &Bench, command: &str) -> ExitStatus {
    let pipe = nobody_reads();
    ends(bench, command, pipe.try_clone().unwrap(), pipe)
}

#[test]
fn a_command_whose_complaints_nobody_reads_ends_with_what_help_says_all_the_same() {
    let bench = Bench::new();
    let node = "--cluster tea --name a --bind 127.0.0.1:0";
    for (command, code) in [
        (format!("node {node} --print-config"), 4),
        (format!("agent {node} --print-config"), 4),
        (format!("doctor {node} --print-config"), 4),
        ("swarm --nodes 5".to_owned(), 4),
        (format!("node {node} --seeds nowhere.invalid:1"), 1),
        (format!("node {node} --seeds {}", "x".repeat(5000)), 2),
        ("members --node zz".to_owned(), 1),
        (format!("key {}", bench.directory.join("key").display()), 0),
    ] {
        assert_eq!(code_of(unheard(&bench, &command)), code, "{command}");
    }
    // A device is another thing to write to than a pipe.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut program = bench.program();
    program.args(["node", "--cluster", "c", "--name", "n", "--print-config"]);
    program.stdout(full.try_clone().unwrap()).stderr(full);
    assert_eq!(code_of(program.status().unwrap()), 4);
}
