//! What this host refuses a node: it is found first, said once, and nobody else is blamed for it.

use std::process::{Command, Stdio};

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
