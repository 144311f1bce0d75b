//! A swarm as a person meets it: many nodes form, rest, join and leave, and the end is clean however it
//! comes.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn swarm(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    command
        .arg("swarm")
        .args(arguments.split_whitespace())
        .stdin(Stdio::null());
    command
}

fn summary(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn nodes_of_two_processes_form_one_cluster_take_one_more_in_and_leave() {
    let arguments = "--nodes 8 --processes 2 --joins 2 --seconds 0.5 --profile local --keyed --group --json";
    let output = swarm(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary = summary(&output);
    assert_eq!(summary["event"], "summary");
    assert_eq!((&summary["nodes"], &summary["processes"]), (&8.into(), &2.into()));
    let sizes = summary["sizes"].as_array().unwrap();
    assert!(sizes.contains(&8.into()), "{summary}");
    assert_eq!(summary["sizes_seen"], sizes.len());
    for figure in [
        "formed_ms",
        "left_ms",
        "descriptors_per_node",
        "memory_bytes_per_node",
        "most_connections",
    ] {
        assert!(
            summary[figure].as_f64().is_some_and(|value| value > 0.0),
            "{figure}: {summary}"
        );
    }
    // Everyone is heard of at rest, by somebody.
    assert!(
        summary["rest"]["bytes_sent_per_node_per_s"].as_f64().unwrap() > 0.0,
        "{summary}"
    );
    assert_eq!(summary["removed"], serde_json::json!([]), "{summary}");
    let own = summary["join_own_ms"]["median"].as_f64().unwrap();
    let everywhere = summary["join_everywhere_ms"]["median"].as_f64().unwrap();
    assert!(own > 0.0 && everywhere > 0.0, "{summary}");
}

#[test]
fn forty_nodes_on_the_cut_engine_form_in_a_few_steps_hold_few_connections_and_leave_at_once() {
    let output = swarm("--nodes 40 --membership cut --seconds 2 --profile lan --json")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary = summary(&output);
    assert_eq!(summary["nodes"], 40);
    assert_eq!(summary["removed"], serde_json::json!([]), "{summary}");
    assert!(summary["sizes_seen"].as_u64().unwrap() <= 8, "{summary}");
    // Some twenty neighbours, a connection each way, and what a node has for itself; to all others it would
    // be more than a hundred.
    let descriptors = summary["rest"]["descriptors_per_node"].as_f64().unwrap();
    assert!(descriptors <= 64.0, "{summary}");
    // Who finds nobody to confirm its leave goes after five seconds: nobody had to.
    let left_ms = summary["left_ms"].as_f64().unwrap();
    assert!(left_ms < 5_000.0, "{summary}");
}

#[test]
fn a_person_is_told_the_engine_and_the_files_while_forming_and_at_rest() {
    let arguments = "--nodes 3 --membership cut --profile local --seconds 0.3 --joins 1";
    let output = swarm(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let line_of = |word: &str| {
        let line = text.lines().find(|line| line.starts_with(word));
        line.unwrap_or_else(|| panic!("no {word}: {text}"))
    };
    assert!(line_of("swarm ").contains("3 nodes in one process; membership cut, profile local, tcp"));
    assert!(line_of("formed ").contains("sizes seen"));
    assert!(line_of("at rest ").contains("open files of each"));
    assert_eq!(text.matches("open files of each").count(), 2, "{text}");
    assert!(!line_of("joined ").is_empty() && !line_of("left ").is_empty());
}

#[test]
fn a_signal_makes_all_nodes_leave_and_nothing_stays_behind() {
    let mut child = swarm("--nodes 4 --seconds 600 --profile local --json")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let formed: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(formed["event"], "formed");
    let pid = Pid::from_child(&child);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let children: Vec<&str> = children.split_whitespace().collect();
    assert!(!children.is_empty(), "the nodes have a process of their own");
    // As `timeout` does: to the process, and to its group.
    kill_process(pid, Signal::INT).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "they left in order");
    let last: Value = serde_json::from_str(&lines.last().unwrap().unwrap()).unwrap();
    assert_eq!(
        (&last["event"], &last["interrupted"]),
        (&"summary".into(), &true.into()),
        "{last}"
    );
    for child in children {
        assert!(
            !std::path::Path::new("/proc").join(child).exists(),
            "process {child} stays behind"
        );
    }
}

#[test]
fn nodes_leave_when_nobody_reads_what_is_told_of_them() {
    let mut child = swarm("--nodes 3 --seconds 1 --profile local --json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("formed"));
    drop(lines);
    let output = child.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{complaint}");
    assert!(
        complaint.contains("standard output") && !complaint.contains("panicked"),
        "{complaint}"
    );
}

#[test]
fn more_nodes_than_the_system_has_files_for_are_refused_with_what_would_help() {
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_antiphon");
    // Who may raise even the hard limit is not refused: root gives that right up first.
    let humbly = match rustix::process::geteuid().is_root() {
        true => "setpriv --bounding-set -sys_resource --inh-caps -sys_resource",
        false => "",
    };
    if !humbly.is_empty() && Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("SKIPPED: root needs setpriv (package util-linux) to give up its right to more files");
        return;
    }
    let script = format!("ulimit -Sn 400; ulimit -Hn 400; exec {humbly} {program} swarm --nodes 30 --json");
    let output = command
        .args(["-c", &script])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(
        complaint.contains("--processes") && complaint.contains("400"),
        "{complaint}"
    );
    assert!(output.stdout.is_empty());
    let spread = swarm("--nodes 3 --processes 4").output().unwrap();
    assert_eq!(spread.status.code(), Some(2), "{spread:?}");
}

#[test]
fn more_nodes_than_the_engine_takes_are_refused_before_any_is_started() {
    for (arguments, expected) in [
        ("--nodes 257", "at most 256 members; give --membership cut"),
        ("--nodes 256 --joins 1", "one more that joins"),
        (
            "--nodes 4097 --membership cut",
            "at most 4096 members; give fewer nodes",
        ),
    ] {
        let output = swarm(arguments).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert!(complaint.contains(expected), "{arguments}: {complaint}");
        assert!(output.stdout.is_empty());
    }
}
