//! `antiphon members`, `why` and `view` against running nodes, and their socket against whoever else
//! connects.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::common::{Bench, PATIENCE, exists, free_addrs, list, names, spoken_to};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

#[test]
fn members_are_shown_with_what_is_known_of_each() {
    let bench = Bench::new();
    let (_nodes, addrs) = bench.cluster(3);
    // Round trips are looked at with the heartbeats, group views come after node views.
    let answer = bench.until("members --node b", |answer| {
        let other = |member: &&Value| member["name"] != "b";
        let members = answer["members"].as_array().unwrap();
        members
            .iter()
            .filter(other)
            .all(|member| member["rtt_us"].is_u64())
            && members.iter().all(|member| member["groups"] == json!(["main"]))
            && members
                .iter()
                .filter(other)
                .all(|member| member["said"]["primary"] == true)
    });
    assert_eq!(answer["answer"], "members");
    assert_eq!(
        (&answer["node"], &answer["state"]),
        (&json!("b"), &json!("primary"))
    );
    let members = answer["members"].as_array().unwrap();
    for (rank, member) in members.iter().enumerate() {
        assert_eq!(member["rank"], rank);
        assert_eq!(member["elder"], rank == 0);
        let me = member["name"] == "b";
        assert_eq!(member["me"], me);
        assert_eq!(member["last_heard_ms"].is_u64(), !me, "{member}");
        assert_eq!(member["incarnation"].as_str().unwrap().len(), 32);
        let at = usize::from(member["name"].as_str().unwrap().as_bytes()[0] - b'a');
        let expected = json!([{"addr": addrs[at].to_string(), "up": null, "in_use": true}]);
        assert_eq!(member["links"], expected);
    }
    assert_eq!(
        (&answer["quorum"], &answer["lease"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(answer["suspicions"], json!([]));
    let elder = members[0]["name"].as_str().unwrap();
    assert_eq!(answer["coordinator"], elder);
    let text = bench.text("members --node b");
    for expected in [
        "elder",
        "asked",
        "round trip",
        "main",
        "nobody suspects anybody",
        &addrs[2].to_string(),
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn a_member_that_is_reached_through_another_is_shown_with_that_one() {
    let bench = Bench::new();
    let addrs = free_addrs(3);
    let arguments = format!("--seeds {} --allow-faults", list(&addrs));
    let start = |(name, addr): (&str, &_)| bench.node(name, *addr, &arguments);
    let nodes: Vec<_> = ["a", "b", "c"].into_iter().zip(&addrs).map(start).collect();
    for node in &nodes {
        node.view_of(3);
    }
    nodes[0].say(json!({"fault": {"block": ["c"]}}));
    nodes[2].say(json!({"fault": {"block": ["a"]}}));
    let relays = |answer: &Value| -> Vec<Value> {
        let members = answer["members"].as_array().unwrap().iter();
        let through = |member: &Value| json!([member["name"], member["through"], member["heard_through"]]);
        let mut relays: Vec<Value> = members.map(through).collect();
        relays.sort_by_key(Value::to_string);
        relays
    };
    let cut = [
        json!(["a", null, null]),
        json!(["b", null, null]),
        json!(["c", "b", "b"]),
    ];
    bench.until("members --node a", |answer| relays(answer) == cut);
    let text = bench.text("members --node a");
    assert!(text.contains("NO DIRECT PATH: through b"), "{text}");
    nodes[0].say(json!({"fault": {}}));
    nodes[2].say(json!({"fault": {}}));
    bench.until("members --node a", |answer| {
        relays(answer)
            .iter()
            .all(|relay| relay[1].is_null() && relay[2].is_null())
    });
}

#[test]
fn one_of_several_nodes_on_a_host_is_chosen_by_its_name() {
    let bench = Bench::new();
    let output = bench.run("members");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("no node answers here") && error.contains("antiphon node"),
        "{error}"
    );

    let (nodes, _) = bench.cluster(2);
    let output = bench.run("members");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    for expected in [
        "--node a --cluster tea",
        "--node b --cluster tea",
        &nodes[0].child.id().to_string(),
    ] {
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(bench.json("members --node a --cluster tea")["node"], "a");
    let other = bench.run("members --node a --cluster coffee");
    assert_eq!(other.status.code(), Some(1));
    let of_b = bench
        .sockets()
        .into_iter()
        .find(|path| path.to_string_lossy().contains("tea.b."));
    let path = of_b.expect("the socket of b");
    assert_eq!(
        bench.json(&format!("members --console {}", path.display()))["node"],
        "b"
    );
    // What is asked for by name wins over a path, which may come from the environment.
    for (asked, other) in [
        ("--node a", "not a:"),
        ("--node b --cluster coffee", "not b of cluster coffee"),
        ("--cluster coffee", "not a node of cluster coffee"),
    ] {
        for command in ["members", "why a", "view"] {
            let mut program = bench.program();
            program.args(command.split(' ')).args(asked.split(' '));
            let output = program.env("ANTIPHON_CONSOLE", &path).output().unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{error}");
            assert!(
                error.contains("listens b of cluster tea") && error.contains(other),
                "{error}"
            );
            assert!(output.stdout.is_empty());
        }
    }
    let both = format!("members --console {} --node b --cluster tea", path.display());
    assert_eq!(bench.json(&both)["node"], "b");
}

#[test]
fn json_with_what_a_terminal_would_act_on_is_json_and_a_terminal_acts_on_nothing() {
    const NAME: &str = "a\u{200f}b";
    const RECOVERY: &str = "{\"answer\":\"recovery\",\"node\":\"a\",\"cluster\":\"tea\",\"lineage\":\"0\",\"view\":\"1:1\",\"number\":1,\"lost_ms\":1,\"quorum\":false,\"may_fork\":false,\"others\":[],\"warnings\":[\"\u{202e}\u{9b}\"]}";
    let bench = Bench::new();
    let node = bench.node(NAME, free_addrs(1)[0], "");
    node.view_of(1);
    let asked = |command: &str| -> Vec<Value> {
        let output = bench.run(command);
        let text = String::from_utf8(output.stdout).unwrap();
        let acts = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{200f}' | '\u{202e}'));
        assert!(!text.contains(acts), "{text:?}");
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
            .collect()
    };
    assert_eq!(asked("members --json")[0]["node"], NAME);
    let why = &asked("why z\u{7f} --json")[0];
    assert_eq!((&why["node"], &why["asked"]), (&json!("z\u{7f}"), &json!(NAME)));
    let views = asked("view --json");
    let view = views.iter().find(|line| line["event"] == "node_view");
    assert_eq!(names(&view.unwrap()["members"]), [NAME]);
    let doctor = asked("doctor --json");
    assert!(
        doctor.iter().any(|step| step["subject"].is_string()),
        "{doctor:?}"
    );
    let path = bench.directory.join("survivor.sock");
    newer_node(&path, &[RECOVERY]);
    let recovery = asked(&format!("recover --from a --json --console {}", path.display()));
    assert_eq!(recovery[0]["warnings"], json!(["\u{202e}\u{9b}"]));
}

#[test]
fn a_node_that_never_was_one_that_left_and_one_that_was_killed_are_told_apart() {
    let bench = Bench::new();
    let (mut nodes, addrs) = bench.cluster(3);
    nodes.pop().unwrap().leave();
    let killed = nodes.pop().unwrap();
    let survivor = nodes.pop().unwrap();
    killed.kill();
    survivor.event(|line| line["event"] == "node_view" && line["crashed"][0]["name"] == "b");
    let left = bench.json("why c");
    assert_eq!(
        (&left["verdict"], &left["asked"]),
        (&json!("left"), &json!("a")),
        "{left:#}"
    );
    let killed = bench.json("why b");
    assert_eq!(killed["verdict"], "removed", "{killed:#}");
    let facts = killed["facts"].as_array().unwrap();
    let departed = facts.iter().find(|fact| fact["kind"] == "departed").unwrap();
    assert_eq!(departed["accusers"][0]["name"], "a");
    assert!(
        departed["accusers"][0]["evidence"]
            .as_str()
            .unwrap()
            .contains("process has ended")
    );
    assert!(
        departed["view"].is_u64() && departed["ago_ms"].is_u64(),
        "{departed}"
    );
    assert!(facts.iter().any(|fact| fact["kind"] == "joined"));
    let member = bench.json("why a");
    assert_eq!(member["verdict"], "member", "{member:#}");
    let unknown = bench.json("why nobody");
    assert_eq!(unknown["verdict"], "unknown", "{unknown:#}");
    assert!(
        unknown["text"]
            .as_str()
            .unwrap()
            .contains("none has asked to be admitted")
    );
    let text = bench.text("why b");
    assert!(
        text.contains("b is no member") && text.contains("process has ended"),
        "{text}"
    );

    // Another process under the name of a member: refused, and the one that refuses knows it.
    let elsewhere = free_addrs(1)[0];
    let twin = bench.node(
        "a",
        elsewhere,
        &format!("--seeds {} --console none", list(&addrs)),
    );
    let refused = twin.event(|line| line["event"] == "refused");
    let why = bench.json("why a");
    assert_eq!(why["verdict"], "member");
    let fact = why["facts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|fact| fact["kind"] == "refused");
    let fact = fact.unwrap_or_else(|| panic!("{why:#}"));
    assert_eq!(fact["cause"], refused["reason"]);
    assert!(fact["text"].as_str().unwrap().contains(&elsewhere.to_string()));
    let members = bench.json("members");
    assert_eq!(members["refused"][0]["addr"], elsewhere.to_string());
}

#[test]
fn why_says_what_a_member_said_last_and_who_else_may_know_of_a_stranger() {
    let bench = Bench::new();
    let (_nodes, _) = bench.cluster(2);
    let members = bench.json("members --node a");
    let elder = members["coordinator"].as_str().unwrap().to_owned();
    let other = if elder == "a" { "b" } else { "a" };
    let why = bench.until(&format!("why {elder} --node {other}"), |why| {
        why["facts"]
            .as_array()
            .unwrap()
            .iter()
            .any(|fact| fact["kind"] == "said")
    });
    let said = why["facts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|fact| fact["kind"] == "said")
        .unwrap();
    let text = said["text"].as_str().unwrap();
    assert!(
        text.contains("in the majority") && text.contains("suspects nobody"),
        "{text}"
    );
    let stranger = bench.json(&format!("why stranger --node {other}"));
    assert!(
        stranger["text"]
            .as_str()
            .unwrap()
            .contains(&format!("{elder} knows, who admits nodes")),
        "{stranger}"
    );
}

#[test]
fn views_are_shown_with_their_causes_and_followed_as_they_come_until_the_node_goes() {
    let bench = Bench::new();
    let (mut nodes, addrs) = bench.cluster(2);
    let watching = bench.spoken_to("view --watch --json --node a");
    let next = |wanted: &dyn Fn(&Value) -> bool| {
        watching.event(|line| {
            assert!(line["at_ms"].as_u64().unwrap() > 1_700_000_000_000, "{line}");
            wanted(line)
        })
    };
    let both = next(&|line| line["event"] == "node_view" && line["members"].as_array().unwrap().len() == 2);
    assert_eq!(both["primary"], true);
    // A third comes, and is killed.
    let third = bench.node("c", free_addrs(1)[0], &format!("--seeds {}", list(&addrs)));
    next(&|line| line["event"] == "node_view" && line["joined"] == json!(["c"]));
    third.kill();
    let gone = next(&|line| line["event"] == "node_view" && line["crashed"][0]["name"] == "c");
    assert_eq!(gone["crashed"][0]["cause"], "crashed");
    assert_eq!(
        gone["crashed"][0]["addr"].as_str().unwrap().split(':').next(),
        Some("127.0.0.1")
    );
    assert!(!gone["crashed"][0]["accusers"].as_array().unwrap().is_empty());
    assert!(gone["number"].as_u64() > both["number"].as_u64());

    let text = bench.text("view --node b");
    for expected in ["view", "joined: c", "- c: crashed (", "(elder)"] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    let last = bench.text("view --node b --json --last 1");
    let last: Value = serde_json::from_str(last.trim()).expect("one line");
    assert_eq!(last["number"], gone["number"]);
    let from_last = bench.spoken_to("view --watch --json --last 1 --node b");
    let first = from_last.line();
    assert_eq!(first["number"], gone["number"]);

    nodes.remove(0).leave();
    next(&|line| line["event"] == "left");
    assert!(watching.exit().success());
    let error = watching.log();
    assert!(error.contains("the node a has ended"), "{error}");

    // One that is killed says nothing any more.
    let without_a = |line: &Value| line["event"] == "node_view" && line["left"][0]["name"] == "a";
    from_last.event(without_a);
    nodes.remove(0).kill();
    assert_eq!(from_last.exit().code(), Some(1));
}

/// A node of a build that does not exist yet: it says this to whoever asks, and ends the connection.
fn newer_node(path: &std::path::Path, says: &'static [&'static str]) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let hello = r#"{"answer":"hello","v":1,"cluster":"tea","node":"a","addrs":[],"pid":1,"build":"9.0.0","mood":"good"}"#;
            writeln!(stream, "{hello}").unwrap();
            let mut question = String::new();
            BufReader::new(stream.try_clone().unwrap())
                .read_line(&mut question)
                .unwrap();
            for line in says {
                writeln!(stream, "{line}").unwrap();
            }
        }
    });
}

#[test]
fn what_a_newer_node_says_more_is_passed_over_or_passed_on() {
    const EVENT: &str = r#"{"answer":"happened","at_ms":1,"event":"teatime","with":["a"],"cups":3}"#;
    const LEFT: &str = r#"{"answer":"happened","at_ms":2,"event":"left","why":"tired"}"#;
    let bench = Bench::new();
    let path = bench.directory.join("newer.sock");
    newer_node(
        &path,
        &[
            EVENT,
            r#"{"answer":"weather","rain":true}"#,
            LEFT,
            r#"{"answer":"end"}"#,
        ],
    );
    let view = format!("view --console {}", path.display());
    let text = bench.text(&view);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].ends_with("something that this build has no words for"),
        "{text}"
    );
    assert!(lines[1].ends_with("left in order"), "{text}");
    assert_eq!(
        bench.text(&format!("{view} --json")),
        format!("{EVENT}\n{LEFT}\n")
    );
    assert_eq!(
        bench.text(&format!("{view} --json --last 1")),
        format!("{LEFT}\n")
    );

    // Without its last word it is not known whether that was all.
    let cut = bench.directory.join("cut.sock");
    newer_node(&cut, &[EVENT]);
    let output = bench.run(&format!("view --console {}", cut.display()));
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("was cut"), "{error}");
}

#[test]
fn a_watcher_ends_at_the_first_interrupt_and_with_its_reader() {
    let bench = Bench::new();
    let node = bench.node("a", free_addrs(1)[0], "");
    node.view_of(1);
    for signal in [Some(Signal::INT), Some(Signal::TERM), None] {
        let mut watching = bench
            .program()
            .args(["view", "--watch"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(watching.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        match signal {
            Some(signal) => {
                kill_process(Pid::from_child(&watching), signal).unwrap();
                assert!(watching.wait().unwrap().success(), "{signal:?}");
            }
            None => {
                // Nothing happens that would be written.
                drop(stdout);
                assert_eq!(watching.wait().unwrap().code(), Some(4));
            }
        }
    }
}

#[test]
fn a_node_alone_among_the_silent_says_whom_it_suspects_and_that_it_has_no_majority() {
    let bench = Bench::new();
    let (nodes, _) = bench.cluster(3);
    for silent in &nodes[1..] {
        silent.signal(Signal::STOP);
    }
    // It stops believing before it knows who is left.
    bench.until("members --node a", |answer| answer["lease"] == false);
    let answer = bench.until("members --node a", |answer| answer["state"] == "non-primary");
    assert_eq!(
        (&answer["quorum"], &answer["lease"]),
        (&json!(false), &json!(false))
    );
    let mut suspected: Vec<&str> = answer["suspicions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|edge| edge["accuser"] == "a")
        .map(|edge| edge["accused"].as_str().unwrap())
        .collect();
    suspected.sort_unstable();
    assert_eq!(suspected, ["b", "c"], "{answer:#}");
    let evidence = answer["suspicions"][0]["evidence"].as_str().unwrap();
    assert!(evidence.contains("silent"), "{evidence}");
    let mut absent: Vec<&str> = answer["absent"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    absent.sort_unstable();
    assert_eq!(absent, ["b", "c"]);
    let text = bench.text("members --node a");
    assert!(
        text.contains("NO majority") && text.contains("a suspects b"),
        "{text}"
    );
    let why = bench.json("why b --node a");
    assert_eq!(why["verdict"], "suspected", "{why:#}");
    assert!(
        why["facts"]
            .as_array()
            .unwrap()
            .iter()
            .any(|fact| fact["kind"] == "absent"),
        "{why:#}"
    );
    let view = bench.text("view --node a");
    assert!(view.contains("NO MAJORITY"), "{view}");
    // They are heard again: nobody is suspected any more, and whoever watched was told of both.
    let watching = bench.spoken_to("view --watch --json --node a");
    let next = |wanted: &str| {
        watching.event(|line| line["event"] == wanted && line["accuser"] == "a" && line["accused"] == "b");
    };
    next("suspected");
    for silent in &nodes[1..] {
        silent.signal(Signal::CONT);
    }
    next("cleared");
    watching.kill();
    let answer = bench.until("members --node a", |answer| {
        answer["state"] == "primary" && answer["suspicions"] == json!([])
    });
    assert_eq!(names(&answer["members"]).len(), 3);
}

#[test]
fn a_node_that_forms_says_whom_it_misses() {
    let bench = Bench::new();
    let addrs = free_addrs(3);
    let _node = bench.node("a", addrs[0], &format!("--seeds {}", list(&addrs)));
    let answer = bench.until("members", |answer| answer["forming"].is_object());
    let mut missing: Vec<&str> = answer["forming"]["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|addr| addr.as_str().unwrap())
        .collect();
    missing.sort_unstable();
    let mut expected = [addrs[1].to_string(), addrs[2].to_string()];
    expected.sort_unstable();
    assert_eq!(missing, expected);
    assert_eq!(
        (&answer["state"], &answer["view"]),
        (&json!("forming"), &json!(null))
    );
    let text = bench.text("members");
    assert!(
        text.contains("no answer from") && text.contains("antiphon doctor"),
        "{text}"
    );
    let why = bench.json("why b");
    assert_eq!(why["verdict"], "unknown");
    assert!(
        why["text"].as_str().unwrap().contains("in no cluster yet"),
        "{why}"
    );
}

#[test]
fn a_stopped_process_is_named_instead_of_waited_for() {
    let bench = Bench::new();
    let node = bench.node("a", free_addrs(1)[0], "");
    node.view_of(1);
    node.signal(Signal::STOP);
    let begun = Instant::now();
    let output = bench.run("members");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("process is stopped") && error.contains("tea.a."),
        "{error}"
    );
    assert!(begun.elapsed() < Duration::from_secs(20));
    let _other = bench.node("b", free_addrs(1)[0], "");
    let told = String::from_utf8(bench.run("members").stderr).unwrap();
    assert!(
        told.contains("b is asked") && told.contains("process is stopped"),
        "{told}"
    );
    node.signal(Signal::CONT);
    bench.until("members --node a", |answer| answer["node"] == "a");
}

#[test]
fn sockets_are_for_their_user_alone_and_go_with_their_nodes() {
    let bench = Bench::new();
    let (mut nodes, _) = bench.cluster(2);
    let sockets = bench.sockets();
    assert_eq!(sockets.len(), 2);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&bench.directory.join("antiphon")), 0o700);
    assert!(sockets.iter().all(|path| mode(path) == 0o600));
    nodes.pop().unwrap().leave();
    assert_eq!(bench.sockets().len(), 1);
    // kill -9 leaves it, and the next one who looks removes it.
    nodes.pop().unwrap().kill();
    assert_eq!(bench.sockets().len(), 1);
    assert_eq!(bench.run("members").status.code(), Some(1));
    assert_eq!(bench.sockets(), [""; 0].map(std::path::PathBuf::from));

    let path = bench.directory.join("mine.sock");
    let given = format!("--console {}", path.display());
    let node = bench.node("a", free_addrs(1)[0], &given);
    node.view_of(1);
    assert_eq!(mode(&path), 0o600);
    assert!(bench.sockets().is_empty());
    assert_eq!(bench.json(&format!("members {given}"))["node"], "a");
    let second = bench.run(&format!(
        "node --cluster tea --name b --bind {} {given}",
        free_addrs(1)[0]
    ));
    let error = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{error}");
    assert!(error.contains("console") && exists(&path), "{error}");
    node.leave();
    assert!(!exists(&path));

    let quiet = bench.node("q", free_addrs(1)[0], "--console none");
    quiet.view_of(1);
    assert!(bench.sockets().is_empty());
}

/// A raw connection to a console: what it says, a line at a time.
struct Raw {
    stream: UnixStream,
    lines: std::io::Lines<BufReader<UnixStream>>,
}

impl Raw {
    fn connect(bench: &Bench) -> Self {
        let stream = UnixStream::connect(&bench.sockets()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        Self { stream, lines }
    }

    fn line(&mut self) -> Value {
        let line = self.lines.next().expect("a line").unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn is_over(&mut self) -> bool {
        self.lines.next().is_none_or(|line| line.is_err())
    }
}

#[test]
fn whatever_a_client_sends_is_answered_or_ends_its_connection_and_the_node_goes_on() {
    let bench = Bench::new();
    let node = bench.node("a", free_addrs(1)[0], "");
    node.view_of(1);
    let mut client = Raw::connect(&bench);
    let hello = client.line();
    assert_eq!(
        (&hello["answer"], &hello["v"], &hello["node"]),
        (&json!("hello"), &json!(1), &json!("a"))
    );
    for (question, code) in [
        ("nonsense", "malformed"),
        ("", "malformed"),
        (r#"{"v":7,"ask":"members"}"#, "version"),
        (r#"{"v":1,"ask":"leave"}"#, "malformed"),
    ] {
        writeln!(client.stream, "{question}").unwrap();
        let answer = client.line();
        assert_eq!(
            (&answer["answer"], &answer["code"]),
            (&json!("error"), &json!(code)),
            "{question}"
        );
    }
    // Two questions at once are two answers; a question in pieces is one.
    client
        .stream
        .write_all(b"{\"v\":1,\"ask\":\"status\"}\n{\"v\":1,\"ask\":\"why\",")
        .unwrap();
    assert_eq!(client.line()["state"], "primary");
    client.stream.write_all(b"\"node\":\"a\"}\n").unwrap();
    assert_eq!(client.line()["verdict"], "member");
    // One without an end.
    client.stream.write_all(&vec![b'x'; 5000]).unwrap();
    assert_eq!(client.line()["code"], "too-long");
    assert!(client.is_over());

    let mut crowd: Vec<Raw> = (0..16).map(|_| Raw::connect(&bench)).collect();
    for watching in &mut crowd {
        assert_eq!(watching.line()["answer"], "hello");
        writeln!(
            watching.stream,
            "{}",
            json!({"v": 1, "ask": "views", "watch": true})
        )
        .unwrap();
        while watching.line()["answer"] != "now" {}
    }
    let mut one_more = Raw::connect(&bench);
    assert_eq!(one_more.line()["code"], "busy");
    assert!(one_more.is_over());
    let told = String::from_utf8(bench.run("members").stderr).unwrap();
    assert!(
        told.contains("16 clients are being served") && !told.contains("Start one"),
        "{told}"
    );
    super::doctor::doctor(&bench, "").failed("node-refuses");
    drop(crowd);
    let deadline = Instant::now() + PATIENCE;
    while !bench.run("members").status.success() {
        assert!(Instant::now() < deadline, "no room after all have gone");
    }
    node.say(json!({"send": {"payload": "still here"}}));
    node.event(|line| line["event"] == "message" && line["payload"] == "still here");
}

#[test]
fn connections_that_ask_nothing_keep_out_nobody_who_asks() {
    let bench = Bench::new();
    let node = bench.node("a", free_addrs(1)[0], "");
    node.view_of(1);
    let greeted = |_| {
        let mut client = Raw::connect(&bench);
        assert_eq!(client.line()["answer"], "hello");
        client
    };
    let mut crowd: Vec<Raw> = (0..16).map(greeted).collect();
    // One that has only just come may still ask, so it is left alone for a moment.
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut answered = 0;
    while answered < 3 {
        answered += usize::from(bench.run("members").status.success());
        assert!(Instant::now() < deadline, "the silent ones have 30 s");
    }
    let code = |client: &mut Raw| client.line()["code"].clone();
    assert_eq!(
        code(&mut crowd[0]),
        "busy",
        "the one that has been silent for the longest time"
    );
    assert!(crowd[0].is_over());
    let last = crowd.last_mut().unwrap();
    writeln!(last.stream, "{}", json!({"v": 1, "ask": "status"})).unwrap();
    assert_eq!(last.line()["state"], "primary", "there was room for all others");
}

#[test]
fn a_node_that_was_refused_says_so_of_itself() {
    let bench = Bench::new();
    let addrs = free_addrs(2);
    let _one = bench.node("a", addrs[0], "--found");
    // Of the same name at another address: refused, and not for good.
    let namesake = bench.node("a", addrs[1], &format!("--seeds {}", addrs[0]));
    let refused = namesake.event(|line| line["event"] == "refused");
    let reason = refused["reason"].as_str().unwrap();
    let pid = namesake.child.id().to_string();
    let socket = bench.sockets().into_iter().find(|socket| {
        let at = format!("--console {}", socket.display());
        bench.json(&format!("members {at}"))["state"] == "forming"
    });
    let at = format!(
        "--console {}",
        socket.unwrap_or_else(|| panic!("of {pid}")).display()
    );
    let members = bench.json(&format!("members {at}"));
    assert_eq!(members["forming"]["refused"]["reason"], reason, "{members}");
    let shown = bench.text(&format!("members {at}"));
    assert!(shown.contains("is refused") && shown.contains(reason), "{shown}");
    let why = bench.json(&format!("why a {at}"));
    assert_eq!(why["verdict"], "refused", "{why}");
    assert!(why["text"].as_str().unwrap().contains(reason), "{why}");
}

#[test]
fn each_member_says_whose_death_it_could_prove() {
    let bench = Bench::new();
    let (nodes, _) = bench.cluster(3);
    bench.until("members --node a", |members| {
        let mut members = members["members"].as_array().unwrap().iter();
        members.all(|member| match member["me"] == true {
            true => member["lifeline"].is_null(),
            false => member["lifeline"] == true,
        })
    });
    assert!(!bench.text("members --node a").contains("NO lifeline"));
    drop(nodes);
}

#[cfg(target_os = "linux")]
#[test]
fn a_node_without_a_file_to_open_still_answers_and_says_what_it_lacks() {
    let bench = Bench::new();
    let addrs = free_addrs(2);
    let _other = bench.node("a", addrs[0], "--found");
    let settings = format!(
        "--name b --cluster tea --bind {} --seeds {} --profile local",
        addrs[1], addrs[0]
    );
    let poor = spoken_to(super::limits::limited(
        &bench,
        "-n 16",
        &format!("node --json {settings}"),
    ));
    poor.event(|line| line["event"] == "forming");
    let members = bench.until("members --node b", |members| members["lacks"] != json!([]));
    let lacks = members["lacks"][0].as_str().unwrap();
    assert!(
        lacks.contains("may not open more files") && lacks.contains("LimitNOFILE"),
        "{lacks}"
    );
    assert!(bench.text("members --node b").contains("LACKS what it needs"));
    let told = super::doctor::doctor(&bench, &settings);
    assert!(told.failures().contains(&"lacks"), "{told}");
    poor.kill();
}
