//! The demo as a newcomer meets it: real processes are paused, killed, cut off and healed, and its own audit
//! must hold.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .arg("demo")
        .args(arguments)
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

#[test]
fn five_nodes_are_broken_in_every_way_and_keep_every_promise() {
    let (summary, _) = holds(&["--json"]);
    assert_eq!(summary["nodes"], 5);
    // One entry by each node, one by the majority; the lock outlived its first holder, then each elder.
    assert_eq!(summary["map_entries"], 6, "{summary}");
    assert!(summary["lock_grants"].as_u64().unwrap() >= 3, "{summary}");
    assert!(summary["sent"].as_u64().unwrap() > 500, "{summary}");
}

#[test]
fn programs_of_agents_are_killed_with_them_and_hang_up_and_every_promise_is_kept() {
    let (summary, steps) = holds(&["--json", "--agents", "--nodes", "3"]);
    assert!(steps.contains(&"hung_up".to_owned()), "{steps:?}");
    assert!(steps.contains(&"came_again".to_owned()), "{steps:?}");
    assert_eq!(summary["map_entries"], 4, "{summary}");
    assert!(summary["lock_grants"].as_u64().unwrap() >= 3, "{summary}");
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    leaves_nothing_behind(Signal::INT, 130);
}

#[test]
fn a_terminal_that_goes_away_leaves_nothing_behind() {
    leaves_nothing_behind(Signal::HUP, 143);
}

fn leaves_nothing_behind(signal: Signal, code: i32) {
    let folder = std::env::temp_dir().join(format!("antiphon-test-demo-{}-{code}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .args(["demo", "--agents", "--json"])
        .env("TMPDIR", &folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("\"formed\"")));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "its sockets");
    kill_process(Pid::from_child(&demo), signal).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(code));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    std::fs::remove_dir(&folder).unwrap();
}

/// Runs the demo, and gives its summary and its steps. Every promise was kept.
fn holds(arguments: &[&str]) -> (Value, Vec<String>) {
    let output = demo(arguments);
    let lines = lines(&output);
    let story = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{story}");
    let steps = lines.iter().filter_map(|line| line["step"].as_str());
    let steps: Vec<String> = steps.map(str::to_owned).collect();
    for step in [
        "formed",
        "kept",
        "paused",
        "elder_crashed",
        "restarted",
        "majority",
        "minority",
        "refused",
        "healed",
        "alone",
    ] {
        assert!(steps.iter().any(|said| said == step), "no step {step}: {story}");
    }
    let summary = lines.last().unwrap();
    assert_eq!(summary["event"], "summary");
    for count in [
        "lost",
        "duplicated",
        "order_violations",
        "view_violations",
        "invented",
        "call_violations",
        "map_entries_lost",
        "stale_tokens",
        "left_badly",
    ] {
        assert_eq!(summary[count], 0, "{story}");
    }
    for figure in [
        "formed_ms",
        "elder_crash_detected_ms",
        "delivery_gap_ms",
        "lock_moved_ms",
    ] {
        assert!(summary[figure].as_u64().is_some(), "{figure}: {summary}");
    }
    assert!(
        summary["refused"].as_u64().unwrap() > 0,
        "the minority refused nothing: {summary}"
    );
    assert!(summary["calls"].as_u64().unwrap() > 100, "{summary}");
    assert!(
        summary["calls_not_run"].as_u64().unwrap() > 0,
        "each call was run, also those of the minority: {summary}"
    );
    (summary.clone(), steps)
}

#[test]
fn the_smallest_cluster_tells_the_same_story_to_people() {
    let output = demo(&["--nodes", "3"]);
    let story = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{story}");
    assert!(
        story.contains("Every promise was kept.") && story.contains("kill -9 ann"),
        "{story}"
    );
    assert!(!story.contains('\x1b'), "no colours where there is no terminal");
}
