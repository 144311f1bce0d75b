//! Nodes with a witness: the process that starts them, keeps their last votes, and proves their deaths.
#![cfg(target_os = "linux")]

mod common;

use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{
    Bench, Node, PATIENCE, Proxy, catches, free_addrs, is_pending, key, list, spoken_to, stop, stop_when,
};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

/// How node views are agreed on.
const ENGINES: [&str; 2] = ["coordinator", "cut"];

/// The process of the node that this one is the witness of.
fn child_of(witness: &Node) -> Pid {
    started_by(process_of(witness)).expect("one child")
}

fn process_of(node: &Node) -> Pid {
    let pid = i32::try_from(node.child.id()).ok().and_then(Pid::from_raw);
    pid.expect("a process")
}

/// The one child of a process, if it has one.
fn started_by(pid: Pid) -> Option<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children
        .ok()
        .and_then(|child| Pid::from_raw(child.trim().parse().ok()?))
}

/// `a` of a cluster of its own, with a witness.
fn alone(bench: &Bench, arguments: &str) -> Node {
    let key = key(bench, "key");
    let arguments = format!("--witness --key-file {} --found {arguments}", key.display());
    let node = bench.node("a", free_addrs(1)[0], &arguments);
    node.view_of(1);
    node
}

/// What a shell makes of this, spoken to as a node.
fn shell(bench: &Bench, script: &str) -> Node {
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", script])
        .env("ANTIPHON_RUNTIME_DIR", &bench.directory);
    spoken_to(shell)
}

fn is_left(line: &Value) -> bool {
    line["event"] == "left"
}

#[test]
fn a_node_with_a_witness_speaks_obeys_and_ends_as_one_without() {
    let bench = Bench::new();
    let node = alone(&bench, "");
    node.say(json!({"send": {"payload": "tea"}}));
    node.event(|line| line["event"] == "message" && line["payload"] == "tea");
    node.say(json!({"leave": {}}));
    node.event(is_left);
    assert_eq!(node.exit().code(), Some(0));

    let node = alone(&Bench::new(), "");
    node.signal(Signal::TERM);
    node.event(is_left);
    assert_eq!(node.exit().code(), Some(0));
}

#[test]
fn control_c_reaches_the_witness_and_the_node_and_means_one_signal() {
    let bench = Bench::new();
    let node = alone(&bench, "");
    let child = child_of(&node);
    kill_process(child, Signal::INT).unwrap();
    node.signal(Signal::INT);
    node.event(is_left);
    assert_eq!(node.exit().code(), Some(0));
}

#[test]
fn what_ends_a_node_before_it_has_begun_ends_its_witness_with_the_same_code() {
    let bench = Bench::new();
    let key = key(&bench, "key");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let in_use = format!(
        "node --cluster tea --name a --bind {addr} --witness --key-file {}",
        key.display()
    );
    assert_eq!(bench.run(&in_use).status.code(), Some(1));

    let keyless = bench.run("node --cluster tea --name a --bind 127.0.0.1:0 --witness");
    let error = String::from_utf8(keyless.stderr).unwrap();
    assert_eq!(keyless.status.code(), Some(2));
    assert!(
        error.contains("--key-file") && error.lines().count() == 1,
        "{error}"
    );
}

/// Where a node with a witness is when the signal comes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    /// Its witness catches signals, and has not started it.
    NoProcess,
    /// It would end by a signal.
    Deaf,
    /// It catches signals, and its console is not there.
    Hears,
}

/// A witness, and its node if that has been started.
struct Found {
    witness: Node,
    node: Option<Pid>,
}

/// Both are stopped where they were found; none if they were past that when they were looked at.
fn stopped_at(moment: Moment, bench: &Bench) -> Option<Found> {
    let mut program = bench.program();
    program
        .args("node --json --cluster tea --name a --bind 127.0.0.1:0 --found --witness --key-file".split(' '))
        .arg(key(bench, "key"))
        .stderr(Stdio::piped());
    let witness = spoken_to(program);
    let parent = process_of(&witness);
    let found = stop_when(parent, || {
        // Until then it is a copy of its parent, which catches what that catches.
        let is_itself = |child: &Pid| {
            std::fs::read_to_string(format!("/proc/{child}/cmdline"))
                .is_ok_and(|words| words.contains("--last-vote"))
        };
        match (moment, started_by(parent)) {
            (Moment::NoProcess, None) => catches(parent, Signal::TERM).then_some(Some(None)),
            (Moment::NoProcess, Some(_)) => Some(None),
            (_, None) => None,
            (_, Some(child)) if !is_itself(&child) => None,
            (_, Some(child)) if !stop(child) || !bench.sockets().is_empty() => Some(None),
            (Moment::Deaf, Some(child)) => Some((!catches(child, Signal::TERM)).then_some(Some(child))),
            (Moment::Hears, Some(child)) if catches(child, Signal::TERM) => Some(Some(Some(child))),
            (Moment::Hears, Some(child)) => {
                kill_process(child, Signal::CONT).unwrap();
                None
            }
        }
    });
    if let (Some(None), Some(orphan)) = (found, started_by(parent)) {
        kill_process(orphan, Signal::KILL).unwrap();
    }
    found.flatten().map(|node| Found { witness, node })
}

#[test]
fn a_node_that_is_told_to_leave_before_it_has_begun_has_left_in_order() {
    for moment in [Moment::NoProcess, Moment::Deaf, Moment::Hears] {
        for to_group in [false, true] {
            let deadline = Instant::now() + PATIENCE;
            let (_bench, Found { witness, node }) = loop {
                let bench = Bench::new();
                if let Some(found) = stopped_at(moment, &bench) {
                    break (bench, found);
                }
                assert!(Instant::now() < deadline, "it is always past that: {moment:?}");
            };
            match to_group {
                // As a terminal and most service managers do.
                true => kill_process_group(process_of(&witness), Signal::TERM).unwrap(),
                false => witness.signal(Signal::TERM),
            }
            witness.signal(Signal::CONT);
            if let Some(node) = node {
                // It goes on where it was found, with the signal from its witness if from nobody else.
                while !is_pending(node, Signal::TERM) {
                    assert!(
                        Instant::now() < deadline + PATIENCE,
                        "{moment:?}: it is not passed on"
                    );
                    std::thread::sleep(Duration::from_millis(1));
                }
                kill_process(node, Signal::CONT).unwrap();
            }
            let status = witness.exit();
            let told = witness.log();
            assert!(
                status.code() == Some(0) && !told.contains("not proven"),
                "{moment:?}, to the group: {to_group}: {status}: {told}"
            );
        }
    }
}

#[test]
fn a_killed_node_ends_its_witness_as_a_shell_tells_it_and_its_output_ends_at_once() {
    let bench = Bench::new();
    let node = alone(&bench, "");
    kill_process(child_of(&node), Signal::KILL).unwrap();
    assert!(!node.rest().iter().any(is_left));
    assert_eq!(node.exit().code(), Some(128 + 9));
}

#[test]
fn the_end_of_a_wrapper_proves_nothing_of_the_node_that_it_started() {
    let bench = Bench::new();
    let key = key(&bench, "key");
    let keeper = antiphon::witness::Keeper::new().unwrap();
    let node = format!(
        "{} node --json --cluster tea --name a --bind 127.0.0.1:0 --found --key-file {} --last-vote {} & echo $! > {}; wait",
        env!("CARGO_BIN_EXE_antiphon"),
        key.display(),
        keeper.path().display(),
        bench.directory.join("pid").display(),
    );
    let wrapper = shell(&bench, &node);
    wrapper.view_of(1);
    let pid = std::fs::read_to_string(bench.directory.join("pid")).unwrap();
    let orphan = Orphan(Pid::from_raw(pid.trim().parse().unwrap()).unwrap());
    wrapper.kill();
    // The wrapper was waited for, and the node lives.
    assert_eq!(keeper.read().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(orphan);
    // Its output ends with it.
    wrapper.rest();
    let deadline = Instant::now() + Duration::from_secs(10);
    while keeper.read().is_err() {
        assert!(Instant::now() < deadline, "the lock is held by nobody");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!keeper.read().unwrap().is_empty(), "what it voted is there");
}

#[test]
fn what_nohup_ignores_the_node_ignores_too() {
    let bench = Bench::new();
    let key = key(&bench, "key");
    let program = env!("CARGO_BIN_EXE_antiphon");
    let node = format!(
        "trap '' HUP; exec {program} node --json --cluster tea --name a --bind 127.0.0.1:0 --found --witness --key-file {}",
        key.display()
    );
    let node = shell(&bench, &node);
    node.view_of(1);
    kill_process(child_of(&node), Signal::HUP).unwrap();
    node.signal(Signal::HUP);
    node.say(json!({"send": {"payload": "still here"}}));
    node.event(|line| line["event"] == "message" && line["payload"] == "still here");
    node.say(json!({"leave": {}}));
    assert_eq!(node.exit().code(), Some(0));
}

#[test]
fn a_node_that_leaves_without_a_majority_does_not_keep_its_witness() {
    let bench = Bench::new();
    let nodes = behind_proxies(&bench, "--witness");
    for node in &nodes[..2] {
        kill_process(child_of(node), Signal::STOP).unwrap();
    }
    nodes[2].event(|line| line["event"] == "node_view" && line["primary"] == false);
    let last = &nodes[2];
    last.signal(Signal::TERM);
    last.event(is_left);
    let left = Instant::now();
    assert_eq!(last.exit().code(), Some(0));
    // One try of two seconds; the patience of the profile `local` is 15 s.
    assert!(left.elapsed() < Duration::from_secs(8), "{:?}", left.elapsed());
    for node in &nodes[..2] {
        kill_process(child_of(node), Signal::KILL).unwrap();
    }
}

/// A process that is nobody's child here, or that the end of its witness would leave running; killed with the
/// test.
struct Orphan(Pid);

impl Drop for Orphan {
    fn drop(&mut self) {
        // It may have ended.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

#[test]
fn a_node_whose_witness_is_killed_goes_on_and_leaves_in_order() {
    let bench = Bench::new();
    let key = key(&bench, "key");
    let addrs = free_addrs(2);
    let settings = format!("--seeds {} --key-file {}", list(&addrs), key.display());
    let a = bench.node("a", addrs[0], &format!("{settings} --witness"));
    let b = bench.node("b", addrs[1], &settings);
    a.view_of(2);
    b.view_of(2);
    let orphan = Orphan(child_of(&a));
    a.kill();
    // Longer than a silent node of the profile `local` is kept: then something is heard of it in the same
    // view.
    std::thread::sleep(Duration::from_millis(1500));
    a.say(json!({"send": {"payload": "still here"}}));
    let line = b.event(|line| line["event"] == "message" || line["event"] == "node_view");
    assert_eq!(line["payload"], "still here", "{line}");
    a.say(json!({"leave": {}}));
    b.view_of(1);
    a.event(is_left);
    drop(orphan);
}

/// Three nodes that reach each other through proxies alone; `a`, then `b`, founded it. Returns them by
/// seniority.
fn behind_proxies(bench: &Bench, more: &str) -> Vec<Node> {
    let key = key(bench, "key");
    let addrs = free_addrs(3);
    let reached: Vec<SocketAddr> = addrs.iter().map(|addr| Proxy::to(*addr).at).collect();
    let mut nodes = Vec::new();
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        let seeds = if index == 0 {
            "--found".to_owned()
        } else {
            format!("--seeds {}", reached[0])
        };
        let advertise = reached[index];
        let settings = format!(
            "--advertise {advertise} {seeds} --key-file {} {more}",
            key.display()
        );
        let node = bench.node(name, addrs[index], &settings);
        nodes.push(node);
        // All of them: who dies before it knows of a newcomer cannot leave its witness where that one is.
        for node in &nodes {
            node.view_of(index + 1);
        }
    }
    nodes
}

#[test]
fn the_last_of_three_behind_proxies_is_primary_when_witnesses_prove_the_deaths_of_the_others() {
    ENGINES
        .into_iter()
        .for_each(is_primary_when_witnesses_prove_the_deaths);
}

fn is_primary_when_witnesses_prove_the_deaths(engine: &str) {
    let bench = Bench::new();
    let nodes = behind_proxies(&bench, &format!("--witness --membership {engine}"));
    for node in &nodes[..2] {
        kill_process(child_of(node), Signal::KILL).unwrap();
    }
    let _last = Orphan(child_of(&nodes[2]));
    nodes[2].view_of(1);
    // A proxy takes connections for the dead as well. Once the last one knows, that is tried for two seconds
    // more, and not for all 15.
    let known = Instant::now();
    for node in &nodes[..2] {
        assert_eq!(node.exit().code(), Some(128 + 9));
    }
    assert!(known.elapsed() < Duration::from_secs(9), "{:?}", known.elapsed());
}

#[test]
fn the_last_of_three_behind_proxies_is_not_primary_when_the_others_die_unseen() {
    ENGINES
        .into_iter()
        .for_each(is_not_primary_when_the_others_die_unseen);
}

fn is_not_primary_when_the_others_die_unseen(engine: &str) {
    let bench = Bench::new();
    let nodes = behind_proxies(&bench, &format!("--membership {engine}"));
    for node in &nodes[..2] {
        node.kill();
    }
    let last = &nodes[2];
    last.event(|line| line["event"] == "node_view" && line["primary"] == false);
    let deadline = Instant::now() + Duration::from_secs(3);
    while let Ok(line) = last
        .lines
        .recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        assert!(line["event"] != "node_view" || line["primary"] == false, "{line}");
    }
}
