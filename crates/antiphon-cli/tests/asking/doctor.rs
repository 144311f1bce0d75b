//! `antiphon doctor`: each thing that can be wrong is told from the others, and nothing of the cluster
//! changes by asking.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use super::common::{Bench, Node, PATIENCE, free_addrs, key, list};
use rustix::process::Signal;
use serde_json::Value;

/// What the doctor said: its steps, its verdict, its exit code.
pub(super) struct Told {
    pub(super) steps: Vec<Value>,
    pub(super) verdict: Value,
    pub(super) code: Option<i32>,
}

impl Told {
    /// The step that failed, or warns, with this word.
    pub(super) fn failed(&self, code: &str) -> &Value {
        let mut steps = self.steps.iter();
        steps
            .find(|step| step["code"] == code)
            .unwrap_or_else(|| panic!("no {code} in {self}"))
    }

    pub(super) fn step(&self, name: &str, outcome: &str) -> &Value {
        let mut steps = self.steps.iter();
        steps
            .find(|step| step["step"] == name && step["outcome"] == outcome)
            .unwrap_or_else(|| panic!("no {outcome} step {name} in {self}"))
    }

    pub(super) fn failures(&self) -> Vec<&str> {
        let failed = self.steps.iter().filter(|step| step["outcome"] == "failed");
        failed.map(|step| step["code"].as_str().unwrap()).collect()
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        writeln!(f, "{}, exit {:?}", self.verdict, self.code)
    }
}

pub(super) fn doctor(bench: &Bench, arguments: &str) -> Told {
    doctor_with(bench, &[], arguments)
}

/// With these variables in its environment.
pub(super) fn doctor_with(bench: &Bench, environment: &[(&str, &str)], arguments: &str) -> Told {
    let mut program = bench.program();
    program.args(["doctor", "--json", "--within", "1s"]);
    program.args(arguments.split_whitespace());
    program.envs(environment.iter().copied()).stdin(Stdio::null());
    let output = program.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut steps: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    let verdict = steps
        .pop()
        .unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(verdict["event"], "verdict");
    Told {
        steps,
        verdict,
        code: output.status.code(),
    }
}

/// The settings of a node that would join, or found, with these.
pub(super) fn newcomer(addr: SocketAddr, seeds: &[SocketAddr]) -> String {
    format!(
        "--cluster tea --name new --bind {addr} --seeds {} --profile local",
        list(seeds)
    )
}

/// Asks a peer that says this on each connection, and goes on as it is told.
fn strange_peer(says: &'static [u8], waits_for_bytes: usize, holds: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let mut bytes = vec![0; waits_for_bytes];
            if stream.read_exact(&mut bytes).is_err() {
                continue;
            }
            stream.write_all(says).unwrap();
            if holds {
                held.push(stream);
            }
        }
    });
    addr
}

#[test]
fn settings_that_cannot_work_end_with_two_and_the_reason() {
    let bench = Bench::new();
    let told = doctor(&bench, "--cluster c --name n --bind 10.1.2.3:7");
    assert_eq!(told.code, Some(2), "{told}");
    assert!(
        told.failed("settings")["text"]
            .as_str()
            .unwrap()
            .contains("loopback")
    );
    let nothing = doctor(&bench, "");
    assert_eq!((nothing.code, nothing.failures()), (Some(2), vec!["settings"]));
    let text = nothing.failed("settings")["text"].as_str().unwrap();
    assert!(text.contains("no settings are given"), "{nothing}");
    // One that is missing is named, whether or not a node runs here.
    let _other = bench.node("other", free_addrs(1)[0], "");
    for given in [
        "--cluster tea --bind 127.0.0.1:7",
        "--name n",
        "--seeds 127.0.0.1:7",
    ] {
        let told = doctor(&bench, given);
        assert_eq!(
            (told.code, told.failures()),
            (Some(2), vec!["settings"]),
            "{told}"
        );
        let missing = if given.contains("--cluster") {
            "no name"
        } else {
            "no cluster"
        };
        assert!(
            told.failed("settings")["text"]
                .as_str()
                .unwrap()
                .contains(missing),
            "{told}"
        );
    }
}

#[test]
fn a_file_that_asks_for_json_gets_nothing_else() {
    let bench = Bench::new();
    let file = bench.directory.join("node.toml");
    let text = format!(
        "cluster = \"tea\"\nname = \"n\"\nbind = \"{}\"\njson = true\n",
        free_addrs(1)[0]
    );
    std::fs::write(&file, &text).unwrap();
    let output = bench.run(&format!("doctor --config {}", file.display()));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.lines().count() > 2, "{told}");
    for line in told.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let printed = bench.text(&format!("doctor --print-config --config {}", file.display()));
    assert!(
        printed.contains("json = true") && !printed.contains("verdict"),
        "{printed}"
    );
}

#[test]
fn each_name_is_looked_up_by_itself() {
    let bench = Bench::new();
    let addr = free_addrs(1)[0];
    let told = doctor(
        &bench,
        &format!(
            "--cluster c --name n --bind {addr} --seeds {addr},nowhere.invalid:7,localhost:{}",
            addr.port()
        ),
    );
    let failed = told.failed("name-not-resolved");
    assert_eq!(failed["subject"], "seeds nowhere.invalid:7");
    assert!(failed["remedy"].as_str().unwrap().contains("resolver"));
    assert!(
        told.step("settings", "ok")["text"]
            .as_str()
            .unwrap()
            .contains("2 seeds"),
        "{told}"
    );
    assert_eq!(told.code, Some(1));
}

#[test]
fn a_newcomer_to_a_healthy_cluster_is_told_so_and_the_cluster_does_not_notice() {
    let bench = Bench::new();
    let (_nodes, addrs) = bench.cluster(2);
    let before = bench.json("members --node a");
    let settings = newcomer(free_addrs(1)[0], &addrs);
    for _ in 0..3 {
        let told = doctor(&bench, &settings);
        assert_eq!(told.code, Some(0), "{told}");
        assert_eq!(
            (&told.verdict["ok"], &told.verdict["gets_in"]),
            (&true.into(), &true.into())
        );
        assert!(
            told.verdict["text"].as_str().unwrap().contains("would join"),
            "{told}"
        );
        assert_eq!(told.failures(), [""; 0], "{told}");
        for step in ["bind", "reach", "identity", "answer", "engine", "verdict"] {
            told.step(step, "ok");
        }
    }
    let after = bench.json("members --node a");
    assert_eq!(before["id"], after["id"]);
    assert_eq!(
        (&after["joining"], &after["refused"]),
        (&Value::Array(vec![]), &Value::Array(vec![]))
    );
    let text = bench.text(&format!("doctor {settings}"));
    assert!(text.contains("verdict: the cluster is there"), "{text}");
}

#[test]
fn seeds_that_are_ready_and_those_that_are_missing_make_the_verdict() {
    let bench = Bench::new();
    let addrs = free_addrs(3);
    let settings = newcomer(addrs[0], &addrs);
    let alone = doctor(&bench, &settings);
    assert_eq!(alone.code, Some(1));
    assert_eq!(alone.failures(), ["nobody-listens", "nobody-listens"], "{alone}");
    assert!(
        alone.verdict["text"].as_str().unwrap().contains("1 of 3 seeds"),
        "{alone}"
    );
    let _second = bench.node("b", addrs[1], &format!("--seeds {}", list(&addrs)));
    let two = doctor(&bench, &settings);
    assert_eq!(two.failures(), ["nobody-listens"], "{two}");
    assert_eq!(two.failed("nobody-listens")["subject"], addrs[2].to_string());
    assert_eq!(two.verdict["gets_in"], true);
    assert!(
        two.verdict["text"]
            .as_str()
            .unwrap()
            .contains("2 of 3 seeds are ready"),
        "{two}"
    );
    assert!(
        two.step("verdict", "ok")["text"]
            .as_str()
            .unwrap()
            .contains("in no cluster yet"),
        "{two}"
    );
    let founder = doctor(
        &bench,
        &format!("--cluster tea --name x --bind {} --found", free_addrs(1)[0]),
    );
    assert_eq!(
        (founder.code, &founder.verdict["gets_in"]),
        (Some(0), &true.into()),
        "{founder}"
    );
}

/// A locator that is ready.
pub(super) fn locator(bench: &Bench, addr: SocketAddr) -> Node {
    let locator = bench.spoken_to(&format!("locator --cluster tea --json --bind {addr}"));
    assert_eq!(locator.line()["event"], "ready");
    locator
}

#[test]
fn sources_and_locators_are_looked_at_and_whoever_is_found_is_asked() {
    let bench = Bench::new();
    let addrs = free_addrs(4);
    let file = bench.directory.join("nodes");
    std::fs::write(&file, format!("{}\n{} # not running\n", addrs[1], addrs[2])).unwrap();
    let source = format!("file:{}", file.display());
    let _second = bench.node("b", addrs[1], &format!("--seeds {source} --expect 2"));
    let _locator = locator(&bench, addrs[3]);
    let missing = format!("file:{}.none", file.display());
    let told = doctor(
        &bench,
        &format!(
            "--cluster tea --name new --bind {} --profile local --expect 2 --seeds {source},{missing},multicast@127.0.0.1 --locators {}",
            addrs[0], addrs[3]
        ),
    );
    let text = |step: &Value| step["text"].as_str().unwrap().to_owned();
    assert_eq!(told.failures(), ["nothing-found", "nobody-listens"], "{told}");
    assert_eq!(told.failed("nothing-found")["subject"], missing);
    assert_eq!(told.failed("nobody-listens")["subject"], addrs[2].to_string());
    let found = text(told.step("source", "ok"));
    assert_eq!(found, format!("{}, {}", addrs[1], addrs[2]));
    assert_eq!(told.step("source", "skipped")["subject"], "multicast@127.0.0.1");
    let of_the_locator = told.steps.iter().find(|step| {
        step["step"] == "identity" && step["subject"] == addrs[3].to_string() && step["outcome"] == "ok"
    });
    assert!(
        text(of_the_locator.unwrap()).contains("a locator of cluster tea"),
        "{told}"
    );
    assert_eq!(told.verdict["gets_in"], true, "{told}");
    let verdict = told.verdict["text"].as_str().unwrap();
    assert!(verdict.contains("2 of the 2 expected are ready"), "{told}");
}

#[test]
fn a_cluster_that_only_a_locator_knows_is_found_and_asked() {
    let bench = Bench::new();
    let addrs = free_addrs(4);
    let _locator = locator(&bench, addrs[3]);
    let with_locator = format!("--locators {} --expect 2", addrs[3]);
    let new = format!(
        "--cluster tea --name new --bind {} --profile local --locators {} --expect 3",
        addrs[2], addrs[3]
    );
    let told = doctor(&bench, &new);
    let text = |step: &Value| step["text"].as_str().unwrap().to_owned();
    let knows = told.step("locator", "warning");
    assert!(
        text(knows).contains("knows 0 members and 0 other nodes"),
        "{told}"
    );
    assert_eq!(told.verdict["gets_in"], false, "{told}");

    let nodes = [
        bench.node("a", addrs[0], &with_locator),
        bench.node("b", addrs[1], &with_locator),
    ];
    for node in &nodes {
        node.view_of(2);
    }
    // Members tell their locator within a moment that they are members now.
    let expects = |told: &Told| {
        let steps = told.steps.iter().filter(|step| step["step"] == "locator");
        steps
            .filter_map(|step| step["text"].as_str())
            .any(|text| text.contains("knows 2 members"))
    };
    let mut told = doctor(&bench, &new);
    let until = std::time::Instant::now() + PATIENCE;
    while !expects(&told) && std::time::Instant::now() < until {
        told = doctor(&bench, &new);
    }
    assert!(expects(&told), "{told}");
    let asked = |addr: &SocketAddr| {
        let mut steps = told.steps.iter();
        steps.any(|step| step["step"] == "verdict" && step["subject"] == addr.to_string())
            || told
                .steps
                .iter()
                .any(|step| step["step"] == "answer" && step["subject"] == addr.to_string())
    };
    assert!(asked(&addrs[0]) && asked(&addrs[1]), "{told}");
    // It expects another number; that concerns founders only.
    assert_eq!(
        (told.code, &told.verdict["gets_in"]),
        (Some(0), &true.into()),
        "{told}"
    );
    let verdict = told.verdict["text"].as_str().unwrap();
    assert!(
        verdict.contains("the cluster is there") && verdict.contains("of 2 members"),
        "{told}"
    );
}

#[test]
fn packets_that_vanish_and_peers_that_say_nothing_are_told_apart() {
    let bench = Bench::new();
    // A listener that accepts nothing, its queue full: the kernel drops what comes.
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let full_addr = full.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&full_addr, Duration::from_millis(300)) {
        waiting.push(stream);
        assert!(waiting.len() < 100, "the queue of a listener is endless here");
    }
    let http = strange_peer(b"HTTP/1.1 400 Bad Request\r\n\r\n", 1, true);
    let mute = strange_peer(b"", 1, true);
    let curt = strange_peer(b"", 1, false);
    let banner = strange_peer(b"SSH-2.0-x\r\n", 0, true);
    let told = doctor(
        &bench,
        &newcomer(free_addrs(1)[0], &[full_addr, http, mute, curt, banner]),
    );
    assert_eq!(told.failed("timeout")["subject"], full_addr.to_string(), "{told}");
    assert!(
        told.failed("timeout")["remedy"]
            .as_str()
            .unwrap()
            .contains("firewall")
    );
    assert_eq!(told.failed("silent")["subject"], mute.to_string(), "{told}");
    assert_eq!(told.failed("closed")["subject"], curt.to_string(), "{told}");
    let strangers: Vec<&Value> = told
        .steps
        .iter()
        .filter(|step| step["code"] == "stranger")
        .collect();
    assert_eq!(strangers.len(), 2, "{told}");
    assert!(strangers[0]["text"].as_str().unwrap().contains("HTTP/1.1 400"));
    assert!(strangers[1]["text"].as_str().unwrap().contains("SSH-2.0"));
    assert_eq!(told.code, Some(1));
    drop(waiting);
}

#[test]
fn another_key_no_key_and_another_cluster_are_told_apart() {
    let bench = Bench::new();
    let (mine, theirs) = (key(&bench, "mine"), key(&bench, "theirs"));
    let addrs = free_addrs(3);
    let keyed = bench.node("k", addrs[0], &format!("--key-file {}", theirs.display()));
    let plain = bench.node("p", addrs[1], "--cluster coffee");
    keyed.view_of(1);
    plain.view_of(1);
    let with_key = format!(
        "{} --key-file {}",
        newcomer(addrs[2], &addrs[..1]),
        mine.display()
    );
    let told = doctor(&bench, &with_key);
    let failed = told.failed("wrong-key");
    assert!(
        failed["text"].as_str().unwrap().contains("another cluster key"),
        "{told}"
    );
    let id = told.step("key", "ok")["text"].as_str().unwrap().to_owned();
    assert!(id.contains("key id "), "{told}");
    let without = doctor(&bench, &newcomer(addrs[2], &addrs[..1]));
    assert!(
        without.failed("wrong-key")["text"]
            .as_str()
            .unwrap()
            .contains("no key"),
        "{without}"
    );
    let right = doctor(
        &bench,
        &format!(
            "{} --key-file {}",
            newcomer(addrs[2], &addrs[..1]),
            theirs.display()
        ),
    );
    assert_eq!(right.code, Some(0), "{right}");
    let other = doctor(&bench, &newcomer(addrs[2], &addrs[1..2]));
    assert!(
        other.failed("other-cluster")["text"]
            .as_str()
            .unwrap()
            .contains("\"tea\""),
        "{other}"
    );
    assert_eq!((other.code, &other.verdict["gets_in"]), (Some(1), &false.into()));
}

#[test]
fn builds_that_cannot_talk_to_each_other_are_told_which_to_upgrade() {
    let bench = Bench::new();
    // What builds of other frame versions and wire levels say: the notice is the same in all.
    let newer = strange_peer(b"ATPN\x02\x01\x02\x00", 26, false);
    let older = strange_peer(b"ATPN\x00\x01\x02\x00", 26, false);
    let level = strange_peer(b"ATPN\x01\x03\x00\x00", 26, false);
    let told = doctor(&bench, &newcomer(free_addrs(1)[0], &[newer, older, level]));
    let versions: Vec<&Value> = told
        .steps
        .iter()
        .filter(|step| step["code"] == "wire-version")
        .collect();
    assert_eq!(versions.len(), 2, "{told}");
    assert_eq!(versions[0]["remedy"], "upgrade this one");
    assert_eq!(versions[1]["remedy"], "upgrade that node");
    let level = told.failed("wire-level");
    assert!(level["text"].as_str().unwrap().contains("wire level 3"), "{told}");
    assert_eq!(level["remedy"], "upgrade this one");
}

#[test]
fn a_name_that_is_taken_other_group_options_and_another_seed_list_are_told_in_the_clusters_words() {
    let bench = Bench::new();
    let (_nodes, addrs) = bench.cluster(2);
    let elsewhere = free_addrs(1)[0];
    let settings = format!(
        "--cluster tea --name a --bind {elsewhere} --seeds {}",
        list(&addrs)
    );
    let taken = doctor(&bench, &settings);
    let failed = taken.failed("refused");
    assert!(
        failed["text"]
            .as_str()
            .unwrap()
            .contains("the name a is taken by a live member"),
        "{taken}"
    );
    assert_eq!(taken.verdict["gets_in"], false, "{taken}");
    let fifo = doctor(&bench, &format!("{} --order fifo", newcomer(elsewhere, &addrs)));
    let failed = fifo.failed("group-options");
    assert!(failed["text"].as_str().unwrap().contains("order total"), "{fifo}");
    assert!(
        failed["subject"].as_str().unwrap().starts_with("main at"),
        "{fifo}"
    );

    let three = free_addrs(3);
    let _founder = bench.node("f", three[0], &format!("--seeds {}", list(&three)));
    let other = doctor(&bench, &newcomer(three[1], &three[..2]));
    let failed = other.failed("refused");
    assert!(
        failed["text"].as_str().unwrap().contains("another seed list"),
        "{other}"
    );
}

#[test]
fn another_membership_engine_is_told_by_members_and_by_those_that_form() {
    let bench = Bench::new();
    let addrs = free_addrs(3);
    let member = bench.node("m", addrs[0], "--membership cut");
    member.view_of(1);
    let _forms = bench.node(
        "f",
        addrs[1],
        &format!("--membership cut --seeds {}", list(&addrs[1..])),
    );
    for seeds in [&addrs[..1], &addrs[1..]] {
        let settings = newcomer(addrs[2], seeds);
        let told = doctor(&bench, &settings);
        let engine = told.failed("engine")["text"].as_str().unwrap();
        assert!(
            engine.contains("`cut`") && engine.contains("`coordinator`"),
            "{told}"
        );
        let refused = told.failed("refused")["text"].as_str().unwrap();
        assert!(refused.contains("`membership`"), "{told}");
        assert_eq!(told.verdict["gets_in"], false, "{told}");
        let alike = doctor(&bench, &format!("{settings} --membership cut"));
        alike.step("engine", "ok");
        assert_eq!(alike.verdict["gets_in"], true, "{alike}");
    }
}

#[test]
fn a_port_that_is_taken_names_who_has_it() {
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let told = doctor(&bench, &newcomer(addr, &free_addrs(1)));
    assert_eq!(told.verdict["gets_in"], false, "{told}");
    let text = told.failed("address-in-use")["text"].as_str().unwrap();
    if cfg!(target_os = "linux") {
        assert!(
            text.contains(&format!("process {}", std::process::id())),
            "{told}"
        );
    }
    let not_here = doctor(
        &bench,
        &format!("--cluster c --name n --insecure --bind 192.0.2.77:7400 --seeds {addr}"),
    );
    assert_eq!(not_here.verdict["gets_in"], false, "{not_here}");
    assert!(
        not_here.failed("address-not-here")["remedy"]
            .as_str()
            .unwrap()
            .contains("--advertise"),
        "{not_here}"
    );
}

#[test]
fn answers_that_do_not_come_back_show_that_the_advertised_address_is_wrong() {
    let bench = Bench::new();
    let (_nodes, addrs) = bench.cluster(2);
    let [bind, nowhere] = free_addrs(2)[..] else {
        panic!()
    };
    let told = doctor(
        &bench,
        &format!("{} --advertise {nowhere}", newcomer(bind, &addrs)),
    );
    let failed = told.failed("no-answer");
    assert!(
        failed["text"].as_str().unwrap().contains(&nowhere.to_string()),
        "{told}"
    );
    assert!(
        failed["remedy"].as_str().unwrap().contains("--advertise"),
        "{told}"
    );
    assert_eq!(told.code, Some(1));
}

#[test]
fn a_node_that_runs_is_asked_what_it_waits_for() {
    let bench = Bench::new();
    let addrs = free_addrs(3);
    let settings = format!(
        "--cluster tea --name a --bind {} --seeds {} --profile local",
        addrs[0],
        list(&addrs)
    );
    let node = bench.node("a", addrs[0], &format!("--seeds {}", list(&addrs)));
    bench.until("members", |answer| {
        answer["forming"]["missing"]
            .as_array()
            .is_some_and(|missing| missing.len() == 2)
    });
    let told = doctor(&bench, &settings);
    let forming = told.failed("forming")["text"].as_str().unwrap();
    assert!(
        forming.contains(&addrs[1].to_string()) && forming.contains(&addrs[2].to_string()),
        "{told}"
    );
    assert!(
        told.step("bind", "ok")["text"]
            .as_str()
            .unwrap()
            .contains(&node.child.id().to_string()),
        "{told}"
    );
    // Without any settings, whoever runs is asked.
    let bare = doctor(&bench, "");
    bare.failed("forming");
    assert_eq!(bare.code, Some(1), "{bare}");

    let _second = bench.node("b", addrs[1], &format!("--seeds {}", list(&addrs)));
    node.view_of(2);
    let told = doctor(&bench, &settings);
    assert_eq!(told.failures(), ["nobody-listens"], "{told}");
    assert!(
        told.step("running", "ok")["text"]
            .as_str()
            .unwrap()
            .contains("2 members"),
        "{told}"
    );
    assert!(
        told.verdict["text"]
            .as_str()
            .unwrap()
            .contains("is a member of view"),
        "{told}"
    );
    node.signal(Signal::STOP);
    let told = doctor(&bench, &settings);
    told.failed("node-stopped");
    let at = bench
        .sockets()
        .into_iter()
        .find(|path| path.to_string_lossy().contains(".a."));
    let at = at.expect("the socket of the node");
    let told = doctor(&bench, &format!("{settings} --console {}", at.display()));
    told.failed("node-stopped");
    node.signal(Signal::CONT);
}

#[test]
fn two_clusters_of_one_name_are_noticed() {
    let bench = Bench::new();
    let addrs = free_addrs(3);
    let nodes = [
        bench.node("a", addrs[0], "--found"),
        bench.node("b", addrs[1], "--found"),
    ];
    nodes.iter().for_each(|node| drop(node.view_of(1)));
    let told = doctor(&bench, &newcomer(addrs[2], &addrs[..2]));
    assert!(
        told.failed("two-clusters")["text"]
            .as_str()
            .unwrap()
            .contains("2 clusters"),
        "{told}"
    );
    let remedy = told.failed("two-clusters")["remedy"].as_str().unwrap();
    assert!(remedy.contains("none of them has this seed list"), "{told}");
}

#[test]
fn udp_that_passes_and_udp_that_does_not_are_told_where_it_is_used() {
    let bench = Bench::new();
    let addrs = free_addrs(3);
    let nodes = [
        bench.node("u", addrs[0], "--transport udp --found"),
        bench.node("t", addrs[1], &format!("--seeds {}", addrs[0])),
    ];
    nodes.iter().for_each(|node| drop(node.view_of(2)));
    let settings = newcomer(addrs[2], &addrs[..2]);
    let told = doctor(&bench, &format!("{settings} --transport udp"));
    assert_eq!(told.step("udp", "ok")["subject"], addrs[0].to_string(), "{told}");
    let warned = told.step("udp", "warning");
    assert_eq!(warned["subject"], addrs[1].to_string(), "{told}");
    assert!(warned["text"].as_str().unwrap().contains("go by TCP"), "{told}");
    assert_eq!(told.code, Some(0), "{told}");
    // Probes pass to both, and to none that has no socket for them.
    let told = doctor(&bench, &settings);
    let passes = told
        .steps
        .iter()
        .filter(|step| step["step"] == "udp" && step["outcome"] == "ok");
    assert_eq!(passes.count(), 2, "{told}");
    let without = free_addrs(1)[0];
    let seeds = format!("--seeds {} --udp-probes=false", addrs[0]);
    let deaf = bench.node("w", without, &seeds);
    deaf.view_of(3);
    let told = doctor(&bench, &newcomer(addrs[2], &[without]));
    let warned = told.failed("udp-refused");
    assert!(
        warned["text"].as_str().unwrap().contains("heartbeats go by TCP"),
        "{told}"
    );
    assert!(
        warned["remedy"].as_str().unwrap().contains("--udp-probes=false"),
        "{told}"
    );
    assert_eq!(told.code, Some(0), "{told}");
    let nothing = format!("{settings} --udp-probes=false");
    doctor(&bench, &nothing).step("udp", "skipped");
}

#[test]
fn where_new_nodes_get_no_console_those_that_run_with_one_are_asked_all_the_same() {
    let bench = Bench::new();
    let node = bench.node("a", free_addrs(1)[0], "");
    node.view_of(1);
    let mut program = bench.program();
    let doctor = program.args(["doctor", "--json"]).env("ANTIPHON_CONSOLE", "none");
    let output = doctor.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("\"outcome\":\"ok\",\"step\":\"running\""), "{text}");
}
