//! `antiphon recover`: only where the majority is lost, only with somebody's word, and never unseen.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use super::common::{Bench, Node, PATIENCE, free_addrs, list};
use super::exits::{documented, unread};
use antiphon_lab::Signal;
use serde_json::{Value, json};

/// Three nodes, the last of which is cut off from the others and knows it.
fn cut_off(bench: &Bench, engine: &str) -> Vec<Node> {
    let addrs = free_addrs(3);
    let nodes: Vec<Node> = addrs
        .iter()
        .zip(["a", "b", "c"])
        .map(|(addr, name)| {
            let settings = format!("--seeds {} --allow-faults --membership {engine}", list(&addrs));
            bench.node(name, *addr, &settings)
        })
        .collect();
    for node in &nodes {
        node.view_of(3);
    }
    nodes[2].say(json!({"fault": {"block": ["a", "b"]}}));
    nodes[2].event(|line| line["event"] == "node_view" && line["primary"] == false);
    nodes[0].view_of(2);
    nodes
}

fn error(bench: &Bench, arguments: &str) -> (Option<i32>, String) {
    let output = bench.run(arguments);
    assert!(!output.status.success(), "{arguments}");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_member_of_a_primary_view_is_refused_and_so_is_a_node_that_is_not_here() {
    let bench = Bench::new();
    let (_nodes, _) = bench.cluster(2);
    let before = bench.json("members --node a");
    let (code, text) = error(&bench, "recover --from a --yes");
    assert_eq!(code, Some(1));
    assert!(
        text.contains("primary view") && text.contains("nothing is to be recovered"),
        "{text}"
    );
    assert_eq!(bench.json("members --node a")["id"], before["id"]);
    let (code, text) = error(&bench, "recover --from z --yes");
    assert_eq!(code, Some(1));
    assert!(text.contains("no node called z"), "{text}");
    // A socket is chosen by its path, and still must be that of the node that is meant.
    let of_a = bench
        .sockets()
        .into_iter()
        .find(|path| path.to_string_lossy().contains("tea.a."));
    let of_a = of_a.expect("the socket of a");
    let (code, text) = error(
        &bench,
        &format!("recover --from b --yes --console {}", of_a.display()),
    );
    assert_eq!(code, Some(2));
    assert!(text.contains("and not b"), "{text}");
}

#[test]
fn nothing_happens_without_somebodys_word() {
    let bench = Bench::new();
    let _nodes = cut_off(&bench, "coordinator");
    let output = bench.run("recover --from c");
    assert_eq!(output.status.code(), Some(2));
    let (shown, error) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    for expected in [
        "UNSAFE",
        "left behind: a at",
        "left behind: b at",
        "NOT proven dead",
        "TWO clusters",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(
        error.contains("--yes") && error.contains("Nothing was changed"),
        "{error}"
    );
    // Nor where nobody can have seen what it would mean.
    assert_eq!(unread(&bench, "recover --from c --yes"), 4);
    assert_eq!(bench.json("members --node c")["state"], "non-primary");
    // The others come where it is done, or refused.
    assert_eq!(documented(&bench, "recover"), BTreeSet::from([0, 1, 2, 4, 5]));
}

#[test]
fn a_survivor_goes_on_alone_and_says_so_and_gives_way_to_a_majority_that_lived_after_all() {
    for engine in ["coordinator", "cut"] {
        a_survivor_goes_on_alone_and_gives_way(engine);
    }
}

fn a_survivor_goes_on_alone_and_gives_way(engine: &str) {
    let bench = Bench::new();
    let nodes = cut_off(&bench, engine);
    let before = bench.json("members --node c");
    let text = bench.text("recover --from c --yes --json");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [shown, done] = lines.as_slice() else {
        panic!("{text}");
    };
    assert_eq!(
        (&shown["answer"], &shown["may_fork"]),
        (&json!("recovery"), &json!(true))
    );
    let others: Vec<&Value> = shown["others"]
        .as_array()
        .unwrap()
        .iter()
        .map(|other| &other["name"])
        .collect();
    assert_eq!(others, ["a", "b"]);
    assert_eq!(
        (&done["answer"], &done["view"]),
        (&json!("recovered"), &json!("2:1"))
    );
    assert_ne!(done["lineage"], shown["lineage"]);
    assert!(done["number"].as_u64() > shown["number"].as_u64());

    let view = nodes[2].view_of(1);
    let crashed = view["crashed"].as_array().unwrap();
    assert_eq!(crashed.len(), 2);
    assert!(
        crashed
            .iter()
            .all(|gone| gone["cause"].as_str().unwrap().contains("operator")),
        "{view}"
    );
    let members = bench.json("members --node c");
    assert_eq!(
        (&members["state"], &members["recoveries"], &members["id"]),
        (&json!("primary"), &json!(1), &json!("2:1"))
    );
    assert_eq!(before["recoveries"], 0);
    assert!(bench.text("members --node c").contains("recovered by hand"));
    let (code, again) = error(&bench, "recover --from c --yes");
    assert_eq!(code, Some(1), "{again}");

    // The two had lived: it was a mistake, and the heavier side keeps what it did.
    nodes[2].say(json!({"fault": {}}));
    nodes[2].event(|line| line["event"] == "expelled");
    nodes[2].view_of(3);
    let members = bench.until("members --node c", |members| {
        members["members"].as_array().unwrap().len() == 3
    });
    assert_eq!(members["recoveries"], 0);
}

#[test]
fn a_node_does_not_do_what_a_client_asked_that_has_given_up() {
    let bench = Bench::new();
    let nodes = cut_off(&bench, "coordinator");
    let mut sockets = bench.sockets().into_iter();
    let of_c = sockets.find(|path| path.to_string_lossy().contains("tea.c."));
    let stream = UnixStream::connect(of_c.expect("the socket of c")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut lines = BufReader::new(&stream).lines();
    let mut answer = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(answer()["answer"], "hello");
    writeln!(&stream, "{}", json!({"v": 1, "ask": "recovery"})).unwrap();
    let shown = answer();
    assert_eq!(shown["answer"], "recovery", "{shown}");
    let mut recover = json!({"v": 1, "ask": "recover", "lineage": shown["lineage"], "view": shown["view"]});
    // Nor what was shown without the warning of a second cluster.
    writeln!(&stream, "{recover}").unwrap();
    assert_eq!(answer()["code"], "not-recovered");
    nodes[2].signal(Signal::STOP);
    recover["may_fork"] = json!(true);
    writeln!(&stream, "{recover}").unwrap();
    drop(stream);
    nodes[2].signal(Signal::CONT);
    // What was asked first is taken up first.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        let members = bench.json("members --node c");
        assert_eq!(
            (&members["state"], &members["recoveries"]),
            (&json!("non-primary"), &json!(0))
        );
    }
    let again = bench.text("recover --from c --yes --json");
    assert!(again.contains(shown["lineage"].as_str().unwrap()), "{again}");
}

#[test]
fn where_a_node_does_not_answer_it_is_not_known_whether_it_goes_on_alone() {
    let bench = Bench::new();
    let path = bench.directory.join("mute.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let hello = json!({"answer": "hello", "v": 1, "cluster": "tea", "node": "a", "addrs": [], "pid": 1, "build": "1"});
        let shown = json!({
            "answer": "recovery", "node": "a", "cluster": "tea", "lineage": "l", "view": "1:1", "number": 1,
            "lost_ms": 1, "quorum": false, "may_fork": false, "others": [], "warnings": [],
        });
        let mut asked = Vec::new();
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            writeln!(&stream, "{hello}").unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            if line.contains("recovery") {
                writeln!(&stream, "{shown}").unwrap();
            } else {
                // The first of these connections ends, the second stays without a word.
                asked.push(stream);
                if asked.len() == 1 {
                    asked[0].shutdown(std::net::Shutdown::Both).unwrap();
                }
            }
        }
    });
    for reason in ["the node has ended", "does not answer"] {
        let (code, text) = error(
            &bench,
            &format!("recover --from a --yes --console {}", path.display()),
        );
        assert_eq!(code, Some(5), "{text}");
        assert!(text.contains(reason), "{text}");
        assert!(
            text.contains("not known") && text.contains("`antiphon members`"),
            "{text}"
        );
    }
}

#[test]
fn components_that_go_on_apart_are_no_recoveries() {
    let bench = Bench::new();
    let addrs = free_addrs(2);
    let flags = format!("--seeds {} --policy any --allow-faults", list(&addrs));
    let nodes: Vec<Node> = ["a", "b"]
        .iter()
        .zip(&addrs)
        .map(|(name, addr)| bench.node(name, *addr, &flags))
        .collect();
    nodes.iter().for_each(|node| drop(node.view_of(2)));
    nodes[0].say(json!({"fault": {"block": ["b"]}}));
    nodes[1].say(json!({"fault": {"block": ["a"]}}));
    nodes.iter().for_each(|node| drop(node.view_of(1)));
    // One of the two is of a later epoch.
    let ids: Vec<Value> = ["a", "b"]
        .iter()
        .map(|name| {
            let members = bench.json(&format!("members --node {name}"));
            assert_eq!(members["recoveries"], 0, "{members}");
            members["id"].clone()
        })
        .collect();
    assert!(
        ids.iter().any(|id| !id.as_str().unwrap().starts_with("1:")),
        "{ids:?}"
    );
}
